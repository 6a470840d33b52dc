"""No schedule of arrivals, departures, throttles and time loses a place or breaks a promise."""

from __future__ import annotations

from math import inf

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sidecar.breaker.gating import GateSettings, GateState, Hint, Shed
from sidecar.breaker.shedding import TURN_TAKES, Gate, Ticket

STEPS = st.one_of(st.just(0.0), st.floats(0, 0.2), st.floats(0, 3), st.floats(0, 1e6))
HINTS = st.one_of(
    st.none(),
    st.builds(
        Hint,
        st.one_of(
            st.sampled_from([0.0, 0.25, 1.0, 20.0, 568157.0, -1.0, inf, float("nan")]),
            st.floats(0, 100),
        ),
        st.just("retry-after"),
    ),
)
SETTINGS = st.builds(
    GateSettings,
    sustained_count=st.integers(1, 6),
    sustained_window=st.sampled_from([1.0, 30.0]),
    sustained_ratio=st.sampled_from([0.0, 0.5, 1.0]),
    max_wait=st.sampled_from([0.0, 0.5, 2.0]),
    max_queue=st.sampled_from([0, 1, 16]),
    min_rate=st.sampled_from([0.1, 1.0, 50.0]),
    open_after=st.sampled_from([0.0, 5.0, 600.0]),
    retry_after_max=st.sampled_from([0.5, 3600.0]),
)


class Machine(RuleBasedStateMachine):
    @initialize(settings=SETTINGS, drawn=st.floats(0, 0.999))
    def begin(self, settings: GateSettings, drawn: float) -> None:
        self.now = 1000.0
        self.settings = settings
        self.gate = Gate("up/gpt-x", settings, now=self.now, random=lambda: drawn)
        self.waiting: dict[Ticket, float] = {}
        self.sent: list[float] = []
        self.arrived = self.ended = 0

    @rule(seconds=STEPS)
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def arrive(self) -> None:
        self.arrived += 1
        closed = self.gate.opens_at > self.now
        found = self.gate.enter(self.now)
        if found is None:
            assert not closed
            assert self.gate.state is GateState.IDLE
            self.ended += 1
            self.sent.append(self.now)
        elif isinstance(found, Shed):
            self.ended += 1
            self.check(found)
        else:
            self.waiting[found] = self.now
            assert found.deadline - self.now <= max(self.settings.max_wait, TURN_TAKES) + 1e-6
            assert self.gate.queued <= max(1, self.settings.max_queue)

    def check(self, shed: Shed) -> None:
        assert 0 < shed.wait < inf
        # Never less than the truth while a hint runs, and never an hour more.
        assert shed.wait >= self.gate.opens_at - self.now - 1e-6
        assert "a slot is free in" in shed.reason

    @rule()
    def serve(self) -> None:
        before = self.gate.queued
        ticket = self.gate.serve(self.now)
        if ticket is None:
            assert not before or self.gate.opens_at > self.now
            return
        assert self.gate.opens_at <= self.now
        # First come, first served.
        assert ticket is min(self.waiting, key=self.waiting.__getitem__)
        del self.waiting[ticket]
        self.ended += 1
        self.sent.append(self.now)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.waiting:
            ticket = data.draw(st.sampled_from(sorted(self.waiting, key=id)))
            assert self.gate.leave(ticket)
            assert not self.gate.leave(ticket)
            del self.waiting[ticket]
            self.ended += 1

    @rule(most=st.integers(1, 3))
    def sweep(self, most: int) -> None:
        found = self.gate.hopeless(self.now, most)
        assert len(found) <= most
        for ticket, shed in found:
            self.check(shed)
            assert ticket.deadline <= self.now or self.gate.opens_at > ticket.deadline
            del self.waiting[ticket]
            self.ended += 1

    @rule(hint=HINTS, fresh=st.booleans())
    def throttle(self, hint: Hint | None, fresh: bool) -> None:
        before = self.gate.opens_at
        dark = self.gate.throttled(self.now, self.now if fresh else self.now - 5, hint)
        # A wait that runs is never shortened, and none is longer than the longest.
        assert self.gate.opens_at >= before
        assert self.gate.opens_at <= max(before, self.now + self.settings.retry_after_max)
        assert not (dark and not self.settings.open_after)

    @rule(accepted=st.booleans())
    def answer(self, accepted: bool) -> None:
        sent = self.sent.pop() if self.sent else self.now
        before = self.gate.opens_at
        self.gate.answered(self.now, sent, accepted=accepted)
        assert self.gate.opens_at == before or self.gate.state is GateState.IDLE

    @rule()
    def give_back(self) -> None:
        """The next one need not wait for it."""
        self.gate.give_back()
        assert self.gate.next_turn(self.now) == max(self.now, self.gate.opens_at)

    @rule()
    def reset(self) -> None:
        self.gate.reset(self.now)
        assert self.gate.state is GateState.IDLE
        assert self.gate.opens_at == -inf

    @rule(settings=SETTINGS)
    def configure(self, settings: GateSettings) -> None:
        before = self.gate.opens_at
        self.gate.configure(settings, self.now)
        self.settings = settings
        assert self.gate.opens_at == before

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "gate"):
            return
        assert self.gate.queued == len(self.waiting)
        assert self.arrived == self.ended + len(self.waiting)

    @invariant()
    def what_is_shown_is_true(self) -> None:
        if not hasattr(self, "gate"):
            return
        shown = self.gate.snapshot(self.now)
        assert shown.queued == len(self.waiting)
        assert (shown.not_before is None) is (self.gate.opens_at <= self.now)
        if shown.state is GateState.IDLE:
            assert (shown.not_before, shown.rate) == (None, None)
        if shown.rate is not None:
            assert self.settings.min_rate <= shown.rate < inf
        assert self.gate.rate > 0

    def teardown(self) -> None:
        """Left alone, time leads out of every state, and the queue is empty in the end."""
        if not hasattr(self, "gate"):
            return
        self.now += 3600.0 * 24 * 400
        while self.gate.serve(self.now):
            pass
        assert self.gate.queued == 0
        self.now += 120
        assert self.gate.enter(self.now) is None
        assert self.gate.is_disposable(self.now)


TestGate = Machine.TestCase
TestGate.settings = hypothesis_settings(max_examples=200, stateful_step_count=60, deadline=None)
