"""xAI: `{"code": "a sentence", "error": "another"}`, so that mostly the text tells.

A bad key is 400; spent credit is 403 or 429 under the sentences of permission and of rate limits.
The sentence under `code` is one of gRPC's seventeen, as its server's library spells them: it tells
the class where there is no status, which is in a stream.
"""

from __future__ import annotations

from typing import ClassVar

from sidecar.envelope.dialects.compatible import MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, SIZE_STATUSES, OpenAI
from sidecar.envelope.dialects.rule import TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    PERMANENT,
    RATE_LIMIT,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.fields import normal
from sidecar.envelope.model import Verdict

_MONEY_STATUSES = TWO | statuses(402, 403, 429)


def _sentences(*spelt: str) -> frozenset[str]:
    return frozenset(normal(sentence) for sentence in spelt)


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
        statuses=TWO | statuses(400, 403),
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
        statuses=TWO | statuses(400),
        class_=AUTHENTICATION,
    ),
)

# After the texts, which know better.
SENTENCES = (
    Rule(
        name="the request is at fault",
        why="gRPC's INVALID_ARGUMENT, FAILED_PRECONDITION and OUT_OF_RANGE, without a status",
        codes=_sentences(
            "Client specified an invalid argument",
            "The system is not in a state required for the operation's execution",
            "Operation was attempted past the valid range",
        ),
        statuses=TWO,
        class_=VALIDATION,
    ),
    Rule(
        name="the credential is refused",
        why="gRPC's UNAUTHENTICATED and PERMISSION_DENIED, without a status",
        codes=_sentences(
            "The request does not have valid authentication credentials",
            "The caller does not have permission to execute the specified operation",
        ),
        statuses=TWO,
        class_=AUTHENTICATION,
    ),
    Rule(
        name="throttled",
        why="gRPC's RESOURCE_EXHAUSTED, without a status",
        codes=_sentences("Some resource has been exhausted"),
        statuses=TWO,
        class_=RATE_LIMIT,
    ),
    Rule(
        name="no repetition mends it",
        why="gRPC's NOT_FOUND, ALREADY_EXISTS and UNIMPLEMENTED, without a status",
        codes=_sentences(
            "Some requested entity was not found",
            "Some entity that we attempted to create already exists",
            "Operation is not implemented or not supported",
        ),
        statuses=TWO,
        class_=PERMANENT,
    ),
    Rule(
        name="cancelled or aborted",
        why="gRPC's CANCELLED and ABORTED, without a status: the server is well",
        codes=_sentences("The operation was cancelled", "The operation was aborted"),
        statuses=TWO,
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
)


class XAI(OpenAI):
    """xAI's API."""

    name = "xai"
    rules: ClassVar[tuple[Rule, ...]] = (*XAI_RULES, *OPENAI_RULES, MODEL_TEXT, *SENTENCES)
