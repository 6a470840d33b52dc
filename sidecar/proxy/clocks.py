"""The clocks of one call: how long the upstream may be silent, and in which phase.

Moved lazily: arming it again on each chunk only notes a later deadline. A clock runs only while the
daemon waits for the upstream; whoever waits for the caller stops it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sidecar.breaker.model import Kind
from sidecar.envelope.model import Verdict
from sidecar.proxy.failures import UpstreamFailed

MESSAGES = {
    "first_byte": "the upstream sent no byte within timeouts.first_byte ({seconds:g} s)",
    "first_content": "the upstream sent no content within timeouts.first_content ({seconds:g} s)",
    "idle": "the upstream fell silent for timeouts.idle ({seconds:g} s)",
    "total": "the call took longer than timeouts.total ({seconds:g} s)",
}


STALLED = 1.0
"""Seconds by which a timer is late only if the event loop did not run: its own trouble."""

GRACE = 1.0
"""Seconds after such a stall for what has come meanwhile to be read."""


class Clock:
    """One deadline that can be moved, and what happens when it passes.

    A connection's calls follow one another, so they share one: its timer is set once and moved
    when it fires, not for every call.

    Args:
        loop: the running loop.
    """

    __slots__ = (
        "_deadline",
        "_expired",
        "_fires_at",
        "_loop",
        "_name",
        "_seconds",
        "_stalled",
        "_timer",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._expired: Callable[[UpstreamFailed], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = 0.0
        self._deadline: float | None = None
        self._name = ""
        self._seconds = 0.0
        self._stalled = 0.0

    def begin(self, expired: Callable[[UpstreamFailed], None]) -> None:
        """A call begins; `expired` is called once with the failure if a deadline passes."""
        self._expired = expired

    def arm(self, name: str, seconds: float) -> None:
        """From now on the upstream has `seconds` left."""
        self._name = name
        self._seconds = seconds
        self._stalled = 0.0
        deadline = self._deadline = self._loop.time() + seconds
        if self._timer is None:
            self._set(deadline)
        elif deadline < self._fires_at:
            self._timer.cancel()
            self._set(deadline)

    def _set(self, deadline: float) -> None:
        self._fires_at = deadline
        self._timer = self._loop.call_at(deadline, self._check)

    def stop(self) -> None:
        """Nobody waits for the upstream now."""
        self._deadline = None

    def end(self) -> None:
        """The call is over."""
        self._deadline = None
        self._expired = None

    def close(self) -> None:
        """The connection is over."""
        self.end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        now = self._loop.time()
        if now < self._deadline:
            self._set(self._deadline)
            return
        if now - self._deadline >= STALLED and not self._stalled:
            self._stalled = now - self._deadline
            self._deadline = now + GRACE
            self._set(self._deadline)
            return
        self._deadline = None
        if self._expired is None:
            return
        if self._stalled:
            self._expired(_stalled(self._stalled))
        else:
            self._expired(timeout(self._name, self._seconds))


def timeout(name: str, seconds: float) -> UpstreamFailed:
    """The failure that a clock's running out is."""
    return UpstreamFailed(
        "timeout",
        f"{name}_timeout",
        MESSAGES[name].format(seconds=seconds),
        kind=Kind.TIMEOUT,
        verdict=Verdict.NEUTRAL if name == "total" else Verdict.FAILURE,
        sent=True,
    )


def _stalled(seconds: float) -> UpstreamFailed:
    return UpstreamFailed(
        "timeout",
        "loop_stalled",
        f"this daemon did not run for {seconds:.1f} s, and nothing of the upstream was there then",
        kind=Kind.TIMEOUT,
        verdict=Verdict.NEUTRAL,
        sent=True,
    )
