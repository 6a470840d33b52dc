"""Area breaker, half-open: however a probe ends, the next one follows."""

from __future__ import annotations

import asyncio

import pytest

from sidecar import daemon as daemon_module
from sidecar.proxy import judge, relay
from tests.proxy.callers import Caller, chat, request
from tests.proxy.upstreams import Upstream, Visit, answer, says

from .scene import (
    CHAT,
    JSON,
    OK,
    STREAM_HEAD,
    ask,
    base,
    chunk,
    closed,
    delta,
    error,
    half_open,
    hang,
    open_stream,
    reload_with,
    shots,
    trip,
    until,
)


async def test_f033_a_hung_up_probe_makes_room_for_the_next(start, upstream) -> None:
    running = await start({"up": base(upstream.url)})
    await trip(running, upstream)
    await half_open(running)
    upstream.script = hang
    caller = await Caller.connect(running.port)
    await caller.send(request(CHAT, "POST", chat(), JSON))
    await until(lambda: running.breaker("up/gpt-x").probes_in_flight == 1)
    hits = upstream.hits
    caller.close()
    upstream.script = says(OK)
    await until(lambda: running.breaker("up/gpt-x").probes_in_flight == 0)
    assert running.breaker("up/gpt-x").state == "half_open"
    assert [(await ask(running, n=n)).status for n in range(2)] == [200, 200]
    assert (upstream.hits, closed(running)) == (hits + 2, True)


# --- F034: every way in which a probe can end ------------------------------------------------


async def _cut_body(visit: Visit) -> None:
    await visit.read_body()
    await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
    visit.reset()


async def _cut_stream(visit: Visit) -> None:
    await visit.read_body()
    await visit.send(STREAM_HEAD, chunk(delta("a")))
    visit.keep = False


async def _silent_body(visit: Visit) -> None:
    await visit.read_body()
    await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
    await visit.closed()
    visit.keep = False


async def _reset(visit: Visit) -> None:
    visit.reset()


EXITS = {
    "200": says(OK),
    "204": says(b"HTTP/1.1 204 No\r\n\r\n"),
    "302": says(answer(302, b"", (b"Location", b"/x"))),
    "400": says(error(400)),
    "401": says(error(401)),
    "404": says(error(404)),
    "429": says(error(429)),
    "500": says(error(500)),
    "503 with a wait": says(answer(503, b"{}", (b"Retry-After", b"0"))),
    "reset": _reset,
    "no answer": hang,
    "body cut": _cut_body,
    "body stalled": _silent_body,
    "stream cut": _cut_stream,
    "no HTTP": says(b"garbage\r\n\r\n"),
    "headers too large": says(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 99_999),
}


async def _probe_ready(start, upstream):
    section = base(
        upstream.url,
        breaker={"open_for": "60ms", "open_max": "60ms", "repeat_window": 0},
        timeouts={"first_byte": "80ms", "idle": "80ms", "first_content": "80ms", "hold": "50ms"},
    )
    running = await start({"up": section, "other": base(upstream.url)})
    await trip(running, upstream)
    await half_open(running)
    return running


async def _recovers(running, upstream: Upstream) -> None:
    """The state machine is alive: a further call reaches the upstream, and it closes."""
    await until(lambda: not any(shot.probes_in_flight for shot in shots(running)))
    await until(lambda: not any(shot.in_flight for shot in shots(running)))
    assert running.daemon.plane.in_flight("up") == 0
    upstream.script = says(OK)
    hits = upstream.hits
    await until(lambda: all(shot.state != "open" for shot in shots(running)))
    assert (await ask(running, n=1000)).status == 200
    assert upstream.hits == hits + 1
    for n in range(2):
        await ask(running, n=2000 + n)
    assert closed(running)


@pytest.mark.parametrize("name", EXITS)
async def test_f034_a_probe_answered_in_any_way(start, upstream, name) -> None:
    running = await _probe_ready(start, upstream)
    upstream.script = EXITS[name]
    hits = upstream.hits
    await ask(running, n=99)
    assert upstream.hits == hits + 1
    await _recovers(running, upstream)


async def test_f034_a_probe_that_cannot_connect(start, upstream) -> None:
    running = await _probe_ready(start, upstream)
    await upstream.stop()
    assert (await ask(running)).envelope["code"] == "connection_refused"
    await upstream.start()
    await _recovers(running, upstream)


@pytest.mark.parametrize("code", ["dns_failure", "tls_failure"])
async def test_f034_a_probe_without_a_name_or_a_handshake(
    start, upstream, monkeypatch, code
) -> None:
    running = await _probe_ready(start, upstream)
    runtime = running.daemon.plane.runtimes["up"]
    good = runtime.upstream
    speaker = await asyncio.start_server(
        lambda _reader, writer: (writer.write(b"no TLS here\r\n\r\n"), writer.close()),
        "127.0.0.1",
        0,
    )
    port = speaker.sockets[0].getsockname()[1]
    bad = {"dns_failure": "http://no-such-host.invalid", "tls_failure": f"https://127.0.0.1:{port}"}
    broken = await start({"up": base(bad[code], proxy=None)})
    monkeypatch.setattr(runtime, "upstream", broken.daemon.plane.runtimes["up"].upstream)
    assert (await ask(running)).envelope["code"] == code
    monkeypatch.setattr(runtime, "upstream", good)
    speaker.close()
    await _recovers(running, upstream)


