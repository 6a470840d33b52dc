"""Area stream: every event at once, one verdict at the end, and no end that lies."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import random
import socket
from pathlib import Path

import pytest

from sidecar import clock
from sidecar.breaker.model import Verb
from sidecar.config.load import load
from sidecar.daemon import Daemon, Options
from sidecar.telemetry.observer import CallFinished
from tests.proxy.callers import Answer, Caller, call, chat, request
from tests.proxy.conftest import Running
from tests.proxy.upstreams import Upstream, Visit, answer, says

from .scene import (
    CHAT,
    DONE,
    JSON,
    STREAM_HEAD,
    ask,
    base,
    chunk,
    counted,
    delta,
    error,
    half_open,
    open_stream,
    reload_with,
    total,
    trip,
    until,
)

LAST_CHUNK = b"0\r\n\r\n"
RESPONSES = "/up/v1/responses"
MESSAGES = "/up/v1/messages"


def event(kind: str, **more: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()


def scripted(*parts: bytes, end: str = "clean"):
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD, *(chunk(part) for part in parts))
        if end == "clean":
            await visit.send(LAST_CHUNK)
        elif end == "close":
            visit.keep = False
        elif end == "reset":
            visit.writer.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
            )
            await asyncio.sleep(0.02)
            visit.reset()
        else:
            await visit.closed()
            visit.keep = False

    return script


TEN = [delta(str(n)) for n in range(10)]
TEN_MESSAGES = [event("message_start", message={})] + [
    event("content_block_delta", index=0, delta={"type": "text_delta", "text": str(n)})
    for n in range(9)
]


@pytest.mark.parametrize("end", ["clean", "close", "reset"])
@pytest.mark.parametrize(
    ("dialect", "path", "events", "mark"),
    [
        ("openai", CHAT, TEN, b'data: {"error":'),
        ("anthropic", MESSAGES, TEN_MESSAGES, b"event: error\n"),
    ],
)
async def test_f101_a_stream_that_just_stops(
    start, upstream, dialect, path, events, mark, end
) -> None:
    upstream.script = scripted(*events, end=end)
    running = await start({"up": base(upstream.url, dialect)})
    found = await (await open_stream(running.port, path)).answer()
    assert not found.clean
    assert not found.raw.endswith(LAST_CHUNK)
    sent = b"".join(events)
    assert found.body.startswith(sent)
    rest = found.body.removeprefix(sent)
    assert rest.startswith(mark)
    assert rest.count(b"stream_truncated") >= 1
    assert b"[DONE]" not in rest
    assert b"message_stop" not in rest
    assert (counted(running), total(running, "success")) == (1, 0)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [("server_error", "failure"), ("rate_limit_exceeded", "throttle"), ("invalid_prompt", "alive")],
)
async def test_f101_d_a_failure_event_is_judged_by_its_content(
    start, upstream, code, verdict
) -> None:
    events = [
        event("response.created", response={"status": "in_progress"}),
        event("response.output_text.delta", delta="a"),
        event(
            "response.failed",
            response={"status": "failed", "error": {"code": code, "message": "m"}},
        ),
    ]
    upstream.script = scripted(*events)
    running = await start({"up": base(upstream.url)})
    found = await (await open_stream(running.port, RESPONSES)).answer()
    assert (found.clean, found.body) == (True, b"".join(events))
    assert (total(running, verdict), total(running, "success")) == (1, 0)


async def test_f103_a_probe_is_judged_at_its_end(start, upstream) -> None:
    gate = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        role = b'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
        await visit.send(STREAM_HEAD, chunk(b": ping\n\n"), chunk(b"data:\n\n"), chunk(role))
        await gate.wait()
        await visit.send(chunk(delta("a", "stop")), chunk(DONE), LAST_CHUNK)

    running = await start({"up": base(upstream.url, breaker={"successes": 1})})
    await trip(running, upstream)
    await half_open(running)
    upstream.script = script
    caller = await open_stream(running.port)
    await caller.head()
    await until(lambda: running.breaker("up/gpt-x").probes_in_flight == 1)
    assert running.breaker("up/gpt-x").state == "half_open"
    gate.set()
    await caller.reader.readuntil(LAST_CHUNK)
    await until(lambda: running.breaker("up/gpt-x").state == "closed")


async def test_f103_an_error_frame_is_no_token(start, upstream) -> None:
    frame = b'data: {"error":{"code":"server_error","message":"boom"}}\n\n'
    upstream.script = scripted(b": ping\n\n", b"data:\n\n", frame)
    running = await start({"up": base(upstream.url)})
    await (await open_stream(running.port)).answer()
    await until(lambda: running.calls)
    assert (counted(running), total(running, "success")) == (1, 0)
    assert running.calls[0].envelope.code == "server_error"


@pytest.mark.parametrize(("dialect", "path"), [("openai", CHAT), ("generic", "/up/events")])
async def test_f104_a_timeout_is_never_a_clean_end(start, upstream, dialect, path) -> None:
    events = [delta(str(n)) for n in range(5)]
    upstream.script = scripted(*events, end="hang")
    running = await start({"up": base(upstream.url, dialect, timeouts={"idle": "100ms"})})
    found = await (await open_stream(running.port, path)).answer()
    assert not found.clean
    assert LAST_CHUNK not in found.raw
    assert found.body.startswith(b"".join(events))
    assert b"idle_timeout" in found.body.removeprefix(b"".join(events))
    assert counted(running) == 1


async def test_f104_what_is_no_stream_ends_with_the_connection(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\nTransfer-Encoding: chunked\r\n\r\n",
            chunk(b"abc"),
        )
        await visit.closed()
        visit.keep = False

    upstream.script = script
    running = await start({"up": base(upstream.url, timeouts={"idle": "100ms"})})
    found = await (await open_stream(running.port)).answer()
    assert (found.clean, found.body) == (False, b"abc")
    assert counted(running) == 1


@pytest.mark.parametrize("coding", [None, "gzip, br"])
async def test_f105_no_event_waits_for_the_next(start, upstream, coding) -> None:
    """A hundred events, each sent only after the one before has arrived."""
    arrived = asyncio.Semaphore(0)

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD)
        for n in range(100):
            await visit.send(chunk(delta(str(n))))
            await arrived.acquire()
        await visit.send(chunk(delta("", "stop")), chunk(DONE), LAST_CHUNK)

    upstream.script = script
    running = await start({"up": base(upstream.url)})
    headers = [("Accept-Encoding", coding)] if coding else []
    caller = await open_stream(running.port, CHAT, *headers)
    _, found, _ = await caller.head()
    assert b"content-encoding" not in {name.lower() for name, _ in found}
    for n in range(100):
        assert await caller.reader.readexactly(len(chunk(delta(str(n))))) == chunk(delta(str(n)))
        arrived.release()
    await caller.reader.readuntil(LAST_CHUNK)
    for connection in running.daemon.plane._connections:
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_f105_not_even_a_byte_waits(start, upstream) -> None:
    """One event in three segments, then one byte by byte."""
    arrived = asyncio.Semaphore(0)
    parts = [delta("split")[:7], delta("split")[7:20], delta("split")[20:]]
    parts += [bytes([byte]) for byte in delta("bytes")]

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD)
        for part in parts:
            await visit.send(chunk(part))
            await arrived.acquire()
        await visit.send(chunk(delta("", "stop")), chunk(DONE), LAST_CHUNK)

    upstream.script = script
    running = await start({"up": base(upstream.url)})
    caller = await open_stream(running.port)
    await caller.head()
    for part in parts:
        assert await caller.reader.readexactly(len(chunk(part))) == chunk(part)
        arrived.release()
    await caller.reader.readuntil(LAST_CHUNK)
    assert (counted(running), total(running, "success")) == (0, 1)


async def test_f105_a_compressed_stream_is_left_alone(start, upstream) -> None:
    packed = gzip.compress(delta("a", "stop") + DONE)
    head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    upstream.script = says(head + chunk(packed[:9]) + chunk(packed[9:]) + LAST_CHUNK)
    running = await start({"up": base(upstream.url)})
    caller = await open_stream(running.port, CHAT, ("Accept-Encoding", "gzip"))
    found = await caller.answer()
    assert (found.clean, found.body) == (True, packed)
    assert counted(running) == 0


async def test_f106_a_healthy_stream_outlasts_every_clock(start, upstream) -> None:
    """Forty events over a multiple of all limits but `total`, which by default there is not."""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD)
        for n in range(40):
            await visit.send(chunk(delta(str(n))))
            await asyncio.sleep(0.02)
        await visit.send(chunk(delta("", "stop")), chunk(DONE), LAST_CHUNK)

    upstream.script = script
    clocks = dict.fromkeys(("first_byte", "first_content", "idle", "abandoned", "client"), "250ms")
    running = await start({"up": base(upstream.url, timeouts=clocks)})
    assert running.daemon.config.providers["up"].timeouts.total is None
    found = await (await open_stream(running.port)).answer()
    assert found.clean
    assert found.body.endswith(DONE)
    assert (counted(running), total(running, "success")) == (0, 1)


async def test_f106_a_configured_total_is_local(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD)
        while True:
            await visit.send(chunk(delta("a")))
            await asyncio.sleep(0.01)

    upstream.script = script
    running = await start({"up": base(upstream.url, timeouts={"total": "150ms"})})
    found = await (await open_stream(running.port)).answer()
    assert not found.clean
    assert b"total_timeout" in found.body
    assert (counted(running), total(running, "neutral")) == (0, 1)


async def test_f107_each_wait_has_its_own_clock(start, upstream) -> None:
    """Four providers on one upstream, each with one short limit: only that one runs out."""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        pause = visit.request.get(b"x-pause")
        if pause == b"head":
            await visit.closed()
        await visit.send(STREAM_HEAD)
        if pause == b"content":
            await visit.send(chunk(b": ping\n\n"))
            await visit.closed()
        await visit.send(chunk(delta("a")))
        if pause == b"middle":
            await visit.closed()
        await visit.send(chunk(delta("b", "stop")), chunk(DONE), LAST_CHUNK)
        visit.keep = pause == b"no"

    upstream.script = script
    short = {"head": "first_byte", "content": "first_content", "middle": "idle"}
    providers = {
        name.replace("_", "-"): base(
            upstream.url,
            timeouts={"first_byte": "30s", "first_content": "30s", "idle": "30s", name: "120ms"},
        )
        for name in short.values()
    }
    running = await start(providers)
    for pause, name in short.items():
        path = f"/{name.replace('_', '-')}/v1/chat/completions"
        caller = await open_stream(running.port, path, ("X-Pause", pause))
        found = await caller.answer()
        assert f"{name}_timeout".encode() in found.body
        assert running.calls[-1].envelope.code == f"{name}_timeout"
        assert counted(running, name.replace("_", "-")) == 1
        others = await open_stream(running.port, path, ("X-Pause", "no"))
        assert (await others.answer()).clean


async def test_f107_the_connection_has_its_own_too(start) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(full.getsockname())
            waiting.append(one)
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        running = await start({"up": base(url, timeouts={"connect": "100ms"})})
        found = await ask(running)
        for one in waiting:
            one.close()
    assert (found.status, found.envelope["code"]) == (502, "connect_timeout")


async def test_f107_a_slow_start_is_no_stall(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await asyncio.sleep(0.15)
        await visit.send(STREAM_HEAD)
        await asyncio.sleep(0.15)
        await visit.send(chunk(delta("a", "stop")), chunk(DONE), LAST_CHUNK)

    upstream.script = script
    clocks = {"first_byte": "10s", "first_content": "10s", "idle": "50ms"}
    running = await start({"up": base(upstream.url, timeouts=clocks)})
    found = await (await open_stream(running.port)).answer()
    assert (found.clean, counted(running)) == (True, 0)


@pytest.mark.parametrize("leaves", [False, True])
async def test_f111_the_terminator_is_the_end(start, upstream, leaves, log) -> None:
    upstream.script = scripted(delta("a", "stop"), DONE, end="hang")
    running = await start({"up": base(upstream.url)})
    caller = await open_stream(running.port)
    if leaves:
        await caller.reader.readuntil(DONE)
        caller.close()
    else:
        assert (await caller.answer()).clean
    await until(lambda: running.calls)
    assert counted(running) == 0
    if not leaves:
        assert total(running, "success") == 1
    # Everything was said: whoever leaves now has cancelled nothing.
    assert not log.lines("call.cancelled")
    assert not log.lines("call.failed")
    await until(lambda: not upstream.open_connections)


async def test_f113_a_reader_that_rests_is_not_the_upstreams_silence(start, upstream) -> None:
    """While the caller does not read, no clock of the upstream's runs."""
    event = b"data: " + b"x" * 65_000 + b"\n\n"

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD)
        for _ in range(500):
            await visit.send(chunk(event))
        await visit.send(chunk(delta("", "stop")), chunk(DONE), LAST_CHUNK)

    upstream.script = script
    running = await start({"up": base(upstream.url, timeouts={"idle": "100ms"})})
    caller = await open_stream(running.port)
    await caller.head()
    caller.writer.transport.pause_reading()
    (connection,) = running.daemon.plane._connections
    await until(lambda: connection.paused)
    # What is tested is a rest that is longer than the idle clock.
    await asyncio.sleep(0.5)
    caller.writer.transport.resume_reading()
    body = bytearray()
    while not body.endswith(LAST_CHUNK):
        part = await caller.reader.read(2**20)
        assert part
        body += part
    assert body.count(b"data: x") == 500
    assert body.endswith(DONE + b"\r\n" + LAST_CHUNK)
    assert (counted(running), total(running, "success")) == (0, 1)


