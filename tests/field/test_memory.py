"""What a daemon holds while much passes through it: real processes, resident memory, descriptors.

Sizes are those of the cases divided by a few, and the bounds are the cases' own: what is kept
would be many times as much.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from contextlib import suppress

from tests.proxy.callers import Caller, call, chat, request
from tests.proxy.upstreams import Upstream, Visit, answer, says

from .process import MIB
from .scene import (
    CHAT,
    DONE,
    JSON,
    OK,
    STREAM_HEAD,
    ask,
    base,
    chunk,
    delta,
    document,
    open_stream,
    until,
)

PIECE = b"z" * MIB


async def warm(one, upstream: Upstream) -> int:
    """Everything that is made once has been made; returns the resident memory."""
    before, upstream.script = upstream.script, says(OK)
    for n in range(20):
        assert (await ask(one, n=n)).status == 200
    upstream.script = before
    return one.settled()


async def failures(one) -> int:
    breakers = (await document(one))["providers"]["up"]["breakers"]
    return sum(shown["window"]["failure"] for shown in breakers.values())


async def drop(caller: Caller, left: int) -> None:
    """Reads and throws away."""
    while left:
        part = await caller.reader.read(min(left, MIB))
        assert part
        left -= len(part)


async def test_f022_a_large_error_body_is_not_kept(process, upstream) -> None:
    size = 64 * MIB

    async def script(visit: Visit) -> None:
        await visit.read_body()
        kind = b"Content-Type: application/json\r\n"
        await visit.send(b"HTTP/1.1 500 X\r\n%bContent-Length: %d\r\n\r\n" % (kind, size))
        for _ in range(size // MIB):
            await visit.send(PIECE)

    one = await process({"up": base(upstream.url)})
    before = await warm(one, upstream)
    upstream.script = script
    caller = await Caller.connect(one.port)
    await caller.send(request(CHAT, "POST", chat(), JSON))
    line, _, _ = await caller.head()
    assert b" 500 " in line
    await drop(caller, size)
    assert await failures(one) == 1
    assert one.peak - before < 5 * MIB


async def test_f071_a_compression_bomb_is_never_inflated(process, upstream) -> None:
    """Both ways: in a request and in an error answer."""
    packer = gzip.zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(4 * MIB)) for _ in range(64)) + packer.flush()
    assert len(bomb) < MIB
    error = answer(500, bomb, (b"Content-Encoding", b"gzip"))
    one = await process({"up": base(upstream.url)})
    before = await warm(one, upstream)
    upstream.script = says(error)
    for n in range(3):
        headers = (JSON, ("Content-Encoding", "gzip"), ("X-N", str(n)))
        found = await call(one.port, CHAT, "POST", bomb, *headers)
        assert (found.status, found.body) == (500, bomb)
        assert upstream.requests[-1].body == bomb
    assert one.peak - before < 32 * MIB


async def test_f082_f090_bodies_pass_and_are_not_collected(process, upstream) -> None:
    """An upload and a download of 96 MiB, then ten of 12 MiB at once."""
    digests: dict[bytes, str] = {}

    async def script(visit: Visit) -> None:
        size = int(visit.request.get(b"content-length"))
        digest, left = hashlib.sha256(), size
        while left:
            part = await visit.reader.read(min(left, MIB))
            digest.update(part)
            left -= len(part)
        digests[visit.request.target] = digest.hexdigest()
        kind = b"Content-Type: application/octet-stream\r\n"
        await visit.send(b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n" % (kind, size))
        for _ in range(size // MIB):
            await visit.send(PIECE)

    async def there_and_back(name: str, pieces: int) -> None:
        caller = await Caller.connect(one.port)
        kind = ("Content-Type", "application/octet-stream")
        length = ("Content-Length", str(pieces * MIB))
        await caller.send(request(f"/up/{name}", "POST", None, length, kind))
        for _ in range(pieces):
            await caller.send(PIECE)
        line, _, _ = await caller.head()
        assert b" 200 " in line
        await drop(caller, pieces * MIB)
        assert digests[f"/{name}".encode()] == hashlib.sha256(PIECE * pieces).hexdigest()
        caller.close()

    one = await process({"up": base(upstream.url)})
    before = await warm(one, upstream)
    upstream.script = script
    await there_and_back("large", 96)
    assert one.peak - before < 32 * MIB
    await asyncio.gather(*(there_and_back(f"n{n}", 12) for n in range(10)))
    assert one.peak - before < 64 * MIB


async def test_f084_cookies_pile_up_nowhere(process) -> None:
    """Two thousand long-lived cookies of 8 KiB each; a jar would hold them all."""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        value = b"sid%d=%b; Max-Age=99999999" % (visit.number, b"c" * 8000)
        await visit.send(answer(200, OK.partition(b"\r\n\r\n")[2], (b"Set-Cookie", value)))

    upstream = Upstream(script)
    await upstream.start()
    one = await process({"up": base(f"http://localhost:{upstream.port}")})
    caller = await Caller.connect(one.port)

    async def calls(number: int) -> None:
        for n in range(number):
            await caller.send(request(CHAT, "POST", chat(n=n), JSON))
            assert (await caller.answer()).get("set-cookie")

    await calls(200)
    before = one.settled()
    await calls(2000)
    assert one.peak - before < 8 * MIB
    assert all(seen.get(b"cookie") is None for seen in upstream.requests)
    await upstream.stop()


async def test_f113_callers_that_do_not_read(process, upstream) -> None:
    """Twenty of them, and an upstream that would send a gigabyte."""
    sent = 0
    running = 0

    async def script(visit: Visit) -> None:
        nonlocal sent, running
        await visit.read_body()
        await visit.send(STREAM_HEAD)
        part = chunk(b"data: " + b"x" * 65_000 + b"\n\n")
        running += 1
        try:
            with suppress(ConnectionError):
                while sent < 1000 * MIB:
                    visit.writer.write(part)
                    sent += len(part)
                    await visit.writer.drain()
        finally:
            running -= 1
            visit.keep = False

    one = await process(
        {"up": base(upstream.url, timeouts={"client": "1s", "keep_alive": "100ms"})}
    )
    before = await warm(one, upstream)
    await until(lambda: not upstream.open_connections)
    descriptors = one.descriptors
    upstream.script = script
    callers = [await open_stream(one.port) for _ in range(20)]
    await until(lambda: running == 20)
    for caller in callers:
        caller.writer.transport.pause_reading()
    # After `timeouts.client` the daemon closes both sides by itself.
    await until(lambda: running == 0, 40)
    assert sent < 400 * MIB
    assert one.peak - before < 64 * MIB
    await until(lambda: one.descriptors <= descriptors)
    assert await failures(one) == 0
    for caller in callers:
        caller.writer.transport.abort()


async def test_f113_readers_that_are_killed(process, upstream) -> None:
    """The same, but they die while they stall: nothing waits for a clock."""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD)
        part = chunk(b"data: " + b"x" * 65_000 + b"\n\n")
        with suppress(ConnectionError):
            while True:
                await visit.send(part)
        visit.keep = False

    one = await process({"up": base(upstream.url, timeouts={"keep_alive": "100ms"})})
    await warm(one, upstream)
    await until(lambda: not upstream.open_connections)
    descriptors = one.descriptors
    upstream.script = script
    callers = [await open_stream(one.port) for _ in range(20)]
    for caller in callers:
        await caller.head()
        caller.writer.transport.pause_reading()
    for caller in callers:
        caller.writer.transport.abort()
    await until(lambda: not upstream.open_connections)
    await until(lambda: one.descriptors <= descriptors)
    assert await failures(one) == 0


async def test_f114_no_line_is_too_long(process, upstream) -> None:
    """Twenty megabytes in one event, then twenty without any line end."""
    size = 20 * MIB
    line = b"data: " + b"x" * size + b"\n\n"
    end = delta("a", "stop") + DONE
    one = await process({"up": base(upstream.url)})
    before = await warm(one, upstream)
    for stream in (line + end, b"data: " + b"y" * size):

        async def script(visit: Visit, stream: bytes = stream) -> None:
            await visit.read_body()
            await visit.send(STREAM_HEAD)
            for at in range(0, len(stream), 100_000):
                await visit.send(chunk(stream[at : at + 100_000]))
            await visit.send(b"0\r\n\r\n")

        upstream.script = script
        found = await (await open_stream(one.port, "/up/events")).answer()
        assert found.body == stream
        assert found.clean
    assert one.peak - before < 32 * MIB
    assert await failures(one) == 0
