"""OpenAI, whose shape of errors half of the industry speaks.

The body is `{"error": {"message", "type", "param", "code"}}`. `code` decides, then `type`, which is
unreliable: a bad key is 401 with the type `invalid_request_error`. Money that is gone, a model that
is not there and a prompt that is too long come under statuses that clients repeat.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.oauth import OAUTH
from sidecar.envelope.dialects.rule import BUDGET_WORDS, FIVE, TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import (
    COMMON,
    PERMANENT,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.model import Envelope, ErrorClass, Verdict

REQUEST_TOO_LARGE = Rule(
    name="one request larger than the whole limit",
    why="waiting cannot help: it will never fit into the bucket; only the text tells",
    codes=words("rate_limit_exceeded rate_limit_error tokens"),
    says=("request too large",),
    class_=PERMANENT,
)

CONFLICT = Rule(
    name="a passing conflict",
    why="409 is a lock that timed out; the official clients repeat it",
    statuses=statuses(409),
    class_=TRANSIENT,
    verdict=Verdict.ALIVE,
)

# Statuses under which a sentence about size is about size.
SIZE_STATUSES = TWO | FIVE | statuses(400, 413, 422)

CONTEXT_TEXT = Rule(
    name="the context is too long",
    why="the same prompt will never fit; only the text tells",
    says=(
        "maximum context length",
        "maximum model length",
        "context length of",
        "context length exceeded",
        "exceeds the context length",
        "greater than the context length",
        "exceed the context length",
        "context window",
        "context size",
        "prompt is too long",
        "input is too long",
    ),
    statuses=SIZE_STATUSES,
    class_=VALIDATION,
    code="context_length_exceeded",
)

OPENAI_RULES = (REQUEST_TOO_LARGE, *OAUTH, *COMMON, CONFLICT, CONTEXT_TEXT)

_TYPES = {
    ErrorClass.VALIDATION: "invalid_request_error",
    ErrorClass.AUTHENTICATION: "authentication_error",
    ErrorClass.RATE_LIMIT: "rate_limit_error",
    ErrorClass.TRANSIENT: "server_error",
    ErrorClass.PERMANENT: "invalid_request_error",
}


def error_type(envelope: Envelope) -> str:
    """The `type` that OpenAI gives to errors of this kind."""
    return "insufficient_quota" if envelope.code in BUDGET_WORDS else _TYPES[envelope.class_]


def error_object(envelope: Envelope) -> dict[str, Any]:
    """The `error` member, with the envelope in it: the client shows nothing of a body beyond it."""
    return {
        "message": envelope.message,
        "type": error_type(envelope),
        "param": None,
        "code": envelope.code,
        "envelope": envelope,
    }


class OpenAI(Dialect):
    """OpenAI's chat, responses and embeddings."""

    name = "openai"
    rules: ClassVar[tuple[Rule, ...]] = OPENAI_RULES
    word_places: ClassVar[tuple[str, ...]] = ("innererror.code", "inner_error.code", "error_type")
    hints_in_prose: ClassVar[bool] = True
    unknown_in_success: ClassVar[ErrorClass] = ErrorClass.TRANSIENT

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """`{"error": {…}}`, the envelope under `envelope` and `error.envelope`."""
        del status, path
        return msgspec.json.encode({"error": error_object(envelope), "envelope": envelope})

    def stream_error(self, envelope: Envelope, path: str) -> bytes:
        """A `data:` line with `error`; for the Responses API an `error` event, flat and nested.

        The client's types want the flat fields, and its reader raises on the nested object.
        """
        error = error_object(envelope)
        if not path.partition("?")[0].rstrip("/").endswith("/responses"):
            return b"data: " + msgspec.json.encode({"error": error}) + b"\n\n"
        flat = {
            "type": "error",
            "code": envelope.code,
            "message": envelope.message,
            "param": None,
            "sequence_number": 0,
            "error": error,
        }
        return b"event: error\ndata: " + msgspec.json.encode(flat) + b"\n\n"
