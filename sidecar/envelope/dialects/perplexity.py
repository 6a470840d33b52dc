"""Perplexity: OpenAI's shape behind Cloudflare; a spent credit is 401 with a quota word."""

from __future__ import annotations

from typing import ClassVar

from sidecar.envelope.dialects.compatible import MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, OpenAI
from sidecar.envelope.dialects.rule import Rule


class Perplexity(OpenAI):
    """Perplexity's API."""

    name = "perplexity"
    rules: ClassVar[tuple[Rule, ...]] = (*OPENAI_RULES, MODEL_TEXT)
