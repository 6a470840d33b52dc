"""What the SDKs of vendors raise for each class of error, as plain data.

What an SDK raises for an HTTP answer is made of the provider's own answer, so that the two cannot
drift apart: here stand only the classes that it raises. Those with codes of their own have a line
for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from sidecar.envelope.model import ErrorClass

_V, _A, _R = ErrorClass.VALIDATION, ErrorClass.AUTHENTICATION, ErrorClass.RATE_LIMIT
_T, _P = ErrorClass.TRANSIENT, ErrorClass.PERMANENT


def _generated(package: str, **more: str) -> Mapping[ErrorClass, str]:
    """The classes of the SDKs of one generator, which name them by their statuses."""
    named = {
        "V": "BadRequestError",
        "A": "AuthenticationError",
        "R": "RateLimitError",
        "T": "InternalServerError",
        "P": "NotFoundError",
        **more,
    }
    return _by_class(package, **named)


def _by_class(module: str, **names: str) -> Mapping[ErrorClass, str]:
    initials = {"V": _V, "A": _A, "R": _R, "T": _T, "P": _P}
    return {initials[key]: f"{module}.{name}" for key, name in names.items()}


def _alike(module: str, name: str) -> Mapping[ErrorClass, str]:
    """An SDK that has one class for all of them."""
    return dict.fromkeys(ErrorClass, f"{module}.{name}")


class Sdk(msgspec.Struct, frozen=True):
    """An SDK that raises for an HTTP answer.

    Attributes:
        dialect: of its provider.
        path: that it calls.
        classes: of its exceptions.
        inner: it keeps what stands under `error` of a body, and no more.
    """

    dialect: str
    path: str
    classes: Mapping[ErrorClass, str]
    inner: bool = False


_CHAT: Final = "/v1/chat/completions"

SDKS: Final[Mapping[str, Sdk]] = {
    "openai": Sdk("openai", _CHAT, _generated("openai"), inner=True),
    "openai-azure": Sdk("azure-openai", _CHAT, _generated("openai"), inner=True),
    "groq": Sdk("groq", _CHAT, _generated("groq"), inner=True),
    "anthropic": Sdk(
        "anthropic", "/v1/messages", _generated("anthropic", T="OverloadedError")
    ),
    "stripe": Sdk(
        "stripe", "/v1/charges",
        _by_class("stripe", V="InvalidRequestError", A="AuthenticationError", R="RateLimitError",
                  T="APIError", P="InvalidRequestError"),
    ),
    "slack": Sdk("slack", "/api/chat.postMessage", _alike("slack_sdk.errors", "SlackApiError")),
    "github": Sdk(
        "github", "/repos/o/r/issues",
        _by_class("github.GithubException", V="GithubException", A="BadCredentialsException",
                  R="RateLimitExceededException", T="GithubException", P="UnknownObjectException"),
    ),
    "twilio": Sdk(
        "twilio", "/2010-04-01/Accounts/AC0/Messages.json",
        _alike("twilio.base.exceptions", "TwilioRestException"),
    ),
    "google-genai": Sdk(
        "gemini", "/v1beta/models/m:generateContent",
        _by_class("google.genai.errors", V="ClientError", A="ClientError", R="ClientError",
                  T="ServerError", P="ClientError"),
    ),
    "cohere": Sdk(
        "cohere", "/v2/chat",
        _by_class("cohere.errors", V="bad_request_error.BadRequestError",
                  A="unauthorized_error.UnauthorizedError",
                  R="too_many_requests_error.TooManyRequestsError",
                  T="service_unavailable_error.ServiceUnavailableError",
                  P="not_found_error.NotFoundError"),
    ),
    "mistral": Sdk("mistral", _CHAT, _alike("mistralai.models", "SDKError")),
    "huggingface": Sdk("huggingface", _CHAT, _alike("huggingface_hub.errors", "HfHubHTTPError")),
    "litellm": Sdk("litellm", _CHAT, _generated("litellm.exceptions", T="ServiceUnavailableError")),
    "requests": Sdk("generic", "/", _alike("requests.exceptions", "HTTPError")),
    "httpx": Sdk("generic", "/", _alike("httpx", "HTTPStatusError")),
    "aiohttp": Sdk("generic", "/", _alike("aiohttp.client_exceptions", "ClientResponseError")),
}  # fmt: skip
"""By the name of a family's SDK; of several names of one family any stands for all."""


class Coded(NamedTuple):
    """One error of an SDK whose exceptions carry codes of their own.

    Attributes:
        classes: dotted names, the usual one first.
        code: its word.
        status: of the answer, if it was one.
        message: in words.
    """

    classes: str
    code: str | None
    status: int | None
    message: str


