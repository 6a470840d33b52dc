"""The grammar of `rules`: what an operator writes, checked and made into records to match.

A rule that contradicts itself would be worse than none: a validation error that is retryable, or
a rate limit that opens breakers, is refused here.
"""

from __future__ import annotations

import re
from typing import Any, Final

from sidecar.config import units
from sidecar.config.document import Mapping, Node, Scalar, Sequence
from sidecar.config.reader import NOTHING, Reader, is_null
from sidecar.config.schema import RuleSection
from sidecar.config.suggest import nearest
from sidecar.envelope.model import ErrorClass, Verdict
from sidecar.envelope.rules import Condition, OperatorRule

_FAMILY = re.compile(r"[1-5]xx")
_HEADER = re.compile(r"header\.([A-Za-z0-9!#$%&'*+.^_`|~-]+)")
_BODY = re.compile(r"body\.([^.\[\]]+(?:\.[^.\[\]]+|\[[0-9]{1,6}\])*)")
_TESTS = ("contains", "empty", "missing")
_PLACES: Final = {"status": "status", "header": "header.NAME", "body": "body.PATH"}

_NATURAL: Final = {
    ErrorClass.VALIDATION: (False, Verdict.ALIVE),
    ErrorClass.AUTHENTICATION: (False, Verdict.ALIVE),
    ErrorClass.RATE_LIMIT: (True, Verdict.THROTTLE),
    ErrorClass.TRANSIENT: (True, Verdict.FAILURE),
    ErrorClass.PERMANENT: (False, Verdict.ALIVE),
}


def read_rules(reader: Reader, node: Node, path: str) -> Any:
    """The rules of a list; those that are wrong are reported and left out."""
    if not isinstance(node, Sequence):
        return reader.problem(node.line, path, "a list of rules is needed", "write [{when: …}]")
    rules = []
    for index, item in enumerate(node.items):
        rule = _read_rule(reader, item, f"{path}[{index}]", index)
        if rule is not NOTHING:
            rules.append(rule)
    return tuple(rules)


def _read_rule(reader: Reader, node: Node, path: str, index: int) -> Any:
    problems = len(reader.problems)
    values = reader.read_struct(node, RuleSection, path)
    if values is NOTHING:
        return NOTHING
    for name, key in (("when", "when"), ("class_", "class")):
        if name not in values and len(reader.problems) == problems:
            reader.problem(node.line, path, f'"{key}" is missing')
    if len(reader.problems) > problems:
        return NOTHING
    class_ = ErrorClass(values["class_"])
    code = values.get("code")
    retryable, verdict = _NATURAL[class_]
    if code == "token_expired" and class_ is ErrorClass.AUTHENTICATION:
        retryable = True
    if values.get("retryable") is not None:
        retryable = values["retryable"]
    if values.get("verdict") is not None:
        verdict = Verdict(values["verdict"])
    conflict = _conflict(class_, code, verdict, retryable=retryable)
    if conflict:
        return reader.problem(node.line, path, conflict)
    return OperatorRule(
        name=values.get("name") or f"rule {index + 1}",
        when=values["when"],
        class_=class_,
        code=code,
        retryable=retryable,
        verdict=verdict,
    )


def _conflict(class_: ErrorClass, code: str | None, verdict: Verdict, *, retryable: bool) -> str:
    """Why the parts of a rule cannot all be true; empty if they can."""
    if retryable and class_ in (ErrorClass.VALIDATION, ErrorClass.PERMANENT):
        return f"a {class_} error is never retryable; a passing one is transient"
    if retryable and class_ is ErrorClass.AUTHENTICATION and code != "token_expired":
        return "of authentication only the code token_expired is retryable"
    if verdict is Verdict.FAILURE and class_ is not ErrorClass.TRANSIENT:
        return f"a {class_} error never counts as failure; an outage is transient"
    if verdict is Verdict.THROTTLE and class_ is not ErrorClass.RATE_LIMIT:
        return f"a {class_} error is no throttle; that is rate_limit"
    return ""


def read_when(reader: Reader, node: Node, path: str) -> Any:
    """The conditions of a rule; at least one, since none would match every answer."""
    if not isinstance(node, Mapping):
        return reader.problem(node.line, path, "a mapping is needed", "{status: 429}")
    conditions = []
    entries = reader.entries(node, path)
    for key, child in entries:
        condition = _condition(reader, key, child, f"{path}.{key.text[:80]}")
        if condition is not NOTHING:
            conditions.append(condition)
    if not entries:
        return reader.problem(node.line, path, "an empty condition would match every answer")
    return tuple(conditions)


