"""The schemas of what the admin plane takes, where no struct says it: read as their readers do.

A recorded error is read strictly in what it is about and not at all in what it is not; a report is
read leniently, since a report of a failure must not fail itself. The schemas say the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sidecar.admin.orders import LONGEST
from sidecar.config.export import order_schemas
from sidecar.config.units import DURATION_PATTERN
from sidecar.dependencies.reports import LONGEST_PERMIT
from sidecar.envelope import dialects
from sidecar.envelope.recorded import LAST_SECOND

_TEXT = {"type": "string"}
_NAME = {"type": ["string", "null"]}
_OBJECT = {"type": "object"}
_NULL = {"type": "null"}
_PAIRS = {
    "type": "array",
    "items": {"type": "array", "minItems": 2, "maxItems": 2},
}
_HEADERS = {"anyOf": [_OBJECT, _PAIRS, {"type": "null"}]}
_WHOLE = {"anyOf": [{"type": ["integer", "null"]}, {"type": "string", "pattern": "^[0-9]{1,9}$"}]}
_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_NOW = {
    "type": ["number", "null"],
    "minimum": 0,
    "maximum": LAST_SECOND,
    "description": "Seconds since the epoch.",
}
_IGNORED = {"description": "Passed over where it is not as it should be."}

_ERROR: dict[str, Any] = {
    "type": _NAME,
    "mro": {"type": ["array", "null"], "items": _TEXT},
    "code": {"type": ["string", "number", "null"]},
    "sqlstate": _NAME,
    "status": _WHOLE,
    "headers": _HEADERS,
    "body": {},
    "args": {"type": ["array", "null"]},
    "message": _NAME,
    "attrs": {"type": ["object", "null"]},
    "errno": _WHOLE,
    "phase": _NAME,
    "cause": {"anyOf": [{"$ref": "#/components/schemas/Raised"}, {"type": "null"}]},
    "exceptions": {"type": ["array", "null"], "items": {"$ref": "#/components/schemas/Raised"}},
}

_BODY = (
    {"body": {}, "body_encoding": {"enum": [None, "", "utf-8", "text"]}},
    {"body": {"type": "string", "pattern": _BASE64}, "body_encoding": {"const": "base64"}},
)


_SOURCES = ["http", "database", "sdk"]
_PROSE = {"type": "string", "not": {"enum": _SOURCES}}
"""Of a recorded case: where it was found."""


def _answer() -> dict[str, Any]:
    """An answer over HTTP by itself."""
    return {
        "type": "object",
        "title": "An answer over HTTP",
        "required": ["status"],
        "properties": {
            "dialect": {"enum": [None, "", *sorted(dialects.NAMES)]},
            "method": _TEXT,
            "path": _TEXT,
            "status": {"type": "integer", "minimum": 100, "maximum": 999},
            "headers": _HEADERS,
            "body": {"description": "Text or JSON; base64 where `body_encoding` says so."},
            "body_encoding": {"enum": [None, "", "utf-8", "text", "base64"]},
            "stream": {"type": ["boolean", "null"]},
            "now": _NOW,
        },
        # What is not said to be base64, or is not text, needs not be.
        "anyOf": [
            {"properties": {"body_encoding": {"enum": [None, "", "utf-8", "text"]}}},
            {"properties": {"body": {"type": "string", "pattern": _BASE64}}},
            {"properties": {"body": {"type": "null"}}},
        ],
    }


def _answers() -> Iterator[dict[str, Any]]:
    """It says that it is one, or nothing else is there that it could be."""
    answer = _answer()
    # A dialect that is left empty is looked for under the name that the recorded cases give it.
    answer["properties"]["provider"] = answer["properties"]["dialect"]
    answer["properties"]["response"] = {"type": "null"}
    said = {**answer["properties"], "source": {"const": "http"}}
    yield {**answer, "required": ["status", "source"], "properties": said}
    nothing = dict.fromkeys(("source", "vendor", "sdk"), _NULL)
    yield {**answer, "properties": {**answer["properties"], **nothing}}


def _failure(source: str, *names: str, nested: bool) -> dict[str, Any]:
    """An exception of a driver or an SDK: its members beside the others, or under `error`."""
    error = {"$ref": "#/components/schemas/Raised"} if nested else {"type": "null"}
    return {
        "type": "object",
        "title": f"An exception of a {source}",
        "required": ["error"] if nested else [],
        "properties": {
            **({} if nested else _ERROR),
            **dict.fromkeys(("vendor", "driver", "sdk"), _NAME),
            "now": _NOW,
            "error": error,
        },
        "anyOf": [
            {"required": ["source"], "properties": {"source": {"const": source}}},
            {
                "required": [names[0]],
                "properties": {
                    "source": {"anyOf": [_PROSE, {"type": "null"}]},
                    names[0]: _TEXT,
                    **dict.fromkeys(("response", *names[1:]), _NULL),
                },
            },
        ],
    }


def _recorded() -> dict[str, Any]:
    """A line of the recorded cases."""
    answer = _answer()["properties"]
    return {
        "type": "object",
        "title": "A line of the recorded cases",
        "required": ["response"],
        "properties": {
            "response": {
                "type": "object",
                "required": ["status"],
                "properties": {
                    **{name: answer[name] for name in ("status", "headers", "body")},
                    "body_encoding": {"enum": [None, "", "utf-8", "text"]},
                },
            },
            "source": {"anyOf": [{"const": "http"}, _PROSE, {"type": "null"}]},
            "provider": answer["dialect"],
            "dialect": answer["dialect"],
            "request": {"type": ["object", "null"], "properties": {"method": _TEXT, "path": _TEXT}},
            "stream": answer["stream"],
            "now": _NOW,
        },
    }


def schemas() -> dict[str, dict[str, Any]]:
    """The schemas by the names that the table of routes gives them."""
    permit = {"type": "string", "minLength": 1, "maxLength": LONGEST_PERMIT}
    about_call = {
        "driver": _IGNORED,
        "correlation_id": _IGNORED,
        "duration": _IGNORED,
        "now": _IGNORED,
    }
    return {
        **order_schemas(),
        "Orders": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "for": {
                    "description": "At most 720h; left out: until changed again.",
                    "anyOf": [
                        {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST},
                        {"type": "string", "pattern": f"^(?=.*[1-9]){DURATION_PATTERN[1:]}"},
                        {"type": "null"},
                    ],
                },
                "reason": {**_NAME, "description": "One line, shown in /status and the log."},
            },
        },
        "RecordedError": {
            "anyOf": [
                *_answers(),
                _recorded(),
                *(
                    _failure(*names, nested=nested)
                    for nested in (False, True)
                    for names in (("database", "vendor"), ("sdk", "sdk", "vendor"))
                ),
            ]
        },
        "Raised": {"type": "object", "title": "An exception", "properties": _ERROR},
        "PermitRequest": {"type": "object", "properties": {"correlation_id": _IGNORED}},
        "Report": {
            "anyOf": [
                {
                    "type": "object",
                    "title": "It went well",
                    "required": ["permit", "ok"],
                    "properties": {
                        "permit": permit,
                        "ok": {"const": True},
                        "error": {"type": "null"},
                        **about_call,
                    },
                },
                {
                    "type": "object",
                    "title": "It failed",
                    "required": ["permit", "error"],
                    "properties": {
                        "permit": permit,
                        "ok": {"enum": [None, False]},
                        "error": {**_OBJECT, "description": "As `Raised`, read leniently."},
                        **about_call,
                    },
                },
            ]
        },
    }
