"""Groq: OpenAI's shape and headers, with private statuses.

Daily limits refill continuously, so that a short wait works: they stay rate limits. 498 is the flex
tier without capacity, 413 a request that is larger than the whole limit.
"""

from __future__ import annotations

from typing import ClassVar

from sidecar.envelope.dialects.compatible import MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, OpenAI
from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.dialects.words import PERMANENT, RATE_LIMIT

GROQ_RULES = (
    Rule(
        name="a spend limit is reached",
        why="400 blocked_api_access: the organisation's own monthly cap",
        codes=words("blocked_api_access"),
        class_=PERMANENT,
        code="spend_limit_reached",
    ),
    Rule(
        name="the flex tier has no capacity",
        why="498: traffic on demand still passes, so the server is not ill",
        statuses=statuses(498),
        class_=RATE_LIMIT,
        code="overloaded",
    ),
)


class Groq(OpenAI):
    """Groq's API."""

    name = "groq"
    rules: ClassVar[tuple[Rule, ...]] = (*OPENAI_RULES, *GROQ_RULES, MODEL_TEXT)
