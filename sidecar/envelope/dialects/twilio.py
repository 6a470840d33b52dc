"""Twilio: `{"code": int, "message", "more_info", "status"}`, in newer products `{"errors": […]}`.

The codes are numbers with a page each, and most of them only repeat the status. What is listed
here is what the status does not say: a daily allowance and used-up attempts under 429, a token
that one refresh mends, an account that is closed.

Source: twilio.com/docs/api/errors, the whole list.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from sidecar.envelope.dialects.rule import Rule, words
from sidecar.envelope.dialects.tool import TOOL_RULES, Tool
from sidecar.envelope.dialects.words import AUTHENTICATION, PERMANENT, RATE_LIMIT, TRANSIENT
from sidecar.envelope.model import Envelope, ErrorClass, Verdict

TWILIO_RULES = (
    Rule(
        name="the messages of the day are spent",
        why="63038 counts 24 hours, 30027 a carrier's day",
        codes=words("63038 30027"),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="credit is spent",
        why="60603: SendGrid's credits, behind Verify",
        codes=words("60603"),
        class_=PERMANENT,
        code="credits_exhausted",
    ),
    Rule(
        name="the quota is spent",
        why="60611: the lookups of a package",
        codes=words("60611"),
        class_=PERMANENT,
        code="quota_exhausted",
    ),
    Rule(
        name="no attempts are left",
        why="a cap on one verification or on a number of things, though it may come as 429",
        codes=words("60202 60203 60207 60210 60215 60308 60309 60312 60315"),
        class_=PERMANENT,
    ),
    Rule(
        name="the access token has expired",
        why="a signed token: one refresh mends it",
        codes=words("20104 20156 31205 51119"),
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="the credential or the account is refused",
        why="the number names it, whatever the status says",
        codes=words(
            "10001 20003 20005 20006 20008 20010 20101 20102 20103 20105 20106 20107 20151 20152"
            " 20153 20154 20155 20157 20159 20160 20403 21472 30002 90010"
        ),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="throttled",
        why="calls, connections, messages or rooms at a time or in a second; queues that are full",
        codes=words(
            "10004 14107 16021 20429 21611 30001 30022 31206 31429 45010 45719 45780 50063 50074"
            " 51002 51202 52170 52181 53119 53206 54009 58001 58002 58003 60212 60326 60616 60728"
            " 63017 63018"
        ),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="a passing conflict",
        why="20162: another update of the same thing is in progress",
        codes=words("20162"),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
)

# Clients in typed languages fail on a code that is no number.
_NUMBERS = {
    ErrorClass.AUTHENTICATION: 20003,
    ErrorClass.RATE_LIMIT: 20429,
    ErrorClass.TRANSIENT: 20503,
}


class Twilio(Tool):
    """Twilio's APIs."""

    name = "twilio"
    rules: ClassVar[tuple[Rule, ...]] = (*TWILIO_RULES, *TOOL_RULES)
    code_places: ClassVar[tuple[str, ...]] = ("code", "error_code")
    request_id_headers: ClassVar[tuple[str, ...]] = (
        "twilio-request-id",
        *Tool.request_id_headers,
    )

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """The flat form: Twilio's number for this kind, the envelope's code under `details`.

        Not the form of RFC 9457: for that one the client raises another exception.
        """
        del path
        number = _NUMBERS.get(envelope.class_, status)
        return msgspec.json.encode(
            {
                "code": number,
                "message": envelope.message,
                "more_info": f"https://www.twilio.com/docs/errors/{number}",
                "status": status,
                "details": {"code": envelope.code, "correlation_id": envelope.correlation_id},
                "envelope": envelope,
            }
        )
