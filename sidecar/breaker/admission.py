"""One call between its admission and its end, and the guard that keeps our own faults from it.

A call needs a permit of its provider's own breaker and one of its model's. Not reaching the
upstream says nothing about a model, so it is the provider's alone; everything that an upstream,
once reached, did or did not do is the model's. Where a provider has one breaker for all, that one
hears the outcome of each call and nothing else, so that a call never counts twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from sidecar.breaker.breaker import Breaker, Permit
from sidecar.breaker.model import SUCCESS, Kind, Mode, Outcome, Refusal, State
from sidecar.envelope.model import Verdict


class Faults:
    """Counts the faults of this package's own code; none of them costs a call."""

    __slots__ = ("_on_fault", "_told", "total")

    def __init__(self, on_fault: Callable[[Exception], None] | None) -> None:
        """`on_fault` hears of the first fault of each type."""
        self.total = 0
        self._on_fault = on_fault
        self._told: set[type[Exception]] = set()

    def count(self, error: Exception) -> None:
        """Count one, and tell of it if it is the first of its type."""
        self.total += 1
        if self._on_fault is not None and type(error) not in self._told:
            self._told.add(type(error))
            with suppress(Exception):
                self._on_fault(error)


class Admission:
    """A call's leave to go on. Whoever settles or releases it first decides; the rest is ignored.

    Attributes:
        key: the breaker that the answer is marked with.
        would_refuse: in `observe`, why the call would have been refused; else None.
    """

    __slots__ = ("_breaker", "_faults", "_own", "_subject", "key", "would_refuse")

    def __init__(
        self,
        faults: Faults,
        key: str,
        breaker: Breaker | None = None,
        own: Permit | None = None,
        subject: Permit | None = None,
    ) -> None:
        """Hold the permits: `own` of a provider beside its subjects, `subject` of what is judged.

        Without any, the call was admitted on doubt, and nothing hears of it.
        """
        self._faults = faults
        self._breaker = breaker
        self._own = own
        self._subject = subject
        self.key = key
        self.would_refuse: Refusal | None = None
        if own is not None:
            self.would_refuse = own.would_refuse
        if subject is not None and self.would_refuse is None:
            self.would_refuse = subject.would_refuse

    @property
    def state(self) -> State:
        """The state of the breaker that `key` names."""
        return State.CLOSED if self._breaker is None else self._breaker.state

    @property
    def mode(self) -> Mode:
        """The mode of the breaker that `key` names."""
        return Mode.ENFORCE if self._breaker is None else self._breaker.mode

    def first_byte(self, now: float) -> None:
        """The upstream sent something: it can be reached, however this call ends."""
        own = self._own
        if own is not None:
            self._own = None
            try:
                own.settle(SUCCESS, now)
            except Exception as error:  # noqa: BLE001  # the boundary: no fault costs a call
                self._faults.count(error)

    def settle(self, outcome: Outcome, now: float) -> None:
        """Tell how the call ended, to the one breaker that it concerns."""
        own, subject = self._own, self._subject
        self._own = self._subject = None
        if subject is None:
            return
        try:
            if own is None:
                subject.settle(outcome, now)
            elif outcome.kind is Kind.CONNECTION and outcome.verdict is Verdict.FAILURE:
                subject.release(now)
                own.settle(outcome, now)
            else:
                own.release(now)
                subject.settle(outcome, now)
        except Exception as error:  # noqa: BLE001  # the boundary: no fault costs a call
            self._faults.count(error)

    def release(self, now: float) -> None:
        """Give everything back without evidence: the call was never made."""
        own, subject = self._own, self._subject
        self._own = self._subject = None
        try:
            if own is not None:
                own.release(now)
            if subject is not None:
                subject.release(now)
        except Exception as error:  # noqa: BLE001  # the boundary: no fault costs a call
            self._faults.count(error)
