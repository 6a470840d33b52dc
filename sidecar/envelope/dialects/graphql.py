"""GraphQL over HTTP: `errors` beside `data`, mostly under a 200.

Errors beside data are a partial answer, which its clients know how to use; without data the call
failed, and the code in `extensions` of the first error that has one says how. Codes of Apollo,
graphql-java, Hasura and AppSync. A batch is passed on whole.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec

from sidecar.envelope.dialects.base import Heard
from sidecar.envelope.dialects.generic import Generic
from sidecar.envelope.dialects.rule import TWO, Rule, words
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    PERMANENT,
    RATE_LIMIT,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import as_word, at
from sidecar.envelope.locate import Found
from sidecar.envelope.model import Envelope, ErrorClass, Seen

# Both at the cost of one search: an error there is, and an answer that begins with its data.
_ERRORS = re.compile(rb'"errors"\s*:\s*\[\s*[^\s\]]')
_HAS_DATA = re.compile(rb'\s*\{\s*"data"\s*:\s*\{\s*"')

_STATUS_PLACES = (
    "extensions.http.status",
    "extensions.status",
    "extensions.statusCode",
    "extensions.status_code",
    "extensions.originalError.statusCode",
    "extensions.response.statusCode",
)
_CODE_PLACES = (
    "extensions.code",
    "extensions.errorCode",
    "extensions.errorType",
    "extensions.classification",
    "errorType",
    "type",
    "code",
    "error_code",
    "errorCode",
)

GRAPHQL_RULES = (
    Rule(
        name="the credential is refused",
        why="no login, or no right to a field",
        codes=words(
            "UNAUTHENTICATED FORBIDDEN UNAUTHORIZED UNAUTHORIZED_FIELD_OR_TYPE ACCESS_DENIED"
            " PERMISSION_DENIED NOT_AUTHORIZED NOT_AUTHENTICATED AUTHENTICATION_ERROR"
            " AUTHENTICATION_REQUIRED UnauthorizedException permission-error invalid-jwt"
            " invalid-headers INVALID_TOKEN AccessDenied"
        ),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the query is at fault",
        why="it does not parse, does not fit the schema, or is not known by its hash",
        codes=words(
            "BAD_USER_INPUT BAD_REQUEST GRAPHQL_PARSE_FAILED GRAPHQL_VALIDATION_FAILED"
            " PARSING_ERROR VALIDATION_ERROR VALIDATION_INVALID_TYPE_VARIABLE"
            " OPERATION_RESOLUTION_FAILURE PERSISTED_QUERY_NOT_FOUND PERSISTED_QUERY_NOT_SUPPORTED"
            " PERSISTED_QUERY_ID_REQUIRED PERSISTED_QUERY_HASH_MISMATCH QUERY_NOT_IN_SAFELIST"
            " INVALID_GRAPHQL_REQUEST MAX_DEPTH_LIMIT MAX_HEIGHT_LIMIT MAX_ALIASES_LIMIT"
            " MAX_ROOT_FIELDS_LIMIT COST_ESTIMATED_TOO_EXPENSIVE QUERY_TOO_COMPLEX ValidationError"
            " InvalidSyntax graphqlValidationFailed OperationNotSupported validation-failed"
            " parse-failed data-exception BadRequestException MalformedHttpRequestException"
            " argumentLiteralsIncompatible undefinedField missingRequiredArguments"
        ),
        class_=VALIDATION,
    ),
    Rule(
        name="throttled",
        why="the code names a rate, whatever the status says",
        codes=words("RATE_LIMITED RATELIMITED RATE_LIMIT REQUEST_RATE_LIMITED THROTTLED"
                    " TOO_MANY_REQUESTS Throttled"),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="a fault of the server",
        why="data is missing because a resolver, a service behind or a deadline failed",
        codes=words(
            "INTERNAL_SERVER_ERROR INTERNAL_ERROR DOWNSTREAM_SERVICE_ERROR SERVICE_UNAVAILABLE"
            " SUBREQUEST_HTTP_ERROR SUBREQUEST_MALFORMED_RESPONSE GATEWAY_TIMEOUT REQUEST_TIMEOUT"
            " TIMEOUT DataFetchingException ExecutionAborted INTERNAL UNAVAILABLE UNKNOWN"
            " DEADLINE_EXCEEDED unexpected InternalFailure ExecutionTimeout"
        ),
        statuses=TWO,
        class_=TRANSIENT,
    ),
)  # fmt: skip

_CLASSIFICATION = {
    ErrorClass.VALIDATION: "BAD_REQUEST",
    ErrorClass.AUTHENTICATION: "UNAUTHENTICATED",
    ErrorClass.RATE_LIMIT: "RATE_LIMITED",
    ErrorClass.TRANSIENT: "SERVICE_UNAVAILABLE",
    ErrorClass.PERMANENT: "OPERATION_REFUSED",
}

UNNAMED = Rule(
    name="an operation failed",
    why="no data and no code: not known to pass, so it is neither repeated nor counted",
    statuses=TWO,
    when=lambda evidence: evidence.code is None,
    class_=PERMANENT,
    code="graphql_error",
)


class GraphQL(Generic):
    """A GraphQL service."""

    name = "graphql"
    rules: ClassVar[tuple[Rule, ...]] = (*GRAPHQL_RULES, *Generic.rules, UNNAMED)
    code_places: ClassVar[tuple[str, ...]] = _CODE_PLACES
    reads_errors_in_2xx: ClassVar[bool] = True

    def is_model_route(self, method: str, path: str) -> bool:
        """None: a query is no question to a model, whatever its path is called."""
        del method, path
        return False

    def may_hold_error(self, body: bytes, seen: Seen) -> bool:
        """For a list of errors in an answer that does not begin with data."""
        if b'"errors"' in body and _HAS_DATA.match(body[:256]) is None:
            return _ERRORS.search(body) is not None
        return b'"errors"' not in body and super().may_hold_error(body, seen)

    def locate(self, body: Any, seen: Seen) -> Found | None:
        """The first error with a code, where there is no data."""
        if isinstance(body, list) and len(body) == 1:
            body = body[0]
        errors = body.get("errors") if isinstance(body, dict) else None
        if isinstance(errors, list) and errors:
            if body.get("data") and seen.status < 400:
                return None
            return Found(_chosen(errors), body)
        if (
            isinstance(body, list | dict)
            and seen.status < 400
            and (isinstance(body, list) or "data" in body)
        ):
            return None
        return super().locate(body, seen)

    def read(self, found: Found, seen: Seen, *, stream: bool = False) -> Evidence:
        """The same whether the result came as JSON or as an event."""
        del stream
        return super().read(found, seen)

    def hear(self, name: str | None, value: dict[str, Any]) -> Heard | None:
        """A result of a subscription: `next` events, the same shape as a body."""
        if name == "complete":
            return Heard(done=True, terminated=True)
        errors = value.get("errors")
        if not isinstance(errors, list) or not errors or value.get("data"):
            return Heard(content=True) if "data" in value else None
        return Heard(error=Found(_chosen(errors), value))

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """A result without data; no member `data`, since nothing was executed."""
        del status, path
        return msgspec.json.encode({"errors": [_error(envelope)], "envelope": envelope})

    def stream_error(self, envelope: Envelope, path: str) -> bytes:
        """A result without data as the `next` event of a subscription."""
        return b"event: next\ndata: " + self.error_body(envelope, 200, path) + b"\n\n"


def _error(envelope: Envelope) -> dict[str, Any]:
    """Our code, and beside it the one that GraphQL's servers give to errors of this class."""
    return {
        "message": envelope.message,
        "extensions": {
            "code": envelope.code,
            "classification": _CLASSIFICATION[envelope.class_],
            "envelope": envelope,
        },
    }


def _chosen(errors: list[Any]) -> dict[str, Any]:
    """The first error with a code, else the first; a status that it states beside it."""
    told = [error for error in errors if isinstance(error, dict)]
    if not told:
        return {"message": str(errors[0])}
    named = (error for error in told if any(as_word(at(error, place)) for place in _CODE_PLACES))
    error = next(named, told[0])
    for place in _STATUS_PLACES:
        status = at(error, place)
        if status is not None:
            return {**error, "statusCode": status}
    return error
