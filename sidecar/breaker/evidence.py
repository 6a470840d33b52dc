"""What the outcomes of one key amount to, and whether either rule is met.

Two rules, because each is blind where the other sees: failures in a row notice a total outage
after a few calls, however slow and lonely they are; the share of failures in a window notices an
upstream that fails half of the time and never five times in a row.
"""

from __future__ import annotations

from typing import Final

from sidecar.breaker.model import Cause, Kind, LastError, Outcome, Settings
from sidecar.breaker.run import Run
from sidecar.breaker.window import Window
from sidecar.envelope.model import Verdict

SHORTEST_DECAY: Final = 600.0
"""Seconds without a call in flight after which a run is over, at least."""


class Evidence:
    """The run, the window, and the failure that counted last.

    Attributes:
        run: failures in a row.
        window: verdicts of the last seconds.
        last_counted: the failure that counted last since the breaker closed, and when.
        last_error: the last failure of all, for people.
    """

    __slots__ = ("_settings", "last_counted", "last_error", "run", "window")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.run = Run()
        self.window = Window(settings.window)
        self.last_counted: tuple[Outcome, float] | None = None
        self.last_error: LastError | None = None

    def record(self, outcome: Outcome, now: float, *, late: bool) -> None:
        """Show an outcome in the figures; unless it is late, let it count for the rules."""
        verdict = outcome.verdict
        self.window.record(verdict, now, late=late)
        if verdict is Verdict.SUCCESS:
            if not late and self.run.failures:
                self.run.clear()
        elif verdict is Verdict.FAILURE:
            self.last_error = LastError(
                at=now, kind=outcome.kind, code=outcome.code, status=outcome.status
            )
            if not late:
                self.run.add(outcome, now, self._settings.repeat_window)
                self.run.ask(outcome.retry_after, now, self._settings.retry_after_max)
                self.last_counted = (outcome, now)

    def rule_met(self, now: float) -> tuple[Cause, str] | None:
        """Which rule says that the breaker should open, and why in words; None if none does.

        Asked after a success too: it may complete the minimum of calls, and from then on the ratio
        holds.
        """
        if self.last_counted is None:
            return None
        settings, failures = self._settings, self.run.failures
        if 0 < settings.consecutive_failures <= failures:
            told = f"{failures} failures in a row, last: {words(self.last_counted[0])}"
            return Cause.CONSECUTIVE_FAILURES, told
        if settings.failure_ratio > 0:
            failed, decided = self.window.deciding(now)
            if failed and decided >= settings.minimum_calls:
                share = failed / decided
                if share >= settings.failure_ratio:
                    within = f"{failed} of {decided} calls failed within {settings.window:g} s"
                    told = f"{within}, last: {words(self.last_counted[0])}"
                    return Cause.FAILURE_RATIO, told
        return None

    @property
    def last_kind(self) -> Kind | None:
        """How the failure that counted last failed; None if none did since the breaker closed."""
        return None if self.last_counted is None else self.last_counted[0].kind

    def decay(self, idle_since: float, now: float) -> None:
        """End the run if no call has been in flight for long.

        Long is measured against how long a call may take, so that failures of minutes each, with
        pauses between them, still add up.
        """
        if self.run.failures:
            limit = max(SHORTEST_DECAY, 3 * self._settings.first_byte)
            if now - idle_since >= limit:
                self.run.clear()

    def clear(self) -> None:
        """Forget all that counts; the window too: its old failures would trip a healed breaker."""
        self.run.clear()
        self.window.clear()
        self.last_counted = None

    def configure(self, settings: Settings, now: float) -> None:
        """Take other thresholds and keep the counts."""
        if settings.window != self._settings.window:
            self.window = self.window.resized(settings.window, now)
        self._settings = settings


def words(outcome: Outcome) -> str:
    """An outcome for people: status and code, else how it failed."""
    status = "" if outcome.status is None else str(outcome.status)
    code = "" if outcome.code is None or outcome.code == status else outcome.code
    return f"{status} {code}".strip() or outcome.kind.value
