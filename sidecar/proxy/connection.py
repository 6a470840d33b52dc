"""One connection of a caller: requests in through aiohttp's parser, raw bytes out.

The protocol reads requests one after another, hands each to the data plane, and keeps, closes or
cuts the connection as the answer says. It owns the caller's clock: one who neither reads nor
sends for `timeouts.client` is cut.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from aiohttp import StreamReader
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser, RawRequestMessage
from aiohttp.tcp_helpers import tcp_keepalive

from sidecar.proxy.clocks import Clock
from sidecar.proxy.failures import CallerGone, Refused
from sidecar.proxy.heads import RequestHead
from sidecar.proxy.limits import MAX_HEADERS, MAX_LINE, READ_SIZE
from sidecar.proxy.paced import Flow, Paced, Said

if TYPE_CHECKING:
    from aiohttp.http_parser import HttpParser

PIPELINE = 8
"""Requests parsed ahead on one connection."""

LINGER = 10.0
"""Seconds for which the rest of an upload is read and thrown away after an early answer."""


REFUSED_LINGER = 1.0
"""Seconds at most for which a connection whose bytes cannot be read is kept for its answer."""


LAST_LOOK = 0.02
"""Seconds between the end of a caller's time and what is done about it: timers fire before what has
come is read, and the loop may have stood still."""


class Handler(Protocol):
    """What a connection needs of the data plane."""

    def opened(self, connection: Connection) -> None:
        """A caller connected."""

    def closed(self, connection: Connection) -> None:
        """A caller's connection is gone."""

    async def handle(
        self, connection: Connection, message: RequestHead, payload: StreamReader
    ) -> bool:
        """Answers one request; True if the connection can carry another."""

    async def refuse(self, connection: Connection, refusal: Refused) -> None:
        """Answers bytes that are no request."""


class PayloadBroken(Exception):
    """The body of a request breaks off or breaks the rules of its framing."""


