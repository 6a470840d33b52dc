"""Properties over schedules of outcomes: whatever happens, these hold."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecar.client import Attempt, Budget, Policy, SidecarError, retry
from sidecar.client.policy import EXHAUSTED
from sidecar.client.repeatable import undone
from sidecar.envelope.model import Envelope, ErrorClass, Source

from .clock import Clock

ENVELOPES = st.builds(
    Envelope,
    class_=st.sampled_from(ErrorClass),
    source=st.sampled_from(Source),
    code=st.sampled_from(
        ["token_expired", "503", "connection_refused", "breaker_open", "40P01", "read_timeout"]
    ),
    message=st.just("it failed"),
    retryable=st.booleans(),
    retry_after=st.none() | st.floats(0, 100),
    raw=st.none() | st.builds(lambda sent: {"sent": sent}, st.booleans()),
)
POLICIES = st.builds(
    Policy,
    attempts=st.integers(1, 8),
    rate_limit_attempts=st.integers(1, 8),
    backoff=st.floats(0, 10),
    rate_limit_backoff=st.floats(0, 10),
    backoff_max=st.floats(0, 30),
    wait_max=st.floats(0, 100),
    jitter=st.floats(0, 1),
    wait_for_breaker=st.booleans(),
)


@dataclass
class Outcome:
    """What one attempt does: it takes so long, then fails so, or ends well."""

    takes: float
    envelope: Envelope | None


OUTCOMES = st.builds(Outcome, takes=st.floats(0, 20), envelope=st.none() | ENVELOPES)


@dataclass
class Ended:
    attempts: list[Attempt]
    failures: list[Envelope]
    slept: list[float]
    took: float
    error: SidecarError | None


def carried_out(
    schedule: list[Outcome], *, coroutine: bool, drawn: float, clock: Clock, **options: Any
) -> Ended:
    attempts: list[Attempt] = []
    failures: list[Envelope] = []
    began, before = clock.now, len(clock.slept)
    again = retry(clock=clock, random=lambda: drawn, sleep=clock.sleep, **options)

    def call(attempt: Attempt) -> str:
        attempts.append(attempt)
        outcome = schedule[len(attempts) - 1] if len(attempts) <= len(schedule) else schedule[-1]
        clock.now += outcome.takes
        if outcome.envelope is None:
            return "good"
        failures.append(outcome.envelope)
        raise SidecarError(outcome.envelope)

    async def call_async(attempt: Attempt) -> str:
        return call(attempt)

    error = None
    try:
        if coroutine:
            assert asyncio.run(again.call_async(call_async)) == "good"  # type: ignore[call-arg]
        else:
            assert again.call(call) == "good"  # type: ignore[call-arg]
    except SidecarError as last:
        error = last
    return Ended(attempts, failures, clock.slept[before:], clock.now - began, error)


@given(
    schedule=st.lists(OUTCOMES, min_size=1, max_size=10),
    policy=POLICIES,
    timeout=st.none() | st.floats(0.1, 60),
    idempotent=st.booleans(),
    mended=st.booleans(),
    drawn=st.floats(0, 1),
    coroutine=st.booleans(),
)
def test_one_call(
    schedule: list[Outcome],
    policy: Policy,
    timeout: float | None,
    idempotent: bool,
    mended: bool,
    drawn: float,
    coroutine: bool,
) -> None:
    found = carried_out(
        schedule,
        coroutine=coroutine,
        drawn=drawn,
        clock=Clock(),
        policy=policy,
        timeout=timeout,
        idempotent=idempotent,
        repair=(lambda *_: {}) if mended else None,
        refresh=(lambda _: None) if mended else None,
        budget=Budget(burst=100),
    )
    # Never more attempts than allowed, and one key for all of them.
    assert 1 <= len(found.attempts) <= policy.attempts
    assert [one.number for one in found.attempts] == list(range(1, len(found.attempts) + 1))
    assert len({one.idempotency_key for one in found.attempts}) == 1
    # No attempt begins, and no sleep ends, beyond the deadline.
    for attempt in found.attempts:
        assert (attempt.left is None) == (timeout is None)
        assert attempt.left is None or attempt.left > 0
    if timeout is not None:
        ran = sum(one.takes for one in (schedule + [schedule[-1]] * 10)[: len(found.attempts)])
        assert found.took <= timeout + ran
    # What came out is the last failure, with why it was the last.
    if found.error is not None:
        assert found.error.envelope is found.failures[-1]
        assert found.error.gave_up
    repeated = found.failures if found.error is None else found.failures[:-1]
    waits = list(found.slept)
    for told in repeated:
        # What was followed by another attempt was allowed to be.
        assert told.class_ is not ErrorClass.PERMANENT
        if told.class_ is ErrorClass.VALIDATION:
            assert mended
        elif told.class_ is ErrorClass.AUTHENTICATION:
            assert mended
            assert told.code == "token_expired"
        else:
            assert told.retryable
            assert idempotent or undone(told)
            assert told.code != "breaker_open" or policy.wait_for_breaker
            hint = told.retry_after
            assert hint is None or hint <= policy.wait_max
            if hint:
                # A hint is never shortened.
                assert waits
                assert waits.pop(0) >= hint
            elif waits and waits[0] <= policy.backoff_max:
                waits.pop(0)
    for class_ in (ErrorClass.VALIDATION, ErrorClass.AUTHENTICATION):
        assert [one.class_ for one in repeated].count(class_) <= 1
    limits = [n for n, one in enumerate(repeated, 1) if one.class_ is ErrorClass.RATE_LIMIT]
    assert all(number < policy.rate_limit_attempts for number in limits)


@given(
    schedules=st.lists(st.lists(OUTCOMES, min_size=1, max_size=5), min_size=1, max_size=40),
    ratio=st.floats(0, 1),
    per_second=st.floats(0, 0.1),
    burst=st.floats(1, 10),
    drawn=st.floats(0, 1),
)
def test_the_budget_holds_over_many_calls(
    schedules: list[list[Outcome]], ratio: float, per_second: float, burst: float, drawn: float
) -> None:
    clock = Clock()
    budget = Budget(ratio, per_second=per_second, burst=burst, clock=clock)
    repeats = 0
    for calls, schedule in enumerate(schedules, 1):
        found = carried_out(
            schedule, coroutine=False, drawn=drawn, clock=clock, idempotent=True, budget=budget,
            timeout=None, policy=Policy(attempts=8, wait_max=100),
        )  # fmt: skip
        repeats += len(found.attempts) - 1
        assert repeats <= burst + ratio * calls + per_second * (clock.now - 1000.0) + 1e-6
        if found.error is not None and found.error.gave_up in EXHAUSTED:
            assert found.error.gave_up != "deadline"


@given(
    schedule=st.lists(OUTCOMES, max_size=4),
    kind=st.sampled_from([KeyboardInterrupt, asyncio.CancelledError, SystemExit, GeneratorExit]),
    idempotent=st.booleans(),
)
def test_who_goes_goes_at_once(
    schedule: list[Outcome], kind: type[BaseException], idempotent: bool
) -> None:
    clock, calls, gone = Clock(), [], kind()
    again = retry(clock=clock, sleep=clock.sleep, idempotent=idempotent, timeout=None)

    def call() -> None:
        calls.append(clock.now)
        if len(calls) > len(schedule):
            raise gone
        outcome = schedule[len(calls) - 1]
        if outcome.envelope is not None:
            raise SidecarError(outcome.envelope)

    ended: BaseException | None = None
    try:
        again.call(call)
    except BaseException as error:
        ended = error
    if len(calls) > len(schedule):
        assert ended is gone
        assert clock.now == calls[-1]
    else:
        assert ended is None or isinstance(ended, SidecarError)
