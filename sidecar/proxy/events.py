"""A stream of events on its way through: what judges it, and where one event ends.

An event of the daemon's own may follow a whole event only: text is told by its blank lines, frames
by the length in front of them.
"""

from __future__ import annotations

import msgspec

from sidecar.envelope.decode import decode
from sidecar.envelope.event_stream import PRELUDE_SIZE, length_of
from sidecar.envelope.inflate import StreamInflater
from sidecar.envelope.model import Classified, Verdict
from sidecar.envelope.stream import StreamReader

LONGEST_TAIL = 64 * 1024
"""Bytes of an event that wait for its end; a longer one passes as it comes."""


_UNREADABLE = Classified(
    envelope=None,
    verdict=Verdict.NEUTRAL,
    rule="a stream in a coding that cannot be read: it ended cleanly, more is not known",
)


class Scanner:
    """Reads a stream as it passes, and judges it at its end.

    Args:
        reader: what reads events.
        inflater: undoes the coding of the copy that is read; None without one.
    """

    __slots__ = ("_broken", "_inflater", "_reader")

    def __init__(self, reader: StreamReader, inflater: StreamInflater | None) -> None:
        self._reader = reader
        self._inflater = inflater
        self._broken = False

    @property
    def plain(self) -> bool:
        """Are the bytes that pass the events themselves?"""
        return self._inflater is None

    @property
    def framed(self) -> bool:
        """Is the body a sequence of frames, and not of events?"""
        return self._reader.framed

    @property
    def between_frames(self) -> bool:
        """Could a frame of our own follow what has passed of a body of frames?"""
        return not self._broken and self._reader.between_frames

    @property
    def done(self) -> bool:
        """Has the answer said that it is whole?"""
        return self._reader.done

    @property
    def content(self) -> bool:
        """Has something meaningful come, an error included?"""
        return self._broken or self._reader.content or self._reader.failed is not None

    @property
    def begun(self) -> bool:
        """Was a word of the answer said, so that it is more than an error?"""
        return self._broken or self._reader.content

    @property
    def events(self) -> int:
        """How many events have come so far."""
        return self._reader.events

    @property
    def terminated(self) -> bool:
        """Has the stream said that it is over?"""
        return self._reader.terminated

    @property
    def failed(self) -> Classified | None:
        """The upstream's own error event, classified."""
        return self._reader.failed

    @property
    def over(self) -> bool:
        """Has the upstream had its last word: the end of its answer, or an error in its place?"""
        return self._reader.terminated or (self.failed is not None and self._reader.answers)

    def error_body(self) -> bytes:
        """The upstream's own error event as a body; empty if it is no object.

        As it came, but for the error of a stored response: as a body it stands by itself.
        """
        data = self._reader.error_data.encode()
        told = decode(data)
        if not isinstance(told, dict):
            return b""
        response = told.get("response")
        if not told.get("error") and isinstance(response, dict) and response.get("error"):
            return msgspec.json.encode({"error": response["error"]})
        return data

    def feed(self, chunk: bytes) -> None:
        """Takes the next bytes of the body."""
        if self._broken or self._reader.terminated:
            return
        if self._inflater is not None:
            text = self._inflater.feed(chunk)
            if text is None:
                self._broken = True
                return
            chunk = text
        self._reader.feed(chunk)

    def finish(self, *, clean: bool) -> Classified:
        """Takes the end of the body.

        Args:
            clean: the framing ended as it should.
        """
        if self._broken and clean and self._reader.failed is None:
            return _UNREADABLE
        return self._reader.finish(clean=clean)


class EventTail:
    """Keeps the beginning of an event back until its rest is there.

    Args:
        lines: an event is a line, and not what a blank line ends.

    Attributes:
        lines: as given.
        since: when the first byte of what is kept came; None if nothing is.
    """

    __slots__ = ("_end", "_ends", "_kept", "_partial", "lines", "since")

    def __init__(self, *, lines: bool) -> None:
        self.lines = lines
        self._end = b"\n" if lines else b"\n\n"
        self._ends = (b"\n",) if lines else (b"\n\n", b"\r\n\r\n", b"\r\r")
        self._kept = b""
        self._partial = False
        self.since: float | None = None

    def whole(self, chunk: bytes, now: float) -> bytes:
        """The bytes that end with an event, of what was kept and what came.

        Args:
            chunk: what came.
            now: any clock's seconds, for `since`.
        """
        if not self._kept and chunk.endswith(self._end):
            self._partial = False
            return chunk
        data = self._kept + chunk if self._kept else chunk
        end = self._last_end(data)
        if end:
            self._partial = False
            self.since = None
        self._kept = data[end:]
        if not self._kept:
            self.since = None
        elif self._partial or len(self._kept) > LONGEST_TAIL:
            # Its beginning has passed already: the rest follows at once.
            return data[:end] + self.give_up()
        elif self.since is None:
            self.since = now
        return data[:end]

    def give_up(self) -> bytes:
        """What was kept, to be sent although its end is not there."""
        kept, self._kept = self._kept, b""
        self.since = None
        self._partial = self._partial or bool(kept)
        return kept

    def last(self, event: bytes) -> bytes:
        """The event behind what ends half an event that was sent; what is kept is dropped."""
        self._kept = b""
        self.since = None
        return self._end + event if self._partial else event

    def _last_end(self, data: bytes) -> int:
        """Where the last whole event ends; 0 if none does."""
        ends = self._ends
        return max(at + len(mark) if (at := data.rfind(mark)) >= 0 else 0 for mark in ends)


class FrameTail:
    """Keeps the beginning of a frame back until its rest is there.

    Nobody can use half a frame, so that waiting for the rest costs nothing.

    Attributes:
        since: always None: nothing is given up for having waited.
    """

    __slots__ = ("_broken", "_kept", "_owed", "since")

    def __init__(self) -> None:
        self._broken = False
        self._kept = b""
        self._owed = 0
        self.since: float | None = None

    def whole(self, chunk: bytes, now: float) -> bytes:
        """The bytes that end with a frame, of what was kept and what came.

        Args:
            chunk: what came.
            now: as for `EventTail`.
        """
        del now
        data = self._kept + chunk if self._kept else chunk
        end = 0
        if self._owed:
            end = min(self._owed, len(data))
            self._owed -= end
        while not self._broken and len(data) - end >= PRELUDE_SIZE:
            length = length_of(data[end : end + PRELUDE_SIZE])
            if length is None:
                self._broken = True
            elif len(data) - end >= length:
                end += length
            elif length > LONGEST_TAIL:
                self._owed = length - (len(data) - end)
                end = len(data)
            else:
                break
        if self._broken:
            end = len(data)
        self._kept = data[end:]
        return data[:end]

    def give_up(self) -> bytes:
        """What was kept, to be sent although its end is not there."""
        kept, self._kept = self._kept, b""
        self._broken = self._broken or bool(kept)
        return kept

    def last(self, event: bytes) -> bytes:
        """The event, unless half a frame was sent: then nothing can follow that would be read."""
        self._kept = b""
        return b"" if self._owed or self._broken else event
