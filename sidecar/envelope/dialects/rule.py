"""A rule of a dialect: what to look at, what it equals, what it means, and why.

Rules are data. They are tried in order and the first that matches decides; its name and reason are
what `rule` reports. What a rule leaves out follows from the HTTP table or from the class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import normal
from sidecar.envelope.model import ErrorClass, Verdict

#: Own words that say: no repetition of this request can succeed.
BUDGET_WORDS = frozenset(
    {
        "credits_exhausted",
        "spend_limit_reached",
        "plan_window_exhausted",
        "request_over_budget",
        "quota_exhausted",
    }
)

TWO = frozenset(range(100, 400))
FOUR = frozenset(range(400, 500))
FIVE = frozenset(range(500, 600))


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a dialect. Everything that is given must hold.

    Attributes:
        name: what the rule recognises.
        why: the reason, or the source, for the reader of `rule`.
        codes: any of these stands in a structural place (normalised spelling).
        says: any of these phrases stands in the message, in lower case; only where the provider
            sends nothing better.
        statuses: the status that counts is one of these; empty for any.
        when: anything that data cannot say.
        class_: the class; None to leave it to the status.
        code: the project's own word; None to keep the source's code.
        retryable: None to let it follow from class and status.
        verdict: None to let it follow from class and status.
        wait: a documented wait in seconds, where the source gives none.
        terminal: stronger than `X-Should-Retry`; None to let it follow.
    """

    name: str
    why: str = ""
    codes: frozenset[str] = frozenset()
    says: tuple[str, ...] = ()
    statuses: frozenset[int] = frozenset()
    when: Callable[[Evidence], bool] | None = None
    class_: ErrorClass | None = None
    code: str | None = None
    retryable: bool | None = None
    verdict: Verdict | None = None
    wait: float | None = None
    terminal: bool | None = None

    def match(self, evidence: Evidence) -> str | None:
        """What in the evidence the rule hit: the source's code, `""` where it was none; or None."""
        if self.statuses and evidence.status not in self.statuses:
            return None
        hit = ""
        if self.codes:
            named = self.codes & evidence.words.keys()
            if not named:
                return None
            hit = next(spelt for word, spelt in evidence.words.items() if word in named)
        if self.says:
            text = evidence.text
            if not any(phrase in text for phrase in self.says):
                return None
        if self.when is not None and not self.when(evidence):
            return None
        return hit

    @property
    def is_terminal(self) -> bool:
        """Whether `X-Should-Retry: true` cannot revive what this rule found."""
        if self.terminal is not None:
            return self.terminal
        if self.retryable:
            return False
        return self.class_ in {ErrorClass.PERMANENT, ErrorClass.AUTHENTICATION} or (
            self.class_ is ErrorClass.VALIDATION and self.code is not None
        )


def words(text: str) -> frozenset[str]:
    """A set of codes written as one line, in their normalised spelling."""
    return frozenset(normal(word) for word in text.split())


def statuses(*given: int | Iterable[int]) -> frozenset[int]:
    """A set of statuses out of single ones and ranges."""
    found: set[int] = set()
    for item in given:
        found.update((item,) if isinstance(item, int) else item)
    return frozenset(found)
