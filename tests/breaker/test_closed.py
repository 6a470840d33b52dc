"""Closed: every call passes, and what opens it is exactly what is configured."""

import pytest

from sidecar.breaker.model import Kind, State
from sidecar.envelope.model import Verdict

NO_RATIO = {"failure_ratio": 0.0}
NO_RUN = {"consecutive_failures": 0}
NO_EVIDENCE = [Verdict.ALIVE, Verdict.THROTTLE, Verdict.NEUTRAL]


@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_opens_at_exactly_the_configured_run(scene, count):
    # Given a breaker without the ratio rule
    at = scene(consecutive_failures=count, **NO_RATIO)
    # When one failure less than configured has happened
    at.fail(count - 1)
    # Then it is closed, and the next one opens it
    assert at.state is State.CLOSED
    assert at.shown.consecutive_failures == count - 1
    at.fail()
    assert at.state is State.OPEN
    assert at.moves == [(State.CLOSED, State.OPEN)]


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize(("pause", "lasting"), [(0, 0), (300, 0), (0, 590), (540, 590), (1700, 60)])
def test_f030_slow_and_lonely_failures_add_up(scene, kind, pause, lasting):
    # Given failures minutes apart and minutes long, each alone in its window
    at = scene()
    for _ in range(4):
        at.fail(kind=kind)
        at.wait(pause)
        permit = at.admit()
        at.wait(lasting)
        permit.release(at.now)
    # When the run is one short of five, no time between has cost it a count
    assert at.shown.consecutive_failures == 4
    permit = at.admit()
    at.wait(lasting)
    at.settle(permit, Verdict.FAILURE, kind=kind)
    # Then the fifth opens it
    assert at.state is State.OPEN


def test_f030_three_parallel_callers_of_a_hanging_upstream(scene):
    # Given a window shorter than one call takes
    at = scene(window=10.0, first_byte=12.0)
    failures = 0
    while at.state is State.CLOSED:
        permits = [at.admit() for _ in range(3)]
        at.wait(12.0)
        for permit in permits:
            failures += at.state is State.CLOSED
            at.settle(permit, Verdict.FAILURE, kind=Kind.TIMEOUT)
    # Then it takes the configured count and no more
    assert failures == 5


@pytest.mark.parametrize(("first_byte", "limit"), [(10.0, 600.0), (590.0, 1770.0)])
def test_a_run_decays_after_a_long_time_without_any_call(scene, first_byte, limit):
    at = scene(first_byte=first_byte)
    at.fail(4)
    at.wait(limit - 1)
    assert at.shown.consecutive_failures == 4
    at.wait(1)
    assert at.shown.consecutive_failures == 0
    at.fail()
    assert at.shown.consecutive_failures == 1


def test_a_run_does_not_decay_while_a_call_is_in_flight(scene):
    at = scene()
    at.fail(4)
    permit = at.admit()
    at.wait(10_000)
    assert at.shown.consecutive_failures == 4
    at.settle(permit, Verdict.FAILURE)
    assert at.state is State.OPEN


def test_a_success_clears_the_run(scene):
    at = scene(**NO_RATIO)
    for _ in range(50):
        at.fail(4)
        at.succeed()
        assert at.shown.consecutive_failures == 0
    assert at.moves == []


@pytest.mark.parametrize("verdict", NO_EVIDENCE)
def test_what_is_no_evidence_neither_counts_nor_resets(scene, verdict):
    at = scene()
    at.fail(4)
    for _ in range(1000):
        at.call(verdict)
    assert at.state is State.CLOSED
    assert at.shown.consecutive_failures == 4
    at.fail()
    assert at.state is State.OPEN


@pytest.mark.parametrize("verdict", NO_EVIDENCE)
def test_what_is_no_evidence_does_not_dilute_the_ratio(scene, verdict):
    at = scene(**NO_RUN)
    for _ in range(9):
        at.fail()
        for _ in range(20):
            at.call(verdict)
    assert at.state is State.CLOSED
    at.fail()
    assert at.state is State.OPEN


def test_opens_by_ratio_at_exactly_the_minimum_of_calls(scene):
    # Given failures and successes in turn, so that no run comes about
    at = scene(minimum_calls=10, failure_ratio=0.5)
    for _ in range(4):
        at.fail()
        at.succeed()
    at.fail()
    assert at.state is State.CLOSED
    # When the tenth decided call comes in, though it is a success
    at.succeed()
    # Then half of ten calls have failed
    assert at.state is State.OPEN
    assert at.transitions[-1].reason.startswith("5 of 10 calls failed within 60 s")


@pytest.mark.parametrize("ratio", [0.07, 0.1, 0.29, 0.3, 0.57, 0.7])
def test_the_ratio_is_met_exactly_and_not_by_rounding(scene, ratio):
    at = scene(minimum_calls=100, failure_ratio=ratio, **NO_RUN)
    failures = round(ratio * 100)
    at.succeed(100 - failures)
    at.fail(failures - 1)
    at.succeed()
    assert at.state is State.CLOSED
    at = scene(minimum_calls=100, failure_ratio=ratio, **NO_RUN)
    at.succeed(100 - failures)
    at.fail(failures)
    assert at.state is State.OPEN


