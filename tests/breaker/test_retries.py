"""The budget of repetitions, and the pauses between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.breaker.retries import BASE, LONGEST, WINDOW, RetryBudget, pause


def test_a_lone_call_may_use_all_its_attempts() -> None:
    budget = RetryBudget(0.1, 2)
    budget.called(1000.0)
    assert [budget.take(1000.0) for _ in range(3)] == [True, True, False]


def test_of_many_calls_a_share() -> None:
    budget = RetryBudget(0.1, 2)
    for n in range(100):
        budget.called(1000.0 + n / 100)
    assert sum(budget.take(1002.0) for _ in range(100)) == 10


def test_what_was_spent_comes_back_after_a_minute() -> None:
    budget = RetryBudget(0.1, 1)
    assert budget.take(1000.0)
    assert not budget.take(1000.0 + WINDOW / 2)
    assert budget.take(1000.0 + WINDOW + WINDOW / 10)


def test_no_budget_no_repetition() -> None:
    assert not RetryBudget(0.0, 3).take(1000.0)


@given(
    st.floats(0, 1),
    st.integers(1, 5),
    st.lists(st.tuples(st.booleans(), st.floats(0, 10)), max_size=200),
)
def test_it_is_never_overdrawn(share: float, lone: int, steps) -> None:
    budget, now = RetryBudget(share, lone), 1000.0
    calls: list[float] = []
    taken: list[float] = []
    for is_call, wait in steps:
        now += wait
        if is_call:
            budget.called(now)
            calls.append(now)
        elif budget.take(now):
            taken.append(now)
        lately = sum(at > now - WINDOW for at in calls)
        # A bucket may be gone a tenth of the window early.
        assert sum(at > now - WINDOW * 0.9 for at in taken) <= max(
            lone, share * max(lately, len(calls))
        )


@pytest.mark.parametrize("repeated", range(12))
def test_full_jitter_doubles_up_to_a_bound(repeated: int) -> None:
    assert pause(repeated, None, 60.0, 0.0) == 0
    longest = pause(repeated, None, 60.0, 0.999999)
    assert longest == pytest.approx(min(BASE * 2**repeated, LONGEST), rel=1e-3)


def test_never_before_the_upstream_asked_for() -> None:
    assert pause(0, 1.5, 2.0, 0.0) == 1.5
    assert pause(3, 1.5, 60.0, 0.5) == 1.5 + BASE * 4
    assert pause(0, 2.5, 2.0, 0.0) is None


@pytest.mark.parametrize("asked", [None, 0.0, 1.5, 2.0])
@pytest.mark.parametrize("repeated", range(12))
def test_nothing_sleeps_here_for_longer_than_it_may(repeated: int, asked: float | None) -> None:
    assert (asked or 0) <= pause(repeated, asked, 2.0, 0.999999) <= 2
