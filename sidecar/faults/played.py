"""A connection that leads nowhere, and from which an answer comes that was written beforehand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sidecar.proxy.upstream_protocol import UpstreamProtocol

Step = bytes | BaseException | None
"""Bytes that arrive, an error that ends the connection, or None for its orderly end."""


class Played:
    """A connection that leads nowhere, and from which comes what was written for it.

    Args:
        loop: the running loop.
        steps: what comes, in its order.
        after: seconds until it comes, from when the request has begun to arrive.

    Attributes:
        protocol: as a real connection has it; None once it was given back.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, steps: Sequence[Step], after: float = 0.0
    ) -> None:
        self._loop = loop
        self._after = after
        self._steps = list(steps)
        self._stage = _Stage(self)
        self.protocol: UpstreamProtocol | None = UpstreamProtocol(loop)
        self.protocol.connection_made(self._stage)

    @property
    def transport(self) -> asyncio.Transport:
        """Its transport."""
        return self._stage

    def asked(self) -> None:
        """The request has begun to arrive: play."""
        for step in self._steps:
            if self._after:
                self._loop.call_later(self._after, self._play, step)
            else:
                self._loop.call_soon(self._play, step)
        self._steps.clear()

    def _play(self, step: Step) -> None:
        protocol = self.protocol
        if protocol is None or self._stage.is_closing():
            return
        if isinstance(step, bytes):
            protocol.data_received(step)
            return
        self._stage.closed = True
        protocol.connection_lost(step)

    def close(self) -> None:
        """It is not needed any more."""
        protocol, self.protocol = self.protocol, None
        if protocol is not None and not self._stage.closed:
            self._stage.closed = True
            protocol.connection_lost(None)


class _Stage(asyncio.Transport):
    """Takes a request and throws it away."""

    def __init__(self, played: Played) -> None:
        super().__init__()
        self._played = played
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        del data
        self._played.asked()

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        """Nothing more comes than was written for it."""

    def resume_reading(self) -> None:
        """Likewise."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        del name
        return default
