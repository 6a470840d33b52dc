"""Says in words what a status suggests and what an answer meant, where the two differ.

A table, because the page and the terminal say the same: "503 said model_not_found: a typo, not an
outage".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_BUDGET = "a spent budget"

_SUGGESTS: Final[Mapping[str, str]] = {
    "2": "a success",
    "3": "a redirect",
    "4": "a refusal",
    "5": "an outage",
    "401": "a bad key",
    "402": "a spent budget",
    "403": "a missing permission",
    "404": "something missing",
    "408": "a timeout",
    "429": "a burst",
}
"""By status, else by its first digit."""

_MEANT: Final[Mapping[str, str]] = {
    "model_not_found": "a typo",
    "context_length_exceeded": "too long a prompt",
    "content_filtered": "blocked content",
    "token_expired": "a credential to renew",
    "overloaded": "an overload",
    "model_loading": "a model that is loading",
    "credits_exhausted": _BUDGET,
    "spend_limit_reached": "a spending limit",
    "plan_window_exhausted": "a spent plan",
    "quota_exhausted": _BUDGET,
    "request_over_budget": "too costly a request",
    "validation": "a bad request",
    "authentication": "a bad key",
    "rate_limit": "a rate limit",
    "transient": "a fault that passes",
    "permanent": "a call that cannot succeed",
}
"""By code, else by class."""

IN_WORDS: Final[Mapping[str, Mapping[str, str]]] = {"suggests": _SUGGESTS, "meant": _MEANT}
"""What the page's script reads; it looks things up as `in_words` does."""


def in_words(status: int, class_: str, code: str) -> str:
    """One sentence about an answer whose status was not one of its class's own.

    Args:
        status: as it came.
        class_: the envelope's class.
        code: the envelope's code.
    """
    meant = _MEANT.get(code) or _MEANT.get(class_, class_)
    suggests = _SUGGESTS.get(str(status)) or _SUGGESTS.get(str(status)[:1], "what it looked like")
    said = f"{status} said {code}: {meant}"
    return said if suggests == meant else f"{said}, not {suggests}"
