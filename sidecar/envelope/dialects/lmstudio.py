"""LM Studio: OpenAI's shape, but an unknown path is answered with 200."""

from __future__ import annotations

from typing import ClassVar

from sidecar.envelope.dialects.compatible import MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, SIZE_STATUSES, OpenAI
from sidecar.envelope.dialects.rule import Rule
from sidecar.envelope.dialects.words import PERMANENT, VALIDATION

LMSTUDIO_RULES = (
    Rule(
        name="no such route",
        why="a wrong path is answered with 200 and a sentence",
        says=("unexpected endpoint or method",),
        class_=PERMANENT,
    ),
    Rule(
        name="the context is too long",
        why="under a stream it comes after a 200; only the text tells",
        says=("context length", "context overflow", "tokens to keep from the initial prompt"),
        statuses=SIZE_STATUSES,
        class_=VALIDATION,
        code="context_length_exceeded",
    ),
)


class LMStudio(OpenAI):
    """An LM Studio server."""

    name = "lmstudio"
    rules: ClassVar[tuple[Rule, ...]] = (*LMSTUDIO_RULES, *OPENAI_RULES, MODEL_TEXT)
