"""OpenAI, whose shape of errors half of the industry speaks.

The body is `{"error": {"message", "type", "param", "code"}}`. `code` decides, then `type`, which is
unreliable: a bad key is 401 with the type `invalid_request_error`. Money that is gone, a model that
is not there and a prompt that is too long come under statuses that clients repeat.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec

from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.oauth import OAUTH
from sidecar.envelope.dialects.rule import BUDGET_WORDS, FIVE, TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import (
    COMMON,
    KIND_WORDS,
    PERMANENT,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import is_prose, normal, status_like
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
        "longer than the model's context length",
        "context window",
        "context size",
        "prompt is too long",
        "input is too long",
        "reduce the length of the messages",
    ),
    statuses=SIZE_STATUSES,
    class_=VALIDATION,
    code="context_length_exceeded",
)

# A sentence that says of the model itself that it is not there; a tool or a file that a model asks
# for stands elsewhere in it.
_NO_MODEL = re.compile(
    r"\bmodels?\b(?:(?!\.\s).){0,160}?\b(?:not exist|not found|cannot be found|could not be found)"
    r"|\b(?:unknown|no such) model\b|\binvalid model(?: name| id| identifier|:| ')"
    r"|\bunable to access (?:non-serverless )?model\b|\bno models loaded\b|\bnot a valid model\b"
)
# The same with nothing but a name in between: under a server's status little else is sure.
_THIS_MODEL = re.compile(
    r"\bmodel [`'\"]?[\w./:@-]+[`'\"]? (?:does not exist|was not found|is not found|not found)"
)


def says_no_model(evidence: Evidence) -> bool:
    """Whether the sentence says that the model is not there."""
    return _NO_MODEL.search(evidence.text[:4096]) is not None


def says_no_such_model(evidence: Evidence) -> bool:
    """Whether the sentence says of one model by name that it is not there."""
    return _THIS_MODEL.search(evidence.text[:4096]) is not None


def names_a_kind_only(evidence: Evidence) -> bool:
    """Whether the code is missing, prose, the status or the mere kind: a sentence may say more."""
    code = evidence.code
    return (
        code is None
        or is_prose(code)
        or status_like(code) is not None
        or normal(code) in KIND_WORDS
    )


NO_MODEL = Rule(
    name="no such model",
    why="the code says that something is not there, the sentence that it is the model",
    codes=words("not_found_error not_found notfounderror resource_not_found"),
    when=says_no_model,
    class_=PERMANENT,
    code="model_not_found",
)

NUMBERED_MODEL = Rule(
    name="no such model",
    why="SiliconFlow: a number among others of its own, and the sentence says the same",
    codes=words("20012"),
    when=says_no_model,
    class_=PERMANENT,
    code="model_not_found",
)

OPENAI_RULES = (REQUEST_TOO_LARGE, *OAUTH, NO_MODEL, *COMMON, CONFLICT, CONTEXT_TEXT)

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
    code_places: ClassVar[tuple[str, ...]] = ("code", "error_code", "errorCode", "type")
    word_places: ClassVar[tuple[str, ...]] = ("innererror.code", "inner_error.code", "error_type")
    hints_in_prose: ClassVar[bool] = True
    sells_requests: ClassVar[bool] = True
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