GOLDEN = (
    "\ufeff: a comment\r\n\r\n"
    'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\r\n\r\n'
    "event: message\r\nid: 1\r\nretry: 10\r\n"
    'data:{"choices":[{"index":0,"delta":{"content":"zwei Zeilen\u2028und \u0085 mehr äöü \U0001f600"}}]}\n\n'
    'data: {"choices":\ndata: [{"index":0,"delta":{"content":"multi"}}]}\n\n'
    'data: {"choices":[{"index":0,"delta":{"content":"CR"}}]}\r\r'
    'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\r\n\r\n'
    'data: {"choices":[],"usage":{"total_tokens":7}}\n\n'
    "data: [DONE]\n\n"
).encode()


@pytest.mark.parametrize("ending", ["done", "error"])
async def test_f115_any_split_gives_the_same_bytes_and_the_same_verdict(
    start, upstream, ending
) -> None:
    stream = GOLDEN
    if ending == "error":
        last = b'event: error\r\ndata: {"error":{"code":"server_error",\r\ndata: "message":"m"}}\r\n\r\n'
        stream = GOLDEN.replace(b"data: [DONE]\n\n", last)
    sizes = random.Random(115)
    splits = [[at] for at in range(1, len(stream), 7)]
    splits += [list(range(1, len(stream)))]
    splits += [sorted(sizes.sample(range(1, len(stream)), 20)) for _ in range(20)]

    async def script(visit: Visit) -> None:
        await visit.read_body()
        cuts = [0, *splits[int(visit.request.get(b"x-split"))], len(stream)]
        await visit.send(STREAM_HEAD)
        for begin, end in itertools.pairwise(cuts):
            await visit.send(chunk(stream[begin:end]))
            await asyncio.sleep(0)
        await visit.send(LAST_CHUNK)

    upstream.script = script
    running = await start({"up": base(upstream.url, mode="observe")})
    for number in range(len(splits)):
        caller = await open_stream(running.port, CHAT, ("X-Split", str(number)))
        found = await caller.answer()
        assert (found.clean, found.body) == (True, stream), splits[number]
        caller.close()
    verdict = "success" if ending == "done" else "failure"
    assert total(running, verdict) == len(splits)


