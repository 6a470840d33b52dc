"""Area shed: limits and budgets hold their own key back, for as long as is true, and nothing else."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from datetime import datetime

import pytest

from sidecar import clock
from tests.proxy.callers import Answer, Caller, call, chat, request
from tests.proxy.upstreams import Upstream, Visit, answer, says

from .scene import (
    CHAT,
    JSON,
    OK,
    admin,
    ask,
    base,
    closed,
    counted,
    document,
    error,
    half_open,
    hang,
    trip,
    until,
)

PATIENT = {"connect": "20s"}
"""Upstream, daemon and a crowd share one loop: it may take its time to connect."""


async def test_f063_cancelled_callers_leave_nothing_behind(start, upstream) -> None:
    """Permits, gauges and connections, whenever the caller leaves."""
    delays = random.Random(63)
    upstream.script = hang
    running = await start({"up": base(upstream.url, timeouts=PATIENT)})

    async def leaves(n: int) -> None:
        caller = await Caller.connect(running.port)
        raw = request(CHAT, "POST", chat(n=n), JSON)
        await caller.send(raw[: delays.randrange(len(raw) + 1)] if n % 3 == 0 else raw)
        await asyncio.sleep(delays.random() * 0.1)
        await caller.closed()

    for batch in range(0, 1500, 250):
        await asyncio.gather(*(leaves(batch + n) for n in range(250)))
    await until(lambda: not running.daemon.plane.active)
    assert running.daemon.plane.in_flight("up") == 0
    await until(lambda: not upstream.open_connections)
    assert (await document(running))["providers"]["up"]["in_flight"] == 0
    upstream.script = says(OK)
    found = await asyncio.gather(*(ask(running, n=n) for n in range(5)))
    assert {one.status for one in found} == {200}
    assert (counted(running), closed(running)) == (0, True)


async def test_f063_cancelled_while_they_wait_for_a_place(start, upstream) -> None:
    """Five places; callers leave before, while and after they wait; then five pass at once."""
    delays = random.Random(630)

    async def slow(visit: Visit) -> None:
        await visit.read_body()
        await asyncio.sleep(0.01)
        await visit.send(OK)

    upstream.script = slow
    shedding = {"max_queue": 100, "max_wait": "50ms"}
    limits = {"in_flight": 5}
    section = base(upstream.url, limits=limits, shedding=shedding, timeouts=PATIENT)
    running = await start({"up": section})
    bulkhead = running.daemon.plane.runtimes["up"].bulkhead

    async def leaves(n: int) -> None:
        caller = await Caller.connect(running.port)
        await caller.send(request(CHAT, "POST", chat(n=n), JSON))
        await asyncio.sleep(delays.random() * 0.03)
        await caller.closed()

    for batch in range(0, 1000, 200):
        await asyncio.gather(*(leaves(batch + n) for n in range(200)))
    await until(lambda: not running.daemon.plane.active)
    assert (bulkhead.held, bulkhead.waiting) == (0, 0)
    assert running.daemon.plane.in_flight("up") == 0
    gate = asyncio.Event()

    async def together(visit: Visit) -> None:
        await visit.read_body()
        await gate.wait()
        await visit.send(OK)

    upstream.script = together
    before = upstream.hits
    five = [asyncio.create_task(ask(running, n=n)) for n in range(5)]
    await until(lambda: bulkhead.held == 5 and upstream.hits >= before + 5)
    gate.set()
    assert {(await one).status for one in five} == {200}
    assert (counted(running), closed(running)) == (0, True)


async def test_f064_who_waits_for_a_place_stops_nobody(process, upstream) -> None:
    """Five calls hang in all five places, fifty wait; health and others answer all the same."""
    other = Upstream(says(OK))
    await other.start()
    limits, shedding = {"in_flight": 5}, {"max_queue": 50, "max_wait": "60s"}
    section = base(upstream.url, limits=limits, shedding=shedding)
    one = await process({"up": section, "other": base(other.url)})
    upstream.script = hang
    for n in range(55):
        caller = await Caller.connect(one.port)
        await caller.send(request(CHAT, "POST", chat(n=n), JSON))
    await until(lambda: upstream.hits == 5)
    found = await ask(one, n=55)
    while found.get("x-sidecar-decision") != "bulkhead":
        found = await ask(one, n=55)
    for n in range(20):
        assert (await admin(one, "/healthz")).status == 200
        assert (
            await call(one.port, "/other/v1/chat/completions", "POST", chat(n=n), JSON)
        ).status == 200
    assert upstream.hits == 5
    await other.stop()


async def test_f064_nothing_that_waits_stops_the_loop(process, upstream) -> None:
    """55 calls hang and a probe is out; the daemon answers all the same."""
    other = Upstream(says(OK))
    await other.start()
    one = await process({"up": base(upstream.url), "other": base(other.url)})
    upstream.script = says(error(500))
    for n in range(5):
        await ask(one, "probed", n)
    upstream.script = hang
    callers = []
    for n in range(55):
        caller = await Caller.connect(one.port)
        await caller.send(request(CHAT, "POST", chat("probed" if n < 5 else "gpt-x", n=n), JSON))
        callers.append(caller)
    await until(lambda: upstream.hits >= 5 + 50)
    for n in range(20):
        assert (await admin(one, "/healthz")).status == 200
        assert (
            await call(one.port, "/other/v1/chat/completions", "POST", chat(n=n), JSON)
        ).status == 200
    await other.stop()


async def test_f056_a_single_stray_429_refuses_nobody(start, upstream) -> None:
    """One throttle without a hint among sixty good answers."""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(error(429) if visit.number == 31 else OK)

    upstream.script = script
    running = await start({"up": base(upstream.url)})
    found = [await ask(running, n=n) for n in range(61)]
    assert [one.status for one in found].count(429) == 1
    assert {one.get("x-sidecar-decision") for one in found} == {"forwarded"}
    assert (upstream.hits, counted(running)) == (61, 0)


async def test_f060_a_throttled_probe_closes_nothing_and_paces_the_rest(start, upstream) -> None:
    """Half-open, a limit of one call in two seconds, and a hundred calls in one."""
    running = await start({"up": base(upstream.url)})
    await trip(running, upstream)
    await half_open(running)
    times: list[float] = []

    async def script(visit: Visit) -> None:
        await visit.read_body()
        times.append(time.monotonic())
        await visit.send(answer(429, b"{}", (b"Retry-After", b"2")))

    upstream.script = script
    calls = []
    for n in range(100):
        calls.append(asyncio.create_task(ask(running, n=n)))
        await asyncio.sleep(0.01)
    shown = (await document(running))["providers"]["up"]
    assert shown["breakers"]["up/gpt-x"]["state"] == "half_open"
    (gate,) = shown["shedding"]
    assert (gate["state"], gate["hint"], gate["hint_source"]) == ("waiting", 2, "retry-after")
    assert gate["not_before"] is not None
    found = await asyncio.gather(*calls)
    assert {one.get("x-sidecar-decision") for one in found} <= {
        "forwarded", "shed", "breaker_open",
    }  # fmt: skip
    assert all(later - sooner > 1.95 for sooner, later in itertools.pairwise(times))
    assert running.breaker("up/gpt-x").state == "half_open"


# -- F054 to F066: gates --------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        lambda: (b"Retry-After", b"568157"),
        lambda: (b"x-ratelimit-reset", b"%d" % (time.time() + 568157)),
    ],
    ids=["in seconds", "a point in time"],
)
async def test_f054_a_hint_of_days_holds_nobody_longer_than_the_cap(
    start, upstream, clocks, header
) -> None:
    upstream.script = says(answer(429, b'{"error":{"code":"slow"}}', header()))
    running = await start({"up": base(upstream.url, shedding={"retry_after_max": "30s"})})
    assert int((await ask(running)).get("retry-after") or 0) == pytest.approx(568157, abs=300)
    upstream.script = says(OK)
    found = await ask(running)
    assert found.get("x-sidecar-decision") == "shed"
    assert 29 < found.envelope["retry_after"] <= 31
    shown = (await document(running))["providers"]["up"]
    assert shown["verdict"] == "degraded"
    (gate,) = shown["shedding"]
    assert gate["hint"] == pytest.approx(568157, abs=300)
    ends = datetime.fromisoformat(gate["not_before"]).timestamp()
    assert ends - clock.wall() == pytest.approx(30, abs=1)
    clocks.later(30)
    assert (await ask(running)).status == 200
    assert (await document(running))["providers"]["up"]["verdict"] == "up"


@pytest.mark.parametrize("order", [("1", "6"), ("6", "1")])
async def test_f045_of_two_waits_of_a_limit_the_later_end_counts(
    start, upstream, clocks, order
) -> None:
    """Two calls in flight are refused with different hints."""
    both = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        if visit.number == 2:
            both.set()
        await both.wait()
        wait = order[visit.number - 1]
        await visit.send(answer(429, b"{}", (b"Retry-After", wait.encode())))

    upstream.script = script
    running = await start({"up": base(upstream.url, shedding={"max_wait": 0})})
    found = await asyncio.gather(ask(running, n=1), ask(running, n=2))
    assert {one.get("retry-after") for one in found} == {"1", "6"}
    upstream.script = says(OK)
    clocks.later(5.5)
    assert (await ask(running)).get("x-sidecar-decision") == "shed"
    clocks.later(0.6)
    assert (await ask(running)).status == 200
    assert upstream.hits == 3


async def test_f061_callers_do_not_all_return_at_the_same_instant(start, upstream) -> None:
    """A hundred of them obey what they are told; the upstream takes twenty a second."""
    level, at, refused, taken = 20.0, time.monotonic(), 0, 0

    async def script(visit: Visit) -> None:
        nonlocal level, at, refused, taken
        await visit.read_body()
        if visit.number == 1:
            await visit.send(answer(429, b"{}", (b"Retry-After", b"3")))
            return
        now = time.monotonic()
        level, at = min(20.0, level + (now - at) * 20), now
        if level >= 1:
            level, taken = level - 1, taken + 1
            await visit.send(OK)
        else:
            refused += 1
            await visit.send(answer(429, b"{}", (b"Retry-After", b"1")))

    upstream.script = script
    running = await start({"up": base(upstream.url)})
    await ask(running)

    async def obedient(n: int) -> None:
        found = await ask(running, n=n)
        while found.status != 200:
            await asyncio.sleep(float(found.get("retry-after") or 0))
            found = await ask(running, n=n)

    await asyncio.gather(*(obedient(n) for n in range(100)))
    assert taken == 100
    assert refused <= 0.2 * (taken + refused)


async def test_f065_each_refusal_gives_its_own_providers_seconds(start, upstream, clocks) -> None:
    """Two providers wait; the first that is over is usable at once."""
    waits = {b"Bearer a": b"4", b"Bearer b": b"20"}

    async def script(visit: Visit) -> None:
        await visit.read_body()
        wait = waits[visit.request.get(b"authorization") or b""]
        await visit.send(answer(429, b"{}", (b"Retry-After", wait)))

    upstream.script = script
    running = await start({"a": base(upstream.url), "b": base(upstream.url)})

    async def asks(name: str) -> Answer:
        key = ("Authorization", f"Bearer {name}")
        return await call(running.port, CHAT.replace("/up", f"/{name}"), "POST", chat(), JSON, key)

    for name in "ab":
        assert (await asks(name)).get("x-sidecar-decision") == "forwarded"
    for name, left in (("a", 4), ("b", 20)):
        found = await asks(name)
        assert found.get("x-sidecar-decision") == "shed"
        assert int(found.get("retry-after") or 0) == pytest.approx(left, abs=1)
        assert int(found.get("retry-after-ms") or 0) / 1000 == pytest.approx(left, abs=1)
    clocks.later(4)
    upstream.script = says(OK)
    assert (await asks("a")).status == 200
    later = await asks("b")
    assert later.get("x-sidecar-decision") == "shed"
    assert int(later.get("retry-after") or 0) == pytest.approx(16, abs=1)


async def test_f066_an_empty_account_is_not_hammered_and_a_top_up_is_noticed(
    start, upstream, clocks
) -> None:
    """Five calls a second; the account is filled after a minute."""
    recheck = 10
    upstream.script = says(error(429, "insufficient_quota", type="insufficient_quota"))
    section = base(upstream.url, shedding={"quota": {"recheck": f"{recheck}s"}})
    running = await start({"up": section})
    caller = await Caller.connect(running.port)
    began = clock.monotonic()

    async def next_call(n: int) -> Answer:
        clocks.later(max(0.0, began + n / 5 - clock.monotonic()))
        await caller.send(request(CHAT, "POST", chat(n=n), JSON))
        return await caller.answer()

    for n in range(300):
        assert (await next_call(n)).status == 402
    assert upstream.hits <= 60 / recheck + 1
    upstream.script = says(OK)
    for n in range(300, 300 + 5 * recheck + 1):
        if (await next_call(n)).status == 200:
            break
    else:
        raise AssertionError("the top-up was never noticed")
    assert (await ask(running)).status == 200
