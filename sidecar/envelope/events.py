"""Events out of bytes: server-sent events and newline-delimited JSON, however they are cut.

A stream is judged by its events, but bytes arrive in whatever pieces the network made of them:
inside a character, inside a CRLF, a thousand events at once. The parsers here yield the same
events for every cut, hold no more than their cap, and never raise. They leave the work to
`split` and `find`, because every chunk of every stream passes through them.

Where they are kinder than the standard for server-sent events, clients and servers in the field
are too:

* an event without a last blank line is given out at the end of the stream;
* an event with a name and no data is given out (the official clients do so);
* a field `error` is kept beside the data (older llama.cpp servers send their errors in one), and
  so is a field `status` (DashScope writes the status of an error event into one);
* JSON that stands in the stream without `data:` is given out as an event without a name (Gemini
  reports a failure in the middle of a stream so, printed over several lines). Such text begins
  with `{`, `[{` or a lone `[` at the start of a line, where no field of an event is pending. The
  standard reads it as fields with unknown names and drops it, so no event of a proper stream is
  changed or lost; and inside an event, where a server that forgot to prefix each line might show
  what a model wrote, it stays dropped. It ends where its brackets close, at the next known field,
  at a blank line or at the end.
"""

from __future__ import annotations

import re

import msgspec

_BOM = b"\xef\xbb\xbf"
_FIELDS = frozenset((b"data", b"event", b"error", b"id", b"retry", b"status"))
# Below this a cap could not tell the name of a field.
_SMALLEST_CAP = 16
_BARE_JSON = re.compile(rb"\{|\[\{|\[$")
# The closing quote is optional, so that an open string costs one pass and not one per quote.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event of a stream.

    Attributes:
        name: the value of `event:`; None where it is missing or empty.
        data: the lines of data joined by a line feed; invalid UTF-8 is replaced.
        field_error: the value of the field `error`, which no standard knows; else None.
        status: the value of the field `status`, which no standard knows either; else None.
    """

    name: str | None
    data: str
    field_error: str | None
    status: str | None = None


class SseParser:
    """Server-sent events from any pieces of a stream.

    Attributes:
        comments: how many comment lines were seen: signs of life that carry nothing.
        skipped: how many events were left out because they exceeded the cap.
    """

    __slots__ = (
        "_bare",
        "_begun",
        "_data",
        "_depth",
        "_dropping",
        "_error",
        "_fresh",
        "_held",
        "_max_event",
        "_name",
        "_size",
        "_skip_lf",
        "_skipping",
        "_status",
        "_tail",
        "comments",
        "skipped",
    )

    # What is known of the event in progress; `_clear` sets it.
    _name: bytes
    _data: list[bytes]
    _error: list[bytes]
    _status: bytes
    _bare: list[bytes]
    _depth: int
    _size: int
    _skipping: bool
    _fresh: bool

    def __init__(self, max_event: int = 1 << 20) -> None:
        """Prepare for one stream.

        Args:
            max_event: bytes of an event's lines, comments left out; a longer one is skipped.
        """
        self.comments = 0
        self.skipped = 0
        self._max_event = max(max_event, _SMALLEST_CAP)
        self._begun = False
        self._held = b""
        self._skip_lf = False
        self._tail = bytearray()
        self._dropping = False
        self._clear()

    @property
    def between_events(self) -> bool:
        """Is nothing of an event pending, so that the next byte begins one?"""
        return self._fresh and self._begun and not (self._tail or self._dropping or self._skip_lf)

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes; return the events that they complete, in order."""
        out: list[Event] = []
        chunk = self._normalize(chunk)
        end = chunk.rfind(b"\n") + 1
        if end:
            text, chunk = chunk[:end], chunk[end:]
            if self._dropping:
                self._dropping = False
                text = text[text.find(b"\n") + 1 :]
            elif self._tail:
                text = bytes(self._tail) + text
                self._tail.clear()
            self._blocks(text, out)
        if chunk and not self._dropping:
            self._keep(chunk, out)
        return out

    def close(self) -> list[Event]:
        """Take the end of the stream; return the event that lacked its last blank line, if any."""
        out: list[Event] = []
        if self._tail:
            self._line(bytes(self._tail), out)
            self._tail.clear()
        self._blank(out)
        self._dropping = False
        return out

    def _normalize(self, chunk: bytes) -> bytes:
        """Without the byte order mark, and with LF as the only line end."""
        if not self._begun:
            chunk = self._held + chunk
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self._held = chunk
                return b""
            self._begun = True
            chunk = chunk.removeprefix(_BOM)
        if self._skip_lf and chunk:
            self._skip_lf = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            # A CR ends its line at once, or the last event would wait for the next chunk.
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk

    def _keep(self, piece: bytes, out: list[Event]) -> None:
        """Hold the start of a line; drop it as soon as it cannot be part of an event any more."""
        tail = self._tail
        tail += piece
        # A field ends bare JSON and starts anew, so there only the line itself is measured.
        held = 0 if self._bare else self._size
        if held + len(tail) >= self._max_event:
            # This much of the line decides as the whole line would.
            self._line(bytes(tail), out)
            self._dropping = True
            tail.clear()

    def _blocks(self, text: bytes, out: list[Event]) -> None:
        """Whole lines: split at blank lines, with short ways for the two common shapes."""
        blocks = text.split(b"\n\n")
        rest = blocks.pop()
        fresh, limit = self._fresh, self._max_event
        for block in blocks:
            if fresh and len(block) < limit:
                if block.startswith(b"data: "):
                    if b"\n" not in block:
                        out.append(Event(None, str(block[6:], "utf-8", "replace"), None))
                        continue
                elif block.startswith(b"event: "):
                    name, _, data = block[7:].partition(b"\n")
                    if data.startswith(b"data: ") and b"\n" not in data:
                        out.append(
                            Event(
                                str(name, "utf-8", "replace") or None,
                                str(data[6:], "utf-8", "replace"),
                                None,
                            )
                        )
                        continue
            for line in block.split(b"\n"):
                self._line(line, out)
            self._blank(out)
            fresh = True
        if rest:
            for line in rest[:-1].split(b"\n"):
                self._line(line, out)

    def _line(self, line: bytes, out: list[Event]) -> None:
        if not line:
            self._blank(out)
            return
        if line.startswith(b":"):
            self.comments += 1
            return
        if self._skipping:
            return
        name, _, value = line.partition(b":")
        known = name in _FIELDS
        if known and self._bare:
            self._blank(out)
        bare = not known and (bool(self._bare) or (self._fresh and bool(_BARE_JSON.match(line))))
        self._size += len(line) + 1
        if self._size > self._max_event:
            self.skipped += 1
            self._clear()
            # Bare JSON may lack a blank line for ever: only its own lines are lost.
            self._skipping = not bare
            self._fresh = bare
        elif known:
            self._field(name, value.removeprefix(b" "))
        elif bare:
            self._fresh = False
            self._bare.append(line)
            outside = _STRING.sub(b"", line)
            self._depth += outside.count(b"{") + outside.count(b"[")
            self._depth -= outside.count(b"}") + outside.count(b"]")
            if self._depth <= 0:
                self._blank(out)
        elif self._fresh:
            self._size = 0

    def _field(self, name: bytes, value: bytes) -> None:
        self._fresh = False
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value
        elif name == b"error":
            self._error.append(value)
        elif name == b"status":
            self._status = value.strip()

    def _blank(self, out: list[Event]) -> None:
        """The end of an event: give out what was collected."""
        lines = self._bare or self._data
        if lines or self._name or self._error:
            out.append(
                Event(
                    str(self._name, "utf-8", "replace") or None,
                    str(b"\n".join(lines), "utf-8", "replace"),
                    str(b"\n".join(self._error), "utf-8", "replace") if self._error else None,
                    str(self._status, "latin-1") or None,
                )
            )
        self._clear()

    def _clear(self) -> None:
        self._name = b""
        self._data = []
        self._error = []
        self._status = b""
        self._bare = []
        self._depth = 0
        self._size = 0
        self._skipping = False
        self._fresh = True


