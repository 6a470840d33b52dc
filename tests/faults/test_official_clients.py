"""Official clients against injected faults: the exception they promise, and stop or go on."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest

from tests.field.scene import STREAM_HEAD, admin, chunk, delta
from tests.proxy.upstreams import Visit, answer

SAID: list[Any] = [{"role": "user", "content": "hi"}]
COMPLETION = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop",
                 "message": {"role": "assistant", "content": "hi"}}],
}  # fmt: skip
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "hi"}], "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip
EVENTS = (
    {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    *({"type": "content_block_delta", "index": 0,
       "delta": {"type": "text_delta", "text": f"w{n}"}} for n in range(3)),
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
)  # fmt: skip


async def speaking(visit: Visit) -> None:
    """Both providers, streaming where that is asked for."""
    asked = json.loads(await visit.read_body())
    is_message = visit.request.target.endswith(b"/messages")
    if not asked.get("stream"):
        body = MESSAGE if is_message else COMPLETION
        await visit.send(answer(200, json.dumps(body).encode()))
        return
    await visit.send(STREAM_HEAD)
    if is_message:
        for event in EVENTS:
            text = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
            await visit.send(chunk(text.encode()))
    else:
        for n in range(4):
            await visit.send(chunk(delta(f"w{n}", "stop" if n == 3 else None)))
        await visit.send(chunk(b"data: [DONE]\n\n"))
    await visit.send(b"0\r\n\r\n")


async def daemon(start, upstream, *rules: dict[str, Any]) -> Any:
    upstream.script = speaking
    return await start(
        {name: {"upstream": upstream.url, "dialect": name} for name in ("openai", "anthropic")},
        faults={"rules": list(rules)},
    )


def client(kind: str, running, retries: int = 0) -> Any:
    url = f"http://127.0.0.1:{running.port}/{kind}"
    if kind == "openai":
        return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=retries)
    return anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=retries)


async def ask(kind: str, made: Any, **more: Any) -> Any:
    if kind == "openai":
        return await made.chat.completions.create(model="m", messages=SAID, **more)
    return await made.messages.create(model="m", max_tokens=9, messages=SAID, **more)


def words(kind: str, event: Any) -> str:
    if kind == "openai":
        return event.choices[0].delta.content or "" if event.choices else ""
    return getattr(getattr(event, "delta", None), "text", None) or ""


async def listen(kind: str, made: Any, heard: list[str]) -> None:
    async for event in await ask(kind, made, stream=True):
        heard.append(words(kind, event))


def error_of(kind: str, name: str) -> type[Exception]:
    return getattr(openai if kind == "openai" else anthropic, name)


async def record(running) -> list[dict[str, Any]]:
    return (await admin(running, "/faults")).json["record"]


RAISED = [
    ("openai", {"class": "validation"}, "BadRequestError", 400),
    ("openai", {"class": "authentication"}, "AuthenticationError", 401),
    ("openai", {"class": "rate_limit"}, "RateLimitError", 429),
    ("openai", {"class": "transient"}, "InternalServerError", 500),
    ("openai", {"class": "permanent"}, "NotFoundError", 404),
    # The daemon tells by its status that waiting is in vain.
    ("openai", {"class": "permanent", "code": "insufficient_quota"}, "APIStatusError", 402),
    ("openai", {"class": "transient", "code": "server_is_overloaded"}, "InternalServerError", 503),
    ("openai", {"kind": "fake_200"}, "InternalServerError", 503),
    ("openai", {"kind": "fake_200", "class": "validation"}, "BadRequestError", 400),
    ("openai", {"kind": "refuse"}, "InternalServerError", 502),
    ("openai", {"kind": "reset"}, "InternalServerError", 502),
    ("anthropic", {"class": "validation"}, "BadRequestError", 400),
    ("anthropic", {"class": "authentication"}, "AuthenticationError", 401),
    ("anthropic", {"class": "rate_limit"}, "RateLimitError", 429),
    ("anthropic", {"class": "transient"}, "OverloadedError", 529),
    ("anthropic", {"class": "permanent"}, "NotFoundError", 404),
    ("anthropic", {"class": "authentication", "code": "permission_error"},
     "PermissionDeniedError", 403),
    ("anthropic", {"class": "transient", "code": "api_error"}, "InternalServerError", 500),
    ("anthropic", {"class": "permanent", "code": "request_too_large"},
     "RequestTooLargeError", 413),
    ("anthropic", {"kind": "refuse"}, "InternalServerError", 502),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "rule", "name", "status"), RAISED)
async def test_the_exception_of_the_class(start, upstream, kind, rule, name, status) -> None:
    running = await daemon(start, upstream, rule)
    async with client(kind, running) as made:
        with pytest.raises(error_of(kind, name)) as caught:
            await ask(kind, made)
    assert caught.value.status_code == status
    (told,) = await record(running)
    assert told["envelope"]["class"] == rule.get("class", "transient")
    assert told["first_seen_after"] is not None
    assert upstream.hits == 0


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("rule", "goes_on"),
    [
        ({"class": "validation"}, False),
        ({"class": "authentication"}, False),
        ({"class": "rate_limit", "retry_after": "10ms"}, True),
        ({"class": "transient", "retry_after": "10ms"}, True),
        ({"class": "permanent"}, False),
        ({"class": "permanent", "code": "insufficient_quota", "status": 429}, False),
    ],
)
async def test_whether_it_tries_again(start, upstream, kind, rule, goes_on) -> None:
    """Spent money comes under a status that the clients would repeat."""
    running = await daemon(start, upstream, {**rule, "times": 1})
    async with client(kind, running, retries=2) as made:
        if goes_on:
            assert await ask(kind, made)
        else:
            with pytest.raises(error_of(kind, "APIStatusError")):
                await ask(kind, made)
    (told,) = await record(running)
    assert told["envelope"]["retryable"] is goes_on
    assert upstream.hits == int(goes_on)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize(
    "class_", ["validation", "authentication", "rate_limit", "transient", "permanent"]
)
async def test_an_error_in_a_stream(start, upstream, kind, class_) -> None:
    running = await daemon(start, upstream, {"kind": "error_event", "events": 4, "class": class_})
    heard: list[str] = []
    async with client(kind, running) as made:
        with pytest.raises(error_of(kind, "APIError")) as caught:
            await listen(kind, made, heard)
    assert "".join(heard).startswith("w0w1")
    (told,) = await record(running)
    assert told["envelope"]["class"] == class_
    assert told["envelope"]["message"][:20] in str(caught.value)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_stream_that_is_cut(start, upstream, kind) -> None:
    running = await daemon(start, upstream, {"kind": "cut", "events": 4})
    heard: list[str] = []
    async with client(kind, running) as made:
        with pytest.raises(error_of(kind, "APIError")):
            await listen(kind, made, heard)
    assert "".join(heard).startswith("w0w1")
    assert (await record(running))[0]["envelope"]["code"] == "stream_truncated"
