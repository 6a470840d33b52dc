"""Gemini, Vertex AI and Code Assist: Google's errors on routes that ask models.

The model stands in the path. A prompt that was refused is a 200 without candidates. A stream comes
as server-sent events with `alt=sse`, else as one JSON array; both may end in an error. The
Interactions API has codes in lower case and says `failed` inside a 200, and the paths that imitate
OpenAI answer errors as a list of one.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec

from sidecar.envelope.dialects.anthropic import ANTHROPIC_RULES, Anthropic
from sidecar.envelope.dialects.google import GOOGLE_RULES, Google
from sidecar.envelope.dialects.oauth import OAUTH
from sidecar.envelope.dialects.openai import SIZE_STATUSES, OpenAI
from sidecar.envelope.dialects.rule import BUDGET_WORDS, FIVE, TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    COMMON,
    PERMANENT,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.locate import Found
from sidecar.envelope.model import Envelope, ErrorClass, Seen, Verdict
from sidecar.envelope.model_events import block_reason, failed_interaction
from sidecar.envelope.model_name import model_in_path

_MODEL = re.compile(r"/(models|tunedModels|endpoints)/([^/:?]+?)(?::|%3[aA]|$)")
_METHODS = frozenset(
    {
        "generateContent",
        "streamGenerateContent",
        "generateAnswer",
        "generateText",
        "generateMessage",
        "embedContent",
        "batchEmbedContents",
        "embedText",
        "countTokens",
        "computeTokens",
        "predict",
        "serverStreamingPredict",
        "rawPredict",
        "streamRawPredict",
    }
)
_NAMES_A_MODEL = re.compile(r"\bmodels?\b")


def route_of(path: str) -> tuple[str, str]:
    """The path without the query and without its method, and the method: `…/m:embedContent`."""
    route = path.partition("?")[0].rstrip("/")
    before, mark, method = route.replace("%3A", ":").replace("%3a", ":").rpartition(":")
    return (before, method) if mark and "/" not in method else (route, "")


def _names_no_model(evidence: Evidence) -> bool:
    """A model is named, or nothing is on a route that names nothing but a model."""
    if _NAMES_A_MODEL.search(evidence.text[:4096]):
        return True
    asks = route_of(evidence.seen.path)[1] in _METHODS
    return asks and evidence.text.startswith("requested entity was not found")


GEMINI_RULES = (
    Rule(
        name="the prompt was blocked",
        why="a 200 without a candidate: the same prompt will be refused again",
        when=lambda evidence: bool(evidence.error.get("blockReason")),
        class_=VALIDATION,
        code="content_filtered",
    ),
    Rule(
        name="the quota is spent",
        why="the Interactions API keeps it apart from rate_limit_exceeded",
        codes=words("quota_exceeded"),
        class_=PERMANENT,
        code="quota_exhausted",
    ),
    Rule(
        name="the context is too long",
        why="INVALID_ARGUMENT for all that is wrong with a request; only the text tells",
        says=(
            "exceeds the maximum number of tokens",
            "exceeds the maximum number of input tokens",
            "input token count",
            "input tokens exceeds",
            "exceeds the input token limit",
            "maximum context length",
            "context window",
            "prompt is too long",
        ),
        statuses=SIZE_STATUSES,
        class_=VALIDATION,
        code="context_length_exceeded",
    ),
    Rule(
        name="no such model",
        why="NOT_FOUND for all that is not there; the text names a model",
        codes=words("NOT_FOUND"),
        when=_names_no_model,
        class_=PERMANENT,
        code="model_not_found",
    ),
    Rule(
        name="a file is not ready",
        why="FAILED_PRECONDITION while an upload is processed; only the text tells",
        codes=words("FAILED_PRECONDITION"),
        says=("not in an active state",),
        statuses=statuses(400),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="not for this country or this account",
        why="FAILED_PRECONDITION: where the caller is, or billing that is not set up",
        codes=words("FAILED_PRECONDITION"),
        statuses=TWO | statuses(400),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="overloaded",
        why="UNAVAILABLE for every outage; only the text tells",
        says=("overloaded", "high demand"),
        statuses=FIVE,
        class_=TRANSIENT,
        code="overloaded",
        verdict=Verdict.FAILURE,
    ),
    Rule(
        name="the credential is refused",
        why="a code of the Interactions API in an event",
        codes=words("authentication"),
        statuses=TWO,
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the request is at fault",
        why="codes of the Interactions API in an event",
        codes=words("parameter_unknown parameter_missing parameter_invalid"),
        statuses=TWO | statuses(416),
        class_=VALIDATION,
    ),
)

_OPENAI = OpenAI()
_ANTHROPIC = Anthropic()

# The statuses of gRPC by which the clients choose their exception and their retry.
_STATUS_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "RESOURCE_EXHAUSTED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_STATUS_OF_CLASS = {
    ErrorClass.VALIDATION: 400,
    ErrorClass.AUTHENTICATION: 401,
    ErrorClass.RATE_LIMIT: 429,
    ErrorClass.TRANSIENT: 503,
    ErrorClass.PERMANENT: 400,
}


class Gemini(Google):
    """Gemini's API: generateContent, Interactions and the paths that imitate OpenAI."""

    name = "gemini"
    rules: ClassVar[tuple[Rule, ...]] = (*GEMINI_RULES, *GOOGLE_RULES, *OAUTH, *COMMON)
    code_places: ClassVar[tuple[str, ...]] = ("blockReason", *Google.code_places)
    sells_requests: ClassVar[bool] = True
    unknown_in_success: ClassVar[ErrorClass] = ErrorClass.TRANSIENT

    def model_of(self, path: str) -> str | None:
        """The model, tuned model or endpoint before the method of the path."""
        found = _MODEL.search(path.partition("?")[0])
        if found is None or found[2] == "openapi":
            return None
        return model_in_path(found[2] if found[1] == "models" else f"{found[1]}/{found[2]}")

    def is_model_route(self, method: str, path: str) -> bool:
        """A method of a model, an interaction, or a route of OpenAI's or Anthropic's."""
        if method != "POST":
            return False
        before, asked = route_of(path)
        return asked in _METHODS or before.endswith("/interactions") or (
            super().is_model_route(method, path)
        )  # fmt: skip

    def streams_json(self, method: str, path: str) -> bool:
        """A stream that nobody asked to have as events."""
        return method == "POST" and route_of(path)[1] == "streamGenerateContent"

    def may_hold_error(self, body: bytes, seen: Seen) -> bool:
        """As everywhere; a refused prompt and a failed interaction have no `error`."""
        return (
            b'"blockReason"' in body
            or (_is_interaction(seen.path) and b'"failed"' in body)
            or super().may_hold_error(body, seen)
        )

    def locate(self, body: Any, seen: Seen) -> Found | None:
        """The error, else the reason for which a prompt was blocked or an interaction failed."""
        found = super().locate(body, seen)
        if found is not None or not self.is_model_route(seen.method, seen.path):
            return found
        first = body[0] if isinstance(body, list) and body else body
        error = block_reason(first)
        if error is None and _is_interaction(seen.path):
            error = failed_interaction(first)
        return None if error is None else Found(error, first)

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """`{"error": {code, message, status, details}}`, or as the imitated client reads it."""
        skin = _skin(path)
        if skin is not None:
            return skin.error_body(envelope, status, path)
        error = _told(envelope) if "/interactions" in path else _error(envelope, status)
        return msgspec.json.encode({"error": error, "envelope": envelope})

    def stream_error(self, envelope: Envelope, path: str) -> bytes:
        """A `data:` line with the error; an event of its own in the Interactions API."""
        skin = _skin(path)
        if skin is not None:
            return skin.stream_error(envelope, path)
        if "/interactions" in path:
            event = {"event_type": "error", "error": _told(envelope), "envelope": envelope}
            return b"event: error\ndata: " + msgspec.json.encode(event) + b"\n\n"
        error = _error(envelope, _status_of(envelope))
        return b"data: " + msgspec.json.encode({"error": error, "envelope": envelope}) + b"\n\n"


