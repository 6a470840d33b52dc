"""What an operator may send along with a control call: for how long, and why.

Read strictly: a misspelt `for` that was ignored would hold a breaker open for ever.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from sidecar.admin.answers import AdminError
from sidecar.config.units import DURATION_HINT, parse_duration
from sidecar.envelope.redact import redact_text

LONGEST = 30 * 86400.0
"""Seconds: beyond a month nobody remembers, and a forced state without an end says so itself."""
_LONGEST_REASON = 200
_FIELDS = frozenset({"for", "reason"})


class Orders(msgspec.Struct, frozen=True):
    """A checked body.

    Attributes:
        seconds: for how long; None until changed again.
        reason: one printable line, or None.
    """

    seconds: float | None = None
    reason: str | None = None


def read_orders(body: bytes) -> Orders:
    """Read the body of a control call; an empty one means neither.

    Raises:
        AdminError: 400, if it is no JSON object or one of its fields is not as it should be.
    """
    if not body.strip():
        return Orders()
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise _bad("the body is not JSON") from None
    if not isinstance(document, dict):
        raise _bad('the body is a JSON object: {"for": "10m", "reason": "…"}, both optional')
    unknown = sorted(set(document) - _FIELDS)
    if unknown:
        raise _bad("the body has only the fields for and reason")
    return Orders(_seconds(document.get("for")), _reason(document.get("reason")))


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    seconds = parse_duration(value) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise _bad(f"for is a duration: {DURATION_HINT}")
    if not (isinstance(seconds, int) or math.isfinite(seconds)) or not 0 < seconds <= LONGEST:
        raise _bad("for is above 0 and at most 720h; leave it out for no end")
    return float(seconds)


def _reason(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _bad("reason is a text")
    line = " ".join("".join(c if c.isprintable() else " " for c in value).split())
    return redact_text(line)[:_LONGEST_REASON] or None


def _bad(message: str) -> AdminError:
    return AdminError(400, "bad_request", message)