@pytest.mark.parametrize("when", ["before the head", "in the stream"])
async def test_f034_the_probes_caller_leaves(start, upstream, when) -> None:
    async def streams(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD, chunk(delta("a")))
        await visit.closed()
        visit.keep = False

    running = await _probe_ready(start, upstream)
    upstream.script = hang if when == "before the head" else streams
    hits = upstream.hits
    caller = await open_stream(running.port)
    if when == "in the stream":
        await caller.head()
    await until(lambda: upstream.hits == hits + 1)
    caller.close()
    await _recovers(running, upstream)


@pytest.mark.parametrize(
    ("old", "new"),
    [("other:", "another:"), ("minimum_calls: 5", "minimum_calls: 6"), ("  up:", "  gone:")],
)
async def test_f034_a_reload_during_the_probe(start, upstream, old, new) -> None:
    running = await _probe_ready(start, upstream)
    gate = asyncio.Event()

    async def slow(visit: Visit) -> None:
        await visit.read_body()
        await gate.wait()
        await visit.send(OK)

    upstream.script = slow
    section = running.daemon.config.providers["up"]
    assert section.timeouts.first_byte < 1
    hits = upstream.hits
    probe = asyncio.create_task(ask(running))
    await until(lambda: upstream.hits == hits + 1)
    assert not (await reload_with(running, old, new)).problems
    gate.set()
    assert (await probe).status in (200, 504)
    if new == "  gone:":
        await reload_with(running, new, old)
    await _recovers(running, upstream)


@pytest.mark.interpreted
async def test_f034_a_fault_of_ours_during_the_probe(start, upstream, monkeypatch) -> None:
    running = await _probe_ready(start, upstream)
    upstream.script = says(OK)

    def broken(*_args: object, **_more: object) -> None:
        raise ZeroDivisionError("injected")

    monkeypatch.setattr(judge, "classify", broken)
    assert (await ask(running)).status == 200
    monkeypatch.undo()
    monkeypatch.setattr(relay.Relay, "run", broken)
    assert (await ask(running)).status == 500
    monkeypatch.undo()
    assert [fault.where for fault in running.faults] == ["classify", "proxy"]
    running.faults.clear()
    await _recovers(running, upstream)


async def test_f034_a_lost_probe_frees_its_place_by_itself(start, upstream, clocks) -> None:
    running = await _probe_ready(start, upstream)
    upstream.script = hang
    admission = running.daemon.registry.admit("up", "gpt-x", daemon_module.clock.monotonic())
    assert running.breaker("up/gpt-x").probes_in_flight == 1
    clocks.later(3600)
    assert running.breaker("up/gpt-x").probes_in_flight == 0
    upstream.script = says(OK)
    assert (await ask(running)).status == 200
    del admission


# --- half-open -------------------------------------------------------------------------------


async def test_f036_of_two_hundred_callers_one_is_the_probe(start, upstream) -> None:
    running = await start({"up": base(upstream.url)})
    await trip(running, upstream)
    await half_open(running)
    upstream.script = hang
    hits = upstream.hits
    waiting = [asyncio.create_task(ask(running, n=n)) for n in range(200)]
    # The upstream hangs: whoever is answered has not waited for it.
    await until(lambda: sum(task.done() for task in waiting) == 199)
    assert upstream.hits == hits + 1
    refused = [task.result() for task in waiting if task.done()]
    assert {one.status for one in refused} == {503}
    assert {one.get("x-sidecar-decision") for one in refused} == {"breaker_open"}
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_f038_a_failed_probe_opens_again_from_its_end(start, upstream, clocks) -> None:
    running = await start({"up": base(upstream.url, breaker={"open_for": "60s"})})
    await trip(running, upstream)
    clocks.later(61)
    assert running.breaker("up/gpt-x").state == "half_open"
    gate = asyncio.Event()

    async def slow(visit: Visit) -> None:
        await visit.read_body()
        await gate.wait()
        await visit.send(error(500))

    upstream.script = slow
    hits = upstream.hits
    probe = asyncio.create_task(ask(running, n=77))
    await until(lambda: upstream.hits == hits + 1)
    clocks.later(10)
    ended = daemon_module.clock.monotonic()
    gate.set()
    assert (await probe).status == 500
    found = await asyncio.gather(*(ask(running, n=n) for n in range(10)))
    assert {one.status for one in found} == {503}
    shot = running.breaker("up/gpt-x")
    assert (upstream.hits, shot.state) == (hits + 1, "open")
    assert shot.opened_at >= ended
    # Doubled, since a probe failed.
    assert shot.half_open_at - shot.opened_at == pytest.approx(120, abs=0.01)


UNLISTED = {
    "100, then 200": b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    "204": b"HTTP/1.1 204 X\r\n\r\n",
    "206": answer(206, b"{}"),
    "301": answer(301, b""),
    "304": b"HTTP/1.1 304 X\r\n\r\n",
    "418": answer(418),
    "451": answer(451),
    "600": answer(600),
    "999": answer(999),
}


@pytest.mark.parametrize("name", UNLISTED)
async def test_f046_no_status_stops_the_machine(start, upstream, name) -> None:
    running = await _probe_ready(start, upstream)
    upstream.script = says(UNLISTED[name])
    found = await ask(running)
    assert found.status in (int(name[-3:]), 502, 503, 422)
    await _recovers(running, upstream)