def _boto(code: str, status: int, message: str) -> Coded:
    classes = f"botocore.errorfactory.{code} botocore.exceptions.ClientError"
    return Coded(classes, code, status, message)


_GRPC = "grpc._channel._InactiveRpcError grpc.aio._call.AioRpcError"

CODED: Final[Mapping[str, Mapping[ErrorClass, Coded]]] = {
    "boto3": {
        _V: _boto("ValidationException", 400, "1 validation error detected"),
        _A: _boto("AccessDeniedException", 403, "User is not authorized to perform this action"),
        _R: _boto("ThrottlingException", 400, "Rate exceeded"),
        _T: _boto("ServiceUnavailableException", 503, "The service is unavailable"),
        _P: _boto("ResourceNotFoundException", 400, "Requested resource not found"),
    },
    "google-api-core": {
        _V: Coded("google.api_core.exceptions.InvalidArgument", "INVALID_ARGUMENT", 400,
             "Request contains an invalid argument."),
        _A: Coded("google.api_core.exceptions.Unauthenticated", "UNAUTHENTICATED", 401,
             "Request had invalid authentication credentials."),
        _R: Coded("google.api_core.exceptions.ResourceExhausted", "RESOURCE_EXHAUSTED", 429,
             "Quota exceeded for quota metric 'Read requests'."),
        _T: Coded("google.api_core.exceptions.ServiceUnavailable", "UNAVAILABLE", 503,
             "The service is currently unavailable."),
        _P: Coded("google.api_core.exceptions.NotFound", "NOT_FOUND", 404,
             "Requested entity was not found."),
    },
    "grpc": {
        class_: Coded(_GRPC, code, None, message)
        for class_, code, message in (
            (_V, "INVALID_ARGUMENT", "Request contains an invalid argument."),
            (_A, "UNAUTHENTICATED", "Request had invalid authentication credentials."),
            (_R, "RESOURCE_EXHAUSTED", "Received message rate is above the limit"),
            (_T, "UNAVAILABLE", "The service is currently unavailable."),
            (_P, "NOT_FOUND", "Requested entity was not found."),
        )
    },
    "azure": {
        _V: Coded("azure.core.exceptions.HttpResponseError", "InvalidHeaderValue", 400,
             "The value for one of the HTTP headers is not in the correct format."),
        _A: Coded("azure.core.exceptions.ClientAuthenticationError", "AuthenticationFailed", 403,
             "Server failed to authenticate the request."),
        _R: Coded("azure.core.exceptions.HttpResponseError", "ServerBusy", 503,
             "The server is currently unable to receive requests."),
        _T: Coded("azure.core.exceptions.HttpResponseError", "InternalError", 500,
             "The server encountered an internal error."),
        _P: Coded("azure.core.exceptions.ResourceNotFoundError", "BlobNotFound", 404,
             "The specified blob does not exist."),
    },
    "kubernetes": {
        class_: Coded("kubernetes.client.exceptions.ApiException", None, status, reason)
        for class_, status, reason in (
            (_V, 422, "Invalid"), (_A, 401, "Unauthorized"), (_R, 429, "TooManyRequests"),
            (_T, 503, "ServiceUnavailable"), (_P, 404, "NotFound"),
        )
    },
    "elasticsearch": {
        _V: Coded("elasticsearch.BadRequestError", "parsing_exception", 400, "unknown query [q]"),
        _A: Coded("elasticsearch.AuthenticationException", "security_exception", 401,
             "unable to authenticate user"),
        _R: Coded("elasticsearch.ApiError", "es_rejected_execution_exception", 429,
             "rejected execution of coordinating operation"),
        _T: Coded("elasticsearch.ApiError", "master_not_discovered_exception", 503, "no master"),
        _P: Coded("elasticsearch.NotFoundError", "index_not_found_exception", 404,
             "no such index [i]"),
    },
    "pinecone": {
        class_: Coded(f"pinecone.errors.exceptions.{name}", code, status, message)
        for class_, name, code, status, message in (
            (_V, "BadRequestError", "INVALID_ARGUMENT", 400, "Vector dimension does not match"),
            (_A, "UnauthorizedError", "UNAUTHENTICATED", 401, "Invalid API key"),
            (_R, "RateLimitError", "RESOURCE_EXHAUSTED", 429, "Too many requests"),
            (_T, "ServiceError", "UNAVAILABLE", 503, "The service is unavailable"),
            (_P, "NotFoundError", "NOT_FOUND", 404, "Index not found"),
        )
    },
    "qdrant": {
        class_: Coded("qdrant_client.http.exceptions.UnexpectedResponse", None, status,
                 f"Unexpected Response: {status}")
        for class_, status in ((_V, 400), (_A, 401), (_R, 429), (_T, 503), (_P, 404))
    },
}  # fmt: skip
"""By SDK, whose exceptions carry codes of their own."""
