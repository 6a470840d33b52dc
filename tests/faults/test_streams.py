"""Faults after n events, in whatever a stream is written and compressed; and when they are seen."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import brotli
import pytest

from sidecar.envelope.event_stream import frame
from sidecar.faults import streams
from tests.field.scene import CHAT, DONE, STREAM_HEAD, admin, base, chunk, delta, open_stream, until
from tests.proxy.callers import Caller
from tests.proxy.upstreams import Visit

WORDS = [delta(f"w{n}") for n in range(5)]


def compressing(coding: str) -> tuple[Callable[[bytes], bytes], Callable[[], bytes]]:
    if coding == "br":
        engine = brotli.Compressor()
        return lambda text: engine.process(text) + engine.flush(), engine.finish
    bits = zlib.MAX_WBITS if coding == "deflate" else zlib.MAX_WBITS | 16
    engine = zlib.compressobj(wbits=bits)
    return lambda text: engine.compress(text) + engine.flush(zlib.Z_SYNC_FLUSH), engine.flush


def readable(coding: str, body: bytes) -> bytes:
    """What a client reads of a body that may have been cut."""
    if coding == "br":
        return brotli.Decompressor().process(body)
    bits = zlib.MAX_WBITS if coding == "deflate" else zlib.MAX_WBITS | 16
    return zlib.decompressobj(wbits=bits).decompress(body)


def bodies(raw: bytes) -> tuple[bytes, bytes, bool]:
    """The head of an answer, its chunks joined, and whether they ended as they should."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return head, body, True
        body, rest = body + rest[:length], rest[length + 2 :]
    return head, body, False


async def received(running, path: str = CHAT) -> tuple[bytes, bytes, bool]:
    caller = await open_stream(running.port, path, ("Connection", "close"))
    return bodies(await caller.reader.read())


async def the_record(running) -> dict[str, Any]:
    (told,) = (await admin(running, "/faults")).json["record"]
    return told


def sends(head: bytes, *parts: bytes) -> Callable[[Visit], Any]:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(head)
        for part in parts:
            await visit.send(chunk(part))
        await visit.send(b"0\r\n\r\n")

    return script


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
@pytest.mark.parametrize("kind", ["cut", "error_event"])
@pytest.mark.parametrize("together", [True, False])
async def test_compressed_events_are_counted(start, upstream, coding, kind, together) -> None:
    write, end = compressing(coding)
    parts = [b"".join(WORDS)] if together else WORDS
    parts = [write(part) for part in parts]
    head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: %b\r\n\r\n" % coding.encode())
    upstream.script = sends(head, *parts, write(DONE) + end())
    rule = {"kind": kind, "events": 3}
    running = await start({"up": base(upstream.url)}, faults={"rules": [rule]})
    found, body, whole = await received(running)
    assert coding.encode() in found
    text = readable(coding, body)
    assert text.count(b'"content"') == 3
    assert DONE not in text
    told = await the_record(running)
    if kind == "error_event":
        assert text.endswith(b'"type":"server_error","param":null,"code":null}}\n\n')
        assert told["envelope"]["code"] == "server_error"
    else:
        assert not whole
        assert told["envelope"]["code"] == "stream_truncated"
    assert told["verdict"] == "failure"


async def test_what_cannot_be_read_passes_as_it_came(start, upstream) -> None:
    head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    upstream.script = sends(head, b"this is no gzip", b"and goes on")
    running = await start({"up": base(upstream.url)}, faults={"rules": [{"kind": "cut"}]})
    _, body, whole = await received(running)
    assert (body, whole) == (b"this is no gzipand goes on", True)
    assert (await the_record(running))["first_seen_after"] is None


async def test_a_short_compressed_stream_passes_whole(start, upstream) -> None:
    head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    upstream.script = sends(head, gzip.compress(b"".join(WORDS) + DONE))
    rule = {"kind": "cut", "events": 50}
    running = await start({"up": base(upstream.url)}, faults={"rules": [rule]})
    _, body, whole = await received(running)
    assert whole
    assert gzip.decompress(body) == b"".join(WORDS) + DONE
    told = await the_record(running)
    assert (told["envelope"], told["first_seen_after"]) == (None, None)


