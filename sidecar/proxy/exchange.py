"""One request and its answer over one connection to the upstream.

aiohttp's parser reads, and its exceptions become `UpstreamFailed` here. It forgives some things in
an answer that two readers could understand differently: those are looked for before it sees them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import NamedTuple

from aiohttp import StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import EMPTY_PAYLOAD

from sidecar.breaker.model import Kind
from sidecar.envelope.model import Verdict
from sidecar.proxy.chunks import Chunks, Cut
from sidecar.proxy.failures import CallerGone, Refused, UpstreamFailed
from sidecar.proxy.limits import MAX_HEADERS, MAX_LINE, READ_SIZE
from sidecar.proxy.paced import Flow, Paced, Said

_LINE_BREAK = re.compile(rb"\n(?:[ \t]|\r?\n)")
"""The end of a head, or the beginning of a folded line, whichever comes first."""

STALE_WITHIN = 1.0
"""Seconds after the request within which a reused connection that ends was dead before it."""


class HeadGuard:
    """Looks at the bytes of an answer's head before the parser forgives them.

    Two things are not left to the parser: a folded header line, about which two readers may
    disagree, and where an answer without a body ends. Interim heads are passed over.

    Attributes:
        open: the head of the final answer has not ended yet.
        size: bytes of all heads so far.
        switched: what follows the head is another protocol.
    """

    __slots__ = ("_carry", "_first", "bodiless", "open", "size", "switched")

    def __init__(self, *, bodiless: bool) -> None:
        self._first = b""
        self._carry = b""
        self.bodiless = bodiless
        self.open = True
        self.size = 0
        self.switched = False

    def look(self, data: bytes) -> int | None:
        """Takes the next bytes of the answer.

        Returns:
            How many of them belong to the answer; None if a line is folded.
        """
        at = 0
        while True:
            if len(self._first) < 12:
                self._first += data[at : at + 12 - len(self._first)]
            carried = len(self._carry)
            text = self._carry + data[at:] if carried or at else data
            match = _LINE_BREAK.search(text)
            if match is None:
                self._carry = text[-2:]
                self.size += len(data) - at
                return len(data)
            if match[0][-1:] != b"\n":
                return None
            used = match.end() - carried
            at += used
            self.size += used
            self._carry = b""
            # What is shorter than a status line is none, whatever follows it.
            status = b"" if b"\n" in self._first else self._first[9:12]
            if status[:1] != b"1" or status == b"101":
                self.open = False
                self.switched = status == b"101"
                self.bodiless = self.bodiless or status in (b"101", b"204", b"304")
                return at if self.bodiless else len(data)
            self._first = b""
            if at == len(data):
                return at


class UpstreamProtocol(Paced, ResponseHandler):
    """A connection to the upstream that knows what it was asked, and distrusts what it was not.

    Attributes:
        calls: exchanges begun on this connection.
        follower: hears when something has come, or nothing more will; None while nobody follows.
        received: bytes of the current exchange.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.calls = 0
        self.follower: Follower | None = None
        self.received = 0
        self._body: StreamReader | None = None
        self._chunks: Chunks | None = None
        self._head = HeadGuard(bodiless=False)
        self._last = b""
        self._busy = False
        self._excess = False
        self._resumed = None
        self._flow = None
        self._said: Said | None = None
        self._ended: Callable[[Exception | None], None] | None = None
        self._ahead = b""

    def begin(self, *, head_only: bool) -> None:
        """Prepares for the answer to one request."""
        self.calls += 1
        self.received = 0
        self._body = self._chunks = None
        self._head = HeadGuard(bodiless=head_only)
        self._last = b""
        self._busy = True
        if self.calls > 1 and not head_only and not self._skip_payload:
            # The last answer ended exactly where its bytes did: the parser is where it began.
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

    def finish(self, message: RawResponseMessage) -> bool:
        """Ends the exchange whose answer was read whole.

        Returns:
            True if the answer ended exactly with the last byte that came, so that nothing of what
            follows can be taken for the answer to the next request.
        """
        self._busy = False
        self._body = None
        if self._excess or self.should_close:
            return False
        if self._head.bodiless:
            return self.received == self._head.size
        if message.chunked:
            return self._last.endswith(b"\n\r\n") or self._last.endswith(b"\n\n")
        length = message.headers.get("Content-Length")
        return length is not None and self.received == self._head.size + int(length)

    def data_received(self, data: bytes) -> None:
        """Counts, and keeps from the parser what is no part of the answer that was asked for."""
        # Before the first exchange the connector speaks here, to an egress proxy.
        if data and self.calls:
            if self._head.switched:
                self.received += len(data)
                self._beyond_http(data)
                return
            if not self._busy:
                # Nobody asked: whatever it is, it must not become somebody's answer.
                self._excess = True
                self._should_close = True
                if self.transport is not None:
                    self.transport.abort()
                return
            if self._head.open:
                own = self._head.look(data)
                if own is None:
                    self._refuse()
                    return
                if own < len(data):
                    beyond, data = data[own:], data[:own]
                    if self._head.switched:
                        self.received += len(data)
                        super().data_received(data)
                        self._beyond_http(beyond)
                        return
                    self._excess = True
                if not self._head.open and data.find(b"chunked") >= 0:
                    self._begin_chunked(data, self._head.size - self.received)
                    return
            elif self._head.bodiless:
                self._excess = True
                return
            self._count(data)
            if self._chunks is not None:
                self._take_chunked(self._chunks.cut(data), data)
                return
        self._parse(data)

    def _count(self, data: bytes) -> None:
        self.received += len(data)
        self._last = data[-4:] if len(data) >= 4 else (self._last + data)[-4:]

    def _parse(self, data: bytes) -> None:
        super().data_received(data)
        if self.follower is not None:
            self.follower()

    # -- chunks -----------------------------------------------------------------------------

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """A head was read: remembers where its body goes, and takes it as any."""
        self._body = data[1] if data[0].chunked else None
        super().feed_data(data, size)

    def _begin_chunked(self, data: bytes, head: int) -> None:
        """Takes the end of a head that says `chunked` somewhere, and what came with it."""
        self._count(data)
        chunks, body = Chunks(), data[head:]
        cut = chunks.cut(body)
        apart = cut.whole and (not chunks.lost or body[cut.rest :] == b"0\r\n\r\n")
        # With a body that the parser will not like the head is no answer either.
        super().data_received(data[:head] if apart else data)
        if self._body is not None:
            self._chunks = chunks
        if apart:
            self._take_chunked(cut, body)

    def _take_chunked(self, cut: Cut, data: bytes) -> None:
        """Takes more of a chunked body: whole chunks pass by the parser where they can."""
        if cut.whole and (self.follower is not None or self.received <= READ_SIZE):
            if cut.first:
                self._parse(data[: cut.first])
            whole = cut.whole[0] if len(cut.whole) == 1 else b"".join(cut.whole)
            data = data[cut.rest if self._take(whole) else cut.first :]
        if data:
            self._parse(data)

    def _take(self, part: bytes) -> bool:
        """Takes a part of the body as if the parser had read it; False where that may not be."""
        if self.follower is not None:
            return self.follower.hand(part)
        # The beginning of a body cannot fill its buffer, which would halt the parser too.
        body = self._body
        if body is None or body.exception() is not None:
            return False
        body.begin_http_chunk_receiving()
        body.feed_data(part)
        return True

    def _refuse(self) -> None:
        self.received += 1
        self.set_exception(HttpProcessingError(code=502, message="folded header"))
        if self.transport is not None:
            self.transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Wakes whoever waits to write, or for the end of both directions."""
        self.release_writer()
        super().connection_lost(exc)
        if self.follower is not None:
            self.follower()
        if self._ended is not None:
            self._ended(None)

    def tunnel(self, said: Said, flow: Flow, ended: Callable[[Exception | None], None]) -> None:
        """From now on nothing is parsed: what the upstream sends is handed over as it is.

        Args:
            said: takes the bytes.
            flow: hears when the upstream stops to read, and when it reads again.
            ended: called when the connection is gone, or with the error that ends it.
        """
        self._said, self._flow, self._ended = said, flow, ended
        ahead, self._ahead = self._ahead, b""
        if ahead:
            said(ahead)
        if self._buffer_paused:
            self._resume_reading_for_buffer()
        if self.transport is None:
            ended(None)
        elif self._resumed is not None:
            flow(paused=True)

    @property
    def tunnelled(self) -> bool:
        """Are both directions passed as they are?"""
        return self._ended is not None

    def end_tunnel(self, error: Exception) -> None:
        """Ends it with an error of ours (a clock ran out)."""
        if self._ended is not None:
            self._ended(error)

    def _beyond_http(self, data: bytes) -> None:
        """Bytes behind the head that changed the protocol."""
        if self._said is not None:
            self._said(data)
            return
        self._ahead += data
        if len(self._ahead) > READ_SIZE and not self._buffer_paused:
            self._pause_reading_for_buffer()

    async def drained(self) -> None:
        """Waits until the upstream takes more bytes, or is gone."""
        while self._resumed is not None:
            await asyncio.shield(self._resumed)


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


class Answer(NamedTuple):
    """The head of an upstream's answer, and its body as a reader."""

    message: RawResponseMessage
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
        self._message: RawResponseMessage | None = None
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
                message, payload = await self._protocol.read()
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


def _is_websocket(message: RawResponseMessage) -> bool:
    return message.headers.get("Upgrade", "").strip().lower() == "websocket"


def _framing_fault(message: RawResponseMessage) -> str | None:
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
