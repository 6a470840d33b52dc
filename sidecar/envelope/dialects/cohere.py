"""Cohere: `{"id", "message"}`, so that beside the status only a sentence tells.

A trial key's month and its minute differ by one word. A stream that failed ends like one that did
not, but for its finish reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.openai import OpenAI, says_no_model
from sidecar.envelope.dialects.rule import FOUR, TWO, Rule, statuses, words
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

_LONG_WINDOW = re.compile(r"(?:/|\bper) ?(?:day|week|month)\b")
_MODEL_IS_GONE = re.compile(r"\bmodel\b.{0,120}?\b(?:was|has been) removed\b")
_ROUTES = (
    "/chat", "/generate", "/embed", "/rerank", "/classify", "/summarize", "/tokenize",
    "/detokenize",
)  # fmt: skip


def _is_of_a_long_window(evidence: Evidence) -> bool:
    return _LONG_WINDOW.search(evidence.text[:4096]) is not None


def _names_no_model(evidence: Evidence) -> bool:
    return says_no_model(evidence) or _MODEL_IS_GONE.search(evidence.text[:4096]) is not None


def _counts_the_prompt(evidence: Evidence) -> bool:
    """Too many tokens went in; a limit for those that shall come out is a plain parameter."""
    return not re.search(r"max tokens must|maximum output", evidence.text[:4096])


COHERE_RULES = (
    Rule(
        name="the window of a trial is spent",
        why="the sentence of the minute's limit, but for the unit",
        statuses=statuses(429),
        when=_is_of_a_long_window,
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="a spend limit is reached",
        why="402 for money as such; only the text tells that it is a cap that somebody set",
        says=("maximum billing amount",),
        statuses=statuses(402),
        class_=PERMANENT,
        code="spend_limit_reached",
    ),
    Rule(
        name="the context is too long",
        why="no code tells it",
        says=("too many tokens", "maximum context length", "context window"),
        statuses=TWO | statuses(400, 413, 422),
        when=_counts_the_prompt,
        class_=VALIDATION,
        code="context_length_exceeded",
    ),
    Rule(
        name="the content was blocked",
        why="498: a token of the request or the answer is on a list of denied ones",
        says=("blocked", "deny-listed", "denied"),
        statuses=statuses(498),
        class_=VALIDATION,
        code="content_filtered",
    ),
    Rule(
        name="the token is refused",
        why="498 is an invalid token here",
        statuses=statuses(498),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the model is still loading",
        why="a model of one's own is started when it is asked; only the text tells",
        says=("is not ready for serving",),
        statuses=FOUR,
        class_=TRANSIENT,
        code="model_loading",
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="no such model",
        why="404 for all that is not there; the text names a model",
        statuses=statuses(400, 404, 422),
        when=_names_no_model,
        class_=PERMANENT,
        code="model_not_found",
    ),
    Rule(
        name="the content was blocked",
        why="the finish reason of an answer that was held back",
        codes=words("ERROR_TOXIC"),
        class_=VALIDATION,
        code="content_filtered",
    ),
)

_OPENAI = OpenAI()


class Cohere(Dialect):
    """Cohere's API, and its paths that imitate OpenAI."""

    name = "cohere"
    rules: ClassVar[tuple[Rule, ...]] = (*COHERE_RULES, *COMMON)
    failing_reasons: ClassVar[Mapping[str, str]] = {
        "error": "stream_error",
        "ERROR": "stream_error",
        "ERROR_TOXIC": "ERROR_TOXIC",
        "TIMEOUT": "TIMEOUT",
    }
    sells_requests: ClassVar[bool] = True
    unknown_in_success: ClassVar[ErrorClass] = ErrorClass.TRANSIENT

    def is_model_route(self, method: str, path: str) -> bool:
        """The routes that ask a model; others store data sets and train."""
        route = path.partition("?")[0].rstrip("/")
        asks = route.endswith(_ROUTES) and ("/v1/" in route or "/v2/" in route)
        return method == "POST" and (asks or super().is_model_route(method, path))

    def may_hold_error(self, body: bytes, seen: Seen) -> bool:
        """As everywhere; an answer may also have ended with a failing reason."""
        return b'"ERROR' in body or b'"TIMEOUT"' in body or super().may_hold_error(body, seen)

    def locate(self, body: Any, seen: Seen) -> Found | None:
        """The error, else the finish reason of an answer that failed."""
        found = super().locate(body, seen)
        if found is not None or not isinstance(body, dict):
            return found
        reason = body.get("finish_reason")
        code = self.failing_reasons.get(reason) if isinstance(reason, str) else None
        if code is None or not self.is_model_route(seen.method, seen.path):
            return None
        return Found({"code": code, "message": f"the answer ended with {reason}"}, body)

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """`{"message"}`: the client chooses its exception by the status and hands the body on."""
        if "/compatibility/" in path:
            return _OPENAI.error_body(envelope, status, path)
        return msgspec.json.encode(
            {
                "id": envelope.correlation_id or None,
                "message": envelope.message,
                "code": envelope.code,
                "envelope": envelope,
            }
        )

    def stream_error(self, envelope: Envelope, path: str) -> bytes:
        """The end of a message with the reason ERROR, the only failure that the client tells of."""
        if "/compatibility/" in path:
            return _OPENAI.stream_error(envelope, path)
        if path.partition("?")[0].rstrip("/").endswith("/v1/chat"):
            ended = {
                "is_finished": True,
                "event_type": "stream-end",
                "finish_reason": "ERROR",
                "error": envelope.message,
                "envelope": envelope,
            }
            return msgspec.json.encode(ended) + b"\n"
        delta = {"finish_reason": "ERROR", "error": envelope.message}
        event = {"type": "message-end", "delta": delta, "envelope": envelope}
        return b"event: message-end\ndata: " + msgspec.json.encode(event) + b"\n\n"
