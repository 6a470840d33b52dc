"""Reads one recorded error: a call of `/v1/classify` or a line of the recorded cases.

Pure: text in, what was seen out. The two forms differ in depth only, and a person may paste either.
It is read strictly: a member of a wrong type that was passed over would classify something else
than what was pasted.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from sidecar.envelope import database, dialects, http, sdk
from sidecar.envelope.decode import well_formed
from sidecar.envelope.headers import Headers
from sidecar.envelope.inflate import inflate
from sidecar.envelope.members import RecordedError, check_error, is_pair, shown, whole
from sidecar.envelope.model import Classified, Seen, Source
from sidecar.envelope.raised import Raised, recorded
from sidecar.envelope.stream import classify_stream, is_stream

__all__ = ["Recorded", "RecordedAnswer", "RecordedError", "RecordedFailure", "classify", "read"]

_MOST_INFLATED = 1024 * 1024
LAST_SECOND = 253402300799
"""9999-12-31T23:59:59Z: as far as dates go."""
_SOURCES = {Source.HTTP.value, Source.DATABASE.value, Source.SDK.value}
_TELLING = {"response": Source.HTTP, "vendor": Source.DATABASE, "sdk": Source.SDK}
"""Members by which a record that does not say its source is known."""
_NAMED = 80
_TOO_DEEP = "no JSON that is read here: it is nested too deep"


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded HTTP answer.

    Attributes:
        seen: what the classification needs.
        dialect: the name that the record gives; None where it gives none.
        stream: whether the body is an event stream; None leaves that to its type.
    """

    seen: Seen
    dialect: str | None
    stream: bool | None


class RecordedFailure(msgspec.Struct, frozen=True, kw_only=True):
    """One exception that a driver or an SDK raised.

    Attributes:
        source: database or sdk.
        raised: the exception.
        vendor: the database's name, where the record gives it.
        driver: the driver's.
        sdk: the SDK's.
        now: when it was seen, seconds since the epoch.
    """

    source: Source
    raised: Raised
    vendor: str | None
    driver: str | None
    sdk: str | None
    now: float


Recorded = RecordedAnswer | RecordedFailure


def read(text: str | bytes, now: float) -> Recorded:
    """Reads one JSON object.

    Args:
        text: the JSON; bytes are UTF-8.
        now: when it was seen, if the record does not say: seconds since the epoch.

    Raises:
        RecordedError: if it is none.
    """
    try:
        return _read(_decoded(text), now)
    except RecursionError:
        raise RecordedError(_TOO_DEEP, malformed=True) from None


def _decoded(text: str | bytes) -> dict[str, Any]:
    try:
        text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        document = json.loads(text)
    except UnicodeDecodeError:
        raise RecordedError("no UTF-8 text", malformed=True) from None
    except ValueError as error:
        lines = sum(1 for line in text.splitlines() if line.strip())
        several = f"{lines} lines where one error is expected, or " if lines > 1 else ""
        raise RecordedError(f"{several}no JSON: {error}", malformed=True) from None
    if not isinstance(document, dict):
        raise RecordedError("a recorded error is a JSON object", malformed=True)
    return document


def _read(document: Mapping[str, Any], now: float) -> Recorded:
    now = _seconds(document, now)
    source = _source(document)
    if source is Source.HTTP:
        response = _object(document, "response")
        if response is None:
            return _answer(document, document, document, now)
        return _answer(document, response, _object(document, "request") or {}, now)
    return _failure(document, source, now)


def classify(
    found: Recorded, *, dialect: str | None = None, correlation_id: str = ""
) -> Classified:
    """What a recorded error is, by the same code that judges live ones.

    Args:
        found: the error.
        dialect: stands above what the record says; for HTTP answers only.
        correlation_id: goes into the envelope.

    Raises:
        RecordedError: if there is no such dialect, or it is one for an exception.
    """
    try:
        return _classified(found, dialect, correlation_id)
    except RecursionError:
        raise RecordedError(_TOO_DEEP, malformed=True) from None


def _classified(found: Recorded, dialect: str | None, correlation_id: str) -> Classified:
    if isinstance(found, RecordedAnswer):
        name = dialect or found.dialect or "auto"
        if name not in dialects.NAMES:
            raise RecordedError(_no_dialect(name))
        return _classify_answer(found, dialects.get(name), correlation_id)
    if dialect is not None:
        raise RecordedError(f"a dialect is for answers over HTTP; this is of source {found.source}")
    if found.source is Source.DATABASE:
        return database.classify(
            found.raised,
            vendor=found.vendor,
            driver=found.driver,
            correlation_id=correlation_id,
            now=found.now,
        )
    return sdk.classify(found.raised, sdk=found.sdk, correlation_id=correlation_id, now=found.now)


