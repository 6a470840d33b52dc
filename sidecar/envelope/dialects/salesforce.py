"""Salesforce: REST, Composite, both Bulk APIs, the SOAP login and GraphQL.

REST errors are an array of `{"errorCode", "message", "fields"}`. The first Bulk API says
`exceptionCode`, mostly in XML, and a SOAP fault comes with a 500 whoever is at fault. A 2xx that
reports on single records is an answer, whatever happened to them.
Sources: developer.salesforce.com on REST status codes, Bulk API errors and SOAP status codes.
"""

from __future__ import annotations

import re
from html import unescape
from typing import ClassVar

import msgspec

from sidecar.envelope.dialects.graphql_errors import GRAPHQL_RULES, WITHOUT_CODE, GraphQLErrors
from sidecar.envelope.dialects.rule import FIVE, Rule, statuses, words
from sidecar.envelope.dialects.words import AUTHENTICATION, PERMANENT, RATE_LIMIT, TRANSIENT
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import normal
from sidecar.envelope.locate import Found
from sidecar.envelope.model import Envelope, ErrorClass, Seen, Verdict

_XML_CODE = re.compile(r"<(?:\w{1,16}:)?exceptionCode>\s{0,64}(\w{1,64})")
_XML_MESSAGE = re.compile(r"<(?:\w{1,16}:)?exceptionMessage>([^<]{1,2000})")

SALESFORCE_RULES = (
    Rule(
        name="the session is over",
        why="expired or invalid is not told apart: one refresh mends the usual case",
        codes=words("invalid_session_id InvalidSessionId"),
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="logins come too fast",
        why="the token endpoint calls it a dead grant; only the text tells",
        says=("login rate exceeded",),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="too many requests at once",
        why="the same code as a spent day; only the text tells that it clears by itself",
        codes=words("request_limit_exceeded"),
        says=("concurrent",),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the allowance of 24 hours is spent",
        why="a rolling day that a plan sells",
        codes=words("request_limit_exceeded ExceededQuota"),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="too much work at once",
        why="other requests of the same organisation run: they end",
        codes=words("too_many_apex_requests txn_security_metering_error"),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="no room or no licence",
        why="space, licences and the mails of a day: no repetition makes more of them",
        codes=words(
            "storage_limit_exceeded license_limit_exceeded single_email_limit_exceeded"
            " mass_mail_limit_exceeded massmail_retry_limit_exceeded limit_exceeded"
        ),
        class_=PERMANENT,
    ),
    Rule(
        name="another change is under way",
        why="a lock or a rebuild that ends by itself, under a client's status",
        codes=words(
            "unable_to_lock_row TooManyLockFailure already_in_process"
            " territory_realign_in_progress"
            " insert_update_delete_not_allowed_during_maintenance api_currently_disabled"
        ),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="the request ran too long",
        why="stopped by a limit on its time, which depends on what else runs; the server is well",
        codes=words("query_timeout request_running_too_long Timeout"),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="the service is away for a while",
        why="the word for an outage, also where a 4xx carries it",
        codes=words(
            "server_unavailable platform_event_publishing_unavailable platform_event_publish_failed"
        ),
        statuses=FIVE | statuses(400, 403),
        class_=TRANSIENT,
    ),
    Rule(
        name="the login or the right is refused",
        why="a SOAP fault is a 500 and a missing right a 400",
        codes=words(
            "invalid_login invalid_auth_header invalid_operation_with_expired_password"
            " login_challenge_issued login_challenge_pending login_must_use_security_token"
            " login_during_restricted_domain login_during_restricted_time login_oauth_failed"
            " password_lockout org_locked inactive_owner_or_user inactive_user inactive_org"
            " invalid_app_access api_disabled_for_org functionality_not_enabled"
            " insufficient_access insufficient_access_or_readonly"
            " insufficient_access_on_cross_reference_entity apex_rest_services_disabled"
            " community_not_accessible FeatureNotEnabled InvalidUser InvalidProxyUser"
        ),
        class_=AUTHENTICATION,
    ),
)


class Salesforce(GraphQLErrors):
    """Salesforce's platform APIs."""

    name = "salesforce"
    rules: ClassVar[tuple[Rule, ...]] = (*SALESFORCE_RULES, *GRAPHQL_RULES, WITHOUT_CODE)
    code_places: ClassVar[tuple[str, ...]] = (
        "errorCode",
        "exceptionCode",
        "extensions.code",
        "extensions.ErrorType",
    )
    request_id_headers: ClassVar[tuple[str, ...]] = (
        "x-sfdc-request-id",
        *GraphQLErrors.request_id_headers,
    )
    reading_routes: ClassVar[tuple[str, ...]] = ("/parameterizedSearch", "/composite/sobjects/read")
    native_codes: ClassVar[dict[ErrorClass, str]] = {
        # Its own word for a limit may mean the whole day: nobody shall stop for that long.
        ErrorClass.RATE_LIMIT: "SERVER_UNAVAILABLE",
        ErrorClass.TRANSIENT: "SERVER_UNAVAILABLE",
    }

    def read(self, found: Found, seen: Seen, *, stream: bool = False) -> Evidence:
        """The evidence, with the fields that the error blames."""
        evidence = super().read(found, seen, stream=stream)
        message = evidence.error.get("exceptionMessage")
        fields = evidence.error.get("fields")
        fields = fields if isinstance(fields, list) else []
        blamed = ", ".join(name for name in fields if isinstance(name, str))
        return msgspec.structs.replace(
            evidence,
            message=evidence.message or (message if isinstance(message, str) else ""),
            param=blamed or evidence.param,
        )

    def read_text(self, seen: Seen) -> Evidence:
        """The evidence in XML: of the first Bulk API, or of a SOAP fault."""
        evidence = super().read_text(seen)
        text = seen.body[:16384].decode("utf-8", "replace")
        code = _XML_CODE.search(text)
        if code is None:
            return evidence
        message = _XML_MESSAGE.search(text)
        return msgspec.structs.replace(
            evidence,
            code=code[1],
            words={normal(code[1]): code[1]},
            message=unescape(message[1]).strip() if message else evidence.message,
        )

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """An array of one, the envelope in it: its clients look at the first item."""
        if self.speaks_graphql(path):
            return super().error_body(envelope, status, path)
        error = {
            "errorCode": self.native_code(envelope),
            "message": envelope.message,
            "fields": [],
            "envelope": envelope,
        }
        return msgspec.json.encode([error])
