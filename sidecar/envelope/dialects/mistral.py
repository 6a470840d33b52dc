"""Mistral: a flat body, `{"object": "error", "message", "type", "param", "code"}`.

`type` is the code that people know, `code` a number or a string of digits. `message` may be an
object. A stream may end with a finish reason `error` and then a normal terminator.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from sidecar.envelope.dialects.compatible import MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, OpenAI, error_type
from sidecar.envelope.dialects.rule import FIVE, Rule, statuses, words
from sidecar.envelope.dialects.words import PERMANENT, RATE_LIMIT, TRANSIENT
from sidecar.envelope.model import Envelope, Verdict

MISTRAL_RULES = (
    Rule(
        name="the tier has no capacity left for you",
        why="on 429 it is the limit of the caller's tier, under a type that says something else",
        says=("capacity exceeded",),
        statuses=statuses(429),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the back end is overloaded",
        why="on a 5xx the same sentence is about the back end",
        says=("capacity exceeded",),
        statuses=FIVE,
        class_=TRANSIENT,
        code="overloaded",
        verdict=Verdict.FAILURE,
    ),
)

NUMBERED = Rule(
    name="no such model",
    why="code 1500 where the type does not say it",
    codes=words("1500"),
    statuses=statuses(400, 404),
    class_=PERMANENT,
    code="model_not_found",
)


class Mistral(OpenAI):
    """Mistral's API."""

    name = "mistral"
    rules: ClassVar[tuple[Rule, ...]] = (*MISTRAL_RULES, *OPENAI_RULES, NUMBERED, MODEL_TEXT)
    code_places: ClassVar[tuple[str, ...]] = ("type", "code")

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """The flat form, with the envelope beside the members."""
        del status, path
        return msgspec.json.encode(
            {
                "object": "error",
                "message": envelope.message,
                "type": error_type(envelope),
                "param": None,
                "code": envelope.code,
                "envelope": envelope,
            }
        )