async def test_a_length_that_would_be_untrue_goes(start, upstream) -> None:
    body = b"".join(WORDS) + DONE

    async def script(visit: Visit) -> None:
        await visit.read_body()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
        await visit.send(head % len(body) + body)

    upstream.script = script
    rule = {"kind": "error_event", "events": 2, "class": "rate_limit"}
    running = await start({"up": base(upstream.url)}, faults={"rules": [rule]})
    head, text, _ = await received(running)
    assert b"content-length" not in head.lower()
    assert text.count(b'"content"') == 2
    assert b"rate_limit_exceeded" in text


CONVERSE = "/up/model/m/converse-stream"
FRAMES = [
    frame(
        {":message-type": "event", ":event-type": "contentBlockDelta"},
        json.dumps({"delta": {"text": f"w{n}"}, "contentBlockIndex": 0}).encode(),
    )
    for n in range(5)
]
GEMINI = [
    json.dumps({"candidates": [{"content": {"parts": [{"text": f'w{n}] "}}'}]}}]}).encode()
    for n in range(5)
]
OLLAMA = [
    json.dumps({"message": {"content": f"w{n}"}, "done": False}).encode() + b"\n" for n in range(5)
]


def head_of(media_type: str) -> bytes:
    return STREAM_HEAD.replace(b"text/event-stream", media_type.encode())


@pytest.mark.parametrize(
    ("dialect", "path", "media_type", "parts", "word"),
    [
        ("bedrock", CONVERSE, "application/vnd.amazon.eventstream", FRAMES, b'"text"'),
        ("gemini", "/up/v1beta/models/m:streamGenerateContent", "application/json",
         [b"[" + GEMINI[0], *(b",\n" + one for one in GEMINI[1:]), b"]"], b'"text"'),
        ("ollama", "/up/api/chat", "application/x-ndjson", OLLAMA, b'"done": false'),
        ("openai", CHAT, "text/event-stream", [one.replace(b"\n", b"\r\n") for one in WORDS],
         b'"content"'),
        ("openai", CHAT, "text/plain", WORDS, b'"content"'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [7, 10_000])
@pytest.mark.parametrize("kind", ["cut", "error_event"])
async def test_whatever_events_are_written_in(
    start, upstream, dialect, path, media_type, parts, word, size, kind
) -> None:
    whole = b"".join(parts)
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    upstream.script = sends(head_of(media_type), *pieces)
    rule = {"kind": kind, "events": 3, "class": "transient"} if kind == "error_event" else {
        "kind": kind, "events": 3}  # fmt: skip
    running = await start({"up": base(upstream.url, dialect)}, faults={"rules": [rule]})
    _, text, _ = await received(running, path)
    assert text.count(word) == 3
    told = await the_record(running)
    assert told["verdict"] == "failure"
    assert told["first_seen_after"] is not None
    if kind == "error_event" and dialect == "gemini":
        assert json.loads(text)[-1]["error"]["status"] == "UNAVAILABLE"
    if kind == "error_event":
        assert told["envelope"]["class"] == "transient"
        assert told["envelope"]["code"] != "stream_truncated"


def framed(flag: int, payload: bytes) -> bytes:
    return bytes((flag,)) + len(payload).to_bytes(4, "big") + payload


TRAILERS = b"grpc-status: 8\r\ngrpc-message: Slowly, please.\r\ngrpc-retry-pushback-ms: 3000\r\n"


@pytest.mark.parametrize(
    ("media_type", "last"),
    [
        ("application/grpc-web+proto", TRAILERS),
        ("application/connect+json",
         b'{"error":{"code":"resource_exhausted","message":"Slowly, please."}}'),
    ],
)  # fmt: skip
async def test_a_body_of_frames_ends_with_its_last_frame(start, upstream, media_type, last) -> None:
    flag = 0x80 if "grpc" in media_type else 2
    parts = [framed(0, b"w%d" % n) for n in range(5)]
    upstream.script = sends(head_of(media_type), *parts, framed(flag, b"grpc-status: 0\r\n"))
    rule = {"kind": "error_event", "events": 2, "class": "rate_limit", "retry_after": "3s",
            "message": "Slowly, please."}  # fmt: skip
    running = await start({"up": base(upstream.url, "grpc-web")}, faults={"rules": [rule]})
    _, text, whole = await received(running, "/up/s.S/M")
    assert whole
    assert text == b"".join(parts[:2]) + framed(flag, last)
    told = await the_record(running)
    assert (told["envelope"]["class"], told["verdict"]) == ("rate_limit", "throttle")


async def test_an_event_in_words_of_ones_own(start, upstream) -> None:
    upstream.script = sends(STREAM_HEAD, *WORDS, DONE)
    rule = {"kind": "error_event", "events": 2, "class": "transient", "code": "strange",
            "message": "My words."}  # fmt: skip
    running = await start({"up": base(upstream.url)}, faults={"rules": [rule]})
    _, text, _ = await received(running)
    assert text.endswith(
        b'{"error":{"message":"My words.","type":"server_error","param":null,"code":"strange"}}\n\n'
    )
    told = await the_record(running)
    assert (told["envelope"]["code"], told["envelope"]["message"]) == ("strange", "My words.")


async def test_evidence_is_the_break_and_not_the_good_events_before(start, upstream) -> None:
    go_on = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD, chunk(WORDS[0]), chunk(WORDS[1]))
        await go_on.wait()
        await visit.send(chunk(WORDS[2]), chunk(DONE), b"0\r\n\r\n")

    upstream.script = script
    rule = {"kind": "error_event", "events": 3}
    running = await start({"up": base(upstream.url)}, faults={"rules": [rule]})
    caller = await open_stream(running.port, CHAT, ("Connection", "close"))
    assert b"w1" in await caller.reader.readuntil(b'"w1"')
    (told,) = running.daemon.faults.record
    assert told.first_seen_after is None
    go_on.set()
    await caller.reader.read()
    await until(lambda: told.seen_after is not None)
    assert 0 < told.first_seen_after <= told.seen_after


async def test_evidence_comes_before_the_end(start, upstream) -> None:
    """The head of a slow answer tells that it is slow, long before all of it is there."""
    go_on = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD, chunk(WORDS[0]))
        await go_on.wait()
        await visit.send(chunk(DONE), b"0\r\n\r\n")

    upstream.script = script
    rule = {"kind": "delay", "after": "1ms"}
    running = await start({"up": base(upstream.url)}, faults={"rules": [rule]})
    caller: Caller = await open_stream(running.port, CHAT, ("Connection", "close"))
    await caller.reader.readuntil(b"w0")
    (told,) = running.daemon.faults.record
    assert told.first_seen_after >= 0.001
    assert told.seen_after is None
    go_on.set()
    await caller.reader.read()


