"""vLLM: OpenAI's shape with an integer `code`, which repeats the status, so that `type` decides.

Older servers put the members at the top of the body; some types are the HTTP phrase.
"""

from __future__ import annotations

from typing import ClassVar

from sidecar.envelope.dialects.compatible import MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, SIZE_STATUSES, OpenAI
from sidecar.envelope.dialects.rule import Rule
from sidecar.envelope.dialects.words import VALIDATION

CONTEXT = Rule(
    name="the context is too long",
    why="of the type BadRequestError; each version has a sentence of its own",
    says=(
        "context length is only",
        "too long to fit into the model",
        "maximum model length",
        "max_model_len",
        "maximum input length",
    ),
    statuses=SIZE_STATUSES,
    class_=VALIDATION,
    code="context_length_exceeded",
)


class VLLM(OpenAI):
    """A vLLM server."""

    name = "vllm"
    rules: ClassVar[tuple[Rule, ...]] = (*OPENAI_RULES, CONTEXT, MODEL_TEXT)
