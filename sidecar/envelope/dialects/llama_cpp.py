"""The server of llama.cpp: OpenAI's shape with an integer `code` and types of its own.

Embeddings and forks report a prompt that is too long as a server error; old builds stream an error
in a field `error:` that no standard knows.
"""

from __future__ import annotations

from typing import ClassVar

from sidecar.envelope.dialects.compatible import LOADING_TEXT, MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, SIZE_STATUSES, OpenAI
from sidecar.envelope.dialects.rule import Rule
from sidecar.envelope.dialects.words import VALIDATION

LLAMA_CPP_RULES = (
    LOADING_TEXT,
    Rule(
        name="the input is too long",
        why="its size is the caller's, though some builds call it a server error",
        says=("too large to process", "physical batch size", "available context size"),
        statuses=SIZE_STATUSES,
        class_=VALIDATION,
        code="context_length_exceeded",
    ),
)


class LlamaCpp(OpenAI):
    """A llama.cpp server."""

    name = "llama.cpp"
    rules: ClassVar[tuple[Rule, ...]] = (*LLAMA_CPP_RULES, *OPENAI_RULES, MODEL_TEXT)
