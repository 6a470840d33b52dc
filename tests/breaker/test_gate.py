"""The throttle gate of one key: hints in every form, who is held, who is shed, what they are told."""

from __future__ import annotations

import itertools
from math import inf, nan

import pytest

from sidecar.breaker.comeback import AWAITED, QUIET
from sidecar.breaker.gating import GateSettings, GateState, Hint, Shed
from sidecar.breaker.promises import SPREAD_CLOSED, SPREAD_OPEN
from sidecar.breaker.shedding import (
    CLEAN_MINUTE,
    LONGEST_WAIT,
    SHEDDING,
    TABLE,
    Event,
    Gate,
    Ticket,
)

IDLE, WAITING = GateState.IDLE, GateState.WAITING


class Scene:
    """A gate at t = 1000 s; calls go on when the test says so."""

    def __init__(self, *, accepted=0.0, random=lambda: 0.5, **settings):
        self.now = 1000.0
        self.settings = GateSettings(**settings)
        self.gate = Gate("up/gpt-x", self.settings, now=self.now, accepted=accepted, random=random)

    def wait(self, seconds):
        self.now += seconds

    def throttle(self, seconds=None, source="retry-after", *, admitted_at=None):
        hint = None if seconds is None else Hint(seconds, source)
        at = self.now if admitted_at is None else admitted_at
        return self.gate.throttled(self.now, at, hint)

    def succeed(self, times=1, *, admitted_at=None):
        at = self.now if admitted_at is None else admitted_at
        for _ in range(times):
            self.gate.answered(self.now, at, accepted=True)

    def goes_on(self):
        return self.gate.enter(self.now) is None

    def held(self):
        found = self.gate.enter(self.now)
        assert isinstance(found, Ticket), found
        return found

    def shed(self):
        found = self.gate.enter(self.now)
        assert isinstance(found, Shed), found
        return found

    @property
    def left(self):
        """Seconds until it opens."""
        return max(0.0, self.gate.opens_at - self.now)

    @property
    def shown(self):
        return self.gate.snapshot(self.now)

    def sustain(self):
        """Five throttles in a row that ask for nothing."""
        for _ in range(self.settings.sustained_count):
            self.wait(0.01)
            self.throttle(0)
        assert self.shown.state is SHEDDING


@pytest.fixture
def scene():
    return Scene


# -- the table ------------------------------------------------------------------------------


def test_every_state_has_its_moves_and_none_leads_nowhere():
    assert set(TABLE) == set(GateState)
    assert {state for moves in TABLE.values() for state in moves.values()} == set(GateState)
    assert all(set(moves) <= set(Event) for moves in TABLE.values())


def test_idle_lets_everybody_on(scene):
    at = scene()
    assert all(at.goes_on() for _ in range(1000))
    assert at.shown.state is IDLE
    assert (at.shown.not_before, at.shown.rate, at.shown.queued) == (None, None, 0)


# -- hints ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.25, 1, 4, 20, 3600])
def test_d_a_hint_closes_the_gate_for_exactly_as_long(scene, seconds):
    at = scene()
    at.throttle(seconds)
    assert at.left == seconds
    assert (at.shown.hint, at.shown.hint_source) == (seconds, "retry-after")
    assert at.shown.not_before == at.now + seconds
    at.wait(seconds)
    at.held()
    assert at.gate.serve(at.now) is not None
    at.wait(QUIET)
    assert at.goes_on()
    assert (at.shown.state, at.shown.hint) == (IDLE, None)


def test_who_comes_late_after_a_wait_still_comes_back_one_by_one(scene):
    """Waits are told in whole seconds: a crowd that obeys is late, and still a crowd."""
    at = scene()
    at.throttle(3)
    at.wait(4)
    for _ in range(16):
        at.held()
    at.shed()
    assert at.gate.rate == 16


def test_the_crowd_that_was_told_to_come_later_is_awaited(scene):
    """One of them comes at once, a second before the others."""
    at = scene()
    at.throttle(3)
    for _ in range(50):
        at.shed()
    at.wait(3)
    at.held()
    at.gate.serve(at.now)
    at.succeed()
    at.wait(1.1)
    for _ in range(16):
        at.held()
    at.shed()


