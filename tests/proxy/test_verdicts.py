"""When the verdict falls: never before the words that could change it, never without the end."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib

import pytest

from .callers import Caller, call, chat, request
from .test_streams import CHAT, DONE, HEAD, chunk, delta, scripted, stream
from .upstreams import Visit, answer, says

TYPO = b'{"error":{"code":"model_not_found","message":"no model gpt-y"}}'
JSON = ("Content-Type", "application/json")


@pytest.mark.parametrize(
    "kind", [b"text/event-stream", b"application/octet-stream", b"audio/mpeg", b"application/x"]
)
async def test_a_typo_as_503_of_any_media_type(start, upstream, kind) -> None:
    upstream.script = says(answer(503, TYPO, kind=kind))
    running = await start({"up": upstream.url})
    found = await call(running.port, CHAT, "POST", chat("gpt-y"), JSON)
    assert (found.status, found.envelope["code"]) == (404, "model_not_found")
    assert running.breaker("up/gpt-y").window.alive == 1


@pytest.mark.parametrize("dialect", ["auto", "generic", "openai"])
async def test_an_object_store_that_fails_after_its_200(start, upstream, dialect) -> None:
    told = b"<?xml version='1.0'?>\n <Error><Code>InternalError</Code><Message>m</Message></Error>"
    upstream.script = says(answer(200, told, kind=b"application/xml"))
    running = await start({"up": {"upstream": upstream.url, "dialect": dialect}})
    found = await call(running.port, "/up/bucket/key", "PUT")
    assert (found.status, found.envelope["code"]) == (503, "InternalError")
    assert found.envelope["class"] == "transient"
    assert running.breaker("up/~bucket/key").window.failure == 1


async def test_a_typo_whose_words_come_after_the_hold(start, upstream) -> None:
    go = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        head, _, body = answer(503, TYPO).partition(b"\r\n\r\n")
        await visit.send(head + b"\r\n\r\n")
        await go.wait()
        await visit.send(body)

    upstream.script = script
    section = {"upstream": upstream.url, "dialect": "openai", "timeouts": {"hold": "30ms"}}
    running = await start({"up": section})
    caller = await Caller.connect(running.port)
    await caller.send(request(CHAT, "POST", chat("gpt-y"), JSON))
    line, headers, _ = await caller.head()
    assert b" 503 " in line
    assert b"x-sidecar-verdict" not in dict(headers)
    go.set()
    while not running.calls:
        await asyncio.sleep(0.01)
    assert running.calls[0].envelope.code == "model_not_found"
    window = running.breaker("up/gpt-y").window
    assert (window.alive, window.failure) == (1, 0)


async def test_a_large_answer_that_is_cut_is_no_success(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
            b'{"data":"' + b"x" * 400_000
        )
        await asyncio.sleep(0.05)
        visit.reset()

    upstream.script = script
    running = await start({"up": upstream.url})
    found = await call(running.port, CHAT, "POST", chat(), JSON)
    assert not found.clean
    window = running.breaker("up/gpt-x").window
    assert (window.success, window.failure) == (0, 1)


async def test_a_large_answer_that_is_whole_is_one(start, upstream) -> None:
    body = b'{"data":"' + b"x" * 900_000 + b'"}'
    upstream.script = says(answer(200, body))
    running = await start({"up": upstream.url})
    found = await call(running.port, CHAT, "POST", chat(), JSON)
    assert found.body == body
    assert running.breaker("up/gpt-x").window.success == 1


def coded(coding: str, *parts: bytes) -> list[bytes]:
    """The parts of a stream, each flushed, as servers compress them."""
    engine = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
    pieces = [engine.compress(part) + engine.flush(zlib.Z_SYNC_FLUSH) for part in parts]
    return [*pieces, engine.flush()]


def compressed(coding: str, *parts: bytes, end: str = "clean"):
    head = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: " + coding.encode() + b"\r\n\r\n")

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(head, *(chunk(piece) for piece in coded(coding, *parts) if piece))
        if end == "clean":
            await visit.send(b"0\r\n\r\n")
        else:
            await asyncio.sleep(0.05)
            visit.reset()

    return script


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_compressed_streams_are_read_too(start, upstream, coding) -> None:
    error = b'data: {"error":{"code":"server_error","message":"m"}}\n\n'
    running = await start({"up": upstream.url})
    upstream.script = compressed(coding, delta("a"), error)
    caller = await stream(running)
    found = await caller.answer()
    assert found.clean
    assert running.calls[-1].envelope.code == "server_error"
    upstream.script = compressed(coding, delta("a"), delta("b", "stop"), DONE)
    caller = await stream(running)
    found = await caller.answer()
    whole = zlib.decompressobj(wbits=47).decompress(found.body)
    assert whole == delta("a") + delta("b", "stop") + DONE
    upstream.script = compressed(coding, delta("a"), end="reset")
    caller = await stream(running)
    found = await caller.answer()
    assert not found.clean
    assert b"stream_truncated" not in found.body
    window = running.breaker("up/gpt-x").window
    assert (window.success, window.failure) == (1, 2)


async def test_an_unreadable_stream_that_ends_well_says_nothing(start, upstream) -> None:
    head = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: foo\r\n\r\n")

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(head, chunk(b"\x00\x01\x02"), b"0\r\n\r\n")

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await stream(running)
    assert (await caller.answer()).clean
    assert running.calls[-1].verdict == "neutral"
    assert running.calls[-1].ending == "answered"


@pytest.mark.parametrize("cut", [1, 7, 20, 40, -1])
async def test_a_stream_cut_within_an_event_still_ends_with_one_that_can_be_read(
    start, upstream, cut
) -> None:
    upstream.script = scripted(delta("a"), delta("b")[:cut], end="close")
    running = await start({"up": upstream.url})
    caller = await stream(running)
    found = await caller.answer()
    assert not found.clean
    assert found.body.startswith(delta("a") + b"data: ")
    event = json.loads(found.body.removeprefix(delta("a") + b"data: "))
    assert event["error"]["code"] == "stream_truncated"


async def test_half_an_event_that_stays_alone_passes_soon(start, upstream) -> None:
    go = asyncio.Event()
    half = delta("b")[:20]

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(HEAD, chunk(delta("a")), chunk(half))
        await go.wait()
        await visit.send(chunk(delta("b")[20:]), chunk(DONE), b"0\r\n\r\n")

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await stream(running)
    async with asyncio.timeout(5):
        seen = b""
        while half not in seen.replace(delta("a"), b""):
            seen += await caller.reader.read(4096)
    go.set()
    rest = await caller.reader.readuntil(b"0\r\n\r\n")
    assert delta("b")[20:] in rest


async def test_a_sized_stream_that_is_cut_is_not_filled_up(start, upstream) -> None:
    body = delta("a") + delta("b", "stop") + DONE

    async def script(visit: Visit) -> None:
        await visit.read_body()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
        await visit.send(head % len(body), delta("a"))
        await asyncio.sleep(0.05)
        visit.reset()

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await stream(running)
    found = await caller.answer()
    assert (found.clean, found.body) == (False, delta("a"))
    assert running.breaker("up/gpt-x").window.failure == 1


async def stopped(running) -> None:
    running.daemon.stop()
    await running.daemon.run()
    await running.daemon.close()


async def test_a_stream_that_a_stop_cuts_says_so(start, upstream) -> None:
    upstream.script = scripted(delta("a"), end="hang")
    running = await start({"up": upstream.url}, drain={"timeout": "50ms"})
    caller = await stream(running)
    await caller.head()
    await stopped(running)
    rest = await caller.reader.read(-1)
    assert b'"code":"draining"' in rest
    assert b"0\r\n\r\n" not in rest
    assert running.calls[-1].ending == "shutdown"


async def test_a_body_without_a_length_that_a_stop_cuts_is_reset(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.send(b"HTTP/1.0 200 OK\r\nContent-Type: image/x\r\n\r\n" + b"a" * 1000)
        await visit.closed()
        visit.keep = False

    upstream.script = script
    running = await start({"up": upstream.url}, drain={"timeout": "50ms"})
    caller = await Caller.connect(running.port)
    await caller.send(request())
    await caller.head()
    while not running.daemon.plane.active:
        await asyncio.sleep(0.01)
    await stopped(running)
    with pytest.raises(ConnectionError):
        await caller.reader.read(-1)


async def test_a_stop_after_the_request_was_sent(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.closed()

    upstream.script = script
    running = await start({"up": upstream.url}, drain={"timeout": "50ms"})
    caller = await Caller.connect(running.port)
    await caller.send(request("/up/v1/files", "POST", b"x"))
    while not upstream.hits:
        await asyncio.sleep(0.01)
    await stopped(running)
    found = await caller.answer()
    assert (found.status, found.envelope["code"]) == (503, "draining")
    assert found.get("x-should-retry") == "false"
    assert "may have been executed" in found.envelope["message"]


async def test_a_provider_that_goes_while_its_call_is_read(start, upstream) -> None:
    running = await start({"up": upstream.url, "other": upstream.url})
    caller = await Caller.connect(running.port)
    body = chat()
    await caller.send(request(CHAT, "POST", None, JSON, ("Content-Length", str(len(body)))))
    await asyncio.sleep(0.05)
    file = running.daemon._options.config
    file.write_text(file.read_text().replace("  up:\n", "  gone:\n"))
    assert (await running.daemon.reload()).removed == ("up",)
    await caller.send(body)
    found = await caller.answer()
    assert (found.status, found.get("x-sidecar-provider")) == (200, "up")
    other = await Caller.connect(running.port)
    await other.send(
        request("/gone/x", "POST", None, ("Transfer-Encoding", "chunked"), JSON), b"1\r\n{\r\n"
    )
    await asyncio.sleep(0.05)
    file.write_text(file.read_text().replace("  gone:\n", "  up:\n"))
    await running.daemon.reload()
    await other.send(b"zz\r\n")
    assert (await other.answer()).status == 400


async def test_a_compressed_error_is_read_whole(start, upstream) -> None:
    packed = gzip.compress(TYPO)
    upstream.script = says(answer(503, packed, (b"Content-Encoding", b"gzip")))
    running = await start({"up": upstream.url})
    found = await call(running.port, CHAT, "POST", chat("gpt-y"), JSON)
    assert (found.status, found.body) == (404, packed)
