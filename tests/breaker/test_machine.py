"""No sequence of whatever may happen to a breaker breaks what it promises.

The model beside it is deliberately naive: it keeps a list of everything and works out from the list
what has to be true.
"""

from __future__ import annotations

from dataclasses import dataclass

import pybreaker
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sidecar.breaker.breaker import TABLE, Breaker, Permit
from sidecar.breaker.model import Kind, Mode, Outcome, Settings, State, Transition
from sidecar.envelope.model import Verdict

STEPS = st.one_of(st.just(0.0), st.just(0.0), st.floats(0, 1), st.floats(0, 100), st.floats(0, 1e7))
OUTCOMES = st.builds(
    Outcome,
    st.sampled_from([*Verdict, Verdict.FAILURE, Verdict.FAILURE]),
    st.sampled_from(list(Kind)),
    retry_after=st.sampled_from([None, None, 0.0, 5.0, 90.0, 1e9, float("inf"), float("nan")]),
    fingerprint=st.sampled_from([None, None, b"a", b"b"]),
)
SETTINGS = st.builds(
    Settings,
    mode=st.sampled_from([Mode.ENFORCE, Mode.ENFORCE, Mode.ENFORCE, Mode.OBSERVE, Mode.OFF]),
    consecutive_failures=st.integers(0, 4),
    window=st.sampled_from([10.0, 60.0]),
    minimum_calls=st.integers(1, 6),
    failure_ratio=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    repeat_window=st.sampled_from([0.0, 30.0]),
    open_for=st.sampled_from([0.5, 30.0]),
    open_max=st.sampled_from([60.0, 300.0]),
    probes=st.integers(1, 3),
    successes=st.integers(1, 3),
    first_byte=st.sampled_from([1.0, 100.0]),
)


@dataclass(eq=False)
class Running:
    """A call between admission and end, as the model sees it."""

    permit: Permit
    epoch: int
    probe_until: float | None


@dataclass
class Told:
    """An outcome that the breaker was told, as the model remembers it."""

    at: float
    outcome: Outcome
    late: bool


