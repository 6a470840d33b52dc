"""What changes in a line of the tables before it is sent: the wait, and what a rule says otherwise.

A body is a tree of plain values, and each change is a function of one value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from sidecar.faults.told import Told, Wait

_PLACE: Final = re.compile(r"\{(?:wait|ms|reset|reset_ms)\}|\bWait\(")


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A body with each of its values changed."""
    if isinstance(value, Mapping):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [mapped(item, change) for item in value]
    return change(value)


def leaves(value: Any) -> Iterator[str]:
    """The values of a body, as texts."""
    inner = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list):
        for item in inner:
            yield from leaves(item)
    else:
        yield str(value)


def filling(wait: float, now: float) -> Callable[[Any], Any]:
    """Puts a wait into its places.

    Args:
        wait: seconds.
        now: seconds since the epoch.
    """
    end = math.ceil(now + wait)
    places = {"wait": number(wait), "ms": str(round(wait * 1000)), "reset": str(end)}
    places["reset_ms"] = str(end * 1000)

    def fill(value: Any) -> Any:
        if isinstance(value, Wait):
            return _plain(wait * value.scale)
        if isinstance(value, str):
            for name, text in places.items():
                value = value.replace(f"{{{name}}}", text)
        return value

    return fill


def restated(before: int, after: int) -> Callable[[Any], Any]:
    """Changes a status that a body repeats."""
    changes = {before: after, str(before): str(after)}
    return lambda value: changes.get(value, value) if isinstance(value, int | str) else value


def renamed(told: Told, code: str, message: str) -> Callable[[Any], Any]:
    """Changes a code and a message wherever a body has them."""
    number = int(code) if code.isdecimal() else code

    def change(value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool) and str(value) == told.code:
            return number
        if not isinstance(value, str) or not value:
            return value
        return code if value == told.code else message if value == told.message else value

    return change


def tells_wait(told: Told) -> bool:
    """Has a line a place for the wait?"""
    return _PLACE.search(f"{told.body!r}{told.headers!r}") is not None


def encoded(body: Any) -> bytes:
    """The bytes of a body, JSON unless it is text."""
    return body.encode() if isinstance(body, str) else msgspec.json.encode(body)


def _plain(number: float) -> float:
    return int(number) if number == int(number) else number


def number(value: float) -> str:
    """A number as text, without a fraction where it has none."""
    return str(int(value)) if value == int(value) else f"{value:g}"
