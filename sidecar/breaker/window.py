"""Exact counts of the last seconds.

A mean that decays hardly sees a tight burst, and a count that restarts each period forgets an
outage on the hour. So: ten buckets in a ring with exact totals. Buckets are anchored on multiples
of their width, so that fractions of a bucket never drift, and the ring rolls when it is read too:
otherwise an idle breaker would show, and decide on, figures that are long over.
"""

from __future__ import annotations

from math import inf
from typing import Final

from sidecar.breaker.model import WindowFigures
from sidecar.envelope.model import Verdict

BUCKETS: Final = 10

SHORTEST: Final = 0.5
"""Seconds below which a count says nothing of a rate."""

_VERDICTS: Final = tuple(Verdict)
_LATE_SUCCESS: Final = len(_VERDICTS)
_LATE_FAILURE: Final = _LATE_SUCCESS + 1
_COLUMNS: Final = _LATE_FAILURE + 1
_COLUMN: Final = {verdict: column for column, verdict in enumerate(_VERDICTS)}
_SUCCESS: Final = _COLUMN[Verdict.SUCCESS]
_FAILURE: Final = _COLUMN[Verdict.FAILURE]
_LATE: Final = {Verdict.SUCCESS: _LATE_SUCCESS, Verdict.FAILURE: _LATE_FAILURE}


class Window:
    """Verdicts per bucket. A time earlier than one already seen counts as that one."""

    __slots__ = ("_bucket", "_counts", "_index", "_totals", "_width", "seconds")

    def __init__(self, seconds: float) -> None:
        """Start empty; `seconds` is the length of the window, > 0."""
        self.seconds = seconds
        self._width = seconds / BUCKETS
        self._index = 0.0
        self._totals = [0] * _COLUMNS
        self._counts = [[0] * _COLUMNS for _ in range(BUCKETS)]
        self._bucket = self._counts[0]

    def record(self, verdict: Verdict, now: float, *, late: bool = False) -> None:
        """Count one verdict; a late one is shown, but no rule looks at it."""
        if now // self._width != self._index:
            self._roll(now)
        column = _COLUMN[verdict]
        self._bucket[column] += 1
        self._totals[column] += 1
        if late and verdict in _LATE:
            self._bucket[_LATE[verdict]] += 1
            self._totals[_LATE[verdict]] += 1

    def deciding(self, now: float) -> tuple[int, int]:
        """Failures, and decided calls (success + failure), that the ratio rule looks at."""
        if now // self._width != self._index:
            self._roll(now)
        totals = self._totals
        failures = totals[_FAILURE] - totals[_LATE_FAILURE]
        return failures, failures + totals[_SUCCESS] - totals[_LATE_SUCCESS]

    def lately(self, now: float, age: float = inf) -> float:
        """Successes a second of the last one to two buckets, if there is something so old.

        Args:
            now: monotonic seconds.
            age: seconds for which anything was counted.
        """
        if now // self._width != self._index:
            self._roll(now)
        before = self._counts[int(self._index - 1) % BUCKETS]
        seconds = now - self._index * self._width + self._width
        return (before[_SUCCESS] + self._bucket[_SUCCESS]) / min(seconds, max(age, SHORTEST))

    def figures(self, now: float) -> WindowFigures:
        """Everything that is shown, late verdicts included."""
        if now // self._width != self._index:
            self._roll(now)
        counts = {verdict.value: self._totals[column] for verdict, column in _COLUMN.items()}
        decided = counts["success"] + counts["failure"]
        ratio = counts["failure"] / decided if decided else None
        return WindowFigures(seconds=self.seconds, failure_ratio=ratio, **counts)

    def clear(self) -> None:
        """Forget everything."""
        self._totals = [0] * _COLUMNS
        for bucket in self._counts:
            bucket[:] = self._totals

    def resized(self, seconds: float, now: float) -> Window:
        """The same counts in a window of another length, none of them younger than it was."""
        self._roll(now)
        other = Window(seconds)
        for back in reversed(range(BUCKETS)):
            index = self._index - back
            other._pour(self._counts[int(index) % BUCKETS], index * self._width)
        other._roll(now)
        return other

    def _pour(self, counts: list[int], at: float) -> None:
        if any(counts):
            self._roll(at)
            for column, count in enumerate(counts):
                self._bucket[column] += count
                self._totals[column] += count

    def _roll(self, now: float) -> None:
        index = now // self._width
        passed = index - self._index
        if passed <= 0:
            return
        if passed >= BUCKETS:
            self.clear()
        else:
            for step in range(1, int(passed) + 1):
                self._drop(self._counts[int(self._index + step) % BUCKETS])
        self._index = index
        self._bucket = self._counts[int(index) % BUCKETS]

    def _drop(self, bucket: list[int]) -> None:
        for column, count in enumerate(bucket):
            self._totals[column] -= count
            bucket[column] = 0
