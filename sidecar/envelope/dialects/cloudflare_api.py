"""Cloudflare's own API, Workers AI among it: `success: false` and a list of numbered errors.

The numbers mean something beside `success: false` alone (developers.cloudflare.com/workers-ai/
platform/errors); a day's free allowance and a lack of capacity are both 429.
"""

from __future__ import annotations

from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.dialects.words import AUTHENTICATION, PERMANENT, RATE_LIMIT
from sidecar.envelope.evidence import Evidence


def _is_unsuccessful(evidence: Evidence) -> bool:
    return isinstance(evidence.body, dict) and evidence.body.get("success") is False


CLOUDFLARE_API = (
    Rule(
        name="refused by Cloudflare's own API",
        why="success: false with the number of a refused credential",
        codes=words("10000 9106 9107 9109 6003 6111 1000001"),
        when=_is_unsuccessful,
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the day of a plan is spent",
        why="Workers AI: the free allowance of a day, under 429",
        codes=words("3036"),
        statuses=statuses(429),
        when=_is_unsuccessful,
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="refused for lack of capacity",
        why="Workers AI: no data center has a place left; the others 429 are of the caller",
        codes=words("3040"),
        statuses=statuses(429),
        when=_is_unsuccessful,
        class_=RATE_LIMIT,
        code="overloaded",
    ),
    Rule(
        name="no such model",
        why="Workers AI: a name that it does not know, or that is none",
        codes=words("5007 3042"),
        statuses=statuses(400, 404),
        when=_is_unsuccessful,
        class_=PERMANENT,
        code="model_not_found",
    ),
)
