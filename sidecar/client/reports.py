"""What a report of a failed call holds: the exception as JSON, bounded.

The inverse of `sidecar.envelope.raised.recorded`, which the daemon reads it by.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidecar.envelope.raised import Raised

LARGEST = 64 * 1024
"""Bytes of an exception in a report: the daemon takes 256 KiB, a socket at once less than that."""

_PLAIN = (
    "type", "mro", "code", "sqlstate", "status", "body", "args", "message", "attrs", "errno",
    "phase",
)  # fmt: skip
# What is left out of too large a report, the bulkiest and least telling first.
_DISPENSABLE = ("body", "args", "attrs", "cause", "exceptions", "headers")
_LONGEST_MESSAGE = 4096
_LONGEST_NAME = 256
_MOST_CLASSES = 16


def error_of(raised: Raised) -> dict[str, Any]:
    """An exception as `error` of a report.

    Args:
        raised: the exception, described.
    """
    error = _shown(raised)
    for name in _DISPENSABLE:
        if _size(error) <= LARGEST:
            return error
        error.pop(name, None)
    message = error.get("message", "")[:_LONGEST_MESSAGE]
    return {**{name: _cut(value) for name, value in error.items()}, "message": message}


def neutral(error: BaseException) -> dict[str, Any]:
    """What tells the breaker nothing: the caller went away, or another dependency failed.

    Args:
        error: what ended the call.
    """
    return {
        "type": "asyncio.exceptions.CancelledError",
        "message": f"ended by {type(error).__qualname__}",
    }


def _shown(raised: Raised) -> dict[str, Any]:
    values = ((name, getattr(raised, name)) for name in _PLAIN)
    error: dict[str, Any] = {name: value for name, value in values if value not in (None, "", ())}
    if isinstance(raised.attrs, Mapping):
        error["attrs"] = dict(raised.attrs)
    if raised.headers.pairs:
        error["headers"] = [list(pair) for pair in raised.headers]
    if raised.cause is not None:
        error["cause"] = _shown(raised.cause)
    if raised.exceptions:
        error["exceptions"] = [_shown(member) for member in raised.exceptions]
    return error


def _cut(value: Any) -> Any:
    """A code or a name, or those of a few classes, as long as any that is one."""
    if isinstance(value, str):
        return value[:_LONGEST_NAME]
    if isinstance(value, list | tuple):
        return [_cut(name) for name in value[:_MOST_CLASSES]]
    return value


def _size(error: Mapping[str, Any]) -> int:
    return len(json.dumps(error, separators=(",", ":"), default=str))
