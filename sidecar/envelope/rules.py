"""The operator's own rules: what the configuration says before any dialect is asked.

A gateway in front of a provider invents answers that no dialect knows. A rule names such an answer
by its status, its headers and the fields of its body, and says what it means. The configuration
checks the grammar and builds these records; here they are only matched.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from sidecar.envelope.headers import Headers
from sidecar.envelope.model import ErrorClass, Verdict

Scalar = str | int | float | bool | None

ABSENT: Final = object()
"""What `at` gives for a path that leads nowhere, and what stands for a body that is no JSON."""

_STEP = re.compile(r"[^.\[\]]+")
_NO_HEADERS = Headers()
_MOST_KNOWN = 1024


class Condition(msgspec.Struct, frozen=True):
    """One thing that must hold for a rule to match.

    Attributes:
        place: what is looked at.
        path: the header's name in lower case, the path in the body (`error.details[0].reason`),
            or nothing for the status.
        test: `equals` any of the values, `contains` one of them as text, or is `empty` or
            `missing` (a value of False turns these two round).
        values: what to compare with; a status may be a whole family (`5xx`).
    """

    place: Literal["status", "header", "body"]
    path: str
    test: Literal["equals", "contains", "empty", "missing"]
    values: tuple[Scalar, ...]


class OperatorRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: every condition of `when` must hold, and then the rest is the classification.

    Attributes:
        name: reported as the deciding rule.
        when: at least one condition.
        class_: the class of the error.
        code: its code; None where the source's own code is to be kept.
        retryable: filled in from the class where the operator left it out.
        verdict: likewise.
    """

    name: str
    when: tuple[Condition, ...]
    class_: ErrorClass
    code: str | None
    retryable: bool
    verdict: Verdict

    def matches(self, status: int, headers: Headers, body: Any = ABSENT) -> bool:
        """True if every condition holds; `body` is the decoded JSON, or ABSENT if it is none."""
        return all(holds(condition, status, headers, body) for condition in self.when)


_BY_STATUS: dict[tuple[int, int], tuple[Sequence[OperatorRule], tuple[OperatorRule, ...]]] = {}


def for_status(rules: Sequence[OperatorRule], status: int) -> tuple[OperatorRule, ...]:
    """Those of the rules whose status does not speak against them: of good answers mostly none.

    Remembered, since the rules are the same for all calls of a provider.
    """
    key = (id(rules), status)
    known = _BY_STATUS.get(key)
    # An id may come again after a reload.
    if known is None or known[0] is not rules:
        found = tuple(rule for rule in rules if _may_have(rule, status))
        if len(_BY_STATUS) >= _MOST_KNOWN:
            _BY_STATUS.clear()
        known = _BY_STATUS[key] = (rules, found)
    return known[1]


def _may_have(rule: OperatorRule, status: int) -> bool:
    stated = (condition for condition in rule.when if condition.place == "status")
    return all(holds(condition, status, _NO_HEADERS, ABSENT) for condition in stated)


def holds(condition: Condition, status: int, headers: Headers, body: Any) -> bool:
    """True if one condition holds for an answer."""
    if condition.place == "status":
        return any(_is_status(status, value) for value in condition.values)
    if condition.place == "header":
        seen = headers.get_all(condition.path)
        return _compare(condition, seen or [ABSENT])
    return _compare(condition, [at(body, condition.path)])


def at(body: Any, path: str) -> Any:
    """What stands at a dotted path in decoded JSON, or ABSENT."""
    here = body
    for step in _STEP.findall(path):
        if isinstance(here, dict):
            here = here.get(step, ABSENT)
        elif isinstance(here, list) and step.isdecimal() and len(step) < 7:
            here = here[int(step)] if int(step) < len(here) else ABSENT
        else:
            return ABSENT
    return here


def _is_status(status: int, value: Scalar) -> bool:
    if isinstance(value, str):
        return value[:1] == str(status // 100)
    return status == value


def _compare(condition: Condition, seen: list[Any]) -> bool:
    if condition.test == "missing":
        return (seen == [ABSENT]) is bool(condition.values[0])
    if condition.test == "empty":
        return _is_empty(seen) is bool(condition.values[0])
    texts = [_as_text(value) for value in seen if value is not ABSENT]
    wanted = [_as_text(value) for value in condition.values]
    if condition.test == "contains":
        return any(part in text for text in texts for part in wanted)
    return any(text in wanted for text in texts)


def _is_empty(seen: list[Any]) -> bool:
    return all(value is ABSENT or value is None or value in ("", {}, []) for value in seen)


def _as_text(value: Any) -> str:
    """As JSON would write it, so that 1302 and "1302" are one code."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value)) if abs(value) < 1e15 else repr(value)
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, UnicodeError):
        return ""
