"""A kept connection to an upstream: no byte of one answer ever becomes part of another."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from .callers import Caller, call, request
from .upstreams import Visit, answer, says

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: image/x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"4\r\ngood\r\n0\r\n\r\n"
)
EVIL = answer(200, b"SMUGGLED")


async def numbered(visit: Visit) -> None:
    await visit.read_body()
    await visit.send(answer(200, visit.request.target))


async def test_an_answer_nobody_asked_for_reaches_nobody(start, upstream) -> None:
    """It comes while the connection rests in the pool."""

    async def script(visit: Visit) -> None:
        await numbered(visit)
        if visit.number == 1:
            await asyncio.sleep(0.05)
            await visit.send(EVIL)

    upstream.script = script
    running = await start({"up": upstream.url})
    assert (await call(running.port, "/up/0")).body == b"/0"
    await asyncio.sleep(0.15)
    for n in range(1, 4):
        assert (await call(running.port, f"/up/{n}")).body == b"/%d" % n


@pytest.mark.parametrize(
    "extra",
    [
        EVIL,
        b"HTTP/1.1 401 Poisoned\r\nX-Prefix: ",
        b"\r\n",
        b"x",
        EVIL[:-1],
        b"HTTP/1.1 200 OK\r\n",
    ],
)
@pytest.mark.parametrize(
    "good",
    [
        answer(200, b"good"),
        CHUNKED,
        b"HTTP/1.1 204 No\r\n\r\n",
        b"HTTP/1.1 304 Not\r\nContent-Length: 9\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + answer(200, b"good"),
    ],
)
async def test_bytes_behind_an_answer(start, upstream, good, extra) -> None:
    """They come in the same segment; the answer itself is whole and arrives."""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(good + extra if visit.number == 1 else answer(200, visit.request.target))

    upstream.script = script
    running = await start({"up": upstream.url})
    first = await call(running.port, "/up/0")
    if first.status == 502:
        # A parser that saw the excess with the body may refuse both: nothing is mixed.
        assert extra in (b"x", b"\r\n") or not extra.endswith(b"SMUGGLED")
    else:
        assert first.body in (b"good", b"")
    for n in range(1, 4):
        assert (await call(running.port, f"/up/{n}")).body == b"/%d" % n


async def test_a_head_that_is_answered_with_a_body(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.send(answer(200, visit.request.target))

    upstream.script = script
    running = await start({"up": upstream.url})
    for n in range(3):
        found = await call(running.port, f"/up/{n}", "HEAD")
        assert (found.status, found.get("content-length")) == (200, "2")
        assert (await call(running.port, f"/up/{n}")).body == b"/%d" % n
    assert running.breaker("up").window.failure == 0
    assert upstream.connections == 3 + 1


async def test_a_204_that_has_a_body(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        if visit.number % 2:
            await visit.send(b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\nhello")
        else:
            await numbered(visit)

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    for _ in range(3):
        await caller.send(request("/up/a"))
        found = await caller.answer()
        assert (found.status, found.get("content-length")) == (204, None)
        await caller.send(request("/up/b"))
        assert (await caller.answer()).body == b"/b"
    assert running.breaker("up").window.failure == 0


async def test_kinds_of_answers_in_turn_on_one_connection(start, upstream) -> None:
    """Chunked, HEAD, 204, sized, 304, empty: the parser is where it began after each."""
    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=1\r\nhello\r\n0\r\nT: 1\r\n\r\n"
    )
    kinds = [
        (chunked, "GET", 200, b"hello"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", "HEAD", 200, b""),
        (b"HTTP/1.1 204 No\r\n\r\n", "GET", 204, b""),
        (answer(200, b"sized"), "GET", 200, b"sized"),
        (b"HTTP/1.1 304 Not\r\nContent-Length: 7\r\n\r\n", "GET", 304, b""),
        (answer(200, b""), "GET", 200, b""),
        (b"HTTP/1.1 103 E\r\nL: a\r\n\r\n" + answer(404, b"no"), "GET", 404, b"no"),
    ]
    running = await start({"up": {"upstream": upstream.url, "dialect": "generic"}})
    for raw, method, status, body in kinds * 3:
        upstream.script = says(raw)
        found = await call(running.port, "/up/x", method)
        assert (found.status, found.body) == (status, body)
    assert upstream.connections == 1


async def test_lf_only_heads_and_pretty_json(start, upstream) -> None:
    body = b'{\n  "ok": true,\n\t"n": 1\n}\n'
    upstream.script = says(
        b"HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: %d\n\n" % len(body)
        + body
    )
    running = await start({"up": upstream.url})
    found = await call(running.port)
    assert (found.status, found.body) == (200, body)


async def test_a_long_head_in_pieces(start, upstream) -> None:
    body = b'{\n  "1": 1\n}'
    head = b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"1" * 900) for n in range(200))
    raw = head + b"Content-Length: %d\r\n\r\n" % len(body) + body

    async def script(visit: Visit) -> None:
        await visit.read_body()
        for at in range(0, len(raw), 777):
            await visit.send(raw[at : at + 777])
            await asyncio.sleep(0)

    upstream.script = script
    running = await start({"up": upstream.url})
    found = await call(running.port)
    assert (found.status, found.body) == (200, body)


async def test_a_protocol_change_nobody_asked_for(start, upstream) -> None:
    upstream.script = says(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
    running = await start({"up": upstream.url})
    found = await call(running.port)
    assert (found.status, found.envelope["code"]) == (502, "invalid_upstream_response")


async def test_a_reused_connection_that_dies_late_was_alive(start, upstream, monkeypatch) -> None:
    from sidecar.proxy import exchange

    monkeypatch.setattr(exchange, "STALE_WITHIN", 0.05)
    running = await start({"up": upstream.url})
    await call(running.port)

    async def crash(visit: Visit) -> None:
        await visit.read_body()
        await asyncio.sleep(0.15)
        visit.reset()

    upstream.script = crash
    found = await call(running.port, "/up/x", "POST", b"{}")
    assert found.envelope["code"] == "connection_reset"
    assert running.breaker("up").window.failure == 1


# -- trailers: aiohttp's parser puts the last line of one into the next head ------------------

STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"%x\r\n%b\r\n0\r\n%b\r\n"
)
DONE = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
TRAILERS = [b"Set-Cookie: of=A\r\n", b"X-A: 1\r\nTransfer-Encoding: gzip\r\n", b"X: 0\r\n", b""]


@pytest.mark.parametrize("trailer", TRAILERS)
@pytest.mark.parametrize("kind", [b"text/event-stream", b"image/x"])
async def test_the_trailer_of_an_answer_reaches_no_other_caller(
    start, upstream, kind, trailer
) -> None:
    async def script(visit: Visit) -> None:
        if visit.number == 1:
            await visit.send(STREAM % (kind, len(DONE), DONE, trailer))
        else:
            await visit.send(answer(200, b"{}"))

    upstream.script = script
    running = await start({"up": upstream.url})
    assert (await call(running.port, "/up/a", "GET", None)).status == 200
    found = await call(running.port, "/up/b", "GET", None)
    assert found.status == 200
    assert [name for name, _ in found.headers][:2] == [b"Content-Type", b"Content-Length"]


UPLOAD = (
    b"POST /up/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\n{}\r\n0\r\n%b\r\n"
)


@pytest.mark.parametrize("trailer", [b"Authorization: Bearer evil\r\nX-A: 1\r\n", TRAILERS[0], b""])
async def test_the_trailer_of_a_request_is_no_header_of_the_next(start, upstream, trailer) -> None:
    async def script(visit: Visit) -> None:
        if visit.request.get(b"transfer-encoding"):
            while await visit.reader.readline() != b"0\r\n":
                pass
            while await visit.reader.readline() != b"\r\n":
                pass
        await visit.send(answer(200, b"{}"))

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    for _ in range(2):
        await caller.send(UPLOAD % trailer)
        assert (await caller.answer()).status == 200
        await caller.send(request("/up/b", "GET", None, ("Authorization", "Bearer b")))
        assert (await caller.answer()).status == 200
    caller.close()
    for received in upstream.requests[1::2]:
        told = [value for name, value in received.headers if name.lower() == b"authorization"]
        assert told == [b"Bearer b"]
        assert received.get(b"x-a") is received.get(b"set-cookie") is None


@pytest.mark.parametrize("trailer", [b"Authorization: Bearer evil\r\n", b""])
async def test_what_is_sent_in_one_go_with_the_end_of_chunks_is_not_answered(
    start, upstream, trailer
) -> None:
    upstream.script = numbered if not trailer else says(answer(200, b"{}"))
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(UPLOAD % trailer + request("/up/b", "GET", None))
    assert (await caller.answer()).status == 200
    assert await caller.reader.read() == b""
    assert len(upstream.requests) == 1
    caller.close()


@pytest.mark.parametrize("trailer", [b"X-T: 1\r\n", b""])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            b"POST /up/b HTTP/1.1\r\nHost: localhost\r\nX: ",
            b"GET /up/evil HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        (b"GET /up/", b"b HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        (b"GET /up/b HTTP/1.1\r\nHost: localhost\r", b"\n\r\n"),
        (b"GET /up/b HTTP/1.1\r\nHost: localhost\r\n", b"\r\n"),
    ],
)
async def test_half_a_head_behind_the_end_of_chunks_is_no_beginning(
    start, upstream, trailer, first, second
) -> None:
    """What was sent ahead is not answered, and least of all is its rest read as another request."""
    upstream.script = says(answer(200, b"{}"))
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(UPLOAD % trailer + first)
    assert (await caller.answer()).status == 200
    with suppress(ConnectionError):
        await caller.send(second)
        async with asyncio.timeout(5):
            assert await caller.reader.read() == b""
    assert len(upstream.requests) == 1
    caller.close()


@pytest.mark.parametrize("trailer", [b"X-T: 1\r\n", b""])
@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 9])
async def test_the_end_of_chunks_in_two_pieces(start, upstream, trailer, cut) -> None:
    running = await start({"up": upstream.url})
    upload = UPLOAD % trailer
    caller = await Caller.connect(running.port)
    for _ in range(2):
        await caller.send(upload[:-cut])
        await asyncio.sleep(0.01)
        await caller.send(upload[-cut:])
        assert (await caller.answer()).status == 200
    caller.close()


async def test_a_request_that_waits_in_the_parser_has_its_end_all_the_same(start, upstream) -> None:
    """Read when there is room again, and not with the bytes that came last."""
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    sized = b"x" * 300_000
    first = b"POST /up/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n" + sized
    for _ in range(3):
        await caller.send(first + UPLOAD % b"")
        assert (await caller.answer()).status == 200
        assert (await caller.answer()).status == 200
    caller.close()
