"""xAI: `{"code": "a sentence", "error": "another"}`, so that mostly the text tells.

A bad key is 400; spent credit is 403 or 429 under the sentences of permission and of rate limits.
"""

from __future__ import annotations

from typing import ClassVar

from sidecar.envelope.dialects.compatible import MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, SIZE_STATUSES, OpenAI
from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.dialects.words import AUTHENTICATION, PERMANENT, VALIDATION

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
        name="the content was blocked",
        why="under the sentence of a missing permission",
        says=("content violates usage guidelines", "failed check: safety_check"),
        statuses=statuses(400, 403),
        class_=VALIDATION,
        code="content_filtered",
    ),
    Rule(
        name="the context is too long",
        why="under the sentence of an invalid argument",
        says=("maximum prompt length",),
        statuses=SIZE_STATUSES,
        class_=VALIDATION,
        code="context_length_exceeded",
    ),
    Rule(
        name="no such model",
        why="404 for one that was retired",
        says=("model",),
        statuses=statuses(404),
        when=lambda evidence: any(
            word in evidence.text for word in ("deprecated", "no longer", "retired")
        ),
        class_=PERMANENT,
        code="model_not_found",
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