def test_if_nobody_comes_it_is_idle_in_the_end(scene):
    at = scene()
    at.throttle(3)
    at.wait(3 + AWAITED)
    assert at.shown.state is IDLE


def test_d_f054_a_week_gates_for_the_cap_and_is_shown_as_given(scene):
    at = scene(retry_after_max=30.0)
    at.throttle(568157)
    assert at.left == 30
    assert at.shown.hint == 568157
    at.wait(30)
    assert isinstance(at.gate.enter(at.now), Ticket)
    assert at.gate.serve(at.now) is not None


def test_d_zero_is_a_hint_and_means_at_once(scene):
    at = scene()
    at.throttle(0)
    assert at.left == 0
    at.held()
    assert at.gate.serve(at.now) is not None


@pytest.mark.parametrize("seconds", [-1, -0.001, nan, inf, -inf])
def test_d_what_is_no_hint_counts_as_none(scene, seconds):
    at = scene()
    at.throttle(seconds)
    assert (at.left, at.shown.hint) == (1, None)


def test_without_a_hint_one_second_that_doubles_to_sixty(scene):
    at = scene(sustained_count=1000)
    waits = []
    for _ in range(9):
        at.throttle()
        waits.append(at.left)
        at.wait(at.left + 0.01)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert max(waits) == LONGEST_WAIT


def test_the_doubling_stays_below_the_cap(scene):
    at = scene(sustained_count=1000, retry_after_max=3.0)
    for _ in range(5):
        at.throttle()
        assert at.left <= 3
        at.wait(at.left + 0.01)


def test_a_success_ends_the_doubling(scene):
    at = scene(sustained_count=1000)
    at.throttle()
    at.wait(1.1)
    at.throttle()
    at.wait(2.1)
    at.succeed()
    at.wait(0.1)
    at.throttle()
    assert at.left == 1


def test_what_had_left_before_the_first_throttle_was_heard_doubles_nothing(scene):
    """A hundred calls in flight are refused at the same time: that is one throttle, not a hundred."""
    at = scene(sustained_count=1000)
    sent = at.now
    at.wait(0.1)
    for _ in range(100):
        at.throttle(admitted_at=sent)
    assert at.left == 1
    at.wait(1.1)
    # A straggler that tells of the past does not close it again.
    at.throttle(admitted_at=sent)
    assert at.left == 0


@pytest.mark.parametrize(("first", "second"), [(1, 6), (6, 1)])
def test_f045_the_longer_of_two_hints_holds(scene, first, second):
    at = scene()
    at.throttle(first)
    end = at.now + 6 + (0.2 if second == 6 else 0)
    at.wait(0.2)
    at.throttle(second, admitted_at=at.now - 1)
    assert at.gate.opens_at == pytest.approx(end)
    assert at.shown.hint == 6


def test_a_shorter_one_without_a_hint_shortens_nothing(scene):
    at = scene()
    at.throttle(20)
    at.wait(1)
    at.throttle()
    assert at.left == 19
    assert at.shown.hint == 20


# -- waiting --------------------------------------------------------------------------------


def test_short_waits_are_held_and_longer_ones_shed_at_once(scene):
    at = scene()
    at.throttle(1.5)
    assert at.held().deadline == at.now + 2
    at = scene()
    at.throttle(4)
    assert at.shed().wait == pytest.approx(4, abs=SPREAD_CLOSED)


def test_a_single_throttle_costs_nobody_more_than_its_hint(scene):
    """Five calls a second: those that come while it waits are held, and all are served."""
    at = scene()
    at.throttle(1)
    began = at.now
    tickets = {}
    for n in range(5):
        at.now = began + n * 0.2
        tickets[at.held()] = at.now
    at.now = began + 1
    waited = []
    while at.gate.queued:
        at.now = at.gate.next_turn(at.now)
        waited.append(at.now - tickets.pop(at.gate.serve(at.now)))
    assert max(waited) < 1.1
    at.wait(QUIET)
    assert at.goes_on()
    assert at.shown.shed == 0


