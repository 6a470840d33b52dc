"""No order of permits, reports, expiries and reloads loses a call or counts one twice.

The model beside it keeps a list of every permit that was ever given, and what became of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sidecar.breaker.model import Refusal, State
from sidecar.config.resolved import Dependency
from sidecar.dependencies import guard, permits
from sidecar.dependencies.guard import Reported, UnknownDependencyError
from sidecar.dependencies.permits import Lease, Trouble
from sidecar.envelope.meaning import Meaning, classified
from sidecar.envelope.model import Classified, ErrorClass, Source, Verdict
from sidecar.envelope.raised import Raised

from .conftest import Scene, dependency

NAMES = ("db", "cache", "pay")
STEPS = st.one_of(st.just(0.0), st.floats(0, 5), st.floats(0, 100), st.floats(0, 4000))
DEPENDENCIES = st.builds(
    lambda source, system, mode, lease, probes: dict(
        source=source,
        **({"vendor": system} if source == "database" else {"sdk": system}),
        mode=mode,
        lease=lease,
        breaker={"probes": probes},
    ),
    st.sampled_from(["database", "sdk"]),
    st.sampled_from([None, "one", "two"]),
    st.sampled_from(["enforce", "enforce", "observe", "off"]),
    st.sampled_from([1.0, 50.0, 600.0]),
    st.integers(1, 2),
)
CONFIGURATIONS = st.dictionaries(st.sampled_from(NAMES), DEPENDENCIES, min_size=1)
VERDICTS = st.sampled_from([Verdict.FAILURE, Verdict.FAILURE, Verdict.ALIVE, Verdict.THROTTLE])


def judged(raised: Raised, **more: Any) -> Classified:
    """Stands in for the classifications: the verdict is what the exception says."""
    meaning = Meaning(
        class_=ErrorClass.TRANSIENT, retryable=True, verdict=Verdict(raised.message), rule="told"
    )
    return classified(
        raised,
        meaning,
        source=Source.DATABASE,
        code=raised.type,
        message="",
        correlation_id=more["correlation_id"],
    )


@dataclass
class Given:
    """A permit as the model remembers it."""

    id: str
    name: str
    expires_at: float
    settled: list[Verdict]
    state: str = "open"


class Machine(RuleBasedStateMachine):
    @initialize(configuration=CONFIGURATIONS)
    def begin(self, configuration: dict[str, Any]) -> None:
        self.patches = [
            mock.patch.object(guard.database, "classify", judged),
            mock.patch.object(guard.sdk, "classify", judged),
            mock.patch.object(permits, "MOST_OPEN", 6),
            mock.patch.object(permits, "REMEMBERED", 10_000),
        ]
        for patch in self.patches:
            patch.start()
        self.configured: dict[str, Dependency] = {}
        self.given: list[Given] = []
        self.told = self.failed = self.expired = self.refused = 0
        self.scene = Scene()
        self.admit, self.scene.registry.admit = self.scene.registry.admit, self.spied
        self.spying: list[Verdict] = []
        self.reload(configuration)

    def teardown(self) -> None:
        for patch in getattr(self, "patches", ()):
            patch.stop()

    def spied(self, name: str, subject: str | None, now: float) -> Any:
        """The real admission, with what it is told written down."""
        admitted = self.admit(name, subject, now)
        if isinstance(admitted, Refusal):
            return admitted
        heard: list[Verdict] = []
        self.spying = heard
        spy = mock.Mock(wraps=admitted, would_refuse=admitted.would_refuse)

        def settle(outcome: Any, at: float) -> None:
            heard.append(outcome.verdict)
            admitted.settle(outcome, at)

        spy.settle = settle
        return spy

    # What may happen.

    @rule(name=st.sampled_from(NAMES))
    def permit(self, name: str) -> None:
        if name not in self.configured:
            try:
                self.scene.ask(name)
            except UnknownDependencyError:
                return
            raise AssertionError
        self.expire(name)
        waiting = self.waiting(name)
        given = self.scene.ask(name, f"c-{len(self.given)}")
        if not isinstance(given, Lease):
            self.refused += 1
            assert self.configured[name].mode == "enforce"
            assert given.envelope.code == "breaker_open"
            assert given.envelope.retry_after > 0
            return
        assert all(given.id != one.id for one in self.given), "one permit twice"
        if len(waiting) >= 6:
            self.over(waiting[0])
        expires_at = self.scene.now + self.configured[name].lease
        self.given.append(Given(given.id, name, expires_at, self.spying))

    @precondition(lambda self: self.given)
    @rule(data=st.data(), verdict=st.one_of(st.none(), VERDICTS), name=st.sampled_from(NAMES))
    def report(self, data: st.DataObject, verdict: Verdict | None, name: str) -> None:
        one = data.draw(st.sampled_from(self.given))
        self.say(one, one.name if data.draw(st.booleans()) else name, verdict)

    @rule(verdict=st.one_of(st.none(), VERDICTS), name=st.sampled_from(NAMES), made=st.text())
    def report_what_was_never_given(self, verdict: Verdict | None, name: str, made: str) -> None:
        self.expire(name)
        reported = self.tell(f"{name}.{made}x", name, verdict)
        if reported is not None:
            assert reported.trouble is Trouble.UNKNOWN
            self.count(verdict)

    def say(self, one: Given, name: str, verdict: Verdict | None) -> None:
        self.expire(one.name)
        before, settled = one.state, list(one.settled)
        if before == "expired":
            settled = [Verdict.NEUTRAL]
        reported = self.tell(one.id, name, verdict)
        if reported is None:
            assert one.settled == settled
            return
        assert reported.classified.verdict is (verdict or Verdict.SUCCESS)
        if before != "open":
            expected = Trouble.REPORTED if before == "reported" else Trouble.EXPIRED
        elif name != one.name:
            expected = Trouble.FOREIGN
        else:
            expected = None
            one.state = "reported"
            settled = [verdict or Verdict.SUCCESS]
        assert reported.trouble is expected
        assert one.settled == settled
        if expected in (None, Trouble.EXPIRED):
            self.count(verdict)

    def tell(self, permit: str, name: str, verdict: Verdict | None) -> Reported | None:
        error = None if verdict is None else Raised(type="x.Y", message=verdict.value)
        try:
            reported = self.scene.report(permit, error, name)
        except UnknownDependencyError:
            assert name not in self.configured
            return None
        assert (reported.snapshot is None) == (name not in self.configured)
        return reported

    def count(self, verdict: Verdict | None) -> None:
        self.told += 1
        self.failed += verdict is not None

    @rule(step=STEPS)
    def time_passes(self, step: float) -> None:
        self.scene.now += step

    @rule()
    def tick(self) -> None:
        for name in NAMES:
            self.expire(name)
        self.scene.dependencies.tick(self.scene.now)

    @rule(configuration=CONFIGURATIONS)
    def reload(self, configuration: dict[str, Any]) -> None:
        now = self.scene.now
        self.configured = {name: dependency(name, **one) for name, one in configuration.items()}
        for one in self.given:
            if one.state == "open" and one.name in self.configured:
                one.expires_at = min(one.expires_at, now + self.configured[one.name].lease)
        self.scene.reload(*self.configured.values())

    @rule()
    def everything_ends(self) -> None:
        """Whatever has happened, after the longest lease nothing is held any more."""
        self.scene.now += 601.0
        self.tick()
        for name in NAMES:
            assert self.scene.dependencies.in_flight(name) == 0
        for one in self.given:
            assert len(one.settled) == 1, "settled exactly once"

    # What has to be true.

    @invariant()
    def nothing_is_settled_twice(self) -> None:
        for one in self.given:
            assert len(one.settled) == (one.state != "open")

    @invariant()
    def every_call_is_told_once(self) -> None:
        scene = self.scene
        assert len(scene.told("reported")) == self.told
        assert len(scene.told("expired")) == self.expired
        assert len(scene.told("breaker_open")) == self.refused
        failed = [call for call in scene.told("reported") if call.envelope is not None]
        assert len(failed) == self.failed

    @invariant()
    def what_is_held_is_what_waits(self) -> None:
        for name in NAMES:
            assert self.scene.dependencies.in_flight(name) == len(self.waiting(name))
            if name in self.configured:
                shown = self.scene.shown(name)
                # A replaced breaker left its calls behind.
                assert shown.in_flight <= len(self.waiting(name))
                if shown.state is State.HALF_OPEN and shown.mode == "enforce":
                    assert shown.probes_in_flight <= 2

    # The naive model.

    def waiting(self, name: str) -> list[Given]:
        return [one for one in self.given if one.name == name and one.state == "open"]

    def expire(self, name: str) -> None:
        for one in self.waiting(name):
            if one.expires_at <= self.scene.now:
                self.over(one)

    def over(self, one: Given) -> None:
        one.state = "expired"
        self.expired += 1


# The model expires when it asks; the real one when it is asked, so invariants look after a rule.
TestMachine = pytest.mark.interpreted(Machine.TestCase)
TestMachine.settings = hypothesis_settings(max_examples=150, stateful_step_count=50, deadline=None)
