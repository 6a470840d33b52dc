"""OpenRouter: errors of many upstreams under one roof, often inside a 200.

`error.code` is an integer HTTP status, `metadata.error_type` the code, `metadata.limit_source` says
whose limit it was, `metadata.raw` holds what the upstream said. The error may stand beside partial
choices, or inside the first of them.
"""

from __future__ import annotations

from typing import ClassVar

from sidecar.envelope.dialects.compatible import MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, OpenAI
from sidecar.envelope.dialects.rule import FIVE, TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    PERMANENT,
    RATE_LIMIT,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import at
from sidecar.envelope.model import Verdict


def _flagged(evidence: Evidence) -> bool:
    return bool(
        at(evidence.error, "metadata.reasons") or at(evidence.error, "metadata.flagged_input")
    )


def _says_nothing_of_itself(evidence: Evidence) -> bool:
    return (
        at(evidence.error, "metadata.error_type") is None
        and "retry-after" not in evidence.headers
        and not evidence.html
        and bool(evidence.error)
    )


OPENROUTER_RULES = (
    Rule(
        name="the request is too expensive",
        why="this one request exceeds what is left, or a cap on its tokens that credit sets",
        codes=words("weight_exceeds_budget token_limit_exceeded"),
        class_=PERMANENT,
        code="request_over_budget",
    ),
    Rule(
        name="running requests hold the budget",
        why="402, but it clears when they finish: a throttle",
        codes=words("in_flight_budget_exhausted openrouter_in_flight_budget"),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the request is too expensive",
        why="402 without a source: the sentence counts tokens against what is left",
        says=("can only afford", "fewer max_tokens", "tokens limit exceeded"),
        statuses=statuses(402),
        class_=PERMANENT,
        code="request_over_budget",
    ),
    Rule(
        name="a limit somebody set",
        why="the limit source is a key, a workspace or a guardrail with a budget",
        codes=words(
            "openrouter_key_limit openrouter_workspace_budget openrouter_guardrail_budget"
            " openrouter_member_budget openrouter_organization_budget openrouter_budget"
        ),
        class_=PERMANENT,
        code="spend_limit_reached",
    ),
    Rule(
        name="a limit somebody set",
        why="without a limit source only the text tells the key's own cap",
        says=("key limit exceeded",),
        statuses=statuses(402, 403),
        class_=PERMANENT,
        code="spend_limit_reached",
    ),
    Rule(
        name="no credits",
        why="the limit source is the account's credit",
        codes=words("openrouter_credits"),
        statuses=statuses(402, 403),
        class_=PERMANENT,
        code="credits_exhausted",
    ),
    Rule(
        name="no credits",
        why="402 with a sentence about credits",
        says=("insufficient credits", "never purchased credits", "add more credits"),
        statuses=statuses(402),
        class_=PERMANENT,
        code="credits_exhausted",
    ),
    Rule(
        name="the content was blocked",
        why="403 with reasons or the flagged input is moderation, not permission",
        statuses=statuses(403),
        when=_flagged,
        class_=VALIDATION,
        code="content_filtered",
    ),
    Rule(
        name="the content was blocked",
        why="a guardrail or a moderation refused it",
        codes=words(
            "moderation content_moderation guardrail guardrail_blocked content_policy refusal"
        ),
        class_=VALIDATION,
        code="content_filtered",
    ),
    Rule(
        name="the content was blocked",
        why="403 by a guardrail; only the text tells",
        says=("guardrail",),
        statuses=statuses(403),
        class_=VALIDATION,
        code="content_filtered",
    ),
    Rule(
        name="the free requests of the day are spent",
        why="only the name of the limit in the text tells it from the one per minute",
        says=("free-models-per-day",),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="no endpoint serves the model",
        why="404 on a model route: an unknown model, or a filter that leaves nobody",
        statuses=statuses(404),
        says=("no endpoints found", "model", "no allowed providers"),
        class_=PERMANENT,
        code="model_not_found",
    ),
    Rule(
        name="the upstream refused the credential",
        why="the error type is right where the native code says server_error",
        codes=words("authentication permission permission_denied"),
        statuses=TWO | FIVE,
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the request is at fault",
        why="an error type inside a 200",
        codes=words(
            "invalid_request validation bad_request invalid_prompt unprocessable string_too_long"
            " max_tokens_exceeded invalid_image image_too_large image_too_small"
            " unsupported_image_format image_not_found image_download_failed"
        ),
        statuses=TWO | FIVE,
        class_=VALIDATION,
    ),
    Rule(
        name="no repetition mends it",
        why="an error type inside a 200 where the native code says server_error",
        codes=words("not_found precondition_failed payload_too_large"),
        statuses=TWO | FIVE,
        class_=PERMANENT,
    ),
)

FILTERED = Rule(
    name="the caller's filter leaves nobody",
    why="503 without an error type or a wait: likely a routing filter, so it is not counted",
    statuses=statuses(503),
    when=_says_nothing_of_itself,
    class_=TRANSIENT,
    verdict=Verdict.ALIVE,
)


class OpenRouter(OpenAI):
    """OpenRouter's API, in each of its skins."""

    name = "openrouter"
    rules: ClassVar[tuple[Rule, ...]] = (*OPENROUTER_RULES, *OPENAI_RULES, MODEL_TEXT, FILTERED)
    code_places: ClassVar[tuple[str, ...]] = (
        "metadata.reason",
        "metadata.error_type",
        "error_type",
        "code",
        "type",
    )
    word_places: ClassVar[tuple[str, ...]] = ("metadata.limit_source",)
