"""Stripe: `{"error": {type, code, decline_code, param, message}}`, and two codes that mislead.

402 is the card of a customer, never the caller's own bill. 429 is a rate limit or a lock that
another request holds on the same object; `code` tells. Whether to repeat is said outright, in a
header of Stripe's own. Good objects carry the last failed payment, which is no error of the call.

Sources: docs.stripe.com/api/errors, /error-codes, /rate-limits, /error-low-level.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from sidecar.envelope.dialects.openai import CONFLICT
from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.dialects.tool import TOOL_RULES, Tool
from sidecar.envelope.dialects.words import AUTHENTICATION, PERMANENT, TRANSIENT, VALIDATION
from sidecar.envelope.model import Envelope, ErrorClass, Verdict

STRIPE_RULES = (
    Rule(
        name="another request holds it",
        why="a lock, an idempotency key, a token or a reader that is in use: it passes",
        codes=words("lock_timeout idempotency_key_in_use token_in_use terminal_reader_busy"),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="the key fits another request",
        why="the same idempotency key with other parameters: it never passes",
        codes=words("idempotency_error"),
        class_=VALIDATION,
    ),
    Rule(
        name="the customer's payment was refused",
        why="402 is about the card or account of a customer, not about the caller's own budget",
        statuses=statuses(402),
        class_=PERMANENT,
    ),
    Rule(
        name="the key is refused",
        why="a key that expired or is of the wrong kind: there is nothing to refresh",
        codes=words("api_key_expired platform_api_key_expired secret_key_required"),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the destination of a forwarded request failed",
        why="a third party's server; the code says that the same request may pass",
        codes=words(
            "forwarding_api_retryable_upstream_error forwarding_api_upstream_connection_error"
            " forwarding_api_upstream_connection_timeout"
        ),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="it is there already",
        why="a conflict that does not pass",
        codes=words("resource_already_exists"),
        class_=PERMANENT,
    ),
)

_TYPES = {
    ErrorClass.VALIDATION: "invalid_request_error",
    ErrorClass.AUTHENTICATION: "authentication_error",
    ErrorClass.RATE_LIMIT: "rate_limit_error",
    ErrorClass.TRANSIENT: "api_error",
    ErrorClass.PERMANENT: "invalid_request_error",
}


class Stripe(Tool):
    """Stripe's API."""

    name = "stripe"
    rules: ClassVar[tuple[Rule, ...]] = (*STRIPE_RULES, *TOOL_RULES, CONFLICT)
    code_places: ClassVar[tuple[str, ...]] = ("code", "type")
    word_places: ClassVar[tuple[str, ...]] = ()
    request_id_headers: ClassVar[tuple[str, ...]] = ("request-id",)
    should_retry_headers: ClassVar[tuple[str, ...]] = ("stripe-should-retry", "x-should-retry")

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """`{"error": {…}}`: the client chooses its exception by the status, then by `type`."""
        del status, path
        error = {
            "type": _TYPES[envelope.class_],
            "code": envelope.code,
            "message": envelope.message,
            "param": None,
            "envelope": envelope,
        }
        return msgspec.json.encode({"error": error, "envelope": envelope})
