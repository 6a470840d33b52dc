"""Events that say what one before them said, but for the text of their content.

Nearly every event of a stream is such a one. The first is searched for every word that could mean
something; the others are compared with it, which costs a tenth.
"""

from __future__ import annotations

import re

LESSONS = 8
"""Events of one stream that are learned from at most: one whose events differ stays unlearned."""

LONGEST = 4096
"""Bytes of an event that is learned from."""

# What differs from event to event without a meaning: the text of an answer, what is there to hide
# its length (`obfuscation`), and a running number.
_FREE = re.compile(
    rb'"(?:content|text|delta|thinking|reasoning|reasoning_content|partial_json|arguments|obfuscation)'
    rb'": ?"((?:[^"\\\r\n]|\\.)*)"|"sequence_number": ?([0-9]+)'
)


class Refrain:
    """What the content events of one stream have in common."""

    __slots__ = ("_lessons", "_pieces")

    def __init__(self) -> None:
        self._lessons = 0
        self._pieces: tuple[bytes, ...] = ()

    def learn(self, event: bytes) -> None:
        """Takes one whole event that was found to be mere content."""
        if self._lessons >= LESSONS or len(event) > LONGEST or event.find(b"\n\n") + 2 < len(event):
            return
        self._lessons += 1
        pieces, at = [], 0
        for free in _FREE.finditer(event):
            begin, end = free.span(free.lastindex or 0)
            pieces.append(event[at:begin])
            at = end
        self._pieces = (*pieces, event[at:]) if pieces else ()

    def repeats(self, event: bytes) -> bool:
        """Is this one whole event that differs from the one that was learned in its texts alone?"""
        at = -1
        for piece in self._pieces:
            if at < 0:
                if not event.startswith(piece):
                    return False
                at = len(piece)
                continue
            # A text ends with its quote, so that none stands within it; a number ends otherwise.
            end = event.find(piece[:1], at)
            if end < 0 or not event.startswith(piece, end):
                return False
            if event.find(b"\n", at, end) >= 0 or event.find(b"\r", at, end) >= 0:
                return False
            if not piece.startswith(b'"') and not event[at:end].isdigit():
                return False
            at = end + len(piece)
        return at == len(event)
