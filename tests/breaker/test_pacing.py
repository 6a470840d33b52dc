"""A gate against an upstream with a true token bucket, minutes of it in simulated time.

Whoever offers three times what the bucket allows still gets nearly all of it, hardly a call is
refused by the upstream, and nobody waits longer than `max_wait`.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from sidecar.breaker.gating import GateSettings, GateState, Hint, Shed
from sidecar.breaker.pace import Pace
from sidecar.breaker.shedding import Gate, Ticket
from sidecar.breaker.window import Window
from sidecar.envelope.model import Verdict

HINTS = {
    "seconds": lambda wait: Hint(max(1, math.ceil(wait)), "retry-after"),
    "exact": lambda wait: Hint(wait, "retry-after-ms"),
    "none": lambda _wait: None,
}


@dataclass
class Bucket:
    """So many calls a second, and as many at once as it holds."""

    rate: float
    holds: float
    level: float = 0.0
    at: float = 0.0

    def __post_init__(self) -> None:
        self.level = self.holds

    def take(self, now: float) -> float:
        """0 if it had one to give, else the seconds until it has."""
        self.level = min(self.holds, self.level + (now - self.at) * self.rate)
        self.at = now
        if self.level >= 1:
            self.level -= 1
            return 0.0
        return (1 - self.level) / self.rate


@dataclass
class Simulation:
    """Callers that offer a steady load, a gate, and the bucket behind it."""

    bucket: Bucket
    hint: str = "seconds"
    latency: float = 0.02
    offered: float = 30.0
    settings: GateSettings = field(default_factory=GateSettings)
    seed: int = 1
    thinks: float = 0.0
    """Seconds that an accepted call takes besides; a refusal comes at once."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.gate: Gate | None = None
        self.before = Window(60)
        self.accepted = Counter[int]()
        self.refused = self.shed = 0
        self.waited = self.failures = 0.0
        self.rates: dict[int, float | None] = {}
        self._held: dict[Ticket, float] = {}
        self._events: list[tuple[float, int, str, tuple]] = []
        self._pumping = False

    def run(self, seconds: float, *, doubling_at: float = math.inf) -> Simulation:
        for n in range(int(seconds * self.offered)):
            self._at(n / self.offered + self.random.random() * 0.01, "arrive")
        while self._events:
            now, _, event, details = heapq.heappop(self._events)
            if now >= doubling_at:
                doubling_at = math.inf
                self.bucket.rate *= 2
                self.bucket.holds *= 2
            getattr(self, f"_{event}")(now, *details)
            if self.gate is not None:
                self.rates[int(now)] = self.gate.snapshot(now).rate
        return self

    def _at(self, time: float, event: str, *details: object) -> None:
        heapq.heappush(self._events, (time, len(self._events) + id(details) % 7, event, details))

    def _arrive(self, now: float) -> None:
        found = None if self.gate is None else self.gate.enter(now)
        if isinstance(found, Shed):
            assert found.wait > 0
            self.shed += 1
        elif found is None:
            self._at(now + self.latency / 2, "reach", now)
        else:
            self._held[found] = now
            self._at(found.deadline, "sweep")
            if not self._pumping:
                self._pumping = True
                self._at(now, "pump")

    def _pump(self, now: float) -> None:
        assert self.gate is not None
        self._pumping = bool(self.gate.queued)
        if not self._pumping:
            return
        turn = self.gate.next_turn(now)
        if turn > now:
            self._at(turn + 0.001, "pump")
            return
        ticket = self.gate.serve(now)
        assert ticket is not None
        self.waited = max(self.waited, now - self._held.pop(ticket))
        self._at(now + self.latency / 2, "reach", now)
        self._at(now, "pump")

    def _sweep(self, now: float) -> None:
        assert self.gate is not None
        for ticket, _ in self.gate.hopeless(now, 100):
            self.waited = max(self.waited, now - self._held.pop(ticket))
            self.shed += 1

    def _reach(self, now: float, sent: float) -> None:
        wait = self.bucket.take(now)
        if not wait:
            self.accepted[int(now)] += 1
        else:
            self.refused += 1
        self._at(now + self.latency / 2 + (0 if wait else self.thinks), "answer", sent, wait)

    def _answer(self, now: float, sent: float, wait: float) -> None:
        if not wait:
            self.before.record(Verdict.SUCCESS, now)
            if self.gate is not None:
                self.gate.answered(now, sent, accepted=True)
            return
        if self.gate is None:
            self.gate = Gate(
                "up/gpt-x",
                self.settings,
                now=now,
                accepted=self.before.lately(now),
                random=self.random.random,
            )
        self.failures += self.gate.throttled(now, sent, HINTS[self.hint](wait))
        self._sweep(now)

    @property
    def total(self) -> int:
        return sum(self.accepted.values())


@pytest.mark.parametrize("latency", [0.001, 0.02, 0.2])
@pytest.mark.parametrize(("hint", "goodput"), [("seconds", 0.95), ("exact", 0.95), ("none", 0.85)])
def test_a_goodput_of_three_times_the_load(hint, goodput, latency) -> None:
    for seed in range(3):
        found = Simulation(Bucket(10, 10), hint, latency, seed=seed).run(60)
        # What the bucket holds at the beginning comes on top.
        assert found.total >= goodput * 10 * 60
        assert found.refused < 0.05 * (found.total + found.refused)
        assert found.waited <= 2.0 + 1e-6
        assert found.failures == 0
        assert found.gate.snapshot(60).state is GateState.SHEDDING


