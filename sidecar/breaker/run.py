"""Failures in a row, where a repeat of the same request is no new evidence.

One request that makes an upstream answer 500 each time, sent again and again by a patient client,
would look like an outage to a plain count. Here it counts once in a while. Failures that say
nothing about the request, refused connections and timeouts, always count: the lone agent who
repeats one call is the normal caller, and its outage must be seen.
"""

from __future__ import annotations

from typing import Final

from sidecar.breaker.model import Kind, Outcome

REMEMBERED: Final = 256
"""Requests remembered per run; beyond it the oldest is forgotten, and counts again."""


class Run:
    """The run of failures since the last success, and what it was asked to wait.

    Attributes:
        failures: how many counted.
        deduplicated: how many did not, because the same request had counted shortly before.
        wait_until: the latest time at which an upstream asked to be called again, capped.
        hint: the seconds it asked for, as given; None if none did.
    """

    __slots__ = ("_counted_at", "deduplicated", "failures", "hint", "wait_until")

    def __init__(self) -> None:
        self._counted_at: dict[bytes, float] = {}
        self.clear()

    def clear(self) -> None:
        """Start anew, the remembered requests included: they counted for the run that is over."""
        self.failures = 0
        self.deduplicated = 0
        self.wait_until = 0.0
        self.hint: float | None = None
        self._counted_at.clear()

    def add(self, outcome: Outcome, now: float, repeat_window: float) -> None:
        """Count a failure, unless the same request's answer counted within `repeat_window`."""
        fingerprint = outcome.fingerprint
        if fingerprint is not None and outcome.kind is Kind.ANSWER and repeat_window > 0:
            counted_at = self._counted_at.pop(fingerprint, None)
            if counted_at is not None and now - counted_at < repeat_window:
                self._counted_at[fingerprint] = counted_at
                self.deduplicated += 1
                return
            self._counted_at[fingerprint] = now
            if len(self._counted_at) > REMEMBERED:
                del self._counted_at[next(iter(self._counted_at))]
        self.failures += 1

    def ask(self, retry_after: float | None, now: float, cap: float) -> None:
        """Note an upstream's wait (seconds); a shorter one never replaces a longer one."""
        if retry_after is None or not retry_after > 0:
            return
        wait_until = now + min(retry_after, cap)
        if wait_until > self.wait_until:
            self.wait_until = wait_until
            self.hint = retry_after

    def remember(self, wait_until: float, hint: float | None) -> None:
        """Take up the wait that an earlier process was asked for."""
        self.wait_until = wait_until
        self.hint = hint

    def floor(self, now: float) -> float:
        """The time before which an upstream asked not to be called; a past one is dropped."""
        if self.wait_until <= now:
            self.wait_until = 0.0
            self.hint = None
        return self.wait_until
