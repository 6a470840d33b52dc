"""Anthropic: `{"type": "error", "error": {"type", "message", "details"}, "request_id"}`.

`details.error_code` decides where there is one, then `type`, then the status. Some conditions of
billing and size share the type `invalid_request_error` and are told apart by their sentence alone;
a spent plan window looks like a throttle but for the `anthropic-ratelimit-unified-*` headers.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from sidecar.envelope import retry_after
from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.oauth import OAUTH
from sidecar.envelope.dialects.openai import CONFLICT
from sidecar.envelope.dialects.rule import FIVE, TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    COMMON,
    PERMANENT,
    RATE_LIMIT,
    VALIDATION,
)
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.model import Envelope, ErrorClass

_UNIFIED = "anthropic-ratelimit-unified-"


def _window_is_shut(evidence: Evidence) -> bool:
    """The plan's window is spent and no share of calls still passes."""
    if evidence.headers.get(f"{_UNIFIED}status") != "rejected":
        return False
    try:
        return float(evidence.headers.get(f"{_UNIFIED}fallback-percentage") or 0) <= 0
    except ValueError:
        return True


ANTHROPIC_RULES = (
    Rule(
        name="the plan's window is spent",
        why="unified status rejected: five hours or a week, whatever x-should-retry says",
        statuses=statuses(429),
        when=_window_is_shut,
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="growing too fast",
        why="ramp_limit_exceeded clears by itself",
        codes=words("ramp_limit_exceeded"),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="credit is spent",
        why="400 of the type invalid_request_error; only the text tells",
        says=("credit balance is too low",),
        class_=PERMANENT,
        code="credits_exhausted",
    ),
    Rule(
        name="a spend limit is reached",
        why="the cap that the organisation or the workspace set; only the text tells",
        says=(
            "reached your specified api usage limit",
            "reached your specified workspace api usage limit",
            "reached your specified",
        ),
        class_=PERMANENT,
        code="spend_limit_reached",
    ),
    Rule(
        name="the plan does not include it",
        why="429 for a long context without extra usage: waiting never helps; only the text tells",
        says=("required for long context",),
        statuses=statuses(429),
        class_=PERMANENT,
    ),
    Rule(
        name="the context is too long",
        why="of the type invalid_request_error; only the text tells",
        says=(
            "prompt is too long",
            "exceed context limit",
            "exceeds context limit",
            "maximum context length",
            "exceed the context window",
            "exceeds the context window",
            "input is too long",
        ),
        statuses=TWO | FIVE | statuses(400, 413),
        class_=VALIDATION,
        code="context_length_exceeded",
    ),
    Rule(
        name="the content was blocked",
        why="of the type invalid_request_error; only the text tells",
        says=("blocked by content filtering policy",),
        class_=VALIDATION,
        code="content_filtered",
    ),
    Rule(
        name="no such model",
        why="not_found_error that names a model",
        codes=words("not_found_error"),
        when=lambda evidence: evidence.text.lstrip().startswith("model"),
        class_=PERMANENT,
        code="model_not_found",
    ),
    Rule(
        name="the OAuth token has expired",
        why="a token of a plan can be refreshed; only the text tells",
        codes=words("authentication_error permission_error"),
        says=("token has expired", "token is expired", "token expired"),
        statuses=TWO | statuses(400, 401, 403),
        when=lambda evidence: "revoked" not in evidence.text,
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="the organisation is disabled",
        why="an account state under 400; only the text tells where no error_code does",
        says=("organization has been disabled",),
        class_=AUTHENTICATION,
    ),
)

_TYPE_OF_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_TYPE_OF_CLASS = {
    ErrorClass.VALIDATION: "invalid_request_error",
    ErrorClass.AUTHENTICATION: "authentication_error",
    ErrorClass.RATE_LIMIT: "rate_limit_error",
    ErrorClass.TRANSIENT: "api_error",
    ErrorClass.PERMANENT: "invalid_request_error",
}


class Anthropic(Dialect):
    """Anthropic's API, and the skins that imitate it."""

    name = "anthropic"
    rules: ClassVar[tuple[Rule, ...]] = (*ANTHROPIC_RULES, *OAUTH, *COMMON, CONFLICT)
    code_places: ClassVar[tuple[str, ...]] = ("details.error_code", "type", "code")
    word_places: ClassVar[tuple[str, ...]] = ("error_type",)
    request_id_headers: ClassVar[tuple[str, ...]] = ("request-id", *Dialect.request_id_headers)
    unknown_in_success: ClassVar[ErrorClass] = ErrorClass.TRANSIENT
    sells_requests: ClassVar[bool] = True

    def resets_in(self, evidence: Evidence) -> float | None:
        """As everywhere, else from the unified reset, which is in epoch seconds."""
        known = super().resets_in(evidence)
        text = evidence.headers.get(f"{_UNIFIED}reset")
        if known is not None or text is None:
            return known
        return retry_after.seconds_of(text, evidence.seen.now)

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """`{"type": "error", "error": {…}}` with the envelope beside it."""
        del path
        return msgspec.json.encode(_error(envelope, _TYPE_OF_STATUS.get(status)))

    def stream_error(self, envelope: Envelope, path: str) -> bytes:
        """An `error` event; the client chooses its exception by the type inside."""
        del path
        return b"event: error\ndata: " + msgspec.json.encode(_error(envelope, None)) + b"\n\n"


def _error(envelope: Envelope, type_: str | None) -> dict[str, Any]:
    if type_ is None:
        type_ = _TYPE_OF_CLASS[envelope.class_]
        if envelope.code == "overloaded":
            type_ = "overloaded_error"
        elif envelope.code.endswith("_timeout"):
            type_ = "timeout_error"
    return {
        "type": "error",
        "error": {
            "type": type_,
            "message": envelope.message,
            "details": {"error_code": envelope.code},
        },
        "request_id": envelope.correlation_id or None,
        "envelope": envelope,
    }