def test_failures_that_left_the_window_do_not_count_for_the_ratio(scene):
    at = scene(**NO_RUN)
    at.fail(9)
    at.wait(61)
    at.fail(9)
    assert at.state is State.CLOSED
    at.fail()
    assert at.state is State.OPEN


def test_zero_turns_a_rule_off(scene):
    at = scene(**NO_RUN, **NO_RATIO)
    at.fail(1000)
    assert at.state is State.CLOSED


def test_f028_a_blip_at_high_rate_trips_nothing(scene):
    # Given 2,000 calls in 5 s, 15 of them failed
    at = scene()
    for number in range(2000):
        at.wait(0.0025)
        at.call(Verdict.FAILURE if number % 133 == 0 else Verdict.SUCCESS)
    assert at.shown.window.failure >= 15
    assert at.moves == []


def test_f029_failures_do_not_pile_up_over_days(scene):
    at = scene()
    for _ in range(20):
        at.fail()
        at.wait(30)
        at.succeed(50)
        at.wait(30)
        assert at.shown.consecutive_failures == 0
    at.wait(60)
    assert at.shown.window.failure == 0
    assert at.shown.window.failure_ratio is None
    assert at.moves == []


def test_f052_a_stream_cut_now_and_then_opens_nothing(scene):
    # Given 100 streams of which every tenth is cut after 30 s
    at = scene()
    for number in range(100):
        at.call(Verdict.FAILURE if number % 10 == 5 else Verdict.SUCCESS, lasting=30 / 100)
    # Then each cut counted as one failure and not also as a success
    window = at.shown.window
    assert (window.success, window.failure) == (90, 10)
    assert at.moves == []


class TestRepeats:
    """The same request answered 5xx again is no new evidence for the run."""

    def test_one_poisonous_request_darkens_nobody(self, scene):
        at = scene(**NO_RATIO)
        at.fail(100, fingerprint=b"poison")
        assert at.state is State.CLOSED
        assert at.shown.consecutive_failures == 1
        assert at.shown.deduplicated == 99

    def test_distinct_requests_count_each(self, scene):
        at = scene(**NO_RATIO)
        for number in range(5):
            assert at.state is State.CLOSED
            at.fail(fingerprint=bytes([number]))
        assert at.state is State.OPEN

    def test_counts_again_after_the_repeat_window(self, scene):
        at = scene(repeat_window=30.0)
        for _ in range(4):
            at.fail(2, fingerprint=b"poison")
            at.wait(30)
        assert at.shown.consecutive_failures == 4
        at.fail(fingerprint=b"poison")
        assert at.state is State.OPEN

    def test_repeats_do_not_push_the_window_out(self, scene):
        # Given a client that repeats every ten seconds for ever
        at = scene(repeat_window=30.0, **NO_RATIO)
        for _ in range(12):
            at.fail(fingerprint=b"poison")
            at.wait(10)
        # Then it counted at 0, 30, 60 and 90 s
        assert at.shown.consecutive_failures == 4

    def test_the_ratio_is_not_deduplicated(self, scene):
        at = scene()
        at.fail(9, fingerprint=b"poison")
        assert at.state is State.CLOSED
        at.fail(fingerprint=b"poison")
        assert at.state is State.OPEN

    @pytest.mark.parametrize("kind", [Kind.CONNECTION, Kind.TIMEOUT])
    def test_connection_failures_and_timeouts_always_count(self, scene, kind):
        at = scene(**NO_RATIO)
        at.fail(5, kind=kind, fingerprint=b"the only request")
        assert at.state is State.OPEN

    def test_without_a_fingerprint_each_counts(self, scene):
        at = scene(**NO_RATIO)
        at.fail(5)
        assert at.state is State.OPEN

    def test_zero_turns_it_off(self, scene):
        at = scene(repeat_window=0.0, **NO_RATIO)
        at.fail(5, fingerprint=b"poison")
        assert at.state is State.OPEN

    def test_a_new_run_remembers_no_request_of_the_old_one(self, scene):
        at = scene(**NO_RATIO)
        at.fail(fingerprint=b"poison")
        at.succeed()
        at.fail(fingerprint=b"poison")
        assert at.shown.consecutive_failures == 1
        assert at.shown.deduplicated == 0

    def test_the_table_is_bounded(self, scene):
        at = scene(consecutive_failures=10_000, **NO_RATIO)
        for number in range(1000):
            at.fail(fingerprint=number.to_bytes(4))
        assert len(at.breaker._evidence.run._counted_at) == 256


def test_a_permit_counts_once_whatever_is_told_of_it(scene):
    at = scene()
    permit = at.admit()
    for _ in range(3):
        at.settle(permit, Verdict.FAILURE)
        permit.release(at.now)
    given_back = at.admit()
    given_back.release(at.now)
    at.settle(given_back, Verdict.FAILURE)
    assert at.shown.consecutive_failures == 1
    assert at.shown.window.failure == 1
    assert at.shown.in_flight == 0
