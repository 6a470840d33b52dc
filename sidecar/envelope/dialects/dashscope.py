"""DashScope (Alibaba's Model Studio): one list of codes, in a native and in OpenAI's shape.

Native bodies are `{"code", "message", "request_id"}`, at times under a 200; native events carry
their status in a field `status:`. `insufficient_quota` is the opposite of OpenAI's: tokens per
minute, which clear by themselves. Codes: help.aliyun.com/en/model-studio/error-code.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sidecar.envelope.dialects.base import Heard
from sidecar.envelope.dialects.compatible import COMPATIBLE_RULES, Compatible
from sidecar.envelope.dialects.openai import SIZE_STATUSES
from sidecar.envelope.dialects.rule import FIVE, FOUR, TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    PERMANENT,
    RATE_LIMIT,
    VALIDATION,
)
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import at
from sidecar.envelope.locate import Found
from sidecar.envelope.model import Seen


def _begins(evidence: Evidence, *families: str) -> bool:
    """Whether a code is of a family: `Throttling.RateQuota` is of `throttling`."""
    return any(word.startswith(families) for word in evidence.words)


DASHSCOPE_RULES = (
    Rule(
        name="the free quota is spent",
        why="it does not come back; paying, or leaving the mode for free use only, mends it",
        codes=words("AllocationQuota.FreeTierOnly"),
        class_=PERMANENT,
        code="quota_exhausted",
    ),
    Rule(
        name="the free quota is spent",
        why="older answers say it with a throttle's code; only the text tells",
        codes=words("Throttling.AllocationQuota"),
        says=("free allocated quota",),
        class_=PERMANENT,
        code="quota_exhausted",
    ),
    Rule(
        name="credit is spent",
        why="a bill is overdue",
        codes=words("Arrearage PrepaidBillOverdue PostpaidBillOverdue"),
        class_=PERMANENT,
        code="credits_exhausted",
    ),
    Rule(
        name="a spend limit is reached",
        why="only whoever set the budget can mend it",
        codes=words("BudgetLimitExceeded"),
        class_=PERMANENT,
        code="spend_limit_reached",
    ),
    Rule(
        name="refused for lack of capacity",
        why="the service is full: a throttle, not an outage",
        codes=words("Throttling.ServiceOverloaded"),
        statuses=FOUR,
        class_=RATE_LIMIT,
        code="overloaded",
    ),
    Rule(
        name="throttled",
        why="calls or tokens per minute; insufficient_quota is one of them here",
        codes=words("insufficient_quota LimitRequests limit_requests limit_burst_rate"),
        statuses=TWO | statuses(403, 429),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="throttled",
        why="the family of Throttling",
        when=lambda evidence: _begins(evidence, "throttling"),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="not bought, or no right to it",
        why="an access that somebody has to grant or to order",
        codes=words(
            "InvalidApiKey CommodityNotPurchased AccessDenied.Unpurchased Workspace.AccessDenied"
            " Model.AccessDenied App.AccessDenied"
        ),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="no such model",
        why="it does not exist, or not for this way of calling",
        codes=words("ModelNotFound model_not_found model_not_supported UnsupportedModel"),
        class_=PERMANENT,
        code="model_not_found",
    ),
    Rule(
        name="the content was blocked",
        why="inspection, suspected infringement, or a rule of the application",
        codes=words(
            "DataInspectionFailed data_inspection_failed IPInfringementSuspect FaqRuleBlocked"
            " CustomRoleBlocked"
        ),
        class_=VALIDATION,
        code="content_filtered",
    ),
    Rule(
        name="the context is too long",
        why="the code of any bad parameter; only the text tells",
        says=("range of input length", "total message token length exceed"),
        statuses=SIZE_STATUSES,
        class_=VALIDATION,
        code="context_length_exceeded",
    ),
    Rule(
        name="the request is at fault",
        why="the families of InvalidParameter and BadRequest, whatever the status says",
        statuses=TWO | FIVE,
        when=lambda evidence: _begins(
            evidence, "invalidparameter", "invalid_parameter", "badrequest.", "invalidschema"
        ),
        class_=VALIDATION,
    ),
    Rule(
        name="the request is at fault",
        why="the rest of the codes that are documented for 400",
        codes=words(
            "InvalidURL UnsupportedOperation FlowNotPublished InvalidFile InvalidFile.Format"
            " InvalidFile.Size InvalidFile.Duration InvalidImageFormat InvalidImageResolution"
            " mismatched_model duplicate_custom_id"
        ),
        statuses=TWO | FIVE,
        class_=VALIDATION,
    ),
)

# Routes that answer at once and change nothing; drawing and filming start jobs.
_REPEATABLE = ("/text-generation/generation", "/multimodal-generation/generation",
               "/text-embedding/text-embedding", "/text-rerank/text-rerank")  # fmt: skip


class DashScope(Compatible):
    """DashScope's native API and its mode that is compatible with OpenAI's."""

    name = "dashscope"
    rules: ClassVar[tuple[Rule, ...]] = (*DASHSCOPE_RULES, *COMPATIBLE_RULES)

    def is_model_route(self, method: str, path: str) -> bool:
        """As everywhere, and the native routes that answer at once."""
        route = path.partition("?")[0].rstrip("/")
        return super().is_model_route(method, path) or (
            method == "POST" and route.endswith(_REPEATABLE)
        )

    def may_hold_error(self, body: bytes, seen: Seen) -> bool:
        """As everywhere, and for a code where no output stands."""
        return (
            b'"output"' not in body and b'"code"' in body and len(body) < 4096
        ) or super().may_hold_error(body, seen)

    def locate(self, body: Any, seen: Seen) -> Found | None:
        """As everywhere, and a native body under a 200: a code and no output."""
        if (
            isinstance(body, dict)
            and _is_code(body.get("code"))
            and isinstance(body.get("message"), str)
            and not body.get("output")
            and body.keys() <= _NATIVE
        ):
            return Found(body, body)
        return super().locate(body, seen)

    def hear(self, name: str | None, value: dict[str, Any]) -> Heard | None:
        """A native event of an answer; its finish reason is the word `null` until the end."""
        output = value.get("output")
        if name == "error" or not isinstance(output, dict):
            return None
        reason = output.get("finish_reason")
        choices = output.get("choices")
        if isinstance(choices, list) and choices:
            reason = at(choices[0], "finish_reason")
        done = isinstance(reason, str) and reason not in {"", "null"}
        return Heard(content=True, done=done)


def _is_code(code: Any) -> bool:
    """Whether a member `code` names an error: it is empty, or a number, where there is none."""
    return isinstance(code, str) and code[:1].isalpha() and code.lower() not in {"success", "ok"}


_NATIVE = frozenset({"code", "message", "request_id", "status_code", "output", "usage", "data"})