class Connection(Paced):
    """A caller's connection.

    Args:
        handler: the data plane.
        loop: the running loop.
        idle: seconds for which it may stay silent between two calls.
        trusted: True where no `Host` is checked (a Unix socket).

    Attributes:
        busy: a request is being answered.
        clock: of the upstream's silence, for the call under way.
        patience: seconds for which the caller may neither send nor read during a call.
        finish_after_answer: the caller may or may not send the body it announced: nothing more
            is read.
    """

    __slots__ = (
        "_chunked",
        "_closing",
        "_current",
        "_deaf",
        "_ending",
        "_flow",
        "_handler",
        "_idle_timer",
        "_last_heard",
        "_last_resort",
        "_messages",
        "_resumed",
        "_said",
        "_tail",
        "_task",
        "_waiter",
        "busy",
        "clock",
        "finish_after_answer",
        "idle",
        "patience",
        "trusted",
    )

    def __init__(
        self, handler: Handler, loop: asyncio.AbstractEventLoop, *, idle: float, trusted: bool
    ) -> None:
        super().__init__(loop, self._new_parser(loop))
        self._chunked: StreamReader | None = None
        self._handler = handler
        self._messages: deque[tuple[RequestHead, StreamReader] | Refused] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._resumed = None
        self._flow = None
        self._said: Said | None = None
        self._current: StreamReader | None = None
        self._task: asyncio.Task[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._last_heard = 0.0
        self._last_resort: asyncio.TimerHandle | None = None
        self._tail = b""
        self._ending = b""
        self._closing = False
        self._deaf = False
        self.busy = False
        self.clock = Clock(loop)
        self.finish_after_answer = False
        self.idle = idle
        self.patience = idle
        self.trusted = trusted

    def _new_parser(self, loop: asyncio.AbstractEventLoop) -> HttpParser[RawRequestMessage]:
        parser = HttpRequestParser(
            self,
            loop,
            READ_SIZE,
            max_line_size=MAX_LINE,
            max_headers=MAX_HEADERS,
            max_field_size=MAX_LINE,
            payload_exception=PayloadBroken,
            auto_decompress=False,
            max_msg_queue_size=PIPELINE,
        )
        return cast("HttpParser[RawRequestMessage]", parser)

    # -- what the transport says ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A caller connected: begins to serve it."""
        super().connection_made(transport)
        tcp_keepalive(cast("asyncio.Transport", transport))
        self._last_heard = self._loop.time()
        self._handler.opened(self)
        self._task = self._loop.create_task(self._serve())

    def connection_lost(self, exc: BaseException | None) -> None:
        """The caller is gone: whatever runs for it is cancelled."""
        self._closing = self._deaf = True
        self.release_writer()
        super().connection_lost(exc)
        self._parser = None
        if self._current is not None and not self._current.is_eof():
            self._current.set_exception(PayloadBroken("the caller is gone"))
        for timer in (self._idle_timer, self._last_resort):
            if timer is not None:
                timer.cancel()
        self.clock.close()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._handler.closed(self)

    def data_received(self, data: bytes) -> None:
        """Parses; a request that cannot be read ends the connection with an answer."""
        if self._deaf or self._parser is None:
            return
        if data:
            self._last_heard = self._loop.time()
            self._ending = data[-3:] if len(data) > 2 else (self._ending + data)[-3:]
        if self._said is not None:
            self._said(data)
            return
        if self._upgraded:
            self._tail += data
            if len(self._tail) > READ_SIZE:
                self._pause_reading_for_buffer()
            return
        if self._chunked is not None and self._chunked.is_eof() and not self._forget_trailer():
            return
        try:
            messages, upgraded, tail = self._parser.feed_data(data)
        except HttpProcessingError as error:
            self._unreadable(error)
            return
        self._upgraded = upgraded
        self._tail = tail
        self._queue(messages)
        ended = self._chunked is not None and self._chunked.is_eof() and not upgraded
        if ended and self._ending != b"\n\r\n":
            # The next request has begun behind the body, in a parser that is not used again.
            self._deaf = True

    def _queue(self, messages: Sequence[tuple[RawRequestMessage, StreamReader]]) -> None:
        for message in messages:
            if self._chunked is not None:
                self._deaf = True
                break
            self._messages.append(message)
            if message[0].chunked:
                self._chunked = message[1]
        if messages:
            self._wake()
            if not self._buffer_paused and len(self._messages) >= PIPELINE:
                self._pause_reading_for_buffer()

    def _forget_trailer(self) -> bool:
        """Begins anew behind a body of chunks, whose trailer aiohttp puts into the next head.

        What was sent in one go with the end of that body, or while others wait in line, has been
        read by the same parser; the connection ends without an answer to it, which a caller that
        sends ahead has to expect.

        Returns:
            False if what comes is not read.
        """
        if self._messages or self._buffer_paused:
            self._deaf = True
            return False
        self._parser = self._new_parser(self._loop)
        self._chunked = None
        return True

    def _unreadable(self, error: HttpProcessingError) -> None:
        # The parser's own words quote the request; they are neither sent nor logged.
        del error
        self._deaf = True
        current = self._current
        if current is not None and not current.is_eof():
            current.set_exception(PayloadBroken("the body's framing is broken"))
            return
        self._messages.append(
            Refused("bad_request", "the request is not HTTP that can be read", close=True)
        )
        self._wake()

    def eof_received(self) -> None:
        """The caller closed its side: nobody waits for an answer."""

    # -- serving ----------------------------------------------------------------------------

    async def _serve(self) -> None:
        try:
            while True:
                if not self._messages:
                    if self._closing or self._deaf:
                        return
                    await self._next()
                item = self._messages.popleft()
                if isinstance(item, Refused):
                    await self._handler.refuse(self, item)
                    await self._linger()
                    return
                if self._closing:
                    # Told to stop: what waits in line is answered by whoever asks again.
                    return
                self._consumed()
                message, payload = item
                self._current = payload
                self.busy = True
                try:
                    keep = await self._handler.handle(self, message, payload)
                finally:
                    self.busy = False
                if self.finish_after_answer:
                    return
                if not payload.is_eof():
                    keep = await self._discard(payload) and keep
                self._current = None
                if not keep or self.transport is None:
                    return
                if self._upgraded and self._said is None:
                    self._decline_upgrade()
        except CallerGone:
            self.abort()
        finally:
            self._close()

    async def _next(self) -> None:
        """Waits for a request; an idle connection is closed in the end."""
        self._waiter = self._loop.create_future()
        if self._idle_timer is None:
            self._idle_timer = self._loop.call_later(self.idle, self._idled)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _idled(self) -> None:
        quiet = self._loop.time() - self._last_heard
        self._idle_timer = None
        if self._waiter is None:
            return
        if quiet < self.idle:
            self._idle_timer = self._loop.call_later(self.idle - quiet, self._idled)
        else:
            # Where the loop stood still, a request may lie unread: it is asked for first.
            self._idle_timer = self._loop.call_later(LAST_LOOK, self._still_idle)

    def _still_idle(self) -> None:
        self._idle_timer = None
        if self._waiter is None:
            return
        if self._loop.time() - self._last_heard >= self.idle:
            self.stop()
        else:
            self._idled()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _consumed(self) -> None:
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= PIPELINE // 2:
            self.data_received(b"")
            if len(self._messages) < PIPELINE:
                self._resume_reading_for_buffer()

    def _decline_upgrade(self) -> None:
        """The answer was no 101: what came behind the request is the next request."""
        if self._parser is None:
            return
        cast("HttpRequestParser", self._parser).set_upgraded(False)
        self._upgraded = False
        tail, self._tail = self._tail, b""
        if tail:
            self.data_received(tail)
        if self._buffer_paused:
            self._resume_reading_for_buffer()

    async def _discard(self, payload: StreamReader) -> bool:
        """Reads the rest of an upload that was answered early, so that the answer arrives.

        Returns:
            True if the whole body came, and the connection can be used again.
        """
        try:
            async with asyncio.timeout(LINGER):
                while not payload.is_eof():
                    await payload.readany()
        except (TimeoutError, PayloadBroken, RuntimeError):
            return False
        return True

    async def _linger(self) -> None:
        """Lets a caller that still writes read its answer before the connection is reset."""
        transport = self.transport
        if transport is None or not transport.can_write_eof():
            return
        transport.write_eof()
        await asyncio.sleep(REFUSED_LINGER)

    def stop(self) -> None:
        """Closes an idle connection, and a busy one after its answer."""
        self._closing = True
        if not self.busy and not self._messages:
            self._close()

    def cancel(self) -> None:
        """The daemon stops: whatever runs here ends now."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()

    @property
    def closing(self) -> bool:
        """Will this connection end after the answer under way?"""
        return self._closing

    def tunnel(self, said: Said, flow: Flow) -> None:
        """From now on nothing is parsed: what the caller sends is handed over as it is.

        Args:
            said: takes the bytes.
            flow: hears when the caller stops to read, and when it reads again.
        """
        self._said, self._flow = said, flow
        tail, self._tail = self._tail, b""
        if tail:
            said(tail)
        if self._buffer_paused:
            self._resume_reading_for_buffer()
        if self._resumed is not None:
            flow(paused=True)

    # -- for whoever answers ----------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Sends bytes as they are; a caller that is gone is noticed elsewhere."""
        if self.transport is not None:
            self.transport.write(data)

    async def drained(self) -> None:
        """Waits until the caller reads.

        Raises:
            CallerGone: it read nothing for `patience` seconds.
        """
        while self._resumed is not None and self.transport is not None:
            before = self._unsent()
            try:
                async with asyncio.timeout(self.patience):
                    await asyncio.shield(self._resumed)
            except TimeoutError:
                await asyncio.sleep(LAST_LOOK)
                if self._unsent() >= before:
                    raise CallerGone("the caller does not read") from None

    def _unsent(self) -> int:
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    async def received(self, payload: StreamReader) -> bytes:
        """A part of the request's body.

        Raises:
            CallerGone: it sent nothing for `patience` seconds.
            Refused: the framing of the body is broken.
        """
        try:
            try:
                async with asyncio.timeout(self.patience):
                    return await payload.readany()
            except TimeoutError:
                async with asyncio.timeout(LAST_LOOK):
                    return await payload.readany()
        except TimeoutError:
            raise CallerGone("the caller does not send") from None
        except (PayloadBroken, HttpProcessingError):
            # The second is what aiohttp's parser in Python raises.
            if self.transport is None:
                raise CallerGone("the caller closed the connection") from None
            raise Refused(
                "bad_request", "the framing of the request's body is broken", close=True
            ) from None

    @property
    def paused(self) -> bool:
        """Does the caller read too slowly for what was written?"""
        return self._resumed is not None

    def finish(self) -> None:
        """Closes after what was written has been sent; no further request is read."""
        self._closing = True
        self._close()

    def _close(self) -> None:
        """Closes once everything is sent; for a caller that does not read that would be never."""
        if self.transport is None:
            return
        self.transport.close()
        if self._last_resort is None and self._unsent():
            self._wait_for_reader(self._unsent())

    def _wait_for_reader(self, unsent: int) -> None:
        self._last_resort = self._loop.call_later(self.patience, self._still_unsent, unsent)

    def _still_unsent(self, before: int) -> None:
        unsent = self._unsent()
        if unsent >= before:
            self.abort()
        else:
            self._wait_for_reader(unsent)

    def reset(self) -> None:
        """Sends what was written, then resets: an end that nobody can take for a clean one."""
        transport = self.transport
        if transport is None:
            return
        sock = transport.get_extra_info("socket")
        if sock is None or transport.get_extra_info("sslcontext") is not None:
            # The end of TLS is clean by itself.
            transport.abort()
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.finish()

    def abort(self) -> None:
        """Cuts the connection: what is unsent is dropped and the end is not clean."""
        if self.transport is not None:
            self.transport.abort()
