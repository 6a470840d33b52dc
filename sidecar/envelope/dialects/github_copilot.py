"""GitHub Copilot: OpenAI's shape, plain sentences where its own gateway answers.

402 is the plan's allowance, which money or the next month mends; 422 is its content filter; a
session token lives half an hour and is renewed by exchange. Codes as its open client reads them
(microsoft/vscode-copilot-chat).
"""

from __future__ import annotations

from typing import ClassVar

from sidecar.envelope.dialects.compatible import COMPATIBLE_RULES, Compatible
from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.dialects.words import AUTHENTICATION, PERMANENT, RATE_LIMIT, VALIDATION

COPILOT_RULES = (
    Rule(
        name="the allowance is spent",
        why="a quota is the plan's allowance here, on whatever status",
        codes=words("quota_exceeded"),
        class_=PERMANENT,
        code="quota_exhausted",
    ),
    Rule(
        name="a limit somebody set",
        why="the budget for what exceeds the plan",
        codes=words("overage_limit_reached"),
        class_=PERMANENT,
        code="spend_limit_reached",
    ),
    Rule(
        name="the window of a plan is spent",
        why="the code names the week",
        codes=words("user_weekly_rate_limited weekly_rate_limited"),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="throttled",
        why="limits of a user, of a model, of an integration, of the provider behind",
        codes=words(
            "user_global_rate_limited user_model_rate_limited integration_rate_limited"
            " agent_mode_limit_exceeded upstream_provider_rate_limit"
        ),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the client is blocked",
        why="under 429, but no wait lets this extension in",
        codes=words("extension_blocked"),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="no such model",
        why="it does not exist, or not in this plan",
        codes=words("model_not_supported"),
        class_=PERMANENT,
        code="model_not_found",
    ),
    Rule(
        name="the content was blocked",
        why="not about programming",
        codes=words("off_topic"),
        class_=VALIDATION,
        code="content_filtered",
    ),
    Rule(
        name="the content was blocked",
        why="422 is the content filter, whose body has no code",
        statuses=statuses(422),
        when=lambda evidence: evidence.code is None,
        class_=VALIDATION,
        code="content_filtered",
    ),
    Rule(
        name="the session token has expired",
        why="half an hour old; the exchange gives another, and only a sentence tells",
        says=("token expired", "token has expired"),
        statuses=statuses(401, 403),
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
)


class GitHubCopilot(Compatible):
    """GitHub Copilot's API for models."""

    name = "github-copilot"
    rules: ClassVar[tuple[Rule, ...]] = (*COPILOT_RULES, *COMPATIBLE_RULES)
    request_id_headers: ClassVar[tuple[str, ...]] = (
        "x-github-request-id",
        *Compatible.request_id_headers,
    )
