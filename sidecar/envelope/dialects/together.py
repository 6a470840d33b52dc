"""Together: OpenAI's shape, with 403 for a prompt that is too long and one word of two meanings."""

from __future__ import annotations

import re
from typing import ClassVar

from sidecar.envelope.dialects.compatible import MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, SIZE_STATUSES, OpenAI
from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.dialects.words import PERMANENT, RATE_LIMIT, VALIDATION

# A sum of tokens or an input that is counted; the name of a parameter alone says nothing of size.
_SIZE = re.compile(
    r"context length|input token count|tokens`?\s*\+\s*`?max_(?:new_)?tokens"
    r"|inputs`? must have less than"
)

TOGETHER_RULES = (
    Rule(
        name="the credit limit is reached",
        why="on 402 it is money",
        codes=words("credit_limit"),
        statuses=statuses(402),
        class_=PERMANENT,
        code="credits_exhausted",
    ),
    Rule(
        name="throttled",
        why="on 429 the type credit_limit is a plain throttle",
        codes=words("credit_limit"),
        statuses=statuses(429),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the limit of a model is reached",
        why="some models have a limit below that of the account",
        codes=words("model_rate_limit"),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the context is too long",
        why="403 is documented for it, and only the text tells",
        statuses=SIZE_STATUSES | statuses(403),
        when=lambda evidence: _SIZE.search(evidence.text) is not None,
        class_=VALIDATION,
        code="context_length_exceeded",
    ),
)


class Together(OpenAI):
    """Together's API."""

    name = "together"
    rules: ClassVar[tuple[Rule, ...]] = (*TOGETHER_RULES, *OPENAI_RULES, MODEL_TEXT)
