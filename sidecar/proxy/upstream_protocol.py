"""A connection to the upstream: which of its bytes are the answer that was asked for.

aiohttp's parser reads. What it should not see is kept from it here, and whole chunks pass by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import _EXC_SENTINEL
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage

from sidecar.proxy.chunks import Chunks, Cut
from sidecar.proxy.follower import Follower
from sidecar.proxy.head_guard import HeadGuard
from sidecar.proxy.heads import AnswerHead
from sidecar.proxy.limits import MAX_HEADERS, MAX_LINE, READ_SIZE
from sidecar.proxy.paced import Flow, Paced, Said


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
        self._trailed = False
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
        if self.calls > 1 and not (head_only or self._skip_payload or self._trailed):
            # The last answer ended exactly where its bytes did: the parser is where it began.
            return
        self._trailed = False
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

    def answer(self) -> Awaitable[tuple[AnswerHead, StreamReader]]:
        """The next head, and the body behind it, once they are there."""
        return self.read()

    def finish(self, message: AnswerHead) -> bool:
        """Ends the exchange whose answer was read whole.

        Returns:
            True if the answer ended exactly with the last byte that came, so that nothing of what
            follows can be taken for the answer to the next request.
        """
        self._busy = False
        self._body = None
        if self._excess or self._head.switched or self.should_close:
            return False
        if self._head.bodiless:
            return self.received == self._head.size
        if message.chunked:
            # aiohttp's parser puts the trailer of a body into the next head: it is not used again.
            self._trailed = not self._last.endswith(b"\n0\r\n\r\n")
            return self._last.endswith(b"\n\r\n") or self._last.endswith(b"\n\n")
        length = message.headers.get("Content-Length")
        return length is not None and self.received == self._head.size + int(length)

    def data_received(self, data: bytes) -> None:
        """Counts, and keeps from the parser what is no part of the answer that was asked for."""
        follower, chunks = self.follower, self._chunks
        if follower is not None and chunks is not None and data and follower.took(chunks, data):
            # Nearly every event of a stream comes so, and this is all that is done for it here.
            self.received += len(data)
            self._last = b"\r\n"
            return
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
        self._last = data[-6:] if len(data) >= 6 else (self._last + data)[-6:]

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

    def set_exception(self, exc: BaseException, exc_cause: BaseException = _EXC_SENTINEL) -> None:
        """No answer can be read any more: whoever reads the body hears of it too.

        aiohttp tells it only of a connection that is lost in the middle, and not of bytes that
        break its framing.
        """
        super().set_exception(exc, exc_cause)
        body = self._payload
        if isinstance(body, StreamReader) and not body.is_eof() and body.exception() is None:
            body.set_exception(exc)

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
