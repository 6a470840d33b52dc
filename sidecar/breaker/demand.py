"""What the calls of one key came to lately: how many the upstream took, and how many it refused.

A call that is shed stands for the refusal it was spared; else a gate that does its work well would
look like an upstream that is well.
"""

from __future__ import annotations

from typing import Final

from sidecar.breaker.gating import GateSettings
from sidecar.breaker.window import Window
from sidecar.envelope.model import Verdict

LATELY: Final = 3.0
"""Seconds over which the accepted calls are counted."""

_YOUNGEST: Final = 0.5
"""Seconds that are taken to have passed at least: a burst at once says little about a rate."""

_SHED: Final = Verdict.NEUTRAL
"""The column of calls that were decided here."""


class Demand:
    """Counts of one key. Times are monotonic seconds."""

    __slots__ = ("_accepted", "_before", "_calls", "_since")

    def __init__(self, settings: GateSettings, accepted_before: float, now: float) -> None:
        """Start to count.

        Args:
            settings: `shedding` of the provider.
            accepted_before: calls a second that were accepted before anybody counted here.
            now: when.
        """
        self._calls = Window(settings.sustained_window)
        self._accepted = Window(LATELY)
        self._before = accepted_before
        self._since = now

    def throttled(self, now: float) -> None:
        """The upstream refused a call for its rate."""
        self._calls.record(Verdict.THROTTLE, now)

    def shed(self, now: float) -> None:
        """A call was refused here."""
        self._calls.record(_SHED, now)

    def answered(self, now: float, *, accepted: bool) -> None:
        """The upstream answered without a throttle; `accepted` if the answer is a good one."""
        self._calls.record(Verdict.SUCCESS, now)
        if accepted:
            self._accepted.record(Verdict.SUCCESS, now)

    def accepted(self, now: float) -> float:
        """Calls a second that the upstream accepted lately."""
        age = now - self._since
        seen = self._accepted.deciding(now)[1] / min(max(age, _YOUNGEST), LATELY)
        return max(seen, self._before) if age < LATELY else seen

    def is_throttled(self, settings: GateSettings, now: float) -> bool:
        """Have throttles come often enough, and to a share of the calls that is large enough?"""
        figures = self._calls.figures(now)
        if figures.throttle < settings.sustained_count:
            return False
        refused = figures.throttle + figures.neutral
        return refused >= settings.sustained_ratio * (refused + figures.success)

    def clear(self) -> None:
        """Forget what was refused."""
        self._calls.clear()

    def configure(self, settings: GateSettings, now: float) -> None:
        """Take another window and keep the counts."""
        if settings.sustained_window != self._calls.seconds:
            self._calls = self._calls.resized(settings.sustained_window, now)
