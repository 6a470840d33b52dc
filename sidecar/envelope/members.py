"""The members that an exception may have in JSON, and what each takes.

Where a person pastes an exception, a member of a wrong type is named: passed over, something else
would be judged than what was pasted. A report of a running agent is read by `raised.recorded`
alone, which passes it over, since a report about a failure must not fail itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sidecar.envelope.raised import DEEPEST

_SHOWN = 80


class RecordedError(ValueError):
    """What was given is no recorded error; the message says what to change.

    Attributes:
        malformed: it is no JSON object at all.
    """

    def __init__(self, message: str, *, malformed: bool = False) -> None:
        super().__init__(message)
        self.malformed = malformed


def is_pair(value: Any) -> bool:
    """Whether this is a header as a list of its name and its value."""
    return isinstance(value, list) and len(value) == 2


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_code(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value.isascii() and value.isdecimal()
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _are_headers(value: Any) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and all(is_pair(pair) for pair in value)
    )


_MEMBERS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "type": (_is_text, "text, the dotted name of a class"),
    "mro": (_is_texts, "a list of dotted names"),
    "code": (_is_code, "text or a number"),
    "sqlstate": (_is_text, "text"),
    "status": (_is_number, "a whole number"),
    "headers": (_are_headers, "an object, or a list of pairs"),
    "args": (_is_list, "a list"),
    "message": (_is_text, "text"),
    "attrs": (_is_object, "an object"),
    "errno": (_is_number, "a whole number"),
    "phase": (_is_text, "text"),
    "cause": (_is_object, "an object"),
    "exceptions": (_is_objects, "a list of objects"),
}


def check_error(error: Mapping[str, Any], path: str = "", deep: int = DEEPEST) -> None:
    """Refuse an exception with a member that would be passed over.

    Args:
        error: the exception as JSON; every member is optional, and null is none.
        path: where it stands, with a dot at its end.
        deep: how many levels of causes are read.

    Raises:
        RecordedError: naming the member and what it takes.
    """
    for name, (fits, what) in _MEMBERS.items():
        value = error.get(name)
        if value is not None and not fits(value):
            raise RecordedError(f"{path}{name} is {what}, not {shown(value)}")
    if deep <= 1:
        return
    if error.get("cause") is not None:
        check_error(error["cause"], f"{path}cause.", deep - 1)
    for index, member in enumerate(error.get("exceptions") or ()):
        check_error(member, f"{path}exceptions[{index}].", deep - 1)


def shown(value: object) -> str:
    """A wrong value for the message: short, or what kind of thing it is."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return json.dumps(value)[:_SHOWN]
