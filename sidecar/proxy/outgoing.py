"""The answer on its way to the caller: its head, its body in the framing it came in, its end.

There are two ends. A clean one says "this is all"; a cut says "something is missing", and is
never dressed as the other. A body whose length was told ends with its last byte, so where its worth
is known only then, that byte waits for it.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import lru_cache

from sidecar.proxy.connection import Connection
from sidecar.proxy.heads import AnswerHead


class Framing(Enum):
    """How the end of a body is told."""

    NONE = auto()
    LENGTH = auto()
    CHUNKED = auto()
    CLOSE = auto()


def framing_of(message: AnswerHead, *, head_only: bool) -> Framing:
    """The framing of an upstream's answer."""
    if head_only or message.code in (204, 304):
        return Framing.NONE
    if message.chunked:
        return Framing.CHUNKED
    return Framing.LENGTH if "Content-Length" in message.headers else Framing.CLOSE


def _status_line(status: int, reason: str) -> bytes:
    line = _usual_line if len(reason) <= 32 else _usual_line.__wrapped__
    return line(status, reason)


@lru_cache(maxsize=64)
def _usual_line(status: int, reason: str) -> bytes:
    return f"HTTP/1.1 {status} {reason}\r\n".encode("utf-8", "surrogateescape")


class Outgoing:
    """Writes one answer to a caller's connection.

    Args:
        connection: the caller's connection.
        http10: the caller speaks HTTP/1.0 and knows no chunks.

    Attributes:
        started: the head has been written.
        status: the status that the caller was sent, 0 before.
        keep: the connection can carry another request after this answer.
    """

    __slots__ = (
        "_connection",
        "_framing",
        "_http10",
        "_last",
        "_left",
        "keep",
        "started",
        "status",
    )

    def __init__(self, connection: Connection, *, http10: bool, keep: bool) -> None:
        self._connection = connection
        self._http10 = http10
        self._framing = Framing.NONE
        self._last = b""
        self._left: int | None = None
        self.keep = keep
        self.started = False
        self.status = 0

    def start(
        self,
        status: int,
        reason: str,
        lines: list[bytes],
        framing: Framing,
        body: bytes = b"",
        *,
        whole: bool = False,
        size: int | None = None,
    ) -> None:
        """Writes the head, and as much of the body as is there, in one piece.

        Args:
            status: of the answer.
            reason: its phrase, as it came.
            lines: header lines without framing headers of the hop.
            framing: of the body; chunks are undone for a caller who knows none.
            body: the first bytes of the body.
            whole: these are all of them.
            size: of a sized body whose last byte waits for `end`; None where nothing waits.
        """
        self._left = size
        if framing is Framing.CHUNKED and self._http10:
            framing = Framing.CLOSE
        if framing is Framing.CHUNKED:
            lines.append(b"Transfer-Encoding: chunked\r\n")
        if framing is Framing.CLOSE or self._http10 or self._connection.closing:
            self.keep = False
        if not self.keep:
            lines.append(b"Connection: close\r\n")
        self._framing = framing
        self.started = True
        self.status = status
        head = _status_line(status, reason)
        end = b"0\r\n\r\n" if whole and framing is Framing.CHUNKED else b""
        self._connection.write(b"".join((head, *lines, b"\r\n", self._framed(body), end)))

    def switch(self, reason: str, lines: list[bytes]) -> None:
        """Writes the head that changes the protocol; what follows is not HTTP."""
        self.keep = False
        self.started = True
        self.status = 101
        head = _status_line(101, reason)
        self._connection.write(b"".join((head, *lines, b"\r\n")))

    def write(self, data: bytes) -> None:
        """Writes a part of the body."""
        self._connection.write(self._framed(data))

    def _framed(self, data: bytes) -> bytes:
        if not data or self._framing is Framing.NONE:
            return b""
        if self._framing is Framing.CHUNKED:
            return b"%x\r\n%b\r\n" % (len(data), data)
        if self._left is not None:
            self._left -= len(data)
            if self._left <= 0:
                self._last = data[-1:]
                return data[:-1]
        return data

    def end(self) -> None:
        """The body is whole."""
        if self._framing is Framing.CHUNKED:
            self._connection.write(b"0\r\n\r\n")
        elif self._last:
            self._connection.write(self._last)

    @property
    def takes_more(self) -> bool:
        """Can the body be longer than the upstream meant it to be?"""
        return self._framing in (Framing.CHUNKED, Framing.CLOSE)

    def cut(self, last: bytes = b"") -> None:
        """The body is not whole: what was written is flushed, then the connection ends badly.

        Args:
            last: an event that says so, where the body is a stream of events that `takes_more`: in
                a sized body it would fill up what is missing.
        """
        self.keep = False
        if last:
            self.write(last)
        if self._framing is Framing.CLOSE and not last:
            # Only a reset tells this caller that the end is none.
            self._connection.reset()
        else:
            self._connection.finish()
