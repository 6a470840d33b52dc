"""Notion: a flat body, `{"object": "error", "status", "code", "message", "request_id"}`.

The codes and their statuses go together. A conflict (409) passes, and 529 is an overload of the
whole service. The client knows the provider's own codes only: an error under any other word is
raised as an unknown one, without its message.

Sources: developers.notion.com/reference/status-codes and /request-limits.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from sidecar.envelope.dialects.rule import Rule, words
from sidecar.envelope.dialects.tool import TOOL_RULES, Tool
from sidecar.envelope.dialects.words import AUTHENTICATION, TRANSIENT
from sidecar.envelope.model import Envelope, ErrorClass, Verdict

NOTION_RULES = (
    Rule(
        name="the grant is dead",
        why="the code or refresh token of OAuth's, under `code` here: refreshing would loop",
        codes=words("invalid_grant invalid_client unauthorized_client"),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="a passing conflict",
        why="two writes met while saving; the same one may pass now",
        codes=words("conflict_error"),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="the database cannot be reached",
        why="an outage behind the API, whatever status it wears",
        codes=words("database_connection_unavailable"),
        class_=TRANSIENT,
        verdict=Verdict.FAILURE,
    ),
)


class Notion(Tool):
    """Notion's API."""

    name = "notion"
    rules: ClassVar[tuple[Rule, ...]] = (*NOTION_RULES, *TOOL_RULES)
    code_places: ClassVar[tuple[str, ...]] = ("code",)
    reading_routes: ClassVar[tuple[str, ...]] = ("/query", "/v1/search")
    native_codes: ClassVar[dict[ErrorClass, str]] = {
        ErrorClass.VALIDATION: "validation_error",
        ErrorClass.AUTHENTICATION: "unauthorized",
        ErrorClass.RATE_LIMIT: "rate_limited",
        ErrorClass.TRANSIENT: "service_unavailable",
        ErrorClass.PERMANENT: "invalid_request",
    }

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """The flat form; `additional_data` is what the client keeps of a body beside its code."""
        del path
        return msgspec.json.encode(
            {
                "object": "error",
                "status": status,
                "code": self.native_code(envelope),
                "message": envelope.message,
                "request_id": envelope.correlation_id,
                "additional_data": {"code": envelope.code, "envelope": envelope},
                "envelope": envelope,
            }
        )
