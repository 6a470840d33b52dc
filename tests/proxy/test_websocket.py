"""WebSockets: both directions untouched, and how the conversation ended is what counts."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from contextlib import asynccontextmanager, suppress

import pytest
import websockets
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

from sidecar.proxy.websocket import Frames, close_frame

from .callers import Caller, call, request
from .upstreams import Visit, answer, says

REALTIME = "/up/v1/realtime?model=gpt-realtime"
UPGRADE = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
]


def switching(visit: Visit) -> bytes:
    """The head that accepts the handshake of this visit (RFC 6455, 4.2.2)."""
    key = visit.request.get(b"sec-websocket-key") + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(key).digest())
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\nX-Request-Id: r1\r\n\r\n" % accept
    )


HANG = 5


@asynccontextmanager
async def server(handler, **more):
    async with serve(handler, "127.0.0.1", 0, **more) as found:
        yield f"http://127.0.0.1:{found.sockets[0].getsockname()[1]}"


def url(running, path: str = REALTIME) -> str:
    return f"ws://127.0.0.1:{running.port}{path}"


async def joined(running, ahead: bytes = b"") -> Caller:
    """A caller whose handshake was answered, and who sent something ahead of the answer."""
    caller = await Caller.connect(running.port)
    await caller.send(request(REALTIME, "GET", None, *UPGRADE) + ahead)
    await caller.head()
    return caller


async def told(running, count: int = 1):
    async with asyncio.timeout(HANG):
        while len(running.calls) < count:
            await asyncio.sleep(0.005)
    return running.calls[-1]


async def echo(socket) -> None:
    async for message in socket:
        await socket.send(message)


async def test_f092_both_directions(start) -> None:
    seen = {}

    async def handler(socket) -> None:
        seen["path"] = socket.request.path
        seen["key"] = socket.request.headers["authorization"]
        await echo(socket)

    async with server(handler, subprotocols=["realtime"]) as upstream:
        running = await start({"up": upstream})
        headers = {"Authorization": "Bearer k"}
        async with connect(
            url(running), subprotocols=["realtime", "other"], additional_headers=headers
        ) as socket:
            assert socket.subprotocol == "realtime"
            assert socket.response.headers["x-sidecar-decision"] == "forwarded"
            # Compression is between the two ends.
            assert "permessage-deflate" in socket.response.headers["sec-websocket-extensions"]
            for message in ("a", "é" * 3000, b"\x00\xff" * 70000, ""):
                await socket.send(message)
                assert await socket.recv() == message
            await (await socket.ping(b"p"))
            assert running.daemon.plane.in_flight("up") == 1
    assert seen == {"path": "/v1/realtime?model=gpt-realtime", "key": "Bearer k"}
    call = await told(running)
    assert (call.verdict, call.status, call.key) == ("success", 101, "up/gpt-realtime")
    assert running.daemon.plane.in_flight("up") == 0


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (1000, "success"), (1001, "success"), (1008, "alive"), (1009, "alive"), (4001, "alive"),
        (1011, "failure"), (1012, "failure"), (1013, "failure"),
    ],
)  # fmt: skip
async def test_close_codes(start, code, verdict) -> None:
    async def handler(socket) -> None:
        await socket.close(code, "told so")

    async with server(handler) as upstream:
        running = await start({"up": upstream})
        async with connect(url(running)) as socket:
            with pytest.raises(websockets.ConnectionClosed) as caught:
                await socket.recv()
        assert caught.value.rcvd is not None
        assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (code, "told so")
        call = await told(running)
    assert call.verdict == verdict
    if verdict == "failure":
        assert (call.envelope.code, call.envelope.class_) == (str(code), "transient")
        assert "told so" in call.envelope.message


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize(
    ("code", "verdict"), [(1000, "success"), (1008, "alive"), (1011, "failure"), (1013, "failure")]
)
async def test_a_close_counts_whoever_ends_the_connection(
    start, upstream, code, verdict, answers
) -> None:
    """Some clients drop the connection as soon as they have read the server's close frame."""

    async def script(visit: Visit) -> None:
        await visit.send(switching(visit), close_frame(code, "told so", masked=False))
        await visit.closed()
        visit.keep = False

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await joined(running)
    await caller.reader.readexactly(len(close_frame(code, "told so", masked=False)))
    if answers:
        await caller.send(close_frame(code, "", masked=True))
    caller.close()
    call = await told(running)
    assert call.verdict == verdict
    assert (call.envelope.code if call.envelope else None) == (
        str(code) if verdict == "failure" else None
    )


