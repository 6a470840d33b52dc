"""Streams: event by event, verdict at the end, and no end that lies."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import pytest

from sidecar.envelope.event_stream import FrameParser, frame

from .callers import Caller, chat, request
from .upstreams import Visit

CHAT = "/up/v1/chat/completions"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def delta(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


async def stream(running, path: str = CHAT) -> Caller:
    caller = await Caller.connect(running.port)
    await caller.send(
        request(path, "POST", chat(stream=True), ("Content-Type", "application/json"))
    )
    return caller


def scripted(*parts: bytes, end: str = "clean"):
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(HEAD, *(chunk(part) for part in parts))
        if end == "clean":
            await visit.send(b"0\r\n\r\n")
        elif end == "close":
            visit.keep = False
        elif end == "reset":
            await asyncio.sleep(0.05)
            visit.reset()
        elif end == "hang":
            await visit.closed()
            visit.keep = False

    return script


async def test_a_whole_stream_is_a_success(start, upstream) -> None:
    upstream.script = scripted(delta("a"), delta("b", "stop"), DONE)
    running = await start({"up": upstream.url})
    caller = await stream(running)
    found = await caller.answer()
    assert found.clean
    assert found.body == delta("a") + delta("b", "stop") + DONE
    assert running.breaker("up/gpt-x").window.success == 1
    caller.close()


async def test_f105_event_by_event(start, upstream) -> None:
    go = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(HEAD, chunk(delta("a")))
        await go.wait()
        await visit.send(chunk(delta("b", "stop")), chunk(DONE), b"0\r\n\r\n")

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await stream(running)
    await caller.head()
    assert await caller.reader.readexactly(len(chunk(delta("a")))) == chunk(delta("a"))
    go.set()
    rest = await caller.reader.readuntil(b"0\r\n\r\n")
    assert delta("b", "stop") in rest
    assert DONE in rest
    caller.close()


@pytest.mark.parametrize("end", ["clean", "close", "reset"])
async def test_f101_f104_a_cut_stream_never_ends_cleanly(start, upstream, end) -> None:
    upstream.script = scripted(delta("a"), end=end)
    running = await start({"up": upstream.url})
    caller = await stream(running)
    found = await caller.answer()
    assert not found.clean
    assert b"0\r\n\r\n" not in found.raw
    assert found.body.startswith(delta("a") + b"data: ")
    event = json.loads(found.body.removeprefix(delta("a") + b"data: "))
    assert event["error"]["code"] == "stream_truncated"
    assert event["error"]["envelope"]["class"] == "transient"
    assert DONE not in found.body
    shot = running.breaker("up/gpt-x")
    assert (shot.window.failure, shot.window.success) == (1, 0)
    caller.close()


async def test_f101_d_the_upstreams_own_error_is_passed_alone(start, upstream) -> None:
    failed = b'event: error\ndata: {"error":{"code":"server_error","message":"m"}}\n\n'
    upstream.script = scripted(delta("a"), failed)
    running = await start({"up": upstream.url})
    caller = await stream(running)
    found = await caller.answer()
    assert found.clean
    assert found.body == delta("a") + failed
    assert running.calls[-1].envelope.code == "server_error"
    assert running.breaker("up/gpt-x").window.failure == 1
    caller.close()


async def test_f107_the_idle_clock(start, upstream) -> None:
    upstream.script = scripted(delta("a"), end="hang")
    running = await start(
        {"up": {"upstream": upstream.url, "dialect": "openai", "timeouts": {"idle": "60ms"}}}
    )
    caller = await stream(running)
    found = await caller.answer()
    assert not found.clean
    assert b"idle_timeout" in found.body
    assert running.breaker("up/gpt-x").window.failure == 1
    caller.close()


async def test_f107_the_first_content_clock(start, upstream) -> None:
    upstream.script = scripted(b": ping\n\n", end="hang")
    running = await start(
        {
            "up": {
                "upstream": upstream.url,
                "dialect": "openai",
                "timeouts": {"first_content": "80ms", "idle": "10ms"},
            }
        }
    )
    caller = await stream(running)
    found = await caller.answer()
    assert b"first_content_timeout" in found.body
    caller.close()


async def test_f106_a_total_limit_is_not_the_upstreams_fault(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(HEAD)
        while True:
            await visit.send(chunk(delta("a")))
            await asyncio.sleep(0.01)

    upstream.script = script
    running = await start(
        {"up": {"upstream": upstream.url, "dialect": "openai", "timeouts": {"total": "100ms"}}}
    )
    caller = await stream(running)
    found = await caller.answer()
    assert b"total_timeout" in found.body
    assert running.calls[-1].verdict == "neutral"
    caller.close()


async def test_f111_the_terminator_came_but_the_socket_stays(start, upstream) -> None:
    upstream.script = scripted(delta("a", "stop"), DONE, end="hang")
    running = await start({"up": upstream.url})
    caller = await stream(running)
    async with asyncio.timeout(5):
        found = await caller.answer()
    assert found.clean
    assert running.breaker("up/gpt-x").window.success == 1
    while upstream.open_connections:
        await asyncio.sleep(0.01)
    caller.close()


async def test_a_leaving_caller_closes_the_upstream_at_once(start, upstream) -> None:
    upstream.script = scripted(delta("a"), end="hang")
    running = await start({"up": upstream.url})
    caller = await stream(running)
    await caller.head()
    caller.close()
    left = time.monotonic()
    while upstream.open_connections:
        await asyncio.sleep(0.002)
    assert time.monotonic() - left < 1
    while not running.calls:
        await asyncio.sleep(0.002)
    assert running.calls[-1].verdict == "neutral"
    assert running.daemon.plane.in_flight("up") == 0


async def test_f114_one_huge_event(start, upstream) -> None:
    huge = b"data: " + b"x" * 3_000_000 + b"\n\n"
    upstream.script = scripted(huge, delta("a", "stop"), DONE)
    running = await start({"up": upstream.url})
    caller = await stream(running)
    found = await caller.answer()
    assert found.body == huge + delta("a", "stop") + DONE
    caller.close()


@pytest.mark.parametrize("kind", [None, "text/plain", "application/json; charset=utf-8"])
async def test_f116_a_stream_by_its_first_bytes(start, upstream, kind) -> None:
    go = asyncio.Event()
    line = f"Content-Type: {kind}\r\n" if kind else ""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        head = f"HTTP/1.1 200 OK\r\n{line}Transfer-Encoding: chunked\r\n\r\n".encode()
        await visit.send(head, chunk(delta("a")))
        await go.wait()
        await visit.send(chunk(delta("b", "stop")), chunk(DONE), b"0\r\n\r\n")

    upstream.script = script
    running = await start({"up": {"upstream": upstream.url, "timeouts": {"hold": "30s"}}})
    caller = await stream(running)
    async with asyncio.timeout(5):
        await caller.head()
        await caller.reader.readexactly(len(chunk(delta("a"))))
    go.set()
    await caller.reader.readuntil(b"0\r\n\r\n")
    caller.close()


async def test_f113_a_caller_that_does_not_read_stops_the_upstream(start, upstream) -> None:
    sent = 0
    done = asyncio.Event()

    async def script(visit: Visit) -> None:
        nonlocal sent
        await visit.read_body()
        await visit.send(HEAD)
        part = chunk(b"data: " + b"x" * 65_000 + b"\n\n")
        try:
            while sent < 300_000_000:
                visit.writer.write(part)
                sent += len(part)
                await visit.writer.drain()
        finally:
            done.set()

    upstream.script = script
    running = await start({"up": {"upstream": upstream.url, "timeouts": {"client": "200ms"}}})
    caller = await stream(running)
    async with asyncio.timeout(10):
        await done.wait()
    assert sent < 60_000_000
    assert running.calls[-1].verdict == "neutral"
    caller.close()


@pytest.mark.parametrize("ending", [(delta("", "stop"), DONE), ()], ids=["whole", "cut"])
async def test_f113_a_caller_that_never_reads_the_end_is_let_go(start, upstream, ending) -> None:
    """The upstream is done and the call is over, but its last bytes are still to be sent."""
    event = b"data: " + b"x" * 8_000 + b"\n\n"

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(HEAD)
        (connection,) = running.daemon.plane._connections
        while not connection.transport.get_write_buffer_size():
            await visit.send(chunk(event))
            await asyncio.sleep(0)
        await visit.send(*(chunk(part) for part in ending), b"0\r\n\r\n")

    upstream.script = script
    running = await start(
        {"up": {"upstream": upstream.url, "dialect": "openai", "timeouts": {"client": "200ms"}}},
        defaults={"timeouts": {"client": "200ms"}},
    )
    loop = asyncio.get_running_loop()
    with socket.socket() as caller:
        caller.setblocking(False)
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await loop.sock_connect(caller, ("127.0.0.1", running.port))
        kind = ("Content-Type", "application/json")
        await loop.sock_sendall(caller, request(CHAT, "POST", chat(stream=True), kind))
        async with asyncio.timeout(5):
            while not running.calls or running.daemon.plane._connections:
                await asyncio.sleep(0.01)


async def test_f118_streams_survive_a_reload_and_an_open_breaker(start, upstream) -> None:
    go = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(HEAD, chunk(delta("a")))
        await go.wait()
        await visit.send(chunk(delta("b", "stop")), chunk(DONE), b"0\r\n\r\n")

    upstream.script = script
    running = await start({"up": upstream.url, "other": upstream.url})
    callers = [await stream(running) for _ in range(10)]
    for caller in callers:
        await caller.head()
    from sidecar import clock
    from sidecar.breaker.model import Verb

    running.daemon.registry.control("up/gpt-x", Verb.OPEN, clock.monotonic())
    file = running.daemon._options.config
    text = file.read_text().replace("  up:\n", "  gone:\n")
    file.write_text(text)
    result = await running.daemon.reload()
    assert result.removed == ("up",)
    go.set()
    for caller in callers:
        await caller.reader.readuntil(b"0\r\n\r\n")
        caller.close()


async def test_stream_only_traffic_opens_and_closes_a_breaker(start, upstream) -> None:
    """Five streams that fail after their 200 open it; one that ends well closes it again."""
    upstream.script = scripted(delta("a"), end="reset")
    running = await start(
        {
            "up": {
                "upstream": upstream.url,
                "dialect": "openai",
                "breaker": {"open_for": "50ms", "jitter": 0, "successes": 1},
            }
        }
    )

    async def one(number: int):
        caller = await Caller.connect(running.port)
        body = chat(stream=True, user=str(number))
        await caller.send(request(CHAT, "POST", body, ("Content-Type", "application/json")))
        found = await caller.answer()
        caller.close()
        return found

    for number in range(5):
        assert (await one(number)).status == 200
    assert running.breaker("up/gpt-x").state == "open"
    assert (await one(5)).get("x-sidecar-decision") == "breaker_open"
    upstream.script = scripted(delta("a", "stop"), DONE)
    async with asyncio.timeout(5):
        while (await one(6)).status != 200:
            await asyncio.sleep(0.01)
    assert running.breaker("up/gpt-x").state == "closed"


async def test_a_hundred_streams_outlive_a_reload_and_a_drain(start, upstream) -> None:
    go = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(HEAD, chunk(delta("a")))
        await go.wait()
        await visit.send(chunk(delta("b", "stop")), chunk(DONE), b"0\r\n\r\n")

    upstream.script = script
    running = await start({"up": upstream.url}, drain={"timeout": "30s"})
    daemon = running.daemon
    callers = [await stream(running) for _ in range(100)]
    for caller in callers:
        await caller.head()
    file = daemon._options.config
    file.write_text(file.read_text() + "log: {level: debug}\n")
    await daemon.reload()
    daemon.stop()
    task = asyncio.create_task(daemon.run())
    await asyncio.sleep(0)
    await daemon.reload()
    assert daemon.plane.active == 100
    go.set()
    for caller in callers:
        rest = await caller.reader.readuntil(b"0\r\n\r\n")
        assert DONE in rest
        caller.close()
    await asyncio.wait_for(task, 10)
    assert {call.verdict for call in running.calls} == {"success"}


# -- arrays and frames ----------------------------------------------------------------------

GEMINI = "/gemini/v1beta/models/gemini-x:streamGenerateContent"
ARRAY_HEAD = HEAD.replace(b"text/event-stream", b"application/json; charset=UTF-8")
PIECE = json.dumps({"candidates": [{"content": {"parts": [{"text": "Hi"}]}}]}, indent=2).encode()
ENDED = json.dumps({"candidates": [{"finishReason": "STOP"}]}, indent=2).encode()
FAILED = json.dumps({"error": {"code": 500, "message": "M", "status": "INTERNAL"}}).encode()


async def gemini(start, upstream, *parts: bytes, wait: asyncio.Event | None = None):
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(ARRAY_HEAD, chunk(parts[0]))
        if wait is not None:
            await wait.wait()
        await visit.send(*(chunk(part) for part in parts[1:]), b"0\r\n\r\n")

    upstream.script = script
    return await start({"gemini": {"upstream": upstream.url, "dialect": "gemini"}})


async def test_an_array_that_grows_is_a_stream(start, upstream) -> None:
    go = asyncio.Event()
    running = await gemini(start, upstream, b"[" + PIECE, b",\r\n" + ENDED, b"\n]", wait=go)
    caller = await stream(running, GEMINI)
    await caller.head()
    first = chunk(b"[" + PIECE)
    assert await caller.reader.readexactly(len(first)) == first
    go.set()
    rest = await caller.reader.readuntil(b"0\r\n\r\n")
    assert ENDED in rest
    assert running.breaker("gemini/gemini-x").window.success == 1
    caller.close()


async def test_an_array_that_ends_in_an_error(start, upstream) -> None:
    go = asyncio.Event()
    running = await gemini(start, upstream, b"[" + PIECE, b",\r\n" + FAILED, b"\n]", wait=go)
    caller = await stream(running, GEMINI)
    line, *_ = await caller.head()
    assert line.split(b" ")[1] == b"200"
    go.set()
    assert FAILED in await caller.reader.readuntil(b"0\r\n\r\n")
    assert running.calls[-1].envelope.code == "INTERNAL"
    assert running.breaker("gemini/gemini-x").window.failure == 1
    caller.close()


async def test_an_array_that_begins_with_an_error_gets_its_status(start, upstream) -> None:
    running = await gemini(start, upstream, b"[" + FAILED, b"\n]")
    caller = await stream(running, GEMINI)
    found = await caller.answer()
    assert (found.status, found.body, found.clean) == (503, FAILED, True)
    assert found.envelope["code"] == "INTERNAL"
    caller.close()


async def test_an_array_that_is_cut_gets_no_event_of_ours(start, upstream) -> None:
    running = await gemini(start, upstream, b"[" + PIECE, b",\r\n" + PIECE)
    caller = await stream(running, GEMINI)
    found = await caller.answer()
    assert not found.clean
    assert found.body == b"[" + PIECE + b",\r\n" + PIECE
    assert running.calls[-1].envelope.code == "stream_truncated"
    caller.close()


FRAMES = "/bedrock/model/vendor.model-v1%3A0/converse-stream"


def framed(name: str, **payload: Any) -> bytes:
    headers = {":event-type": name, ":message-type": "event", ":content-type": "application/json"}
    return frame(headers, json.dumps(payload).encode())


async def bedrock(start, upstream, *parts: bytes, end: bytes = b"0\r\n\r\n"):
    async def script(visit: Visit) -> None:
        await visit.read_body()
        head = HEAD.replace(b"text/event-stream", b"application/vnd.amazon.eventstream")
        await visit.send(head)
        for part in parts:
            await visit.send(chunk(part))
            await asyncio.sleep(0.01)
        await visit.send(end)
        visit.keep = bool(end)

    upstream.script = script
    return await start({"bedrock": {"upstream": upstream.url, "dialect": "bedrock"}})


async def test_frames_pass_whole(start, upstream) -> None:
    body = (
        framed("messageStart", role="assistant")
        + framed("contentBlockDelta", delta={"text": "\n\n"})
        + framed("messageStop", stopReason="end_turn")
        + framed("metadata", usage={})
    )
    running = await bedrock(
        start, upstream, *(body[at : at + 50] for at in range(0, len(body), 50))
    )
    caller = await stream(running, FRAMES)
    found = await caller.answer()
    assert (found.body, found.clean) == (body, True)
    assert running.breaker("bedrock/vendor.model-v1:0").window.success == 1
    caller.close()


@pytest.mark.parametrize("end", [b"", b"0\r\n\r\n"])
async def test_frames_that_are_cut_end_with_one_of_ours(start, upstream, end) -> None:
    one = framed("contentBlockDelta", delta={"text": "Hi"})
    running = await bedrock(start, upstream, one, one[:30], end=end)
    caller = await stream(running, FRAMES)
    found = await caller.answer()
    assert not found.clean
    assert found.body.startswith(one)
    (last,) = FrameParser().feed(found.body.removeprefix(one))
    told = json.loads(last.data)
    assert (last.name, told["__type"]) == ("error", "serviceUnavailableException")
    assert told["envelope"]["code"] == "stream_truncated"
    assert running.breaker("bedrock/vendor.model-v1:0").window.failure == 1
    caller.close()
