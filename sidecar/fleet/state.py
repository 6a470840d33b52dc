"""State over a restart: when the state file is read, when it is written, and what if it cannot be.

It is read once, before anything listens, and what is not believed is left alone but for one line in
the log. It is written when what must last has changed: looked at on every tick, at once after a
breaker moved, and before the answer to a person who set something by hand, who may pull the plug
after it. A thread of its own waits for the disk, for a disk may hang: no call ever waits for it, a
start and a stop only for a bounded time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from sidecar import clock
from sidecar.breaker.saved import SavedProvider
from sidecar.fleet import document
from sidecar.fleet.disk import NotOurs, StateFile
from sidecar.telemetry import logs

GAP: Final = 0.2
"""Seconds between two writes at least, unless a person waits for one."""

RETRY: Final = 10.0
"""Seconds after a failed write before the next try, unless a person waits for one."""

PATIENCE: Final = 2.0
"""Seconds that a start, a stop or a person's order waits for the disk."""

STEP: Final = 1.0
"""Seconds by which the wall clock must have been set for the file to be written anew."""

Result = TypeVar("Result")


class Memory(Protocol):
    """Who knows what must last: the breakers. Times are monotonic seconds."""

    def saved(self, now: float) -> Mapping[str, SavedProvider]:
        """What must outlive the process."""

    def restore(self, saved: Mapping[str, SavedProvider], now: float) -> int:
        """Take up what an earlier process knew; tells of how many breakers and keys."""


class Keeper:
    """Keeps what must last of one daemon.

    Args:
        path: the state file; None keeps nothing.
        memory: who knows it.
        on_fault: hears of what went wrong in code of the daemon's own.

    Attributes:
        secret: under which credentials are hashed, so that a limit finds its key again; that of the
            file where there is one.
    """

    def __init__(
        self, path: str | None, memory: Memory, on_fault: Callable[[Exception], None]
    ) -> None:
        self._file = None if path is None else StateFile(path)
        self.secret = os.urandom(32)
        self._memory = memory
        self._on_fault = on_fault
        self._written: tuple[dict[str, SavedProvider], float] | None = None
        self._not_before = 0.0
        self._writing: asyncio.Future[None] | None = None
        self._nudged = False
        self._failing = False
        self._set_aside = False

    async def restore(self) -> None:
        """Read the file, and take up what it keeps. Never raises; waits for a bounded time."""
        file = self._file
        if file is None:
            return
        try:
            content = await asyncio.wait_for(in_thread(file.read), PATIENCE)
            if content is not None:
                now, wall = clock.monotonic(), clock.wall()
                found = document.decode(content, now, wall)
                self.secret = found.secret
                taken = self._memory.restore(found.providers, now)
                age = round(found.age, 1)
                logs.event("state.restored", path=str(file.path), age=age, entries=taken)
        except (document.Unusable, NotOurs) as error:
            # It may be of a later version, or somebody's mistake: it is not to be lost.
            self._set_aside = True
            self._ignored(str(error))
        except TimeoutError:
            self._ignored(f"it could not be read within {PATIENCE:g} s")
        except OSError as error:
            self._ignored(_reason(error))
        except Exception as error:  # noqa: BLE001 - a start without its memory beats none
            self._ignored("restoring it failed")
            self._on_fault(error)

    def _ignored(self, reason: str) -> None:
        assert self._file is not None
        logs.event("state.ignored", level=logging.WARNING, path=str(self._file.path), reason=reason)

    # -- when it is written -----------------------------------------------------------------

    def look(self) -> None:
        """Write what has changed, unless the last write was just now. Never raises."""
        self._nudged = False
        if self._file is not None and clock.monotonic() >= self._not_before:
            self._begin()

    def soon(self) -> None:
        """Something may have changed: look once what is being done now is done, after the gap."""
        if self._file is None or self._nudged:
            return
        with suppress(RuntimeError):  # outside a loop nothing is kept
            delay = max(self._not_before - clock.monotonic(), 0.0)
            asyncio.get_running_loop().call_later(delay, self.look)
            self._nudged = True

    async def settled(self) -> None:
        """Wait until what is known now is on the disk, or cannot be, or for too long."""
        if self._file is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._settle()

    async def _settle(self) -> None:
        if self._writing is not None:
            await asyncio.wait({self._writing})
        while self._begin() and self._writing is not None:
            await asyncio.wait({self._writing})
            if self._failing:
                return

    async def close(self) -> None:
        """Write what has changed last, and let another daemon write."""
        if self._file is None:
            return
        await self.settled()
        if self._writing is None:
            self._file.close()
            self._file = None

    # -- how it is written ------------------------------------------------------------------

    def _begin(self) -> bool:
        """Begin to write if something changed; tells whether a write is under way."""
        if self._writing is not None:
            return True
        try:
            now, wall = clock.monotonic(), clock.wall()
            kept = document.lasting(self._memory.saved(now))
            if self._written is not None:
                before, offset = self._written
                if kept == before and abs(wall - now - offset) < STEP:
                    return False
            content = document.encode(kept, self.secret, now, wall)
        except Exception as error:  # noqa: BLE001 - what is on the disk stays; calls go on
            self._not_before = clock.monotonic() + RETRY
            self._on_fault(error)
            return False
        self._writing = asyncio.ensure_future(self._write(content, (kept, wall - now)))
        return True

    async def _write(self, content: bytes, known: tuple[dict[str, SavedProvider], float]) -> None:
        file = self._file
        assert file is not None
        try:
            await in_thread(lambda: self._replace(file, content))
        except OSError as error:
            self._not_before = clock.monotonic() + RETRY
            if not self._failing:
                self._failing = True
                logs.event(
                    "state.not_saved",
                    level=logging.ERROR,
                    path=str(file.path),
                    reason=_reason(error),
                )
        else:
            self._written = known
            self._not_before = clock.monotonic() + GAP
            if self._failing:
                self._failing = False
                logs.event("state.saved", path=str(file.path))
        finally:
            self._writing = None

    def _replace(self, file: StateFile, content: bytes) -> None:
        if self._set_aside:
            file.set_aside()
            self._set_aside = False
        file.write(content)


async def in_thread(do: Callable[[], Result]) -> Result:
    """What `do` comes to, in a thread that nobody waits for at the end of the process.

    The loop's own threads are waited for, and they resolve names: a disk that hangs must hold up
    neither.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def tell(result: Result | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # None only where that is the result

    def work() -> None:
        result, failed = None, None
        try:
            result = do()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            failed = error
        with suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(tell, result, failed)

    threading.Thread(target=work, name="state", daemon=True).start()
    return await done


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
