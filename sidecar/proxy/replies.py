"""The daemon's own answers: the contract's table as data, and how one is put together.

An answer of ours is shaped as the provider's dialect shapes errors, so that the caller's SDK
raises the exception its user already catches, with the envelope beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.model import Envelope, ErrorClass, Source, Verdict
from sidecar.envelope.policy import ENVELOPE_TYPE, header_envelope, retry_headers

SDK_WAIT_MAX = 60.0
"""Seconds, where no provider is at hand to say; the default of `sdk_wait_max`."""


class Decision(NamedTuple):
    """What one kind of answer of the daemon's own says.

    Attributes:
        status: the HTTP status.
        class_: the envelope's class.
        retryable: the envelope's `retryable`.
        retry_after: seconds to wait where the caller of the table knows no better.
        source: `sidecar`, or `http` where the upstream could not be reached or did not answer.
        code: the envelope's code where it is not the decision's own word.
    """

    status: int
    class_: ErrorClass
    retryable: bool
    retry_after: float | None = None
    source: Source = Source.SIDECAR
    code: str | None = None


_T, _P, _V = ErrorClass.TRANSIENT, ErrorClass.PERMANENT, ErrorClass.VALIDATION
_A = ErrorClass.AUTHENTICATION
_R = ErrorClass.RATE_LIMIT

DECISIONS: dict[str, Decision] = {
    "breaker_open": Decision(503, _T, retryable=True),
    "shed": Decision(429, _R, retryable=True),
    "quota": Decision(402, _P, retryable=False),
    "bulkhead": Decision(503, _T, retryable=True, retry_after=1.0, code="bulkhead_full"),
    "local_network": Decision(503, _T, retryable=True, code="local_network_down"),
    "connect_error": Decision(502, _T, retryable=True, source=Source.HTTP),
    "timeout": Decision(504, _T, retryable=True, source=Source.HTTP),
    "upstream_error": Decision(502, _T, retryable=True, source=Source.HTTP),
    "draining": Decision(503, _T, retryable=True, retry_after=1.0),
    "unknown_provider": Decision(404, _P, retryable=False),
    "forbidden_host": Decision(403, _P, retryable=False),
    "not_allowed": Decision(405, _P, retryable=False),
    "bad_request": Decision(400, _V, retryable=False),
    "sigv4_unsupported": Decision(400, _V, retryable=False),
    "missing_credentials": Decision(401, _A, retryable=False),
    "too_large": Decision(413, _V, retryable=False),
    "internal_error": Decision(500, _P, retryable=False),
}

LOCAL = frozenset(DECISIONS) - {"connect_error", "timeout", "upstream_error", "internal_error"}
"""The decisions by which a call never left: no breaker hears of them."""

OWN_CODES = frozenset({"local_resource", "loop_stalled", "untrusted_ca"})
"""Codes of `connect_error` and `timeout` that name trouble of this machine's own."""

NOT_RETRYABLE_CODES = frozenset({"tls_failure", "untrusted_ca"})
"""Codes of `connect_error` that the identical request meets again."""

REASONS = {
    400: "Bad Request",
    401: "Unauthorized",
    402: "Payment Required",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
"""Phrases of the statuses that the daemon writes itself (RFC 9110)."""


def envelope_of(
    decision: str,
    message: str,
    correlation_id: str,
    *,
    code: str | None = None,
    retry_after: float | None = None,
    sent: bool | None = None,
) -> Envelope:
    """The envelope of an answer of the daemon's own.

    Args:
        decision: a key of `DECISIONS`.
        message: one sentence a person can act on.
        correlation_id: of the call.
        code: a more specific code than the decision's word.
        retry_after: seconds to wait, where it is known.
        sent: whether the request had left; goes into `raw`.
    """
    row = DECISIONS[decision]
    code = code or row.code or decision
    retryable = row.retryable and code not in NOT_RETRYABLE_CODES
    return Envelope(
        class_=row.class_,
        source=Source.SIDECAR if code in OWN_CODES else row.source,
        code=code,
        message=message[:500],
        retryable=retryable,
        retry_after=(row.retry_after if retry_after is None else retry_after)
        if retryable
        else None,
        correlation_id=correlation_id,
        raw=None if sent is None else {"sent": sent},
    )


def body_of(
    envelope: Envelope, status: int, dialect: Dialect, path: str, *, plain: bool
) -> tuple[str, bytes]:
    """The media type and the body of an answer of the daemon's own.

    Args:
        envelope: what the answer says.
        status: its status.
        dialect: whose error shape it takes.
        path: the path at the upstream; a dialect may have two shapes.
        plain: the caller asked for the bare envelope.
    """
    if plain:
        return ENVELOPE_TYPE, msgspec.json.encode(envelope)
    return "application/json", dialect.error_body(envelope, status, path)


def error_headers(
    envelope: Envelope,
    verdict: Verdict | None,
    should_retry: str | None,
    retry_names: Sequence[str] = ("x-should-retry",),
) -> list[tuple[str, str]]:
    """The headers that every answer with an error carries.

    Args:
        envelope: the error.
        verdict: where it is known by now.
        should_retry: whether a client should repeat by itself; None to say nothing.
        retry_names: where the clients of this provider look for it.
    """
    headers = [("x-error-envelope", header_envelope(envelope))]
    if verdict is not None:
        headers.append(("x-sidecar-verdict", verdict.value))
    headers.extend(retry_headers(envelope))
    if should_retry is not None:
        headers.extend((name, should_retry) for name in retry_names)
    return headers