@pytest.mark.parametrize(
    "kind",
    [None, "text/plain", "application/json; charset=utf-8", "text/event-stream;charset=UTF-8",
     "application/x-ndjson", "application/vnd.amazon.eventstream", "application/stream+json"],
)  # fmt: skip
async def test_f116_whatever_it_calls_itself_a_stream_flows(start, upstream, kind) -> None:
    arrived = asyncio.Semaphore(0)
    if kind == "application/vnd.amazon.eventstream":
        parts = [b"\0\0\0\x10\0\0\0\0binary%d" % n for n in range(5)]
    elif kind and ("ndjson" in kind or "stream+json" in kind):
        parts = [b'{"message":{"content":"%d"},"done":false}\n' % n for n in range(5)]
    else:
        parts = [delta(str(n)) for n in range(5)]

    async def script(visit: Visit) -> None:
        await visit.read_body()
        line = f"Content-Type: {kind}\r\n".encode() if kind else b""
        await visit.send(b"HTTP/1.1 200 OK\r\n" + line + b"Transfer-Encoding: chunked\r\n\r\n")
        for part in parts:
            await visit.send(chunk(part))
            await arrived.acquire()
        await visit.send(LAST_CHUNK)

    upstream.script = script
    # Whoever held it until it is whole would hold it for half a minute.
    running = await start({"up": base(upstream.url, "ollama", timeouts={"hold": "30s"})})
    caller = await open_stream(running.port)
    async with asyncio.timeout(5):
        await caller.head()
        for part in parts:
            assert await caller.reader.readexactly(len(chunk(part))) == chunk(part)
            arrived.release()


