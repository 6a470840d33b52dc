"""Discord: `{"message", "code", "errors"}`, and for limits `{"message", "retry_after", "global"}`.

The wait in the body is exact, the header rounds it up. A page instead of JSON is Cloudflare's: the
address has been banned for a while, after too many refused calls. The addresses of webhooks and of
interactions are credentials by themselves.
Sources: Discord's documentation of rate limits and of its error codes.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec

from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.dialects.tool import TOOL_RULES, Tool
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    PERMANENT,
    RATE_LIMIT,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.locate import Found
from sidecar.envelope.model import Envelope, ErrorClass, Seen, Verdict

DISCORD_RULES = (
    Rule(
        name="the commands of the day are spent",
        why="200 new commands a day, whatever wait comes with it",
        codes=words("30034"),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="throttled",
        why="slow mode, write limits of a channel or server, and actions that come too often",
        codes=words("20016 20022 20028 20029 30035 30037 30040 30042 30046 40003 40062"),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the index is not there yet",
        why="a search before its index is built: 202 with an error's body",
        codes=words("110000"),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="overloaded",
        why="documented to pass after a little while",
        codes=words("130000"),
        class_=TRANSIENT,
        code="overloaded",
    ),
    Rule(
        name="switched off for a while",
        why="a feature or an application that comes back by itself; the server is well",
        codes=words("40004 40006 110001"),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="the content was blocked",
        why="explicit content, words or links that a filter refuses: it will refuse them again",
        codes=words("20009 20031 200000 200001 240000"),
        class_=VALIDATION,
        code="content_filtered",
    ),
    Rule(
        name="Cloudflare blocks the request",
        why="mostly for its user agent: new credentials do not help",
        codes=words("40333"),
        class_=PERMANENT,
    ),
    Rule(
        name="the credential is refused",
        why="tokens of bots, users and webhooks, also under a 400",
        codes=words("40001 50014 50025 50026 50027"),
        statuses=statuses(400, 401, 403),
        class_=AUTHENTICATION,
    ),
)


class Discord(Tool):
    """Discord's API for bots, webhooks and applications."""

    name = "discord"
    rules: ClassVar[tuple[Rule, ...]] = (*DISCORD_RULES, *TOOL_RULES)
    code_places: ClassVar[tuple[str, ...]] = ("code",)
    body_wait_first: ClassVar[bool] = True
    secret_paths: ClassVar[tuple[re.Pattern[str], ...]] = (
        re.compile(r"/(?:webhooks|interactions)/\d{1,25}/([^/]++)"),
    )

    def may_hold_error(self, body: bytes, seen: Seen) -> bool:
        """Only a 202 that asks to come again."""
        return seen.status == 202 and b'"retry_after"' in body

    def locate(self, body: Any, seen: Seen) -> Found | None:
        """The body itself."""
        if seen.status == 202 and isinstance(body, dict):
            return Found(body, body) if "code" in body and "retry_after" in body else None
        return super().locate(body, seen)

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """The flat form, with the general code: its own are numbers, and none says what we say."""
        del status, path
        body: dict[str, Any] = {"message": envelope.message, "code": 0}
        if envelope.class_ is ErrorClass.RATE_LIMIT:
            body |= {"retry_after": envelope.retry_after or 1.0, "global": False}
        return msgspec.json.encode({**body, "envelope": envelope})
