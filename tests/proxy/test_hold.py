"""The head of a stream waits for its first word, so that an error in its place is a real error."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest

from .callers import Caller, chat, request
from .test_streams import CHAT, DONE, HEAD, chunk, delta, scripted, stream
from .upstreams import Visit

ROLE = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},'
    b'"finish_reason":null}]}\n\n'
)
PING = b": keep-alive\n\n"
ERROR = {
    "error": {
        "code": "model_not_found",
        "message": "no such model gpt-x",
        "type": "x",
        "param": None,
    }
}
MISSING = b"data: " + json.dumps(ERROR).encode() + b"\n\n"
MESSAGES = "/up/v1/messages"


async def test_an_error_event_becomes_a_status(start, upstream) -> None:
    upstream.script = scripted(PING, ROLE, MISSING, DONE)
    running = await start({"up": upstream.url})
    caller = await stream(running)
    found = await caller.answer()
    assert found.status == 404
    assert found.clean
    assert found.json == ERROR
    assert found.get("content-type") == "application/json"
    assert found.get("x-sidecar-upstream-status") == "200"
    assert found.get("x-should-retry") == "false"
    assert found.envelope["code"] == "model_not_found"
    shot = running.breaker("up/gpt-x")
    assert (shot.window.failure, shot.window.alive) == (0, 1)
    # The caller's connection goes on.
    upstream.script = scripted(delta("a", "stop"), DONE)
    await caller.send(
        request(CHAT, "POST", chat(stream=True), ("Content-Type", "application/json"))
    )
    assert (await caller.answer()).status == 200
    caller.close()


async def test_an_outage_is_counted_and_may_be_repeated(start, upstream) -> None:
    failed = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"m"}}\n\n'
    upstream.script = scripted(
        b'event: message_start\ndata: {"type":"message_start","message":{}}\n\n', failed
    )
    running = await start({"up": {"upstream": upstream.url, "dialect": "anthropic"}})
    caller = await stream(running, MESSAGES)
    found = await caller.answer()
    assert found.status == 503
    assert found.json["error"]["type"] == "overloaded_error"
    assert found.get("x-should-retry") is None
    assert running.breaker("up/gpt-x").window.failure == 1
    caller.close()


async def test_the_error_of_a_response_stands_by_itself_in_a_body(start, upstream) -> None:
    """Clients look for it where bodies have it, and not in a response that is none."""
    error = {"code": "context_length_exceeded", "message": "too long for gpt-x"}
    failed = {"type": "response.failed", "response": {"status": "failed", "error": error}}
    upstream.script = scripted(b"data: " + json.dumps(failed).encode() + b"\n\n")
    running = await start({"up": upstream.url})
    caller = await stream(running, "/up/v1/responses")
    found = await caller.answer()
    assert (found.status, found.json) == (400, {"error": error})


@pytest.mark.parametrize("end", ["hang", "close", "reset"])
async def test_how_the_upstream_ends_after_its_error_is_all_one(start, upstream, end) -> None:
    upstream.script = scripted(MISSING, end=end)
    running = await start({"up": upstream.url})
    caller = await stream(running)
    async with asyncio.timeout(5):
        found = await caller.answer()
    assert (found.status, found.clean) == (404, True)
    async with asyncio.timeout(5):
        while upstream.open_connections:
            await asyncio.sleep(0.01)
    caller.close()


async def test_an_error_after_the_first_word_keeps_the_status(start, upstream) -> None:
    upstream.script = scripted(ROLE, delta("a"), MISSING)
    running = await start({"up": upstream.url})
    caller = await stream(running)
    found = await caller.answer()
    assert (found.status, found.clean) == (200, True)
    assert found.body == ROLE + delta("a") + MISSING
    assert running.calls[-1].envelope.code == "model_not_found"
    caller.close()


async def test_content_and_error_in_one_piece(start, upstream) -> None:
    upstream.script = scripted(ROLE + delta("a") + MISSING)
    running = await start({"up": upstream.url})
    caller = await stream(running)
    found = await caller.answer()
    assert (found.status, found.body) == (200, ROLE + delta("a") + MISSING)
    caller.close()


async def test_nothing_but_an_opening_is_no_answer(start, upstream) -> None:
    upstream.script = scripted(PING, ROLE)
    running = await start({"up": upstream.url})
    caller = await stream(running)
    found = await caller.answer()
    assert (found.status, found.clean) == (503, True)
    assert found.json["error"]["code"] == "stream_truncated"
    assert running.breaker("up/gpt-x").window.failure == 1
    caller.close()


async def test_a_cut_before_the_first_word_is_a_bad_gateway(start, upstream) -> None:
    upstream.script = scripted(PING, end="reset")
    running = await start({"up": upstream.url})
    caller = await stream(running)
    found = await caller.answer()
    assert found.status == 502
    assert found.envelope["code"] == "invalid_upstream_response"
    assert running.breaker("up/gpt-x").window.failure == 1
    caller.close()


async def test_silence_before_the_first_word_is_a_timeout(start, upstream) -> None:
    upstream.script = scripted(PING, end="hang")
    timeouts = {"first_content": "80ms"}
    running = await start(
        {"up": {"upstream": upstream.url, "dialect": "openai", "timeouts": timeouts}}
    )
    caller = await stream(running)
    found = await caller.answer()
    assert (found.status, found.envelope["code"]) == (504, "first_content_timeout")
    caller.close()


async def test_the_wait_is_bounded_in_time(start, upstream) -> None:
    upstream.script = scripted(PING, end="hang")
    timeouts = {"hold": "50ms"}
    running = await start(
        {"up": {"upstream": upstream.url, "dialect": "openai", "timeouts": timeouts}}
    )
    caller = await stream(running)
    async with asyncio.timeout(5):
        line, _, _ = await caller.head()
        assert b" 200 " in line
        assert await caller.reader.readexactly(len(chunk(PING))) == chunk(PING)
    caller.close()


@pytest.mark.parametrize(
    "parts", [[ROLE] * 64, [b": " + b"x" * 65536 + b"\n\n"] * 4], ids=["events", "bytes"]
)
async def test_the_wait_is_bounded_in_events_and_bytes(start, upstream, parts) -> None:
    upstream.script = scripted(*parts, end="hang")
    timeouts = {"hold": "60s"}
    running = await start(
        {"up": {"upstream": upstream.url, "dialect": "openai", "timeouts": timeouts}}
    )
    caller = await stream(running)
    async with asyncio.timeout(5):
        line, _, _ = await caller.head()
    assert b" 200 " in line
    caller.close()


async def test_annotate_leaves_the_stream_a_stream(start, upstream) -> None:
    upstream.script = scripted(PING, MISSING, DONE)
    running = await start(
        {"up": {"upstream": upstream.url, "dialect": "openai", "on_reclassified": "annotate"}}
    )
    caller = await stream(running)
    found = await caller.answer()
    assert (found.status, found.clean) == (200, True)
    assert found.body == PING + MISSING + DONE
    assert found.envelope["code"] == "model_not_found"
    caller.close()


async def test_switched_off_nothing_is_held(start, upstream) -> None:
    upstream.script = scripted(PING, end="hang")
    timeouts = {"hold": "60s"}
    running = await start({"up": {"upstream": upstream.url, "mode": "off", "timeouts": timeouts}})
    caller = await stream(running)
    async with asyncio.timeout(5):
        line, _, _ = await caller.head()
    assert b" 200 " in line
    caller.close()


async def test_the_envelope_itself_on_request(start, upstream) -> None:
    upstream.script = scripted(MISSING)
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    accept = ("Accept", "application/vnd.error-envelope+json")
    await caller.send(
        request(CHAT, "POST", chat(stream=True), ("Content-Type", "application/json"), accept)
    )
    found = await caller.answer()
    assert (found.status, found.json["code"]) == (404, "model_not_found")
    assert found.json["raw"]["body"]
    caller.close()


async def test_a_compressed_stream_is_held_as_well(start, upstream) -> None:
    packed = gzip.compress(PING + MISSING)
    head = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(head, chunk(packed), b"0\r\n\r\n")

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await stream(running)
    found = await caller.answer()
    assert (found.status, found.json) == (404, ERROR)
    assert found.get("content-encoding") is None
    caller.close()


async def test_an_unlabelled_stream_is_held_as_well(start, upstream) -> None:
    head = HEAD.replace(b"Content-Type: text/event-stream\r\n", b"")

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(head, chunk(ROLE))
        await visit.send(chunk(MISSING), b"0\r\n\r\n")

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await stream(running)
    found = await caller.answer()
    assert (found.status, found.json) == (404, ERROR)
    caller.close()


async def test_a_caller_that_leaves_while_it_is_held(start, upstream) -> None:
    upstream.script = scripted(PING, end="hang")
    timeouts = {"hold": "60s"}
    running = await start(
        {"up": {"upstream": upstream.url, "dialect": "openai", "timeouts": timeouts}}
    )
    caller = await stream(running)
    async with asyncio.timeout(5):
        while not upstream.open_connections:
            await asyncio.sleep(0.01)
        await caller.closed()
        while upstream.open_connections:
            await asyncio.sleep(0.01)
        while not running.calls:
            await asyncio.sleep(0.01)
    assert running.calls[-1].verdict == "neutral"
