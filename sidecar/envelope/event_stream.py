"""Frames of `application/vnd.amazon.eventstream`, in which AWS streams answers.

A frame is its whole length, the length of its headers and a checksum of these two, then headers,
payload and a checksum of everything before it. Frames arrive in whatever pieces the network made
of them. Lengths and checksums are believed only where they agree with each other and with the
limits of the format: of a stream that breaks them nothing more can be read, since only the
lengths tell where the next frame begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from zlib import crc32

import msgspec

from sidecar.envelope.decode import decode
from sidecar.envelope.events import Event

_PRELUDE = Struct("!III")
_CHECKSUM = Struct("!I")
PRELUDE_SIZE = _PRELUDE.size
"""Bytes that tell the length of a frame, with their checksum."""

_OVERHEAD = PRELUDE_SIZE + _CHECKSUM.size

# The limits of the format.
MAX_HEADERS = 128 * 1024
MAX_PAYLOAD = 24 * 1024 * 1024

# Bytes of a header's value by its type; None for the two that tell their length themselves.
_SIZES: dict[int, int | None] = {
    0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 6: None, 7: None, 8: 8, 9: 16,
}  # fmt: skip
_STRING = 7


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One frame, ready to send.

    Args:
        headers: names of at most 255 and values of at most 65,535 bytes.
        payload: of at most 24 MiB.
    """
    lines = bytearray()
    for name, value in headers.items():
        spelt, text = name.encode(), value.encode()
        lines += bytes((len(spelt),)) + spelt + bytes((_STRING,))
        lines += len(text).to_bytes(2, "big") + text
    sizes = Struct("!II").pack(_OVERHEAD + len(lines) + len(payload), len(lines))
    start = sizes + _CHECKSUM.pack(crc32(sizes)) + lines + payload
    return start + _CHECKSUM.pack(crc32(start))


def length_of(prelude: bytes | bytearray) -> int | None:
    """The whole length of the frame that begins so.

    Args:
        prelude: at least the first twelve bytes of a frame.

    Returns:
        Bytes from the beginning of the frame to its end; None if no frame begins like that.
    """
    whole, headers, checksum = _PRELUDE.unpack_from(prelude)
    if crc32(prelude[:8]) != checksum or headers > MAX_HEADERS:
        return None
    payload = whole - headers - _OVERHEAD
    return int(whole) if 0 <= payload <= MAX_PAYLOAD else None


def read(whole: bytes) -> tuple[dict[str, str], bytes] | None:
    """Headers and payload of one whole frame whose prelude `length_of` believed.

    Args:
        whole: exactly one frame.

    Returns:
        The headers that are strings, the first of each name, and the payload; None if the frame's
        checksum or its headers are wrong.
    """
    if crc32(whole[:-4]) != _CHECKSUM.unpack_from(whole, len(whole) - 4)[0]:
        return None
    end = PRELUDE_SIZE + _PRELUDE.unpack_from(whole)[1]
    headers = _headers(whole[PRELUDE_SIZE:end])
    return None if headers is None else (headers, whole[end:-4])


def _headers(block: bytes) -> dict[str, str] | None:
    found: dict[str, str] = {}
    at = 0
    while at < len(block):
        name_end = at + 1 + block[at]
        kind = block[name_end] if name_end < len(block) else -1
        if kind not in _SIZES:
            return None
        start, size = name_end + 1, _SIZES[kind]
        if size is None:
            start += 2
            size = int.from_bytes(block[start - 2 : start], "big")
        if start + size > len(block):
            return None
        if kind == _STRING:
            name = block[at + 1 : name_end].decode("utf-8", "replace")
            found.setdefault(name, block[start : start + size].decode("utf-8", "replace"))
        at = start + size
    return found


class FrameParser:
    """The events of a binary stream, from any pieces of it.

    A frame of the type `event` gives an event by the name of its kind with its payload as data. One
    of the types `exception` and `error` gives an event named `error`, whose data is the payload's
    object with the name of the exception as `__type` and what the headers tell as `message`.

    Attributes:
        skipped: how many frames were left out because they exceeded the cap.
        broken: a length or a checksum was wrong: nothing after it can be read.
    """

    __slots__ = ("_max_frame", "_skip", "_tail", "broken", "skipped")

    def __init__(self, max_frame: int = 1 << 20) -> None:
        """Prepare for one stream.

        Args:
            max_frame: bytes of a frame; a longer one is skipped.
        """
        self.skipped = 0
        self.broken = False
        self._max_frame = max_frame
        self._skip = 0
        self._tail = bytearray()

    @property
    def pending(self) -> bool:
        """Is a frame incomplete or broken, so that an end here is a cut?"""
        return bool(self._tail) or self._skip > 0 or self.broken

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes; return the events that they complete, in order."""
        out: list[Event] = []
        if self.broken:
            return out
        if self._skip:
            skipped = min(self._skip, len(chunk))
            self._skip -= skipped
            chunk = chunk[skipped:]
        if self._tail:
            self._tail += chunk
            if not self._is_whole():
                return out
            chunk = bytes(self._tail)
            self._tail.clear()
        at = self._frames(chunk, out)
        if not self.broken:
            self._tail += chunk[at:]
        return out

    def close(self) -> list[Event]:
        """Take the end of the stream: half a frame is none."""
        return []

    def _is_whole(self) -> bool:
        """Whether what is held is a frame: until then it is only collected."""
        held = self._tail
        if len(held) < PRELUDE_SIZE:
            return False
        # A prelude that nobody should believe is looked at as soon as it is there.
        stated = length_of(held[:PRELUDE_SIZE])
        return stated is None or stated > self._max_frame or len(held) >= stated

    def _frames(self, data: bytes, out: list[Event]) -> int:
        """Give out the whole frames in the data; return where the rest begins."""
        at = 0
        while len(data) - at >= PRELUDE_SIZE:
            length = length_of(data[at : at + PRELUDE_SIZE])
            if length is None:
                self.broken = True
                break
            if length > self._max_frame:
                self.skipped += 1
                self._skip = max(0, at + length - len(data))
                at = min(at + length, len(data))
                continue
            if len(data) - at < length:
                break
            found = read(data[at : at + length])
            if found is None:
                self.broken = True
                break
            at += length
            out.append(_event(*found))
        return at


def _event(headers: Mapping[str, str], payload: bytes) -> Event:
    text = str(payload, "utf-8", "replace")
    kind = headers.get(":message-type")
    if kind not in {"exception", "error"}:
        return Event(headers.get(":event-type") or None, text, None)
    told = decode(payload)
    error = dict(told) if isinstance(told, dict) else {}
    name = headers.get(":exception-type") or headers.get(":error-code")
    message = headers.get(":error-message") or ("" if isinstance(told, dict) else text)
    if name:
        error["__type"] = name
    if message:
        error.setdefault("message", message)
    return Event("error", msgspec.json.encode(error).decode(), None)
