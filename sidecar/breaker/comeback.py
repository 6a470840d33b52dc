"""How those who waited come back: one after another, faster and faster.

All of them at one instant would be the next throttle. Answers that come back good are the evidence
that more may follow, and where answers take long it is the lack of refusals, which come quickly.
"""

from __future__ import annotations

from math import inf
from typing import Final

FIRST_RATE: Final = 16.0
"""Calls a second that come back first, at least."""

SHARE: Final = 2.0
"""Times what was accepted before the wait, likewise: there is a queue to be served besides."""

DOUBLES: Final = 0.25
"""Seconds after which the rate doubles where calls were accepted since: a refusal would be here."""

DOUBLES_UNHEARD: Final = 1.0
"""Seconds likewise where nothing was heard yet."""

QUIET: Final = 1.0
"""Seconds without anybody who had to be held or shed after which all are back."""

AWAITED: Final = 10.0
"""Seconds for which the first one is awaited: waits are told in whole seconds, and spread out."""


class Passed:
    """Who passed from one wait to the next. Times are monotonic seconds.

    Attributes:
        lost: how many of them were refused or failed.
    """

    __slots__ = ("_count", "_first", "_last", "lost")

    def __init__(self) -> None:
        self.lost = 0
        self._count = 0
        self._first = self._last = inf

    def add(self, now: float) -> None:
        """One more."""
        self._count += 1
        self._first = min(self._first, now)
        self._last = now

    def some_were_taken(self, before: float, patience: float) -> bool:
        """Was one of them not refused in time?

        Args:
            before: when one passed that was refused.
            patience: seconds after which a call without any answer counts as accepted.
        """
        return self._count > self.lost and before - self._first >= patience

    def any_was_taken(self, now: float, patience: float) -> bool:
        """The same, when nobody passes any more."""
        return self._count > self.lost and now - self._last >= patience


class Comeback:
    """One return after one wait. Times are monotonic seconds.

    Attributes:
        rate: calls a second that may come back now.
    """

    __slots__ = ("_accepted", "_awaited_until", "_crowded_at", "_grown_at", "rate")

    def __init__(self, accepted: float, opens_at: float) -> None:
        """Await the first one.

        Args:
            accepted: calls a second that were accepted before the wait.
            opens_at: when the wait is over.
        """
        self.rate = max(FIRST_RATE, SHARE * accepted)
        self._awaited_until = opens_at + AWAITED
        self._grown_at = inf
        self._crowded_at = inf
        self._accepted = False

    def came(self, now: float, *, crowded: bool) -> None:
        """Somebody came after the wait; `crowded` if there was no slot at once."""
        if self._grown_at == inf:
            self._grown_at = self._crowded_at = now
        elif crowded:
            self._crowded_at = now

    def accepted(self) -> None:
        """The upstream took a call that came back."""
        self._accepted = True

    def tick(self, now: float) -> None:
        """Let more come if it is time."""
        while now - self._grown_at >= (DOUBLES if self._accepted else DOUBLES_UNHEARD):
            self._grown_at += DOUBLES if self._accepted else DOUBLES_UNHEARD
            self._accepted = False
            self.rate = min(self.rate * 2, 1e9)

    def is_over(self, now: float) -> bool:
        """Is everybody back, or does nobody come?"""
        if self._grown_at == inf:
            return now >= self._awaited_until
        return now - self._crowded_at >= QUIET
