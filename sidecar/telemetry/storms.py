"""Keeps a storm of equal failures from flooding the log: ten lines a minute, then a count.

A kind is provider, model, class and code. The ten are those of any sixty seconds, not of a minute
on the clock; what is held back is added up and told once a minute, so that lines and counts
together are all calls there were.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MOST: Final = 10
SECONDS: Final = 60.0
_MOST_KINDS: Final = 1_000

Kind = tuple[str | None, str | None, str | None, str | None]
"""Provider, model, class and code; for a call that has no envelope its ending is the code."""

_OTHERS: Final[Kind] = ("other", None, None, None)


class Storms:
    """Counts lines by kind. Times are seconds of any clock."""

    __slots__ = ("_held", "_written")

    def __init__(self) -> None:
        self._written: dict[Kind, deque[float]] = {}
        self._held: dict[Kind, int] = {}

    def admit(self, kind: Kind, at: float) -> bool:
        """May a line of this kind be written now? If not, it has been counted.

        Args:
            kind: of the call.
            at: when it ended.
        """
        times = self._written.get(kind)
        if times is None:
            if len(self._written) >= _MOST_KINDS:
                self._forget(at)
            if len(self._written) >= _MOST_KINDS:
                # More kinds than anybody reads about: whoever makes them up shares ten lines.
                kind = _OTHERS
            times = self._written.setdefault(kind, deque(maxlen=MOST))
        if len(times) < MOST or not 0 <= at - times[0] < SECONDS:
            times.append(at)
            return True
        self._held[kind] = self._held.get(kind, 0) + 1
        return False

    def take(self) -> dict[Kind, int]:
        """What was held back since the last time."""
        held, self._held = self._held, {}
        return held

    def _forget(self, at: float) -> None:
        """Drop the kinds of which no line has been written for a minute."""
        for kind, times in list(self._written.items()):
            if not 0 <= at - times[-1] < SECONDS:
                del self._written[kind]
