"""Each provider has its own words for a failure in the place of the first word: all get a status."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from sidecar.envelope.event_stream import frame

from .test_streams import HEAD, chunk, stream
from .upstreams import Visit

FRAMES = b"application/vnd.amazon.eventstream"
EVENTS = b"text/event-stream"


def event(told: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (told["type"].encode(), json.dumps(told).encode())


def data(**told: Any) -> bytes:
    return b"data: " + json.dumps(told).encode() + b"\n\n"


def invoked(**told: Any) -> bytes:
    """A chunk of InvokeModel with what the model wrote."""
    names = {":event-type": "chunk", ":message-type": "event"}
    written = base64.b64encode(json.dumps(told).encode()).decode()
    return frame(names, json.dumps({"bytes": written}).encode())


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
ENDED = {"type": "message-end", "delta": {"finish_reason": "ERROR", "error": "boom"}}
UPSTREAM = {"code": 429, "message": "slow down"}
THROTTLED = frame(
    {":message-type": "exception", ":exception-type": "throttlingException"}, b'{"message":"slow"}'
)
INVOKE = "/up/model/anthropic.claude-x/invoke-with-response-stream"

CASES = {
    "cohere ends a message": (
        "cohere", "/up/v2/chat", EVENTS, [event({"type": "message-start"}), event(ENDED)],
        503, "stream_error", None,
    ),
    "gemini refuses a prompt": (
        "gemini", "/up/v1beta/models/g:streamGenerateContent", EVENTS,
        [data(promptFeedback={"blockReason": "SAFETY"})], 400, "content_filtered", None,
    ),
    "mistral ends by an error": (
        "mistral", "/up/v1/chat/completions", EVENTS,
        [data(choices=[{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}])],
        503, "stream_error", None,
    ),
    "openrouter in a choice": (
        "openrouter", "/up/api/v1/chat/completions", EVENTS,
        [data(choices=[{"index": 0, "delta": {"role": "assistant"}, "error": UPSTREAM}])],
        429, "429", {"error": UPSTREAM},
    ),
    "bedrock behind an opening of the model's": (
        "bedrock", INVOKE, FRAMES, [invoked(type="message_start", message={}), THROTTLED],
        429, "throttlingException", None,
    ),
    "a model's own error in bedrock": (
        "bedrock", INVOKE, FRAMES, [invoked(type="message_start", message={}), invoked(**OVERLOADED)],
        503, "overloaded", OVERLOADED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
async def test_it_gets_a_status_and_a_body(start, upstream, name) -> None:
    dialect, path, kind, parts, status, code, body = CASES[name]

    async def script(visit: Visit) -> None:
        await visit.read_body()
        head = HEAD.replace(EVENTS, kind)
        await visit.send(head, *(chunk(part) for part in parts), b"0\r\n\r\n")

    upstream.script = script
    running = await start({"up": {"upstream": upstream.url, "dialect": dialect}})
    caller = await stream(running, path)
    found = await caller.answer()
    assert (found.status, found.envelope["code"], found.clean) == (status, code, True)
    assert found.get("content-type") == "application/json"
    if body is not None:
        assert found.json == body
    else:
        # A body that clients of this provider read, and none that only a stream can hold.
        assert not {"choices", "delta", "promptFeedback"} & set(found.json)
        assert found.envelope["message"] in found.body.decode()
