"""Area shed, as far as it is built here: nothing leaks, nothing blocks, a throttle trips nothing."""

from __future__ import annotations

import asyncio
import random

from tests.proxy.callers import Caller, call, chat, request
from tests.proxy.upstreams import Upstream, Visit, says

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


async def test_f063_cancelled_callers_leave_nothing_behind(start, upstream) -> None:
    """Permits, gauges and connections, whenever the caller leaves."""
    delays = random.Random(63)
    upstream.script = hang
    running = await start({"up": base(upstream.url)})

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
    running = await start({"up": base(upstream.url, limits={"in_flight": 5}, shedding=shedding)})
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
    await until(lambda: upstream.hits == before + 5)
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


async def test_f060_a_throttled_probe_closes_nothing(start, upstream) -> None:
    """The breaker's part. What paces the hundred calls is another issue's."""
    running = await start({"up": base(upstream.url)})
    await trip(running, upstream)
    await half_open(running)
    upstream.script = says(error(429))
    for n in range(10):
        assert (await ask(running, n=n)).status == 429
        assert running.breaker("up/gpt-x").state == "half_open"
