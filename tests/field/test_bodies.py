"""Area proxy, bodies: codings, sizes and uploads, sent once and kept nowhere."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json

import brotli
import pytest
import zstandard

from tests.proxy.callers import Caller, call, chat, request
from tests.proxy.upstreams import Visit, answer, says

from .scene import (
    CHAT,
    JSON,
    ask,
    base,
    chunk,
    closed,
    counted,
    document,
    error,
    total,
)

PLAIN = json.dumps({"choices": [{"message": {"content": "a" * 10_000}}]}).encode()
CODERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP": gzip.compress,
    "gzip, gzip": lambda data: gzip.compress(gzip.compress(data)),
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "identity": lambda data: data,
    "foo": lambda data: data[::-1],
}


@pytest.mark.parametrize("chunked", [False, True])
async def test_f069_bytes_coding_and_length_agree(start, upstream, chunked) -> None:
    packed = gzip.compress(PLAIN)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
    sized = b"Content-Length: %d\r\n\r\n%b" % (len(packed), packed)
    pieces = chunk(packed[:50]) + chunk(packed[50:]) + b"0\r\n\r\n"
    upstream.script = says(
        head + (b"Transfer-Encoding: chunked\r\n\r\n" + pieces if chunked else sized)
    )
    running = await start({"up": base(upstream.url)})
    found = await ask(running)
    assert (found.clean, found.get("content-encoding")) == (True, "gzip")
    assert found.get("content-length") == (None if chunked else str(len(packed)))
    assert hashlib.sha256(gzip.decompress(found.body)).digest() == hashlib.sha256(PLAIN).digest()
    assert (counted(running), total(running, "success")) == (0, 1)


async def test_f069_a_compressed_429_is_understood(start, upstream) -> None:
    plain = b'{"error":{"code":"rate_limit_exceeded","message":"slow down","type":"requests"}}'
    packed = gzip.compress(plain)
    headers = ((b"Content-Encoding", b"gzip"), (b"Retry-After", b"3"))
    upstream.script = says(answer(429, packed, *headers))
    running = await start({"up": base(upstream.url)})
    found = await ask(running)
    assert (found.status, found.body, found.get("content-encoding")) == (429, packed, "gzip")
    assert found.envelope["message"] == "slow down"
    assert total(running, "throttle") == 1


@pytest.mark.parametrize("coding", CODERS)
async def test_f070_any_coding_passes(start, upstream, coding) -> None:
    packed = CODERS[coding](PLAIN)
    upstream.script = says(answer(200, packed, (b"Content-Encoding", coding.encode())))
    running = await start({"up": base(upstream.url)})
    found = await ask(running)
    assert (found.status, found.body, found.get("content-encoding")) == (200, packed, coding)
    assert found.get("x-error-envelope") is None
    assert (counted(running), total(running, "success")) == (0, 1)


async def test_f070_a_corrupt_body_is_the_callers_to_judge(start, upstream) -> None:
    broken = gzip.compress(PLAIN)[:40] + b"\xff" * 40
    running = await start({"up": base(upstream.url)})
    for status, verdict in ((200, "success"), (400, "alive")):
        upstream.script = says(answer(status, broken, (b"Content-Encoding", b"gzip")))
        found = await ask(running, n=status)
        assert (found.status, found.body) == (status, broken)
        assert (counted(running), total(running, verdict)) == (0, 1)


async def test_f071_a_compressed_request_arrives_compressed(start, upstream) -> None:
    packed = gzip.compress(chat("packed"))
    running = await start({"up": base(upstream.url)})
    found = await call(running.port, CHAT, "POST", packed, JSON, ("Content-Encoding", "gzip"))
    assert found.status == 200
    seen = upstream.requests[0]
    assert (seen.body, seen.get(b"content-encoding")) == (packed, b"gzip")
    assert seen.get(b"content-length") == str(len(packed)).encode()


async def test_f073_nothing_follows_a_status_without_a_body(start, upstream) -> None:
    running = await start({"up": base(upstream.url)})
    caller = await Caller.connect(running.port)
    for raw, end in (
        (b"HTTP/1.1 204 No\r\n\r\n", b""),
        (b'HTTP/1.1 304 N\r\nContent-Length: 123\r\nETag: "x"\r\n\r\n', b""),
        (b"HTTP/1.1 205 R\r\nContent-Length: 0\r\n\r\n", b""),
        (answer(200, b"body"), b"body"),
    ):
        upstream.script = says(raw)
        await caller.send(request())
        line, headers, head = await caller.head()
        assert line.split(b" ")[1] == raw.split(b" ")[1]
        assert b"chunked" not in head
        if b" 304 " in line:
            assert (b"ETag", b'"x"') in headers
        # The next head is read from here: a single byte too many and it would not parse.
        assert await caller.reader.readexactly(len(end)) == end


@pytest.mark.parametrize(
    "headers",
    [b"Content-Length: 5000000", b"Transfer-Encoding: chunked",
     b"Content-Length: 77\r\nContent-Encoding: gzip"],
)  # fmt: skip
async def test_f074_head_waits_for_no_body(start, upstream, headers) -> None:
    upstream.script = says(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n" + headers + b"\r\n\r\n"
    )
    running = await start({"up": base(upstream.url)})
    caller = await Caller.connect(running.port)
    for n in range(2):
        await caller.send(request("/up/v1/file", "HEAD"))
        found = await caller.answer(head_only=True)
        length = headers.partition(b": ")[2].partition(b"\r\n")[0].decode()
        assert found.get("content-length") == (None if length == "chunked" else length)
        assert total(running, "success") == n + 1


async def test_f076_a_post_that_may_have_run_is_not_sent_again(start, upstream) -> None:
    async def closes(visit: Visit) -> None:
        await visit.read_body()
        visit.keep = False

    running = await start({"up": base(upstream.url)})
    upstream.script = closes
    for headers in ((), (("Idempotency-Key", "k"),)):
        hits = upstream.hits
        found = await call(running.port, "/up/v1/videos", "POST", b'{"n":1}', JSON, *headers)
        assert (found.status, upstream.hits) == (502, hits + 1)
        assert "may have been executed" in found.envelope["message"]
        assert found.get("x-should-retry") == (None if headers else "false")
    upstream.script = says(error(504))
    hits = upstream.hits
    found = await call(running.port, "/up/v1/videos", "POST", b'{"n":1}', JSON)
    assert (found.status, upstream.hits) == (504, hits + 1)


async def test_f077_no_invisible_attempt_and_never_half_a_body(start, upstream) -> None:
    size = 10_000_000
    whole: list[int] = []

    async def script(visit: Visit) -> None:
        if visit.number == 1:
            await visit.reader.readexactly(3_000_000)
            visit.reset()
            return
        whole.append(len(await visit.read_body()))
        await visit.send(answer())

    upstream.script = script
    running = await start({"up": base(upstream.url)})

    async def put() -> int:
        caller = await Caller.connect(running.port)
        kind = ("Content-Type", "application/octet-stream")
        await caller.send(request("/up/file", "PUT", None, ("Content-Length", str(size)), kind))

        async def upload() -> None:
            for _ in range(10):
                await caller.send(b"x" * (size // 10))

        sending = asyncio.create_task(upload())
        found = await caller.answer()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        caller.close()
        return found.status

    assert await put() == 502
    assert upstream.hits == 1
    assert await put() == 200
    assert (upstream.hits, whole) == (2, [size])
    assert (await document(running))["totals"]["requests"] == 2


async def test_f078_a_half_sent_upload_poisons_no_connection(start, upstream) -> None:
    ended = asyncio.Event()

    async def script(visit: Visit) -> None:
        if visit.request.line.startswith(b"GET"):
            await visit.send(answer(200, visit.request.target, kind=b"text/plain"))
            return
        await visit.reader.readexactly(65536)
        await visit.send(answer(413, b'{"error":{"message":"too large"}}'))
        # It keeps the connection: whatever came next would be read as the rest of the body.
        await visit.closed()
        ended.set()
        visit.keep = False

    upstream.script = script
    running = await start({"up": base(upstream.url)})
    size = 20 * 2**20
    caller = await Caller.connect(running.port)
    kind = ("Content-Type", "image/png")
    await caller.send(request("/up/x", "POST", None, ("Content-Length", str(size)), kind))

    async def upload() -> None:
        for _ in range(20):
            await caller.send(b"a" * 2**20)

    sending = asyncio.create_task(upload())
    found = await caller.answer()
    assert (found.status, found.body) == (413, b'{"error":{"message":"too large"}}')
    for n in range(20):
        one = await call(running.port, f"/up/{n}")
        assert (one.status, one.body) == (200, b"/%d" % n)
    await sending
    await ended.wait()
    assert (counted(running), closed(running)) == (0, True)


async def test_f082_a_local_limit_is_configured_and_says_whose_it_is(start, upstream) -> None:
    running = await start(
        {"up": base(upstream.url), "small": base(upstream.url, limits={"request_body": "1MiB"})}
    )
    picture = chat(image="A" * 1_100_000)
    assert (await call(running.port, CHAT, "POST", picture, JSON)).status == 200
    assert upstream.requests[-1].body == picture
    refused = await call(running.port, "/small/v1/chat/completions", "POST", picture, JSON)
    assert (refused.status, upstream.hits) == (413, 1)
    assert (refused.envelope["source"], refused.envelope["code"]) == ("sidecar", "too_large")


@pytest.mark.parametrize(("status", "verdict"), [(401, "alive"), (413, "alive"), (429, "throttle")])
@pytest.mark.parametrize("end", ["close", "reset"])
async def test_f089_an_early_answer_reaches_the_uploader(
    start, upstream, status, verdict, end
) -> None:
    body = b'{"error":{"message":"not like this"}}'
    answered = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.reader.readexactly(65536)
        await visit.send(answer(status, body, (b"Connection", b"close")))
        await answered.wait()
        if end == "reset":
            visit.reset()
        visit.keep = False

    upstream.script = script
    running = await start({"up": base(upstream.url)})
    caller = await Caller.connect(running.port)
    size = 50 * 2**20
    kind = ("Content-Type", "image/png")
    await caller.send(request("/up/x", "POST", None, ("Content-Length", str(size)), kind))

    async def upload() -> None:
        for _ in range(50):
            await caller.send(b"a" * 2**20)

    sending = asyncio.create_task(upload())
    found = await caller.answer()
    answered.set()
    assert (found.status, found.body) == (status, body)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert (counted(running), total(running, verdict)) == (0, 1)


async def test_f090_the_first_byte_does_not_wait_for_the_last(start, upstream) -> None:
    arrived, sent = asyncio.Event(), asyncio.Event()

    async def script(visit: Visit) -> None:
        part = await visit.reader.readexactly(10)
        assert part == b"0123456789"
        arrived.set()
        await visit.reader.readexactly(10)
        head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 20\r\n"
        )
        await visit.send(head + b"\r\n0123456789")
        await sent.wait()
        await visit.send(b"0123456789")

    upstream.script = script
    running = await start({"up": base(upstream.url, timeouts={"hold": "30s"})})
    caller = await Caller.connect(running.port)
    kind = ("Content-Type", "image/png")
    await caller.send(request("/up/x", "POST", None, ("Content-Length", "20"), kind), b"0123456789")
    await arrived.wait()
    await caller.send(b"0123456789")
    await caller.head()
    assert await caller.reader.readexactly(10) == b"0123456789"
    sent.set()
    assert await caller.reader.readexactly(10) == b"0123456789"
