"""Open: nobody passes, for a time that is fixed once and that time alone ends."""

import pybreaker
import pytest

from sidecar.breaker.breaker import Permit
from sidecar.breaker.model import Kind, State
from sidecar.envelope.model import Verdict


def relapse(at, **details):
    """Let the open time pass and the probe fail."""
    at.wait(at.shown.retry_after)
    at.fail(**details)


def test_refuses_with_what_is_left_of_the_open_time(scene):
    at = scene(open_for=30.0)
    at.trip()
    assert at.refused().retry_after == pytest.approx(30.0)
    at.wait(12.5)
    assert at.refused().retry_after == pytest.approx(17.5)
    assert at.shown.retry_after == pytest.approx(17.5)


def test_f050_a_refusal_names_the_last_counted_failure_and_its_time(scene):
    at = scene()
    at.trip(status=503, code="overloaded")
    at.wait(1.2)
    at.breaker.tick(at.now)
    assert at.refused().reason == "5 failures in a row, last: 503 overloaded 1.2 s ago"
    assert at.transitions[0].reason == "5 failures in a row, last: 503 overloaded"


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ({"status": 500, "code": "500"}, "last: 500"),
        ({"kind": Kind.CONNECTION, "code": "connection_refused"}, "last: connection_refused"),
        ({"kind": Kind.TIMEOUT}, "last: timeout"),
    ],
)
def test_f050_the_words_fit_what_is_known(scene, details, words):
    at = scene()
    at.trip(**{"kind": Kind.ANSWER, **details})
    assert at.transitions[0].reason.endswith(words)


def test_f163_half_open_is_reached_without_any_call(scene):
    # Given an open breaker that nobody calls
    at = scene(open_for=30.0)
    at.trip()
    opened = at.now
    assert at.breaker.next_change(at.now) == opened + 30
    # When somebody only looks, long after
    at.wait(300)
    shown = at.shown
    # Then it has been half-open since the time that was announced
    assert shown.state is State.HALF_OPEN
    assert shown.since == shown.half_open_at == opened + 30
    assert at.transitions[-1].at == opened + 30
    assert shown.retry_after is None
    assert at.breaker.next_change(at.now) is None


def test_f163_a_tick_is_enough(scene):
    at = scene(open_for=30.0)
    at.trip()
    at.breaker.tick(at.now + 29.999)
    assert len(at.transitions) == 1
    at.breaker.tick(at.now + 30)
    at.breaker.tick(at.now + 30)
    assert at.moves == [(State.CLOSED, State.OPEN), (State.OPEN, State.HALF_OPEN)]


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_f043_the_wall_clock_moves_nothing(scene, monkeypatch, step):
    # Given a wall clock that is stepped while the breaker is open
    at = scene(open_for=2.0)
    real = pybreaker.datetime

    class Stepped(real):
        @classmethod
        def now(cls, zone=None):
            return real.now(zone) + pybreaker.timedelta(seconds=step)

    at.trip()
    monkeypatch.setattr(pybreaker, "datetime", Stepped)
    at.wait(1.9)
    assert 0 <= at.refused().retry_after <= 2.0
    at.wait(0.1)
    assert isinstance(at.breaker.admit(at.now), Permit)


def test_the_open_time_doubles_with_each_failed_probe_up_to_its_maximum(scene):
    at = scene(open_for=30.0, open_max=300.0)
    at.trip()
    seen = []
    for _ in range(6):
        seen.append(at.shown.retry_after)
        relapse(at)
    assert seen == pytest.approx([30, 60, 120, 240, 300, 300])


def test_closing_ends_the_doubling(scene):
    at = scene(open_for=30.0)
    at.trip()
    relapse(at)
    at.wait(60)
    at.succeed(2)
    assert at.state is State.CLOSED
    at.trip()
    assert at.shown.retry_after == pytest.approx(30)


def test_a_year_of_failed_probes_overflows_nothing(scene):
    at = scene()
    at.trip()
    for _ in range(5000):
        relapse(at)
    assert at.shown.retry_after == pytest.approx(300)
    assert at.shown.opens == 5001


@pytest.mark.parametrize(("drawn", "expected"), [(0.0, 30.0), (0.5, 33.0), (1.0, 36.0)])
def test_f042_the_open_time_is_100_to_120_percent(scene, drawn, expected):
    at = scene(random=lambda: drawn)
    at.trip()
    assert at.shown.retry_after == pytest.approx(expected)


def test_f042_probes_of_three_sidecars_are_spread_even_at_the_maximum(scene):
    # Given three sidecars that saw the same ten minutes of outage
    at = []
    for drawn in (0.1, 0.5, 0.9):
        one = scene(random=lambda drawn=drawn: drawn)
        one.trip(Kind.TIMEOUT)
        for _ in range(8):
            relapse(one, kind=Kind.TIMEOUT)
        at.append(one)
    waits = [one.shown.retry_after for one in at]
    # Then none of them asks again at the same moment, nor before the full time
    assert waits == pytest.approx([306, 330, 354])


