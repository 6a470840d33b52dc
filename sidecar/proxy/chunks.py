"""Whole chunks of a chunked body, taken out of what comes before the parser sees it.

A stream of events is a chunk or two for each of them, and the parser calls back four times for
each chunk. Between two chunks it knows nothing that it would miss: so what is whole and written in
the usual form is cut out here, and everything else (half a chunk, the last one, trailers,
extensions, line ends that are none) is left to the parser, which judges it as it always did.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LONGEST_SIZE = 7
"""Digits of a chunk's size; a longer one is in no usual form."""

_DIGITS = b"0123456789abcdefABCDEF"
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,7})\r\n")
_BEGUN = re.compile(rb"[0-9A-Fa-f]{1,7}\r?")


class Cut(NamedTuple):
    """How a piece of a body divides.

    Attributes:
        first: bytes at its beginning that end a chunk of the parser's.
        whole: the contents of the whole chunks that follow.
        rest: where what is the parser's again begins.
    """

    first: int
    whole: list[bytes]
    rest: int


class Chunks:
    """Follows the framing of one body. It is given every byte, whoever takes it then.

    Attributes:
        lost: the rest is the parser's alone: the last chunk, or what is in no usual form.
    """

    __slots__ = ("_line", "_owed", "lost")

    def __init__(self) -> None:
        self._line = b""
        self.lost = False
        self._owed = 0

    def cut(self, data: bytes) -> Cut:
        """Divides the next bytes of the body; what is not `whole` has to go to the parser."""
        size = len(data)
        if self._line:
            self._begun(data)
        if self.lost or self._owed >= size:
            self._owed = max(self._owed - size, 0)
            return Cut(size, [], size)
        first = at = self._owed
        self._owed = 0
        all_of_it = _all_whole(data[at:] if at else data)
        if all_of_it is not None:
            return Cut(first, all_of_it, size)
        whole: list[bytes] = []
        while at < size:
            line = _SIZE.match(data, at)
            if line is None:
                self._line = data[at:]
                self.lost = _BEGUN.fullmatch(data, at) is None
                break
            begin = line.end()
            end = begin + int(line[1], 16)
            if begin == end or (size >= end + 2 and data[end : end + 2] != b"\r\n"):
                self.lost = True
                break
            if size < end + 2:
                self._owed = end + 2 - size
                break
            whole.append(data[begin:end])
            at = end + 2
        return Cut(first, whole, at)

    def contents(self, data: bytes) -> bytes | None:
        """The contents of what is whole chunks alone; None where `cut` has to look."""
        if self._owed or self._line or self.lost:
            return None
        whole = _all_whole(data)
        if whole is None:
            return None
        return whole[0] if len(whole) == 1 else b"".join(whole)

    def _begun(self, data: bytes) -> None:
        """The line of a size that had begun goes on: that chunk is the parser's."""
        line, self._line = self._line, b""
        found = _SIZE.match(line + data[:9])
        if found is None or int(found[1], 16) == 0:
            self.lost = True
        else:
            self._owed = found.end() - len(line) + int(found[1], 16) + 2


def _all_whole(data: bytes) -> list[bytes] | None:
    """The contents of bytes that are whole chunks and nothing else; None where in doubt.

    Contents without a CRLF, as events mostly are, can be told at once by splitting there.
    """
    if not data.endswith(b"\r\n"):
        return None
    line = data.find(b"\r\n", 0, LONGEST_SIZE + 2)
    length = len(data) - line - 4
    alone = line > 0 and length > 0 and not data[:line].strip(_DIGITS)
    if alone and length == int(data[:line], 16):
        # An event that is waited for comes alone.
        return [data[line + 2 : line + 2 + length]]
    pieces = data.split(b"\r\n")
    if len(pieces) % 2 == 0:
        return None
    pieces.pop()
    sizes, contents = pieces[::2], pieces[1::2]
    # Python's numbers may have a sign, blanks, underscores and a prefix; a chunk's size may not.
    odd = b"".join(sizes).translate(None, _DIGITS)
    if odd or not all(sizes) or max(map(len, sizes)) > LONGEST_SIZE:
        return None
    told = [int(size, 16) for size in sizes]
    return contents if told == list(map(len, contents)) and 0 not in told else None
