"""HubSpot: `{"status": "error", "message", "category", "policyName", …}`, each optional.

A 429 names the policy that was exceeded: one of seconds passes, the one of the day does not. Two
statuses are its own ways: 423 for a record that is locked for two seconds, 477 for an account that
moves between data centres.
Sources: developers.hubspot.com on error handling and on usage guidelines.
"""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.dialects.tool import TOOL_RULES, Tool
from sidecar.envelope.dialects.words import AUTHENTICATION, PERMANENT, TRANSIENT
from sidecar.envelope.model import Envelope, ErrorClass, Verdict

HUBSPOT_RULES = (
    Rule(
        name="the calls of the day are spent",
        why="the policy: it ends at midnight of the account",
        codes=words("daily"),
        statuses=statuses(429),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="the calls of the day are spent",
        why="a 429 without a policy; only the text tells which limit it was",
        says=("your daily limit",),
        statuses=statuses(429),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="the access token has expired",
        why="an OAuth token of half an hour: one refresh mends it",
        codes=words("expired_authentication"),
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="the access token has expired",
        why="older endpoints have no category; only the text tells",
        says=(") is expired", "this call expired"),
        statuses=statuses(401),
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="the grant is dead",
        why="the token endpoint's own words beside a 400: refreshing again would loop",
        codes=words(
            "bad_refresh_token bad_auth_code expired_auth_code bad_client_id bad_client_secret"
        ),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the record is locked",
        why="423: a call that changes much holds it for two seconds",
        statuses=statuses(423),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
        wait=2.0,
    ),
    Rule(
        name="the account moves",
        why="477: a migration between data centres, with the wait in the header",
        statuses=statuses(477),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
)

_CATEGORIES = {
    ErrorClass.VALIDATION: "VALIDATION_ERROR",
    ErrorClass.AUTHENTICATION: "INVALID_AUTHENTICATION",
    ErrorClass.RATE_LIMIT: "RATE_LIMITS",
    ErrorClass.TRANSIENT: "SERVICE_UNAVAILABLE",
}


class HubSpot(Tool):
    """HubSpot's APIs."""

    name = "hubspot"
    rules: ClassVar[tuple[Rule, ...]] = (*HUBSPOT_RULES, *TOOL_RULES)
    code_places: ClassVar[tuple[str, ...]] = (
        "policyName",
        "subCategory",
        "category",
        "errorType",
        "status",
    )
    request_id_headers: ClassVar[tuple[str, ...]] = (
        "x-hubspot-correlation-id",
        *Tool.request_id_headers,
    )
    reading_routes: ClassVar[tuple[str, ...]] = ("/search", "/batch/read")
    native_codes: ClassVar[dict[ErrorClass, str]] = _CATEGORIES
    secret_paths: ClassVar[tuple[re.Pattern[str], ...]] = (
        re.compile(r"/oauth/v\d{1,2}/(?:access|refresh)-tokens/([^/]++)"),
    )

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """The flat form; the category its own, our code below it, the correlation id ours."""
        del status, path
        return msgspec.json.encode(
            {
                "status": "error",
                "message": envelope.message,
                "correlationId": envelope.correlation_id,
                "category": self.native_code(envelope),
                "subCategory": envelope.code,
                "envelope": envelope,
            }
        )