@pytest.mark.parametrize("status", [401, 429, 503])
async def test_f117_the_status_is_the_upstreams(start, upstream, status) -> None:
    upstream.script = says(error(status, None))
    running = await start({"up": base(upstream.url)})
    found = await call(
        running.port, CHAT, "POST", chat(stream=True), JSON, ("Accept", "text/event-stream")
    )
    assert (found.status, found.get("content-type")) == (status, "application/json")


async def test_f117_nor_is_one_sent_before_there_is_a_connection(start) -> None:
    running = await start({"up": base("http://127.0.0.1:9")})
    found = await call(
        running.port, CHAT, "POST", chat(stream=True), JSON, ("Accept", "text/event-stream")
    )
    assert (found.status, found.get("content-type")) == (502, "application/json")
    assert found.json["error"]["code"] == "connection_refused"


@pytest.mark.parametrize("change", ["the breaker opens", "other thresholds", "the provider goes"])
async def test_f118_running_streams_outlive_every_change(start, upstream, change) -> None:
    go = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD, chunk(delta("a")))
        await go.wait()
        await visit.send(chunk(delta("b", "stop")), chunk(DONE), LAST_CHUNK)

    upstream.script = script
    running = await start({"up": base(upstream.url), "other": base(upstream.url)})
    callers: list[Caller] = [await open_stream(running.port) for _ in range(10)]
    for caller in callers:
        await caller.head()
    if change == "the breaker opens":
        upstream.script = says(error(500))
        for n in range(5):
            await ask(running, n=n)
        assert running.breaker("up/gpt-x").state == "open"
    elif change == "other thresholds":
        result = await reload_with(running, "minimum_calls: 5", "minimum_calls: 7")
        assert set(result.changed) == {"up", "other"}
    else:
        result = await reload_with(running, "  up:", "  gone:")
        assert result.removed == ("up",)
    go.set()
    for caller in callers:
        rest = await caller.reader.readuntil(LAST_CHUNK)
        assert delta("b", "stop") in rest
        assert rest.endswith(DONE + b"\r\n" + LAST_CHUNK)
    await until(lambda: len([one for one in running.calls if one.verdict == "success"]) == 10)


