"""Small readers of single JSON members: codes, statuses, waits, messages.

Sources write a code as a string, a number, a URI or a sentence, and a message as text, a list or an
object. Each of these has one reader here.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_MACHINE_WORD = re.compile(r"[A-Za-z0-9._:/#@+-]{1,200}")


def as_word(value: Any) -> str | None:
    """A code as text: strings and whole numbers; None for anything else or for nothing."""
    if isinstance(value, str):
        value = value.strip()
        return value or None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return None


def status_like(word: str) -> int | None:
    """The HTTP status that a code repeats (`429`, `"429"`), or None: it is a code of its own."""
    return int(word) if len(word) == 3 and word.isdecimal() and 100 <= int(word) < 600 else None


def is_prose(word: str) -> bool:
    """Whether a would-be code is a sentence, a phrase or a foreign script."""
    return "://" not in word and _MACHINE_WORD.fullmatch(word) is None


def normal(word: str) -> str:
    """The spelling in which rules name a code: lower case, underscores, the last part of a URI."""
    word = word.strip().lower()
    if "://" in word:
        word = re.split(r"[/#]", word.rstrip("/#"))[-1]
    return word.replace("-", "_").replace(" ", "_")


def at(value: Any, path: str) -> Any:
    """The member at a dotted path of objects, or None."""
    for name in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def as_number_text(value: Any) -> str | None:
    """A wait or a moment out of JSON as text, for the one reader of all its forms."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return f"{value:f}" if isinstance(value, float) else str(value)
    return value if isinstance(value, str) else None


def message_of(error: dict[str, Any]) -> str:
    """What an error object tells a person, from the members in which sources say it."""
    for name in ("message", "error_description", "detail", "msg", "title", "description", "Message",
                 "reason"):  # fmt: skip
        value = error.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, dict | list) and value:
            return _told(value)
    return ""


def _told(value: Any) -> str:
    """A validation report (`[{loc, msg}]`) in one line; any other structure as JSON."""
    items = value.get("detail", value) if isinstance(value, dict) else value
    lines = []
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and isinstance(item.get("msg"), str):
            where = ".".join(str(part) for part in item.get("loc") or ())
            lines.append(f"{where}: {item['msg']}" if where else item["msg"])
    return "; ".join(lines) or msgspec.json.encode(value).decode()
