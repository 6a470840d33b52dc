"""SendGrid: `{"errors": [{message, field, help}]}`, without a code.

The status says it all but for one lie: spent credits of the plan are 401. The window of a rate
limit ends at `x-ratelimit-reset`, in epoch seconds.

Sources: twilio.com/docs/sendgrid, errors and rate limits of the v3 API; a captured 401.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from sidecar.envelope.dialects.rule import Rule, statuses
from sidecar.envelope.dialects.tool import TOOL_RULES, Tool
from sidecar.envelope.dialects.words import PERMANENT
from sidecar.envelope.model import Envelope

SENDGRID_RULES = (
    Rule(
        name="the credits of the plan are spent",
        why="no code, and the status of a bad key: only the text tells",
        says=("maximum credits exceeded",),
        statuses=statuses(401, 402, 403, 429),
        class_=PERMANENT,
        code="credits_exhausted",
    ),
)


class SendGrid(Tool):
    """SendGrid's API."""

    name = "sendgrid"
    rules: ClassVar[tuple[Rule, ...]] = (*SENDGRID_RULES, *TOOL_RULES)

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """`errors` with one entry; the client chooses its exception by the status."""
        del status, path
        error = {
            "message": envelope.message,
            "field": None,
            "help": None,
            "error_id": envelope.code,
        }
        return msgspec.json.encode({"errors": [error], "envelope": envelope})