def test_nobody_is_served_before_the_hint_has_passed(scene):
    at = scene()
    at.throttle(1)
    at.held()
    at.wait(0.999)
    assert at.gate.serve(at.now) is None
    at.wait(0.001)
    assert at.gate.serve(at.now) is not None


def test_no_more_than_the_queue_holds(scene):
    at = scene(max_queue=3)
    at.throttle(0.5)
    for _ in range(3):
        at.held()
    assert at.shed().wait > 0.5
    assert at.shown.queued == 3


@pytest.mark.parametrize(("heard", "longest"), [(True, 1.0), (False, 2.0)])
def test_they_come_back_one_after_another_faster_and_faster(scene, heard, longest):
    """Faster where good answers are heard, slower where answers take long."""
    at = scene(max_queue=100, max_wait=10.0)
    at.throttle(1)
    for _ in range(40):
        at.held()
    at.wait(1)
    began, turns = at.now, []
    while at.gate.queued:
        at.now = at.gate.next_turn(at.now)
        assert at.gate.serve(at.now) is not None
        turns.append(at.now - began)
        if heard:
            at.succeed()
    gaps = [later - sooner for sooner, later in itertools.pairwise(turns)]
    assert turns[0] == 0
    assert gaps[0] == pytest.approx(1 / 16)
    assert gaps == sorted(gaps, reverse=True)
    assert turns[-1] < longest


def test_a_crowd_that_is_still_there_is_still_let_in_one_by_one(scene):
    """However long it takes the machine to hear them all out."""
    at = scene(max_queue=4)
    at.throttle(1)
    at.wait(1)
    for _ in range(30):
        at.gate.enter(at.now)
        at.wait(0.1)
        at.gate.serve(at.now)
    assert at.shown.state is WAITING


def test_who_had_a_high_rate_has_it_back_at_once(scene):
    at = scene(accepted=400.0)
    at.throttle(1)
    at.wait(1)
    assert at.gate.rate >= 400


@pytest.mark.parametrize("rate", [5, 50, 200])
def test_b_a_stray_throttle_costs_nobody_more_than_its_own_hint(scene, rate):
    """Under a steady load, with a full queue when the wait is over."""
    at = scene(accepted=float(rate))
    at.throttle(1)
    began, next_call = at.now, at.now
    while at.now < began + 4:
        turn = at.gate.next_turn(at.now) if at.gate.queued else inf
        at.now = min(next_call, turn)
        if at.now == turn:
            assert at.gate.serve(at.now) is not None
            continue
        next_call += 1 / rate
        found = at.gate.enter(at.now)
        if isinstance(found, Shed):
            assert at.now < began + 1, "the wait is over"
            assert at.now + found.wait <= began + 2, "and its end is spread over a second"
        elif found is None:
            at.gate.answered(at.now, at.now, accepted=True)
    assert at.shown.state is IDLE


def test_those_who_wait_for_a_later_hint_are_shed_at_once(scene):
    at = scene()
    at.throttle(1)
    first, second = at.held(), at.held()
    at.wait(0.5)
    at.throttle(20, admitted_at=at.now - 1)
    found = at.gate.hopeless(at.now, 10)
    assert [ticket for ticket, _ in found] == [first, second]
    assert all(20 <= shed.wait <= 21 for _, shed in found)
    assert at.gate.queued == 0


def test_a_call_is_shed_at_its_deadline(scene):
    at = scene(max_wait=1.0)
    at.throttle(0.9)
    at.held()
    at.wait(0.99)
    assert at.gate.hopeless(at.now, 10) == []
    at.wait(0.01)
    (found,) = at.gate.hopeless(at.now, 10)
    assert found[1].wait > 0


def test_max_wait_zero_holds_nothing(scene):
    at = scene(max_wait=0.0)
    at.throttle(0.5)
    at.shed()
    at.sustain()
    at.wait(1)
    ticket = at.held()
    assert ticket.deadline - at.now <= 0.05
    assert at.gate.serve(at.now) is ticket
    at.shed()


# -- what is told ---------------------------------------------------------------------------


