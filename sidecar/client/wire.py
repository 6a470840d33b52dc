"""HTTP/1.1 as far as the admin plane speaks it: bytes of a request, and answers out of bytes.

Pure, so that threads and event loops of any kind share it. An answer has a length; anything else is
not the daemon, and is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_LONGEST_HEAD = 16 * 1024
_LONGEST_BODY = 1024 * 1024


class WireError(Exception):
    """What came is no answer of an admin plane."""


class Answer(NamedTuple):
    """One answer.

    Attributes:
        status: its status.
        body: its body.
        last: the connection ends with it.
    """

    status: int
    body: bytes
    last: bool


def request_bytes(path: str, authority: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """A POST with a JSON body, ready to be sent.

    Args:
        path: encoded.
        authority: what `Host` says.
        headers: further ones; names and values hold nothing but visible ASCII and spaces.
        body: JSON.
    """
    lines = [
        f"POST {path} HTTP/1.1",
        f"host: {authority}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
        "",
        "",
    ]
    return "\r\n".join(lines).encode("ascii") + body


class AnswerReader:
    """Answers out of the bytes of one connection, in their order."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> None:
        """Take bytes as they came."""
        self._bytes += data

    def next(self) -> Answer | None:
        """The next whole answer, or None: more has to come.

        Raises:
            WireError: if it is none.
        """
        end = self._bytes.find(b"\r\n\r\n", 0, _LONGEST_HEAD)
        if end < 0:
            if len(self._bytes) >= _LONGEST_HEAD:
                raise WireError("an endless head")
            return None
        status, length, last = _read_head(bytes(self._bytes[:end]))
        whole = end + 4 + length
        if len(self._bytes) < whole:
            return None
        body = bytes(self._bytes[end + 4 : whole])
        del self._bytes[:whole]
        return Answer(status, body, last)


def _read_head(head: bytes) -> tuple[int, int, bool]:
    """Status, length of the body, and whether the connection ends with it."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not status.isdecimal() or status < "200":
        raise WireError("no answer of HTTP/1.1")
    fields = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.lower()] = value.strip()
    length = fields.get("content-length", "")
    if not (length.isascii() and length.isdecimal()) or not 0 <= int(length[:12]) <= _LONGEST_BODY:
        raise WireError("an answer without a length, or too long")
    return int(status), int(length), fields.get("connection", "").lower() == "close"
