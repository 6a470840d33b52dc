"""What aiohttp's parser forgives in a head, though two readers could differ on it."""

from __future__ import annotations

import re

_LINE_BREAK = re.compile(rb"\n(?:[ \t]|\r?\n)")
"""The end of a head, or the beginning of a folded line, whichever comes first."""


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
            if not self._first and data.startswith((b"\r", b"\n"), at):
                # The parser passes over blank lines before a status line.
                begin, at = at, len(data) - len(data[at:].lstrip(b"\r\n"))
                self.size += at - begin
                if at == len(data):
                    return at
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
