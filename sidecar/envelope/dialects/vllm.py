"""vLLM: OpenAI's shape with an integer `code`, which repeats the status, so that `type` decides.

Older servers put the members at the top of the body; some types are the HTTP phrase.
"""

from __future__ import annotations

from typing import ClassVar

from sidecar.envelope.dialects.compatible import MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, OpenAI
from sidecar.envelope.dialects.rule import Rule


class VLLM(OpenAI):
    """A vLLM server."""

    name = "vllm"
    rules: ClassVar[tuple[Rule, ...]] = (*OPENAI_RULES, MODEL_TEXT)
