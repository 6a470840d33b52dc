"""The back end of ChatGPT plans, which Codex asks: OpenAI's shape, plan windows instead of money.

`error.type` or `error.code` decides; `resets_at` and the `x-codex-*` headers say when a window
reopens. Requests that the plan does not serve come as `{"detail": sentence}`. Its client reads the
`response.failed` of a stream and no other error event.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from sidecar.envelope import retry_after
from sidecar.envelope.dialects.compatible import COMPATIBLE_RULES, Compatible
from sidecar.envelope.dialects.openai import error_object
from sidecar.envelope.dialects.rule import FIVE, TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import PERMANENT, TRANSIENT, VALIDATION
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.model import Envelope, Verdict

_LIMITED = words("usage_limit_reached")


def _reached(evidence: Evidence) -> str:
    """Whose limit was reached, where the back end says so."""
    stated = evidence.headers.get("x-codex-rate-limit-reached-type")
    return stated or str(evidence.error.get("rate_limit_reached_type") or "")


CODEX_RULES = (
    Rule(
        name="a workspace's credits are spent",
        why="the reached type says that its credits ran out",
        codes=_LIMITED,
        when=lambda evidence: _reached(evidence).endswith("credits_depleted"),
        class_=PERMANENT,
        code="credits_exhausted",
    ),
    Rule(
        name="a limit that a workspace set",
        why="the reached type says that it is the workspace's",
        codes=_LIMITED,
        when=lambda evidence: _reached(evidence).startswith("workspace_"),
        class_=PERMANENT,
        code="spend_limit_reached",
    ),
    Rule(
        name="overloaded",
        why="slow_down on a 503 or in a stream is the servers' load, no limit of the caller",
        codes=words("slow_down"),
        statuses=TWO | FIVE,
        class_=TRANSIENT,
        code="overloaded",
        verdict=Verdict.FAILURE,
    ),
    Rule(
        name="the content was blocked",
        why="flagged as a risk: it will be flagged again",
        codes=words("cyber_policy"),
        class_=VALIDATION,
        code="content_filtered",
    ),
    Rule(
        name="no such model",
        why="the plan does not serve it, and only the text tells",
        says=("model is not supported when using codex",),
        statuses=statuses(400, 403, 404),
        class_=PERMANENT,
        code="model_not_found",
    ),
)


class OpenAICodex(Compatible):
    """ChatGPT's back end for Codex."""

    name = "openai-codex"
    rules: ClassVar[tuple[Rule, ...]] = (*CODEX_RULES, *COMPATIBLE_RULES)
    quota_may_be_a_rate: ClassVar[bool] = False

    def resets_in(self, evidence: Evidence) -> float | None:
        """As everywhere, else the latest of the windows whose share is used up."""
        known = super().resets_in(evidence)
        return known if known is not None else max(_spent_windows(evidence), default=None)

    def stream_error(self, envelope: Envelope, path: str) -> bytes:
        """`response.failed`, the one error that Codex reads in a stream."""
        del path
        failed = {
            "type": "response.failed",
            "sequence_number": 0,
            "response": {
                "id": envelope.correlation_id,
                "object": "response",
                "status": "failed",
                "error": error_object(envelope),
            },
        }
        return b"event: response.failed\ndata: " + msgspec.json.encode(failed) + b"\n\n"


def _spent_windows(evidence: Evidence) -> list[float]:
    waits = []
    for window in ("primary", "secondary"):
        used = evidence.headers.get(f"x-codex-{window}-used-percent")
        if used is None or not used.strip().startswith("100"):
            continue
        for name in ("reset-after-seconds", "reset-at"):
            text = evidence.headers.get(f"x-codex-{window}-{name}")
            wait = None if text is None else retry_after.seconds_of(text, evidence.seen.now)
            if wait is not None:
                waits.append(wait)
                break
    return waits
