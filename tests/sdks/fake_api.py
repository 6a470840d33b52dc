"""A small fake of OpenAI's, Anthropic's and Bedrock's APIs: real bodies, real streams, real errors.

What a call gets depends on the model it names: an ordinary one is answered, one of `ERRORS` gets
that error, one of `DYING` a stream that ends before its time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

from tests.proxy.upstreams import Visit, answer

Row = tuple[int, dict[str, Any], dict[str, str]]


def _openai(status: int, code: str | None, type_: str, message: str, **headers: str) -> Row:
    error = {"message": message, "type": type_, "param": None, "code": code}
    return status, {"error": error}, {name.replace("_", "-"): v for name, v in headers.items()}


def _anthropic(status: int, type_: str, message: str, **headers: str) -> Row:
    body = {
        "type": "error",
        "error": {"type": type_, "message": message},
        "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy",
    }
    return status, body, {name.replace("_", "-"): v for name, v in headers.items()}


BAD_KEY = "Incorrect API key provided: sk-wrong. You can find your API key at https://platform.openai.com/account/api-keys."
TOO_LONG = (
    "This model's maximum context length is 128000 tokens. However, your messages resulted in "
    "200031 tokens. Please reduce the length of the messages."
)
REFUSED = "The response was filtered due to the prompt triggering the content management policy."
QUOTA = "You exceeded your current quota, please check your plan and billing details."

OPENAI_ERRORS: dict[str, Row] = {
    # As the API itself answers.
    "status-400": _openai(400, "invalid_value", "invalid_request_error", "Invalid value: 'x'."),
    "status-401": _openai(401, "invalid_api_key", "invalid_request_error", BAD_KEY),
    "status-403": _openai(403, "model_access_denied", "invalid_request_error", "No access."),
    "status-404": _openai(404, "model_not_found", "invalid_request_error", "The model `status-404` does not exist or you do not have access to it."),
    "status-409": _openai(409, None, "conflict_error", "Lock conflict.", x_should_retry="false"),
    "status-422": _openai(422, "invalid_schema", "invalid_request_error", "Unprocessable."),
    "status-429": _openai(429, "rate_limit_exceeded", "requests", "Rate limit reached for gpt-4o on requests per min (RPM): Limit 3, Used 3, Requested 1.", retry_after_ms="5"),
    "status-500": _openai(500, None, "server_error", "The server had an error while processing your request. Sorry about that!"),
    "status-503": _openai(503, None, "server_error", "That model is currently overloaded with other requests."),
    # As gateways wrap them.
    "gpt-typo": _openai(503, "model_not_found", "invalid_request_error", "The model `gpt-typo` does not exist or you do not have access to it.", retry_after_ms="1"),
    "spent-429": _openai(429, "insufficient_quota", "insufficient_quota", QUOTA, retry_after_ms="1"),
    "long-500": _openai(500, "context_length_exceeded", "invalid_request_error", TOO_LONG, retry_after_ms="1"),
    "refused-500": _openai(500, "content_filter", "invalid_request_error", REFUSED, retry_after_ms="1"),
    "typo-200": _openai(200, "model_not_found", "invalid_request_error", "The model `typo-200` does not exist."),
    "key-200": _openai(200, "invalid_api_key", "invalid_request_error", BAD_KEY),
    # Waits that no client should sleep through.
    "wait-week": _openai(429, "rate_limit_exceeded", "tokens", "Rate limit reached.", retry_after="568157"),
    "wait-61": _openai(503, None, "server_error", "Overloaded.", retry_after="61"),
}  # fmt: skip

ANTHROPIC_ERRORS: dict[str, Row] = {
    "status-400": _anthropic(400, "invalid_request_error", "messages.0.content: Input should be a valid string"),
    "status-401": _anthropic(401, "authentication_error", "invalid x-api-key"),
    "status-403": _anthropic(403, "permission_error", "Your API key does not have permission to use the specified resource."),
    "status-404": _anthropic(404, "not_found_error", "model: status-404"),
    "status-413": _anthropic(413, "request_too_large", "Request exceeds the maximum allowed number of bytes."),
    "status-422": _anthropic(422, "invalid_request_error", "Unprocessable."),
    "status-429": _anthropic(429, "rate_limit_error", "Number of request tokens has exceeded your per-minute rate limit", retry_after_ms="5"),
    "status-500": _anthropic(500, "api_error", "Internal server error"),
    "status-529": _anthropic(529, "overloaded_error", "Overloaded"),
    "gpt-typo": _anthropic(503, "not_found_error", "model: gpt-typo", retry_after_ms="1"),
    "spent-429": _anthropic(429, "invalid_request_error", "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.", retry_after_ms="1"),
    "long-500": _anthropic(500, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum", retry_after_ms="1"),
    "refused-500": _anthropic(500, "invalid_request_error", "Output blocked by content filtering policy", retry_after_ms="1"),
    "typo-200": _anthropic(200, "not_found_error", "model: typo-200"),
    "key-200": _anthropic(200, "authentication_error", "invalid x-api-key"),
    "wait-week": _anthropic(429, "rate_limit_error", "This request would exceed your rate limit.", retry_after="568157"),
    "wait-61": _anthropic(529, "overloaded_error", "Overloaded", retry_after="61"),
}  # fmt: skip

SPEECH = b"\xff\xf3" + bytes(range(256)) * 300

# Ends of a stream that has said something already.
DYING = ("cut-close", "cut-reset", "cut-clean", "cut-hang", "cut-event")

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Request-Id: req_1\r\n"
    b"Request-Id: req_1\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def sse(data: Any, event: str | None = None) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()


def chat_chunks(model: str) -> list[bytes]:
    def one(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return sse(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1700000000,
                "model": model,
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            }
        )

    return [
        one({"role": "assistant", "content": ""}),
        one({"content": "Hello"}),
        one({"content": " world"}),
        one({}, "stop"),
        sse("[DONE]"),
    ]


def response_object(model: str, status: str = "completed") -> dict[str, Any]:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hello world", "annotations": []}],
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1700000000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "model": model,
        "output": [message] if status == "completed" else [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 9,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 11,
        },
    }


def response_events(model: str) -> list[bytes]:
    item = {"id": "msg_1", "type": "message", "role": "assistant"}
    part = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response_object(model, "in_progress")},
        {"type": "response.in_progress", "response": response_object(model, "in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress", "content": []}},
        {"type": "response.content_part.added", **part, "part": {"type": "output_text", "text": "", "annotations": []}},
        {"type": "response.output_text.delta", **part, "delta": "Hello"},
        {"type": "response.output_text.delta", **part, "delta": " world"},
        {"type": "response.output_text.done", **part, "text": "Hello world"},
        {"type": "response.completed", "response": response_object(model)},
    ]  # fmt: skip
    return [sse({**e, "sequence_number": n}, e["type"]) for n, e in enumerate(events)]


def message_events(model: str) -> list[bytes]:
    start = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }

    def delta(text: str) -> dict[str, Any]:
        inner = {"type": "text_delta", "text": text}
        return {"type": "content_block_delta", "index": 0, "delta": inner}

    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        delta("Hello"),
        delta(" world"),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 2},
        },
        {"type": "message_stop"},
    ]
    return [sse(event, event["type"]) for event in events]


# How many events of each stream have come when it dies: the opening and "Hello".
_SPOKEN = {"chat": 2, "responses": 5, "messages": 4}
_ERROR_EVENT = {
    "chat": sse({"error": {"message": "The engine is overloaded", "type": "server_error", "code": None, "param": None}}),
    "responses": sse({"type": "error", "sequence_number": 5, "error": {"type": "server_error", "code": "server_error", "message": "The engine is overloaded", "param": None}}, "error"),
    "messages": sse({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "error"),
}  # fmt: skip
# Streams that fail right after their opening frame, under a status 200.
EARLY = {
    "typo-early": {
        "chat": sse({"error": {"message": "The model `typo-early` does not exist", "type": "invalid_request_error", "code": "model_not_found", "param": None}}),
        "responses": sse({"type": "error", "sequence_number": 1, "error": {"type": "invalid_request_error", "code": "model_not_found", "message": "The model `typo-early` does not exist", "param": "model"}}, "error"),
        "messages": sse({"type": "error", "error": {"type": "not_found_error", "message": "model: typo-early"}}, "error"),
    },
}  # fmt: skip


class FakeApi:
    """The script of an upstream.

    Attributes:
        seen: the decoded JSON body of each call, None where there was none.
        uploads: the parts of each multipart body, by name.
        before: may take over a visit; True if it did.
    """

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.uploads: list[dict[str, tuple[str | None, bytes]]] = []
        self.before: Callable[[Visit], Any] | None = None

    async def __call__(self, visit: Visit) -> None:
        if self.before is not None and await self.before(visit):
            return
        body = await visit.read_body()
        kind = (visit.request.get(b"content-type") or b"").decode()
        asked = json.loads(body) if "json" in kind and body else None
        self.seen.append(asked)
        method, target = visit.request.line.decode().split(" ")[:2]
        path = target.partition("?")[0]
        if kind.startswith("multipart/"):
            self.uploads.append(parts(kind, body))
        model = asked.get("model", "") if isinstance(asked, dict) else ""
        anthropic = visit.request.get(b"anthropic-version") is not None
        await self._answer(visit, f"{method} {path}", model, asked or {}, anthropic=anthropic)

    async def _answer(
        self, visit: Visit, route: str, model: str, asked: dict[str, Any], *, anthropic: bool
    ) -> None:
        error = (ANTHROPIC_ERRORS if anthropic else OPENAI_ERRORS).get(model)
        if error is None and not self._may_enter(visit, anthropic=anthropic):
            error = (ANTHROPIC_ERRORS if anthropic else OPENAI_ERRORS)["status-401"]
        if error is not None:
            status, body, headers = error
            pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
            await visit.send(answer(status, json.dumps(body).encode(), *pairs))
            return
        stream = {
            "POST /v1/chat/completions": ("chat", chat_chunks),
            "POST /v1/responses": ("responses", response_events),
            "POST /v1/messages": ("messages", message_events),
        }.get(route)
        if stream is not None and model in EARLY:
            opening = stream[1](model)[:1]
            await visit.send(HEAD, *map(chunk, opening), chunk(EARLY[model][stream[0]]))
            await visit.send(b"0\r\n\r\n")
            return
        if stream is not None and asked.get("stream"):
            await self._stream(visit, stream[0], stream[1](model), model)
            return
        if route == "POST /v1/audio/speech":
            await visit.send(answer(200, SPEECH, kind=b"audio/mpeg"))
            return
        body = whole(route, model, asked, anthropic=anthropic)
        if body is None:
            await visit.send(
                answer(
                    404,
                    b'{"error":{"message":"Invalid URL","type":"invalid_request_error","param":null,"code":null}}',
                )
            )
            return
        await visit.send(answer(200, json.dumps(body).encode(), (b"x-request-id", b"req_1")))

    def _may_enter(self, visit: Visit, *, anthropic: bool) -> bool:
        bearer = visit.request.get(b"authorization")
        if anthropic:
            # Up to its version 1 the client sends a key of its own kind, since then a bearer.
            key = visit.request.get(b"x-api-key")
            return b"sk-ant-good" in {key, (bearer or b"").removeprefix(b"Bearer ")}
        return bearer == b"Bearer sk-good"

    async def _stream(self, visit: Visit, api: str, events: list[bytes], model: str) -> None:
        await visit.send(HEAD)
        dying = model in DYING
        for event in events[: _SPOKEN[api] if dying else None]:
            await visit.send(chunk(event))
        if model == "cut-event":
            await visit.send(chunk(_ERROR_EVENT[api]))
        if not dying or model in {"cut-clean", "cut-event"}:
            await visit.send(b"0\r\n\r\n")
        elif model == "cut-close":
            visit.keep = False
        elif model == "cut-reset":
            await asyncio.sleep(0.02)
            visit.reset()
        else:
            await visit.closed()
            visit.keep = False


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def parts(kind: str, body: bytes) -> dict[str, tuple[str | None, bytes]]:
    """The parts of a multipart body by name, each with its file name and its bytes."""
    message = BytesParser(policy=HTTP).parsebytes(
        b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body
    )
    return {
        part.get_param("name", header="content-disposition"): (
            part.get_filename(),
            part.get_payload(decode=True),
        )
        for part in message.iter_parts()
    }


def whole(route: str, model: str, asked: dict[str, Any], *, anthropic: bool) -> Any:
    """The body of an answer that comes in one piece; None where there is no such route."""
    if route.startswith("POST /model/") and route.endswith("/converse"):
        return {
            "output": {"message": {"role": "assistant", "content": [{"text": "Hello world"}]}},
            "stopReason": "end_turn",
            "usage": {"inputTokens": 9, "outputTokens": 2, "totalTokens": 11},
            "metrics": {"latencyMs": 5},
        }
    make = {
        "POST /v1/chat/completions": chat_completion,
        "POST /v1/responses": lambda model, _: response_object(model),
        "POST /v1/messages": message,
        "POST /v1/embeddings": embeddings,
        "POST /v1/audio/transcriptions": lambda *_: {"text": "Hello world"},
        "POST /v1/messages/count_tokens": lambda *_: {"input_tokens": 9},
        "GET /v1/models": models,
        "POST /v1/files": anthropic_file if anthropic else openai_file,
    }.get(route)
    return None if make is None else make(model, asked)


def chat_completion(model: str, asked: dict[str, Any]) -> Any:
    told: dict[str, Any] = {"role": "assistant", "content": "Hello world", "refusal": None}
    finish = "stop"
    if asked.get("tools"):
        call = {"name": asked["tools"][0]["function"]["name"], "arguments": '{"city": "Oslo"}'}
        told["content"] = None
        told["tool_calls"] = [{"id": "call_1", "type": "function", "function": call}]
        finish = "tool_calls"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": model,
        "choices": [{"index": 0, "message": told, "logprobs": None, "finish_reason": finish}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
    }


def message(model: str, asked: dict[str, Any]) -> Any:
    content: dict[str, Any] = {"type": "text", "text": "Hello world"}
    if asked.get("tools"):
        name = asked["tools"][0]["name"]
        content = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {"city": "Oslo"}}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [content],
        "stop_reason": "tool_use" if asked.get("tools") else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 2},
    }


def embeddings(model: str, asked: dict[str, Any]) -> Any:
    # The client asks for base64 by default: four bytes of a float, little-endian.
    vector: Any = "AACAPwAAAEA=" if asked.get("encoding_format") == "base64" else [1.0, 2.0]
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": vector}],
        "model": model,
        "usage": {"prompt_tokens": 2, "total_tokens": 2},
    }


def models(_model: str, _asked: dict[str, Any]) -> Any:
    one = {"id": "gpt-4o", "object": "model", "created": 1700000000, "owned_by": "openai"}
    return {"object": "list", "data": [one], "has_more": False, "first_id": None, "last_id": None}


def openai_file(_model: str, _asked: dict[str, Any]) -> Any:
    return {
        "id": "file-1",
        "object": "file",
        "bytes": 5,
        "created_at": 1700000000,
        "filename": "notes.jsonl",
        "purpose": "batch",
        "status": "processed",
    }


def anthropic_file(_model: str, _asked: dict[str, Any]) -> Any:
    return {
        "id": "file_1",
        "type": "file",
        "filename": "notes.txt",
        "mime_type": "text/plain",
        "size_bytes": 5,
        "created_at": "2026-01-01T00:00:00Z",
        "downloadable": False,
    }
