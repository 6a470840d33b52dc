"""Ollama: sentences only, and three skins (its own, OpenAI's, Anthropic's) on one server.

The native body is `{"error": "sentence"}`, streams are lines of JSON that end with `done: true`.
The cloud's plan windows are told apart by the sentence alone.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from sidecar.envelope.dialects.anthropic import Anthropic
from sidecar.envelope.dialects.compatible import LOADING_TEXT, MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, SIZE_STATUSES, OpenAI
from sidecar.envelope.dialects.rule import FIVE, Rule
from sidecar.envelope.dialects.words import PERMANENT, TRANSIENT, VALIDATION
from sidecar.envelope.model import Envelope, Verdict

OLLAMA_RULES = (
    Rule(
        name="a plan window is spent",
        why="the cloud sells sessions and weeks; an hour is left to wait for",
        says=("session usage limit", "weekly usage limit", "monthly usage limit"),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="the model does not fit into memory",
        why="it will not fit the next time either",
        says=("requires more system memory", "requires more memory"),
        statuses=FIVE,
        class_=PERMANENT,
    ),
    Rule(
        name="the queue is full",
        why="the server is up and takes no more: overload, only the text tells",
        says=("server busy", "maximum pending requests exceeded"),
        statuses=FIVE,
        class_=TRANSIENT,
        code="overloaded",
        verdict=Verdict.FAILURE,
    ),
    Rule(
        name="the context is too long",
        why="the runner, the server and the cloud say it in words of their own",
        says=("exceeds context length", "context length by", "prompt too long"),
        statuses=SIZE_STATUSES,
        class_=VALIDATION,
        code="context_length_exceeded",
    ),
    Rule(
        name="no such model",
        why="it was never pulled, or the registry does not know it",
        says=("try pulling it first", "pull model manifest: file does not exist"),
        class_=PERMANENT,
        code="model_not_found",
    ),
    LOADING_TEXT,
)

_ANTHROPIC = Anthropic()


class Ollama(OpenAI):
    """An Ollama server or its cloud."""

    name = "ollama"
    rules: ClassVar[tuple[Rule, ...]] = (*OLLAMA_RULES, *OPENAI_RULES, MODEL_TEXT)

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """In the skin that the path asks for; the native one is a sentence."""
        if _is_native(path):
            return msgspec.json.encode({"error": envelope.message, "envelope": envelope})
        if _is_anthropic(path):
            return _ANTHROPIC.error_body(envelope, status, path)
        return super().error_body(envelope, status, path)

    def stream_error(self, envelope: Envelope, path: str) -> bytes:
        """One line of JSON in the native stream, else an event of the skin."""
        if _is_native(path):
            return self.error_body(envelope, 200, path) + b"\n"
        if _is_anthropic(path):
            return _ANTHROPIC.stream_error(envelope, path)
        return super().stream_error(envelope, path)


def _is_native(path: str) -> bool:
    return path.startswith("/api/")


def _is_anthropic(path: str) -> bool:
    return path.partition("?")[0].rstrip("/").endswith("/messages")
