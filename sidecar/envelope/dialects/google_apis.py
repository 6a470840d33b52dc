"""Google's APIs that serve no models: Workspace, YouTube, BigQuery, Storage, Maps and the like.

Older ones say why in `errors[0].reason`, in camel case; newer ones in an `ErrorInfo` among the
details, which is the more specific of the two. 403 is a permission, a rate, a day or a resource
that is used up: the reason tells. Maps answers 200 with a `status` of its own.

Sources: the core errors of developers.google.com, the error guides of Drive, Gmail, Calendar,
YouTube and BigQuery, google/api/error_reason.proto and the status codes of the Maps web services.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec

from sidecar.envelope import retry_after
from sidecar.envelope.dialects.google import CREDENTIALS, QUOTAS, STATUSES, Google
from sidecar.envelope.dialects.oauth import OAUTH
from sidecar.envelope.dialects.rule import TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    PERMANENT,
    RATE_LIMIT,
    TOOL_COMMON,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import normal
from sidecar.envelope.locate import Found
from sidecar.envelope.model import Envelope, ErrorClass, Seen, Verdict

_MAPS = "/maps/api/"
_MAPS_STATUS = re.compile(rb'"status"\s*:\s*"(?!OK"|ZERO_RESULTS")[A-Z_]{4,40}"')
_ANSWERED = frozenset({"OK", "ZERO_RESULTS"})
_MOMENT = re.compile(r"(?i)\bretry after (\d{4}-\d\d-\d\dT[\d:.]{5,20}Z?)")

REASONS = (
    Rule(
        name="the window of a plan is spent",
        why="a reason that names a day",
        codes=words(
            "dailyLimitExceededUnreg dailyLimitExceeded402 variableTermExpiredDailyExceeded"
        ),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="the quota is spent",
        why="a reason that names a number of things or a period that is not said",
        codes=words(
            "quotaExceeded402 variableTermLimitExceeded downloadQuotaExceeded uploadLimitExceeded"
        ),
        class_=PERMANENT,
        code="quota_exhausted",
    ),
    Rule(
        name="this request costs too much",
        why="more bytes than the cap on a query allows",
        codes=words("bytesBilledLimitExceeded"),
        class_=PERMANENT,
        code="request_over_budget",
    ),
    Rule(
        name="throttled",
        why="a rate or a number of calls at a time, under 400, 403 or 429",
        codes=words(
            "rateLimitExceeded userRateLimitExceeded sharingRateLimitExceeded"
            " concurrentLimitExceeded servingLimitExceeded rateLimitExceededUnreg"
            " userRateLimitExceededUnreg jobRateLimitExceeded"
        ),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="no more fits",
        why="a storage or folder that is full, a file that nobody may fetch: no permission helps",
        codes=words(
            "storageQuotaExceeded teamDriveFileLimitExceeded numChildrenInNonRootLimitExceeded"
            " myDriveHierarchyDepthLimitExceeded teamDriveHierarchyTooDeep"
            " activeItemCreationLimitExceeded exportSizeLimitExceeded fileNotDownloadable"
            " cannotDownloadAbusiveFile"
        ),
        class_=PERMANENT,
    ),
    Rule(
        name="the request is at fault",
        why="403, but it asks for more than an answer may hold",
        codes=words("responseTooLarge"),
        class_=VALIDATION,
    ),
    Rule(
        name="the access token is dead",
        why="the guides name expiry first and advise a refresh",
        codes=words("authError expired"),
        statuses=statuses(401),
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="the key is refused",
        why="400, but it is the key",
        codes=words("keyInvalid keyExpired"),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="it passes",
        why="the reason says that it is for the moment, under a client's status",
        codes=words(
            "jobBackendError jobInternalError tableUnavailable resourceNotReady operationInProgress"
        ),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
)

MAPS = (
    Rule(
        name="the window of a plan is spent",
        why="one status for a second and for a day; only the text tells",
        codes=words("OVER_QUERY_LIMIT"),
        says=("daily request quota", "daily limit", "per day"),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="throttled",
        why="more queries in a second than allowed",
        codes=words("OVER_QUERY_LIMIT"),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the quota is spent",
        why="billing that is off, a cap that was set, a card that was refused: the source says any",
        codes=words("OVER_DAILY_LIMIT"),
        class_=PERMANENT,
        code="quota_exhausted",
    ),
    Rule(
        name="the key is refused",
        why="a status of Maps inside a 200",
        codes=words("REQUEST_DENIED"),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the request is at fault",
        why="a status of Maps inside a 200",
        codes=words(
            "INVALID_REQUEST MAX_ELEMENTS_EXCEEDED MAX_DIMENSIONS_EXCEEDED MAX_WAYPOINTS_EXCEEDED"
            " MAX_ROUTE_LENGTH_EXCEEDED"
        ),
        statuses=TWO,
        class_=VALIDATION,
    ),
    Rule(
        name="the server failed",
        why="a status of Maps inside a 200: it may succeed if asked again",
        codes=words("UNKNOWN_ERROR"),
        statuses=TWO,
        class_=TRANSIENT,
    ),
)

_STATUS_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "RESOURCE_EXHAUSTED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class GoogleApis(Google):
    """An API of Google's that serves no models."""

    name = "google-apis"
    rules: ClassVar[tuple[Rule, ...]] = (
        *MAPS,
        *CREDENTIALS,
        *QUOTAS,
        *REASONS,
        *OAUTH,
        *TOOL_COMMON,
        *STATUSES,
    )
    code_places: ClassVar[tuple[str, ...]] = (
        "errorInfo.reason",
        "legacyReason",
        "status",
        "code",
        "error_code",
        "errorCode",
    )
    word_places: ClassVar[tuple[str, ...]] = ()
    reads_errors_in_2xx: ClassVar[bool] = True
    quota_may_be_a_rate: ClassVar[bool] = True

    def is_model_route(self, method: str, path: str) -> bool:
        """No route of these is one of a model."""
        del method, path
        return False

    def repeatable(self, method: str, path: str) -> bool:
        """Whether a POST of this route reads."""
        route = path.partition("?")[0].rstrip("/")
        return method == "POST" and route.endswith(("/freeBusy", ":batchGetByDataFilter"))

    def may_hold_error(self, body: bytes, seen: Seen) -> bool:
        """Only those of Maps; everywhere else statuses are honest."""
        return _MAPS in seen.path and _MAPS_STATUS.search(body) is not None

    def locate(self, body: Any, seen: Seen) -> Found | None:
        """The error with its details spread out; in a 200 the status of Maps."""
        if seen.status >= 400:
            found = super().locate(body, seen)
            return found and msgspec.structs.replace(found, error=_with_parameter(found.error))
        status = body.get("status") if isinstance(body, dict) else None
        if not isinstance(status, str) or status in _ANSWERED or _MAPS not in seen.path:
            return None
        told = body.get("error_message")
        return Found({"code": status, "message": told if isinstance(told, str) else status}, body)

    def read(self, found: Found, seen: Seen, *, stream: bool = False) -> Evidence:
        """The evidence; in a 200 the status of Maps is the code, also `UNKNOWN_ERROR`."""
        evidence = super().read(found, seen, stream=stream)
        code = found.error.get("code")
        if seen.status >= 400 or not isinstance(code, str):
            return evidence
        return msgspec.structs.replace(evidence, code=code, words={normal(code): code})

    def wait_in_body(self, evidence: Evidence) -> tuple[float, str] | None:
        """As at all of Google's; Gmail names a moment in its message and nowhere else."""
        found = super().wait_in_body(evidence)
        moment = None if found else _MOMENT.search(evidence.message[:1024])
        if moment is None:
            return found
        wait = retry_after.seconds_of(moment[1], evidence.seen.now)
        return None if wait is None else (wait, moment[1])

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """`{"error": {…}}` with a reason in both forms.

        The older clients repeat on a few reasons: a rate limit has theirs, anything else its code.
        """
        del path
        limited = envelope.class_ is ErrorClass.RATE_LIMIT
        error = {
            "code": status,
            "message": envelope.message,
            "status": _STATUS_NAMES.get(status, "UNKNOWN"),
            "errors": [
                {
                    "domain": "breaker-sidecar",
                    "reason": "rateLimitExceeded" if limited else envelope.code,
                    "message": envelope.message,
                }
            ],
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": envelope.code,
                    "domain": "breaker-sidecar",
                    "metadata": {"correlation_id": envelope.correlation_id},
                }
            ],
        }
        return msgspec.json.encode({"error": error, "envelope": envelope})


def _with_parameter(error: dict[str, Any]) -> dict[str, Any]:
    """The error with the parameter that its first item blames."""
    items = error.get("errors")
    first = items[0] if isinstance(items, list) and items else None
    if isinstance(first, dict) and first.get("locationType") == "parameter":
        return {**error, "param": first.get("location")}
    return error