class Vertex(Gemini):
    """Vertex AI, whose publishers bring their own shapes, and Code Assist."""

    name = "vertex"
    rules: ClassVar[tuple[Rule, ...]] = (
        *GEMINI_RULES, *GOOGLE_RULES, *ANTHROPIC_RULES, *OAUTH, *COMMON,
    )  # fmt: skip


def _is_interaction(path: str) -> bool:
    return path.partition("?")[0].rstrip("/").endswith("/interactions")


def _skin(path: str) -> OpenAI | Anthropic | None:
    """The dialect of the clients that ask this path, where they are not Google's."""
    if "/openai/" in path or "/endpoints/openapi/" in path:
        return _OPENAI
    return _ANTHROPIC if "/publishers/anthropic/" in path else None


def _status_of(envelope: Envelope) -> int:
    if envelope.code.endswith("_timeout"):
        return 504
    return 402 if envelope.code in BUDGET_WORDS else _STATUS_OF_CLASS[envelope.class_]


def _told(envelope: Envelope) -> dict[str, Any]:
    return {"code": envelope.code, "message": envelope.message}


def _error(envelope: Envelope, status: int) -> dict[str, Any]:
    details: list[dict[str, Any]] = [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": envelope.code,
            "domain": "breaker-sidecar",
        }
    ]
    if envelope.retry_after is not None:
        details.append(
            {
                "@type": "type.googleapis.com/google.rpc.RetryInfo",
                "retryDelay": f"{envelope.retry_after:.3f}s",
            }
        )
    return {
        "code": status,
        "message": envelope.message,
        "status": _STATUS_NAMES.get(status, "UNKNOWN"),
        "details": details,
    }
