"""Hugging Face: the hub, the inference behind it, and the servers that people run themselves.

Inference answers `{"error": "sentence"}`, with `estimated_time` while a model loads; the servers
for texts and for embeddings add an `error_type`; the hub puts its code into a header. 424 is the
server's own failure here, 403 may mean that a model is too large.
"""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from sidecar.envelope import retry_after
from sidecar.envelope.dialects.compatible import MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, SIZE_STATUSES, OpenAI, says_no_model
from sidecar.envelope.dialects.rule import BUDGET_WORDS, FIVE, FOUR, TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    PERMANENT,
    RATE_LIMIT,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import as_number_text, at
from sidecar.envelope.headers import Headers
from sidecar.envelope.model import Envelope, ErrorClass, Seen, Verdict
from sidecar.envelope.model_name import model_in_path

# Of what went in; the name of a parameter alone says nothing of size.
_SIZE = re.compile(
    r"inputs?`?:? tokens`? ?\+ ?`?max_new_tokens|tokens`? ?\+ ?`?max_(?:new_)?tokens"
    r"|inputs`? must have less than|input is too long|context length|longer than the maximum"
)
_MODEL = re.compile(r"^(?:/hf-inference)?/models/([^/?]+)(?:/([^/?]+))?")
_PIPELINE = re.compile(r"^/pipeline/[^/?]+/([^/?]+/[^/?]+)$")
_ROUTES = ("/generate", "/generate_stream", "/embed", "/embed_all", "/embed_sparse", "/predict",
           "/similarity", "/rerank", "/invocations")  # fmt: skip


def _counts_the_input(evidence: Evidence) -> bool:
    return _SIZE.search(evidence.text[:4096]) is not None


HUGGINGFACE_RULES = (
    Rule(
        name="the model is still loading",
        why="a cold start is no outage; only the text tells",
        says=("currently loading", "is loading", "loading model"),
        statuses=FIVE,
        class_=TRANSIENT,
        code="model_loading",
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="the model is too large to be served",
        why="403 that is about the model, not about the caller; only the text tells",
        says=("too large to be loaded",),
        class_=PERMANENT,
    ),
    Rule(
        name="credit is spent",
        why="402 with a sentence about credits",
        says=("credits",),
        statuses=statuses(402),
        class_=PERMANENT,
        code="credits_exhausted",
    ),
    Rule(
        name="the context is too long",
        why="the type validation for all that is wrong with a request; only the text tells",
        statuses=SIZE_STATUSES,
        when=_counts_the_input,
        class_=VALIDATION,
        code="context_length_exceeded",
    ),
    Rule(
        name="no such model",
        why="a code of the router: no provider that is enabled serves it",
        codes=words("model_not_supported"),
        class_=PERMANENT,
        code="model_not_found",
    ),
    Rule(
        name="no such model",
        why="no code tells it",
        says=("not supported by provider", "not supported by any provider"),
        statuses=FOUR,
        class_=PERMANENT,
        code="model_not_found",
    ),
    Rule(
        name="access is not granted",
        why="a code of the hub: its owner wants to be asked",
        codes=words("GatedRepo"),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="refused for lack of capacity",
        why="429 as an event: the server paces its callers",
        codes=words("overloaded"),
        statuses=TWO,
        class_=RATE_LIMIT,
        code="overloaded",
    ),
    Rule(
        name="the model failed",
        why="424 is the server's own failure here, not that of another request",
        codes=words("generation backend"),
        statuses=TWO | FIVE | statuses(424),
        class_=TRANSIENT,
        verdict=Verdict.FAILURE,
    ),
    Rule(
        name="the request is at fault",
        why="types of the servers, under any of their statuses",
        codes=words("validation tokenizer template_error missing_template_vertex tool_error empty"),
        statuses=TWO | FIVE | statuses(400, 413, 422),
        class_=VALIDATION,
    ),
    Rule(
        name="overloaded",
        why="no code tells it",
        says=("overloaded", "model too busy", "queue is full"),
        statuses=FIVE,
        class_=TRANSIENT,
        code="overloaded",
        verdict=Verdict.FAILURE,
    ),
)

# What the server's own types are called, by the class: the client raises an exception for each.
_TYPES = {
    ErrorClass.VALIDATION: "validation",
    ErrorClass.RATE_LIMIT: "overloaded",
    ErrorClass.TRANSIENT: "generation",
}
NO_MODEL = Rule(
    name="no such model",
    why="404 for all that is not there; the text names a model",
    statuses=statuses(404),
    when=says_no_model,
    class_=PERMANENT,
    code="model_not_found",
)


class HuggingFace(OpenAI):
    """The hub, its inference, and the servers for texts and embeddings."""

    name = "huggingface"
    rules: ClassVar[tuple[Rule, ...]] = (*HUGGINGFACE_RULES, *OPENAI_RULES, NO_MODEL, MODEL_TEXT)
    code_places: ClassVar[tuple[str, ...]] = ("error_type", "code", "type")
    body_wait_first: ClassVar[bool] = True

    def model_of(self, path: str) -> str | None:
        """The model of `/models/{owner}/{name}` and of the older `/pipeline/{task}/…`."""
        route = path.partition("?")[0].rstrip("/")
        found = _PIPELINE.match(route)
        if found:
            return model_in_path(found[1])
        found = _MODEL.match(route)
        if found is None:
            return None
        owner, name = found.groups()
        # The oldest models have no owner, and what follows them is a route of the server.
        alone = name is None or name in {"v1", "pipeline"}
        return model_in_path(owner if alone else f"{owner}/{name}")

    def is_model_route(self, method: str, path: str) -> bool:
        """A model's own path, a route of the servers, or one of OpenAI's."""
        if method != "POST":
            return False
        route = path.partition("?")[0].rstrip("/")
        return (
            self.model_of(path) is not None
            or route in _ROUTES
            or not route
            or super().is_model_route(method, path)
        )

    def code_in_headers(self, headers: Headers) -> str:
        """The hub's own code."""
        return (headers.get("x-error-code") or "").strip()

    def read_text(self, seen: Seen) -> Evidence:
        """The text, else the sentence that the hub puts into a header."""
        bare = super().read_text(seen)
        told = seen.headers.get("x-error-message") or ""
        return bare if bare.message else msgspec.structs.replace(bare, message=told.strip())

    def wait_in_body(self, evidence: Evidence) -> tuple[float, str] | None:
        """`estimated_time` of a model that loads, in seconds."""
        text = as_number_text(at(evidence.body, "estimated_time"))
        wait = None if text is None else retry_after.seconds_of(text, evidence.seen.now)
        if text is not None and wait is not None:
            return wait, text
        return super().wait_in_body(evidence)

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """`{"error": "sentence", "error_type"}`, or OpenAI's shape on OpenAI's routes."""
        if _is_openai(path):
            return super().error_body(envelope, status, path)
        del status
        return msgspec.json.encode(_error(envelope))

    def stream_error(self, envelope: Envelope, path: str) -> bytes:
        """A `data:` line of the same shape."""
        if _is_openai(path):
            return super().stream_error(envelope, path)
        return b"data: " + msgspec.json.encode(_error(envelope)) + b"\n\n"


def _is_openai(path: str) -> bool:
    return "/v1/" in path


def _error(envelope: Envelope) -> dict[str, object]:
    error: dict[str, object] = {"error": envelope.message}
    kind = _TYPES.get(envelope.class_)
    if kind is not None and envelope.code not in BUDGET_WORDS:
        error["error_type"] = kind
    return {**error, "code": envelope.code, "envelope": envelope}
