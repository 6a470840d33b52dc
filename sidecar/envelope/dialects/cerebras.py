"""Cerebras: a flat body, `{"message", "type", "param", "code"}`.

Its quota codes are throttles of a minute or an hour; that the day is spent only the text tells.
Limits by the day and the minute stand in `x-ratelimit-*-requests-day` and `-tokens-minute`.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from sidecar.envelope.dialects.compatible import COMPATIBLE_RULES, Compatible
from sidecar.envelope.dialects.openai import error_type
from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.dialects.words import AUTHENTICATION, PERMANENT, RATE_LIMIT
from sidecar.envelope.model import Envelope

_QUOTAS = words("token_quota_exceeded request_quota_exceeded")

CEREBRAS_RULES = (
    Rule(
        name="the day is spent",
        why="the code of the minute's limit; only the text names the day",
        codes=_QUOTAS,
        says=("per day", "daily"),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="throttled",
        why="a quota of a minute or an hour, and a queue that is full: both clear by themselves",
        codes=_QUOTAS | words("queue_exceeded too_many_requests_error too_many_tokens_error"),
        statuses=statuses(range(200, 300), 429),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the credential is refused",
        why="the code of a key that is none",
        codes=words("wrong_api_key"),
        class_=AUTHENTICATION,
    ),
)


class Cerebras(Compatible):
    """Cerebras' API."""

    name = "cerebras"
    rules: ClassVar[tuple[Rule, ...]] = (*CEREBRAS_RULES, *COMPATIBLE_RULES)

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """The flat form, with the envelope beside the members."""
        del status, path
        return msgspec.json.encode(
            {
                "message": envelope.message,
                "type": error_type(envelope),
                "param": None,
                "code": envelope.code,
                "envelope": envelope,
            }
        )
