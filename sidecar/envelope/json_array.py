"""The elements of a JSON array that arrives in pieces, each as an event.

Gemini streams an answer as one array where nobody asked for server-sent events: an element for
each piece of the answer, printed over several lines, and the last one may be an error. Only
brackets and strings are looked at; whether an element is JSON is for its reader to find out.
"""

from __future__ import annotations

import re

from sidecar.envelope.events import Event

_STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_OUTSIDE = re.compile(rb'[^"{}\[\]]*+')


class JsonArrayParser:
    """The elements of an array, or of several in a row, and objects that stand in none.

    Attributes:
        skipped: how many elements were left out because they exceeded the cap.
    """

    __slots__ = (
        "_base",
        "_depth",
        "_element",
        "_escaped",
        "_in_string",
        "_inside",
        "_max_element",
        "skipped",
    )

    def __init__(self, max_element: int = 1 << 20) -> None:
        """Prepare for one stream.

        Args:
            max_element: bytes of an element; a longer one is skipped.
        """
        self.skipped = 0
        self._max_element = max_element
        self._base = 0
        self._depth = 0
        self._element = bytearray()
        self._inside = False
        self._in_string = False
        self._escaped = False

    @property
    def pending(self) -> bool:
        """Is a bracket open, so that an end here is a cut?"""
        return self._depth > 0

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes; return the elements that they complete, in order."""
        out: list[Event] = []
        at = start = 0
        while at < len(chunk):
            if self._in_string:
                at = self._string(chunk, at)
                continue
            match = _OUTSIDE.match(chunk, at)
            at = match.end() if match else at
            token = chunk[at : at + 1]
            if token == b'"':
                self._in_string = True
            elif token in (b"{", b"["):
                if not self._inside and self._opens(token):
                    self._inside = True
                    start = at
                self._depth += 1
            elif token:
                self._depth = max(0, self._depth - 1)
                if self._inside and self._depth == self._base:
                    self._keep(chunk[start : at + 1])
                    self._give(out)
                elif not self._depth:
                    self._base = 0
            at += 1
        if self._inside:
            self._keep(chunk[start:])
        return out

    def close(self) -> list[Event]:
        """Take the end of the stream: half an element is none."""
        return []

    def _opens(self, token: bytes) -> bool:
        """Whether a bracket where no element is open begins one; else it is the array's own."""
        if token == b"[" and not self._depth:
            self._base = 1
            return False
        return True

    def _string(self, chunk: bytes, at: int) -> int:
        """Skip to the end of the string, or of the chunk."""
        if self._escaped:
            self._escaped = False
            return at + 1
        match = _STRING_REST.match(chunk, at)
        end = match.end() if match else at
        self._in_string = chunk[end : end + 1] != b'"'
        # What is left of an open string is a lone backslash, or nothing.
        self._escaped = self._in_string and end < len(chunk)
        return len(chunk) if self._in_string else end + 1

    def _keep(self, piece: bytes) -> None:
        # One byte beyond the cap tells that it was exceeded.
        self._element += piece[: self._max_element + 1 - len(self._element)]

    def _give(self, out: list[Event]) -> None:
        if len(self._element) > self._max_element:
            self.skipped += 1
        else:
            out.append(Event(None, str(bytes(self._element), "utf-8", "replace"), None))
        self._element.clear()
        self._inside = False
