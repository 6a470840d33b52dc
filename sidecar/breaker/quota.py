"""The gate of one spent budget: further calls are answered here, and now and then one asks again.

A spent budget is no limit that passes, so nobody waits for it; but a top-up tells nobody either,
and the reset that an answer names is often that of another window. So one call each `recheck` goes
through, whatever the reset says. A good answer lifts the gate; otherwise the next one asks a
`recheck` later, or at once where the call was given up before it could tell.
"""

from __future__ import annotations

from typing import Final

from sidecar.breaker.gating import QuotaSnapshot, Spent

REMEMBERED: Final = 3600.0
"""Seconds for which a budget that nobody asks about any more is remembered as spent."""


class Quota:
    """What is known of the spent budget of one key. Times are monotonic seconds.

    Attributes:
        code: the budget word that the upstream's answer got.
        until: when the source says that it reopens; None where it does not say.
        next_check: when the next call may ask again.
    """

    __slots__ = ("_asked_at", "_recheck", "_spent_at", "code", "next_check", "until")

    def __init__(self, code: str, resets_in: float | None, recheck: float, now: float) -> None:
        """Close it.

        Args:
            code: the budget word.
            resets_in: seconds until it reopens, as the source says; None where it does not.
            recheck: seconds until a call may ask again.
            now: monotonic seconds.
        """
        self._recheck = recheck
        self._asked_at: float | None = None
        self.spent(code, resets_in, now)

    def spent(self, code: str, resets_in: float | None, now: float) -> None:
        """The upstream said so, or said so again."""
        self.code = code
        self.until = None if resets_in is None else now + resets_in
        self._spent_at = now
        self._asked_at = None
        self.next_check = now + self._recheck

    def ask(self, now: float) -> Spent | None:
        """Let a call ask again (None), or say that the budget is spent."""
        if now >= self.next_check:
            self._asked_at = now
            self.next_check = now + self._recheck
            return None
        return Spent(code=self.code, reason=self._reason(now))

    def said_since(self, at: float, now: float) -> Spent | None:
        """Why a call that went on then is in vain by now; None if nothing was said since."""
        if self._spent_at <= at:
            return None
        return Spent(code=self.code, reason=self._reason(now))

    def lifts(self, admitted_at: float) -> bool:
        """Does the good answer to a call that went on at that time say that there is budget?"""
        return admitted_at > self._spent_at

    def returned(self, asked_at: float, now: float) -> None:
        """The call that asked at that time was given up: the next one may ask."""
        if self._asked_at == asked_at:
            self._asked_at = None
            self.next_check = now

    def resume(self, next_check: float, now: float) -> None:
        """Ask again when an earlier process would have; what it was told is not asked anew."""
        self.next_check = min(next_check, now + self._recheck)

    def is_stale(self, now: float) -> bool:
        """Has nobody asked again for so long that what was known says little?"""
        return now - self.next_check >= REMEMBERED

    def configure(self, recheck: float) -> None:
        """Take another interval; a check that is due sooner stays due."""
        asked = self._spent_at if self._asked_at is None else self._asked_at
        self._recheck = recheck
        self.next_check = min(self.next_check, asked + recheck)

    def _reason(self, now: float) -> str:
        parts = [f"the budget of this key is spent ({self.code})"]
        if self.until is not None and self.until > now:
            parts.append(f"it reopens in {self.until - now:.0f} s, as the upstream said")
        parts.append(f"the next call asks again in {self.next_check - now:.0f} s")
        return "; ".join(parts)

    def snapshot(self, key: str) -> QuotaSnapshot:
        """What is shown of it."""
        return QuotaSnapshot(key=key, until=self.until, code=self.code, next_check=self.next_check)
