"""Atlassian: Jira and Confluence, whose products word their errors in four ways.

Jira sends `{"errorMessages": […], "errors": {field: text}}`, Confluence `{"statusCode", "message",
"data"}` or `{"errors": [{status, code, title}]}`, the gateway before them `{"code", "message"}`.
Statuses are honest but for the gateway's GraphQL. A rate limit may come without a body: its name
stands in `ratelimit-reason`, the wait in `retry-after` or as a moment without seconds in
`x-ratelimit-reset`.

Sources: developer.atlassian.com, rate limiting and status codes of the Jira and Confluence Cloud
platforms; the addresses of incoming webhooks in automation rules.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec

from sidecar.envelope.dialects.generic import EXPIRED_TOKEN
from sidecar.envelope.dialects.graphql_errors import (
    GRAPHQL_RULES,
    WITHOUT_CODE,
    GraphQLErrors,
)
from sidecar.envelope.dialects.rule import Rule
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import normal, status_like
from sidecar.envelope.locate import Found
from sidecar.envelope.model import Envelope, Seen


class Jira(GraphQLErrors):
    """Atlassian's cloud products and servers."""

    name = "jira"
    rules: ClassVar[tuple[Rule, ...]] = (*GRAPHQL_RULES, EXPIRED_TOKEN, WITHOUT_CODE)
    code_places: ClassVar[tuple[str, ...]] = (
        "extensions.code",
        "extensions.errorType",
        "code",
        "errorCode",
    )
    request_id_headers: ClassVar[tuple[str, ...]] = (
        "atl-traceid",
        "atl-request-id",
        "x-arequestid",
        *GraphQLErrors.request_id_headers,
    )
    reading_routes: ClassVar[tuple[str, ...]] = (
        "/search",
        "/search/jql",
        "/search/approximate-count",
        "/issue/bulkfetch",
        "/jql/parse",
        "/jql/match",
        "/expression/eval",
        "/expression/evaluate",
        "/permissions/check",
        "/changelog/bulkfetch",
    )
    secret_paths: ClassVar[tuple[re.Pattern[str], ...]] = (
        re.compile(r"/pro/hooks/([^/]+)"),
        re.compile(r"/automation/webhooks/[^/]{1,64}/[^/]{1,64}/[^/]{1,64}/([^/]+)"),
    )

    def read(self, found: Found, seen: Seen, *, stream: bool = False) -> Evidence:
        """The evidence, with the name of a rate limit where the body has no code."""
        return _with_limit(super().read(found, seen, stream=stream))

    def read_text(self, seen: Seen) -> Evidence:
        """The same for an answer that has no body to speak of."""
        return _with_limit(super().read_text(seen))

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """`errorMessages`, and `message` for the clients of Confluence.

        `errors` stays empty: one of the clients shows nothing else where it holds something.
        """
        if self.speaks_graphql(path):
            return super().error_body(envelope, status, path)
        body: dict[str, Any] = {
            "errorMessages": [envelope.message],
            "errors": {},
            "message": envelope.message,
            "statusCode": status,
            "code": envelope.code,
            "envelope": envelope,
        }
        return msgspec.json.encode(body)


def _with_limit(evidence: Evidence) -> Evidence:
    limit = (evidence.headers.get("ratelimit-reason") or "").strip()
    own = evidence.code
    if evidence.status != 429 or not limit or (own is not None and status_like(own) is None):
        return evidence
    return msgspec.structs.replace(
        evidence, code=limit, words={**evidence.words, normal(limit): limit}
    )
