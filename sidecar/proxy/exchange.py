"""One request and its answer over one connection to the upstream.

What goes wrong, the parser's exceptions among it, becomes `UpstreamFailed` here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from aiohttp import StreamReader
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import EMPTY_PAYLOAD

from sidecar.breaker.model import Kind
from sidecar.envelope.model import Verdict
from sidecar.proxy.failures import CallerGone, Refused, UpstreamFailed
from sidecar.proxy.follower import Follower
from sidecar.proxy.heads import AnswerHead
from sidecar.proxy.paced import Flow, Said
from sidecar.proxy.upstream_protocol import UpstreamProtocol

STALE_WITHIN = 1.0
"""Seconds after the request within which a reused connection that ends was dead before it."""


class Answer(NamedTuple):
    """The head of an upstream's answer, and its body as a reader."""

    message: AnswerHead
    payload: StreamReader


class Exchange:
    """One request and its answer over one connection.

    It is always ended, by `end` or `close`.

    Args:
        connection: to the upstream.
        loop: the running loop.
        keep: takes the connection back where it can carry another exchange.
        head_only: the answer has no body, whatever its head says.
        upgrades: the answer may change the protocol to WebSocket.

    Attributes:
        reused: the connection carried another exchange before.
    """

    __slots__ = (
        "_connection",
        "_keep",
        "_loop",
        "_message",
        "_payload",
        "_protocol",
        "_upgrades",
        "_written_at",
        "reused",
    )

    def __init__(
        self,
        connection: Connection,
        loop: asyncio.AbstractEventLoop,
        keep: Callable[[Connection], None],
        *,
        head_only: bool,
        upgrades: bool = False,
    ) -> None:
        protocol = connection.protocol
        assert isinstance(protocol, UpstreamProtocol)
        self._connection: Connection | None = connection
        self._keep = keep
        self._protocol = protocol
        self._loop = loop
        self._message: AnswerHead | None = None
        self._payload: StreamReader | None = None
        self._written_at: float | None = None
        self._upgrades = upgrades
        self.reused = protocol.calls > 0
        protocol.begin(head_only=head_only)

    @property
    def heard(self) -> bool:
        """Has the upstream sent any byte of an answer?"""
        return self._protocol.received > 0

    def write(self, data: bytes) -> None:
        """Sends bytes as they are.

        Raises:
            UpstreamFailed: the connection is gone.
        """
        transport = self._protocol.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError
        if self._written_at is None:
            self._written_at = self._loop.time()
        transport.write(data)

    async def drained(self) -> None:
        """Waits until the upstream takes more."""
        await self._protocol.drained()

    async def head(self) -> Answer:
        """The final head of the answer; interim answers are dropped.

        Raises:
            UpstreamFailed: no answer, or none that can be read.
        """
        while True:
            try:
                message, payload = await self._protocol.answer()
            except (UpstreamFailed, CallerGone, Refused):
                raise
            except Exception as error:
                raise self.failure(error) from error
            if message.code >= 200:
                break
            if message.code < 100:
                raise _unreadable("its status is below 100")
            if message.code == 101:
                if self._upgrades and _is_websocket(message):
                    self._message, self._payload = message, payload
                    return Answer(message, payload)
                raise _unreadable("it changes the protocol, which was not asked for")
        reason = _framing_fault(message)
        if reason:
            raise _unreadable(reason)
        self._message = message
        self._payload = payload
        return Answer(message, payload)

    async def part(self) -> bytes:
        """The next bytes of the body; empty at its end.

        Raises:
            UpstreamFailed: the body breaks off, or a clock ran out.
        """
        assert self._payload is not None
        try:
            return await self._payload.readany()
        except (UpstreamFailed, CallerGone, Refused):
            raise
        except Exception as error:
            raise self.failure(error) from error

    async def follow(self, take: Callable[[bytes], bool]) -> None:
        """Hands over parts of the body as they come, and wakes nobody for each of them.

        Args:
            take: is given a part; False ends this, as does the end of the body. Whatever that end
                was, `part` tells it.
        """
        protocol = self._protocol
        assert self._payload is not None
        follower = protocol.follower = Follower(self._payload, take, self._loop)
        try:
            follower()
            await follower.over
        finally:
            protocol.follower = None

    @property
    def complete(self) -> bool:
        """Is the whole body here, so that reading it does not wait?"""
        return self._payload is not None and self._payload.is_eof()

    def there(self) -> bytes:
        """What can be read of the body without a wait.

        Raises:
            UpstreamFailed: as for `part`.
        """
        assert self._payload is not None
        try:
            return self._payload.read_nowait(-1)
        except (UpstreamFailed, CallerGone, Refused):
            raise
        except Exception as error:
            raise self.failure(error) from error

    def interrupt(self, error: Exception) -> None:
        """Wakes whoever waits for this upstream with an error of ours (a clock ran out)."""
        if self._protocol.tunnelled:
            self._protocol.end_tunnel(error)
            return
        self._protocol.set_exception(error)
        if self._payload is not None and self._payload is not EMPTY_PAYLOAD:
            self._payload.set_exception(error)
        if self._protocol.follower is not None:
            self._protocol.follower()

    def tunnel(self, said: Said, flow: Flow, ended: Callable[[Exception | None], None]) -> None:
        """Passes both directions as they are from now on; as for `UpstreamProtocol.tunnel`."""
        self._protocol.tunnel(said, flow, ended)

    def hold(self, *, paused: bool) -> None:
        """Reads nothing more from the upstream, or reads again."""
        self._protocol.hold(paused=paused)

    def failure(self, error: Exception) -> UpstreamFailed:
        """What an exception while reading or writing means."""
        if isinstance(error, HttpProcessingError):
            return _unreadable("it is not HTTP that can be read")
        if self.reused and not self.heard and self._is_early():
            return UpstreamFailed(
                "upstream_error",
                "connection_closed",
                "a kept-alive connection was dead before any byte of the answer",
                kind=Kind.CONNECTION,
                verdict=Verdict.NEUTRAL,
                sent=True,
            )
        return UpstreamFailed(
            "upstream_error",
            "connection_reset",
            "the upstream closed the connection after the request had been sent; "
            "it may have been executed",
            kind=Kind.ANSWER if self.heard else Kind.CONNECTION,
            sent=True,
        )

    def _is_early(self) -> bool:
        written = self._written_at
        return written is None or self._loop.time() - written < STALE_WITHIN

    @property
    def paused(self) -> bool:
        """Does the upstream read more slowly than the caller sends?"""
        return self._protocol.writing_paused

    def end(self, *, reusable: bool) -> None:
        """Ends the exchange; more than once does no harm.

        Args:
            reusable: the request was sent whole. The connection is kept for the next call if the
                answer was read whole too, else it is closed at once: tokens cost money.
        """
        connection, message = self._connection, self._message
        if connection is None:
            return
        if reusable and message is not None and self.complete and self._protocol.finish(message):
            self._connection = None
            self._keep(connection)
        else:
            self.close()

    def close(self) -> None:
        """Closes the connection at once; more than once does no harm."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        transport = self._protocol.transport
        connection.close()
        if transport is not None:
            transport.abort()


def _is_websocket(message: AnswerHead) -> bool:
    return message.headers.get("Upgrade", "").strip().lower() == "websocket"


def _framing_fault(message: AnswerHead) -> str | None:
    """Why the framing of an answer cannot be trusted; None if it can."""
    if "Transfer-Encoding" not in message.headers:
        return None
    codings = [v for k, v in message.raw_headers if k.lower() == b"transfer-encoding"]
    if message.version < (1, 1):
        return "it has a transfer encoding on HTTP/1.0"
    if [coding.strip().lower() for coding in codings] != [b"chunked"]:
        return "its transfer encoding is not chunked alone"
    return None


def _unreadable(reason: str) -> UpstreamFailed:
    return UpstreamFailed(
        "upstream_error",
        "invalid_upstream_response",
        f"the upstream's answer cannot be read: {reason}",
        sent=True,
    )
