"""What waits to be exported: a queue with an end, and one task that empties it.

A collector that is dead, slow or refuses costs no call anything: to put something here is to append
to a queue, and what does not fit is dropped, the oldest first, and counted. A batch is tried a few
times with growing pauses. At the end one more try is made, for a short time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from sidecar import clock
from sidecar.telemetry import logs
from sidecar.telemetry.otlp.senders import Sender

TRIES: Final = 4
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
TOLD_EVERY: Final = 60.0
"""Seconds between two lines about a collector that takes nothing."""


class Complaints:
    """When a collector was last complained of; all signals that go to it share one."""

    def __init__(self) -> None:
        self._last = -TOLD_EVERY

    def due(self, now: float) -> bool:
        """May one more line be written? If so, the next one may not for a minute."""
        if now - self._last < TOLD_EVERY:
            return False
        self._last = now
        return True


class Batches:
    """The way of one signal to the collector.

    Args:
        signal: its name.
        address: of the collector, for people.
        sender: what sends.
        encode: makes one request of items.
        exported: counts what was taken, by signal.
        dropped: counts what was lost, by signal.
        most: items that wait at most.
        batch: items in one request.
        delay: seconds that an item waits at most.
        weigh: how many things an item is, for the counts.
        complaints: those of the collector.
    """

    def __init__(
        self,
        signal: str,
        address: str,
        sender: Sender,
        encode: Callable[[Sequence[Any]], bytes],
        exported: Counter[str],
        dropped: Counter[str],
        *,
        most: int = 2048,
        batch: int = 512,
        delay: float = 5.0,
        weigh: Callable[[Any], int] = lambda _: 1,
        complaints: Complaints | None = None,
    ) -> None:
        self._signal = signal
        self._address = address
        self._sender = sender
        self._encode = encode
        self._exported = exported
        self._dropped = dropped
        self._most = most
        self._batch = batch
        self._delay = delay
        self._weigh = weigh
        self._items: deque[Any] = deque()
        self._full = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failing = False
        self._complaints = complaints or Complaints()
        self._told = False
        self._lost_before = 0

    def start(self) -> None:
        """Begin to send."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def put(self, item: Any) -> None:
        """Let one more item wait; the oldest gives way to it. Never raises."""
        items = self._items
        if len(items) >= self._most:
            self._settle([items.popleft()], taken=False)
        items.append(item)
        if len(items) >= self._batch and not self._full.is_set():
            self._full.set()

    async def close(self) -> None:
        """Send what is left, once; the caller bounds the time. What is left then is lost."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        try:
            while self._items and not self._failing:
                batch = self._take()
                try:
                    done = await self._sender.send(self._encode(batch))
                except asyncio.CancelledError:
                    self._settle(batch, taken=False)
                    raise
                self._settle(batch, taken=not done.problem, rejected=done.rejected)
                self._failing = bool(done.problem)
        finally:
            self._settle(list(self._items), taken=False)
            self._items.clear()
            await self._sender.close()

    def _take(self) -> list[Any]:
        items = self._items
        return [items.popleft() for _ in range(min(self._batch, len(items)))]

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._delay):
                    await self._full.wait()
            except TimeoutError:
                pass
            self._full.clear()
            while self._items:
                batch = self._take()
                try:
                    await self._deliver(batch)
                except asyncio.CancelledError:
                    # The end came while it was under way: the last try has it first again.
                    self._items.extendleft(reversed(batch))
                    raise
                if len(self._items) < self._batch:
                    break

    async def _deliver(self, batch: list[Any]) -> None:
        try:
            body = self._encode(batch)
        except Exception as error:  # noqa: BLE001 - one bad item must not end the export
            self._settle(batch, taken=False)
            self._tell(type(error).__name__)
            return
        pause = FIRST_PAUSE
        for left in reversed(range(TRIES)):
            done = await self._sender.send(body)
            if not done.problem:
                self._settle(batch, taken=True, rejected=done.rejected)
                self._failing = False
                if done.rejected:
                    self._tell(f"rejected {done.rejected}: {done.reason}")
                else:
                    self._recovered()
                return
            self._failing = True
            if not (done.again and left):
                break
            self._tell(done.problem)
            await asyncio.sleep(min(max(pause, done.wait), LONGEST_PAUSE))
            pause *= 2
        self._settle(batch, taken=False)
        self._tell(done.problem)

    def _settle(self, batch: list[Any], *, taken: bool, rejected: int = 0) -> None:
        weight = sum(map(self._weigh, batch))
        lost = min(rejected, weight) if taken else weight
        self._exported[self._signal] += weight - lost
        self._dropped[self._signal] += lost

    def _recovered(self) -> None:
        if self._told:
            self._told = False
            logs.event("telemetry.recovered", signal=self._signal, endpoint=self._address)

    def _tell(self, problem: str) -> None:
        if not self._complaints.due(clock.monotonic()):
            return
        self._told = True
        lost = self._dropped[self._signal]
        logs.event(
            "telemetry.failing",
            level=logging.WARNING,
            signal=self._signal,
            endpoint=self._address,
            problem=problem,
            dropped=lost - self._lost_before,
        )
        self._lost_before = lost
