"""What a provider really answers for each class of error, so that a test meets the true thing.

Each dialect knows already how its errors are shaped, since the daemon speaks it; what is added here
is what the provider itself puts there: its statuses, its codes, its headers. The table holds what
the providers document; where it says nothing, the shape is the dialect's and the code the common
word. Nothing of ours is left in an answer: the envelope beside an error is the daemon's own mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.bedrock import Bedrock
from sidecar.envelope.dialects.google_apis import GoogleApis
from sidecar.envelope.dialects.graphql_errors import GraphQLErrors
from sidecar.envelope.dialects.mcp import MCP
from sidecar.envelope.dialects.tool import Tool
from sidecar.envelope.event_stream import frame
from sidecar.envelope.model import Envelope, ErrorClass, Source

_V, _A, _R = ErrorClass.VALIDATION, ErrorClass.AUTHENTICATION, ErrorClass.RATE_LIMIT
_T, _P = ErrorClass.TRANSIENT, ErrorClass.PERMANENT

WAIT: Final = 2.0
"""Seconds that a rate limit asks for where nobody says otherwise."""


class Told(NamedTuple):
    """How a provider says one class.

    Attributes:
        status: of the answer.
        code: its code.
        message: in words.
        body: the whole body where the dialect's own shape is not it.
        headers: what it sends along; `{wait}` is the wait in seconds.
    """

    status: int
    code: str
    message: str
    body: Mapping[str, Any] | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Answer(NamedTuple):
    """One answer, ready to be sent."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


COMMON: Final[Mapping[ErrorClass, Told]] = {
    _V: Told(400, "invalid_request", "a field of the request is not valid"),
    _A: Told(401, "invalid_api_key", "the key is not valid"),
    _R: Told(429, "rate_limit_exceeded", "too many requests"),
    _T: Told(503, "service_unavailable", "the service is unavailable; try again later"),
    _P: Told(404, "not_found", "there is no such thing"),
}
"""What every HTTP API would be understood by."""


NO_MODEL: Final = Told(404, "model_not_found", "the model does not exist")
"""What a route of models says in place of the common line of `permanent`."""

STREAMLESS: Final = (Tool, GraphQLErrors, GoogleApis, MCP)
"""Families whose providers stream no answers."""

SAID_IN_STREAMS: Final[Mapping[str, frozenset[ErrorClass]]] = {
    # The end of a message has the reason ERROR, and no other.
    "cohere": frozenset({_T}),
    # The exceptions of ResponseStream; who may call, and what there is, is settled before it.
    "bedrock": frozenset({_V, _R, _T}),
}
"""The classes that a stream of a provider can fail with, where these are not all."""


def _anthropic(status: int, type_: str, message: str) -> Told:
    body = {"type": "error", "error": {"type": type_, "message": message}, "request_id": "req_0"}
    return Told(status, type_, message, body)


def _google(status: int, code: str, message: str, *details: Mapping[str, Any]) -> Told:
    error: dict[str, Any] = {"code": status, "message": message, "status": code}
    if details:
        error["details"] = list(details)
    return Told(status, code, message, {"error": error})


def _graphql(code: str, message: str) -> Told:
    body = {"data": None, "errors": [{"message": message, "extensions": {"code": code}}]}
    return Told(200, code, message, body)


def _aws(status: int, name: str, message: str) -> Told:
    return Told(status, name, message, {"message": message}, (("x-amzn-ErrorType", name),))


_KEY = "Incorrect API key provided. You can find your API key in the settings of your account."
_GOOGLE = {
    _V: _google(400, "INVALID_ARGUMENT", "Invalid value at 'generation_config.temperature'"),
    _A: _google(401, "UNAUTHENTICATED", "Request had invalid authentication credentials."),
    _R: _google(
        429,
        "RESOURCE_EXHAUSTED",
        "Resource has been exhausted (e.g. check quota).",
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "{wait}s"},
    ),
    _T: _google(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    _P: _google(404, "NOT_FOUND", "models/nothing is not found for API version v1beta."),
}
_GRAPHQL = {
    _V: _graphql("BAD_USER_INPUT", 'Variable "$first" got an invalid value'),
    _A: _graphql("UNAUTHENTICATED", "You are not authenticated"),
}

