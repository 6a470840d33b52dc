"""Area breaker: when a provider goes dark, how it comes back, and what must not wedge it."""

from __future__ import annotations

import asyncio
import importlib.metadata
import re
import tomllib
from pathlib import Path

import aiohttp
import pytest
from packaging.requirements import Requirement

from sidecar import daemon as daemon_module
from sidecar.proxy import relay
from tests.proxy.callers import Caller, call, chat, request
from tests.proxy.upstreams import Upstream, Visit, answer, says

from .scene import (
    CHAT,
    DONE,
    JSON,
    OK,
    STREAM_HEAD,
    admin,
    ask,
    base,
    chunk,
    closed,
    counted,
    delta,
    document,
    error,
    half_open,
    hang,
    open_stream,
    reload_with,
    shots,
    total,
    trip,
    until,
)

ROOT = Path(__file__).resolve().parents[2]


async def test_f028_a_blip_at_high_rate_trips_nothing(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(error(500) if visit.number % 133 == 0 else OK)

    upstream.script = script
    running = await start({"up": base(upstream.url)})

    async def agent(first: int) -> list[int]:
        caller = await Caller.connect(running.port)
        found = []
        for n in range(200):
            await caller.send(request(CHAT, "POST", chat(n=first + n), JSON))
            found.append((await caller.answer()).status)
        return found

    found = [
        one for agents in await asyncio.gather(*map(agent, range(0, 2000, 200))) for one in agents
    ]
    assert (found.count(500), found.count(200)) == (15, 1985)
    assert (counted(running), closed(running)) == (15, True)


async def test_f029_failures_do_not_pile_up(start, upstream, clocks) -> None:
    running = await start({"up": base(upstream.url)})
    for n in range(20):
        upstream.script = says(error(500))
        assert (await ask(running, n=n)).status == 500
        upstream.script = says(OK)
        assert {(await ask(running, n=n)).status for _ in range(5)} == {200}
        assert running.breaker("up/gpt-x").consecutive_failures == 0
        clocks.later(30)
        assert counted(running) == 0
    assert closed(running)


@pytest.mark.parametrize("callers", [1, 3])
async def test_f030_a_hanging_upstream_trips_slower_than_the_window(
    start, upstream, callers
) -> None:
    upstream.script = hang
    section = base(upstream.url, breaker={"window": "100ms"}, timeouts={"first_byte": "150ms"})
    running = await start({"up": section})

    async def agent(name: str) -> int:
        calls = 0
        while (await ask(running, n=calls, user=name)).status == 504:
            calls += 1
        return calls

    await asyncio.gather(*(agent(f"agent-{n}") for n in range(callers)))
    assert upstream.hits <= 5 + callers - 1
    assert running.breaker("up/gpt-x").opens == 1


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


async def test_f034_a_fault_of_ours_during_the_probe(start, upstream, monkeypatch) -> None:
    running = await _probe_ready(start, upstream)
    upstream.script = says(OK)

    def broken(*_args: object, **_more: object) -> None:
        raise ZeroDivisionError("injected")

    monkeypatch.setattr(relay, "classify", broken)
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


async def test_f041_siblings_on_one_host_are_independent(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(error(500) if visit.request.target.startswith(b"/bad/") else OK)

    upstream.script = script
    running = await start(
        {"bad": base(upstream.url + "/bad"), "good": base(upstream.url + "/good")}
    )
    secret = ("Authorization", "Bearer sk-live-credential-0001")
    for n in range(8):
        for name in ("bad", "good"):
            path = f"/{name}/v1/chat/completions?key=AIza-secret-2"
            found = await call(running.port, path, "POST", chat(n=n), JSON, secret)
            assert name == "bad" or found.status == 200
    assert closed(running, "good")
    assert [shot.key for shot in shots(running, "bad") if shot.state == "open"] == ["bad/gpt-x"]
    shown = repr(await document(running))
    assert "sk-live" not in shown
    assert "AIza" not in shown


async def test_f041_one_model_darkens_no_other(start, upstream) -> None:
    running = await start({"up": base(upstream.url)})
    await trip(running, upstream, "sick")
    upstream.script = says(OK)
    assert (await ask(running, "well")).status == 200
    assert (await ask(running, "sick")).status == 503
    assert (await call(running.port, "/up/v1/models")).status == 200


async def test_f042_the_gaps_between_probes_grow_to_a_cap_and_differ(
    start, upstream, clocks
) -> None:
    upstream.script = says(error(500))
    breaker = {"open_for": "30s", "open_max": "300s", "jitter": 0.2}
    running = [await start({"up": base(upstream.url, breaker=breaker)}) for _ in range(3)]
    for one in running:
        await trip(one, upstream)
    gaps: list[list[float]] = [[], [], []]
    for n in range(6):
        for number, one in enumerate(running):
            shot = one.breaker("up/gpt-x")
            gaps[number].append(shot.half_open_at - shot.opened_at)
        clocks.later(361)
        hits = upstream.hits
        for one in running:
            assert (await ask(one, n=1000 + n)).status == 500
            assert (await ask(one, n=2000 + n)).status == 503
        assert upstream.hits == hits + 3
    for mine in gaps:
        for gap, floor in zip(mine, (30, 60, 120, 240, 300, 300), strict=True):
            assert floor - 0.01 <= gap <= floor * 1.2 + 0.01
    assert len({mine[-1] for mine in gaps}) == 3
    clocks.later(361)
    upstream.script = says(OK)
    for n in range(2):
        assert (await ask(running[0], n=n)).status == 200
    await trip(running[0], upstream)
    shot = running[0].breaker("up/gpt-x")
    assert shot.half_open_at - shot.opened_at <= 36.01


@pytest.mark.parametrize("step", [-3600, 3600])
async def test_f043_the_wall_clock_steps(start, upstream, clocks, step) -> None:
    running = await start({"up": base(upstream.url, breaker={"open_for": "2s"})})
    await trip(running, upstream)
    clocks.wall += step
    shown = (await document(running))["providers"]["up"]["breakers"]["up/gpt-x"]
    assert shown["state"] == "open"
    assert 0 < shown["retry_after"] <= 2
    hits = upstream.hits
    assert (await ask(running)).status == 503
    clocks.monotonic += 1.7
    assert running.breaker("up/gpt-x").state in ("open", "half_open")
    clocks.monotonic += 0.5
    assert (await document(running))["providers"]["up"]["breakers"]["up/gpt-x"][
        "state"
    ] == "half_open"
    upstream.script = says(OK)
    assert (await ask(running)).status == 200
    assert upstream.hits == hits + 1


async def test_f044_after_a_suspend_idle_connections_are_dropped(
    start, upstream, clocks, monkeypatch, log
) -> None:
    monkeypatch.setattr(daemon_module, "TICK", 0.01)
    asleep = False
    stale: set[object] = set()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        if asleep and visit.writer in stale:
            # Its side vanished in the night without a word.
            await visit.closed()
            visit.keep = False
            return
        stale.add(visit.writer)
        await visit.send(OK)

    upstream.script = script
    section = base(upstream.url, timeouts={"keep_alive": "60s", "first_byte": "3s"})
    running = await start({"up": section})
    gate = asyncio.Event()

    async def gated(visit: Visit) -> None:
        await gate.wait()
        await script(visit)

    upstream.script = gated
    waiting = [asyncio.create_task(ask(running, n=n)) for n in range(5)]
    await until(lambda: upstream.hits == 5)
    gate.set()
    await asyncio.gather(*waiting)
    upstream.script = script
    assert upstream.open_connections == 5
    asleep = True
    clocks.wall += 8 * 3600
    await until(lambda: log.lines("daemon.resumed"))
    found = await asyncio.gather(*(ask(running, n=n) for n in range(5)))
    assert {one.status for one in found} == {200}
    assert (counted(running), upstream.connections) == (0, 10)
    (line,) = log.lines("daemon.resumed")
    assert line["slept"] == pytest.approx(8 * 3600, abs=5)


@pytest.mark.parametrize("order", [(1, 6), (6, 1)])
async def test_f045_of_two_waits_the_later_end_counts(start, upstream, clocks, order) -> None:
    running = await start({"up": base(upstream.url)})
    upstream.script = says(error(500))
    for n in range(3):
        await ask(running, n=n)
    for n, wait in enumerate(order):
        upstream.script = says(answer(503, b"{}", (b"Retry-After", str(wait).encode())))
        assert (await ask(running, n=10 + n)).status == 503
    hits = upstream.hits
    clocks.later(5.5)
    refused = await ask(running)
    assert refused.get("x-sidecar-decision") == "breaker_open"
    assert upstream.hits == hits
    clocks.later(1)
    upstream.script = says(OK)
    assert (await ask(running)).status == 200


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


async def test_f048_a_kept_connection_has_no_armed_timer(start, upstream) -> None:
    upstream.script = says(OK)
    clock_values = {"first_byte": "60ms", "first_content": "60ms", "idle": "60ms"}
    section = base(upstream.url, timeouts={**clock_values, "keep_alive": "10s"})
    running = await start({"up": section})
    for n in range(20):
        assert (await ask(running, n=n)).status == 200
        # What is tested is the passing of time on a connection that nobody uses.
        await asyncio.sleep(0.08)
    assert (upstream.connections, upstream.hits, counted(running)) == (1, 20, 0)


def test_f048_the_two_broken_releases_are_excluded() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (wanted,) = (r for r in map(Requirement, declared) if r.name == "aiohttp")
    for broken in ("3.14.0", "3.14.1"):
        assert broken not in wanted.specifier
        assert aiohttp.__version__ != broken
        assert importlib.metadata.version("aiohttp") != broken


async def test_f050_a_refusal_tells_the_cause(start, upstream) -> None:
    async def unavailable(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(error(503))

    running = await start({"up": base(upstream.url)})
    upstream.script = unavailable
    for n in range(5):
        await ask(running, n=n)
    found = await ask(running)
    assert (found.status, found.envelope["code"]) == (503, "breaker_open")
    message = found.envelope["message"]
    assert "503" in message
    assert re.search(r"\b5\b", message)
    assert re.search(r"\d+(\.\d+)? ?s ago", message), message


async def test_f051_a_reset_by_hand_concerns_one_breaker(start, upstream, log) -> None:
    breaker = {"open_for": "60s"}
    running = await start({"up": base(upstream.url, breaker=breaker)})
    await trip(running, upstream, "a")
    await trip(running, upstream, "b")
    upstream.script = says(OK)
    refused = await call(running.admin_port, "/breakers/up%2Fa/reset", "POST", b"")
    assert refused.status == 403
    assert (await ask(running, "a")).status == 503
    found = await admin(running, "/breakers/up%2Fa/reset", "POST", b'{"reason":"route mended"}')
    assert (found.status, found.json["state"]) == (200, "closed")
    assert found.json["window"]["failure"] == found.json["consecutive_failures"] == 0
    assert (await ask(running, "a")).status == 200
    assert (await ask(running, "b")).status == 503
    (line,) = log.lines("breaker.controlled")
    assert (line["key"], line["verb"], line["reason"]) == ("up/a", "reset", "route mended")
    assert line["time"]


async def test_f051_what_was_forced_open_survives_a_reload(start, upstream) -> None:
    upstream.script = says(OK)
    running = await start({"up": base(upstream.url), "other": base(upstream.url)})
    await ask(running)
    body = b'{"for":"10m","reason":"maintenance"}'
    assert (await admin(running, "/breakers/up%2Fgpt-x/open", "POST", body)).status == 200
    assert not (await reload_with(running, "other:", "another:")).problems
    assert (await ask(running)).status == 503
    shown = (await document(running))["providers"]["up"]["breakers"]["up/gpt-x"]
    assert shown["state"] == "open"
    assert "forced" in shown["reason"]
    assert "maintenance" in shown["reason"]


async def test_f052_streams_cut_now_and_then_open_nothing(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        if visit.number % 10:
            parts = (chunk(delta("a", "stop")), chunk(DONE), b"0\r\n\r\n")
            await visit.send(STREAM_HEAD, *parts)
        else:
            await visit.send(STREAM_HEAD, chunk(delta("a")))
            visit.keep = False

    upstream.script = script
    running = await start({"up": base(upstream.url)})
    for n in range(100):
        caller = await open_stream(running.port)
        found = await caller.answer()
        assert found.clean is bool((n + 1) % 10)
        caller.close()
    assert (counted(running), total(running, "success"), closed(running)) == (10, 90, True)
