// Drives the official JavaScript clients: `node clients.mjs '{"openai": URL, "anthropic": URL,
// "run": [["name", …arguments], …]}'` prints one JSON array with what each run came to.

import { File } from "node:buffer";
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";
import OpenAI, { toFile } from "openai";

// Node 18 has File, but not as a global, and the upload helpers ask for the global.
globalThis.File ??= File;

const { openai: openaiUrl, anthropic: anthropicUrl, run } = JSON.parse(process.argv[2]);
const messages = [{ role: "user", content: "Say hello." }];
const weather = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

const openai = (options) =>
  new OpenAI({ apiKey: "sk-good", baseURL: `${openaiUrl}/v1`, timeout: 10000, ...options });
const anthropic = (options) =>
  new Anthropic({ apiKey: "sk-ant-good", baseURL: anthropicUrl, timeout: 10000, ...options });
const vercel = () => createOpenAI({ apiKey: "sk-good", baseURL: `${openaiUrl}/v1` });

const chat = (model, options) =>
  openai(options).chat.completions.create({ model, messages, ...options?.body });
const say = (model, options) =>
  anthropic(options).messages.create({ model, messages, max_tokens: 64, ...options?.body });

// What a program can read from an error of any of the clients.
function told(error) {
  const inner = error.lastError ?? error;
  const headers = inner.headers ?? inner.responseHeaders ?? {};
  const header = (name) => (headers.get ? headers.get(name) : headers[name]) ?? null;
  return {
    name: error.name,
    class: error.constructor.name,
    api: error instanceof OpenAI.APIError || error instanceof Anthropic.APIError,
    connection:
      error instanceof OpenAI.APIConnectionError || error instanceof Anthropic.APIConnectionError,
    status: inner.status ?? inner.statusCode ?? null,
    code: inner.code ?? null,
    message: String(error.message),
    body: inner.error ?? null,
    envelope: JSON.parse(header("x-error-envelope")),
    decision: header("x-sidecar-decision"),
  };
}

async function outcome(ask) {
  try {
    return { value: await ask() };
  } catch (error) {
    return { error: told(error) };
  }
}

// The text of a stream as far as it came, and the error that ended it.
async function gather(open, textOf) {
  let text = "";
  try {
    for await (const event of await open()) text += textOf(event) ?? "";
    return { text };
  } catch (error) {
    return { text, error: told(error) };
  }
}

const runs = {
  "openai-chat": (model, options) =>
    outcome(async () => (await chat(model, options)).choices?.[0]?.message.content ?? null),
  "anthropic-messages": (model, options) =>
    outcome(async () => (await say(model, options)).content?.[0]?.text ?? null),
  "openai-responses": (model) =>
    outcome(async () => (await openai().responses.create({ model, input: "x" })).output_text),
  "openai-embeddings": (model) =>
    outcome(async () => (await openai().embeddings.create({ model, input: "x" })).data[0].embedding),
  "openai-tools": (model) =>
    outcome(async () => {
      const tools = [{ type: "function", function: { name: "weather", parameters: weather } }];
      const found = await chat(model, { body: { tools } });
      return found.choices[0].message.tool_calls[0].function;
    }),
  "anthropic-tools": (model) =>
    outcome(async () => {
      const tools = [{ name: "weather", input_schema: weather }];
      const { name, input } = (await say(model, { body: { tools } })).content[0];
      return { name, input };
    }),
  "openai-upload": (size) =>
    outcome(async () => {
      const file = await toFile(Buffer.alloc(size, "h"), "notes.jsonl");
      return (await openai().files.create({ file, purpose: "batch" })).id;
    }),
  "anthropic-upload": (size) =>
    outcome(async () => {
      const file = await toFile(Buffer.alloc(size, "h"), "notes.txt", { type: "text/plain" });
      return (await anthropic().beta.files.upload({ file })).id;
    }),
  "stream-chat": (model) =>
    gather(
      () => chat(model, { body: { stream: true } }),
      (event) => event.choices[0]?.delta.content,
    ),
  "stream-responses": (model) =>
    gather(
      () => openai().responses.create({ model, input: "x", stream: true }),
      (event) => (event.type === "response.output_text.delta" ? event.delta : ""),
    ),
  "stream-messages": (model) =>
    gather(
      () => say(model, { body: { stream: true } }),
      (event) => (event.type === "content_block_delta" ? event.delta.text : ""),
    ),
  "ai-chat": (model, options) =>
    outcome(async () => {
      return (await generateText({ model: vercel().chat(model), prompt: "x", ...options })).text;
    }),
  "ai-responses": (model, options) =>
    outcome(async () => {
      return (await generateText({ model: vercel()(model), prompt: "x", ...options })).text;
    }),
  // streamText throws nothing for an error that it was told of: that is a part of the stream.
  "ai-stream": async (model, kind) => {
    const chosen = kind === "chat" ? vercel().chat(model) : vercel()(model);
    let text = "";
    const errors = [];
    const { fullStream } = streamText({ model: chosen, prompt: "x", onError: () => {} });
    try {
      for await (const part of fullStream) {
        if (part.type === "text-delta") text += part.text;
        if (part.type === "error") errors.push(part.error);
      }
    } catch (error) {
      errors.push(error);
    }
    const [first] = errors;
    if (first === undefined) return { text };
    const count = errors.length;
    return { text, count, error: first instanceof Error ? told(first) : { body: first } };
  },
  // What many write by hand: again on any 5xx.
  loop: async (model) => {
    for (let attempt = 1; ; attempt++) {
      const answer = await fetch(`${openaiUrl}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: "Bearer sk-good" },
        body: JSON.stringify({ model, messages }),
      });
      await answer.text();
      if (answer.status < 500 || attempt === 3) return { status: answer.status, attempts: attempt };
    }
  },
};

const results = [];
for (const [name, ...given] of run) results.push(await runs[name](...given));
console.log(JSON.stringify(results));
process.exit(0);
