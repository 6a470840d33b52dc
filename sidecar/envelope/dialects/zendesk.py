"""Zendesk: Support, Help Center and their neighbours, in four forms of error.

`{"error": "RecordInvalid", "description", "details"}`, `{"error": {"title", "message"}}`,
`{"errors": [{"code", "title", "detail"}]}`, or plain text. Sell wraps each item of `errors` once
more. Limits stand in several headers, one a bucket.
Sources: developer.zendesk.com on requests and on rate limits.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from sidecar.envelope.dialects.rule import FOUR, Rule, words
from sidecar.envelope.dialects.tool import TOOL_RULES, Tool
from sidecar.envelope.dialects.words import RATE_LIMIT, TRANSIENT
from sidecar.envelope.model import Envelope, ErrorClass, Verdict

ZENDESK_RULES = (
    Rule(
        name="two changes met in the database",
        why="documented as a passing conflict: the same request may follow",
        codes=words("DatabaseConflict"),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="throttled",
        why="its own words for the limits of a minute and of jobs under way",
        codes=words("APIRateLimitExceeded TooManyRequests TooManyJobs"),
        statuses=FOUR,
        class_=RATE_LIMIT,
    ),
)


class Zendesk(Tool):
    """Zendesk's APIs."""

    name = "zendesk"
    rules: ClassVar[tuple[Rule, ...]] = (*ZENDESK_RULES, *TOOL_RULES)
    code_places: ClassVar[tuple[str, ...]] = ("code", "type")
    request_id_headers: ClassVar[tuple[str, ...]] = (
        "x-zendesk-request-id",
        *Tool.request_id_headers,
    )
    native_codes: ClassVar[dict[ErrorClass, str]] = {
        ErrorClass.RATE_LIMIT: "TooManyRequests",
        ErrorClass.TRANSIENT: "ServiceUnavailable",
    }

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """A word under `error` and the sentence under `description`."""
        del status, path
        return msgspec.json.encode(
            {
                "error": self.native_code(envelope),
                "description": envelope.message,
                "envelope": envelope,
            }
        )