def test_f065_each_is_told_what_is_left(scene):
    for seconds in (4, 20):
        at = scene()
        at.throttle(seconds)
        at.wait(1)
        told = [at.shed().wait for _ in range(30)]
        assert all(seconds - 1 <= wait <= seconds - 1 + SPREAD_CLOSED for wait in told)


@pytest.mark.parametrize("drawn", [0.0, 0.5, 0.999])
def test_f061_no_two_are_told_the_same_and_none_less_than_the_truth(scene, drawn):
    at = scene(random=lambda: drawn)
    at.throttle(3)
    told = [at.shed().wait for _ in range(15)]
    assert min(told) > 3
    assert len(set(told)) > 10 or drawn == 0.999


def test_f061_while_they_come_back_each_is_told_a_turn_of_its_own(scene):
    at = scene()
    at.throttle(3)
    at.wait(3)
    for _ in range(16):
        at.held()
    told = [at.shed().wait for _ in range(60)]
    assert told == sorted(told)
    assert told[0] > 1
    # No second gets more of them than come back in one.
    for second in range(6):
        assert sum(second <= wait < second + 1 for wait in told) <= 17


def test_what_is_told_does_not_grow_without_end(scene):
    at = scene()
    at.sustain()
    for _ in range(1000):
        found = at.gate.enter(at.now)
        if isinstance(found, Shed):
            assert 0 < found.wait <= 16 / 1 + SPREAD_OPEN + 2


def test_the_reason_says_what_is_left(scene):
    at = scene()
    at.throttle(20)
    at.wait(5)
    assert "its wait ends in 15.0 s" in at.shed().reason


# -- pacing ---------------------------------------------------------------------------------


def test_sustained_takes_the_count_and_the_share(scene):
    at = scene()
    for _ in range(4):
        at.throttle(0)
    at.succeed(5)
    at.throttle(0)
    assert at.shown.state is SHEDDING


def test_a_share_below_the_ratio_is_not_sustained(scene):
    """F008: one model that is always refused among others that are not."""
    at = scene()
    at.succeed(6)
    for _ in range(5):
        at.throttle(0)
    assert at.shown.state is WAITING
    at.throttle(0)
    assert at.shown.state is SHEDDING


def test_throttles_outside_of_the_window_do_not_count(scene):
    at = scene(sustained_window=10.0)
    for _ in range(20):
        at.throttle(0)
        at.wait(4)
    assert at.shown.state is not SHEDDING


def test_what_was_shed_stands_for_the_refusal_it_was_spared(scene):
    at = scene()
    for _ in range(5):
        at.succeed(20)
        at.wait(0.1)
        at.throttle(4)
        for _ in range(30):
            at.shed()
        at.wait(4)
    assert at.shown.state is SHEDDING


def test_the_rate_starts_at_half_of_what_was_accepted(scene):
    at = scene(sustained_ratio=0.1)
    for _ in range(30):
        at.wait(0.1)
        at.succeed()
    for _ in range(5):
        at.throttle(0)
    assert at.shown.rate == pytest.approx(5, rel=0.1)


def test_the_floor_holds(scene):
    at = scene(min_rate=2.0)
    at.sustain()
    for _ in range(10):
        at.wait(1)
        at.throttle(0)
    assert at.shown.rate == 2


def test_paced_calls_are_served_at_the_rate(scene):
    at = scene(min_rate=4.0)
    at.sustain()
    at.wait(1)
    for _ in range(4):
        at.held()
    began, turns = at.now, []
    while at.gate.queued:
        at.now = at.gate.next_turn(at.now)
        at.gate.serve(at.now)
        turns.append(at.now - began)
    assert turns == pytest.approx([0, 0.25, 0.5, 0.75])


def test_a_clean_minute_ends_it(scene):
    at = scene()
    at.sustain()
    at.wait(CLEAN_MINUTE - 0.1)
    assert at.shown.state is SHEDDING
    at.wait(0.1)
    assert (at.shown.state, at.shown.rate) == (IDLE, None)
    assert at.goes_on()


