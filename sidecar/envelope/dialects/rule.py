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

_MOST_STATUSES = 1000


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


class RuleTable:
    """Ordered rules, of which only those are tried that an answer's codes and status can match.

    So the cost of an error does not grow with the length of a dialect's list.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        """Take the rules in the order in which they are to be tried."""
        self._rules = tuple(rules)
        by_code: dict[str, list[int]] = {}
        for index, rule in enumerate(self._rules):
            for code in rule.codes:
                by_code.setdefault(code, []).append(index)
        self._by_code = {code: tuple(indexes) for code, indexes in by_code.items()}
        self._without_code: dict[int, tuple[int, ...]] = {}

    def first(self, evidence: Evidence) -> tuple[Rule, str] | None:
        """The first rule that matches, and what it hit; or None."""
        likely = self._of_status(evidence.status)
        named = [self._by_code[word] for word in evidence.words if word in self._by_code]
        indexes: Iterable[int] = likely
        if named:
            indexes = sorted({*likely, *(index for several in named for index in several)})
        for index in indexes:
            rule = self._rules[index]
            hit = rule.match(evidence)
            if hit is not None:
                return rule, hit
        return None

    def _of_status(self, status: int) -> tuple[int, ...]:
        known = self._without_code.get(status)
        if known is None:
            known = tuple(
                index
                for index, rule in enumerate(self._rules)
                if not rule.codes and (not rule.statuses or status in rule.statuses)
            )
            # Whoever answers with every number there is fills no memory.
            if len(self._without_code) < _MOST_STATUSES:
                self._without_code[status] = known
        return known


def words(text: str) -> frozenset[str]:
    """A set of codes written as one line, in their normalised spelling."""
    return frozenset(normal(word) for word in text.split())


def statuses(*given: int | Iterable[int]) -> frozenset[int]:
    """A set of statuses out of single ones and ranges."""
    found: set[int] = set()
    for item in given:
        found.update((item,) if isinstance(item, int) else item)
    return frozenset(found)
