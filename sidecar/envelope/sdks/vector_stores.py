"""Pinecone and Qdrant: names of gRPC's statuses over REST, and nothing but a status."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from sidecar.envelope.dialects.generic import Generic
from sidecar.envelope.dialects.rule import Rule
from sidecar.envelope.dialects.rule import statuses as statuses_of
from sidecar.envelope.dialects.rule import words as codes_of
from sidecar.envelope.model import ErrorClass
from sidecar.envelope.raised import Raised
from sidecar.envelope.sdks.family import (
    INVALID,
    NO_ANSWER,
    NO_CREDENTIALS,
    Facts,
    Family,
    because,
    changed,
    member,
    seconds,
    words,
)
from sidecar.envelope.sdks.grpc import STATUSES


class PineconeAnswers(Generic):
    """Pinecone says `FORBIDDEN` and `RESOURCE_EXHAUSTED` for a spent plan, too; its text tells."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            name="the plan's quota is spent",
            why="FORBIDDEN for permissions and quotas alike; only the text tells",
            codes=codes_of("forbidden"),
            says=("quota", "limit for your plan", "limit of your plan"),
            statuses=statuses_of(403),
            class_=ErrorClass.PERMANENT,
            code="quota_exhausted",
        ),
        Rule(
            name="the month of the plan is spent",
            why="RESOURCE_EXHAUSTED for rates and months alike; only the text tells",
            codes=codes_of("resource_exhausted"),
            says=("for the current month", "monthly"),
            class_=ErrorClass.PERMANENT,
            code="plan_window_exhausted",
        ),
        *Generic.rules,
    )


def _pinecone_statuses(names: Iterable[tuple[str, int]]) -> dict[str, int]:
    return {
        f"{module}.{name}": status
        for module in ("pinecone.errors.exceptions", "pinecone.exceptions.exceptions")
        for name, status in names
    }


PINECONE = Family(
    name="pinecone",
    packages=("pinecone",),
    sdks=("pinecone",),
    dialect=PineconeAnswers(),
    kinds=STATUSES,
    statuses=_pinecone_statuses(
        [
            ("UnauthorizedError", 401),
            ("UnauthorizedException", 401),
            ("ForbiddenError", 403),
            ("ForbiddenException", 403),
            ("NotFoundError", 404),
            ("NotFoundException", 404),
            ("ConflictError", 409),
            ("RateLimitError", 429),
            ("ServiceError", 500),
            ("ServiceException", 500),
        ]
    ),
    classes={
        f"{module}.{name}": meaning
        for module in ("pinecone.errors.exceptions", "pinecone.exceptions.exceptions")
        for name, meaning in (
            ("PineconeConfigurationError", because(NO_CREDENTIALS, "nothing was sent")),
            ("ValidationError", because(INVALID, "refused before sending")),
            ("PineconeValueError", because(INVALID, "refused before sending")),
            ("PineconeApiTypeError", because(INVALID, "refused before sending")),
            ("PineconeApiValueError", because(INVALID, "refused before sending")),
            ("ResponseParsingError", because(NO_ANSWER, "what came back cannot be read")),
        )
    },
    words={
        **words(
            "pinecone.errors.exceptions",
            connection_error="PineconeConnectionError ConnectionError",
            timeout="PineconeTimeoutError",
        ),
    },
)


def _qdrant(raised: Raised, facts: Facts) -> Facts:
    wait = seconds(raised.attrs.get("retry_after_s"))
    told = member(facts.body, "status", "error")
    return changed(
        facts,
        body={"error": {"message": told}} if isinstance(told, str) else facts.body,
        wait=wait if wait is not None else facts.wait,
    )


QDRANT = Family(
    name="qdrant",
    packages=("qdrant_client",),
    sdks=("qdrant", "qdrant-client"),
    dialect="generic",
    statuses={
        "qdrant_client.common.client_exceptions.ResourceExhaustedResponse": 429,
    },
    words={
        "qdrant_client.http.exceptions.ResponseHandlingException": "connection_error",
    },
    read=_qdrant,
)
