"""What both connections of a call do alike when the other end is slower than this one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from aiohttp.base_protocol import BaseProtocol

Said = Callable[[bytes], None]
"""Takes bytes that belong to nobody's parser any more."""


class Flow(Protocol):
    """Hears that a peer has stopped or begun to take what is written to it."""

    def __call__(self, *, paused: bool) -> None:
        """Takes the news."""


class Paced(BaseProtocol):
    """A connection whose writers wait while its peer does not read.

    Subclasses hold the two attributes: slots here would not mix with aiohttp's own classes.

    Attributes:
        _resumed: what writers wait for; None while the peer reads.
        _flow: hears of pauses too, once both directions are passed as they are.
    """

    __slots__ = ()

    _resumed: asyncio.Future[None] | None
    _flow: Flow | None

    def pause_writing(self) -> None:
        """The peer does not read: whoever writes waits."""
        super().pause_writing()
        self._resumed = self._loop.create_future()  # type: ignore[misc] # a subclass has the slot
        if self._flow is not None:
            self._flow(paused=True)

    def resume_writing(self) -> None:
        """The peer reads again."""
        super().resume_writing()
        self.release_writer()
        if self._flow is not None:
            self._flow(paused=False)

    def release_writer(self) -> None:
        """Wakes whoever waits to write: the peer reads again, or is gone."""
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)
        self._resumed = None  # type: ignore[misc] # a subclass has the slot

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002
        """Every read of a body asks for this: without a pause there is nothing to resume."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def hold(self, *, paused: bool) -> None:
        """Reads nothing from the peer, or reads again, while both directions pass as they are."""
        if paused:
            self.pause_reading()
        else:
            self.resume_reading(resume_parser=False)
