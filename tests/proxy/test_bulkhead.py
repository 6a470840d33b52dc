"""`limits.in_flight`: a provider that hangs holds its own places and nobody else's."""

from __future__ import annotations

import asyncio
import random
import time

from hypothesis import given
from hypothesis import strategies as st

from sidecar import clock
from sidecar.breaker.bulkhead import Bulkhead
from sidecar.breaker.model import Outcome
from sidecar.envelope.model import Verdict
from sidecar.proxy.places import wait_for_place

from .callers import Caller, call, chat, request
from .conftest import Running
from .upstreams import Upstream, Visit, answer, says

JSON = ("Content-Type", "application/json")
CHAT = "/up/v1/chat/completions"


def section(upstream: str, in_flight: int, queue: int = 16, wait: str = "20s", **more) -> dict:
    shedding = {"max_queue": queue, "max_wait": wait}
    limits = {"in_flight": in_flight}
    return {
        "upstream": upstream,
        "dialect": "openai",
        "limits": limits,
        "shedding": shedding,
    } | more


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


class Gate:
    """An upstream that answers when it is told to."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.under_way = self.most = 0

    async def __call__(self, visit: Visit) -> None:
        await visit.read_body()
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.open.wait()
            await visit.send(answer())
        finally:
            self.under_way -= 1


def bulkhead(running: Running):
    return running.daemon.plane.runtimes["up"].bulkhead


async def sent(running: Running, path: str = CHAT) -> Caller:
    caller = await Caller.connect(running.port)
    await caller.send(request(path, "POST", chat(), JSON))
    return caller


async def test_further_calls_wait_and_are_served_in_turn(start, upstream) -> None:
    upstream.script = gate = Gate()
    running = await start({"up": section(upstream.url, 2, queue=10)})
    callers = [await sent(running) for _ in range(12)]
    await until(lambda: bulkhead(running).waiting == 10)
    assert upstream.hits == 2
    gate.open.set()
    found = [await caller.answer() for caller in callers]
    assert {one.status for one in found} == {200}
    assert gate.most == 2
    waited = [one.waited for one in running.calls]
    assert sum((one or 0) > 0 for one in waited) == 10


async def test_what_finds_the_queue_full_is_told_so_at_once(start, upstream) -> None:
    upstream.script = gate = Gate()
    running = await start({"up": section(upstream.url, 1, queue=1)})
    held = [await sent(running), await sent(running)]
    await until(lambda: bulkhead(running).waiting == 1)
    found = await call(running.port, CHAT, "POST", chat(), JSON)
    assert (found.status, found.get("x-sidecar-decision")) == (503, "bulkhead")
    envelope = found.envelope
    assert envelope["source"] == "sidecar"
    assert (envelope["class"], envelope["code"]) == ("transient", "bulkhead_full")
    assert (envelope["retryable"], envelope["retry_after"]) == (True, 1.0)
    assert (found.get("retry-after"), found.get("retry-after-ms")) == ("1", "1000")
    assert found.get("x-sidecar-verdict") is None
    assert found.get("x-sidecar-breaker") == "up/gpt-x; state=closed; mode=enforce"
    gate.open.set()
    assert {(await caller.answer()).status for caller in held} == {200}
    for shot in (running.breaker("up"), running.breaker("up/gpt-x")):
        assert shot.in_flight == 0
        assert shot.window.failure == shot.window.neutral == 0


async def test_nobody_waits_longer_than_max_wait(start, upstream) -> None:
    upstream.script = gate = Gate()
    running = await start({"up": section(upstream.url, 1, wait="50ms")})
    held = await sent(running)
    await until(lambda: upstream.hits == 1)
    found = await call(running.port, CHAT, "POST", chat(), JSON)
    assert (found.status, found.envelope["code"]) == (503, "bulkhead_full")
    assert bulkhead(running).waiting == 0
    gate.open.set()
    assert (await held.answer()).status == 200


async def test_a_provider_that_hangs_leaves_the_others_untouched(start, upstream) -> None:
    upstream.script = Gate()
    other = Upstream(says(answer()))
    await other.start()
    running = await start({"up": section(upstream.url, 3, queue=5), "other": other.url})
    held = [await sent(running) for _ in range(8)]
    await until(lambda: bulkhead(running).waiting == 5)
    for _ in range(20):
        assert (await call(running.port, "/other/v1/x")).status == 200
    assert (await call(running.port, CHAT, "POST", chat(), JSON)).status == 503
    for caller in held:
        caller.close()
    await until(lambda: not bulkhead(running).held)
    await other.stop()


async def test_a_call_that_waits_keeps_no_probe(start, upstream) -> None:
    """A half-open breaker has one permit; who has no place must not sit on it."""
    upstream.script = says(answer(500, b'{"error": {"message": "boom"}}'))
    breaker = {"open_for": "50ms", "jitter": 0, "consecutive_failures": 1}
    running = await start({"up": section(upstream.url, 1, breaker=breaker)})
    upstream.script = gate = Gate()
    held = await sent(running, "/up/v1/other")
    await until(lambda: upstream.hits == 1)
    admitted = running.daemon.registry.admit("up", "gpt-x", clock.monotonic())
    admitted.settle(Outcome(Verdict.FAILURE), clock.monotonic())
    await until(lambda: running.breaker("up/gpt-x").state == "half_open")
    waiting = await sent(running)
    await until(lambda: bulkhead(running).waiting == 1)
    assert running.breaker("up/gpt-x").probes_in_flight == 0
    gate.open.set()
    assert (await held.answer()).status == (await waiting.answer()).status == 200


async def test_in_observe_and_off_nobody_is_held_or_refused(start, upstream) -> None:
    for mode in ("observe", "off"):
        upstream.script = gate = Gate()
        before = upstream.hits
        running = await start({"up": section(upstream.url, 1, queue=0, mode=mode)})
        callers = [await sent(running) for _ in range(5)]
        await until(lambda before=before: upstream.hits == before + 5)
        gate.open.set()
        assert {(await caller.answer()).status for caller in callers} == {200}
        await until(lambda running=running: len(running.calls) == 5)
        assert sum(one.would_refuse for one in running.calls) == (4 if mode == "observe" else 0)
        assert bulkhead(running).held == 0


async def test_a_reload_that_makes_room_lets_in_who_waits(start, upstream) -> None:
    upstream.script = gate = Gate()
    running = await start({"up": section(upstream.url, 1)})
    callers = [await sent(running) for _ in range(3)]
    await until(lambda: bulkhead(running).waiting == 2)
    file = running.daemon._options.config
    file.write_text(file.read_text().replace("in_flight: 1", "in_flight: 3"))
    await running.daemon.reload()
    await until(lambda: upstream.hits == 3)
    gate.open.set()
    assert {(await caller.answer()).status for caller in callers} == {200}


PLAN = st.lists(
    st.tuples(st.sampled_from(["go", "go", "leave", "answer"]), st.integers(0, 9)), max_size=40
)


@given(PLAN, st.integers(1, 3), st.integers(0, 4))
def test_no_schedule_of_cancellations_loses_a_place(plan, limit: int, queue: int) -> None:
    """Cancelled after any number of steps of the loop: waiting, granted, inside or done."""
    places = Bulkhead(limit, queue)

    async def one(answered: asyncio.Event) -> None:
        if not places.enter():
            await wait_for_place(places, 1000)
        try:
            await answered.wait()
        finally:
            places.leave()

    async def scene() -> None:
        tasks: list[asyncio.Task[None]] = []
        answered = asyncio.Event()
        for what, number in plan:
            if what == "go":
                tasks.append(asyncio.create_task(one(answered)))
            elif what == "leave" and tasks:
                tasks[number % len(tasks)].cancel()
            elif what == "answer":
                answered.set()
                answered = asyncio.Event()
            for _ in range(number % 3):
                await asyncio.sleep(0)
        for task in tasks[::2] + tasks[1::2]:
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (places.held, places.waiting) == (0, 0)

    asyncio.run(scene())


async def test_a_timeout_in_the_instant_of_the_grant_keeps_the_place() -> None:
    places = Bulkhead(1, 1)
    assert places.enter()
    waiting = asyncio.create_task(wait_for_place(places, 0.01))
    await asyncio.sleep(0)
    time.sleep(0.02)
    places.leave()
    await waiting
    assert (places.held, places.waiting) == (1, 0)


async def test_ten_thousand_who_wait_do_not_stall_the_loop() -> None:
    """Cancelled, timed out and served in random order, the work of each stays small."""
    places = Bulkhead(1, 10_000)
    assert places.enter()
    order = random.Random(7)

    async def one() -> None:
        await wait_for_place(places, order.choice([0.01, 1000, 1000]))
        places.leave()

    tasks = [asyncio.create_task(one()) for _ in range(10_000)]
    await asyncio.sleep(0)
    assert places.waiting == 10_000
    order.shuffle(tasks)
    for step, task in enumerate(tasks[:5_000]):
        task.cancel()
        if not step % 100:
            await asyncio.sleep(0)
    places.leave()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (places.held, places.waiting) == (0, 0)
