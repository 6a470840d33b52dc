// How the page talks to the daemon: as any client would, at its own origin, with the token if it
// was given one. Every wait has an end, so that a daemon that hangs is told like one that is gone.

const ANSWER_MILLISECONDS = 3000;
const SILENCE_MILLISECONDS = 40000; // the stream says something every fifteen seconds

let token = null;

/** A call that was refused, or (status 0) that nobody answered. */
class CallError extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

function headers(more = {}) {
  const all = { accept: "application/json", ...more };
  if (token) all.authorization = `Bearer ${token}`;
  return all;
}

/** The document of a call; `order` makes it a POST that changes something. */
async function ask(path, { order, raw } = {}) {
  const options = { headers: headers(), signal: AbortSignal.timeout(ANSWER_MILLISECONDS), cache: "no-store" };
  if (order !== undefined || raw) options.headers["x-sidecar-admin"] = "1";
  if (order !== undefined) {
    options.method = "POST";
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(order);
  }
  let response, document_;
  try {
    response = await fetch(path, options);
    document_ = await response.json();
  } catch (error) {
    throw new CallError(response && !response.ok ? response.status : 0, told(error));
  }
  const date = Date.parse(response.headers.get("date"));
  if (!Number.isNaN(date)) setOffset(date);
  if (!response.ok) throw new CallError(response.status, document_?.error?.message ?? `status ${response.status}`, document_?.error?.code);
  return document_;
}

function told(error) {
  return error.name === "TimeoutError" ? `no answer within ${ANSWER_MILLISECONDS / 1000} s` : "the connection fails";
}

/**
 * Reads `/events` until it ends, whatever the reason: EventSource cannot send a token, and does not
 * say why it gives up.
 */
async function follow(onOpen, onEvent) {
  const leave = new AbortController();
  let silence;
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => leave.abort(), SILENCE_MILLISECONDS);
  };
  try {
    heard();
    const response = await fetch("/events", { headers: headers({ accept: "text/event-stream" }), signal: leave.signal, cache: "no-store" });
    if (!response.ok) return;
    onOpen();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      const pieces = (rest + value).split("\n\n");
      rest = pieces.pop();
      for (const piece of pieces) {
        const data = piece.split("\n").find((line) => line.startsWith("data: "));
        if (data) onEvent(JSON.parse(data.slice(6)));
      }
    }
  } catch {
    // The daemon went, or the network did; whoever follows tries again.
  } finally {
    clearTimeout(silence);
    leave.abort();
  }
}
