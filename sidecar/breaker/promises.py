"""What callers who are shed are told: how long until a slot, and not all of them the same.

A crowd that is told one wait comes back as a crowd. So each is told a turn of its own: never less
than the true wait, and the later, the more were told before, within bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

SPREAD_CLOSED: Final = 1.0
"""Seconds by which the waits differ at most while the upstream's own wait runs."""

SPREAD_OPEN: Final = 5.0
"""Seconds likewise while calls are let through one by one."""

ROUNDING: Final = 1.0
"""Seconds by which a caller may come later than it was told: `Retry-After` knows no fractions."""


class Promises:
    """The turns that were told at one gate. Times are monotonic seconds.

    Args:
        random: yields numbers in [0, 1), so that daemons side by side do not tell the same.
    """

    __slots__ = ("_last", "_random")

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._last = -inf

    def tell(self, wait: float, rate: float, now: float, *, closed: bool) -> float:
        """The wait to tell, in seconds.

        Args:
            wait: the true one, in seconds.
            rate: calls a second that are let through where the gate is open.
            now: monotonic seconds.
            closed: the upstream's own wait still runs.
        """
        soonest, spread = now + wait, SPREAD_CLOSED if closed else SPREAD_OPEN
        self._last = max(self._last, soonest) + (0.5 + self._random()) / rate
        if self._last > soonest + spread:
            self._last = soonest + spread * self._random()
        return self._last - now

    def are_due(self, now: float) -> bool:
        """May somebody still come back who was told to?"""
        return now < self._last + ROUNDING

    def clear(self) -> None:
        """Nobody is awaited."""
        self._last = -inf