@pytest.mark.parametrize("first", ["caller", "upstream"])
async def test_a_socket_that_stays_open_after_both_goodbyes(start, upstream, first) -> None:
    goodbye = close_frame(1000, "", masked=True)

    async def script(visit: Visit) -> None:
        await visit.send(switching(visit))
        if first == "caller":
            await visit.reader.readexactly(len(goodbye))
        await visit.send(close_frame(1000, "", masked=False))
        await visit.closed()
        visit.keep = False

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await joined(running)
    if first == "upstream":
        await caller.reader.readexactly(len(close_frame(1000, "", masked=False)))
    await caller.send(goodbye)
    async with asyncio.timeout(HANG):
        while await caller.reader.read(100):
            pass
        while upstream.open_connections:
            await asyncio.sleep(0.01)
    assert (await told(running)).verdict == "success"


@pytest.mark.parametrize(("asks", "verdict"), [(True, "failure"), (False, "neutral")])
async def test_only_an_upstream_that_owes_an_answer_is_abandoned(
    start, upstream, asks, verdict
) -> None:
    async def script(visit: Visit) -> None:
        await visit.send(switching(visit))
        await visit.closed()
        visit.keep = False

    upstream.script = script
    timeouts = {"abandoned": "50ms"}
    running = await start(
        {"up": {"upstream": upstream.url, "dialect": "openai", "timeouts": timeouts}}
    )
    caller = await joined(running)
    if asks:
        await caller.send(b"\x81\x80abcd")
    # What is tested is a silence that is longer than the limit.
    await asyncio.sleep(0.15)
    caller.writer.transport.abort()
    call = await told(running)
    assert call.verdict == verdict
    assert (call.envelope.code if call.envelope else None) == ("hang_abandoned" if asks else None)


