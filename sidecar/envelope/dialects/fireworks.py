"""Fireworks: OpenAI's shape with codes in capitals; 412 is an account that is suspended.

On 429 `error` is a string, and "exceeded your usage limits" is a plain throttle.
"""

from __future__ import annotations

from typing import ClassVar

from sidecar.envelope.dialects.compatible import MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, OpenAI
from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.dialects.words import PERMANENT

FIREWORKS_RULES = (
    Rule(
        name="the account is suspended",
        why="412: a spend limit or an unpaid invoice, and it does not say which",
        statuses=statuses(412),
        class_=PERMANENT,
        code="quota_exhausted",
    ),
    Rule(
        name="no such model",
        why="a code of the model routes, which know no other thing to find",
        codes=words("NOT_FOUND"),
        statuses=statuses(404),
        when=lambda evidence: "model" in evidence.text or "deployed" in evidence.text,
        class_=PERMANENT,
        code="model_not_found",
    ),
)


class Fireworks(OpenAI):
    """Fireworks' API."""

    name = "fireworks"
    rules: ClassVar[tuple[Rule, ...]] = (*OPENAI_RULES, *FIREWORKS_RULES, MODEL_TEXT)