def _classify_answer(
    found: RecordedAnswer, dialect: dialects.Dialect, correlation_id: str
) -> Classified:
    seen, stream = found.seen, found.stream
    if stream is None:
        stream = is_stream(seen.headers.get("content-type"), seen.body[:512])
    if not stream or seen.status >= 400:
        return http.classify(seen, dialect, correlation_id=correlation_id)
    return classify_stream(seen, dialect, correlation_id=correlation_id)


def _no_dialect(name: str) -> str:
    names = sorted(dialects.NAMES)
    near = difflib.get_close_matches(name[:_NAMED].lower(), names, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"there is no dialect {name[:_NAMED]!r}: {hint}It is one of {', '.join(names)}"


def _source(document: Mapping[str, Any]) -> Source:
    """Where the error came from: as it says, else by its shape.

    In a recorded case `source` says where the case was found, in prose.
    """
    named = document.get("source")
    if named is not None and not isinstance(named, str):
        raise RecordedError(f"source is http, database or sdk, not {shown(named)}")
    if named in _SOURCES:
        return Source(named)
    for member, source in _TELLING.items():
        if document.get(member) is not None:
            return source
    if named is not None:
        raise RecordedError(f"source is http, database or sdk, not {shown(named)}")
    return Source.HTTP


# -- answers ------------------------------------------------------------------------------------


def _answer(
    document: Mapping[str, Any],
    response: Mapping[str, Any],
    request: Mapping[str, Any],
    now: float,
) -> RecordedAnswer:
    told = response.get("status")
    status = whole(told)
    if told is None:
        raise RecordedError("status is missing: a number from 100 to 999")
    if status is None or not 100 <= status <= 999:
        raise RecordedError(f"status is a number from 100 to 999, not {shown(told)}")
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
        now=now,
    )
    dialect = _name(document, "dialect") or _name(document, "provider")
    stream = document.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise RecordedError(f"stream is true or false, not {shown(stream)}")
    return RecordedAnswer(seen=seen, dialect=dialect, stream=stream)


def _headers(value: object) -> Headers:
    """From an object (a value may be a list: a header that came twice) or a list of pairs."""
    pairs: list[tuple[str, str]] = []
    if isinstance(value, dict):
        for name, held in value.items():
            pairs += [(name, str(one)) for one in (held if isinstance(held, list) else [held])]
    elif isinstance(value, list) and all(is_pair(pair) for pair in value):
        pairs = [(str(name), str(held)) for name, held in value]
    elif value is not None:
        raise RecordedError("headers are an object, or a list of pairs")
    return Headers((well_formed(name), well_formed(held)) for name, held in pairs)


def _body(value: object, encoding: object) -> bytes:
    if encoding not in (None, "", "utf-8", "text", "base64"):
        raise RecordedError(f"body_encoding is base64 or left out, not {shown(encoding)}")
    if value is None:
        return b""
    if encoding == "base64":
        if not isinstance(value, str):
            raise RecordedError("body is no base64")
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise RecordedError("body is no base64") from None
    if not isinstance(value, str):
        # Pasted as JSON and not as text; the classification parses it again.
        value = json.dumps(value, ensure_ascii=False)
    return value.encode("utf-8", "surrogatepass")


# -- exceptions ---------------------------------------------------------------------------------


def _failure(document: Mapping[str, Any], source: Source, now: float) -> RecordedFailure:
    nested = document.get("error")
    if nested is not None and not isinstance(nested, dict):
        raise RecordedError(f"error is an object, not {shown(nested)}")
    error = document if nested is None else nested
    check_error(error, "" if nested is None else "error.")
    return RecordedFailure(
        source=source,
        raised=recorded(error),
        vendor=_name(document, "vendor"),
        driver=_name(document, "driver"),
        sdk=_name(document, "sdk"),
        now=now,
    )


# -- both ---------------------------------------------------------------------------------------


def _object(fields: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, dict):
        raise RecordedError(f"{name} is an object, not {shown(value)}")
    return value


def _text(fields: Mapping[str, Any], name: str, default: str) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise RecordedError(f"{name} is text")
    return value


def _name(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise RecordedError(f"{name} is a name")
    return value or None


def _seconds(fields: Mapping[str, Any], default: float) -> float:
    value = fields.get("now")
    if value is None:
        return default
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= LAST_SECOND:
        raise RecordedError("now is a number of seconds since the epoch")
    return float(value)
