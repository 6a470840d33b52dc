"""A WebSocket on its way through: both directions untouched, the frames only looked at.

Whatever the two ends negotiated (sub-protocols, compression, masks) is theirs, because bytes are
passed and never frames. Looking at the headers of frames tells how the conversation ended: a close
code that says the server is in trouble, or no close at all, is the upstream's failure.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from sidecar import clock as machine
from sidecar.envelope.compose import one_line
from sidecar.envelope.model import Classified, Envelope, ErrorClass, Source, Verdict
from sidecar.proxy import headers
from sidecar.proxy.failures import CallerGone, UpstreamFailed
from sidecar.proxy.judge import Judge

if TYPE_CHECKING:
    from sidecar.proxy.call import Call
    from sidecar.proxy.exchange import Answer, Exchange
    from sidecar.proxy.runtime import Runtime

SERVER_IN_TROUBLE = {
    1011: "an unexpected condition",
    1012: "a restart of the service",
    1013: "overload; try again later",
}
"""Close codes by which a server says that it is at fault (RFC 6455 and IANA's registry)."""

WELL = frozenset({1000, 1001, 1005})
"""Close codes that say nothing went wrong; 1005 stands for a close without a code."""

CLOSED_GRACE = 1.0
"""Seconds for the upstream to end a connection on which both sides have said goodbye."""

SERVICE_RESTART = 1012
GOING_AWAY = 1001

_CLOSE = 0x8
_REASON = 123


class Frames:
    """Follows the frames of one direction without keeping them.

    Attributes:
        close_code: of the close frame; 1005 for one without a code, None while there was none.
        reason: what stood behind the code.
        whole: the bytes so far end with a frame, so that another may be put behind them.
    """

    __slots__ = ("_close", "_head", "_left", "close_code", "reason")

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self._close: bytearray | None = None
        self.close_code: int | None = None
        self.reason = ""

    @property
    def whole(self) -> bool:
        """Do the bytes so far end with a frame?"""
        return not self._left and not self._head

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of this direction. Never raises, whatever they are."""
        at = 0
        while at < len(data):
            if self._left:
                taken = data[at : at + self._left]
                at += len(taken)
                self._left -= len(taken)
                if self._close is not None:
                    self._close += taken
            else:
                head = self._head + data[at : at + 14]
                size = _head_size(head)
                if size > len(head):
                    self._head = head
                    return
                at += size - len(self._head)
                self._begin(head[:size])
            if self._close is not None and not self._left:
                self._closed(bytes(self._close))

    def _begin(self, head: bytes) -> None:
        length = head[1] & 0x7F
        if length == 126:
            length = int.from_bytes(head[2:4])
        elif length == 127:
            length = int.from_bytes(head[2:10])
        self._head = b""
        self._left = length
        if head[0] & 0xF == _CLOSE and length <= 125:
            # The mask, if there is one, stands in front of what it masks.
            self._close = bytearray(head[-4:] if head[1] & 0x80 else b"\0\0\0\0")

    def _closed(self, data: bytes) -> None:
        mask, masked = data[:4], data[4:]
        plain = bytes(byte ^ mask[index % 4] for index, byte in enumerate(masked))
        self._close = None
        if self.close_code is None:
            self.close_code = int.from_bytes(plain[:2]) if len(plain) >= 2 else 1005
            self.reason = plain[2:].decode("utf-8", "replace")


def _head_size(head: bytes) -> int:
    """Bytes of a frame's head, as far as it tells."""
    if len(head) < 2:
        return 2
    length = head[1] & 0x7F
    extended = 2 if length == 126 else 8 if length == 127 else 0
    return 2 + extended + (4 if head[1] & 0x80 else 0)


def close_frame(code: int, reason: str, *, masked: bool) -> bytes:
    """A close frame; what a client sends is masked."""
    payload = code.to_bytes(2) + reason.encode()[:_REASON]
    if not masked:
        return bytes((0x80 | _CLOSE, len(payload))) + payload
    mask = os.urandom(4)
    hidden = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    return bytes((0x80 | _CLOSE, 0x80 | len(payload))) + mask + hidden


class WebSocketRelay:
    """Passes both directions of one WebSocket until one of them ends.

    Args:
        call: whose conversation it is.
        runtime: the provider.
        exchange: the upstream's connection.
        answer: the head that accepted the handshake.

    Attributes:
        asked_at: when the caller said what the upstream has not reacted to yet, monotonic seconds;
            None while it owes nothing: in a conversation silence alone is no sign of a hang.
    """

    __slots__ = (
        "_answer",
        "_call",
        "_caller_first",
        "_closing",
        "_ended",
        "_exchange",
        "_from_caller",
        "_from_upstream",
        "_judge",
        "_name",
        "_unread",
        "asked_at",
    )

    def __init__(self, call: Call, runtime: Runtime, exchange: Exchange, answer: Answer) -> None:
        self._call = call
        self._name = runtime.name
        self._exchange = exchange
        self._judge = Judge(call, runtime, answer)
        self._answer = answer
        self._ended: asyncio.Future[None] = call.plane.loop.create_future()
        self._caller_first = False
        self._from_caller = Frames()
        self._from_upstream = Frames()
        self._unread: asyncio.TimerHandle | None = None
        self._closing: asyncio.TimerHandle | None = None
        self.asked_at: float | None = None

    async def run(self) -> None:
        """Answers the handshake, passes bytes, and settles the call."""
        call = self._call
        self._switch()
        call.connection.tunnel(self._caller_said, self._caller_flow)
        self._exchange.tunnel(self._upstream_said, self._upstream_flow, self._upstream_ended)
        try:
            await self._ended
        except UpstreamFailed as failure:
            self._conclude_failure(failure)
        else:
            self._judge.conclude(self._meaning())
        finally:
            for timer in (self._unread, self._closing):
                if timer is not None:
                    timer.cancel()
        call.connection.finish()

    def _switch(self) -> None:
        call, message = self._call, self._answer.message
        lines = headers.response_lines(message.raw_headers, (), keep_own=False)
        lines.append(call.mark_lines())
        lines.append(headers.UPGRADE)
        call.accepted(self._judge.headers)
        call.out.switch(message.reason, lines)

    # -- both directions --------------------------------------------------------------------

    def _caller_said(self, data: bytes) -> None:
        self._from_caller.feed(data)
        if self._from_caller.close_code is not None and self._from_upstream.close_code is None:
            self._caller_first = True
        if self.asked_at is None:
            self.asked_at = machine.monotonic()
        try:
            self._exchange.write(data)
        except ConnectionResetError:
            self._upstream_ended()
        self._look_for_the_end()

    def _upstream_said(self, data: bytes) -> None:
        self._from_upstream.feed(data)
        self._call.heard()
        self.asked_at = None
        self._call.connection.write(data)
        self._look_for_the_end()

    def _look_for_the_end(self) -> None:
        """The upstream's close frame is its last word, whoever ends the connections, and when."""
        if self._from_upstream.close_code is None:
            return
        self._judge.conclude(self._meaning())
        if self._closing is None and self._from_caller.close_code is not None:
            self._closing = self._call.plane.loop.call_later(CLOSED_GRACE, self._upstream_ended)

    def _caller_flow(self, *, paused: bool) -> None:
        """The caller does not read, or reads again: the upstream waits as long."""
        self._exchange.hold(paused=paused)
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        if paused:
            patience = self._call.connection.patience
            self._unread = self._call.plane.loop.call_later(patience, self._caller_stalled)

    def _upstream_flow(self, *, paused: bool) -> None:
        self._call.connection.hold(paused=paused)

    def _caller_stalled(self) -> None:
        self._end(CallerGone("the caller does not read"))

    def _upstream_ended(self, error: Exception | None = None) -> None:
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    # -- what its end means -----------------------------------------------------------------

    def _meaning(self) -> Classified:
        """Of a conversation that the upstream's connection ended."""
        code = self._from_upstream.close_code
        if self._caller_first and code not in SERVER_IN_TROUBLE:
            return _good("the caller closed it")
        if code is None:
            return self._failed("stream_truncated", "the connection ended without a close frame")
        if code in SERVER_IN_TROUBLE:
            told = self._from_upstream.reason or SERVER_IN_TROUBLE[code]
            return self._failed(str(code), f"closed with {code}: {told}")
        if code in WELL:
            return _good(f"closed with {code}")
        return Classified(
            envelope=None,
            verdict=Verdict.ALIVE,
            rule=f"websocket: closed with {code}, which is no sign of a sick server",
        )

    def _failed(self, code: str, told: str) -> Classified:
        envelope = Envelope(
            class_=ErrorClass.TRANSIENT,
            source=Source.HTTP,
            code=code,
            message=one_line(f"{self._name}: {told}"),
            retryable=True,
            correlation_id=self._call.correlation_id,
            raw={"status": 101, "sent": True},
        )
        return Classified(envelope=envelope, verdict=Verdict.FAILURE, rule=f"websocket: {told}")

    def _conclude_failure(self, failure: UpstreamFailed) -> None:
        self._judge.conclude(self._judge.of_failure(failure), kind=failure.kind)
        self._say_goodbye(GOING_AWAY, failure.code)

    def left(self) -> None:
        """The caller's connection is gone; if anybody had said goodbye, that tells how it ended."""
        if self._caller_first or self._from_upstream.close_code is not None:
            self._judge.conclude(self._meaning())

    def stop(self, envelope: Envelope) -> None:
        """The daemon stops: both ends are told, as far as frames allow."""
        self._say_goodbye(SERVICE_RESTART, envelope.code)

    def _say_goodbye(self, code: int, reason: str) -> None:
        if self._from_upstream.whole and self._from_upstream.close_code is None:
            self._call.connection.write(close_frame(code, reason, masked=False))
        if self._from_caller.whole and self._from_caller.close_code is None:
            with suppress(ConnectionResetError):
                self._exchange.write(close_frame(GOING_AWAY, "", masked=True))


def _good(told: str) -> Classified:
    return Classified(envelope=None, verdict=Verdict.SUCCESS, rule=f"websocket: {told}")