def test_a_minute_is_not_clean_while_a_hint_keeps_everybody_away(scene):
    at = scene()
    at.sustain()
    at.throttle(600)
    at.wait(120)
    assert at.shown.state is SHEDDING
    assert at.left == 480


# -- the last resort ------------------------------------------------------------------------


def dark_for(at, lasting, hint=None):
    """Throttles without a hint for so long; whether one of them counted as a failure."""
    counted, end = False, at.now + lasting
    while at.now < end:
        counted = at.throttle(hint) or counted
        at.wait(max(at.left, 1.0))
    return counted


def test_open_after_at_the_floor_a_throttle_is_a_failure(scene):
    at = scene()
    assert not dark_for(at, 600)
    assert dark_for(at, 120)


@pytest.mark.parametrize("limit", [0, 100.0])
def test_open_after_can_be_set_and_switched_off(scene, limit):
    at = scene(open_after=limit)
    assert dark_for(at, 5000) is (limit > 0)


def test_one_success_begins_it_anew(scene):
    at = scene()
    dark_for(at, 590)
    at.succeed()
    assert not dark_for(at, 500)


def test_with_hints_it_never_comes(scene):
    at = scene()
    assert not dark_for(at, 5000, hint=1)


def test_above_the_floor_it_does_not_count(scene):
    at = scene(min_rate=0.001, accepted=1000.0, open_after=3.0)
    for _ in range(5):
        at.throttle()
    at.wait(0.1)
    assert at.shown.rate > 1
    assert not at.throttle()


# -- people ---------------------------------------------------------------------------------


@pytest.mark.parametrize("paced", [False, True])
def test_reset_opens_it_and_forgets(scene, paced):
    at = scene()
    if paced:
        at.sustain()
    at.throttle(600)
    at.gate.reset(at.now)
    assert (at.shown.state, at.shown.not_before, at.shown.hint) == (IDLE, None, None)
    assert at.goes_on()
    at.throttle()
    assert (at.shown.state, at.left) == (WAITING, 1)


def test_those_who_wait_at_a_reset_are_served(scene):
    at = scene()
    at.throttle(1)
    first, second = at.held(), at.held()
    at.gate.reset(at.now)
    assert at.gate.rate == inf
    assert [at.gate.serve(at.now), at.gate.serve(at.now)] == [first, second]


def test_other_settings_leave_what_is_closed_closed(scene):
    at = scene()
    at.sustain()
    at.throttle(100)
    at.gate.configure(GateSettings(min_rate=3.0, sustained_window=5.0), at.now)
    assert at.left == 100
    assert at.shown.state is SHEDDING
    assert at.shown.rate == 3


# -- observe --------------------------------------------------------------------------------


def test_observed_it_refuses_nobody_and_counts_whom_it_would(scene):
    at = scene()
    at.throttle(10)
    assert at.gate.observe(at.now) is not None
    assert (at.shown.state, at.shown.shed, at.shown.queued) == (WAITING, 1, 0)
    at.gate.reset(at.now)
    assert at.gate.observe(at.now) is None


def test_observed_pacing_lets_pass_what_it_would(scene):
    at = scene(max_wait=1.0, min_rate=2.0)
    at.sustain()
    at.wait(1)
    told = [at.gate.observe(at.now) for _ in range(10)]
    assert [one is None for one in told] == [True, True, True] + [False] * 7


# -- preempt --------------------------------------------------------------------------------


def test_what_is_exhausted_waits_for_its_reset(scene):
    at = scene()
    at.gate.exhausted(at.now, Hint(1.5, "x-ratelimit-reset-requests"))
    assert (at.shown.state, at.left) == (WAITING, 1.5)
    at.held()
    assert at.shown.hint_source == "x-ratelimit-reset-requests"


def test_is_disposable_when_nothing_of_it_matters(scene):
    at = scene()
    at.throttle(1)
    assert not at.gate.is_disposable(at.now)
    at.wait(1 + AWAITED)
    assert at.gate.is_idle(at.now)
    assert not at.gate.is_disposable(at.now)
    at.wait(60)
    assert at.gate.is_disposable(at.now)
