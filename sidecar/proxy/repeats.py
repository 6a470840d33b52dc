"""Sending a failed call once more: whether it may be, and what its attempts were.

Only what the caller has not seen a byte of, only a passing failure of the upstream's, only a
request that may be sent twice and is still here to be sent. However many attempts a call takes, its
breaker hears of one: the last.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from sidecar import clock
from sidecar.breaker.model import Mode, State
from sidecar.breaker.retries import RetryBudget, pause
from sidecar.envelope.model import Classified, Envelope, ErrorClass, Source
from sidecar.proxy import own_answers
from sidecar.proxy.failures import UpstreamFailed
from sidecar.telemetry.observer import AttemptFinished

if TYPE_CHECKING:
    from sidecar.breaker.admission import Admission
    from sidecar.proxy.call import Call
    from sidecar.proxy.entry import Entry

KEPT = 1024 * 1024
"""Bytes of a request that are kept to be sent again; a larger one is sent once."""


class SendAgain(Exception):
    """What was held back of an answer is dropped, and the request is sent again.

    Attributes:
        wait: seconds until then.
        envelope: what it would have told.
    """

    def __init__(self, wait: float, envelope: Envelope) -> None:
        super().__init__(wait)
        self.wait = wait
        self.envelope = envelope


class Repeats:
    """The attempts of one call.

    Args:
        call: to be repeated; what is read of its body is kept from here on.
        entry: who let it in.
        budget: of the provider.
        admission: the breaker's leave.

    Attributes:
        attempts: one line for each that was followed by another, for `raw`.
        over: nothing is sent again, whatever comes.
    """

    __slots__ = (
        "_admission",
        "_began",
        "_began_wall",
        "_budget",
        "_call",
        "_counted",
        "_entry",
        "_number",
        "_paused",
        "_runtime",
        "attempts",
        "over",
    )

    def __init__(self, call: Call, entry: Entry, budget: RetryBudget, admission: Admission) -> None:
        self._admission = admission
        self._began = self._began_wall = 0.0
        self._budget = budget
        self._call = call
        self._counted = False
        self._entry = entry
        self._number = 0
        self._paused = 0.0
        self._runtime = entry.runtime
        self.attempts: list[dict[str, Any]] = []
        self.over = False
        call.incoming.keep(KEPT)

    def begins(self, *, counts: bool) -> None:
        """An attempt begins.

        Args:
            counts: it is a call of the provider's, and not a fault that nobody is to hear of: those
                neither fill the budget nor spend from it.
        """
        if counts and not self._counted:
            self._counted = True
            self._budget.called(clock.monotonic())

    async def run(self, send: Callable[[], Awaitable[None]]) -> None:
        """Sends the request, and again while that is allowed and helps.

        Raises:
            UpstreamFailed: of the last attempt.
            Refused: what came in a pause forbids another.
        """
        call = self._call
        while True:
            self._number += 1
            self._began, self._began_wall = clock.monotonic(), clock.wall()
            try:
                await send()
            except SendAgain as again:
                wait, envelope = again.wait, again.envelope
            except UpstreamFailed as failure:
                failed = failure
                if call.is_evidence:
                    failed = call.plane.watch.judge(self._runtime, failure)
                envelope = own_answers.envelope_of(call, failed)
                found = self._next(envelope)
                if found is None:
                    raise failed from None
                wait = found
            else:
                return
            await call.forget_attempt(envelope)
            await asyncio.sleep(wait)
            self._entry.check_again()

    def reconsider(self, classified: Classified) -> Classified:
        """An answer is known: what is told of it, if it is the last.

        Raises:
            SendAgain: nothing of it was passed on, and it is dropped for another attempt.
        """
        envelope = classified.envelope
        if envelope is None:
            return classified
        wait = self._next(envelope)
        if wait is not None:
            raise SendAgain(wait, envelope)
        return classified.replaced(self.told(envelope))

    def told(self, envelope: Envelope) -> Envelope:
        """The envelope of the last attempt, with a line for each of them in `raw`."""
        if not self.attempts or "attempts" in (envelope.raw or {}):
            return envelope
        attempts = [*self.attempts, self._line(envelope, None)]
        return msgspec.structs.replace(envelope, raw={**(envelope.raw or {}), "attempts": attempts})

    def ended(self) -> None:
        """The call is over, and with it its last attempt."""
        if self.attempts:
            classified = self._call.classified
            envelope = None if classified is None else classified.envelope
            self._tell(None if envelope is None else envelope.code)

    # -- inside -----------------------------------------------------------------------------

    def _next(self, envelope: Envelope) -> float | None:
        """Seconds until the request is sent again; None if this attempt was the last."""
        call = self._call
        if self.over or call.out.started or call.plane.draining or not self._helps(envelope):
            return None
        wait = pause(
            len(self.attempts),
            envelope.retry_after,
            self._entry.patience - self._paused,
            random.random(),  # noqa: S311 - it spreads calls, it hides nothing
        )
        if wait is None or wait >= call.time_left:
            return None
        now = clock.monotonic()
        if not (self._budget.take(now) if call.is_evidence else self._budget.has_some(now)):
            return None
        self._paused += wait
        self.attempts.append(self._line(envelope, wait))
        self._tell(envelope.code)
        return wait

    def _helps(self, envelope: Envelope) -> bool:
        return (
            envelope.class_ is ErrorClass.TRANSIENT
            and envelope.retryable
            and envelope.source is not Source.SIDECAR
            and len(self.attempts) < self._runtime.config.retry.attempts
            and self._call.incoming.kept
            # Nor has one that refuses this key for its rate any room for repetitions.
            and not self._entry.is_throttled
            # A probe is to say how the upstream is, and an open breaker that it should rest.
            and self._admission.state is State.CLOSED
        )

    def _line(self, envelope: Envelope, wait: float | None) -> dict[str, Any]:
        return {
            "status": self._call.upstream_status,
            "class": envelope.class_.value,
            "code": envelope.code,
            "seconds": round(clock.monotonic() - self._began, 3),
            "wait": None if wait is None else round(wait, 3),
        }

    def _tell(self, code: str | None) -> None:
        self._call.plane.observer.emit(
            AttemptFinished(
                at=clock.wall(),
                provider=self._runtime.name,
                correlation_id=self._call.correlation_id,
                number=self._number,
                began=self._began_wall,
                duration=clock.monotonic() - self._began,
                status=self._call.upstream_status,
                code=code,
            )
        )


def repeats_of(call: Call, entry: Entry) -> Repeats | None:
    """What repeats a call that was let in; None where nothing does."""
    runtime, admission = entry.runtime, entry.admission
    budget = runtime.retry_budget
    if budget is None or admission is None or admission.mode is Mode.OFF:
        return None
    retry, incoming = runtime.config.retry, call.incoming
    if (
        incoming.method in retry.methods
        or not retry.require_idempotency_key
        or incoming.header(b"idempotency-key") is not None
    ):
        return Repeats(call, entry, budget, admission)
    return None
