"""Another of these daemons in front: what it found out is believed and passed on.

Its own decisions (an open breaker, a shed call) say nothing about what lies behind it for our
breaker: they are neutral here, or two breakers in a row would hold each other open.
"""

from __future__ import annotations

import msgspec

from sidecar.envelope.decode import decode
from sidecar.envelope.dialects.auto import Auto
from sidecar.envelope.model import Classified, Envelope, ErrorClass, Seen, Source, Verdict
from sidecar.envelope.redact import redact_headers

_VERDICT_OF_CLASS = {
    ErrorClass.RATE_LIMIT: Verdict.THROTTLE,
    ErrorClass.TRANSIENT: Verdict.FAILURE,
}


class Sidecar(Auto):
    """Another sidecar as upstream."""

    name = "sidecar"

    def decided(self, seen: Seen, correlation_id: str) -> Classified | None:
        """The other's envelope and verdict, or None where it left none: then the body is read."""
        told = seen.headers.get("x-error-envelope")
        if told is None:
            return None
        envelope = _read(told, seen, correlation_id)
        if envelope is None:
            return None
        decision = seen.headers.get("x-sidecar-decision") or "forwarded"
        if decision != "forwarded":
            return Classified(
                envelope=envelope,
                verdict=Verdict.NEUTRAL,
                rule=f"sidecar: its own decision ({decision})",
                terminal=not envelope.retryable,
            )
        return Classified(
            envelope=envelope,
            verdict=_verdict(seen, envelope),
            rule="sidecar: the envelope of the one in front",
            terminal=not envelope.retryable,
        )


def _verdict(seen: Seen, envelope: Envelope) -> Verdict:
    try:
        return Verdict(seen.headers.get("x-sidecar-verdict") or "")
    except ValueError:
        return _VERDICT_OF_CLASS.get(envelope.class_, Verdict.ALIVE)


def _read(told: str, seen: Seen, correlation_id: str) -> Envelope | None:
    value = decode(told.encode("latin-1", "replace"))
    try:
        envelope = msgspec.convert(value, Envelope)
    except msgspec.ValidationError:
        return None
    wait = envelope.retry_after
    if wait is not None and not (envelope.retryable and 0 <= wait < float("inf")):
        wait = None
    return msgspec.structs.replace(
        envelope,
        source=envelope.source if envelope.source is not Source.SIDECAR else Source.SIDECAR,
        retry_after=wait,
        correlation_id=correlation_id or envelope.correlation_id,
        raw={"status": seen.status, "headers": redact_headers(seen.headers)},
    )
