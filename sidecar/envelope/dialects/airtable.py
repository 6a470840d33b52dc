"""Airtable: `{"error": {"type", "message"}}`, `{"error": "NOT_FOUND"}` or a list under `errors`.

Whoever is throttled is shut out for thirty seconds, and no header says so. A month's calls that are
spent come under the same 429. What it calls a model is a table.
Sources: airtable.com/developers/web/api/errors and rate-limits, support.airtable.com.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.dialects.tool import TOOL_RULES, Tool
from sidecar.envelope.dialects.words import PERMANENT, RATE_LIMIT
from sidecar.envelope.model import Envelope, ErrorClass

AIRTABLE_RULES = (
    Rule(
        name="the calls of the month are spent",
        why="a window that the plan sells",
        codes=words("public_api_billing_limit_exceeded"),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="throttled",
        why="documented: nothing succeeds for 30 seconds",
        statuses=statuses(429),
        class_=RATE_LIMIT,
        wait=30.0,
    ),
)


class Airtable(Tool):
    """Airtable's web API."""

    name = "airtable"
    rules: ClassVar[tuple[Rule, ...]] = (*AIRTABLE_RULES, *TOOL_RULES)
    code_places: ClassVar[tuple[str, ...]] = ("type", "error", "word")
    reading_routes: ClassVar[tuple[str, ...]] = ("/listRecords",)
    native_codes: ClassVar[dict[ErrorClass, str]] = {
        ErrorClass.RATE_LIMIT: "RATE_LIMIT_REACHED",
        ErrorClass.TRANSIENT: "SERVICE_UNAVAILABLE",
    }

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """`{"error": {"type", "message"}}`, the envelope beside it."""
        del status, path
        error = {"type": self.native_code(envelope), "message": envelope.message}
        return msgspec.json.encode({"error": error, "envelope": envelope})