class Machine(RuleBasedStateMachine):
    @initialize(settings=SETTINGS)
    def begin(self, settings: Settings) -> None:
        self.now = 1000.0
        self.epoch = 0
        self.settings = settings
        self.running: list[Running] = []
        self.ended: list[Permit] = []
        self.told: list[Told] = []
        self.run: list[Told] = []
        self.idle_since = self.now
        self.in_flight = 0
        self.probes = settings.probes
        self.transitions = 0
        self.breaker = Breaker(
            "p/m", settings, self.on_transition, now=self.now, random=lambda: 0.5
        )

    def on_transition(self, transition: Transition) -> None:
        assert transition.new in TABLE[transition.old].values()
        assert transition.new is self.breaker.state
        assert transition.at <= self.now
        self.transitions += 1
        self.epoch += 1
        if transition.new is State.CLOSED:
            self.told, self.run = [], []
        if transition.new is State.HALF_OPEN:
            self.probes = self.settings.probes

    # What may happen.

    @rule()
    def admit(self) -> None:
        self.decay()
        answer = self.breaker.admit(self.now)
        if isinstance(answer, Permit):
            probe_until = None
            if self.breaker.state is State.HALF_OPEN and answer.would_refuse is None:
                probe_until = self.now + max(self.settings.first_byte, 60.0)
            shadow = answer.would_refuse is not None
            off = self.settings.mode is Mode.OFF
            epoch = -1 if shadow or (off and self.breaker.state is not State.CLOSED) else self.epoch
            self.running.append(Running(answer, epoch, probe_until))
            self.in_flight += 1
        else:
            assert self.settings.mode is Mode.ENFORCE
            assert answer.retry_after > 0
            assert answer.reason
            assert answer.state is not State.CLOSED

    @precondition(lambda self: self.running)
    @rule(data=st.data(), outcome=OUTCOMES)
    def settle(self, data, outcome: Outcome) -> None:
        call = self.end_one(data)
        self.breaker.tick(self.now)
        before = self.breaker.state
        transitions = self.transitions
        late = call.epoch != self.epoch
        deadline = self.breaker.snapshot(self.now).half_open_at
        call.permit.settle(outcome, self.now)
        if self.settings.mode is Mode.OFF:
            assert self.breaker.state is before
            return
        if late:
            self.told.append(Told(self.now, outcome, late=True))
            assert self.breaker.state is before
            assert self.transitions == transitions
            assert self.breaker.snapshot(self.now).half_open_at == deadline
        elif before is State.CLOSED:
            self.expect_of_closed(outcome)
        else:
            self.expect_of_probe(outcome)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def release(self, data) -> None:
        before, transitions = self.breaker.state, self.transitions
        self.end_one(data).permit.release(self.now)
        assert (self.breaker.state, self.transitions) == (before, transitions)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def leak(self, data) -> None:
        self.running.remove(data.draw(st.sampled_from(self.running)))

    @precondition(lambda self: self.ended)
    @rule(data=st.data(), outcome=OUTCOMES)
    def settle_again(self, data, outcome: Outcome) -> None:
        transitions = self.transitions
        self.breaker.tick(self.now)
        permit = data.draw(st.sampled_from(self.ended))
        ticked = self.transitions
        permit.settle(outcome, self.now)
        permit.release(self.now)
        assert self.transitions == ticked >= transitions

    @rule(step=STEPS)
    def time_passes(self, step: float) -> None:
        self.now += step

    @rule()
    def somebody_looks(self) -> None:
        self.breaker.snapshot(self.now)
        self.breaker.next_change(self.now)

    @rule(settings=SETTINGS)
    def reload(self, settings: Settings) -> None:
        self.breaker.tick(self.now)
        self.decay()
        before, transitions = self.breaker.snapshot(self.now), self.transitions
        switched_off = settings.mode is Mode.OFF and self.settings.mode is not Mode.OFF
        if settings.window != self.settings.window:
            self.resize(settings.window)
        self.settings = settings
        self.probes = max(self.probes, settings.probes)
        self.breaker.configure(settings, self.now)
        if switched_off:
            self.epoch += 1
            self.told, self.run = [], []
        else:
            after = self.breaker.snapshot(self.now)
            assert self.transitions == transitions
            assert after.state is before.state
            assert after.half_open_at == before.half_open_at
            assert after.consecutive_failures == before.consecutive_failures

    @rule()
    def time_alone_leads_out(self) -> None:
        """Whatever has happened, after the longest open time and lease a call passes."""
        self.now += 3600.0 + 300.0 * 1.2 + 100.0 + 60.0
        self.decay()
        answer = self.breaker.admit(self.now)
        assert isinstance(answer, Permit)
        assert answer.would_refuse is None
        self.in_flight += 1
        answer.release(self.now)
        self.left()

    # What has to be true.

    @invariant()
    def no_more_probes_than_allowed(self) -> None:
        if self.breaker.state is State.HALF_OPEN and self.settings.mode is not Mode.OFF:
            under_way = [
                call
                for call in self.running
                if call.epoch == self.epoch
                and call.probe_until is not None
                and call.probe_until > self.now
            ]
            assert len(under_way) <= self.probes

    @invariant()
    def what_is_shown_is_what_happened(self) -> None:
        self.decay()
        shown = self.breaker.snapshot(self.now)
        width = self.settings.window / 10
        recent = [told for told in self.told if self.now // width - told.at // width < 10]
        for verdict in Verdict:
            count = sum(told.outcome.verdict is verdict for told in recent)
            assert getattr(shown.window, verdict.value) == count
        assert shown.in_flight == self.in_flight
        if shown.state is State.OPEN:
            assert shown.half_open_at > self.now
            assert shown.retry_after == shown.half_open_at - self.now
        assert shown.since <= self.now

    @invariant()
    def pybreaker_holds_the_same_state(self) -> None:
        held = self.breaker.cell.current_state
        assert held.replace("-", "_") == self.breaker.state.value
        assert self.breaker.cell.state.name == held
        assert isinstance(self.breaker.cell, pybreaker.CircuitBreaker)

    # The naive model.

    def expect_of_closed(self, outcome: Outcome) -> None:
        told = Told(self.now, outcome, late=False)
        if outcome.verdict is Verdict.SUCCESS:
            run = []
        elif outcome.verdict is Verdict.FAILURE:
            run = [*self.run, told]
        else:
            run = self.run
        tripped = self.breaker.state is State.OPEN
        self.told = [*self.told, told]
        self.run = run
        decided = outcome.verdict in (Verdict.SUCCESS, Verdict.FAILURE)
        assert tripped == (decided and self.rule_met())

    def rule_met(self) -> bool:
        settings = self.settings
        if 0 < settings.consecutive_failures <= self.counted(self.run):
            return True
        width = settings.window / 10
        timely = [
            told.outcome.verdict
            for told in self.told
            if not told.late and self.now // width - told.at // width < 10
        ]
        failures = timely.count(Verdict.FAILURE)
        calls = failures + timely.count(Verdict.SUCCESS)
        return (
            settings.failure_ratio > 0
            and failures > 0
            and calls >= settings.minimum_calls
            and failures / calls >= settings.failure_ratio
        )

    def counted(self, run: list[Told]) -> int:
        return sum(not getattr(told, "repeat", False) for told in self.marked(run))

    def marked(self, run: list[Told]) -> list[Told]:
        """Mark, once and with the settings of that moment, which of a run are repeats."""
        counted_at: dict[bytes, float] = {}
        for told in run:
            mark = told.outcome.fingerprint if told.outcome.kind is Kind.ANSWER else None
            if not hasattr(told, "repeat"):
                window = self.settings.repeat_window
                told.tracked = mark is not None and window > 0
                told.repeat = (
                    told.tracked and mark in counted_at and told.at - counted_at[mark] < window
                )
            if told.tracked and not told.repeat:
                counted_at[mark] = told.at
        return run

    def expect_of_probe(self, outcome: Outcome) -> None:
        if outcome.verdict is Verdict.FAILURE:
            assert self.breaker.state is State.OPEN
        elif outcome.verdict in (Verdict.THROTTLE, Verdict.NEUTRAL):
            assert self.breaker.state is State.HALF_OPEN
        else:
            assert self.breaker.state is not State.OPEN
        if self.breaker.state is not State.CLOSED:
            self.told.append(Told(self.now, outcome, late=False))

    def end_one(self, data) -> Running:
        call = data.draw(st.sampled_from(self.running))
        self.running.remove(call)
        self.ended.append(call.permit)
        self.left()
        return call

    def left(self) -> None:
        self.in_flight -= 1
        if not self.in_flight:
            self.idle_since = self.now

    def decay(self) -> None:
        limit = max(600.0, 3 * self.settings.first_byte)
        if not self.in_flight and self.now - self.idle_since >= limit:
            self.run = []

    def resize(self, window: float) -> None:
        width = self.settings.window / 10
        self.told = [told for told in self.told if self.now // width - told.at // width < 10]
        for told in self.told:
            told.at = told.at // width * width


TestMachine = Machine.TestCase
TestMachine.settings = hypothesis_settings(max_examples=150, stateful_step_count=60, deadline=None)