NATIVE: Final[Mapping[str, Mapping[ErrorClass, Told]]] = {
    "openai": {
        _V: Told(400, "invalid_value", "Invalid 'temperature': above maximum value."),
        _A: Told(401, "invalid_api_key", _KEY),
        _R: Told(
            429, "rate_limit_exceeded", "Rate limit reached for requests per min (RPM).",
            headers=(
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "{wait}s"),
            ),
        ),
        _T: Told(500, "server_error", "The server had an error while processing your request."),
        _P: Told(404, "model_not_found", "The model does not exist or you have no access to it."),
    },
    "anthropic": {
        _V: _anthropic(400, "invalid_request_error", "max_tokens: field required"),
        _A: _anthropic(401, "authentication_error", "invalid x-api-key"),
        _R: _anthropic(429, "rate_limit_error", "This request would exceed your rate limit."),
        _T: _anthropic(529, "overloaded_error", "Overloaded"),
        _P: _anthropic(404, "not_found_error", "model: nothing"),
    },
    "gemini": _GOOGLE,
    "vertex": _GOOGLE,
    "google-apis": {
        **_GOOGLE,
        _R: Told(
            429, "rateLimitExceeded", "",
            {
                "error": {
                    "code": 429,
                    "message": "Rate Limit Exceeded",
                    "status": "RESOURCE_EXHAUSTED",
                    "errors": [{"domain": "usageLimits", "reason": "rateLimitExceeded"}],
                }
            },
        ),
        _P: _google(404, "NOT_FOUND", "Requested entity was not found."),
    },
    "bedrock": {
        _V: _aws(400, "ValidationException", "Malformed input request, please reformat it."),
        _A: _aws(403, "UnrecognizedClientException", "The security token is invalid."),
        _R: _aws(429, "ThrottlingException", "Too many requests, please wait before trying."),
        _T: _aws(503, "ServiceUnavailableException", "The service is unavailable."),
        _P: _aws(404, "ResourceNotFoundException", "The model is not found."),
    },
    "slack": {
        _V: Told(200, "invalid_arguments", "", {"ok": False, "error": "invalid_arguments"}),
        _A: Told(200, "invalid_auth", "", {"ok": False, "error": "invalid_auth"}),
        _R: Told(429, "ratelimited", "", {"ok": False, "error": "ratelimited"}),
        _T: Told(503, "service_unavailable", "", {"ok": False, "error": "service_unavailable"}),
        _P: Told(200, "channel_not_found", "", {"ok": False, "error": "channel_not_found"}),
    },
    "graphql": _GRAPHQL,
    "github": {
        _V: Told(
            422, "invalid", "Validation Failed",
            {
                "message": "Validation Failed",
                "errors": [{"resource": "Issue", "field": "title", "code": "missing_field"}],
                "status": "422",
            },
        ),
        _A: Told(401, "401", "", {"message": "Bad credentials", "status": "401"}),
        _R: Told(
            403, "rate_limit", "",
            {"message": "You have exceeded a secondary rate limit.", "status": "403"},
        ),
        _T: Told(503, "503", "", {"message": "No server is currently available."}),
        _P: Told(404, "404", "", {"message": "Not Found", "status": "404"}),
    },
    "stripe": {
        _V: Told(400, "parameter_missing", "Missing required param: amount."),
        _A: Told(
            401, "", "",
            {"error": {"type": "invalid_request_error", "message": "Invalid API Key provided"}},
        ),
        _P: Told(404, "resource_missing", "No such customer"),
    },
}  # fmt: skip
"""By dialect, what its provider documents; a dialect that builds on another inherits its lines."""


