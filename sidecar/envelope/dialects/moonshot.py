"""Moonshot (Kimi): OpenAI's shape without `code`; `type` decides, and for plans the sentence.

Three conditions share 429: spent money, a rate, an engine without room. A plan's spent window comes
as 403 or 429 under the types of permission and rate. Types: platform.kimi.ai/docs/api/errors and
Kimi Code's error reference.
"""

from __future__ import annotations

from typing import ClassVar

from sidecar.envelope.dialects.compatible import COMPATIBLE_RULES, Compatible
from sidecar.envelope.dialects.openai import SIZE_STATUSES
from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.dialects.words import AUTHENTICATION, PERMANENT, VALIDATION

MOONSHOT_RULES = (
    Rule(
        name="the window of a plan is spent",
        why="a period or a billing cycle, under 403 as under 429; only the text tells",
        says=("reached your usage limit", "quota will be refreshed in the next"),
        statuses=statuses(402, 403, 429),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="the day is spent",
        why="the type of a rate limit; the limit's name, tokens per day, stands in the text",
        codes=words("rate_limit_reached_error"),
        says=("tpd rate limit",),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="the context is too long",
        why="the type of any bad request; only the text tells",
        codes=words("invalid_request_error"),
        says=("input token length too long", "exceeded model token limit"),
        statuses=SIZE_STATUSES,
        class_=VALIDATION,
        code="context_length_exceeded",
    ),
    Rule(
        name="no such model",
        why="the type of anything that is missing; the sentence names the model",
        codes=words("resource_not_found_error"),
        says=("found the model", "model does not exist"),
        class_=PERMANENT,
        code="model_not_found",
    ),
    Rule(
        name="the credential is refused",
        why="types of keys and of accounts that are shut",
        codes=words("incorrect_api_key_error access_terminated_error"),
        class_=AUTHENTICATION,
    ),
)


class Moonshot(Compatible):
    """Moonshot's platform and Kimi's coding plan."""

    name = "moonshot"
    rules: ClassVar[tuple[Rule, ...]] = (*MOONSHOT_RULES, *COMPATIBLE_RULES)
