"""xAI: `{"code": "a sentence", "error": "another"}`, so that mostly the text tells.

A bad key is 400; spent credit is 403 or 429 under the sentences of permission and of rate limits.
"""

from __future__ import annotations

from typing import ClassVar

from sidecar.envelope.dialects.compatible import MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, OpenAI
from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.dialects.words import AUTHENTICATION, PERMANENT

_MONEY_STATUSES = statuses(402, 403, 429)

XAI_RULES = (
    Rule(
        name="the team has no credits",
        why="only the text tells, under 403 as under 429",
        says=("doesn't have any credits", "does not have any credits", "no credits yet"),
        statuses=_MONEY_STATUSES,
        class_=PERMANENT,
        code="credits_exhausted",
    ),
    Rule(
        name="credits or a spending limit",
        why="the code of a blocked team, which does not say which of the two",
        codes=words("personal-team-blocked:spending-limit"),
        class_=PERMANENT,
        code="quota_exhausted",
    ),
    Rule(
        name="credits or a spending limit",
        why="the sentence leaves open which of the two; a rate limit speaks of neither",
        says=("all available credits", "out of credits", "spending limit", "purchase more credits"),
        statuses=_MONEY_STATUSES,
        class_=PERMANENT,
        code="quota_exhausted",
    ),
    Rule(
        name="a bad key under 400",
        why="a refused key is called an invalid argument",
        says=("incorrect api key", "invalid api key"),
        statuses=statuses(400),
        class_=AUTHENTICATION,
    ),
)


class XAI(OpenAI):
    """xAI's API."""

    name = "xai"
    rules: ClassVar[tuple[Rule, ...]] = (*XAI_RULES, *OPENAI_RULES, MODEL_TEXT)