async def test_f118_a_stream_under_a_breaker_that_was_forced_open(start, upstream) -> None:
    go = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD, chunk(delta("a")))
        await go.wait()
        await visit.send(chunk(delta("b", "stop")), chunk(DONE), LAST_CHUNK)

    upstream.script = script
    running = await start({"up": base(upstream.url)})
    caller = await open_stream(running.port)
    await caller.head()
    running.daemon.registry.control("up", Verb.OPEN, clock.monotonic())
    refused = await Caller.connect(running.port)
    await refused.send(request(CHAT, "POST", chat(), JSON))
    assert (await refused.answer()).status == 503
    go.set()
    assert DONE in await caller.reader.readuntil(LAST_CHUNK)


async def test_f114_a_line_beyond_every_limit_passes(start, upstream) -> None:
    for size in (200_000, 2_000_000):
        huge = b"data: " + b"x" * size + b"\n\n"
        upstream.script = scripted(huge, delta("a", "stop"), DONE)
        running = await start({"up": base(upstream.url)})
        found = await (await open_stream(running.port)).answer()
        assert (found.clean, found.body) == (True, huge + delta("a", "stop") + DONE)
        assert (counted(running), total(running, "success")) == (0, 1)


async def test_f116_an_error_under_any_type_is_still_one(start, upstream) -> None:
    upstream.script = says(answer(200, b'{"error":{"code":"server_error"}}', kind=b"text/plain"))
    running = await start({"up": base(upstream.url)})
    assert (await ask(running)).status == 503
    assert counted(running) == 1


