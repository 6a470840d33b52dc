"""What happens to the daemon and its upstream while they work, and when it did.

The times are what the books go by: a failure to connect needs an upstream that was away, a call
that nobody answered needs a daemon that was on its way out.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from bench.soak.process import CLIENT, Daemon, UpstreamProcess


class Span(NamedTuple):
    """A time in which something was not as usual: monotonic seconds."""

    what: str
    began: float
    over: float


STALLED = CLIENT / 2
"""Seconds for which the callers themselves stood still, from which it is noted: of one who was
silent for `timeouts.client` the connection is closed, and that is its own doing."""


class Trouble:
    """Makes it, one thing after the other, until it is told to stop.

    Args:
        daemon: that is disturbed.
        upstream: that is disturbed.
        seconds: how long the soak is: rare things happen a few times in any.
        seed: of what is drawn.

    Attributes:
        spans: what happened, and when.
        reloads: that were asked for: taken and refused.
        counts: how often each thing happened.
        exits: when a life of the daemon was over, but for the last.
    """

    def __init__(
        self,
        daemon: Daemon,
        upstream: UpstreamProcess,
        seconds: float,
        seed: int,
    ) -> None:
        self._daemon = daemon
        self._upstream = upstream
        self._random = random.Random(seed)
        # Of everything something, in however short a time.
        self._pace = min(1.0, max(seconds / 60, 0.3))
        self._rare = max(seconds / 5, 6.0)
        self.spans: list[Span] = []
        self.reloads = {"good": 0, "bad": 0}
        self.counts: dict[str, int] = {}
        self.exits: list[float] = []

    async def run(self, until: float) -> None:
        """Disturbs until that time; what was begun is ended."""
        happenings: list[tuple[Callable[[], Awaitable[None]], float]] = [
            (self.reload, 3.0 * self._pace),
            (self.broken_reload, 11.0 * self._pace),
            (self.restart_upstream, 7.0 * self._pace),
            (self.end_upstream_well, 17.0 * self._pace),
            (self.freeze, 9.0 * self._pace),
            (self.restart_daemon, self._rare),
        ]
        now = time.monotonic()
        due = {
            happening: now + every * self._random.uniform(0.3, 0.8)
            for happening, every in happenings
        }
        while (now := time.monotonic()) < until:
            for happening, every in happenings:
                if now >= due[happening] and now + 2 < until:
                    name = happening.__name__
                    self.counts[name] = self.counts.get(name, 0) + 1
                    await happening()
                    due[happening] = time.monotonic() + every * self._random.uniform(0.7, 1.3)
            await asyncio.sleep(0.05)

    async def watch(self) -> None:
        """Notes when this very process had no time; until it is cancelled."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.1)
            if time.monotonic() - began > STALLED:
                self._note("callers stalled", began)

    def _note(self, what: str, began: float) -> None:
        self.spans.append(Span(what, began, time.monotonic()))

    async def reload(self) -> None:
        """Another configuration; `passing` comes or goes with it."""
        began = time.monotonic()
        self._daemon.turn += 1
        self._daemon.write()
        self._daemon.signal(signal.SIGHUP)
        self.reloads["good"] += 1
        await asyncio.sleep(0.2)
        self._note("reload", began)

    async def broken_reload(self) -> None:
        """A file that nobody can read: nothing changes."""
        began = time.monotonic()
        self._daemon.write(broken=True)
        self._daemon.signal(signal.SIGHUP)
        self.reloads["bad"] += 1
        await asyncio.sleep(0.3)
        self._daemon.write()
        self._note("reload", began)

    async def restart_upstream(self) -> None:
        """The upstream dies as if the power went, and comes back."""
        began = time.monotonic()
        self._upstream.signal(signal.SIGKILL)
        await self._upstream.ended()
        await asyncio.sleep(self._random.uniform(0.1, 0.6))
        await self._back(began)

    async def end_upstream_well(self) -> None:
        """The upstream is told to go, and comes back at once."""
        began = time.monotonic()
        self._upstream.signal(signal.SIGTERM)
        await self._upstream.ended()
        await self._back(began)

    async def _back(self, began: float) -> None:
        self._upstream.start()
        await self._upstream.up()
        self._note("upstream away", began)

    async def freeze(self) -> None:
        """The daemon does not run for a while, sometimes for longer than a clock does."""
        began = time.monotonic()
        self._daemon.signal(signal.SIGSTOP)
        await asyncio.sleep(self._random.choice((0.1, 0.3, 0.3, 1.8)))
        self._daemon.signal(signal.SIGCONT)
        self._note("frozen", began)

    async def restart_daemon(self) -> None:
        """It drains and ends, and another one begins where it was."""
        began = time.monotonic()
        await self._daemon.stop()
        self.exits.append(time.monotonic())
        await asyncio.to_thread(self._daemon.start)
        self._note("restart", began)
