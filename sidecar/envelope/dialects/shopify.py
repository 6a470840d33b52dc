"""Shopify: the Admin and Storefront APIs in GraphQL, the Admin API in REST.

GraphQL answers 200 to everything. A throttled query says what it would have cost, what there was
and how fast that grows again, so the wait can be calculated. REST says what is wrong in a sentence
under `errors`; statuses of Shopify's own tell of shops that are frozen, locked or guarded.
Sources: shopify.dev on response codes and on rate limits.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, ClassVar

import msgspec

from sidecar.envelope.dialects.graphql_errors import GRAPHQL_RULES, WITHOUT_CODE, GraphQLErrors
from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.dialects.words import AUTHENTICATION, PERMANENT, VALIDATION
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import at
from sidecar.envelope.model import Envelope, ErrorClass


def _cost(evidence: Evidence, place: str) -> float | None:
    value = at(evidence.body, f"extensions.cost.{place}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        cost = float(value)
    except OverflowError:
        return None
    return cost if isfinite(cost) else None


def _exceeds_the_bucket(evidence: Evidence) -> bool:
    requested = _cost(evidence, "requestedQueryCost")
    bucket = _cost(evidence, "throttleStatus.maximumAvailable")
    return requested is not None and bucket is not None and requested > bucket > 0


SHOPIFY_RULES = (
    Rule(
        name="the shop is frozen or locked",
        why="402 and 423: its owner has not paid, or it was stopped; no budget of the caller's",
        statuses=statuses(402, 423),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the shop is not active",
        why="the account is closed to everybody",
        codes=words("shop_inactive"),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the session token is refused",
        why="token exchange: expired or otherwise invalid, a new one comes from the app's page",
        codes=words("invalid_subject_token"),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="one query dearer than is ever allowed",
        why="waiting cannot help; a smaller one may pass",
        codes=words("max_cost_exceeded"),
        class_=PERMANENT,
    ),
    Rule(
        name="one query dearer than the whole bucket",
        why="waiting cannot help: it will never hold that much",
        codes=words("throttled"),
        when=_exceeds_the_bucket,
        class_=PERMANENT,
    ),
    Rule(
        name="the body is no JSON",
        why="783: a status of its own for a syntax error",
        statuses=statuses(783),
        class_=VALIDATION,
    ),
)


class Shopify(GraphQLErrors):
    """Shopify's APIs for shops."""

    name = "shopify"
    rules: ClassVar[tuple[Rule, ...]] = (*SHOPIFY_RULES, *GRAPHQL_RULES, WITHOUT_CODE)
    native_codes: ClassVar[dict[ErrorClass, str]] = {
        ErrorClass.RATE_LIMIT: "THROTTLED",
        ErrorClass.TRANSIENT: "INTERNAL_SERVER_ERROR",
    }

    def wait_in_body(self, evidence: Evidence) -> tuple[float, str] | None:
        """The time in which the bucket regains what the query costs more than it holds."""
        requested = _cost(evidence, "requestedQueryCost")
        available = _cost(evidence, "throttleStatus.currentlyAvailable")
        rate = _cost(evidence, "throttleStatus.restoreRate")
        if requested is None or available is None or rate is None or rate <= 0:
            return super().wait_in_body(evidence)
        missing = requested - available
        if missing <= 0:
            return None
        return missing / rate, f"({requested:g} - {available:g}) / {rate:g}"

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """As its GraphQL says it; in REST a sentence under `errors`."""
        if self.speaks_graphql(path):
            return super().error_body(envelope, status, path)
        body: dict[str, Any] = {"errors": envelope.message, "envelope": envelope}
        return msgspec.json.encode(body)
