"""gRPC: sixteen statuses, and what a server puts into the trailing metadata.

The meanings follow gRPC's guide: repeat the call on UNAVAILABLE, one level higher on ABORTED, not
at all on FAILED_PRECONDITION. Trailers may hold a pushback in milliseconds (negative: do not
repeat) and details as protocol buffers, of which a few fields are read here without a library.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from sidecar.envelope.fields import as_word
from sidecar.envelope.headers import Headers
from sidecar.envelope.raised import Raised
from sidecar.envelope.sdks.family import (
    BROKEN,
    CONFLICT,
    FINAL,
    INVALID,
    OUTAGE,
    REFUSED,
    THROTTLE,
    WITHDRAWN,
    Facts,
    Family,
    changed,
    classes,
    named,
    seconds,
    worded,
    words,
)
from sidecar.envelope.sdks.google_reasons import REASONS

#: What the statuses mean; their numbers are those of google/rpc/code.proto.
STATUSES = named(
    ("the server, or the way to it, failed", OUTAGE, "UNAVAILABLE INTERNAL UNKNOWN"),
    ("no answer in time", OUTAGE, "DEADLINE_EXCEEDED"),
    ("a quota or a rate", THROTTLE, "RESOURCE_EXHAUSTED"),
    ("two calls met: the same one may pass now", CONFLICT, "ABORTED"),
    ("taken back, so nobody failed", CONFLICT, "CANCELLED"),
    ("data were lost: no repetition brings them back", BROKEN, "DATA_LOSS"),
    (
        "the request, or the state it assumes, is at fault",
        INVALID,
        "INVALID_ARGUMENT FAILED_PRECONDITION OUT_OF_RANGE",
    ),
    ("the caller is not who he says, or may not", REFUSED, "UNAUTHENTICATED PERMISSION_DENIED"),
    ("no repetition mends it", FINAL, "NOT_FOUND ALREADY_EXISTS UNIMPLEMENTED"),
)
_NUMBERS = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
]

_MOST_DETAILS = 65536
_MOST_FIELDS = 256


def name_of(code: Any) -> str | None:
    """The name of a status, out of a name, `StatusCode.NAME` or a number; None if it is none."""
    word = as_word(code)
    if word is None:
        return None
    if word.isascii() and word.isdecimal():
        return _NUMBERS[int(word)] if len(word) < 3 and int(word) < len(_NUMBERS) else None
    name = word.rpartition(".")[2].upper()
    return name if name in _NUMBERS else None


def wait_in(headers: Headers) -> tuple[float | None, bool | None]:
    """The wait that trailers ask for, in seconds, and whether they speak against repeating."""
    pushback = headers.get("grpc-retry-pushback-ms")
    if pushback is not None:
        wait = seconds(pushback, 0.001)
        # Negative or unreadable: the server asks not to be called again (gRFC A6).
        return wait, None if wait is not None else False
    return reason_and_delay(headers)[1], None


def reason_and_delay(headers: Headers) -> tuple[str | None, float | None]:
    """The reason of an `ErrorInfo` and the delay of a `RetryInfo` in the details of a status."""
    reason = delay = None
    for packed in _packed(headers):
        kind, value = packed
        if kind == "RetryInfo" and delay is None:
            delay = _delay(value)
        elif kind == "ErrorInfo" and reason is None:
            reason = _text(_first(value, 1))
    return reason, delay


def _packed(headers: Headers) -> Iterator[tuple[str, bytes]]:
    """The details: message types by their last name, and their bytes."""
    alone = headers.get("google.rpc.retryinfo-bin")
    if alone is not None:
        yield "RetryInfo", _binary(alone)
    details = headers.get("grpc-status-details-bin")
    if details is None:
        return
    for number, value in _fields(_binary(details)):
        if number == 3 and isinstance(value, bytes):
            kind = _text(_first(value, 1)) or ""
            packed = _first(value, 2)
            if isinstance(packed, bytes):
                yield kind.rpartition(".")[2], packed


def _delay(info: bytes) -> float | None:
    duration = _first(info, 1)
    if not isinstance(duration, bytes):
        return None
    whole, nanos = _first(duration, 1), _first(duration, 2)
    return seconds((whole if isinstance(whole, int) else 0)
                   + (nanos if isinstance(nanos, int) else 0) / 1e9)  # fmt: skip


def _binary(text: str) -> bytes:
    """The bytes of a `-bin` value, which is base64 with or without its padding."""
    text = text[:_MOST_DETAILS].strip().rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else None


def _first(message: bytes, number: int) -> int | bytes | None:
    return next((value for found, value in _fields(message) if found == number), None)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer, as far as it can be read: numbers and bytes."""
    place = 0
    for _ in range(_MOST_FIELDS):
        key, place = _varint(message, place)
        if key is None:
            return
        kind = key & 7
        if kind == 0:
            value, place = _varint(message, place)
            if value is None:
                return
            yield key >> 3, value
            continue
        if kind == 2:
            length, place = _varint(message, place)
        else:
            length = {1: 8, 5: 4}.get(kind)
        if length is None or place + length > len(message):
            return
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int | None, int]:
    value = 0
    for shift in range(0, 64, 7):
        if place >= len(message):
            return None, place
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    return None, place


def _read(raised: Raised, facts: Facts) -> Facts:
    # A number below 100 is a status of gRPC's, whatever else a report calls code.
    name = name_of(raised.code) or name_of(raised.attrs.get("grpc_status"))
    name = name or name_of(facts.headers.get("grpc-status"))
    wait, again = wait_in(facts.headers)
    reason = reason_and_delay(facts.headers)[0]
    message = facts.message or facts.headers.get("grpc-message") or ""
    return changed(
        facts,
        code=reason or name or facts.code,
        codes=tuple(code for code in (reason, name) if code),
        message=message,
        wait=wait,
        again=again,
    )


GRPC = Family(
    name="grpc",
    packages=("grpc",),
    sdks=("grpc", "grpcio", "grpc-aio"),
    dialect="generic",
    codes=REASONS,
    kinds=STATUSES,
    classes=classes(
        "grpc",
        ("taken back on this side", worded(WITHDRAWN, "CANCELLED"), "FutureCancelledError"),
    ),
    words={
        **words("grpc", timeout="FutureTimeoutError"),
        **words("grpc.aio", refused_locally="UsageError"),
        "grpc.aio._base_call.UsageError": "refused_locally",
    },
    read=_read,
)
