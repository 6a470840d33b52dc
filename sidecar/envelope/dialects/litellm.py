"""LiteLLM's proxy, new-api and one-api: gateways that pass on what many upstreams said.

The body is OpenAI's. LiteLLM writes the status as a string into `code`, a word of its own into
`type`, and names the class of its exception first in the message; the others have codes of their
own under the types `new_api_error` and `one_api_error`, mostly under 500. What an upstream meant
survives as text. Codes: litellm's proxy/_types.py and exceptions.py, new-api's types/error.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

import msgspec

from sidecar.envelope.dialects.compatible import (
    COMPATIBLE_RULES,
    CREDIT_TEXT,
    QUOTA_TEXT,
    WRAPPED_TEXT,
    Compatible,
)
from sidecar.envelope.dialects.rule import FIVE, TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    PERMANENT,
    RATE_LIMIT,
    VALIDATION,
)
from sidecar.envelope.evidence import Evidence

# The class of the exception stands first, or behind the class that wrapped it.
_EXCEPTION = re.compile(r"\s*(?:litellm\.)?([A-Z]\w{2,40}(?:Error|Timeout))\b")
_WRAPPERS = frozenset({"APIConnectionError", "APIError", "InternalServerError"})


def _exception(evidence: Evidence) -> str:
    """The class that LiteLLM names first, past those that say no more than that it failed."""
    text, named = evidence.message[:400], ""
    for part in text.split(":")[:4]:
        found = _EXCEPTION.fullmatch(part)
        if found is None:
            break
        named = found.group(1)
        if named not in _WRAPPERS:
            break
    return named


def _names_a_day(evidence: Evidence) -> bool:
    """Whether Google's id of the quota says that it is the day's."""
    details = evidence.error.get("details")
    text = msgspec.json.encode(details).decode() if isinstance(details, list) else evidence.message
    return "quotaId" in text and "PerDay" in text


def _raised(*classes: str) -> Callable[[Evidence], bool]:
    """What a rule asks about the class of the exception, where status and type lost it."""
    wanted = frozenset(classes)
    return lambda evidence: _exception(evidence) in wanted


LITELLM_RULES = (
    Rule(
        name="the window of a plan is spent",
        why="Google's id of a quota by the day, in what was passed on",
        statuses=TWO | statuses(429),
        when=_names_a_day,
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="the window of a plan is spent",
        why="an entitlement's day",
        codes=words("entitlement_daily_limit_exceeded"),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="a limit somebody set",
        why="the key's own quota, which its owner can raise",
        codes=words("pre_consume_token_quota_failed entitlement_total_limit_exceeded"),
        class_=PERMANENT,
        code="spend_limit_reached",
    ),
    Rule(
        name="a limit somebody set",
        why="the key's own quota, where only the text tells",
        says=("令牌额度已用尽", "token quota is not enough"),
        statuses=statuses(401, 402, 403, 429, 500),
        class_=PERMANENT,
        code="spend_limit_reached",
    ),
    Rule(
        name="a limit somebody set",
        why="the budget of a key, a team or a user, under the type of a refused key",
        codes=words("auth_error"),
        says=("budget has been exceeded", "over budget", "exceededbudget", "exceededtokenbudget"),
        class_=PERMANENT,
        code="spend_limit_reached",
    ),
    Rule(
        name="credit is spent",
        why="the user's quota, where only the text tells",
        says=("用户额度不足", "user quota is not enough", "用户剩余额度"),
        statuses=statuses(401, 402, 403, 429, 500),
        class_=PERMANENT,
        code="credits_exhausted",
    ),
    Rule(
        name="the credential is refused",
        why="the key, its team or its user has no right to this",
        codes=words(
            "auth_error key_model_access_denied team_model_access_denied user_model_access_denied"
            " org_model_access_denied project_model_access_denied team_member_permission_error"
            " key_vector_store_access_denied team_vector_store_access_denied"
            " org_vector_store_access_denied entitlement_required entitlement_inactive"
        ),
        statuses=TWO | FIVE | statuses(400, 401, 403, 404),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the credential is refused",
        why="not the master key, and there is no database in which it could stand; when there is"
        " one that cannot be reached, the status is 503",
        codes=words("no_db_connection"),
        statuses=statuses(400),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the content was blocked",
        why="a word list or a policy of the gateway",
        codes=words("sensitive_words_detected prompt_blocked violation_fee.grok.csam"),
        class_=VALIDATION,
        code="content_filtered",
    ),
    Rule(
        name="throttled",
        why="too many calls of one key at a time",
        codes=words("token_concurrency_limit_reached"),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the request is at fault",
        why="it cannot be read or put into the upstream's form, whatever the status says",
        codes=words("bad_request_body convert_request_failed read_request_body_failed"),
        statuses=TWO | FIVE,
        class_=VALIDATION,
    ),
    Rule(
        name="no repetition mends it",
        why="the gateway has no price for the model, or no adaptor for its kind",
        codes=words("model_price_error invalid_api_type"),
        class_=PERMANENT,
    ),
    *WRAPPED_TEXT,
    # Before the common codes: the type of a throttle stands beside sentences about money.
    CREDIT_TEXT,
    QUOTA_TEXT,
)

# Last, for what an exception quotes says more than its class.
EXCEPTION_RULES = (
    Rule(
        name="a limit somebody set",
        why="the class of the gateway's exception",
        statuses=TWO | FIVE,
        when=_raised("BudgetExceededError"),
        class_=PERMANENT,
        code="spend_limit_reached",
    ),
    Rule(
        name="the credential is refused",
        why="the class of the gateway's exception",
        statuses=TWO | FIVE,
        when=_raised("AuthenticationError", "PermissionDeniedError"),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the request is at fault",
        why="the class of the gateway's exception",
        statuses=TWO | FIVE,
        when=_raised(
            "BadRequestError",
            "InvalidRequestError",
            "RejectedRequestError",
            "UnprocessableEntityError",
            "UnsupportedParamsError",
        ),
        class_=VALIDATION,
    ),
    Rule(
        name="no repetition mends it",
        why="the class of the gateway's exception",
        statuses=TWO | FIVE,
        when=_raised("NotFoundError"),
        class_=PERMANENT,
    ),
)


class LiteLLM(Compatible):
    """LiteLLM's proxy, new-api or one-api."""

    name = "litellm"
    rules: ClassVar[tuple[Rule, ...]] = (*LITELLM_RULES, *COMPATIBLE_RULES, *EXCEPTION_RULES)
    request_id_headers: ClassVar[tuple[str, ...]] = (
        "x-litellm-call-id",
        "x-oneapi-request-id",
        *Compatible.request_id_headers,
    )
