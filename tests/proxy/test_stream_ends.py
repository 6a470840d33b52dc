"""How a stream ends where its framing, its last word and its connection tell different stories."""

from __future__ import annotations

import asyncio
import gzip
import json
from contextlib import suppress

import pytest
import zstandard

from sidecar.proxy import relay

from .callers import call, chat, request
from .test_streams import CHAT, DONE, HEAD, chunk, delta, scripted, stream
from .upstreams import Visit

ASKS = request(CHAT, "POST", chat(stream=True), ("Content-Type", "application/json"))
LAST_CHUNK = b"0\r\n\r\n"
FAILED = b'data: {"error":{"code":"server_error","message":"boom"}}\n\n'
PING = b": ping\n\n"
NATIVE = "/up/api/chat"
LINE = b'{"message":{"content":"a"},"done":false}\n'


def sized(*parts: bytes, go: asyncio.Event | None = None):
    async def script(visit: Visit) -> None:
        await visit.read_body()
        size = sum(map(len, parts))
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
        await visit.send(head % size + parts[0])
        if go is not None:
            await go.wait()
        await visit.send(*parts[1:])

    return script


async def test_a_sized_stream_is_as_it_came(start, upstream) -> None:
    upstream.script = sized(delta("a"), delta("b", "stop"), DONE)
    running = await start({"up": upstream.url})
    caller = await stream(running)
    body = delta("a") + delta("b", "stop") + DONE
    for count in (1, 2):
        found = await caller.answer()
        assert (found.body, found.get("content-length")) == (body, str(len(body)))
        assert running.breaker("up/gpt-x").window.success == count
        # The connection goes on, on both sides.
        await caller.send(ASKS)
    assert upstream.connections == 1


async def test_a_sized_stream_that_is_short_is_told_of_as_any_other(start, upstream) -> None:
    """All its bytes are there, so its length would say that all is well."""
    upstream.script = sized(delta("a"), delta("b"))
    running = await start({"up": upstream.url})
    caller = await stream(running)
    found = await caller.answer()
    assert (found.clean, found.get("content-length")) == (False, None)
    rest = found.body.removeprefix(delta("a") + delta("b"))
    assert json.loads(rest.removeprefix(b"data: "))["error"]["code"] == "stream_truncated"
    assert running.breaker("up/gpt-x").window.failure == 1


@pytest.mark.parametrize(
    ("rest", "clean"), [((delta("b"),), False), ((delta("b", "stop"), DONE), True)]
)
async def test_the_length_of_a_stream_is_never_a_clean_end_by_itself(
    start, upstream, rest, clean
) -> None:
    """What had been sent before its end was there keeps the length that was told."""
    go = asyncio.Event()
    upstream.script = sized(delta("a"), *rest, go=go)
    running = await start({"up": upstream.url})
    caller = await stream(running)
    await caller.head()
    assert await caller.reader.readexactly(len(delta("a"))) == delta("a")
    go.set()
    body = b"".join(rest)
    if clean:
        assert await caller.reader.readexactly(len(body)) == body
    else:
        assert await caller.reader.read(-1) == body[:-1]
    assert running.calls[-1].verdict == ("success" if clean else "failure")


@pytest.mark.parametrize("ending", ["clean", "close", "reset", "hang"])
@pytest.mark.parametrize("line_end", [b"", b"\n", b"\r\n"])
async def test_a_last_word_without_its_line_end(start, upstream, ending, line_end) -> None:
    last = DONE.rstrip() + line_end
    upstream.script = scripted(delta("a", "stop"), last, end=ending)
    timeouts = {"idle": "100ms"}
    running = await start(
        {"up": {"upstream": upstream.url, "dialect": "openai", "timeouts": timeouts}}
    )
    caller = await stream(running)
    found = await caller.answer()
    assert (found.clean, found.body) == (True, delta("a", "stop") + last)
    assert running.calls[-1].verdict == "success"


async def test_pings_do_not_outlive_the_last_word(start, upstream, monkeypatch) -> None:
    monkeypatch.setattr(relay, "TERMINATED_GRACE", 0.1)

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(HEAD, chunk(delta("a", "stop")), chunk(DONE))
        while not visit.writer.transport.is_closing():
            await visit.send(chunk(PING))
            await asyncio.sleep(0.02)

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await stream(running)
    async with asyncio.timeout(5):
        found = await caller.answer()
    assert found.clean
    assert running.calls[-1].verdict == "success"


