"""How long an answer asks to wait, and where in it that stands: what a throttle gate goes by."""

from __future__ import annotations

from sidecar.breaker.gating import Hint
from sidecar.envelope import retry_after
from sidecar.envelope.headers import Headers
from sidecar.envelope.model import Envelope

_OUTRIGHT = (*retry_after.IN_MILLISECONDS, retry_after.IN_SECONDS)


def hint_of(envelope: Envelope, headers: Headers, now: float) -> Hint | None:
    """The wait that a throttle asked for, also where it told its client not to retry.

    Args:
        envelope: of the answer.
        headers: of the answer.
        now: seconds since the epoch.
    """
    spelling = (envelope.raw or {}).get("retry_after")
    outright = retry_after.from_headers(headers, now)
    seconds = envelope.retry_after
    if seconds is None and outright is not None:
        seconds = outright[0]
    elif seconds is None and isinstance(spelling, str):
        seconds = retry_after.seconds_of(spelling, now)
    if seconds is None:
        return None
    if outright is not None and outright[0] == seconds:
        named = (name for name in _OUTRIGHT if headers.get(name) == outright[1])
        return Hint(seconds, next(named, "headers"))
    if spelling is None:
        return Hint(seconds, "rule")
    named = (name.lower() for name, value in headers if value == spelling)
    return Hint(seconds, next(named, "body"))


def nothing_left(headers: Headers, now: float) -> Hint | None:
    """The wait of an answer that says that nothing remains until a reset."""
    found = retry_after.from_exhausted(headers, now)
    if found is None or found[0] <= 0:
        return None
    named = (name.lower() for name, value in headers if value == found[1])
    return Hint(found[0], next(named, "headers"))
