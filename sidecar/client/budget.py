"""A budget over all calls: repeats may be a share of the traffic, and no storm.

A token bucket, as Finagle's RetryBudget and tower's: each call pays in a share of a repeat, each
repeat takes one out, and a trickle lets a client repeat that calls seldom. A full bucket lets the
first failures of a process be repeated. The share is the SRE book's ("Handling Overload": a client
retries while less than a tenth of its requests are retries).
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable

_budgets: weakref.WeakSet[Budget] = weakref.WeakSet()


class Budget:
    """Repeats that all the calls of one client have together.

    In any time the repeats are at most `burst + ratio * calls + per_second * seconds`.

    Args:
        ratio: repeats per call: a tenth.
        per_second: repeats per second that are there however seldom one calls: one. Finagle's
            servers have ten.
        burst: repeats that can be saved up, and are there at the beginning: ten, as gRPC's
            `maxTokens` of most examples.
        clock: monotonic seconds.

    Raises:
        ValueError: if a number is negative, or no burst can hold one repeat.
    """

    def __init__(
        self,
        ratio: float = 0.1,
        *,
        per_second: float = 1.0,
        burst: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if ratio < 0 or per_second < 0 or burst < 1:
            raise ValueError("ratio and per_second are not negative, burst is at least 1")
        self._ratio = ratio
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._seen = clock()
        self._lock = threading.Lock()
        _budgets.add(self)

    def called(self) -> None:
        """A call begins: it pays in its share."""
        with self._lock:
            self._refill(self._ratio)

    def take(self) -> bool:
        """Whether one more repeat is allowed; it is taken if so."""
        with self._lock:
            self._refill(0.0)
            # A tenth paid in ten times is a hair less than one.
            if self._tokens < 1 - 1e-9:
                return False
            self._tokens = max(0.0, self._tokens - 1)
            return True

    def _refill(self, paid: float) -> None:
        now = self._clock()
        paid += self._per_second * max(0.0, now - self._seen)
        self._seen = now
        self._tokens = min(self._burst, self._tokens + paid)

    def renew_lock(self) -> None:
        """In a fork's child: nobody is left to release what another thread held."""
        self._lock = threading.Lock()


def _forked() -> None:
    for budget in tuple(_budgets):
        budget.renew_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
