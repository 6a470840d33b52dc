"""Slack: `{"ok": false, "error": "code"}` under 200, whatever went wrong.

The code is all there is, so the list of the codes is the dialect. Some say the opposite of what
they mean: `request_timeout` is a body that was cut on the way to Slack, and a workspace that moves
into an organisation asks for a login for a while. Incoming webhooks answer with an honest status
and the code as plain text. Their addresses are their credentials.

Sources: the error tables of the 300 methods at docs.slack.dev/reference/methods, /apis/web-api/
rate-limits and /messaging/sending-messages-using-incoming-webhooks.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec

from sidecar.envelope.dialects.rule import TWO, Rule, words
from sidecar.envelope.dialects.tool import TOOL_RULES, Tool
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    PERMANENT,
    RATE_LIMIT,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import as_word, normal
from sidecar.envelope.locate import Found
from sidecar.envelope.model import Envelope, ErrorClass, Seen, Verdict

_REFUSED = re.compile(rb'"ok"\s*:\s*false')
_CODE = re.compile(rb"[a-z][a-z0-9]*(?:_[a-z0-9]+)*+")
_LONGEST_CODE = 64

_MALFORMED_STARTS = (
    "invalid_", "missing_", "malformed_", "bad_", "unsupported_", "unexpected_", "error_bad_",
    "error_invalid_", "error_missing_", "json_",
)  # fmt: skip
_MALFORMED_ENDS = (
    "_too_long", "_too_short", "_too_large", "_too_big", "_too_many", "_required", "_invalid",
    "_malformed", "_provided", "_bad_format",
)  # fmt: skip
_PASSING_ENDS = ("_in_progress", "_migrating")


def _code(evidence: Evidence) -> str:
    return (evidence.code or "").lower()


def _is_malformed(evidence: Evidence) -> bool:
    return _code(evidence).startswith(_MALFORMED_STARTS) or _code(evidence).endswith(
        _MALFORMED_ENDS
    )


def _is_passing(evidence: Evidence) -> bool:
    return _code(evidence).endswith(_PASSING_ENDS)


SLACK_RULES = (
    Rule(
        name="the credential is refused",
        why="the token is none, is gone, or is of a kind that this method does not take",
        codes=words(
            "invalid_auth not_authed token_revoked account_inactive not_allowed_token_type"
            " not_bearer_token bad_token invalid_token invalid_refresh_token"
            " invalid_action_token token_already_exchanged authorization_not_found auth_mismatch"
            " cannot_auth_user invalid_client invalid_client_id invalid_grant bad_client_secret"
            " client_id_token_mismatch invalid_code code_expired code_already_used"
            " two_factor_setup_required is_bot user_is_bot user_disabled"
            " access_token_exchange_failed sudo_required"
        ),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the credential lacks a permission",
        why="a scope, a role, the network, or what the administrators allow",
        codes=words(
            "missing_scope access_denied accesslimited no_permission no_perms no_access"
            " permission_denied invalid_permissions admin_unauthorized not_an_admin not_an_owner"
            " not_admin not_owner not_app_admin not_authorized not_permitted not_allowed"
            " user_must_be_admin user_is_restricted user_is_ultra_restricted ekm_access_denied"
            " enterprise_is_restricted team_access_not_granted forbidden_team"
            " app_access_restricted restricted_action restricted_action_non_threadable_channel"
            " restricted_action_read_only_channel restricted_action_thread_locked"
            " restricted_action_thread_only_channel no_external_invite_permission"
            " posting_to_general_channel_denied posting_to_channel_denied"
            " channel_is_limited_access action_prohibited"
        ),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="throttled",
        why="spellings of single methods beside the usual one",
        codes=words("ratelimit"),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the quota is spent",
        why="what a plan or a team may use is used up",
        codes=words("message_limit_exceeded team_quota_exceeded"),
        class_=PERMANENT,
        code="quota_exhausted",
    ),
    Rule(
        name="not in the plan",
        why="what only paid workspaces may do",
        codes=words(
            "paid_only paid_teams_only not_paid plan_upgrade_required free_team_not_allowed"
            " restricted_plan_level"
        ),
        class_=PERMANENT,
    ),
    Rule(
        name="the body was cut on its way to Slack",
        why="request_timeout: the data of the request were missing or truncated",
        codes=words("request_timeout"),
        statuses=TWO,
        class_=VALIDATION,
    ),
    Rule(
        name="the workspace is moving",
        why="a migration into an organisation or between channels, or an edit that is in progress",
        codes=words("team_added_to_org org_login_required canvas_editing_locked"),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="the workspace is moving",
        why="the code says that something is in progress",
        statuses=TWO,
        when=_is_passing,
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="the server failed",
        why="a fault of Slack's; part of the work may be done",
        codes=words(
            "fatal_error internal_error service_unavailable endpoint_unavailable datastore_error"
            " rollup_error"
        ),
        class_=TRANSIENT,
        verdict=Verdict.FAILURE,
    ),
    Rule(
        name="the request is at fault",
        why="an argument, its form or its size",
        codes=words(
            "no_text no_query no_name no_channel no_user no_users no_email no_file no_file_data"
            " no_item_specified no_scopes no_user_scopes limit_required too_many_attachments"
            " too_many_users too_many_ids too_many_emails too_many_teams over_pagination_limit"
            " attachment_payload_limit_exceeded validation_errors markdown_text_conflict"
            " too_many_contact_cards too_many_entities too_many_named_entities"
            " too_many_target_teams too_long too_large cannot_parse cannot_parse_attachment"
            " time_in_past time_too_far recipients_not_specified parameter_validation_failed"
            " trigger_expired expired_trigger_id"
        ),
        statuses=TWO,
        class_=VALIDATION,
    ),
)

MALFORMED = Rule(
    name="the request is at fault",
    why="the beginning or the end of the code says so",
    statuses=TWO,
    when=_is_malformed,
    class_=VALIDATION,
)


class Slack(Tool):
    """Slack's Web API and its webhooks."""

    name = "slack"
    rules: ClassVar[tuple[Rule, ...]] = (*SLACK_RULES, *TOOL_RULES, MALFORMED)
    code_places: ClassVar[tuple[str, ...]] = ("code",)
    reads_errors_in_2xx: ClassVar[bool] = True
    request_id_headers: ClassVar[tuple[str, ...]] = ("x-slack-req-id",)
    reading_routes: ClassVar[tuple[str, ...]] = (
        ".list", ".info", ".history", ".replies", ".members", ".get", ".test", ".getPresence",
        ".lookupByEmail", ".identity", ".search", ".messages", ".files", ".all", ".conversations",
    )  # fmt: skip
    native_codes: ClassVar[dict[ErrorClass, str]] = {ErrorClass.RATE_LIMIT: "ratelimited"}
    secret_paths: ClassVar[tuple[re.Pattern[str], ...]] = (
        re.compile(
            r"/(?:actions|app|commands|services|shortcuts|triggers|workflows)/[TE][A-Z0-9]{2,20}"
            r"/([^/]+)(?:/([^/]+))?(?:/([^/]+))?"
        ),
    )

    def may_hold_error(self, body: bytes, seen: Seen) -> bool:
        """Whether `ok` is false anywhere; a text that says so is escaped in JSON."""
        del seen
        # As Slack writes every good answer.
        if body.startswith(b'{"ok":true'):
            return False
        return b'"ok"' in body and _REFUSED.search(body) is not None

    def locate(self, body: Any, seen: Seen) -> Found | None:
        """The body, if its `ok` is false; in SCIM the description, which is a code or a phrase."""
        if isinstance(body, dict) and body.get("ok") is False:
            return Found(_named(body), body)
        if seen.status < 400:
            return None
        scim = body.get("Errors") if isinstance(body, dict) else None
        if isinstance(scim, dict) and isinstance(scim.get("description"), str):
            return Found({"code": scim["description"], "message": scim["description"]}, body)
        return super().locate(body, seen)

    def read(self, found: Found, seen: Seen, *, stream: bool = False) -> Evidence:
        """The evidence; whatever stands as the code is one, also `unknown_error`."""
        evidence = super().read(found, seen, stream=stream)
        if evidence.code is not None:
            return evidence
        return msgspec.structs.replace(evidence, code=as_word(found.error.get("code")))

    def read_text(self, seen: Seen) -> Evidence:
        """A text that is nothing but a code, as webhooks answer."""
        evidence = super().read_text(seen)
        text = seen.body[: _LONGEST_CODE + 2].strip()
        if len(text) > _LONGEST_CODE or _CODE.fullmatch(text) is None:
            return evidence
        code = text.decode("ascii")
        return msgspec.structs.replace(evidence, code=code, words={normal(code): code})

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """`ok` and `error`; what more there is to say stands where Slack itself says it."""
        del status, path
        return msgspec.json.encode(
            {
                "ok": False,
                "error": self.native_code(envelope),
                "response_metadata": {"messages": [envelope.message]},
                "envelope": envelope,
            }
        )


def _named(body: dict[str, Any]) -> dict[str, Any]:
    """The error as members that are read everywhere: `code`, and a message that says what to do."""
    error = body.get("error")
    if isinstance(error, dict):
        return error
    code = error if isinstance(error, str) else ""
    told = _told(body)
    return {"code": code, "message": f"{code}: {told}" if told else code or "ok: false"}


def _told(body: dict[str, Any]) -> str:
    """What Slack says beside the code: messages, or the scopes that are needed and provided."""
    metadata = body.get("response_metadata")
    messages = metadata.get("messages") if isinstance(metadata, dict) else None
    messages = messages if isinstance(messages, list) else []
    lines = [line for line in messages if isinstance(line, str)]
    lines += [
        f"{name} {value}"
        for name in ("needed", "provided", "detail", "arg")
        if isinstance(value := body.get(name), str) and value
    ]
    return "; ".join(lines)
