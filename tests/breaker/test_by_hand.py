"""What an operator does by hand: forced open or closed, and reset."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sidecar.breaker.breaker import Breaker, Permit
from sidecar.breaker.model import Kind, Mode, Outcome, Settings, State
from sidecar.envelope.model import Verdict


class TestForcedOpen:
    def test_is_held_for_its_time_and_comes_back_through_a_probe(self, scene):
        at = scene()
        at.breaker.force(State.OPEN, at.now, at.now + 600, "upgrade")
        refusal = at.refused()
        assert refusal.retry_after == pytest.approx(600)
        assert refusal.reason == "forced open: upgrade"
        assert at.shown.forced.value is State.OPEN
        assert at.shown.forced.until == at.now + 600
        assert at.shown.reason == "forced open: upgrade"
        at.wait(600)
        assert at.state is State.HALF_OPEN
        assert at.shown.forced is None
        at.succeed()
        assert at.state is State.CLOSED

    @pytest.mark.parametrize("verdict", [Verdict.SUCCESS, Verdict.ALIVE])
    def test_any_answer_ends_what_no_failure_had_begun(self, scene, verdict):
        at = scene()
        at.fail(4)
        at.breaker.force(State.OPEN, at.now, at.now + 10)
        at.wait(10)
        at.call(verdict)
        assert at.state is State.CLOSED

    def test_names_no_failure_that_did_not_open_it(self, scene):
        at = scene()
        at.fail(4)
        at.breaker.force(State.OPEN, at.now, at.now + 10, "upgrade")
        at.wait(10)
        at.admit()
        assert at.refused().reason == "half-open, 1 under way to probe it; forced open: upgrade"

    def test_is_held_for_ever_without_a_time(self, scene):
        at = scene(open_max=300.0)
        at.breaker.force(State.OPEN, at.now)
        at.wait(1e7)
        assert at.refused().retry_after == 300.0
        assert at.shown.half_open_at is at.shown.retry_after is None
        assert at.transitions[-1].retry_after is None
        assert at.breaker.next_change(at.now) is None

    def test_f051_survives_a_reload(self, scene):
        at = scene()
        at.breaker.force(State.OPEN, at.now, reason="region blocked")
        at.breaker.configure(Settings(consecutive_failures=50), at.now)
        assert at.refused()
        assert at.shown.forced.reason == "region blocked"

    def test_never_shortens_an_open_time_that_runs(self, scene):
        at = scene()
        at.trip(retry_after=100.0)
        at.breaker.force(State.OPEN, at.now, at.now + 10, "by hand")
        assert at.refused().retry_after == pytest.approx(100)
        at.wait(10)
        assert at.state is State.OPEN
        assert at.shown.forced is None
        assert at.shown.reason == "5 failures in a row, last: answer"
        at.wait(90)
        assert at.state is State.HALF_OPEN
        assert len(at.transitions) == 2

    def test_can_be_shortened_by_hand_again(self, scene):
        at = scene()
        at.breaker.force(State.OPEN, at.now)
        at.breaker.force(State.OPEN, at.now, at.now + 5)
        assert at.refused().retry_after == pytest.approx(5)

    def test_calls_in_flight_decide_nothing(self, scene):
        at = scene()
        permits = [at.admit() for _ in range(20)]
        at.breaker.force(State.OPEN, at.now, at.now + 5)
        for permit in permits[:10]:
            at.settle(permit, Verdict.SUCCESS)
        assert at.state is State.OPEN
        at.wait(5)
        for permit in permits[10:]:
            at.settle(permit, Verdict.FAILURE)
        assert at.state is State.HALF_OPEN

    def test_of_a_half_open_breaker_keeps_what_had_opened_it(self, scene):
        at = scene(successes=2)
        at.half_open(Kind.ANSWER)
        at.breaker.force(State.OPEN, at.now, at.now + 5)
        at.wait(5)
        at.succeed()
        assert at.state is State.HALF_OPEN
        at.succeed()
        assert at.state is State.CLOSED

    def test_refuses_nobody_in_observe_or_off(self, scene):
        at = scene(mode=Mode.OBSERVE)
        at.breaker.force(State.OPEN, at.now, at.now + 60)
        assert at.admit().would_refuse.reason == "forced open"
        at.breaker.set_mode(Mode.OFF, at.now, at.now + 10)
        assert at.admit().would_refuse is None
        assert at.shown.forced is not None
        at.wait(10)
        assert at.admit().would_refuse.reason == "forced open"

    def test_that_ends_while_off_leaves_it_closed(self, scene):
        at = scene()
        at.breaker.force(State.OPEN, at.now, at.now + 60)
        at.breaker.set_mode(Mode.OFF, at.now)
        at.wait(60)
        assert at.state is State.CLOSED


class TestForcedClosed:
    def test_closes_now(self, scene):
        at = scene()
        at.trip()
        at.breaker.force(State.CLOSED, at.now, reason="they say it is mended")
        assert at.state is State.CLOSED
        assert at.transitions[-1].reason == "forced closed: they say it is mended"
        assert at.shown.forced is None
        at.trip()

    def test_is_held_for_its_time(self, scene):
        at = scene()
        at.trip()
        at.breaker.force(State.CLOSED, at.now, at.now + 60, "drill")
        at.fail(50)
        assert at.state is State.CLOSED
        assert at.shown.consecutive_failures == 50
        assert at.shown.forced.value is State.CLOSED
        assert at.shown.reason == "forced closed: drill"
        at.wait(60)
        assert at.state is State.CLOSED
        assert at.shown.forced is None
        at.fail()
        assert at.state is State.OPEN

    def test_ends_a_forced_open(self, scene):
        at = scene()
        at.breaker.force(State.OPEN, at.now)
        at.breaker.force(State.CLOSED, at.now)
        assert at.state is State.CLOSED
        assert at.shown.forced is None


class TestReset:
    def test_f051_zeroes_everything(self, scene):
        at = scene()
        at.half_open()
        at.fail()
        at.breaker.set_mode(Mode.OBSERVE, at.now)
        at.breaker.force(State.OPEN, at.now)
        at.breaker.reset(at.now, "path fixed")
        shown = at.shown
        assert shown.state is State.CLOSED
        assert shown.reason == at.transitions[-1].reason == "reset: path fixed"
        assert (shown.consecutive_failures, shown.window.failure) == (0, 0)
        assert shown.forced is shown.mode_override is None
        assert shown.mode is Mode.ENFORCE
        at.trip()
        assert at.shown.retry_after == pytest.approx(30)

    def test_of_a_closed_breaker_forgets_and_announces_nothing(self, scene):
        at = scene()
        late = at.admit()
        at.fail(4)
        at.breaker.reset(at.now)
        assert at.moves == []
        assert at.shown.consecutive_failures == 0
        at.settle(late, Verdict.FAILURE)
        assert at.shown.consecutive_failures == 0

    def test_takes_the_place_of_an_older_order_as_the_reason(self, scene):
        at = scene()
        at.breaker.force(State.OPEN, at.now)
        at.breaker.force(State.CLOSED, at.now)
        assert at.shown.reason == "forced closed"
        at.breaker.reset(at.now)
        assert at.shown.reason == "reset"

    def test_to_a_configured_off(self, scene):
        at = scene(mode=Mode.OFF)
        at.breaker.set_mode(Mode.ENFORCE, at.now)
        at.trip()
        at.breaker.reset(at.now)
        assert at.shown.mode is Mode.OFF
        assert at.state is State.CLOSED


def test_nobody_can_force_it_half_open(scene):
    with pytest.raises(ValueError, match="half-open"):
        scene().breaker.force(State.HALF_OPEN, 1000.0)


HANDS = st.lists(
    st.tuples(
        st.sampled_from(
            ["open", "close", "reset", "enforce", "observe", "off", "reload", "fail", "admit"]
        ),
        st.one_of(st.none(), st.floats(0, 100)),
        st.sampled_from([0.0, 1.0, 29.0, 31.0]),
    ),
    max_size=40,
)


@given(steps=HANDS)
@hypothesis_settings(deadline=None)
def test_whatever_is_done_by_hand_for_a_time_comes_to_its_end(steps):
    # Given any order of what an operator may do, holds without an end left out
    transitions = []
    breaker = Breaker("p/m", Settings(), transitions.append, random=lambda: 0.5)
    now, running = 0.0, []
    for what, seconds, step in steps:
        now += step
        until = now + (50.0 if seconds is None else seconds)
        if what == "open":
            breaker.force(State.OPEN, now, until)
        elif what == "close":
            breaker.force(State.CLOSED, now, None if seconds is None else until)
        elif what == "reset":
            breaker.reset(now)
        elif what == "reload":
            breaker.configure(Settings(mode=Mode.OFF if seconds is None else Mode.ENFORCE), now)
        elif what in tuple(Mode):
            breaker.set_mode(Mode(what), now, until)
        else:
            for _ in range(6):
                permit = breaker.admit(now)
                if what == "fail" and isinstance(permit, Permit):
                    permit.settle(Outcome(Verdict.FAILURE), now)
                else:
                    running.append(permit)
        held = breaker.cell.current_state.replace("-", "_")
        assert held == breaker.state.value
        if breaker.mode is Mode.OFF and breaker.snapshot(now).forced is None:
            assert breaker.state is State.CLOSED
    # Then once all of it is over, a call passes and nothing is left of it
    now += 10_000
    assert isinstance(breaker.admit(now), Permit)
    shown = breaker.snapshot(now)
    assert shown.forced is shown.mode_override is None
    # And each transition began where the one before had ended
    assert all(a.new is b.old and a.at <= b.at for a, b in pairwise(transitions))
