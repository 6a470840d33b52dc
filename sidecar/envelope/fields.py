"""Small readers of single JSON members: codes, statuses, waits, messages.

Sources write a code as a string, a number, a URI or a sentence, and a message as text, a list or an
object. Each of these has one reader here.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_MACHINE_WORD = re.compile(r"[A-Za-z0-9._:/#@+-]+")
# A URI, a path from the root of the server, a fragment, or one of the two schemes without an
# authority in which problem types are written.
_REFERENCE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|/|#|(?:urn|tag):", re.IGNORECASE)
_AUTHORITY = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


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
    """The HTTP status that a code repeats (`429`, `"429"`), or None: it is a code of its own.

    No answer ends with a 1xx, so 190 is somebody's own number.
    """
    return int(word) if len(word) == 3 and word.isdecimal() and 200 <= int(word) < 600 else None


def is_prose(word: str) -> bool:
    """Whether a would-be code is a sentence, a phrase or a foreign script."""
    return not is_reference(word) and _MACHINE_WORD.fullmatch(word) is None


def is_reference(word: str) -> bool:
    """Whether a code is written as a URI or a path, as problem types (RFC 9457) are."""
    return _REFERENCE.match(word) is not None


def last_segment(word: str) -> str:
    """What a URI, a path or a URN names at its end; empty where it names no more than a host."""
    word = _AUTHORITY.sub("", word.strip(), count=1).partition("?")[0].rstrip("/#:")
    return re.split(r"[/#:]", word)[-1]


def normal(word: str) -> str:
    """The spelling in which rules name a code: lower case, underscores, the last part of a URI."""
    word = word.strip()
    if is_reference(word):
        word = last_segment(word)
    return word.lower().replace("-", "_").replace(" ", "_")


def at(value: Any, path: str) -> Any:
    """The member at a dotted path of objects, or None; a name may hold a dot itself."""
    if isinstance(value, dict) and path in value:
        return value[path]
    if "." not in path:
        return None
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


_MESSAGES = (
    "message", "error_description", "detail", "msg", "title", "description", "Message",
    "error_message", "errorMessage", "error_msg", "errmsg", "err_msg", "err", "error_summary",
    "reason", "info",
)  # fmt: skip


# Where reports on single fields stand; `invalid-params` is the example of RFC 9457.
_REPORTS = (
    "errors", "fieldErrors", "field_errors", "errorMessages", "details", "invalid-params",
    "invalid_params", "invalidParams", "violations",
)  # fmt: skip


def message_of(error: dict[str, Any]) -> str:
    """What an error object tells a person, from the members in which sources say it."""
    for name in _MESSAGES:
        value = error.get(name)
        if isinstance(value, str) and value.strip():
            report = _report(error)
            return f"{value.rstrip('. :')}: {report}" if report and report not in value else value
        if isinstance(value, dict | list) and value:
            return _told(value)
    told = error.get("errors")
    return _report(error) or (told if isinstance(told, str) else "")


def _report(error: dict[str, Any]) -> str:
    """The fields at fault in one line, where a source names them beside its message.

    An object from names to complaints, a list of sentences, or a list of details.
    """
    for name in _REPORTS:
        value = error.get(name)
        if not value:
            continue
        if isinstance(value, list):
            # Of objects under `errors` the first is the error itself.
            value = {"": _sentences(value) if name == "errors" else value}
        report = _complaints(value)
        if report:
            return report
    return ""


def _complaints(value: Any) -> str:
    """An object from names to complaints in one line; empty if it is none."""
    lines = []
    for field, told in value.items() if isinstance(value, dict) else ():
        items = map(_complaint, told if isinstance(told, list) else [told])
        said = ", ".join(item for item in items if item)
        if said:
            lines.append(f"{field}: {said}" if field and field not in said else said)
    return "; ".join(lines)


def _sentences(items: list[Any]) -> list[str]:
    return [item for item in items if isinstance(item, str)]


def _complaint(item: Any) -> str:
    """One complaint about a field: a sentence, or an object with one."""
    if not isinstance(item, dict):
        return item if isinstance(item, str) else ""
    told, where = item.get("message") or item.get("description"), param_of(item)
    if told is None and (where or "name" in item):
        # Without a field these are the details of something else.
        where = where or as_word(item["name"])
        told = next((item[name] for name in ("reason", "issue", "detail") if name in item), None)
    if not isinstance(told, str):
        return ""
    return f"{where}: {told}" if where and where not in told else told


_BLAMED = (
    "param", "field", "pointer", "parameter", "loc", "path", "propertyPath", "source.pointer",
    "source.parameter", "fields",
)  # fmt: skip


def param_of(error: dict[str, Any]) -> str | None:
    """The field or value at fault, as a source names it beside its message; None if it does not."""
    for name in _BLAMED:
        value = at(error, name)
        if value is None:
            continue
        if isinstance(value, list) and value and all(isinstance(part, str | int) for part in value):
            # Names of several fields, or the way to one.
            return (", " if name == "fields" else ".").join(str(part) for part in value)
        if not isinstance(value, str) or value.strip() in {"", "None", "null"}:
            # Some gateways print the nothing of their language.
            continue
        if name != "path" or "/" not in value:
            return value.strip()
    return None


def _told(value: Any) -> str:
    """A validation report (`[{loc, msg}]`) in one line; any other structure as JSON."""
    items = value.get("detail", value) if isinstance(value, dict) else value
    lines = []
    for item in items if isinstance(items, list) else ():
        if isinstance(item, str):
            lines.append(item)
        elif isinstance(item, dict) and isinstance(item.get("msg"), str):
            where = param_of(item)
            lines.append(f"{where}: {item['msg']}" if where else item["msg"])
    try:
        return "; ".join(lines) or _complaints(value) or msgspec.json.encode(value).decode()
    except RecursionError:
        return ""
