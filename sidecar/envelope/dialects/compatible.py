"""Any gateway or server that speaks like OpenAI and whose own ways nobody has written down.

The OpenAI meaning of every code is assumed. Gateways pass on what their upstreams said as prose,
so a few sentences of the large providers are read here; and a quota word with a reset of seconds is
taken for the rate limit that it is.
"""

from __future__ import annotations

from typing import ClassVar

from sidecar.envelope.dialects.anthropic import Anthropic
from sidecar.envelope.dialects.cloudflare_api import CLOUDFLARE_API
from sidecar.envelope.dialects.openai import (
    NUMBERED_MODEL,
    OPENAI_RULES,
    OpenAI,
    names_a_kind_only,
    says_no_model,
    says_no_such_model,
)
from sidecar.envelope.dialects.rule import FIVE, TWO, Rule, statuses
from sidecar.envelope.dialects.words import PERMANENT, RATE_LIMIT, TRANSIENT, VALIDATION
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.model import Envelope, Verdict

CREDIT_TEXT = Rule(
    name="credit is spent",
    why="a gateway passes on the provider's sentence about the balance",
    says=(
        "insufficient balance",
        "insufficient credit",
        "insufficient account balance",
        "exhausted balance",
        "credit balance is too low",
        "balance is insufficient",
        "out of credits",
    ),
    class_=PERMANENT,
    code="credits_exhausted",
)

QUOTA_TEXT = Rule(
    name="the quota is spent",
    why="a gateway passes on OpenAI's sentence without its code",
    says=("you exceeded your current quota",),
    class_=PERMANENT,
    code="quota_exhausted",
)


def _names_a_missing_model(evidence: Evidence) -> bool:
    if evidence.status == 404:
        return says_no_model(evidence)
    says = says_no_model if evidence.status in {400, 422} else says_no_such_model
    return names_a_kind_only(evidence) and says(evidence)


MODEL_TEXT = Rule(
    name="no such model",
    why="a server that has no code for it; only the text tells",
    statuses=TWO | FIVE | statuses(400, 404, 422),
    when=_names_a_missing_model,
    class_=PERMANENT,
    code="model_not_found",
)

LOADING_TEXT = Rule(
    name="the model is still loading",
    why="a cold start is no outage",
    says=("loading model",),
    statuses=statuses(503),
    class_=TRANSIENT,
    code="model_loading",
    verdict=Verdict.ALIVE,
)

NO_CHANNEL = Rule(
    name="no channel for the model",
    why="one-api and new-api: the gateway serves no such model, and says so with a 503",
    says=("no available channel", "无可用渠道"),
    statuses=FIVE | statuses(400, 404, 429),
    class_=PERMANENT,
    code="model_not_found",
)

WRAPPED_TEXT = (
    Rule(
        name="the context is too long",
        why="a gateway names the class of its own exception in the text",
        says=("contextwindowexceedederror",),
        class_=VALIDATION,
        code="context_length_exceeded",
    ),
    Rule(
        name="the content was blocked",
        why="a gateway names the class of its own exception in the text",
        says=("contentpolicyviolationerror",),
        class_=VALIDATION,
        code="content_filtered",
    ),
)

# After the sentences about money: the class of the exception is a mark, what it quotes says more.
WRAPPED_THROTTLE = Rule(
    name="throttled",
    why="a gateway names the class of its own exception in the text",
    says=("ratelimiterror:",),
    class_=RATE_LIMIT,
)

SUCCESS_TEXT = (
    Rule(
        name="overloaded inside a success",
        why="a sentence is all there is under a 2xx",
        says=("overloaded", "at capacity", "server busy", "server is busy"),
        statuses=TWO,
        class_=TRANSIENT,
        code="overloaded",
        verdict=Verdict.FAILURE,
    ),
    Rule(
        name="throttled inside a success",
        why="a sentence is all there is under a 2xx",
        says=("rate limit", "too many requests"),
        statuses=TWO,
        class_=RATE_LIMIT,
    ),
)

COMPATIBLE_RULES = (
    *CLOUDFLARE_API,
    NUMBERED_MODEL,
    *OPENAI_RULES,
    *WRAPPED_TEXT,
    CREDIT_TEXT,
    QUOTA_TEXT,
    WRAPPED_THROTTLE,
    NO_CHANNEL,
    MODEL_TEXT,
    *SUCCESS_TEXT,
)


_ANTHROPIC = Anthropic()


def asks_anthropic(path: str) -> bool:
    """Whether the route is one that Anthropic's clients ask."""
    return path.partition("?")[0].rstrip("/").endswith(("/messages", "/messages/count_tokens"))


class Compatible(OpenAI):
    """A gateway or server that speaks like OpenAI, and like Anthropic where its clients ask."""

    name = "openai-compatible"
    rules: ClassVar[tuple[Rule, ...]] = COMPATIBLE_RULES
    quota_may_be_a_rate: ClassVar[bool] = True

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """In the form that the clients of this route read."""
        if asks_anthropic(path):
            return _ANTHROPIC.error_body(envelope, status, path)
        return super().error_body(envelope, status, path)

    def stream_error(self, envelope: Envelope, path: str) -> bytes:
        """In the form that the clients of this route read."""
        if asks_anthropic(path):
            return _ANTHROPIC.stream_error(envelope, path)
        return super().stream_error(envelope, path)