@pytest.mark.parametrize("thinks", [1.0, 3.0, 10.0])
@pytest.mark.parametrize(("hint", "goodput"), [("seconds", 0.95), ("exact", 0.95), ("none", 0.85)])
def test_a_goodput_of_an_upstream_that_thinks_before_it_answers(hint, goodput, thinks) -> None:
    """A refusal is heard of at once, a success late: what was not refused soon was accepted."""
    for seed in range(3):
        found = Simulation(Bucket(10, 10), hint, seed=seed, thinks=thinks).run(60)
        assert found.total >= goodput * 10 * 60
        assert found.refused < 0.05 * (found.total + found.refused)
        assert found.waited <= 2.0 + 1e-6
        assert found.failures == 0


@pytest.mark.parametrize("hint", HINTS)
def test_a_small_limit_of_an_upstream_that_thinks_before_it_answers(hint) -> None:
    """Waits without a hint do not double where some of those who came back were not refused."""
    found = Simulation(Bucket(2, 2), hint, offered=6, thinks=3).run(120)
    assert found.total >= 0.9 * 2 * 120


class Dark(Simulation):
    """Every call is refused, some after long."""

    def _reach(self, now: float, sent: float) -> None:
        self._at(now + self.random.choice([0.05, 0.05, 1, 5, 8]), "answer", sent, 1.0)


@pytest.mark.parametrize("offered", [0.5, 1.5, 30])
def test_refusals_that_come_late_are_dark_all_the_same(offered) -> None:
    """What waits for its refusal is no success, and the rate stays at the floor."""
    found = Dark(Bucket(1, 1), "none", offered=offered).run(800)
    assert found.failures > 0
    assert max(rate or 0 for second, rate in found.rates.items() if second > 100) == 1


@pytest.mark.parametrize("at", [45, 49, 53, 57])
@pytest.mark.parametrize("hint", HINTS)
def test_a_when_the_bucket_doubles_the_rate_follows(hint, at) -> None:
    found = Simulation(Bucket(10, 10), hint).run(at + 25, doubling_at=at)
    assert max(found.rates[second] or 0 for second in range(at, at + 20)) >= 19
    assert max(found.accepted[second] for second in range(at, at + 20)) >= 19
    after = sum(found.accepted[second] for second in range(at + 15, at + 25))
    assert after >= 0.75 * 200


@pytest.mark.parametrize(("rate", "offered"), [(2, 6), (50, 150), (200, 600)])
def test_a_other_rates(rate, offered) -> None:
    found = Simulation(Bucket(rate, rate), offered=offered).run(60)
    assert found.total >= 0.88 * rate * 61
    # Five of them it takes to know.
    assert found.refused - 5 < 0.05 * (found.total + found.refused)
    assert found.waited <= 2.0 + 1e-6


def test_a_load_below_the_limit_is_left_alone() -> None:
    """Neither held nor shed: no throttle, no gate."""
    found = Simulation(Bucket(10, 10), offered=9).run(60)
    assert (found.shed, found.refused, found.gate) == (0, 0, None)


def test_a_load_that_falls_below_the_limit_is_not_paced_for_ever() -> None:
    found = Simulation(Bucket(10, 10)).run(30)
    gate = found.gate
    now = 32.0
    while now < 130:
        if (ticket := gate.enter(now)) is not None:
            assert isinstance(ticket, Ticket)
            gate.serve(max(now, gate.next_turn(now)))
        gate.answered(now + 0.02, now, accepted=True)
        now += 0.25
    assert gate.snapshot(now).state is GateState.IDLE


# -- the pace itself ------------------------------------------------------------------------


def test_it_starts_at_half_and_is_halved_down_to_the_floor() -> None:
    pace = Pace(16.0, 1.0, 0.0)
    assert pace.rate == 8
    rates = []
    for n in range(6):
        pace.refused(16.0, float(n))
        rates.append(pace.rate)
    assert rates == [4, 2, 1, 1, 1, 1]
    assert pace.at_floor


def test_a_step_up_after_each_clean_window_and_only_then() -> None:
    pace = Pace(16.0, 1.0, 0.0)
    pace.tick(16.0, 10.0)
    assert pace.rate == 8  # nothing was accepted: no evidence
    pace.accepted()
    pace.accepted()
    pace.tick(16.0, 0.1)
    assert pace.rate == 8  # not yet a window
    rates = []
    for n in range(1, 30):
        pace.accepted()
        pace.accepted()
        pace.tick(16.0, float(n))
        rates.append(pace.rate)
    assert rates == sorted(rates)
    assert 8 < rates[0] < 16
    assert rates[-1] == 64  # four times what was accepted, whatever the steps


def test_calls_that_are_not_refused_soon_are_evidence_without_an_answer() -> None:
    pace = Pace(16.0, 1.0, 0.0, patience=1.0)
    pace.passed(0.1)
    pace.tick(16.0, 5.0)
    assert pace.rate == 8  # one call is not enough
    pace.passed(5.0)
    pace.tick(16.0, 5.9)
    assert pace.rate == 8  # a refusal may still come
    pace.tick(16.0, 6.0)
    assert pace.rate > 8


def test_what_nobody_uses_was_not_tried() -> None:
    """The rate of a key that asks little stays in sight of what it asks."""
    pace = Pace(2.0, 1.0, 0.0)
    for n in range(1, 500):
        pace.accepted()
        pace.accepted()
        pace.tick(2.0, float(n))
    assert pace.rate <= 8
