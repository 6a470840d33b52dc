"""Half-open: a few probes at a time decide, and no way of ending one wedges it."""

import pytest

from sidecar.breaker.breaker import PROBE_HINT, Permit
from sidecar.breaker.model import Kind, Refusal, State
from sidecar.envelope.model import Verdict


@pytest.mark.parametrize("probes", [1, 3])
def test_f036_of_many_callers_only_the_probes_pass(scene, probes):
    at = scene(probes=probes)
    at.half_open()
    answers = [at.breaker.admit(at.now) for _ in range(200)]
    assert sum(isinstance(answer, Permit) for answer in answers) == probes
    assert at.shown.probes_in_flight == probes
    refusals = [answer for answer in answers if isinstance(answer, Refusal)]
    assert {refusal.retry_after for refusal in refusals} == {PROBE_HINT}
    assert refusals[0].state is State.HALF_OPEN
    assert "5 failures in a row" in refusals[0].reason


def test_successes_close_it(scene):
    at = scene(successes=2)
    at.half_open()
    at.succeed()
    assert at.state is State.HALF_OPEN
    at.succeed()
    assert at.state is State.CLOSED
    shown = at.shown
    assert shown.opened_at is shown.half_open_at is shown.retry_after is None
    assert shown.reason == "probes succeeded: 2"


@pytest.mark.parametrize("kind", [Kind.CONNECTION, Kind.TIMEOUT])
def test_one_success_closes_what_silence_had_opened(scene, kind):
    at = scene(successes=2)
    at.half_open(kind)
    at.succeed()
    assert at.state is State.CLOSED


def test_the_kind_of_the_last_failure_decides_how_many_are_needed(scene):
    at = scene(successes=2)
    at.fail(4, kind=Kind.CONNECTION)
    at.fail()
    at.wait(30)
    at.succeed()
    assert at.state is State.HALF_OPEN
    at.fail(kind=Kind.TIMEOUT)
    at.wait(60)
    at.succeed()
    assert at.state is State.CLOSED


def test_f038_one_failed_probe_opens_it_again_from_its_end(scene):
    at = scene(open_for=30.0)
    at.half_open()
    at.fail(lasting=12.0)
    assert at.state is State.OPEN
    assert at.shown.retry_after == pytest.approx(60)
    for _ in range(10):
        at.refused()


def test_a_success_before_does_not_excuse_a_failed_probe(scene):
    at = scene(successes=3)
    at.half_open()
    at.succeed(2)
    at.fail()
    assert at.state is State.OPEN
    at.wait(60)
    at.succeed(2)
    assert at.state is State.HALF_OPEN


@pytest.mark.parametrize("kind", [Kind.CONNECTION, Kind.TIMEOUT])
def test_an_answer_of_any_sort_closes_what_silence_had_opened(scene, kind):
    at = scene()
    at.half_open(kind)
    at.call(Verdict.ALIVE, status=401, code="invalid_api_key")
    assert at.state is State.CLOSED
    assert at.transitions[-1].reason == "it answers again: 401 invalid_api_key"


def test_an_answer_of_any_sort_does_not_close_what_answers_had_opened(scene):
    at = scene()
    at.half_open(Kind.ANSWER)
    for _ in range(100):
        at.call(Verdict.ALIVE)
    assert at.state is State.HALF_OPEN
    assert at.shown.probes_in_flight == 0


@pytest.mark.parametrize("verdict", [Verdict.THROTTLE, Verdict.NEUTRAL])
@pytest.mark.parametrize("kind", list(Kind))
def test_a_throttle_or_a_neutral_end_frees_the_probe_and_decides_nothing(scene, verdict, kind):
    at = scene()
    at.half_open(kind)
    for _ in range(100):
        at.call(verdict)
    assert at.state is State.HALF_OPEN
    assert at.shown.probes_in_flight == 0
    at.succeed(2)
    assert at.state is State.CLOSED


def test_f033_a_cancelled_probe_makes_room_for_the_next(scene):
    # Given a probe whose caller hangs up
    at = scene(successes=1)
    at.half_open()
    probe = at.admit()
    at.refused()
    at.wait(0.2)
    probe.release(at.now)
    # Then the next call is the probe, at once, and may close it
    at.succeed()
    assert at.state is State.CLOSED


def test_f033_the_same_told_as_neutral(scene):
    at = scene(successes=1)
    at.half_open()
    at.call(Verdict.NEUTRAL, lasting=0.2)
    at.succeed()
    assert at.state is State.CLOSED


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("verdict", [*Verdict, "release", "leak"])
def test_f034_f046_whatever_ends_a_probe_a_further_call_passes(scene, verdict, kind):
    # Given a probe that ends in this way
    at = scene(open_for=30.0, first_byte=10.0)
    at.half_open(kind)
    probe = at.admit()
    if verdict == "release":
        probe.release(at.now)
    elif verdict != "leak":
        at.settle(probe, verdict, kind=kind)
    # Then time alone lets a further call through
    at.wait(61)
    assert isinstance(at.breaker.admit(at.now), Permit)


@pytest.mark.parametrize(("first_byte", "lease"), [(10.0, 60.0), (590.0, 590.0)])
def test_f034_a_lost_lease_expires_by_itself(scene, first_byte, lease):
    at = scene(first_byte=first_byte)
    at.half_open()
    at.admit()
    at.wait(lease - 1)
    assert at.refused()
    assert at.shown.probes_in_flight == 1
    at.wait(1)
    assert at.shown.probes_in_flight == 0
    at.admit()
    at.refused()


def test_a_probe_that_outlives_its_lease_still_decides(scene):
    # Given an upstream that hangs for longer than the lease (connect 5 s + first byte 590 s)
    at = scene(first_byte=590.0)
    at.half_open(Kind.TIMEOUT)
    probe = at.admit()
    at.wait(595)
    at.settle(probe, Verdict.FAILURE, kind=Kind.TIMEOUT)
    # Then its timeout opens the breaker again; else a hanging upstream would never be doubled for
    assert at.state is State.OPEN
    assert at.shown.retry_after == pytest.approx(60)


def test_probes_beside_a_failed_one_decide_nothing(scene):
    at = scene(probes=3, successes=2)
    at.half_open()
    probes = [at.admit() for _ in range(3)]
    at.settle(probes[0], Verdict.FAILURE)
    due = at.shown.half_open_at
    at.wait(1)
    at.settle(probes[1], Verdict.SUCCESS)
    at.settle(probes[2], Verdict.FAILURE)
    assert at.shown.half_open_at == due
    at.wait(60)
    assert at.shown.probes_in_flight == 0
    at.succeed()
    assert at.state is State.HALF_OPEN


def test_fewer_probes_after_a_reload_apply_to_the_next_ones(scene):
    at = scene(probes=3)
    at.half_open()
    probes = [at.admit() for _ in range(3)]
    at.breaker.configure(type(at.settings)(probes=1), at.now)
    probes[0].release(at.now)
    at.refused()
    probes[1].release(at.now)
    probes[2].release(at.now)
    at.admit()
    at.refused()
