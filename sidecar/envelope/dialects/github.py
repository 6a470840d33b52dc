"""GitHub, REST and GraphQL: `{"message", "documentation_url", "errors", "status"}`, no code.

403 is a permission that is missing or a rate limit that is spent. Every answer shows the state of
the primary limit, so its headers count only where nothing remains. The secondary limit is told by
`retry-after`, or by the text and the page it refers to; without a wait it lasts a minute at least.
GraphQL answers 200 with `errors`, whose `type` is the code. REST sets its statuses honestly.

Sources: docs.github.com, rate limits and troubleshooting of the REST API, rate limits and query
limits of the GraphQL API.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from sidecar.envelope.dialects.graphql_errors import (
    GRAPHQL_RULES,
    WITHOUT_CODE,
    GraphQLErrors,
)
from sidecar.envelope.dialects.rule import TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    PERMANENT,
    RATE_LIMIT,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.model import Envelope, Seen

_THROTTLING = statuses(403, 429)

# The documentation: "wait for at least one minute before retrying".
_LEAST_WAIT = 60.0


def _has_nothing_left(evidence: Evidence) -> bool:
    return (evidence.headers.get("x-ratelimit-remaining") or "").strip() == "0"


def _refers_to(evidence: Evidence, *pages: str) -> bool:
    page = evidence.body.get("documentation_url") if isinstance(evidence.body, dict) else None
    return isinstance(page, str) and any(part in page for part in pages)


def _is_secondary(evidence: Evidence) -> bool:
    return (
        "retry-after" in evidence.headers
        or "secondary rate limit" in evidence.text
        or "abuse detection" in evidence.text
        or _refers_to(evidence, "#secondary-rate-limits", "#abuse-rate-limits")
    )


def _is_primary(evidence: Evidence) -> bool:
    return evidence.text.startswith("api rate limit") or _refers_to(evidence, "#rate-limiting")


GITHUB_RULES = (
    Rule(
        name="the primary rate limit is spent",
        why="nothing remains until the reset that the headers name",
        statuses=_THROTTLING,
        when=_has_nothing_left,
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the secondary rate limit",
        why="a wait under 403, the text or the page it refers to; the primary one is not spent",
        statuses=_THROTTLING,
        when=_is_secondary,
        class_=RATE_LIMIT,
        wait=_LEAST_WAIT,
    ),
    Rule(
        name="the primary rate limit is spent",
        why="the headers were lost on the way; only the text and the page tell",
        statuses=_THROTTLING,
        when=_is_primary,
        class_=RATE_LIMIT,
    ),
    Rule(
        name="throttled",
        why="a 429 that does not say which limit: a minute at least",
        statuses=statuses(429),
        class_=RATE_LIMIT,
        wait=_LEAST_WAIT,
    ),
    Rule(
        name="too large",
        why="a blob that this route never returns; other credentials do not help",
        codes=words("too_large"),
        statuses=statuses(403),
        class_=PERMANENT,
    ),
    Rule(
        name="throttled",
        why="GraphQL: the type of the error",
        codes=words("graphql_rate_limit"),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the credential lacks a permission",
        why="GraphQL: the type of the error",
        codes=words("INSUFFICIENT_SCOPES"),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the query is at fault",
        why="GraphQL: the type of the error; the same query is refused again",
        codes=words(
            "UNPROCESSABLE EXCESSIVE_PAGINATION MISSING_PAGINATION_BOUNDARIES"
            " INVALID_CURSOR_ARGUMENTS MAX_NODE_LIMIT_EXCEEDED"
        ),
        statuses=TWO,
        class_=VALIDATION,
    ),
    Rule(
        name="the server failed",
        why="GraphQL: the type of the error",
        codes=words("INTERNAL"),
        statuses=TWO,
        class_=TRANSIENT,
    ),
    Rule(
        name="the query timed out or failed",
        why="a 200 without any type; only the text tells",
        says=("something went wrong while executing your query",),
        statuses=TWO,
        class_=TRANSIENT,
        code="graphql_error",
    ),
)


class GitHub(GraphQLErrors):
    """GitHub's REST and GraphQL APIs."""

    name = "github"
    rules: ClassVar[tuple[Rule, ...]] = (*GITHUB_RULES, *GRAPHQL_RULES, WITHOUT_CODE)
    code_places: ClassVar[tuple[str, ...]] = ("code", "extensions.code", "type")
    request_id_headers: ClassVar[tuple[str, ...]] = ("x-github-request-id",)

    def may_hold_error(self, body: bytes, seen: Seen) -> bool:
        """GraphQL's errors, and those of the token endpoint, which are a 200 too."""
        if "/login/oauth/" in seen.path:
            return b'"error"' in body
        return super().may_hold_error(body, seen)

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """`message` and `errors`, which the clients put into the text of their exception."""
        error = {"resource": "sidecar", "code": envelope.code, "message": envelope.message}
        body: dict[str, Any] = {
            "message": envelope.message,
            "errors": [error],
            "status": str(status),
            "envelope": envelope,
        }
        if self.speaks_graphql(path):
            error["type"] = envelope.code
        return msgspec.json.encode(body)
