"""The schemas of what the admin plane takes, where no struct says it: read as their readers do.

A recorded error is read strictly in what it is about and not at all in what it is not; a report is
read leniently, since a report of a failure must not fail itself. The schemas say the same.
"""

from __future__ import annotations

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
_PAIRS = {
    "type": "array",
    "items": {"type": "array", "minItems": 2, "maxItems": 2},
}
_HEADERS = {"anyOf": [_OBJECT, _PAIRS, {"type": "null"}]}
_WHOLE = {"anyOf": [{"type": ["integer", "null"]}, {"type": "string", "pattern": "^[0-9]+$"}]}
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
    "code": {"type": ["string", "number", "boolean", "null"]},
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


def _answers() -> list[dict[str, Any]]:
    """An answer over HTTP by itself: its body as text or JSON, or in base64."""
    common = {
        "source": {"const": "http"},
        "dialect": {"enum": [None, *sorted(dialects.NAMES)]},
        "method": _TEXT,
        "path": _TEXT,
        "status": {"type": "integer", "minimum": 100, "maximum": 999},
        "headers": _HEADERS,
        "stream": {"type": ["boolean", "null"]},
        "now": _NOW,
    }
    return [
        {
            "type": "object",
            "title": "An answer over HTTP",
            "required": ["status", *(["body", "body_encoding"] if "const" in str(body) else [])],
            "properties": {**common, **body},
            "not": {"anyOf": [{"required": [name]} for name in ("response", "vendor", "sdk")]},
        }
        for body in _BODY
    ]


def _failure(source: str, *names: str) -> dict[str, Any]:
    """An exception of a driver or an SDK: its members beside the others, or under `error`."""
    return {
        "type": "object",
        "title": f"An exception of a {source}",
        "required": ["source"],
        "properties": {
            "source": {"const": source},
            **dict.fromkeys(names, _NAME),
            "now": _NOW,
            **_ERROR,
            "error": {"type": "null"},
        },
    }


def _nested(source: str, *names: str) -> dict[str, Any]:
    shape = _failure(source, *names)
    members = {name: schema for name, schema in shape["properties"].items() if name not in _ERROR}
    return {
        **shape,
        "title": f"{shape['title']}, under error",
        "required": ["source", "error"],
        "properties": {**members, "error": {"$ref": "#/components/schemas/Raised"}},
    }


def _recorded() -> dict[str, Any]:
    """A line of the recorded cases."""
    response = {
        "type": "object",
        "required": ["status"],
        "properties": {
            "status": {"type": "integer", "minimum": 100, "maximum": 999},
            "headers": _HEADERS,
            **_BODY[0],
        },
    }
    return {
        "type": "object",
        "title": "A line of the recorded cases",
        "required": ["response"],
        "properties": {
            "response": response,
            "source": {"not": {"enum": ["database", "sdk"]}},
            "provider": {"enum": [None, *sorted(dialects.NAMES)]},
            "dialect": {"type": "null"},
            "request": {"type": "object", "properties": {"method": _TEXT, "path": _TEXT}},
            "stream": {"type": ["boolean", "null"]},
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
                        {"type": "string", "pattern": DURATION_PATTERN},
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
                _failure("database", "vendor", "driver"),
                _nested("database", "vendor", "driver"),
                _failure("sdk", "sdk"),
                _nested("sdk", "sdk"),
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