BEGINNINGS = [
    b"",
    b"\xef\xbb\xbf",
    b"\n\n",
    b": ping\n\n",
    b"id: 1\r\n",
    b"retry: 9\n\n",
    b"event: error\n",
]


@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/json", "application/octet-stream"]
)
async def test_f116_wherever_its_beginning_is_cut(start, upstream, kind, beginning) -> None:
    """A stream without its type is told by its first bytes, and they may come one by one."""
    failed = beginning + b'data: {"error":{"code":"model_not_found","message":"no gpt-x"}}\n\n'
    line = f"Content-Type: {kind}\r\n".encode() if kind else b""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        cut = int(visit.request.get(b"x-cut"))
        await visit.send(b"HTTP/1.1 200 OK\r\n" + line + b"Transfer-Encoding: chunked\r\n\r\n")
        for part in (failed[:cut], failed[cut:]):
            await visit.send(chunk(part))
            # Two reads, and not one of both.
            await asyncio.sleep(0.002)
        await visit.send(LAST_CHUNK)

    upstream.script = script
    running = await start({"up": base(upstream.url)})
    for cut in range(1, len(beginning) + 7):
        caller = await open_stream(running.port, CHAT, ("X-Cut", str(cut)))
        found = await caller.answer()
        assert (found.status, found.clean) == (404, True), cut
        caller.close()
    assert {call.envelope.code for call in running.calls} == {"model_not_found"}


async def test_f116_bytes_that_are_no_stream_are_looked_at_once(start, upstream) -> None:
    """As soon as a download has begun like none, it passes as it comes."""
    go = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        kind = b"Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        await visit.send(b"HTTP/1.1 200 OK\r\n" + kind, chunk(b"\0"))
        await go.wait()
        await visit.send(chunk(bytes(range(256))), LAST_CHUNK)

    upstream.script = script
    running = await start({"up": base(upstream.url, timeouts={"hold": "30s"})})
    caller = await open_stream(running.port, "/up/files")
    async with asyncio.timeout(5):
        await caller.head()
        await caller.reader.readexactly(len(chunk(b"\0")))
    go.set()
    assert await caller.reader.readuntil(LAST_CHUNK) == chunk(bytes(range(256))) + LAST_CHUNK
    assert (counted(running), total(running, "success")) == (0, 1)


