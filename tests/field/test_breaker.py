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
from tests.proxy.callers import Caller, call, chat, request
from tests.proxy.upstreams import Visit, answer, says

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
