"""How fast a key may call while its upstream keeps throttling it.

The upstream's limit is not known, it moves, and each refusal costs a wait. So the rate is felt for:
halved on a throttle, then a step up after each clean window. Steps go most of the way back to the
rate that was refused last, and only creep beyond it at first, since that is where the limit was;
the longer it stays clean, the likelier the limit has moved, and the steps grow.

A refusal comes at once, while a model may think for half a minute before it answers. So a call that
was not refused soon counts as accepted: waiting for its answer would leave the rate at half for as
long, after each throttle.

At the beginning no rate was refused yet, only a crowd, and what was accepted of it says little: the
rate is searched in larger steps until a throttle ends the search.
"""

from __future__ import annotations

from math import exp, inf
from typing import Final, NamedTuple

CLEAN_SECONDS: Final = 0.3
"""Length of a clean window: short, for half the rate is half of what the upstream would give."""

CLEAN_CALLS: Final = 2
"""Accepted calls that a window must have seen to be evidence."""

RECOVERY: Final = 0.8
"""Share of the way back to the ceiling that one step makes."""

NEAR: Final = 0.02
"""Share of the ceiling from which the rest of the way is no step of its own."""

HEADROOM: Final = 4.0
"""Times what was accepted lately that the rate may be: what nobody uses was not tried."""


class Growth(NamedTuple):
    """How far beyond the ceiling the rate is after so long: share * (e^(seconds / scale) - 1).

    Attributes:
        share: of the ceiling.
        scale: seconds.
    """

    share: float
    scale: float

    def beyond(self, seconds: float) -> float:
        """The share of the ceiling that is added to it."""
        return self.share * (exp(min(seconds / self.scale, 50.0)) - 1)


CREEP: Final = Growth(0.002, 2.15)
"""A fiftieth beyond after five seconds, twice the ceiling after thirteen."""

SEARCH: Final = Growth(2.0, 1.0)
"""Twice the ceiling after half a second, ten times after two."""


class Pace:
    """The rate of one key, calls a second. Times are monotonic seconds."""

    __slots__ = (
        "_accepted",
        "_beyond_since",
        "_ceiling",
        "_clean",
        "_enough_at",
        "_growth",
        "_passed",
        "_patience",
        "_since",
        "floor",
        "rate",
    )

    def __init__(
        self, accepted: float, floor: float, now: float, patience: float = CLEAN_SECONDS
    ) -> None:
        """Start at half of what the upstream last accepted.

        Args:
            accepted: calls a second.
            floor: the rate that is never undercut.
            now: when calls may pass.
            patience: seconds after which a call without any answer counts as accepted.
        """
        self.floor = floor
        self.rate = max(floor, accepted / 2)
        self._ceiling = max(floor, accepted)
        self._growth = SEARCH
        self._restart(now, patience)

    @property
    def at_floor(self) -> bool:
        """Can it not go any slower?"""
        return self.rate <= self.floor

    def configure(self, floor: float) -> None:
        """Take another floor."""
        self.floor = floor
        self.rate = max(self.rate, floor)

    def refused(self, accepted: float, now: float, patience: float = CLEAN_SECONDS) -> None:
        """Halve it: the upstream throttled a call that was let through at this rate.

        Args:
            accepted: calls a second that the upstream accepted lately.
            now: when calls may pass again.
            patience: seconds after which a call without any answer counts as accepted.
        """
        used = min(self.rate, HEADROOM * accepted)
        self._ceiling = max(self.floor, min(used, accepted))
        self.rate = max(self.floor, used / 2)
        if self._clean:
            # Without a clean window since the last one it was still the crowd that was refused.
            self._growth = CREEP
        self._restart(now, patience)

    def _restart(self, now: float, patience: float) -> None:
        self._patience = patience
        self._clean = False
        self._beyond_since: float | None = None
        self._begin_window(now)

    def _begin_window(self, now: float) -> None:
        self._since = now
        self._accepted = self._passed = 0
        self._enough_at = inf

    def accepted(self) -> None:
        """The upstream took a call that was let through since the last throttle."""
        self._accepted += 1

    def passed(self, now: float) -> None:
        """A call is let through; if it is not refused soon, the upstream has taken it."""
        self._passed += 1
        if self._passed == CLEAN_CALLS:
            self._enough_at = now + self._patience

    def tick(self, accepted: float, now: float) -> None:
        """Make a step up if a clean window is over.

        Args:
            accepted: calls a second that the upstream accepted lately.
            now: monotonic seconds.
        """
        if now - self._since < CLEAN_SECONDS:
            return
        if self._accepted < CLEAN_CALLS and now < self._enough_at:
            return
        missing = self._ceiling - self.rate
        if missing > self._ceiling * NEAR:
            wanted = self.rate + missing * RECOVERY
        else:
            if self._beyond_since is None:
                self._beyond_since = self._since
            wanted = self._ceiling * (1 + self._growth.beyond(now - self._beyond_since))
        self.rate = max(self.rate, min(wanted, HEADROOM * accepted))
        self._begin_window(now)
        self._clean = True
