"""A spent budget: answered here, asked again now and then, lifted by the first good answer."""

from __future__ import annotations

import pytest

from sidecar.breaker.gating import Spent
from sidecar.breaker.quota import Quota


@pytest.fixture
def quota():
    return Quota("credits_exhausted", None, 60.0, 1000.0)


def test_further_calls_are_told_which_word_and_when_to_ask(quota):
    found = quota.ask(1010.0)
    assert isinstance(found, Spent)
    assert found.code == "credits_exhausted"
    assert "asks again in 50 s" in found.reason


def test_one_call_each_recheck_asks_again(quota):
    """Five calls a second for ten minutes."""
    asked = [n / 5 for n in range(3000) if quota.ask(1000.0 + n / 5) is None]
    assert asked == pytest.approx([60 * n for n in range(1, 10)])


@pytest.mark.parametrize("resets_in", [None, 1.0, 30.0, 86400.0])
def test_whatever_the_reset_says(resets_in):
    quota = Quota("plan_window_exhausted", resets_in, 60.0, 1000.0)
    assert quota.ask(1059.0) is not None
    assert quota.ask(1060.0) is None
    assert quota.ask(1060.1) is not None


def test_the_reset_is_told_and_shown():
    quota = Quota("plan_window_exhausted", 7200.0, 60.0, 1000.0)
    assert "reopens in 7190 s" in quota.ask(1010.0).reason
    shown = quota.snapshot("up/gpt-x")
    assert (shown.key, shown.until, shown.next_check) == ("up/gpt-x", 8200.0, 1060.0)


def test_told_so_again_it_waits_from_then_on(quota):
    assert quota.ask(1060.0) is None
    quota.spent("spend_limit_reached", None, 1075.0)
    assert quota.ask(1134.0).code == "spend_limit_reached"
    assert quota.ask(1135.0) is None


def test_a_call_that_was_given_up_leaves_its_turn_to_the_next(quota):
    assert quota.ask(1060.0) is None
    assert quota.ask(1061.0) is not None
    quota.returned(1060.0, 1062.0)
    assert quota.ask(1062.0) is None
    # Only the one whose turn it was can give it back.
    quota.returned(1060.0, 1063.0)
    assert quota.ask(1063.0) is not None


def test_an_answer_to_a_call_from_before_says_nothing(quota):
    assert not quota.lifts(999.0)
    assert quota.lifts(1060.0)


def test_a_shorter_interval_holds_at_once(quota):
    quota.configure(10.0)
    assert quota.ask(1009.0) is not None
    assert quota.ask(1010.0) is None
    assert quota.ask(1019.0) is not None
    assert quota.ask(1020.0) is None
