"""How often failed calls may be sent again, and after what pause.

Repetition helps against a hiccup and makes an outage worse: everybody's calls arrive several times
just when there is least room for them. So repetitions are a share of the calls there are, and each
waits a time drawn at random, since those who failed together would else come back together.
"""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW: Final = 60.0
"""Seconds over which repetitions are a share of the calls."""

BUCKETS: Final = 10

BASE: Final = 0.25
"""Seconds that the first pause takes at most; each further one takes up to twice as long."""

LONGEST: Final = 4.0
"""Seconds that the doubling stops at."""


class RetryBudget:
    """Repetitions and calls of one provider in the last minute. Times are monotonic seconds.

    Attributes:
        share: repetitions that there may be, as a share of the calls; 0 = none.
        lone: repetitions that there may be however few the calls are.
    """

    __slots__ = ("_buckets", "_calls", "_repeated", "lone", "share")

    def __init__(self, share: float, lone: int) -> None:
        self._buckets: deque[list[float]] = deque()
        self._calls = 0
        self._repeated = 0
        self.share = share
        self.lone = lone

    def called(self, now: float) -> None:
        """A call began that may be repeated should it fail."""
        self._bucket(now)[1] += 1
        self._calls += 1

    def has_some(self, now: float) -> bool:
        """Is there a repetition to spend?"""
        self._bucket(now)
        return self.share > 0 and self._repeated + 1 <= max(self.lone, self.share * self._calls)

    def take(self, now: float) -> bool:
        """Spends one repetition, if there is one to spend."""
        if not self.has_some(now):
            return False
        bucket = self._bucket(now)
        bucket[2] += 1
        self._repeated += 1
        return True

    def _bucket(self, now: float) -> list[float]:
        index = now // (WINDOW / BUCKETS)
        buckets = self._buckets
        while buckets and buckets[0][0] <= index - BUCKETS:
            _, calls, repeated = buckets.popleft()
            self._calls -= int(calls)
            self._repeated -= int(repeated)
        if not buckets or buckets[-1][0] < index:
            buckets.append([index, 0, 0])
        return buckets[-1]


def pause(repeated: int, asked: float | None, most: float, drawn: float) -> float | None:
    """Seconds until a call is sent again; None if it should not be.

    Args:
        repeated: how often it has been.
        asked: seconds that the upstream asked to wait; it is never called earlier.
        most: seconds that the call may still be held; about a longer wait the caller decides.
        drawn: a random number in [0, 1).
    """
    asked = asked or 0.0
    if asked > most:
        return None
    return asked + drawn * min(BASE * 2.0**repeated, LONGEST, most - asked)
