"""An event loop whose time passes only when nobody has anything to do: hours in no time."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Coroutine
from typing import Any, TypeVar
from unittest import mock

from sidecar import clock

Result = TypeVar("Result")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Jumps to the next timer instead of sleeping for it."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual = 1000.0

    def time(self) -> float:
        return self._virtual

    def _run_once(self) -> None:
        if not self._ready:
            while self._scheduled and self._scheduled[0]._cancelled:
                heapq.heappop(self._scheduled)._scheduled = False
            if not self._scheduled:
                raise RuntimeError("everybody waits, and nobody will wake them")
            self._virtual = max(self._virtual, self._scheduled[0]._when)
        super()._run_once()


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Runs to the end in virtual time; the clocks of the daemon and of the throttler follow it."""
    loop = VirtualLoop()
    try:
        with (
            mock.patch.object(clock, "monotonic", loop.time),
            mock.patch.object(time, "monotonic", loop.time),
        ):
            return loop.run_until_complete(coroutine)
    finally:
        loop.close()
