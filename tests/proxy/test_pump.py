"""Those who wait at a gate: served at its rate, shed in time, and nothing is lost when they leave."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar import clock
from sidecar.breaker.gating import GateSettings, Hint, Shed
from sidecar.breaker.pace import Pace
from sidecar.breaker.shedding import Gate, Ticket
from sidecar.daemon import GC_THRESHOLD
from sidecar.proxy.pump import BATCH, Pump, allowance

from .virtual import run


def raise_it(error: Exception) -> None:
    raise AssertionError(error)


class Steady(Pace):
    """A rate that stays as it is."""

    def tick(self, _accepted: float, _now: float) -> None: ...


class Scene:
    """A gate and its pump in the running loop."""

    def __init__(self, **more) -> None:
        self.loop = asyncio.get_running_loop()
        self.gate = Gate(
            "up/gpt-x", GateSettings(**more), now=clock.monotonic(), random=lambda: 0.5
        )
        self.pump = Pump(self.gate, self.loop, raise_it)
        self.gate.server = self.pump
        self.served: list[float] = []
        self.ends = Counter[str]()

    def throttle(self, seconds: float | None) -> None:
        now = clock.monotonic()
        hint = None if seconds is None else Hint(seconds, "retry-after")
        self.gate.throttled(now, now, hint)

    def pace(self, rate: float) -> None:
        """Sheds at a rate that stays."""
        self.gate.configure(
            GateSettings(
                min_rate=rate,
                sustained_count=1,
                sustained_ratio=0.0,
                max_queue=100_000,
                max_wait=1000.0,
            ),
            clock.monotonic(),
        )
        self.throttle(0)
        self.gate._pace = Steady(0.0, rate, clock.monotonic())

    async def call(self) -> str:
        try:
            found = self.gate.enter(clock.monotonic())
            if isinstance(found, Ticket):
                found = await self.pump.turn(found)
            end = "shed" if isinstance(found, Shed) else "served"
        except asyncio.CancelledError:
            self.ends["left"] += 1
            raise
        if end == "served":
            self.served.append(self.loop.time())
        self.ends[end] += 1
        return end

    def check_empty(self) -> None:
        assert self.gate.queued == 0
        assert not self.pump._waiting
        assert self.pump._task is None
        assert self.pump._timer is None


# -- what it does ---------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.5, 1, 7.5, 40, 99, 250, 1000])
def test_served_at_the_rate(rate) -> None:
    async def go() -> None:
        scene = Scene()
        scene.pace(rate)
        count = max(4, int(rate * 4))
        began = scene.loop.time()
        await asyncio.gather(*(scene.call() for _ in range(count)))
        took = scene.loop.time() - began
        assert took == pytest.approx((count - 1) / rate, rel=0.12, abs=0.02)
        scene.check_empty()

    run(go())


@pytest.mark.parametrize(
    ("rate", "allowed"), [(0.25, (1, 4.0)), (1, (1, 1.0)), (10, (1, 0.1)), (250, (2, 0.008))]
)
def test_a_rate_as_the_throttler_takes_it(rate, allowed) -> None:
    assert allowance(rate) == pytest.approx(allowed)


def test_after_a_hint_they_come_back_spread_out() -> None:
    async def go() -> None:
        scene = Scene()
        scene.throttle(1)
        opens = scene.gate.opens_at
        ends = await asyncio.gather(*(scene.call() for _ in range(16)))
        assert set(ends) == {"served"}
        assert scene.served[0] >= opens
        assert len({round(at, 3) for at in scene.served}) == 16
        assert max(scene.served) < opens + 1

    run(go())


def test_shed_at_the_deadline_and_not_later() -> None:
    async def go() -> None:
        scene = Scene(max_wait=2.0)
        scene.throttle(1.5)
        call = asyncio.create_task(scene.call())
        await asyncio.sleep(1)
        began = scene.loop.time()
        scene.throttle(1.0)
        assert await call == "shed"
        assert scene.loop.time() - began <= 1
        scene.check_empty()

    run(go())


def test_a_later_hint_sheds_those_who_wait_at_once() -> None:
    async def go() -> None:
        scene = Scene(max_queue=200)
        scene.throttle(0.1)
        calls = [asyncio.create_task(scene.call()) for _ in range(10)]
        await asyncio.sleep(0.05)
        began = scene.loop.time()
        scene.throttle(60)
        assert set(await asyncio.gather(*calls)) == {"shed"}
        assert scene.loop.time() == began
        scene.check_empty()

    run(go())


def test_a_reset_lets_all_go_at_once() -> None:
    async def go() -> None:
        scene = Scene(max_queue=1000, max_wait=100.0)
        scene.throttle(50)
        calls = [asyncio.create_task(scene.call()) for _ in range(500)]
        await asyncio.sleep(1)
        began = scene.loop.time()
        scene.gate.reset(clock.monotonic())
        assert set(await asyncio.gather(*calls)) == {"served"}
        assert scene.loop.time() == began
        scene.check_empty()

    run(go())


def test_a_fault_in_the_pump_costs_no_call(monkeypatch) -> None:
    async def go() -> None:
        scene = Scene()
        faults: list[Exception] = []
        scene.pump._on_fault = faults.append
        scene.throttle(0.5)

        def broken(_now: float) -> None:
            raise RuntimeError

        monkeypatch.setattr(Gate, "serve", lambda _self, now: broken(now))
        assert set(await asyncio.gather(*(scene.call() for _ in range(5)))) == {"served"}
        assert len(faults) == 1
        scene.check_empty()

    run(go())


# -- nothing is lost ------------------------------------------------------------------------


def test_c_a_slot_goes_to_the_next_if_its_caller_leaves_in_that_instant(monkeypatch) -> None:
    async def go() -> None:
        scene = Scene()
        scene.pace(1.0)
        assert await scene.call() == "served"
        leaver = asyncio.create_task(scene.call())
        follower = asyncio.create_task(scene.call())
        tell = Pump._tell

        def told(self, ticket, answer) -> None:
            # The slot comes and the caller goes before it could take it.
            tell(self, ticket, answer)
            leaver.cancel()

        monkeypatch.setattr(Pump, "_tell", told)
        await asyncio.wait({leaver, follower})
        assert leaver.cancelled()
        first, second = scene.served
        assert second - first == pytest.approx(1, abs=0.05)
        scene.check_empty()

    run(go())


def test_c_a_slot_that_could_not_be_used_is_the_next_ones() -> None:
    async def go() -> None:
        scene = Scene()
        scene.pace(0.1)
        await scene.call()
        scene.gate.give_back()
        began = scene.loop.time()
        assert await scene.call() == "served"
        assert scene.loop.time() - began < 0.1

    run(go())


def test_c_whoever_leaves_takes_no_slot_along() -> None:
    """Two in three leave while they wait, in every instant; the others are served at the rate."""

    async def go() -> None:
        scene = Scene()
        scene.pace(10.0)
        draw = random.Random(3)
        stay, leave = [], []
        for n in range(300):
            task = asyncio.create_task(scene.call())
            if n % 3:
                leave.append(task)
                scene.loop.call_later(draw.choice([draw.random() * 10, n * 0.1]), task.cancel)
            else:
                stay.append(task)
        began = scene.loop.time()
        await asyncio.wait(stay)
        await asyncio.wait(leave)
        assert all(task.result() == "served" for task in stay)
        assert max(scene.served) - began == pytest.approx(
            (len(scene.served) - 1) / 10, rel=0.05, abs=0.2
        )
        scene.check_empty()

    run(go())


@dataclass(frozen=True)
class Act:
    """Something that happens after a while."""

    after: float
    what: str
    seconds: float = 0.0


INSTANTS = st.sampled_from([0.0, 0.0, 0.001, 0.05, 0.0625, 0.1, 0.5, 1.0])
ACTS = st.one_of(
    st.builds(
        Act, INSTANTS, st.just("call"), st.sampled_from([0.0, 0.001, 0.0625, 0.1, 0.5, 1.0, 9.0])
    ),
    st.builds(Act, INSTANTS, st.just("throttle"), st.sampled_from([0.0, 0.1, 0.5, 1.0, 30.0])),
    st.builds(Act, INSTANTS, st.sampled_from(["cancel", "succeed", "reset", "configure", "yield"])),
)


@given(acts=st.lists(ACTS, max_size=60), queue=st.sampled_from([1, 4, 16]))
@settings(max_examples=300, deadline=None)
def test_c_no_schedule_loses_anything(acts, queue) -> None:
    async def go() -> None:
        scene = Scene(
            max_queue=queue, sustained_count=2, sustained_ratio=0.0, min_rate=10.0, max_wait=1.0
        )
        tasks: list[asyncio.Task[str]] = []
        for act in acts:
            await asyncio.sleep(act.after)
            now = clock.monotonic()
            if act.what == "call":
                task = asyncio.create_task(scene.call())
                tasks.append(task)
                if act.seconds < 9:
                    scene.loop.call_later(act.seconds, task.cancel)
            elif act.what == "throttle":
                scene.throttle(act.seconds)
            elif act.what == "cancel" and tasks:
                tasks[len(tasks) // 2].cancel()
            elif act.what == "succeed":
                scene.gate.answered(now, now, accepted=True)
            elif act.what == "reset":
                scene.gate.reset(now)
            elif act.what == "configure":
                scene.gate.configure(scene.gate._settings, now)
            else:
                await asyncio.sleep(0)
            assert len(scene.pump._waiting) >= scene.gate.queued
        before = scene.loop.time()
        if tasks:
            await asyncio.wait(tasks)
        # Nobody waits longer than `max_wait`.
        assert scene.loop.time() - before <= 1.05
        started = [task for task in tasks if not task.cancelled()]
        assert scene.ends["served"] + scene.ends["shed"] == len(started)
        scene.check_empty()
        # And whoever comes afterwards finds the gate as it should be: a full rate, or a hint.
        await asyncio.sleep(max(0.0, scene.gate.opens_at - clock.monotonic()) + 0.2)
        began = scene.loop.time()
        count = min(queue, 4)
        ends = await asyncio.gather(*(scene.call() for _ in range(count)))
        assert set(ends) == {"served"}
        assert scene.loop.time() - began <= count / 10 + 0.1
        scene.check_empty()

    run(go())


# -- ten thousand ---------------------------------------------------------------------------


def test_f_few_are_woken_in_one_turn_of_the_loop() -> None:
    """However many are shed, served or reset in the same instant."""

    async def go(end: str) -> None:
        scene = Scene(max_queue=10_000, max_wait=1e6, retry_after_max=1e9)
        scene.throttle(500)
        calls = [asyncio.create_task(scene.call()) for _ in range(10_000)]
        await asyncio.sleep(1)
        assert scene.gate.queued == 10_000
        if end == "reset":
            scene.gate.reset(clock.monotonic())
        elif end == "shed":
            scene.throttle(1e8)
        most = done = 0
        while done < len(calls):
            await asyncio.sleep(0)
            now = sum(scene.ends.values())
            most, done = max(most, now - done), now
        assert most <= 2 * BATCH
        scene.check_empty()

    for end in ("reset", "shed"):
        run(go(end))


@pytest.fixture
def collector() -> Iterator[None]:
    """As the daemon sets it: what exists already is not looked at again."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("collector")
