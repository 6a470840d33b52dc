"""What a caller is told beyond the body: the status, whether to retry, the envelope as a header.

Pure decisions over a finished classification, so that the proxy only writes down what they say.
"""

from __future__ import annotations

import json
import math

from sidecar.envelope.dialects.rule import BUDGET_WORDS
from sidecar.envelope.model import Classified, Envelope, ErrorClass

HEADER_LIMIT = 2048

ENVELOPE_TYPE = "application/vnd.error-envelope+json"
"""Asked for by `Accept`: the eight fields as the body of any error."""

_OWN_5XX = frozenset({501, 505, 507})
_NOT_PERMANENT_4XX = frozenset({400, 401, 403, 408, 413, 422, 425, 429, 499})
_OWN: dict[ErrorClass, frozenset[int]] = {
    ErrorClass.VALIDATION: frozenset({400, 413, 422}),
    ErrorClass.AUTHENTICATION: frozenset({401, 403}),
    ErrorClass.RATE_LIMIT: frozenset({429}),
    ErrorClass.TRANSIENT: frozenset({408, 409, 425, 499}) | frozenset(range(500, 600)) - _OWN_5XX,
    ErrorClass.PERMANENT: (frozenset(range(400, 500)) - _NOT_PERMANENT_4XX) | {413} | _OWN_5XX,
}
_BECOMES = {
    ErrorClass.VALIDATION: 400,
    ErrorClass.AUTHENTICATION: 401,
    ErrorClass.RATE_LIMIT: 429,
    ErrorClass.TRANSIENT: 503,
    ErrorClass.PERMANENT: 422,
}
_BECOMES_BY_CODE = {
    "model_not_found": 404,
    "context_length_exceeded": 400,
    "content_filtered": 400,
    **dict.fromkeys(BUDGET_WORDS, 402),
}
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})


def is_reclassified(classified: Classified, status: int) -> bool:
    """Whether an answer's status is not one of its class's own: a typo as 503, an error as 200."""
    envelope = classified.brief
    return envelope is not None and status not in _OWN[envelope.class_]


def status_for(classified: Classified, status: int) -> int:
    """The status to send where statuses are corrected.

    Args:
        classified: what the answer was.
        status: the status that it wore.

    Returns:
        The same status if there is no error or the status is one of the class's own; else the one
        that its code, or its class, stands for.
    """
    envelope = classified.brief
    if envelope is None or status in _OWN[envelope.class_]:
        return status
    return _BECOMES_BY_CODE.get(envelope.code, _BECOMES[envelope.class_])


def should_retry(
    envelope: Envelope,
    *,
    terminal: bool,
    decision: str = "forwarded",
    fail_fast: bool = True,
    sdk_wait_max: float = 60.0,
    method: str = "POST",
    idempotency_key: bool = False,
    repeatable: bool = False,
    sent: bool = False,
    upstream: str | None = None,
) -> str | None:
    """The value of `x-should-retry`, or None where the header stays away.

    Args:
        envelope: the error.
        terminal: the body named a code that no repetition can mend.
        decision: `forwarded`, or why the daemon answered itself.
        fail_fast: an open breaker tells clients not to wait for it.
        sdk_wait_max: a longer wait, in seconds, is not left to a client's sleep.
        method: of the request.
        idempotency_key: the request carried one.
        repeatable: the dialect knows the route to be safe to repeat.
        sent: the request had left when the failure came.
        upstream: what the upstream itself said.
    """
    unsafe = method.upper() not in _IDEMPOTENT and not idempotency_key and not repeatable
    refuse = (
        terminal
        or envelope.class_ is ErrorClass.AUTHENTICATION
        or (decision == "breaker_open" and fail_fast)
        or (envelope.retry_after is not None and envelope.retry_after > sdk_wait_max)
        or not envelope.retryable
        or (sent and decision in {"timeout", "upstream_error"} and unsafe)
    )
    return "false" if refuse else upstream


def wants_envelope(accept: str | None) -> bool:
    """Does the caller ask for the envelope as the body of errors?"""
    return accept is not None and ENVELOPE_TYPE in accept.lower()


def retry_headers(envelope: Envelope) -> list[tuple[str, str]]:
    """`retry-after` in whole seconds, rounded up, and `retry-after-ms`; none without a wait."""
    wait = envelope.retry_after
    if not envelope.retryable or wait is None:
        return []
    return [
        ("retry-after", str(math.ceil(wait))),
        ("retry-after-ms", str(math.ceil(wait * 1000))),
    ]


def header_envelope(envelope: Envelope) -> str:
    """The value of `x-error-envelope`: seven fields as one line of ASCII JSON, at most 2 KiB.

    The message is cut first, for every other field is bounded.
    """
    fields = envelope.for_model()
    line = _ascii(fields)
    message = str(fields["message"])
    while len(line) > HEADER_LIMIT and message:
        # One character of text is up to twelve of escapes.
        message = message[: max(0, len(message) - 1 - (len(line) - HEADER_LIMIT) // 12)]
        line = _ascii({**fields, "message": message + "…"})
    return line


def _ascii(fields: dict[str, object]) -> str:
    return json.dumps(fields, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