async def test_an_error_is_a_last_word_too(start, upstream, monkeypatch) -> None:
    """The breaker hears of it at once, and nobody waits until the connection falls idle."""
    monkeypatch.setattr(relay, "TERMINATED_GRACE", 0.2)
    upstream.script = scripted(delta("a"), FAILED, end="hang")
    running = await start({"up": upstream.url})
    caller = await stream(running)
    await caller.head()
    await caller.reader.readuntil(FAILED)
    async with asyncio.timeout(5):
        while not running.breaker("up/gpt-x").window.failure:
            await asyncio.sleep(0.005)
        assert not running.calls
        assert LAST_CHUNK not in await caller.reader.read(-1)
    assert running.calls[-1].envelope.code == "server_error"


async def test_a_feed_goes_on_after_an_error(start, upstream, monkeypatch) -> None:
    """Where no model answers, an event that tells of an error need not be the last."""
    monkeypatch.setattr(relay, "TERMINATED_GRACE", 0.02)

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(HEAD, chunk(b'data: {"n":1}\n\n'), chunk(FAILED))
        await asyncio.sleep(0.1)
        await visit.send(chunk(b'data: {"n":2}\n\n'), LAST_CHUNK)

    upstream.script = script
    running = await start({"up": {"upstream": upstream.url, "dialect": "generic"}})
    caller = await stream(running, "/up/feed")
    found = await caller.answer()
    assert found.clean
    assert found.body.endswith(b'data: {"n":2}\n\n')


async def broken(start, upstream, dialect: str, path: str, kind: bytes, *parts: bytes) -> bytes:
    """What a caller gets of these parts, each of which comes late, and then of no more."""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(HEAD.replace(b"text/event-stream", kind))
        for part in parts:
            await visit.send(chunk(part))
            await asyncio.sleep(3 * relay.TAIL_WAIT)
        visit.keep = False

    upstream.script = script
    running = await start({"up": {"upstream": upstream.url, "dialect": dialect}})
    caller = await stream(running, path)
    found = await caller.answer()
    assert not found.clean
    assert running.calls[-1].envelope.code == "stream_truncated"
    return found.body


async def test_no_line_of_ours_is_blank(start, upstream) -> None:
    """Clients of streams of lines decode every line that there is."""
    kind = b"application/x-ndjson"
    body = await broken(start, upstream, "ollama", NATIVE, kind, LINE, LINE[:10], LINE[10:])
    assert body.startswith(LINE * 2)
    (error,) = body.removeprefix(LINE * 2).splitlines()
    assert json.loads(error)["error"]


async def test_ours_never_joins_an_event_that_came_in_pieces(start, upstream) -> None:
    event = delta("b")
    parts = (delta("a"), event[:6], event[6:-1])
    body = await broken(start, upstream, "openai", CHAT, b"text/event-stream", *parts)
    rest = body.removeprefix(b"".join(parts))
    assert rest.startswith(b"\n")
    assert rest.lstrip().startswith(b"data: ")
    assert json.loads(rest.lstrip().removeprefix(b"data: "))["error"]["code"] == "stream_truncated"


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
async def test_a_coded_stream_is_read_to_its_last_word(start, upstream, coding) -> None:
    """A member or frame of its own for each event, as servers that code event by event write."""
    code = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}[coding]
    parts = [code(part) for part in (delta("a"), delta("b", "stop"), DONE)]

    async def script(visit: Visit) -> None:
        await visit.read_body()
        named = f"\r\nContent-Encoding: {coding}\r\n\r\n".encode()
        await visit.send(HEAD.replace(b"\r\n\r\n", named), *map(chunk, parts), LAST_CHUNK)

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await stream(running)
    found = await caller.answer()
    assert (found.clean, found.body) == (True, b"".join(parts))
    assert running.breaker("up/gpt-x").window.success == 1


LAST_LINE = b'{"message":{"content":""},"done":true,"done_reason":"stop"}\n'
OWN_ERROR = b'{"error":"boom"}\n'