@pytest.mark.parametrize(
    ("rule", "sees"),
    [
        ({"class": "rate_limit"}, True),
        ({"kind": "fake_200"}, True),
        ({"kind": "refuse"}, True),
        ({"kind": "reset"}, True),
        ({"kind": "cut", "events": 2}, True),
        ({"kind": "cut", "events": 0}, True),
        ({"kind": "error_event", "events": 0}, True),
        ({"kind": "cut", "events": 99}, False),
        ({"kind": "error_event", "events": 99}, False),
    ],
)
async def test_whether_anything_was_seen(start, upstream, rule, sees) -> None:
    upstream.script = sends(STREAM_HEAD, *WORDS, delta("", "stop"), DONE)
    running = await start({"up": base(upstream.url)}, faults={"rules": [rule]})
    caller = await open_stream(running.port, CHAT, ("Connection", "close"))
    await caller.reader.read()
    told = await the_record(running)
    assert (told["first_seen_after"] is not None) is sees
    assert (told["envelope"] is not None) is sees


def test_ends_are_the_same_however_the_bytes_come() -> None:
    kinds = {
        "text/event-stream": b"data: 1\n\ndata: 2\r\n\r\n: ping\r\rdata: 3\n\n",
        "application/x-ndjson": b'{"a": 1}\n{"b": 2}\n',
        "application/json": b'[{"a": "]}\\"", "b": [1, {}]},\n{"c": 2}]',
        "application/vnd.amazon.eventstream": b"".join(FRAMES),
        "application/grpc-web+proto": b"\x00\x00\x00\x00\x03abc\x80\x00\x00\x00\x00",
    }
    counts = {}
    for kind, body in kinds.items():
        found = set()
        for size in range(1, len(body) + 1):
            events = streams.events_of(kind, body[:1], grows=True)
            ends = []
            for at in range(0, len(body), size):
                ends += [at + end for end in events.ends(body[at : at + size])]
            found.add(tuple(ends))
        assert len(found) == 1, kind
        counts[kind] = len(found.pop())
    assert list(counts.values()) == [4, 2, 2, 5, 2]
    assert streams.events_of("application/grpc-web-text", b"", grows=False) is None
    assert streams.events_of("application/json", b"{", grows=False) is None
