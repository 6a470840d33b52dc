"""Length-prefixed frames of gRPC-Web and Connect, out of any pieces of a body.

Each frame is a byte of flags, four bytes of length and a payload. What carries the answer is
counted and never kept; the last frame says how the call went, and only that one is given out. A
body of the text form is base64 on the wire, in segments that may each have padding.
"""

from __future__ import annotations

import binascii
import re

import msgspec

_HEAD = 5
_COMPRESSED = 0x01
_SEGMENT = re.compile(rb"[^=]+={0,2}")
_BLANKS = re.compile(rb"\s+")


class Frame(msgspec.Struct, frozen=True, gc=False):
    """The last frame of a body.

    Attributes:
        payload: its bytes, still compressed if `compressed`.
        compressed: the coding of the call was applied to them.
    """

    payload: bytes
    compressed: bool


class FramesParser:
    """Frames from any pieces of a body.

    Attributes:
        begun: a frame of the answer has begun.
        broken: the body is no sequence of frames; nothing more is read.
    """

    __slots__ = (
        "_end_flag",
        "_flags",
        "_head",
        "_kept",
        "_left",
        "_longest",
        "_text",
        "begun",
        "broken",
    )

    def __init__(self, end_flag: int, *, text: bool = False, longest: int = 65536) -> None:
        """Prepare for one body.

        Args:
            end_flag: the flag of the last frame: 0x80 of gRPC-Web, 0x02 of Connect.
            text: the body is base64.
            longest: bytes of the last frame; a longer one is cut there.
        """
        self.begun = False
        self.broken = False
        self._end_flag = end_flag
        self._longest = longest
        self._text: bytes | None = b"" if text else None
        self._head = b""
        self._flags = 0
        self._left = 0
        self._kept: bytearray | None = None

    @property
    def between_frames(self) -> bool:
        """Is nothing of a frame pending, so that the next byte begins one?"""
        return not (self._head or self._left or self._text or self.broken)

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take the next bytes; return the last frame as soon as it is whole."""
        if self._text is not None:
            chunk = self._decoded(chunk)
        out: list[Frame] = []
        at, size = 0, len(chunk)
        while at < size and not self.broken:
            if not self._left:
                taken = chunk[at : at + _HEAD - len(self._head)]
                at += len(taken)
                self._head += taken
                if len(self._head) == _HEAD:
                    self._begin(out)
                continue
            end = min(size, at + self._left)
            if self._kept is not None and len(self._kept) < self._longest:
                self._kept += chunk[at : min(end, at + self._longest - len(self._kept))]
            self._left -= end - at
            at = end
            if not self._left:
                self._end(out)
        return out

    def _begin(self, out: list[Frame]) -> None:
        head, self._head = self._head, b""
        self._flags = head[0]
        self._left = int.from_bytes(head[1:], "big")
        if self._flags & ~(self._end_flag | _COMPRESSED):
            self.broken = True
            return
        if self._flags & self._end_flag:
            self._kept = bytearray()
        else:
            self.begun = True
        if not self._left:
            self._end(out)

    def _end(self, out: list[Frame]) -> None:
        if self._kept is not None:
            out.append(Frame(bytes(self._kept), bool(self._flags & _COMPRESSED)))
            self._kept = None

    def _decoded(self, chunk: bytes) -> bytes:
        """The bytes of every whole group of four characters; the rest waits."""
        text = (self._text or b"") + _BLANKS.sub(b"", chunk)
        whole = len(text) & ~3
        self._text = text[whole:]
        try:
            return b"".join(binascii.a2b_base64(part) for part in _SEGMENT.findall(text[:whole]))
        except binascii.Error:
            self.broken = True
            return b""
