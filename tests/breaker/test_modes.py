"""Modes: `observe` computes all and refuses nothing, `off` does neither."""

import pytest

from sidecar.breaker.breaker import Permit
from sidecar.breaker.model import Kind, Mode, Refusal, Settings, State
from sidecar.envelope.model import Verdict


class TestObserve:
    def test_everything_is_computed_and_nothing_refused(self, scene):
        at = scene(mode=Mode.OBSERVE)
        at.trip()
        permit = at.admit()
        assert permit.would_refuse.state is State.OPEN
        assert permit.would_refuse.mode is Mode.OBSERVE
        assert permit.would_refuse.retry_after == pytest.approx(30)
        assert not at.transitions[0].enforced

    def test_calls_that_pass_an_open_breaker_decide_nothing(self, scene):
        at = scene(mode=Mode.OBSERVE)
        at.trip()
        due = at.shown.half_open_at
        for verdict in (Verdict.FAILURE, Verdict.SUCCESS, Verdict.ALIVE) * 20:
            at.call(verdict)
        assert at.state is State.OPEN
        assert at.shown.half_open_at == due
        assert at.shown.window.failure == 25
        assert at.shown.consecutive_failures == 5

    def test_only_the_leases_decide_when_half_open(self, scene):
        at = scene(mode=Mode.OBSERVE, probes=1, successes=2)
        at.half_open()
        probe, *shadows = [at.admit() for _ in range(50)]
        assert probe.would_refuse is None
        assert all(shadow.would_refuse.state is State.HALF_OPEN for shadow in shadows)
        assert at.shown.probes_in_flight == 1
        for shadow in shadows[:25]:
            at.settle(shadow, Verdict.SUCCESS)
        for shadow in shadows[25:]:
            at.settle(shadow, Verdict.FAILURE)
        assert at.state is State.HALF_OPEN
        at.settle(probe, Verdict.SUCCESS)
        at.succeed()
        assert at.state is State.CLOSED

    def test_a_shadow_that_began_while_open_does_not_decide_when_half_open(self, scene):
        at = scene(mode=Mode.OBSERVE)
        at.trip(Kind.CONNECTION)
        shadow = at.admit()
        at.wait(30)
        at.settle(shadow, Verdict.SUCCESS)
        assert at.state is State.HALF_OPEN


class TestOff:
    def test_nothing_is_counted_or_refused(self, scene):
        at = scene(mode=Mode.OFF)
        at.fail(1000)
        assert at.moves == []
        assert at.shown.window.failure == 0
        assert at.shown.consecutive_failures == 0
        assert at.shown.in_flight == 0

    def test_an_open_breaker_that_is_switched_off_is_closed_and_forgets(self, scene):
        at = scene()
        at.trip()
        at.breaker.set_mode(Mode.OFF, at.now, at.now + 600, "it is wrong")
        assert at.state is State.CLOSED
        assert at.transitions[-1].reason == "switched off: it is wrong"
        at.fail(10)
        at.wait(600)
        assert at.shown.mode is Mode.ENFORCE
        assert at.shown.consecutive_failures == 0
        at.trip()
        assert at.refused()

    def test_a_call_that_began_before_it_was_switched_off_decides_nothing_after(self, scene):
        at = scene(consecutive_failures=1)
        permits = [at.admit() for _ in range(3)]
        at.breaker.set_mode(Mode.OFF, at.now, at.now + 1)
        at.settle(permits[0], Verdict.FAILURE)
        during = at.admit()
        at.wait(1)
        at.settle(permits[1], Verdict.FAILURE)
        assert at.state is State.CLOSED
        assert at.shown.window.failure == 1
        during.release(at.now)

    def test_by_configuration(self, scene):
        at = scene()
        at.trip()
        at.breaker.configure(Settings(mode=Mode.OFF), at.now)
        assert at.state is State.CLOSED
        assert isinstance(at.breaker.admit(at.now), Permit)
        at.breaker.configure(Settings(), at.now)
        assert at.shown.mode is Mode.ENFORCE


class TestOverride:
    def test_ends_by_itself(self, scene):
        at = scene()
        at.breaker.set_mode(Mode.OBSERVE, at.now, at.now + 60, "a new model")
        assert at.shown.mode_override.reason == "a new model"
        at.trip()
        at.admit().release(at.now)
        assert at.breaker.next_change(at.now) == at.now + 30
        at.wait(20)
        assert at.shown.mode is Mode.OBSERVE
        at.wait(40)
        assert at.shown.mode is Mode.ENFORCE
        assert at.shown.mode_override is None

    def test_lasts_until_reset(self, scene):
        at = scene()
        at.breaker.set_mode(Mode.OBSERVE, at.now)
        at.wait(1e6)
        assert at.shown.mode is Mode.OBSERVE
        at.breaker.reset(at.now)
        assert at.shown.mode is Mode.ENFORCE

    def test_stands_above_a_reload(self, scene):
        at = scene()
        at.breaker.set_mode(Mode.OBSERVE, at.now)
        at.breaker.configure(Settings(mode=Mode.OFF), at.now)
        assert at.shown.mode is Mode.OBSERVE

    def test_from_observe_to_enforce_an_open_breaker_begins_to_refuse(self, scene):
        at = scene(mode=Mode.OBSERVE)
        at.trip()
        at.breaker.set_mode(Mode.ENFORCE, at.now)
        assert isinstance(at.breaker.admit(at.now), Refusal)