def _condition(reader: Reader, key: Scalar, node: Node, path: str) -> Any:
    if key.text == "status":
        statuses = _several(reader, node, path, _status)
        return NOTHING if statuses is NOTHING else Condition("status", "", "equals", statuses)
    if match := _HEADER.fullmatch(key.text):
        return _compared(reader, node, path, "header", match[1].lower())
    if match := _BODY.fullmatch(key.text):
        return _compared(reader, node, path, "body", match[1])
    message = "a condition is status, header.NAME or body.PATH"
    return reader.problem(key.line, path, message, _place_hint(key.text))


def _place_hint(text: str) -> str:
    """What a condition's key was meant to be: the whole of it where only its place is misspelt."""
    place, _, rest = text.partition(".")
    near = nearest(place, _PLACES)
    if near is None:
        return ""
    whole = f"{near}.{rest}"
    fits = _HEADER.fullmatch(whole) or _BODY.fullmatch(whole)
    return f'did you mean "{whole if fits else _PLACES[near]}"?'


def _compared(reader: Reader, node: Node, path: str, place: Any, where: str) -> Any:
    test: Any = "equals"
    if isinstance(node, Mapping):
        if len(node.entries) != 1 or node.entries[0][0].text not in _TESTS:
            return reader.problem(node.line, path, "one test is needed: contains, empty or missing")
        test, node = node.entries[0][0].text, node.entries[0][1]
        path = f"{path}.{test}"
    if test in ("empty", "missing"):
        truth = _truth(reader, node, path)
        values = NOTHING if truth is NOTHING else (truth,)
    elif test == "contains":
        values = _several(reader, node, path, _part)
    else:
        values = _several(reader, node, path, _value)
    return NOTHING if values is NOTHING else Condition(place, where, test, values)


def _several(reader: Reader, node: Node, path: str, read_one: Any) -> Any:
    """One value or a list of them, as a tuple."""
    if not isinstance(node, Sequence):
        one = read_one(reader, node, path)
        return NOTHING if one is NOTHING else (one,)
    if not node.items:
        return reader.problem(node.line, path, "the list is empty and never matches")
    values = tuple(
        read_one(reader, item, f"{path}[{index}]") for index, item in enumerate(node.items)
    )
    return NOTHING if any(value is NOTHING for value in values) else values


def _status(reader: Reader, node: Node, path: str) -> Any:
    text = reader.text(node, path, what="a status")
    if text is NOTHING:
        return NOTHING
    if _FAMILY.fullmatch(text):
        return text
    number = units.parse_integer(text)
    if number is None or not 100 <= number <= 599:
        return reader.problem(node.line, path, "a status is 100 to 599, or a family such as 5xx")
    return number


def _value(reader: Reader, node: Node, path: str) -> Any:
    """A scalar as JSON knows them: quoted it is text, plain it may be more."""
    if is_null(node):
        return None
    text = reader.text(node, path, what="a value")
    if text is NOTHING or not isinstance(node, Scalar) or not node.plain:
        return text
    if text in ("true", "false"):
        return text == "true"
    number = units.parse_integer(text)
    return number if number is not None and str(number) == text else text


def _part(reader: Reader, node: Node, path: str) -> Any:
    text = reader.text(node, path)
    if text == "":
        return reader.problem(node.line, path, "an empty text is part of everything")
    return text


def _truth(reader: Reader, node: Node, path: str) -> Any:
    text = reader.text(node, path, what="true or false")
    if text in (NOTHING, "true", "false"):
        return text if text is NOTHING else text == "true"
    return reader.problem(node.line, path, "true or false is needed")


def write_rule(rule: OperatorRule) -> dict[str, Any]:
    """A rule as the file would say it, with everything that followed from its class."""
    return {
        "name": rule.name,
        "when": dict(_write_condition(condition) for condition in rule.when),
        "class": str(rule.class_),
        "code": rule.code,
        "retryable": rule.retryable,
        "verdict": str(rule.verdict),
    }


def _write_condition(condition: Condition) -> tuple[str, Any]:
    key = condition.place if not condition.path else f"{condition.place}.{condition.path}"
    values: Any = list(condition.values)
    if len(values) == 1:
        values = values[0]
    return key, values if condition.test == "equals" else {condition.test: values}
