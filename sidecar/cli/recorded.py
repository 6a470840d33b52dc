"""Reads one recorded error: a call of `/v1/classify` or a line of the recorded cases.

Pure: text in, what was seen out. The two forms differ in depth only, and a person may paste either.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from sidecar.envelope.inflate import inflate
from sidecar.envelope.model import Headers, Seen

_BUILT = "http"
_OTHERS = ("database", "sdk")
_MOST_INFLATED = 1024 * 1024


class RecordedError(ValueError):
    """What was given is no recorded error; the message says what is missing."""


class NotBuiltError(RecordedError):
    """A source that this version does not classify."""

    def __init__(self, source: str) -> None:
        super().__init__(
            f"errors of source {source} are not built in this version; only http is classified"
        )


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded HTTP answer.

    Attributes:
        seen: what the classification needs.
        dialect: the name that the record gives; None where it gives none.
        stream: whether the body is an event stream; None leaves that to its type.
    """

    seen: Seen
    dialect: str | None
    stream: bool | None


def read(text: str, now: float) -> Recorded:
    """Reads one JSON object.

    Args:
        text: the JSON.
        now: when the answer was seen, if the record does not say: seconds since the epoch.

    Raises:
        RecordedError: if it is none.
        NotBuiltError: if it is an error of a database or an SDK.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        lines = sum(1 for line in text.splitlines() if line.strip())
        several = f"{lines} lines where one error is expected, or " if lines > 1 else ""
        raise RecordedError(f"{several}no JSON: {error}") from None
    if not isinstance(document, dict):
        raise RecordedError("a recorded error is a JSON object")
    _check_source(document)
    response = document.get("response")
    if isinstance(response, dict):
        request = document.get("request")
        return _recorded(document, response, request if isinstance(request, dict) else {}, now)
    return _recorded(document, document, document, now)


def _check_source(document: Mapping[str, Any]) -> None:
    # In a recorded case `source` says where it was found, in prose; there its shape tells.
    if "response" in document:
        return
    if document.get("source") in _OTHERS:
        raise NotBuiltError(document["source"])
    if "vendor" in document:
        raise NotBuiltError("database")
    if "sdk" in document:
        raise NotBuiltError("sdk")
    if document.get("source", _BUILT) != _BUILT:
        raise RecordedError(f"source is http, database or sdk, not {document['source']!r}")


def _recorded(
    document: Mapping[str, Any],
    response: Mapping[str, Any],
    request: Mapping[str, Any],
    now: float,
) -> Recorded:
    status = response.get("status")
    if not isinstance(status, int) or isinstance(status, bool) or not 100 <= status <= 999:
        raise RecordedError("status is missing: a number from 100 to 999")
    headers = _headers(response.get("headers"))
    body = _body(response.get("body"), response.get("body_encoding"))
    coding = headers.get("content-encoding")
    if coding is not None and response.get("body_encoding") == "base64":
        # Bytes as they were on the wire; a body that was recorded as text is readable already.
        body = inflate(body, coding, _MOST_INFLATED) or body
    seen = Seen(
        status=status,
        headers=headers,
        body=body,
        method=_text(request, "method", "POST"),
        path=_text(request, "path", "/").partition("?")[0],
        now=_number(document, "now", now),
    )
    dialect = document.get("dialect") or document.get("provider")
    if dialect is not None and not isinstance(dialect, str):
        raise RecordedError("dialect is a name")
    stream = document.get("stream")
    return Recorded(seen=seen, dialect=dialect, stream=stream if stream in (True, False) else None)


def _headers(value: object) -> Headers:
    """From an object (a value may be a list: a header that came twice) or a list of pairs."""
    pairs: list[tuple[str, str]] = []
    if isinstance(value, dict):
        for name, held in value.items():
            pairs += [(name, str(one)) for one in (held if isinstance(held, list) else [held])]
    elif isinstance(value, list) and all(isinstance(p, list) and len(p) == 2 for p in value):
        pairs = [(str(name), str(held)) for name, held in value]
    elif value is not None:
        raise RecordedError("headers are an object, or a list of pairs")
    return Headers(pairs)


def _body(value: object, encoding: object) -> bytes:
    if value is None:
        return b""
    if encoding == "base64" and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error:
            raise RecordedError("body is no base64") from None
    if encoding not in (None, "", "utf-8", "text"):
        raise RecordedError(f"body_encoding is base64 or left out, not {encoding!r}")
    if not isinstance(value, str):
        # Pasted as JSON and not as text; the classification parses it again.
        value = json.dumps(value, ensure_ascii=False)
    return value.encode("utf-8", "surrogatepass")


def _text(fields: Mapping[str, Any], name: str, default: str) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise RecordedError(f"{name} is text")
    return value


def _number(fields: Mapping[str, Any], name: str, default: float) -> float:
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RecordedError(f"{name} is a number of seconds since the epoch")
    return float(value)
