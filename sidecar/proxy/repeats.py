"""Sending a failed call once more: whether it may be, and what its attempts were.

Only what the caller has not seen a byte of, only a passing failure of the upstream's, only a
request that may be sent twice and is still here to be sent. However many attempts a call takes, its
breaker hears of one: the last.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec

from sidecar import clock
from sidecar.breaker.model import Mode, State
from sidecar.breaker.retries import RetryBudget, pause
from sidecar.envelope.model import Envelope, ErrorClass, Source
from sidecar.telemetry.observer import AttemptFinished

if TYPE_CHECKING:
    from sidecar.breaker.admission import Admission
    from sidecar.proxy.incoming import Incoming
    from sidecar.proxy.runtime import Runtime

KEPT = 1024 * 1024
"""Bytes of a request that are kept to be sent again; a larger one is sent once."""


class SendAgain(Exception):
    """What was held back of an answer is dropped, and the request is sent again.

    Attributes:
        wait: seconds until then.
    """

    def __init__(self, wait: float) -> None:
        super().__init__(wait)
        self.wait = wait


class Repeats:
    """The attempts of one call.

    Args:
        runtime: the provider.
        budget: of the provider.
        incoming: the request; what is read of it is kept from here on.
        admission: the breaker's leave.

    Attributes:
        attempts: one line for each that was followed by another, for `raw`.
    """

    __slots__ = (
        "_admission",
        "_began",
        "_began_wall",
        "_budget",
        "_incoming",
        "_number",
        "_runtime",
        "attempts",
    )

    def __init__(
        self, runtime: Runtime, budget: RetryBudget, incoming: Incoming, admission: Admission
    ) -> None:
        self._admission = admission
        self._budget = budget
        self._incoming = incoming
        self._runtime = runtime
        self._number = 0
        self.attempts: list[dict[str, Any]] = []
        incoming.keep(KEPT)
        budget.called(clock.monotonic())
        self.begin()

    def begin(self) -> None:
        """An attempt begins."""
        self._number += 1
        self._began = clock.monotonic()
        self._began_wall = clock.wall()

    def after(self, envelope: Envelope | None, status: int | None, left: float) -> float | None:
        """Seconds until the call is sent again; None if this attempt was its last.

        Args:
            envelope: what the attempt came to.
            status: that the upstream answered; None without an answer.
            left: seconds that the call may still take.
        """
        if envelope is None or not self._may_repeat(envelope):
            return None
        wait = pause(
            len(self.attempts),
            envelope.retry_after,
            self._runtime.config.shedding.max_wait,
            random.random(),  # noqa: S311 - it spreads calls, it hides nothing
        )
        if wait is None or wait >= left or not self._budget.take(clock.monotonic()):
            return None
        self.attempts.append(self._line(envelope, status, wait))
        return wait

    def _may_repeat(self, envelope: Envelope) -> bool:
        return (
            envelope.class_ is ErrorClass.TRANSIENT
            and envelope.retryable
            and envelope.source is not Source.SIDECAR
            and len(self.attempts) < self._runtime.config.retry.attempts
            and self._incoming.kept
            # A probe is to say how the upstream is, and an open breaker that it should rest.
            and self._admission.state is State.CLOSED
        )

    def told(self, envelope: Envelope, status: int | None) -> Envelope:
        """The envelope of the last attempt, with a line for each of them in `raw`."""
        if not self.attempts:
            return envelope
        attempts = [*self.attempts, self._line(envelope, status, None)]
        return msgspec.structs.replace(envelope, raw={**(envelope.raw or {}), "attempts": attempts})

    def _line(self, envelope: Envelope, status: int | None, wait: float | None) -> dict[str, Any]:
        return {
            "status": status,
            "class": envelope.class_.value,
            "code": envelope.code,
            "seconds": round(clock.monotonic() - self._began, 3),
            "wait": None if wait is None else round(wait, 3),
        }

    def fact(self, correlation_id: str, status: int | None, code: str | None) -> AttemptFinished:
        """The attempt that ended now, for whoever listens."""
        return AttemptFinished(
            at=clock.wall(),
            provider=self._runtime.name,
            correlation_id=correlation_id,
            number=self._number,
            began=self._began_wall,
            duration=clock.monotonic() - self._began,
            status=status,
            code=code,
        )


def repeats_of(runtime: Runtime, incoming: Incoming, admission: Admission | None) -> Repeats | None:
    """What repeats a call; None where nothing does."""
    budget = runtime.retry_budget
    if budget is None or admission is None or admission.mode is Mode.OFF:
        return None
    retry = runtime.config.retry
    if (
        incoming.method in retry.methods
        or not retry.require_idempotency_key
        or incoming.header(b"idempotency-key") is not None
    ):
        return Repeats(runtime, budget, incoming, admission)
    return None
