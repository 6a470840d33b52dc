"""What platforms, query languages and protocols answer for each class of error.

A line of a dialect under `NAME/graphql` is for its route of GraphQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sidecar.faults.told import A, P, R, T, Table, Told, V, Wait, flat, nested


def _graphql(code: str, message: str, status: int = 200, **more: Any) -> Told:
    body = {"data": None, "errors": [{"message": message, "extensions": {"code": code}}], **more}
    return Told(status, code, message, body)


def _shopify(code: str, message: str, **more: Any) -> Told:
    body = {"errors": [{"message": message, "extensions": {"code": code}}], **more}
    return Told(200, code, message, body, retry_after=False)


def _shopify_rest(status: int, errors: Any) -> Told:
    return Told(status, "", errors if isinstance(errors, str) else "", {"errors": errors})


def _github(type_: str, message: str) -> Told:
    body = {"data": None, "errors": [{"type": type_, "message": message}]}
    return Told(200, type_, message, body)


def _linear(status: int, type_: str, code: str, message: str, *, blames: bool) -> Told:
    extensions = {
        "type": type_,
        "code": code,
        "statusCode": status,
        "userError": blames,
        "userPresentableMessage": message,
    }
    return Told(status, code, message, {"errors": [{"message": message, "extensions": extensions}]})


def _google(status: int, reason: str, message: str, name: str, domain: str = "global") -> Told:
    item = {"message": message, "domain": domain, "reason": reason}
    error = {"code": status, "message": message, "errors": [item], "status": name}
    told = nested(status, error)
    return told._replace(code=reason, retry_after=False)


def _graph(status: int, code: str, message: str, inner: str | None = None) -> Told:
    told = {} if inner is None else {"code": inner}
    told |= {"date": "2026-11-30T12:00:00", "request-id": "0", "client-request-id": "0"}
    return nested(status, {"code": code, "message": message, "innerError": told},
                      request_id="0")  # fmt: skip


def _salesforce(status: int, code: str, message: str) -> Told:
    return Told(status, code, message, [{"message": message, "errorCode": code}], retry_after=False)


def _reply(status: int, number: int, message: str) -> Told:
    error = {"code": number, "message": message}
    return Told(status, str(number), message, {"jsonrpc": "2.0", "id": None, "error": error})


def _grpc(number: int, message: str, *headers: tuple[str, str]) -> Told:
    """A trailers-only answer: its status is 200, and it has no body."""
    sent = (("grpc-status", str(number)), ("grpc-message", message), *headers)
    kind = "application/grpc-web+proto"
    return Told(200, str(number), message, "", sent, kind, retry_after=False)


def _connect(status: int, code: str, message: str) -> Told:
    return flat(status, code, message, code=code, message=message)


_GOOGLE_CHALLENGE: Final = 'Bearer realm="https://accounts.google.com/", error="invalid_token"'
_MCP_CHALLENGE: Final = (
    'Bearer error="invalid_token", '
    'resource_metadata="https://mcp.example.test/.well-known/oauth-protected-resource"'
)

PLATFORMS: Final[Mapping[str, Table]] = {
    "connect": {
        V: _connect(400, "invalid_argument", "name: value is required"),
        A: _connect(401, "unauthenticated", "invalid token"),
        R: _connect(429, "resource_exhausted", "too many requests"),
        T: _connect(503, "unavailable", "the service is unavailable"),
        P: _connect(404, "not_found", "no such thing"),
    },
    "github/graphql": {
        V: _github("INVALID_ARGUMENT", "Variable $first of type Int was provided invalid value"),
        A: Told(401, "", "Bad credentials", {"message": "Bad credentials", "documentation_url":
                "https://docs.github.com/graphql", "status": "401"}),
        R: _github("RATE_LIMITED", "API rate limit exceeded for user ID 1.")._replace(headers=(
            ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "{reset}"),
            ("x-ratelimit-resource", "graphql")), retry_after=False),
        T: Told(502, "", "", {"data": None, "errors": [{"message": "Something went wrong while "
                "executing your query. This may be the result of a timeout, or it could be a "
                "GitHub bug."}]}),
        P: _github("NOT_FOUND", "Could not resolve to a Repository with the name 'o/nothing'."),
    },
    "google-apis": {
        V: _google(400, "badRequest", "Bad Request", "INVALID_ARGUMENT"),
        A: _google(401, "authError", "Invalid Credentials", "UNAUTHENTICATED")._replace(headers=(
            ("www-authenticate", _GOOGLE_CHALLENGE),)),
        R: _google(403, "userRateLimitExceeded", "User Rate Limit Exceeded", "PERMISSION_DENIED",
                   "usageLimits"),
        T: _google(503, "backendError", "Backend Error", "UNAVAILABLE"),
        P: _google(404, "notFound", "File not found: nothing.", "NOT_FOUND"),
    },
    "graphql": {
        V: _graphql("BAD_USER_INPUT", 'Variable "$first" got invalid value "x"'),
        A: _graphql("UNAUTHENTICATED", "You are not authenticated"),
        R: _graphql("RATE_LIMITED", "Too many requests"),
        T: _graphql("INTERNAL_SERVER_ERROR", "Internal server error"),
        P: _graphql("NOT_FOUND", "There is no such node"),
    },
    "grpc-web": {
        V: _grpc(3, "name: value is required"),
        A: _grpc(16, "invalid token"),
        R: _grpc(8, "too many requests", ("grpc-retry-pushback-ms", "{ms}")),
        T: _grpc(14, "the service is unavailable"),
        P: _grpc(5, "no such thing"),
    },
    "linear": {
        V: _linear(400, "invalid input", "INPUT_ERROR", "Argument Validation Error", blames=True),
        A: _linear(401, "authentication error", "AUTHENTICATION_ERROR", "Authentication required, "
                   "not authenticated", blames=True),
        R: _linear(400, "ratelimited", "RATELIMITED", "Rate limit exceeded. Only 5000 requests are "
                   "allowed per 1 hour.", blames=True)._replace(headers=(
            ("x-ratelimit-requests-remaining", "0"), ("x-ratelimit-requests-reset", "{reset_ms}"),
            ), retry_after=False),
        T: _linear(500, "internal error", "INTERNAL_SERVER_ERROR", "Internal server error",
                   blames=False)._replace(status=200),
        P: _linear(400, "other", "ENTITY_NOT_FOUND", "Entity not found: Issue", blames=True),
    },
    "mcp": {
        # Under 200 a reply has the id of its request; these are the transport's own.
        V: _reply(400, -32600, "Bad Request: the body is no valid message"),
        A: Told(401, "", "", "", (("www-authenticate", _MCP_CHALLENGE),)),
        R: _reply(429, -32000, "Too many requests"),
        T: _reply(500, -32603, "Internal server error"),
        P: _reply(404, -32001, "Session not found"),
    },
    "msgraph": {
        V: _graph(400, "invalidRequest", "Invalid request"),
        A: _graph(401, "InvalidAuthenticationToken", "Access token is empty."),
        R: _graph(429, "TooManyRequests", "Too many requests", "throttledRequest"),
        T: _graph(503, "serviceNotAvailable", "The service is temporarily unavailable."),
        P: _graph(404, "itemNotFound", "The resource could not be found."),
    },
    "salesforce": {
        V: _salesforce(400, "MALFORMED_QUERY", "unexpected token: FORM"),
        A: _salesforce(401, "INVALID_SESSION_ID", "Session expired or invalid"),
        R: _salesforce(403, "REQUEST_LIMIT_EXCEEDED", "ConcurrentRequests (Concurrent API Requests)"
                       " Limit exceeded."),
        T: _salesforce(503, "SERVER_UNAVAILABLE", "The server is temporarily unavailable."),
        P: _salesforce(404, "NOT_FOUND", "The requested resource does not exist"),
    },
    "shopify": {
        V: _shopify_rest(422, {"title": ["can't be blank"]}),
        A: _shopify_rest(401, "[API] Invalid API key or access token (unrecognized login or wrong "
                         "password)"),
        R: _shopify_rest(429, "Exceeded 2 calls per second for api client. Reduce request rates to "
                         "resume uninterrupted service.")._replace(headers=(
            ("x-shopify-shop-api-call-limit", "40/40"),)),
        T: _shopify_rest(503, "Service Unavailable"),
        P: _shopify_rest(404, "Not Found"),
    },
    "shopify/graphql": {
        V: _shopify("argumentLiteralsIncompatible", "Argument 'first' on Field 'products' has an "
                    "invalid value."),
        A: _shopify_rest(401, "[API] Invalid API key or access token (unrecognized login or wrong "
                         "password)"),
        R: _shopify("THROTTLED", "Throttled", extensions={"cost": {
            "requestedQueryCost": Wait(50.0), "actualQueryCost": None, "throttleStatus": {
                "maximumAvailable": 1000.0, "currentlyAvailable": 0, "restoreRate": 50.0}}}),
        T: _shopify("INTERNAL_SERVER_ERROR", "Internal error. Looks like something went wrong on "
                    "our end."),
        P: _shopify("MAX_COST_EXCEEDED", "Query cost is 2003, which exceeds the single query max "
                    "cost limit 1000."),
    },
}  # fmt: skip
"""By dialect."""
