"""One request and its answer over one connection to the upstream.

aiohttp's parser reads, and its exceptions become `UpstreamFailed` here. It forgives some things in
an answer that two readers could understand differently: those are looked for before it sees them.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from aiohttp import StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import EMPTY_PAYLOAD

from sidecar.breaker.model import Kind
from sidecar.envelope.model import Verdict
from sidecar.proxy.failures import CallerGone, Refused, UpstreamFailed
from sidecar.proxy.limits import MAX_HEADERS, MAX_LINE, READ_SIZE


class UpstreamProtocol(ResponseHandler):
    """A connection to the upstream that knows how often it was used and refuses a folded head.

    Attributes:
        calls: exchanges begun on this connection.
        received: bytes of the current exchange.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.calls = 0
        self.received = 0
        self._head: bytes | None = None
        self._resumed: asyncio.Future[None] | None = None

    def begin(self, *, head_only: bool) -> None:
        """Prepares for the answer to one request."""
        self.calls += 1
        self.received = 0
        self._head = b""
        if self.calls > 1 and not head_only and not self._skip_payload:
            return
        self.set_response_params(
            skip_payload=head_only,
            read_until_eof=True,
            auto_decompress=False,
            read_timeout=None,
            read_bufsize=READ_SIZE,
            max_line_size=MAX_LINE,
            max_field_size=MAX_LINE,
            max_headers=MAX_HEADERS,
        )

    def data_received(self, data: bytes) -> None:
        """Counts, and looks at the bytes of the head before the parser forgives them."""
        if data:
            self.received += len(data)
            if self._head is not None and not self._well_formed(data):
                self.set_exception(HttpProcessingError(code=502, message="folded header"))
                if self.transport is not None:
                    self.transport.close()
                return
        super().data_received(data)

    def _well_formed(self, data: bytes) -> bool:
        """False if a header line of the head is folded: two readers may disagree about it."""
        head = (self._head or b"") + data if self._head else data
        while True:
            end = head.find(b"\r\n\r\n")
            if end < 0:
                self._head = head[-(MAX_LINE * 2) :]
                return b"\n " not in head and b"\n\t" not in head
            if b"\n " in head[:end] or b"\n\t" in head[:end]:
                return False
            if head[9:10] != b"1":
                self._head = None
                return True
            head = head[end + 4 :]
            if not head:
                self._head = b""
                return True

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002
        """Every read of a body asks for this: without a pause there is nothing to resume."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def pause_writing(self) -> None:
        """The upstream does not read: the upload waits."""
        super().pause_writing()
        self._resumed = self._loop.create_future()

    def resume_writing(self) -> None:
        """The upstream reads again."""
        super().resume_writing()
        self._release_writer()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Wakes whoever waits to write."""
        self._release_writer()
        super().connection_lost(exc)

    def _release_writer(self) -> None:
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)
        self._resumed = None

    async def drained(self) -> None:
        """Waits until the upstream takes more bytes, or is gone."""
        while self._resumed is not None:
            await asyncio.shield(self._resumed)


class Answer(NamedTuple):
    """The head of an upstream's answer, and its body as a reader."""

    message: RawResponseMessage
    payload: StreamReader


class Exchange:
    """One request and its answer over one connection.

    It is always ended by `release` (the answer was read whole) or `close`.
    """

    __slots__ = ("_connection", "_payload", "_protocol", "reused")

    def __init__(self, connection: Connection, *, head_only: bool) -> None:
        protocol = connection.protocol
        assert isinstance(protocol, UpstreamProtocol)
        self._connection = connection
        self._protocol = protocol
        self._payload: StreamReader | None = None
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
                message, payload = await self._protocol.read()
            except (UpstreamFailed, CallerGone, Refused):
                raise
            except Exception as error:
                raise self.failure(error) from error
            if message.code >= 200 or message.code == 101:
                break
            if message.code < 100:
                raise _unreadable("its status is below 100")
        reason = _framing_fault(message)
        if reason:
            raise _unreadable(reason)
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

    @property
    def complete(self) -> bool:
        """Is the whole body here, so that reading it does not wait?"""
        return self._payload is not None and self._payload.is_eof()

    def rest(self) -> bytes:
        """What is left of a body that is `complete`."""
        assert self._payload is not None
        return self._payload.read_nowait(-1)

    def interrupt(self, error: Exception) -> None:
        """Wakes whoever waits for this upstream with an error of ours (a clock ran out)."""
        self._protocol.set_exception(error)
        if self._payload is not None and self._payload is not EMPTY_PAYLOAD:
            self._payload.set_exception(error)

    def failure(self, error: Exception) -> UpstreamFailed:
        """What an exception while reading or writing means."""
        if isinstance(error, HttpProcessingError):
            return _unreadable("it is not HTTP that can be read")
        if self.reused and not self.heard:
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
        if self._connection.protocol is None:
            return
        if reusable and self.complete and not self._protocol.should_close:
            self._connection.release()
        else:
            self.close()

    def close(self) -> None:
        """Closes the connection at once."""
        transport = self._protocol.transport
        self._connection.close()
        if transport is not None:
            transport.abort()


def _framing_fault(message: RawResponseMessage) -> str | None:
    """Why the framing of an answer cannot be trusted; None if it can."""
    codings = [v for k, v in message.raw_headers if k.lower() == b"transfer-encoding"]
    if not codings:
        return None
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
