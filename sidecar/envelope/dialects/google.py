"""Google's errors: a status of gRPC's, and details that say what it does not.

The body is `{"error": {"code": int, "message", "status", "details": […]}}`, or a list of one such
object. `details` hold an `ErrorInfo` with the reason, a `QuotaFailure` with the quotas that were
exceeded and a `RetryInfo` with the wait. A bad key is 400 INVALID_ARGUMENT, a spent day asks to
come again in 45 seconds: only the details tell.

The reasons are those of google/api/error_reason.proto and of Code Assist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from sidecar.envelope import retry_after
from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.exhausted import MESSAGE_TOO_LARGE
from sidecar.envelope.dialects.google_details import with_details
from sidecar.envelope.dialects.oauth import OAUTH
from sidecar.envelope.dialects.rule import FIVE, FOUR, TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    COMMON,
    PERMANENT,
    RATE_LIMIT,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import as_number_text, at
from sidecar.envelope.locate import Found
from sidecar.envelope.model import Seen, Verdict

# Windows that a caller cannot sit out, as quota ids, metrics and limits spell them.
_LONG_WINDOW = re.compile(r"per[ _-]?(?:day|week|month)|daily|weekly|monthly", re.IGNORECASE)
_LONG_LIMIT = re.compile(r"quota exceeded for .{0,200}?per[ _](?:day|week|month)\b", re.IGNORECASE)
_NO_LIMIT = re.compile(r"\blimit: 0(?![\d.])")

_CAPACITY = words("MODEL_CAPACITY_EXHAUSTED")


def _quotas(evidence: Evidence) -> Iterator[dict[str, Any]]:
    violations = evidence.error.get("quotaViolations")
    for violation in violations if isinstance(violations, list) else ():
        if isinstance(violation, dict):
            yield violation


def _window_is_long(evidence: Evidence) -> bool:
    """One of the exceeded quotas is of a day or longer, whatever wait is offered."""
    named = [
        str(violation.get(name) or "")
        for violation in _quotas(evidence)
        for name in ("quotaId", "quotaMetric", "subject")
    ]
    limit = at(evidence.error, "errorInfo.metadata.quota_limit")
    named += [limit] if isinstance(limit, str) else []
    if str(at(evidence.error, "errorInfo.metadata.quota_unit") or "").startswith("1/d"):
        return True
    if any(named):
        return any(_LONG_WINDOW.search(name) for name in named)
    return _LONG_LIMIT.search(evidence.message[:4096]) is not None


def _has_no_quota(evidence: Evidence) -> bool:
    """The limit is zero: the plan does not include it, and the wait offered is meaningless."""
    values = [violation.get("quotaValue") for violation in _quotas(evidence)]
    return "0" in values or 0 in values or _NO_LIMIT.search(evidence.message[:4096]) is not None


def _is_dead_token(evidence: Evidence) -> bool:
    return evidence.challenge.get("error") == "invalid_token"


CREDENTIALS = (
    Rule(
        name="the access token has expired",
        why="a token of OAuth's: one refresh mends it",
        codes=words("ACCESS_TOKEN_EXPIRED"),
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="the credential, the project or the account is refused",
        why="a reason of service infrastructure; a bad key is 400 otherwise",
        codes=words(
            "API_KEY_INVALID API_KEY_EXPIRED API_KEY_NOT_FOUND API_KEY_SERVICE_BLOCKED"
            " API_KEY_HTTP_REFERRER_BLOCKED API_KEY_IP_ADDRESS_BLOCKED API_KEY_ANDROID_APP_BLOCKED"
            " API_KEY_IOS_APP_BLOCKED SERVICE_DISABLED SERVICE_NOT_VISIBLE BILLING_DISABLED"
            " BILLING_NOT_ACTIVE USER_PROJECT_DENIED CONSUMER_SUSPENDED CONSUMER_INVALID"
            " GCP_SUSPENDED ACCOUNT_STATE_INVALID USER_BLOCKED_BY_ADMIN RESOURCE_PROJECT_INVALID"
            " SECURITY_POLICY_VIOLATED LOCATION_POLICY_VIOLATED LOCATION_ORG_POLICY_VIOLATED"
            " LOCATION_TAX_POLICY_VIOLATED RESOURCE_USAGE_RESTRICTION_VIOLATED"
            " ORG_RESTRICTION_VIOLATION ORG_RESTRICTION_HEADER_INVALID TLS_ORG_POLICY_VIOLATED"
            " TLS_CIPHER_RESTRICTION_VIOLATED ACCESS_TOKEN_SCOPE_INSUFFICIENT"
            " ACCESS_TOKEN_TYPE_UNSUPPORTED CREDENTIALS_MISSING SESSION_COOKIE_INVALID"
            " OVERLOADED_CREDENTIALS IAM_PERMISSION_DENIED VALIDATION_REQUIRED"
        ),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the key is refused",
        why="400 INVALID_ARGUMENT without a reason; only the text tells",
        codes=words("INVALID_ARGUMENT UNAUTHENTICATED"),
        says=("api key not valid", "api key expired", "api key not found", "valid api key"),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the access token is dead",
        why="RFC 6750: invalid_token, and no reason says that a refresh cannot mend it",
        statuses=statuses(401),
        when=_is_dead_token,
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
)

QUOTAS = (
    MESSAGE_TOO_LARGE,
    Rule(
        name="credit is spent",
        why="plans that buy credit; the reason says it",
        codes=words("INSUFFICIENT_G1_CREDITS_BALANCE"),
        class_=PERMANENT,
        code="credits_exhausted",
    ),
    Rule(
        name="credit is spent",
        why="RESOURCE_EXHAUSTED stands for all that is used up; only the text tells",
        says=("credits are depleted", "credit balance", "prepaid credit", "prepayment credit"),
        statuses=TWO | statuses(402, 403, 429),
        class_=PERMANENT,
        code="credits_exhausted",
    ),
    Rule(
        name="a spend limit is reached",
        why="RESOURCE_EXHAUSTED stands for all that is used up; only the text tells",
        says=("spending cap", "spend cap", "spending limit", "spend limit"),
        statuses=TWO | statuses(402, 403, 429),
        class_=PERMANENT,
        code="spend_limit_reached",
    ),
    Rule(
        name="the plan has no quota for it",
        why="limit 0: waiting never helps, whatever delay is offered",
        statuses=TWO | statuses(403, 429),
        when=_has_no_quota,
        class_=PERMANENT,
        code="quota_exhausted",
    ),
    Rule(
        name="the window of a plan is spent",
        why="a quota of a day or longer, whatever delay is offered",
        statuses=TWO | statuses(403, 429),
        when=_window_is_long,
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="throttled",
        why="the older APIs say it with 403 and a permission that is denied",
        codes=words("rateLimitExceeded userRateLimitExceeded sharingRateLimitExceeded"),
        statuses=statuses(403, 429),
        when=lambda evidence: not evidence.words.keys() & _CAPACITY,
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the quota is spent",
        why="a number of things, not a rate of requests",
        codes=words("RESOURCE_QUOTA_EXCEEDED"),
        class_=PERMANENT,
        code="quota_exhausted",
    ),
    Rule(
        name="no capacity for the model",
        why="as a 429 the server paces its callers",
        codes=_CAPACITY,
        statuses=FOUR,
        class_=RATE_LIMIT,
        code="overloaded",
    ),
    Rule(
        name="no capacity for the model",
        why="the server is up and cannot serve",
        codes=_CAPACITY,
        class_=TRANSIENT,
        code="overloaded",
        verdict=Verdict.FAILURE,
    ),
)

#: The names of gRPC's statuses where the answer's own status does not say as much.
STATUSES = (
    Rule(
        name="a passing conflict",
        why="ABORTED: two requests met, and the same one may pass now",
        codes=words("ABORTED"),
        statuses=TWO | FIVE | statuses(409),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="the request was cancelled",
        why="CANCELLED: by the caller, so nobody failed",
        codes=words("CANCELLED"),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="exhausted for the moment",
        why="RESOURCE_EXHAUSTED without a long window is a rate",
        codes=words("RESOURCE_EXHAUSTED"),
        statuses=TWO | FIVE | statuses(403),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the request is at fault",
        why="the name of a status inside an answer that wore another",
        codes=words("OUT_OF_RANGE FAILED_PRECONDITION"),
        statuses=TWO | FIVE | statuses(416),
        class_=VALIDATION,
    ),
    Rule(
        name="no repetition mends it",
        why="the name of a status inside an answer that wore another",
        codes=words("ALREADY_EXISTS UNIMPLEMENTED DATA_LOSS"),
        statuses=TWO | statuses(409, 501),
        class_=PERMANENT,
    ),
)

GOOGLE_RULES = (*CREDENTIALS, *QUOTAS, *STATUSES)


class Google(Dialect):
    """An API on Google's infrastructure."""

    rules: ClassVar[tuple[Rule, ...]] = (*GOOGLE_RULES, *OAUTH, *COMMON)
    code_places: ClassVar[tuple[str, ...]] = (
        "errorInfo.reason",
        "legacyReason",
        "status",
        "code",
        "type",
    )
    hints_in_prose: ClassVar[bool] = True
    request_id_headers: ClassVar[tuple[str, ...]] = (
        *Dialect.request_id_headers,
        "x-cloudaicompanion-trace-id",
    )

    def locate(self, body: Any, seen: Seen) -> Found | None:
        """The error in a decoded body; of a list, the one in it."""
        if isinstance(body, list):
            body = next((item for item in body if isinstance(item, dict) and "error" in item), body)
        return super().locate(body, seen)

    def read(self, found: Found, seen: Seen, *, stream: bool = False) -> Evidence:
        """The evidence in a located error, with what its details say."""
        spread = msgspec.structs.replace(found, error=with_details(found.error))
        return super().read(spread, seen, stream=stream)

    def wait_in_body(self, evidence: Evidence) -> tuple[float, str] | None:
        """`RetryInfo`, then the reset that Code Assist names, then prose."""
        for place in ("retryDelay", "errorInfo.metadata.quotaResetDelay"):
            text = as_number_text(at(evidence.error, place))
            wait = None if text is None else retry_after.seconds_of(text, evidence.seen.now)
            if text is not None and wait is not None:
                return wait, text
        return super().wait_in_body(evidence)

    def resets_in(self, evidence: Evidence) -> float | None:
        """The reset of a quota that is named as spent; the delay offered for a day is none."""
        places = ["errorInfo.metadata.quotaResetDelay", "errorInfo.metadata.quotaResetTimeStamp"]
        if "quota_exhausted" in evidence.words:
            places.append("retryDelay")
        for place in places:
            text = as_number_text(at(evidence.error, place))
            wait = None if text is None else retry_after.seconds_of(text, evidence.seen.now)
            if wait is not None:
                return wait
        return super().resets_in(evidence)