async def test_f_ten_thousand_leave_the_loop_to_others() -> None:
    """Cancelled, timed out and served in random order, by the processor's time, in the real loop."""
    scene = Scene(max_queue=20_000, max_wait=1.5)
    scene.gate.configure(
        GateSettings(
            max_queue=20_000, max_wait=1.5, min_rate=3000.0, sustained_count=1, sustained_ratio=0
        ),
        clock.monotonic(),
    )
    scene.throttle(0.5)
    draw = random.Random(10)
    longest = 0.0
    busy = True

    async def heartbeat() -> None:
        nonlocal longest
        while busy:
            before = time.thread_time()
            await asyncio.sleep(0.001)
            longest = max(longest, time.thread_time() - before)

    beat = asyncio.create_task(heartbeat())
    calls: list[asyncio.Task[str]] = []
    for n in range(10_000):
        calls.append(asyncio.create_task(scene.call()))
        if draw.random() < 0.4:
            scene.loop.call_later(draw.random() * 1.5, calls[-1].cancel)
        if not n % 100:
            await asyncio.sleep(0)
    await asyncio.wait(calls)
    busy = False
    await beat
    assert longest < 0.05
    assert sum(scene.ends.values()) == 10_000
    assert min(scene.ends["served"], scene.ends["shed"], scene.ends["left"]) > 500
    scene.check_empty()
