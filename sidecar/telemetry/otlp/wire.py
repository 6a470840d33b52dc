"""The few rules of protobuf's encoding by which a span is put together from pieces made before.

Messages of the library cost as much as the rest of a call. Two rules of the encoding save them: the
bytes of two messages behind each other are one message with the fields of both, and a message
inside another is its length and its bytes. So what is the same for many spans is encoded once, by
the library, and only ids, times and lengths are written anew.
"""

from __future__ import annotations

import struct
from typing import Final

_IDS: Final = struct.Struct("<2s16s2s8s1sQ1sQ2sI")
_TRACE_ID, _SPAN_ID, _PARENT = b"\x0a\x10", b"\x12\x08", b"\x22\x08"
_START, _END, _FLAGS = b"\x39", b"\x41", b"\x85\x01"


def varint(number: int) -> bytes:
    """A whole number, seven bits a byte, the lowest first."""
    if number < 0x80:
        return bytes((number,))
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def field(number: int, data: bytes) -> bytes:
    """A message or a text as a field of the message around it.

    Args:
        number: of the field, below 16.
        data: its bytes.
    """
    return bytes((number << 3 | 2,)) + varint(len(data)) + data


def ids(
    trace_id: bytes, span_id: bytes, parent_id: bytes, start: int, end: int, flags: int
) -> bytes:
    """What is different in each span, as fields of `opentelemetry.proto.trace.v1.Span`.

    Args:
        trace_id: 16 bytes.
        span_id: 8 bytes.
        parent_id: 8 bytes, or none.
        start: nanoseconds since the epoch.
        end: likewise.
        flags: the trace's flags, and whether the parent is remote.
    """
    fixed = _IDS.pack(
        _TRACE_ID, trace_id, _SPAN_ID, span_id, _START, start, _END, end, _FLAGS, flags
    )
    return fixed + _PARENT + parent_id if parent_id else fixed
