"""What is left of a daemon at rest, and what its memory did on the way."""

from __future__ import annotations

import asyncio
import time

from bench import machine
from bench.soak.process import Daemon, Metrics

MOST_GROWTH = 24.0
"""MiB by which memory may grow between the first third of the last life and its end.

Allocators keep what they once had, and windows, failures and caches fill up to their bounds; a leak
of a kilobyte a call would be hundreds."""

SETTLED = (
    "breaker_sidecar_calls_in_flight",
    "breaker_sidecar_breaker_probes",
    "breaker_sidecar_shedding_queue",
)
"""Gauges of what is under way."""


class Watch:
    """Looks at the daemon each second, whatever happens to it.

    Attributes:
        memory: resident MiB by time and process.
        problems: what should never be seen.
    """

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.memory: list[tuple[float, int, float]] = []
        self.problems: list[str] = []

    async def run(self) -> None:
        """Until it is cancelled."""
        last: tuple[int, Metrics] | None = None
        while True:
            await asyncio.sleep(1)
            pid = self._daemon.pid
            self.memory.append((time.monotonic(), pid, machine.resident([pid])))
            try:
                found = await asyncio.to_thread(self._daemon.metrics)
            except (OSError, ValueError):
                continue  # on its way out, or not yet there
            if last is not None and last[0] == pid == self._daemon.pid:
                self._compare(last[1], found)
            last = (pid, found)

    def _compare(self, before: Metrics, now: Metrics) -> None:
        for name, series in now.items():
            for labels, value in series.items():
                if value < 0:
                    self.problems.append(f"{name}{labels} is {value}")
                old = before.get(name, {}).get(labels)
                counter = name.endswith(("_total", "_count", "_bucket"))
                if counter and old is not None and value < old and "passing" not in labels:
                    self.problems.append(f"{name}{labels} fell from {old} to {value}")

    def growth(self, pid: int) -> tuple[float, float]:
        """Resident MiB of a process after a third of its time, and at its end."""
        own = [memory for _, one, memory in self.memory if one == pid]
        if len(own) < 6:
            return (own[-1], own[-1]) if own else (0.0, 0.0)
        third = sorted(own[len(own) // 3 : len(own) // 3 + 3])[1]
        return third, sorted(own[-3:])[1]


async def at_rest(daemon: Daemon, descriptors: int) -> tuple[list[str], Metrics]:
    """Waits until nothing is under way, and says what is left if that does not come.

    Args:
        daemon: at whose door nobody stands any more.
        descriptors: open files of a daemon that has just begun.
    """
    deadline = time.monotonic() + 15
    while True:
        found = daemon.metrics()
        left = [
            f"{name}{labels} is {value:g} at rest"
            for name in SETTLED
            for labels, value in found[name].items()
            if value
        ]
        files = machine.descriptors(daemon.pid)
        # One is the connection that has just read the metrics.
        if files > descriptors + 1:
            left.append(f"{files} descriptors at rest, {descriptors} at the start")
        if not left:
            # That one may also be a connection to the upstream that is kept for a while.
            left = await _held(daemon)
        if not left or time.monotonic() > deadline:
            return left, found
        await asyncio.sleep(0.25)


async def _held(daemon: Daemon) -> list[str]:
    """Objects and tasks of calls in the memory of a daemon that has none."""
    inside = await daemon.inside()
    left = []
    held = {kind: count for kind, count in inside["objects"].items() if count}
    if held:
        left.append(f"objects of calls at rest: {held}")
    tasks = {name: count for name, count in inside["tasks"].items() if count > 1}
    if tasks or len(inside["tasks"]) > 8:
        left.append(f"tasks at rest: {inside['tasks']}")
    return left
