"""Where the events of a stream end, whatever they are written in, compressed or not.

A fault after n events needs the byte at which the nth ends. Streams are text with blank lines,
lines of JSON, one growing JSON array, or frames. A compressed one is read through its coding and
written anew in the same coding, so that an event can be put into it and a cut falls between two.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any, Final, Protocol

from sidecar.envelope.dialects.grpc_web import end_flag, is_text
from sidecar.envelope.inflate import StreamInflater
from sidecar.envelope.stream import FRAMES_TYPE, is_stream

try:
    import brotli
except ImportError:  # declared for CPython only
    brotli = None

_BLANK_LINE: Final = re.compile(rb"\r?\n\r?\n|\r\r")
_LINE_TYPES: Final = ("ndjson", "jsonl", "json-seq", "jsonlines", "json-lines", "stream+json")
_AWS_LENGTH: Final = 4
_GRPC_HEAD: Final = 5
_OPENING, _CLOSING = frozenset(b"[{"), frozenset(b"]}")


class Events(Protocol):
    """What tells where events end."""

    def ends(self, chunk: bytes) -> Iterator[int]:
        """Behind which bytes of the next chunk an event ends, in their order."""

    def put(self, event: bytes, *, first: bool) -> bytes:
        """An event of ours as it may follow; `first` where none has passed."""


class _Blocks:
    """Server-sent events: a blank line ends each."""

    def __init__(self) -> None:
        self._carry = b""

    def ends(self, chunk: bytes) -> Iterator[int]:
        text, carried = self._carry + chunk, len(self._carry)
        self._carry = text[-3:]
        for match in _BLANK_LINE.finditer(text):
            if match.end() > carried:
                yield match.end() - carried

    def put(self, event: bytes, *, first: bool) -> bytes:
        del first
        return event


class _Lines:
    """Lines of JSON."""

    def ends(self, chunk: bytes) -> Iterator[int]:
        at = chunk.find(b"\n")
        while at >= 0:
            yield at + 1
            at = chunk.find(b"\n", at + 1)

    def put(self, event: bytes, *, first: bool) -> bytes:
        del first
        return data_of(event) + b"\n"


class _Members:
    """One JSON array, whose members are the events."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def ends(self, chunk: bytes) -> Iterator[int]:
        for at, byte in enumerate(chunk):
            if self._quoted:
                if self._escaped:
                    self._escaped = False
                elif byte == 0x5C:
                    self._escaped = True
                elif byte == 0x22:
                    self._quoted = False
            elif byte == 0x22:
                self._quoted = True
            elif byte in _OPENING:
                self._depth += 1
            elif byte in _CLOSING:
                self._depth -= 1
                if self._depth == 1:
                    yield at + 1

    def put(self, event: bytes, *, first: bool) -> bytes:
        return (b"[" if first else b",\n") + data_of(event) + b"]"


class _Frames:
    """Frames that tell their lengths: those of AWS whole, those of gRPC-Web behind five bytes."""

    def __init__(self, *, aws: bool) -> None:
        self._aws = aws
        self._head = b""
        self._owed = 0

    def ends(self, chunk: bytes) -> Iterator[int]:
        at, size = 0, _AWS_LENGTH if self._aws else _GRPC_HEAD
        while at < len(chunk):
            if not self._owed:
                part = chunk[at : at + size - len(self._head)]
                self._head += part
                at += len(part)
                if len(self._head) < size:
                    return
                length = int.from_bytes(self._head[-4:])
                self._owed = max(length - size, 0) if self._aws else length
                self._head = b""
                if self._owed:
                    continue
            else:
                taken = min(self._owed, len(chunk) - at)
                self._owed -= taken
                at += taken
                if self._owed:
                    return
            yield at

    def put(self, event: bytes, *, first: bool) -> bytes:
        del first
        return event


def data_of(event: bytes) -> bytes:
    """The JSON of an event, where a stream has no events to put it in."""
    for line in event.splitlines():
        if line.startswith(b"data:"):
            return line[5:].strip()
    return event.strip()


def events_of(content_type: str | None, first: bytes, *, grows: bool) -> Events | None:
    """What tells the events of an answer apart; None if it is no stream.

    Args:
        content_type: of the answer.
        first: its first bytes, in plain text.
        grows: its route answers with an array that grows.
    """
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind.startswith(FRAMES_TYPE):
        return _Frames(aws=True)
    if end_flag(kind) is not None:
        return None if is_text(kind) else _Frames(aws=False)
    by_type = any(name in kind for name in _LINE_TYPES)
    if grows and "json" in kind and not by_type:
        return _Members()
    if not is_stream(content_type, first):
        return None
    # A server that calls its events by another name is known by how they begin.
    return _Lines() if by_type or first.lstrip()[:1] == b"{" else _Blocks()


class Recoder:
    """A compressed body, read and written anew piece by piece.

    Args:
        coding: of the body: gzip, deflate or br.
    """

    def __init__(self, coding: str) -> None:
        self._inflater = StreamInflater(coding)
        self._engine: Any
        if coding == "br":
            self._engine = brotli.Compressor()
        else:
            bits = zlib.MAX_WBITS if coding == "deflate" else zlib.MAX_WBITS | 16
            self._engine = zlib.compressobj(wbits=bits)
        self._brotli = coding == "br"

    def read(self, chunk: bytes) -> bytes | None:
        """The plain text of the next bytes; None if they cannot be read."""
        return self._inflater.feed(chunk)

    def write(self, text: bytes) -> bytes:
        """Text in the coding, so that whoever has these bytes can read all of it."""
        if self._brotli:
            return bytes(self._engine.process(text) + self._engine.flush())
        return bytes(self._engine.compress(text) + self._engine.flush(zlib.Z_SYNC_FLUSH))

    def end(self) -> bytes:
        """The end of the coding."""
        return bytes(self._engine.finish() if self._brotli else self._engine.flush())


def recoder_of(coding: str | None) -> Recoder | None:
    """What reads and writes a content coding; None where there is nothing to do, or no way to."""
    name = (coding or "identity").strip().lower()
    known = {"gzip", "x-gzip", "deflate"} | ({"br"} if brotli is not None else set())
    return Recoder(name) if name in known else None
