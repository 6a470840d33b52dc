"""Meta's Graph API: one form, one type for most of it, and a number that tells.

The body is `{"error": {"message", "type", "code", "error_subcode", "fbtrace_id", "is_transient"}}`,
mostly under 400, a refused token and a rate among them (developers.facebook.com/docs/graph-api/
guides/error-handling, …/overview/rate-limiting). WhatsApp, Instagram and the ads speak it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from sidecar.envelope.dialects.rule import Rule
from sidecar.envelope.dialects.words import AUTHENTICATION, RATE_LIMIT, TRANSIENT
from sidecar.envelope.evidence import Evidence

# What it adds to a form that half of the industry has.
_OWN_MEMBERS = frozenset({"fbtrace_id", "error_subcode", "is_transient", "error_user_title"})
_EXPIRED = 463
_OF_TOKENS = frozenset({102, 190})
_OF_PERMISSIONS = frozenset({3, 10, *range(200, 300)})
_OF_RATES = frozenset(
    {4, 17, 32, 341, 613, 130429, 131048, 131056, *range(80000, 80010), 80014}
)  # fmt: skip
_OF_DOWNTIMES = frozenset({2})


def is_metas(error: Any) -> bool:
    """Whether an error object has the form of the Graph API, which nobody else uses."""
    if not isinstance(error, dict) or type(error.get("code")) is not int:
        return False
    return not _OWN_MEMBERS.isdisjoint(error)


def _numbered(numbers: Container[int]) -> Callable[[Evidence], bool]:
    def holds(evidence: Evidence) -> bool:
        return is_metas(evidence.error) and evidence.error["code"] in numbers

    return holds


def _is_expired(evidence: Evidence) -> bool:
    expired = evidence.error.get("error_subcode") == _EXPIRED
    return expired and _numbered(_OF_TOKENS)(evidence)


def _is_transient(evidence: Evidence) -> bool:
    return is_metas(evidence.error) and (
        evidence.error.get("is_transient") is True or evidence.error["code"] in _OF_DOWNTIMES
    )


META = (
    Rule(
        name="the access token has expired",
        why="Meta: 190 with its subcode 463; a new one mends it",
        when=_is_expired,
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="the access token or a permission is refused",
        why="Meta: 190 and 102 are tokens, 3, 10 and 200 to 299 permissions, mostly under 400",
        when=_numbered(_OF_TOKENS | _OF_PERMISSIONS),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="throttled",
        why="Meta: limits of an app, a user, a page, a business or a number, mostly under 400",
        when=_numbered(_OF_RATES),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="a fault of the server, which passes",
        why="Meta: is_transient, or its number for a downtime",
        when=_is_transient,
        class_=TRANSIENT,
    ),
)
