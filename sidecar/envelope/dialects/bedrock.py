"""Amazon Bedrock: its runtime, its control plane and its agents.

The name of the exception stands in a header, the model in the path, a stream is binary. A failing
model is a 424 that tells the model's own status, a model that is not loaded a 429, and a day's
tokens differ from a minute's by two words. Anthropic's and OpenAI's routes answer in their shapes.
"""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from sidecar.envelope import event_stream
from sidecar.envelope.dialects.anthropic import ANTHROPIC_RULES, Anthropic
from sidecar.envelope.dialects.aws import AWS, AWS_RULES, EXCEPTIONS
from sidecar.envelope.dialects.openai import SIZE_STATUSES, OpenAI
from sidecar.envelope.dialects.rule import BUDGET_WORDS, Rule, statuses, words
from sidecar.envelope.dialects.words import (
    COMMON,
    PERMANENT,
    RATE_LIMIT,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.model import Envelope, ErrorClass, Verdict
from sidecar.envelope.model_name import model_in_path

_ACTIONS = (
    "/converse",
    "/converse-stream",
    "/invoke",
    "/invoke-with-response-stream",
    "/count-tokens",
)
# Where answers are streamed as frames, by the runtime and by the agents.
_FRAMED = ("/model/", "/agents/", "/flows/", "/knowledgebases/", "/retrieveAndGenerateStream",
           "/optimize-prompt")  # fmt: skip
_ACTION = re.compile(r"(?:converse|invoke|count-tokens)[a-z-]*")

_MODEL_FAILED = words("ModelErrorException ModelStreamErrorException")


def _status_of_model(evidence: Evidence) -> int:
    """The status that the model itself answered with; 0 where that is not told."""
    stated = evidence.error.get("originalStatusCode")
    return stated if isinstance(stated, int) and not isinstance(stated, bool) else 0


def _blames_the_request(evidence: Evidence) -> bool:
    return 400 <= _status_of_model(evidence) < 500 and _status_of_model(evidence) not in {408, 424}


BEDROCK_RULES = (
    Rule(
        name="the context is too long",
        why="a name for all that is wrong with a request; only the text tells",
        codes=words("ValidationException ModelErrorException ModelStreamErrorException"),
        says=(
            "input is too long",
            "prompt is too long",
            "too many input tokens",
            "exceed context limit",
            "exceeds context limit",
            "maximum context length",
            "context length",
            "context window",
            "input token count",
        ),
        statuses=SIZE_STATUSES | statuses(424),
        class_=VALIDATION,
        code="context_length_exceeded",
    ),
    Rule(
        name="no such model",
        why="ValidationException or 404 for all that is not there; only the text tells",
        codes=words("ValidationException ResourceNotFoundException"),
        says=(
            "model identifier is invalid",
            "could not resolve the foundation model",
            "model not found",
            "model was not found",
            "end of its life",
            "marked by provider as legacy",
        ),
        class_=PERMANENT,
        code="model_not_found",
    ),
    Rule(
        name="the model throttles",
        why="a failure of the model whose own status was 429",
        codes=_MODEL_FAILED,
        when=lambda evidence: _status_of_model(evidence) == 429,
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the model refused the request",
        why="a failure of the model whose own status was a caller's",
        codes=_MODEL_FAILED,
        when=_blames_the_request,
        class_=VALIDATION,
    ),
    Rule(
        name="the model failed",
        why="424, and the model's own status was a server's or is not told",
        codes=_MODEL_FAILED,
        class_=TRANSIENT,
        verdict=Verdict.FAILURE,
    ),
    Rule(
        name="the model took too long",
        why="408 or an event: the server's time, not the caller's",
        codes=words("ModelTimeoutException"),
        class_=TRANSIENT,
        verdict=Verdict.FAILURE,
    ),
)

_ANTHROPIC = Anthropic()
_OPENAI = OpenAI()

# The exceptions of the runtime's own model, for codes of the daemon that say more than their class.
_EXCEPTION_OF_CODE = {
    "internal_error": "InternalServerException",
    "unknown_provider": "ResourceNotFoundException",
    "model_not_found": "ResourceNotFoundException",
    # The service has no exception for a call that was signed for somebody else.
    "sigv4_unsupported": "",
    **dict.fromkeys(BUDGET_WORDS, "ServiceQuotaExceededException"),
}


class Bedrock(AWS):
    """Amazon Bedrock."""

    name = "bedrock"
    rules: ClassVar[tuple[Rule, ...]] = (
        *BEDROCK_RULES, *AWS_RULES, *ANTHROPIC_RULES, *COMMON,
    )  # fmt: skip
    unknown_in_success: ClassVar[ErrorClass] = ErrorClass.TRANSIENT

    def model_of(self, path: str) -> str | None:
        """The model, profile or ARN of `/model/{id}/converse` and its like."""
        before, _, action = path.partition("?")[0].rstrip("/").rpartition("/")
        model = before.partition("/model/")[2]
        return model_in_path(model) if model and _ACTION.fullmatch(action) else None

    def is_model_route(self, method: str, path: str) -> bool:
        """A call of a model, or a route of Anthropic's or OpenAI's."""
        if method != "POST":
            return False
        route = path.partition("?")[0].rstrip("/")
        asks = route.endswith(_ACTIONS) and "/model/" in route
        return asks or super().is_model_route(method, path)

    def ends_by_word(self, method: str, path: str) -> bool:
        """Whose words end an answer of InvokeModel depends on the model: some have none."""
        stream = path.partition("?")[0].rstrip("/").endswith("/invoke-with-response-stream")
        return not stream and super().ends_by_word(method, path)

    def error_headers(self, envelope: Envelope, path: str) -> list[tuple[str, str]]:
        """The name of the exception that boto3 raises, and the wait where boto3 looks for it."""
        headers = []
        name = _exception(envelope)
        if name and _skin(path) is None:
            headers.append(("x-amzn-ErrorType", name))
        if envelope.retry_after is not None:
            headers.append(("x-amz-retry-after", str(round(envelope.retry_after * 1000))))
        return headers

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """`{"message", "code"}`: the header has the name where it has one, else the body."""
        skin = _skin(path)
        if skin is not None:
            return skin.error_body(envelope, status, path)
        return msgspec.json.encode(
            {"message": envelope.message, "code": envelope.code, "envelope": envelope}
        )

    def stream_error(self, envelope: Envelope, path: str) -> bytes:
        """An exception frame of the binary stream, or an event of the skin."""
        skin = _skin(path)
        if skin is not None:
            return skin.stream_error(envelope, path)
        if not any(part in path for part in _FRAMED):
            return super().stream_error(envelope, path)
        body = self.error_body(envelope, 200, path)
        name = _exception(envelope) or "ValidationException"
        return event_stream.frame(
            {
                ":message-type": "exception",
                ":exception-type": name[0].lower() + name[1:],
                ":content-type": "application/json",
            },
            body,
        )


def _exception(envelope: Envelope) -> str:
    if envelope.code.endswith("_timeout"):
        return "ModelTimeoutException"
    return _EXCEPTION_OF_CODE.get(envelope.code, EXCEPTIONS.get(envelope.class_, ""))


def _skin(path: str) -> Anthropic | OpenAI | None:
    """The dialect of the clients that ask this path, where they are not of AWS."""
    route = path.partition("?")[0].rstrip("/")
    if route.endswith(("/v1/messages", "/messages/count_tokens")):
        return _ANTHROPIC
    return _OPENAI if route.endswith(("/chat/completions", "/responses")) else None
