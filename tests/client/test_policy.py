"""What may follow on a failure, class by class, as a table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.client.policy import Action, Asked, Policy, Progress, next_step, wait_of
from sidecar.client.repeatable import NEVER_BEGUN, undone
from sidecar.envelope.model import Source

from .failures import envelope

SAFE = Asked(safe=True)


def step(
    told: Any,
    asked: Asked = SAFE,
    progress: Progress | None = None,
    drawn: float = 0.5,
    **policy: Any,
) -> Any:
    progress = progress or Progress(attempts=1, rate_limits=1, transients=1)
    return next_step(told, progress, asked, Policy(**policy), lambda: drawn)


def stopped(*arguments: Any, **more: Any) -> str:
    found = step(*arguments, **more)
    assert found.action is Action.STOP, found
    why: str = found.why
    return why


class TestByClass:
    def test_permanent_is_the_end(self) -> None:
        assert stopped(envelope("permanent")) == "permanent"
        assert stopped(envelope("permanent", retryable=True, retry_after=1.0)) == "permanent"

    def test_validation_is_repaired_once(self) -> None:
        told = envelope("validation")
        assert stopped(told) == "validation"
        asked = Asked(can_repair=True)
        assert step(told, asked).action is Action.REPAIR
        assert stopped(told, asked, Progress(attempts=2, repaired=True)) == "validation"

    def test_only_an_expired_token_is_refreshed_and_once(self) -> None:
        told = envelope("authentication", code="token_expired", retryable=True)
        asked = Asked(can_refresh=True, should_retry=False)
        assert step(told, asked).action is Action.REFRESH
        assert stopped(told) == "authentication"
        assert stopped(told, asked, Progress(attempts=2, refreshed=True)) == "authentication"
        for code, retryable in (("invalid_api_key", False), ("401", False), ("28P01", True)):
            told = envelope("authentication", code=code, retryable=retryable)
            assert stopped(told, asked) == "authentication"

    def test_a_rate_limit_waits_as_asked_few_times(self) -> None:
        told = envelope("rate_limit", retry_after=10.0)
        assert step(told, drawn=0.0).wait == 10.0
        assert step(told, drawn=1.0).wait == 12.0
        assert step(told, Asked()).action is Action.REPEAT  # it was turned away
        assert stopped(told, progress=Progress(attempts=3, rate_limits=2)) == "attempts"
        assert step(envelope("rate_limit"), drawn=1.0).wait == 1.0

    def test_transient_backs_off_with_full_jitter_and_a_cap(self) -> None:
        told = envelope("transient")
        waits = [
            step(told, progress=Progress(attempts=1, transients=n), drawn=1.0).wait
            for n in range(1, 9)
        ]
        assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0]
        assert step(told, drawn=0.0).wait == 0.0
        assert stopped(told, progress=Progress(attempts=5)) == "attempts"

    def test_at_once_is_taken_at_its_word_once(self) -> None:
        told = envelope("transient", source=Source.DATABASE, retry_after=0.0)
        assert step(told, Asked(), drawn=1.0).wait == 0.0
        again = Progress(attempts=2, transients=2)
        assert step(told, Asked(), again, drawn=1.0).wait == 0.5


class TestNotAgain:
    def test_what_is_not_retryable(self) -> None:
        for class_ in ("transient", "rate_limit"):
            assert stopped(envelope(class_, retryable=False)) == "not_retryable"

    def test_what_the_answer_said_not_to_repeat(self) -> None:
        for class_ in ("transient", "rate_limit"):
            assert stopped(envelope(class_), Asked(safe=True, should_retry=False)) == "told_not_to"
        told = envelope("transient", retryable=False)
        assert stopped(told, Asked(safe=True, should_retry=True)) == "not_retryable"

    def test_what_may_have_been_done(self) -> None:
        assert stopped(envelope("transient"), Asked()) == "not_safe"

    def test_an_open_breaker_unless_asked_to(self) -> None:
        told = envelope("transient", source=Source.SIDECAR, code="breaker_open", retry_after=9.0)
        assert stopped(told) == "breaker_open"
        assert step(told, Asked(), drawn=0.0, wait_for_breaker=True).wait == 9.0

    def test_a_wait_that_nobody_sits_out(self) -> None:
        told = envelope("rate_limit", retry_after=61.0)
        assert stopped(told) == "wait"
        assert step(told, drawn=0.0, wait_max=100).wait == 61.0

    def test_beyond_the_deadline(self) -> None:
        told = envelope("rate_limit", retry_after=5.0)
        assert stopped(told, Asked(left=5.0), drawn=0.0) == "deadline"
        assert step(told, Asked(left=5.1), drawn=0.0).wait == 5.0
        for left in (0.0, -1.0):
            assert stopped(told, Asked(left=left)) == "deadline"
            repair = Asked(left=left, can_repair=True)
            assert stopped(envelope("validation"), repair) == "deadline"

    @pytest.mark.parametrize("why", ["attempts", "budget", "deadline"])
    def test_what_a_retry_inside_has_exhausted(self, why: str) -> None:
        assert stopped(envelope("transient"), Asked(safe=True, gave_up=why)) == why

    def test_but_what_was_not_safe_inside_may_be_outside(self) -> None:
        asked = Asked(safe=True, gave_up="not_safe")
        assert step(envelope("transient"), asked).action is Action.REPEAT


class TestUndone:
    @pytest.mark.parametrize("code", sorted(NEVER_BEGUN))
    def test_codes(self, code: str) -> None:
        assert undone(envelope("transient", code=code))

    @pytest.mark.parametrize(
        "changes",
        [
            {"raw": {"sent": False}},
            {"raw": {"phase": "connect"}},
            {"source": Source.DATABASE, "retry_after": 0.0},
            {"source": Source.DATABASE, "code": "connection_closed"},
            {"source": Source.SDK, "code": "connection_closed"},
            {"class_": "rate_limit"},
            {"class_": "validation"},
            {"class_": "authentication"},
        ],
    )
    def test_facts(self, changes: Any) -> None:
        assert undone(envelope(**changes))

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"raw": {"sent": True}},
            {"raw": {"phase": "commit"}},
            # An answer may ask to come back at once although it has done all of it.
            {"source": Source.HTTP, "retry_after": 0.0},
            {"source": Source.SDK, "retry_after": 0.0},
            {"source": Source.HTTP, "code": "connection_closed"},
            {"source": Source.DATABASE, "retry_after": 1.0},
            *({"code": code} for code in (
                "connection_reset", "read_timeout", "timeout", "500", "502", "503", "504",
                "overloaded", "stream_truncated", "first_byte_timeout", "57014", "local_resource",
            )),
        ],
    )  # fmt: skip
    def test_what_leaves_it_open(self, changes: Any) -> None:
        assert undone(envelope(**changes)) is None


class TestPolicy:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"attempts": 0}, {"rate_limit_attempts": 0}, {"backoff": -1}, {"wait_max": -0.1},
            {"backoff_max": float("inf")}, {"jitter": float("nan")}, {"rate_limit_backoff": -1},
        ],
    )  # fmt: skip
    def test_refused(self, wrong: Any) -> None:
        with pytest.raises(ValueError):
            Policy(**wrong)

    @given(
        hint=st.none() | st.floats(0, 1e6),
        count=st.integers(1, 10**6),
        drawn=st.floats(0, 1),
        base=st.floats(0, 100),
    )
    def test_a_hint_is_never_shortened_and_nothing_is_endless(
        self, hint: float | None, count: int, drawn: float, base: float
    ) -> None:
        policy = Policy()
        wait = wait_of(hint, count, base, policy, lambda: drawn)
        assert wait >= (hint or 0.0)
        assert wait <= max((hint or 0.0) * 1.2, policy.backoff_max)