async def test_an_end_without_a_close_is_a_failure(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.send(switching(visit), b"\x81\x02hi")
        visit.keep = False

    upstream.script = script
    running = await start({"up": upstream.url})
    async with connect(url(running)) as socket:
        assert await socket.recv() == "hi"
        with pytest.raises(websockets.ConnectionClosedError):
            await socket.recv()
    call = await told(running)
    assert (call.verdict, call.envelope.code) == ("failure", "stream_truncated")


async def test_failures_open_the_models_breaker(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.send(switching(visit), close_frame(1011, "x", masked=False))
        visit.keep = False

    upstream.script = script
    running = await start({"up": upstream.url})
    for count in range(1, 6):
        async with connect(url(running)) as socket:
            with suppress(websockets.ConnectionClosed):
                await socket.recv()
        await told(running, count)
    assert running.breaker("up/gpt-realtime").state == "open"
    with pytest.raises(websockets.InvalidStatus) as caught:
        await connect(url(running))
    assert caught.value.response.status_code == 503
    assert caught.value.response.headers["x-sidecar-decision"] == "breaker_open"


async def test_a_refused_handshake_is_classified(start, upstream) -> None:
    upstream.script = says(
        answer(503, b'{"error":{"message":"no such model","type":"x","code":"model_not_found"}}')
    )
    running = await start({"up": upstream.url})
    with pytest.raises(websockets.InvalidStatus) as caught:
        await connect(url(running))
    assert caught.value.response.status_code == 404
    assert "model_not_found" in caught.value.response.headers["x-error-envelope"]
    assert (await told(running)).verdict == "alive"


async def test_what_comes_with_the_handshake_is_not_lost(start, upstream) -> None:
    got = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(switching(visit) + b"\x81\x05early")
        assert await visit.reader.readexactly(6) == b"\x81\x80abcd"
        got.set()
        await visit.closed()
        visit.keep = False

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(request(REALTIME, "GET", None, *UPGRADE) + b"\x81\x80abcd")
    line, headers, _ = await caller.head()
    assert b" 101 " in line
    assert (b"Sec-WebSocket-Accept", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") in headers
    assert await caller.reader.readexactly(7) == b"\x81\x05early"
    await asyncio.wait_for(got.wait(), HANG)
    head = upstream.requests[0]
    assert head.get(b"upgrade") == b"websocket"
    assert head.get(b"connection") == b"Upgrade"
    caller.close()


@pytest.mark.parametrize("connection", [b"Connection: Upgrade\r\n", b""])
async def test_a_connection_that_spoke_frames_carries_no_call(start, upstream, connection) -> None:
    """Everything that it says comes with the handshake, so that its count looks like a whole answer."""
    goodbye = close_frame(1000, "", masked=True)

    async def script(visit: Visit) -> None:
        if visit.request.get(b"upgrade") is None:
            await visit.send(answer(200, b"of a server that speaks HTTP"))
            return
        head = switching(visit).replace(b"Connection: Upgrade\r\n", connection)
        await visit.send(head + close_frame(1000, "", masked=False))
        await visit.closed()
        visit.keep = False

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await joined(running, goodbye)
    await told(running)
    async with asyncio.timeout(HANG):
        assert (await call(running.port, "/up/x")).body == b"of a server that speaks HTTP"
    caller.close()


@pytest.mark.parametrize("blank", [b"\r\n", b"\n\r\n"])
@pytest.mark.parametrize("pause", [0.0, 0.02])
async def test_blank_lines_before_the_handshake(start, upstream, blank, pause) -> None:
    """The parser passes over them."""

    async def script(visit: Visit) -> None:
        await visit.send(blank)
        await asyncio.sleep(pause)
        await visit.send(switching(visit) + b"\x81\x05early" + close_frame(1000, "", masked=False))
        await visit.closed()
        visit.keep = False

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await joined(running)
    async with asyncio.timeout(HANG):
        assert await caller.reader.readexactly(7) == b"\x81\x05early"
    await caller.send(close_frame(1000, "", masked=True))
    assert (await told(running)).verdict == "success"
    caller.close()


@pytest.mark.parametrize("goodbye", [True, False])
async def test_a_caller_that_leaves_closes_the_upstream(start, upstream, goodbye) -> None:
    ended = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(switching(visit))
        await visit.closed()
        ended.set()
        visit.keep = False

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await joined(running)
    if goodbye:
        await caller.send(close_frame(1000, "", masked=True))
    await caller.closed()
    await asyncio.wait_for(ended.wait(), HANG)
    assert (await told(running)).verdict == ("success" if goodbye else "neutral")
    assert running.daemon.plane.in_flight("up") == 0


@pytest.mark.parametrize(
    ("code", "verdict"), [(1011, "failure"), (1000, "success"), (4000, "alive")]
)
async def test_a_caller_that_hangs_up_on_a_goodbye_does_not_undo_it(
    start, upstream, code, verdict
) -> None:
    """Who closes the connection first when both know that it is over is no matter."""

    async def script(visit: Visit) -> None:
        await visit.send(switching(visit), close_frame(code, "", masked=False))
        await visit.closed()
        visit.keep = False

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await joined(running)
    assert await caller.reader.readexactly(4) == close_frame(code, "", masked=False)
    await caller.closed()
    assert (await told(running)).verdict == verdict


async def test_an_upgrade_that_nobody_asked_for_is_none(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.send(switching(visit))

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(request(REALTIME, "GET", None, UPGRADE[3]))
    assert (await caller.answer()).status == 502
    caller.close()


async def test_other_upgrades_stop_here(start, upstream) -> None:
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(request("/up/x", "GET", None, ("Connection", "Upgrade"), ("Upgrade", "h2c")))
    assert (await caller.answer()).status == 200
    assert upstream.requests[0].get(b"upgrade") is None
    caller.close()


async def test_a_foreign_page_opens_no_socket(start, upstream) -> None:
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(request(REALTIME, "GET", None, *UPGRADE, ("Origin", "https://evil.example")))
    assert (await caller.answer()).status == 403
    assert upstream.hits == 0
    caller.close()


async def test_a_caller_that_does_not_read_stops_the_upstream(start, upstream) -> None:
    sent = 0

    async def script(visit: Visit) -> None:
        nonlocal sent
        await visit.send(switching(visit))
        frame = b"\x82\x7f" + (65536).to_bytes(8) + bytes(65536)
        with suppress(ConnectionError):
            for _ in range(1000):
                await visit.send(frame)
                sent += len(frame)
        visit.keep = False

    upstream.script = script
    running = await start({"up": upstream.url})
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port, limit=2**12)
    writer.write(request(REALTIME, "GET", None, *UPGRADE))
    await reader.readuntil(b"\r\n\r\n")
    last = -1
    async with asyncio.timeout(HANG * 2):
        while sent != last:
            last = sent
            await asyncio.sleep(0.2)
    assert sent < 20_000_000
    read = 0
    async with asyncio.timeout(HANG * 4):
        while read < 1000 * (65536 + 10):
            read += len(await reader.read(1 << 20))
    writer.close()


async def test_a_total_limit_says_goodbye(start) -> None:
    async with server(echo) as upstream:
        timeouts = {"total": "150ms"}
        running = await start(
            {"up": {"upstream": upstream, "dialect": "openai", "timeouts": timeouts}}
        )
        async with connect(url(running)) as socket:
            with pytest.raises(websockets.ConnectionClosed) as caught:
                await asyncio.wait_for(socket.recv(), HANG)
        assert caught.value.rcvd is not None
        assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (1001, "total_timeout")
        assert (await told(running)).verdict == "neutral"


async def test_a_daemon_that_stops_says_goodbye(start) -> None:
    seen = []

    async def handler(socket) -> None:
        await echo(socket)
        seen.append(socket.close_code)

    async with server(handler) as upstream:
        running = await start({"up": upstream}, drain={"timeout": "50ms"})
        async with connect(url(running)) as socket:
            closing = asyncio.create_task(running.daemon.close())
            with pytest.raises(websockets.ConnectionClosed) as caught:
                await asyncio.wait_for(socket.recv(), HANG)
        assert caught.value.rcvd is not None
        assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (1012, "draining")
        async with asyncio.timeout(HANG):
            while not seen:
                await asyncio.sleep(0.01)
        assert seen == [1001]
        await closing


def test_frames_in_any_pieces() -> None:
    masked = b"\x82\xfe\x01\x00abcd" + bytes(256)
    data = b"\x81\x02hi" + masked + b"\x89\x00" + close_frame(1013, "busy", masked=True)
    for size in range(1, len(data) + 1):
        frames = Frames()
        for start in range(0, len(data), size):
            assert frames.close_code is None
            frames.feed(data[start : start + size])
        assert (frames.close_code, frames.reason, frames.whole) == (1013, "busy", True)


def test_a_close_without_a_code() -> None:
    frames = Frames()
    frames.feed(b"\x88\x00")
    assert (frames.close_code, frames.whole) == (1005, True)
    frames = Frames()
    frames.feed(b"\x81\x05he")
    assert not frames.whole
