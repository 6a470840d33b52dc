"""Microsoft Graph: `{"error": {code, message, innerError: {code, request-id, …}}}`.

Errors nest, and the deepest code is the most detailed: a throttled call may say `accessDenied` on
the outside. One code stands for every token that is refused, and whether it merely expired stands
in the text; a challenge for more claims is met by a new token. 509 is a throttle, and 507 a drive
or a mailbox that is full. The behaviour of `$batch` is each part's own.

Sources: learn.microsoft.com/graph/errors, /throttling, /workbook-error-codes and /resolve-auth-
errors, and the codes that Exchange and the directory pass through.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec

from sidecar.envelope.dialects.generic import EXPIRED_TOKEN
from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.dialects.tool import TOOL_RULES, Tool
from sidecar.envelope.dialects.words import AUTHENTICATION, PERMANENT, RATE_LIMIT, TRANSIENT
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import as_word, normal
from sidecar.envelope.locate import Found
from sidecar.envelope.model import Envelope, Seen, Verdict

_DEEPEST = 8

GRAPH_RULES = (
    Rule(
        name="throttled",
        why="the service, the directory or a mailbox says so, whatever the outer code claims",
        codes=words(
            "throttledRequest activityLimitReached ApplicationThrottled RequestThrottled"
            " Request_ThrottledTemporarily MailboxConcurrency ErrorExceededConnectionCount"
            " ErrorExceededSubscriptionCount ErrorTooManyObjectsOpened"
        ),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="throttled",
        why="509: the bandwidth of the app, which comes back",
        statuses=statuses(509),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the storage is full",
        why="a drive, a mailbox or a directory that holds as much as it may",
        codes=words(
            "quotaLimitReached insufficientStorage ErrorQuotaExceeded Directory_QuotaExceeded"
        ),
        class_=PERMANENT,
    ),
    Rule(
        name="more claims are asked for",
        why="continuous access evaluation and conditional access: a new token with them is let in",
        statuses=statuses(401, 403),
        when=lambda evidence: evidence.challenge.get("error") == "insufficient_claims",
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="the token has expired",
        why="the directory has a code for it",
        codes=words("Authentication_ExpiredToken ExpiredAuthenticationToken TokenExpired"),
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="the token has expired",
        why="one code for every token that is refused; only the text tells",
        codes=words("InvalidAuthenticationToken unauthenticated"),
        says=("lifetime validation failed", "is expired", "has expired"),
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="the token is refused",
        why="the code names it, whatever the status says",
        codes=words(
            "InvalidAuthenticationToken unauthenticated Authentication_MissingOrMalformed"
            " Authentication_Unauthorized AuthenticationError Authorization_IdentityNotFound"
            " Authorization_RequestDenied ErrorAccessDenied ErrorSendAsDenied"
        ),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="it passes",
        why="the code says that it is for the moment, and the service is well",
        codes=words(
            "cannotSnapshotTree resourceBeingProvisioned serviceReadOnly"
            " Directory_ConcurrencyViolation ErrorMailboxMoveInProgress"
        ),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="the server failed",
        why="the code says that it is for the moment, whatever the status says",
        codes=words(
            "serviceNotAvailable ErrorServerBusy ErrorMailboxStoreUnavailable"
            " ErrorInternalServerTransientError ErrorMessageTransientError"
            " Directory_ReplicaUnavailable"
        ),
        statuses=statuses(400, 403, 404, 409, range(500, 600)),
        class_=TRANSIENT,
        verdict=Verdict.FAILURE,
    ),
)


class MSGraph(Tool):
    """Microsoft Graph, and the webhooks of Teams."""

    name = "msgraph"
    rules: ClassVar[tuple[Rule, ...]] = (*GRAPH_RULES, *TOOL_RULES, EXPIRED_TOKEN)
    code_places: ClassVar[tuple[str, ...]] = ("innermostCode", "code")
    request_id_headers: ClassVar[tuple[str, ...]] = (
        "request-id",
        "client-request-id",
        *Tool.request_id_headers,
    )
    reading_routes: ClassVar[tuple[str, ...]] = (
        "/search/query",
        "/getByIds",
        "/getMemberGroups",
        "/getMemberObjects",
        "/checkMemberGroups",
        "/checkMemberObjects",
        "/getSchedule",
        "/findMeetingTimes",
        "/translateExchangeIds",
        "/validateProperties",
    )
    secret_paths: ClassVar[tuple[re.Pattern[str], ...]] = (
        re.compile(
            r"(?i)/webhook(?:b2)?/([^/]+)(?:/IncomingWebhook/([^/]+)(?:/([^/]+))?(?:/([^/]+))?)?"
        ),
        re.compile(r"(?i)/workflows/([0-9a-f]{32})/triggers/"),
    )

    def locate(self, body: Any, seen: Seen) -> Found | None:
        """The error, with what its inner errors say as members of its own."""
        found = super().locate(body, seen)
        return None if found is None else msgspec.structs.replace(found, error=_spread(found.error))

    def read(self, found: Found, seen: Seen, *, stream: bool = False) -> Evidence:
        """The evidence, with the codes of all levels for rules to look at."""
        evidence = super().read(found, seen, stream=stream)
        more = {normal(code): code for code in found.error.get("innerCodes") or ()}
        return msgspec.structs.replace(evidence, words={**evidence.words, **more})

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """`{"error": {code, message, innerError}}`, the envelope beside it."""
        del status, path
        error = {
            "code": envelope.code,
            "message": envelope.message,
            "innerError": {
                "request-id": envelope.correlation_id,
                "client-request-id": envelope.correlation_id,
            },
        }
        return msgspec.json.encode({"error": error, "envelope": envelope})


def _spread(error: dict[str, Any]) -> dict[str, Any]:
    """The error with the codes of the errors inside it, its request's id and what it is about."""
    codes: list[str] = []
    told: dict[str, Any] = {}
    inner: Any = error
    for _ in range(_DEEPEST):
        inner = inner.get("innerError") or inner.get("innererror") or inner.get("inner_error")
        if not isinstance(inner, dict):
            break
        code = as_word(inner.get("code"))
        if code is not None:
            codes.append(code)
        told.setdefault("request-id", inner.get("request-id"))
    details = error.get("details")
    first = details[0] if isinstance(details, list) and details else None
    for source in (error, first):
        if isinstance(source, dict) and isinstance(source.get("target"), str):
            told["param"] = source["target"]
    if codes:
        told.update(innerCodes=codes, innermostCode=codes[-1])
    return {**error, **told}