def lines(kind: bytes | None, *parts: bytes):
    async def script(visit: Visit) -> None:
        await visit.read_body()
        named = b"" if kind is None else b"Content-Type: %b\r\n" % kind
        await visit.send(HEAD.replace(b"Content-Type: text/event-stream\r\n", named))
        for part in parts:
            await visit.send(chunk(part))
            # Each is read by itself.
            await asyncio.sleep(0.002)
        await visit.send(LAST_CHUNK)

    return script


@pytest.mark.parametrize("kind", [None, b"text/plain", b"application/json", b"application/jsonl"])
@pytest.mark.parametrize(
    ("parts", "verdict", "code"),
    [
        ((LINE, LINE, LAST_LINE), "success", None),
        ((LINE[:5], LINE[5:] + LINE[:1], LINE[1:] + LAST_LINE), "success", None),
        ((LINE, LINE), "failure", "stream_truncated"),
        ((LINE, OWN_ERROR), "failure", "stream_error"),
    ],
)
async def test_lines_of_a_model_are_a_stream_under_any_name(
    start, upstream, kind, parts, verdict, code
) -> None:
    upstream.script = lines(kind, *parts)
    running = await start({"up": {"upstream": upstream.url, "dialect": "ollama"}})
    caller = await stream(running, NATIVE)
    found = await caller.answer()
    assert found.status == 200
    assert found.body.startswith(b"".join(parts))
    call = running.calls[-1]
    assert (call.verdict, call.envelope.code if call.envelope else None) == (verdict, code)
    rest = found.body.removeprefix(b"".join(parts))
    assert found.clean is not (code == "stream_truncated")
    assert bool(rest) is (code == "stream_truncated")
    if rest:
        (line,) = rest.splitlines()
        assert json.loads(line)["envelope"]["code"] == code


async def test_lines_that_are_data_say_nothing(start, upstream) -> None:
    """A log in lines is what was asked for, whatever its lines tell of."""
    upstream.script = lines(b"application/json", b'{"line":1}\n', b'{"error":"boom"}\n')
    running = await start({"up": {"upstream": upstream.url, "dialect": "generic"}})
    caller = await stream(running, "/up/logs")
    found = await caller.answer()
    assert (found.status, found.clean) == (200, True)
    assert running.calls[-1].verdict == "success"


async def test_an_event_of_ours_in_lines_is_a_line(start, upstream) -> None:
    """Also where the dialect's own streams are of events."""
    body = await broken(
        start, upstream, "openai", "/up/v1/x", b"application/x-ndjson", b'{"n":1}\n'
    )
    line = body.removeprefix(b'{"n":1}\n')
    assert line.endswith(b"}\n")
    assert json.loads(line)["error"]["code"] == "stream_truncated"


@pytest.mark.parametrize("body", [b'{"choices":[%b]}\n', b'{\n  "choices": [%b]\n}\n'])
async def test_one_object_is_no_stream(start, upstream, body) -> None:
    whole = body % b'{"message":{"content":"{\\"a\\":1}"},"finish_reason":"stop"}'
    upstream.script = lines(b"application/json", whole[:-9], whole[-9:])
    running = await start({"up": upstream.url})
    caller = await stream(running)
    found = await caller.answer()
    assert (found.clean, found.body) == (True, whole)
    assert "a whole answer" in running.calls[-1].rule


@pytest.mark.parametrize("broken", [b"ZZ\r\n", b"<html>oops", b"0\r\nBad Name: x\r\n\r\n"])
@pytest.mark.parametrize("content_type", [b"text/event-stream", b"application/json", b"image/png"])
@pytest.mark.parametrize("pause", [0.0, 0.1])
async def test_chunks_that_break_off_into_something_else(
    start, upstream, broken, content_type, pause
) -> None:
    """Nothing more can come: nobody waits for a clock."""
    event = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"%x\r\n%b\r\n" % (content_type, len(event), event)
        )
        await asyncio.sleep(pause)
        await visit.send(broken)
        await visit.closed()
        visit.keep = False

    upstream.script = script
    running = await start({"up": upstream.url})
    async with asyncio.timeout(5):
        with suppress(asyncio.IncompleteReadError):
            await call(running.port, "/up/v1/chat/completions", "POST", b"{}")
        while not running.calls:
            await asyncio.sleep(0.005)
    told = running.calls[-1]
    assert told.verdict == "failure"
    assert told.envelope.code in ("invalid_upstream_response", "stream_truncated")
