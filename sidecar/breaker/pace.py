"""How fast a key may call while its upstream keeps throttling it.

The upstream's limit is not known, it moves, and each refusal costs a wait. So the rate is felt for:
halved on a throttle, then a step up after each clean window. Steps go most of the way back to the
rate that was refused last, and only creep beyond it at first, since that is where the limit was;
each further clean window is a sign that the limit has moved, and the steps grow.
"""

from __future__ import annotations

from typing import Final

CLEAN_SECONDS: Final = 0.3
"""Length of a clean window: short, for half the rate is half of what the upstream would give."""

CLEAN_CALLS: Final = 2
"""Accepted calls that a window must have seen to be evidence."""

RECOVERY: Final = 0.8
"""Share of the way back to the ceiling that one step makes."""

NEAR: Final = 0.02
"""Share of the ceiling from which the rest of the way is a step of its own."""

FIRST_STEP: Final = 0.0003
"""Share of the ceiling of the first step beyond it."""

GROWTH: Final = 1.15
"""By how much each step beyond the ceiling is larger than the one before."""

FIRST_SEARCH: Final = 0.25
SEARCH_GROWTH: Final = 1.5
"""Likewise before the first throttle at a paced rate: until then the ceiling is only a guess."""

HEADROOM: Final = 2.0
"""Times what was accepted lately that the rate may be: what nobody uses was not tried."""


class Pace:
    """The rate of one key, calls a second. Times are monotonic seconds."""

    __slots__ = ("_accepted", "_ceiling", "_growth", "_since", "_step", "floor", "rate")

    def __init__(self, accepted: float, floor: float, now: float) -> None:
        """Start at half of what the upstream last accepted.

        Args:
            accepted: calls a second.
            floor: the rate that is never undercut.
            now: when.
        """
        self.floor = floor
        self.rate = max(floor, accepted / 2)
        self._ceiling = max(floor, accepted)
        self._restart(now)
        self._step = self._ceiling * FIRST_SEARCH
        self._growth = SEARCH_GROWTH

    @property
    def at_floor(self) -> bool:
        """Can it not go any slower?"""
        return self.rate <= self.floor

    def configure(self, floor: float) -> None:
        """Take another floor."""
        self.floor = floor
        self.rate = max(self.rate, floor)

    def refused(self, accepted: float, now: float) -> None:
        """Halve it: the upstream throttled a call that was let through at this rate.

        Args:
            accepted: calls a second that the upstream accepted lately.
            now: when calls may pass again.
        """
        used = min(self.rate, HEADROOM * accepted)
        self._ceiling = max(self.floor, min(used, accepted))
        self.rate = max(self.floor, used / 2)
        self._restart(now)

    def _restart(self, now: float) -> None:
        self._since = now
        self._accepted = 0
        self._step = self._ceiling * FIRST_STEP
        self._growth = GROWTH

    def accepted(self) -> None:
        """The upstream took a call that was let through since the last throttle."""
        self._accepted += 1

    def tick(self, accepted: float, now: float) -> None:
        """Make a step up if a clean window is over.

        Args:
            accepted: calls a second that the upstream accepted lately.
            now: monotonic seconds.
        """
        if now - self._since < CLEAN_SECONDS or self._accepted < CLEAN_CALLS:
            return
        missing = self._ceiling - self.rate
        if missing > self._ceiling * NEAR:
            wanted = self.rate + missing * RECOVERY
        elif missing > 0:
            wanted = self._ceiling
        else:
            wanted = self.rate + self._step
            self._step *= self._growth
        self.rate = max(self.rate, min(wanted, HEADROOM * accepted))
        self._since = now
        self._accepted = 0
