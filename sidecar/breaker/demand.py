"""What the calls of one key came to lately: how many the upstream took, and how many it refused.

A call that is shed stands for the refusal it was spared; else a gate that does its work well would
look like an upstream that is well. A refusal comes at once, while an answer takes its time: so what
was let through and was not refused counts as taken, before it is answered.
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

SHORTEST_PATIENCE: Final = 0.3
"""Seconds that a refusal is waited for at least."""

PATIENCE: Final = 2.0
"""Times what refusals took lately that one is waited for."""

_SHED: Final = Verdict.NEUTRAL
"""The column of calls that were decided here."""


class Demand:
    """Counts of one key. Times are monotonic seconds."""

    __slots__ = ("_answered", "_before", "_calls", "_passed", "_refused_after", "_since")

    def __init__(self, settings: GateSettings, accepted_before: float, now: float) -> None:
        """Start to count.

        Args:
            settings: `shedding` of the provider.
            accepted_before: calls a second that were accepted before anybody counted here.
            now: when.
        """
        self._calls = Window(settings.sustained_window)
        self._answered = Window(LATELY)
        self._passed = Window(LATELY)
        self._refused_after = 0.0
        self._before = accepted_before
        self._since = now

    @property
    def patience(self) -> float:
        """Seconds after which a call without any answer counts as accepted."""
        return max(SHORTEST_PATIENCE, PATIENCE * self._refused_after)

    def passed(self, now: float) -> None:
        """A call is let through."""
        self._passed.record(Verdict.SUCCESS, now)

    def throttled(self, now: float, admitted_at: float) -> None:
        """The upstream refused a call for its rate that was let through then."""
        self._calls.record(Verdict.THROTTLE, now)
        self._passed.record(Verdict.THROTTLE, now)
        self._refused_after = max(now - admitted_at, self._refused_after / 2)

    def shed(self, now: float) -> None:
        """A call was refused here."""
        self._calls.record(_SHED, now)

    def answered(self, now: float, *, accepted: bool) -> None:
        """The upstream answered without a throttle; `accepted` if the answer is a good one."""
        self._calls.record(Verdict.SUCCESS, now)
        if accepted:
            self._answered.record(Verdict.SUCCESS, now)

    def answered_lately(self, now: float) -> float:
        """Calls a second that the upstream answered well lately."""
        return self._a_second(self._answered.deciding(now)[1], now)

    def accepted(self, now: float) -> float:
        """Calls a second that the upstream accepted lately, whether it has answered them or not."""
        passed = self._passed.figures(now)
        unrefused = self._a_second(passed.success - passed.throttle, now)
        return max(self.answered_lately(now), unrefused)

    def _a_second(self, calls: int, now: float) -> float:
        age = now - self._since
        seen = calls / min(max(age, _YOUNGEST), LATELY)
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