def test_an_upstreams_wait_is_a_floor(scene):
    at = scene(open_for=30.0)
    at.trip(retry_after=120.0)
    assert at.shown.retry_after == pytest.approx(120)
    assert at.shown.hint == 120.0
    assert at.transitions[0].retry_after == pytest.approx(120)


def test_an_upstreams_wait_is_never_a_ceiling(scene):
    at = scene(open_for=30.0)
    at.trip(retry_after=1.0)
    assert at.shown.retry_after == pytest.approx(30)


@pytest.mark.parametrize("asked", [568157.0, float("inf")])
def test_an_upstreams_wait_is_capped_and_shown_as_given(scene, asked):
    at = scene(retry_after_max=3600.0)
    at.trip(retry_after=asked)
    assert at.shown.retry_after == pytest.approx(3600)
    assert at.shown.hint == asked


@pytest.mark.parametrize("asked", [float("nan"), -5.0, 0.0, None])
def test_a_wait_that_means_nothing_is_none(scene, asked):
    at = scene()
    at.trip(retry_after=asked)
    assert at.shown.retry_after == pytest.approx(30)
    assert at.shown.hint is None


@pytest.mark.parametrize("order", [(40.0, 600.0), (600.0, 40.0)])
def test_f045_of_several_waits_the_latest_end_counts_in_any_order(scene, order):
    at = scene()
    at.fail(3)
    for asked in order:
        at.fail(retry_after=asked)
        at.wait(0.2)
    assert at.state is State.OPEN
    opened = at.transitions[0].at
    first_asked = opened - 0.2 if order[0] == 600 else opened
    assert at.shown.half_open_at == pytest.approx(first_asked + 600)
    assert at.shown.hint == 600.0


def test_a_failed_probes_wait_is_a_floor_for_the_next_open_time(scene):
    at = scene()
    at.trip(retry_after=100.0)
    relapse(at, retry_after=500.0)
    assert at.shown.retry_after == pytest.approx(500)
    relapse(at)
    assert at.shown.retry_after == pytest.approx(120)
    assert at.shown.hint is None


def test_f045_a_late_failure_never_pushes_the_deadline_out(scene):
    # Given two calls that began before the breaker opened
    at = scene()
    late = [at.admit(), at.admit(), at.admit()]
    at.trip()
    due = at.shown.half_open_at
    # When they fail while it is open, with an hour's wait
    for permit in late:
        at.wait(1)
        at.settle(permit, Verdict.FAILURE, retry_after=3600.0)
    # Then only the figures know
    assert at.shown.half_open_at == due
    assert at.shown.window.failure == 8
    assert at.shown.consecutive_failures == 5
    assert len(at.transitions) == 1


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_verdict_of_an_earlier_epoch_moves_nothing(scene, verdict):
    at = scene(probes=3)
    late = [at.admit() for _ in range(40)]
    at.half_open(Kind.CONNECTION)
    for permit in late[:20]:
        at.settle(permit, verdict, kind=Kind.CONNECTION)
    assert at.state is State.HALF_OPEN
    assert at.shown.probes_in_flight == 0
    at.succeed()
    assert at.state is State.CLOSED
    for permit in late[20:]:
        at.settle(permit, verdict, kind=Kind.CONNECTION)
    assert at.state is State.CLOSED
    assert at.shown.consecutive_failures == 0


def test_late_failures_do_not_open_a_closed_again_breaker_by_the_next_call_either(scene):
    # Given forty streams that began before the outage and break after it
    at = scene()
    late = [at.admit() for _ in range(40)]
    at.half_open(Kind.CONNECTION)
    at.succeed()
    for permit in late:
        at.settle(permit, Verdict.FAILURE)
    assert at.shown.window.failure == 40
    # When one call of the new epoch fails
    at.fail()
    # Then the ratio of the new epoch decides, not theirs
    assert at.state is State.CLOSED


def test_old_failures_do_not_open_a_closed_again_breaker(scene):
    at = scene(open_for=1.0)
    at.trip()
    at.wait(1)
    at.succeed(2)
    assert at.state is State.CLOSED
    assert at.shown.window.failure == 0
    at.fail(4)
    assert at.state is State.CLOSED
    at.fail()
    assert at.state is State.OPEN


def test_the_threshold_is_the_same_on_each_cycle(scene):
    at = scene(open_for=1.0)
    for cycle in range(1, 20):
        at.fail(4)
        assert at.state is State.CLOSED
        at.fail()
        assert at.shown.opens == cycle
        at.wait(1)
        at.succeed(2)


def test_opening_is_announced_once_and_shown(scene):
    at = scene()
    at.trip(status=502, code="bad_gateway")
    (transition,) = at.transitions
    assert transition.key == "openai/gpt-x"
    assert transition.provider == "openai"
    assert transition.enforced
    shown = at.shown
    assert shown.opens == 1
    assert shown.opened_at == shown.since == at.now
    assert shown.reason == transition.reason
    assert shown.last_error.status == 502
    assert shown.last_error.code == "bad_gateway"
    assert at.breaker.cell.current_state == pybreaker.STATE_OPEN