def answer(
    dialect: Dialect,
    class_: ErrorClass,
    path: str,
    *,
    wait: float | None = None,
    status: int | None = None,
    code: str | None = None,
    message: str | None = None,
) -> Answer:
    """The answer by which a provider says that a call failed like this.

    Args:
        dialect: the provider's.
        class_: what it says.
        path: the path of the request: some servers speak several dialects.
        wait: seconds that a rate limit asks for.
        status: in place of its own.
        code: in place of its own.
        message: in place of its own.
    """
    told = told_by(dialect, class_, path)
    worn = told.status if status is None else status
    seconds = _seconds(WAIT if wait is None else wait)
    envelope = _envelope(told, class_, wait, code=code, message=message)
    if told.body is not None and code is None and message is None:
        body = msgspec.json.encode(_filled(told.body, seconds))
    else:
        body = _without_envelope(dialect.error_body(envelope, worn, path))
    headers = [("content-type", "application/json"), *dialect.error_headers(envelope, path)]
    headers += [(name, value.replace("{wait}", seconds)) for name, value in told.headers]
    if class_ is _R or wait is not None:
        headers.append(("retry-after", seconds))
    given: dict[str, tuple[str, str]] = {name.lower(): (name, value) for name, value in headers}
    return Answer(worn, tuple(given.values()), body)


def said_in_streams(dialect: Dialect) -> frozenset[ErrorClass]:
    """The classes that a stream of this provider can fail with."""
    if isinstance(dialect, STREAMLESS):
        return frozenset()
    return SAID_IN_STREAMS.get(dialect.name, frozenset(ErrorClass))


def stream_event(
    dialect: Dialect, class_: ErrorClass, path: str, *, wait: float | None = None
) -> bytes:
    """The event by which a stream of this provider fails, ready to be sent."""
    told = told_by(dialect, class_, path)
    if isinstance(dialect, Bedrock) and "/model/" in path:
        name = told.code[0].lower() + told.code[1:]
        headers = {":message-type": "exception", ":exception-type": name}
        headers[":content-type"] = "application/json"
        return frame(headers, msgspec.json.encode({"message": told.message}))
    event = dialect.stream_error(_envelope(told, class_, wait), path)
    return _SSE_DATA.sub(lambda line: line[1] + _without_envelope(line[2]), event)


def told_by(dialect: Dialect, class_: ErrorClass, path: str) -> Told:
    """The line of the table for a dialect, or of the nearest that it builds on."""
    for name in _lineage(dialect):
        told = NATIVE.get(name, {}).get(class_)
        if told is not None:
            return told
    if class_ is _P and dialect.is_model_route("POST", path):
        return NO_MODEL
    return COMMON[class_]


def _lineage(dialect: Dialect) -> Iterator[str]:
    yield dialect.name
    for base in type(dialect).__mro__[1:]:
        name = base.__dict__.get("name")
        if isinstance(name, str):
            yield name


def _envelope(
    told: Told,
    class_: ErrorClass,
    wait: float | None,
    *,
    code: str | None = None,
    message: str | None = None,
) -> Envelope:
    retryable = class_ in (_R, _T)
    seconds = WAIT if wait is None and class_ is _R else wait
    return Envelope(
        class_=class_,
        source=Source.HTTP,
        code=code or told.code or COMMON[class_].code,
        message=message or told.message or COMMON[class_].message,
        retryable=retryable,
        retry_after=seconds if retryable else None,
        correlation_id="",
    )


_SSE_DATA = re.compile(rb"^(data: ?|)(\{.*\}|\[.*\])$", re.MULTILINE)


def _without_envelope(body: bytes) -> bytes:
    try:
        decoded = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body
    return msgspec.json.encode(_stripped(decoded))


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stripped(item) for key, item in value.items() if key != "envelope"}
    if isinstance(value, list):
        return [_stripped(item) for item in value]
    return value


def _filled(value: Any, seconds: str) -> Any:
    if isinstance(value, str):
        return value.replace("{wait}", seconds)
    if isinstance(value, Mapping):
        return {key: _filled(item, seconds) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, seconds) for item in value]
    return value


def _seconds(wait: float) -> str:
    return f"{wait:g}" if wait != int(wait) else str(int(wait))