class LinesParser:
    """Newline-delimited JSON from any pieces of a stream; one event without a name per line.

    Attributes:
        skipped: how many lines were left out because they exceeded the cap.
    """

    __slots__ = ("_dropping", "_max_line", "_tail", "skipped")

    def __init__(self, max_line: int = 1 << 20) -> None:
        """Prepare for one stream.

        Args:
            max_line: bytes of a line; a longer one is skipped.
        """
        self.skipped = 0
        self._max_line = max(max_line, _SMALLEST_CAP)
        self._tail = bytearray()
        self._dropping = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes; return the lines that they complete, blank ones left out."""
        lines = chunk.split(b"\n")
        rest = lines.pop()
        out: list[Event] = []
        if lines:
            if self._dropping:
                self._dropping = False
                del lines[0]
            elif self._tail:
                lines[0] = bytes(self._tail) + lines[0]
                self._tail.clear()
            for line in lines:
                self._line(line, out)
        if rest and not self._dropping:
            self._tail += rest
            if len(self._tail) > self._max_line:
                self.skipped += 1
                self._dropping = True
                self._tail.clear()
        return out

    def close(self) -> list[Event]:
        """Take the end of the stream; return the line that lacked its line feed, if any."""
        out: list[Event] = []
        self._line(bytes(self._tail), out)
        self._tail.clear()
        self._dropping = False
        return out

    def _line(self, line: bytes, out: list[Event]) -> None:
        if len(line) > self._max_line:
            self.skipped += 1
            return
        # A byte order mark can only stand before the first line, and no JSON begins with one.
        line = line.removeprefix(_BOM).strip()
        if line:
            out.append(Event(None, str(line, "utf-8", "replace"), None))
