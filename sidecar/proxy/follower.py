"""Reads a body in the turn of the loop in which it comes: no task is woken for each part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import StreamReader

from sidecar.proxy.chunks import Chunks


class Follower:
    """Reads a body as it comes, and hands it over in the same turn of the loop.

    Args:
        payload: the body.
        take: is given its parts; False where it wants no more.
        loop: the running loop.

    Attributes:
        over: done when nothing more is handed over.
    """

    __slots__ = ("_missed", "_payload", "_reading", "_take", "over")

    def __init__(
        self,
        payload: StreamReader,
        take: Callable[[bytes], bool],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._missed = False
        self._payload = payload
        self._reading = False
        self._take = take
        self.over: asyncio.Future[None] = loop.create_future()

    def __call__(self) -> None:
        """Something has come, or nothing more will."""
        if self._reading:
            # Room in the buffer lets the parser go on in the middle of a read: no part may
            # overtake the one that is in hand.
            self._missed = True
            return
        if self.over.done():
            return
        self._reading = True
        try:
            follows = self._read()
        except Exception as error:  # noqa: BLE001 - it is raised where the call waits
            self.over.set_exception(error)
        else:
            if not follows:
                self.over.set_result(None)
        finally:
            self._reading = False

    def hand(self, part: bytes) -> bool:
        """Hands over what did not go through the body's buffer; False if nobody wants it."""
        if self.over.done() or self._payload.exception() is not None:
            return False
        try:
            if not self._take(part):
                self.over.set_result(None)
        except Exception as error:  # noqa: BLE001 - it is raised where the call waits
            self.over.set_exception(error)
        return True

    def took(self, chunks: Chunks, data: bytes) -> bool:
        """Hands over a piece of a body in chunks, if that can be done without the parser.

        Args:
            chunks: follows the framing of the body.
            data: the piece as it came.
        """
        part = chunks.contents(data)
        return part is not None and self.hand(part)

    def _read(self) -> bool:
        """Hands over what is there; False if that was the last."""
        payload = self._payload
        while payload.exception() is None:
            self._missed = False
            chunk = payload.read_nowait(-1)
            if (chunk and not self._take(chunk)) or payload.at_eof():
                return False
            if not self._missed:
                return True
        return False
