"""The clocks of one call: how long the upstream may be silent, and in which phase.

One timer a call, moved lazily: arming it again on each chunk only notes a later deadline. A clock
runs only while the daemon waits for the upstream; whoever waits for the caller stops it.
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


class Clock:
    """One deadline that can be moved, and what happens when it passes.

    Args:
        loop: the running loop.
        expired: called once with the failure.
    """

    __slots__ = ("_deadline", "_expired", "_loop", "_name", "_seconds", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, expired: Callable[[UpstreamFailed], None]
    ) -> None:
        self._loop = loop
        self._expired = expired
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: float | None = None
        self._name = ""
        self._seconds = 0.0

    def arm(self, name: str, seconds: float, *, since: float | None = None) -> None:
        """From now (or from `since`, loop time) the upstream has `seconds` left."""
        self._name = name
        self._seconds = seconds
        start = self._loop.time() if since is None else since
        self._deadline = start + seconds
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._check)
        elif self._deadline < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(self._deadline, self._check)

    def stop(self) -> None:
        """Nobody waits for the upstream now."""
        self._deadline = None

    def close(self) -> None:
        """The call is over."""
        self._deadline = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._check)
            return
        self._deadline = None
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
