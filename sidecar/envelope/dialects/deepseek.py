"""DeepSeek: OpenAI's shape with a `code` that contradicts its `type`; the status decides.

A finish reason `insufficient_system_resource` is an overload inside a 200. Blank lines before an
answer and comments in a stream are signs of life.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from sidecar.envelope.dialects.compatible import MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, OpenAI
from sidecar.envelope.dialects.rule import Rule, statuses
from sidecar.envelope.dialects.words import PERMANENT, TRANSIENT
from sidecar.envelope.model import Seen

BALANCE = Rule(
    name="the balance is spent",
    why="402, whatever type and code say",
    statuses=statuses(402),
    class_=PERMANENT,
    code="credits_exhausted",
)
OVERLOADED = Rule(
    name="overloaded",
    why="503 is documented as too much traffic",
    statuses=statuses(503),
    when=lambda evidence: not evidence.html,
    class_=TRANSIENT,
    code="overloaded",
)


class DeepSeek(OpenAI):
    """DeepSeek's API."""

    name = "deepseek"
    rules: ClassVar[tuple[Rule, ...]] = (BALANCE, *OPENAI_RULES, OVERLOADED, MODEL_TEXT)
    code_places: ClassVar[tuple[str, ...]] = ("type", "code")
    failing_reasons: ClassVar[Mapping[str, str]] = {
        **OpenAI.failing_reasons,
        "insufficient_system_resource": "insufficient_system_resource",
    }

    def may_hold_error(self, body: bytes, seen: Seen) -> bool:
        """As everywhere, and for the finish reason of an overload."""
        return b'"insufficient_system_resource"' in body or super().may_hold_error(body, seen)