async def silence(file: Path, silent: str, minutes: float) -> tuple[Answer, CallFinished]:
    """What a daemon makes of an upstream that says nothing for so long, at one place of a stream."""
    loop = asyncio.get_running_loop()
    real, ahead = loop.time, 0.0
    loop.time = lambda: real() + ahead  # type: ignore[method-assign]
    go, begun = asyncio.Event(), asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        if silent != "head":
            await visit.send(STREAM_HEAD, chunk(b": ping\n\n"))
        if silent == "middle":
            await visit.send(chunk(delta("a")))
        begun.set()
        await go.wait()
        if silent == "head":
            await visit.send(STREAM_HEAD)
        await visit.send(chunk(delta("b", "stop")), chunk(DONE), LAST_CHUNK)

    upstream = Upstream(script)
    await upstream.start()
    provider = {"upstream": upstream.url, "dialect": "openai"}
    admin = {"listen": "127.0.0.1:0"}
    file.write_text(
        json.dumps({"listen": "127.0.0.1:0", "admin": admin, "providers": {"up": provider}})
    )
    daemon = Daemon(Options(config=file), load(file, environ={}))
    await daemon.start()
    running = Running(daemon)
    caller = await open_stream(running.port)
    await begun.wait()
    # What was sent is read before its clock goes on.
    await asyncio.sleep(0.05)
    for _ in range(int(minutes * 120)):
        ahead += 0.5
        await asyncio.sleep(0)
    go.set()
    found = await caller.answer()
    await until(lambda: running.calls)
    await Caller.close_all()
    await daemon.close()
    await upstream.stop()
    return found, running.calls[-1]


@pytest.mark.parametrize(
    ("silent", "minutes", "code"),
    [
        ("head", 9, None), ("head", 10, "first_byte_timeout"),
        ("content", 9, None), ("content", 10, "first_content_timeout"),
        ("middle", 4.9, None), ("middle", 5.1, "idle_timeout"),
    ],
)  # fmt: skip
def test_f107_the_clocks_as_they_are_shipped(tmp_path, silent, minutes, code) -> None:
    """Nine silent minutes and then an answer is a success; ten are none, nor five in its middle."""
    found, call = asyncio.run(silence(tmp_path / "breakers.yaml", silent, minutes))
    if code is None:
        assert found.clean
        assert found.body.endswith(DONE)
        assert call.verdict == "success"
    else:
        assert code.encode() in found.body
        assert (call.envelope.code, call.verdict) == (code, "failure")


@pytest.mark.parametrize(("dialect", "session"), [("mcp", False), ("generic", True)])
@pytest.mark.parametrize("leaves", [True, False])
async def test_f107_who_only_listens_waits_for_nothing(
    start, upstream, dialect, session, leaves
) -> None:
    """MCP's clients keep a stream open for what the server may have to say; that may take hours."""
    go = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD)
        await go.wait()
        await visit.send(chunk(b'data: {"jsonrpc":"2.0","method":"notifications/x"}\n\n'))
        await asyncio.sleep(0.1)
        await visit.send(LAST_CHUNK)

    upstream.script = script
    clocks = dict.fromkeys(("first_byte", "first_content", "idle", "abandoned"), "50ms")
    section = base(upstream.url, dialect, timeouts={**clocks, "hold": "10ms"})
    running = await start({"up": section})
    headers = [("Accept", "text/event-stream")] + [("Mcp-Session-Id", "s1")] * session
    caller = await Caller.connect(running.port)
    await caller.send(request("/up/mcp", "GET", None, *headers))
    await caller.head()
    # What is tested is a silence that is longer than every limit.
    await asyncio.sleep(0.2)
    if leaves:
        caller.writer.transport.abort()
    else:
        go.set()
        await caller.reader.readuntil(LAST_CHUNK)
    await until(lambda: running.calls)
    assert running.calls[0].verdict == ("neutral" if leaves else "success")
    assert counted(running) == 0
    go.set()
