"""Reads the one thing that waits stand in where Google's error model is sent as bytes.

`google.rpc.Status` holds details of any type; `google.rpc.RetryInfo` is the one that says how long
to wait. Fields that are not looked for are stepped over, so nothing here grows with the schema.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

RETRY_INFO = "google.rpc.RetryInfo"

# More than any header carries; what is longer is no hint.
_LONGEST = 65536
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIGN = 1 << 63


def from_base64(text: str) -> bytes:
    """The bytes of a binary header, with or without padding, in either alphabet; else none."""
    if len(text) > _LONGEST:
        return b""
    text = text.strip().rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""


def retry_delay_in_status(status: bytes) -> float | None:
    """The wait that the details of a `google.rpc.Status` ask for, in seconds, or None."""
    for number, detail in _fields(status):
        if number != 3 or not isinstance(detail, bytes):
            continue
        kind, value = b"", b""
        for name, part in _fields(detail):
            if isinstance(part, bytes):
                kind, value = (part, value) if name == 1 else (kind, part if name == 2 else value)
        if kind.endswith(RETRY_INFO.encode()):
            wait = retry_delay(value)
            if wait is not None:
                return wait
    return None


def retry_delay(info: bytes) -> float | None:
    """The wait of a `google.rpc.RetryInfo` in seconds, or None if it has none or a negative one."""
    for number, duration in _fields(info):
        if number == 1 and isinstance(duration, bytes):
            parts = {name: part for name, part in _fields(duration) if isinstance(part, int)}
            seconds = _signed(parts.get(1, 0)) + _signed(parts.get(2, 0)) / 1e9
            return seconds if seconds >= 0 else None
    return None


def _signed(number: int) -> int:
    return number - (_SIGN << 1) if number >= _SIGN else number


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field; ends where the bytes are no message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            if at > len(message):
                return
            yield number, value
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif kind in {_FIXED32, _FIXED64}:
            length = 4 if kind == _FIXED32 else 8
        else:
            return
        if at + length > len(message):
            return
        yield number, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of at most 64 bits and where it ends; past the end of the bytes if it is none."""
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & (2 * _SIGN - 1), at
    return 0, len(message) + 1
