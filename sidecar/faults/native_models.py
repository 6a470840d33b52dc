"""What the providers of models answer for each class of error: statuses, headers, bodies.

The lines hold what the providers document, or what their SDKs and public reports show. A dialect
that builds on another inherits the lines that it has not got.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sidecar.faults.told import (
    A,
    P,
    R,
    T,
    Table,
    Told,
    V,
    aws,
    flat,
    google,
    nested,
    openai,
)

_MODEL = "The model `nothing` does not exist or you do not have access to it."
_KEY = "Incorrect API key provided: sk-00**00. You can find your API key in your account settings."
_TEMPERATURE = "Invalid 'temperature': decimal above maximum value. Expected a value <= 2."
_NO_MODEL = {"error": {"message": _MODEL, "type": "invalid_request_error", "param": None,
                       "code": "model_not_found"}}  # fmt: skip
"""How it is said in a stream of whoever says it by a status, or by a shape that no event has."""


def _anthropic(status: int, type_: str, message: str) -> Told:
    body = {"type": "error", "error": {"type": type_, "message": message}, "request_id": "req_0"}
    return Told(status, type_, message, body, (("request-id", "req_0"),))


def _reason(reason: str, service: str) -> dict[str, Any]:
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "googleapis.com",
        "metadata": {"service": service},
    }


def _minimax(status: int, type_: str, message: str) -> Told:
    error = {"type": type_, "message": message, "http_code": str(status)}
    return Told(status, type_, message, {"type": "error", "error": error, "request_id": "0"})


def _cerebras(status: int, type_: str, param: str, code: str, message: str) -> Told:
    return flat(status, code or type_, message, message=message, type=type_, param=param, code=code)


def _together(status: int, type_: str, code: str | None, message: str) -> Told:
    error = {"message": message, "type": type_, "param": None, "code": code}
    return nested(status, error, ("id", "0"))


def _xai(status: int, code: str, message: str) -> Told:
    return Told(status, code, message, {"code": code, "error": message})


_RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "{wait}s"}
_GEMINI: Final[Table] = {
    V: google(400, "INVALID_ARGUMENT", "Invalid value at 'generation_config.temperature'"),
    A: google(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.",
              _reason("API_KEY_INVALID", "generativelanguage.googleapis.com")),
    R: google(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota).", _RETRY),
    T: google(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    P: google(404, "NOT_FOUND", "models/nothing is not found for API version v1beta, or is not "
              "supported for generateContent."),
}  # fmt: skip

MODELS: Final[Mapping[str, Table]] = {
    "openai": {
        V: openai(400, "invalid_request_error", "decimal_above_max_value", _TEMPERATURE,
                  "temperature", x_request_id="req_0"),
        A: openai(401, "invalid_request_error", "invalid_api_key", _KEY, x_request_id="req_0"),
        R: openai(429, "requests", "rate_limit_exceeded",
                  "Rate limit reached for gpt-x on requests per min (RPM): Limit 3, Used 3, "
                  "Requested 1. Please try again in {wait}s.",
                  x_request_id="req_0", x_ratelimit_remaining_requests="0",
                  x_ratelimit_reset_requests="{wait}s"),
        T: openai(500, "server_error", None,
                  "The server had an error while processing your request. Sorry about that!",
                  x_request_id="req_0"),
        P: openai(404, "invalid_request_error", "model_not_found", _MODEL, x_request_id="req_0"),
    },
    "azure-openai": {
        A: nested(401, {"code": "401", "message": "Access denied due to invalid subscription key "
                        "or wrong API endpoint."}),
        R: nested(429, {"code": "429", "message": "Requests to the ChatCompletions_Create "
                        "Operation under Azure OpenAI API have exceeded call rate limit of your "
                        "current pricing tier. Please retry after {wait} seconds."},
                  retry_after_ms="{ms}"),
        T: nested(503, {"code": "ServiceUnavailable",
                        "message": "The service is temporarily unable to process your request."}),
        P: nested(404, {"code": "DeploymentNotFound", "message": "The API deployment for this "
                        "resource does not exist."}),
    },
    "anthropic": {
        V: _anthropic(400, "invalid_request_error", "max_tokens: Field required"),
        A: _anthropic(401, "authentication_error", "invalid x-api-key"),
        R: _anthropic(429, "rate_limit_error",
                      "This request would exceed your organization's rate limit."),
        T: _anthropic(529, "overloaded_error", "Overloaded"),
        P: _anthropic(404, "not_found_error", "model: nothing"),
    },
    "gemini": _GEMINI,
    "gemini/interactions": {
        class_: nested(status, {"code": code, "message": message})
        for class_, status, code, message in (
            (V, 400, "invalid_request", "Invalid value at input."),
            (A, 401, "authentication", "API key not valid. Please pass a valid API key."),
            (R, 429, "rate_limit_exceeded", "Rate limit exceeded. Please retry in {wait}s."),
            (T, 503, "service_unavailable", "The service is currently unavailable."),
            (P, 404, "not_found", "models/nothing is not found."),
        )
    },
    "vertex": {
        A: google(401, "UNAUTHENTICATED", "Request is missing required authentication credential.",
                  _reason("CREDENTIALS_MISSING", "aiplatform.googleapis.com")),
        P: google(404, "NOT_FOUND", "Publisher Model `nothing` was not found or your project does "
                  "not have access to it."),
    },
    "bedrock": {
        V: aws(400, "ValidationException", "Malformed input request, please reformat your input."),
        A: aws(403, "UnrecognizedClientException",
               "The security token included in the request is invalid."),
        R: aws(429, "ThrottlingException", "Too many requests, please wait before trying again."),
        T: aws(503, "ServiceUnavailableException", "The service is unavailable."),
        P: aws(404, "ResourceNotFoundException", "The model is not found."),
    },
    "cerebras": {
        V: _cerebras(400, "invalid_request_error", "temperature", "wrong_api_format",
                     "temperature: must be at most 1.5"),
        A: _cerebras(401, "invalid_request_error", "api_key", "wrong_api_key", "Wrong API Key"),
        R: _cerebras(429, "too_many_requests_error", "quota", "request_quota_exceeded",
                     "Requests per minute limit exceeded - too many requests sent."),
        T: _cerebras(500, "server_error", "", "",
                     "Encountered a server error, please try again."),
        P: _cerebras(404, "not_found_error", "model", "model_not_found",
                     "Model nothing does not exist or you do not have access to it."),
    },
    "cohere": {
        class_: Told(status, "", message, {"id": "0", "message": message})
        for class_, status, message in (
            (V, 400, "invalid request: temperature must be between 0 and 1 inclusive"),
            (A, 401, "invalid api token"),
            (R, 429, "You are past the per minute request limit, please wait and try again later."),
            (T, 503, "the service is temporarily unavailable, please try again later"),
            (P, 404, "model 'nothing' not found, make sure the correct model ID was used"),
        )
    },
    "dashscope": {
        V: nested(400, {"code": "invalid_parameter_error", "param": None, "message":
                        "Range of temperature should be [0.0, 2.0)", "type":
                        "invalid_request_error"}, ("request_id", "0")),
        A: nested(401, {"message": "Incorrect API key provided.", "type": "invalid_request_error",
                        "param": None, "code": "invalid_api_key"}, ("request_id", "0")),
        R: nested(429, {"message": "You exceeded your current requests list.", "type":
                        "limit_requests", "param": None, "code": "limit_requests"},
                  ("request_id", "0")),
        T: nested(500, {"message": "An internal error has occurred, please try again later.",
                        "type": "internal_error", "param": None, "code": "internal_error"},
                  ("request_id", "0")),
        P: nested(404, {"message": _MODEL, "type": "invalid_request_error", "param": None,
                        "code": "model_not_found"}, ("request_id", "0")),
    },
    "deepseek": {
        V: openai(400, "invalid_request_error", "invalid_request_error",
                  "Invalid temperature value, the valid range of temperature is [0, 2]"),
        A: openai(401, "authentication_error", "invalid_request_error",
                  "Authentication Fails (no such user)"),
        R: openai(429, "rate_limit_error", None, "Rate limit reached"),
        T: openai(503, "service_unavailable_error", "service_unavailable_error",
                  "Service is too busy. Please try again later."),
        P: openai(402, "unknown_error", "invalid_request_error", "Insufficient Balance")._replace(
            event=_NO_MODEL),
    },
    "fireworks": {
        V: nested(400, {"object": "error", "type": "invalid_request_error",
                        "code": "invalid_request_error", "message": "temperature: must be <= 2"}),
        A: nested(401, {"object": "error", "type": "invalid_request_error", "code": "UNAUTHORIZED",
                        "message": "The API key is invalid"}),
        R: Told(429, "", "Too Many Requests", {
            "error": "Too Many Requests", "message": "You have exceeded your usage limits. Please "
            "try again later or contact us to explore dedicated capacity."}),
        T: nested(503, {"object": "error", "type": "internal_server_error",
                        "code": "SERVICE_UNAVAILABLE", "message": "Service is overloaded"}),
        P: nested(404, {"object": "error", "type": "invalid_request_error", "code": "NOT_FOUND",
                        "message": "Model not found, inaccessible, and/or not deployed"}),
    },
    "groq": {
        V: nested(400, {"message": "'temperature' : number must be at most 2",
                        "type": "invalid_request_error"}),
        A: nested(401, {"message": "Invalid API Key", "type": "invalid_request_error",
                        "code": "invalid_api_key"}),
        R: nested(429, {"message": "Rate limit reached for model `m` on requests per minute (RPM): "
                        "Limit 30, Used 30, Requested 1. Please try again in {wait}s.",
                        "type": "requests", "code": "rate_limit_exceeded"},
                  x_ratelimit_remaining_requests="0", x_ratelimit_reset_requests="{wait}s"),
        T: nested(503, {"message": "Service Unavailable", "type": "internal_server_error"}),
        P: nested(404, {"message": _MODEL, "type": "invalid_request_error",
                        "code": "model_not_found"}),
    },
    "minimax": {
        V: _minimax(400, "bad_request_error", "invalid params, temperature (2013)"),
        A: _minimax(401, "authorized_error", "login fail: invalid api key (1004)"),
        R: _minimax(429, "rate_limit_error", "rate limit exceeded (1002)"),
        T: _minimax(500, "api_error", "unknown error, 999 (1000)"),
        P: _minimax(429, "insufficient_balance_error", "insufficient balance (1008)"),
    },
    "mistral": {
        V: flat(422, "invalid_request_error", "Field required", object="error", message={"detail":
                 [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required"}]},
                type="invalid_request_error", param=None, code=None),
        A: flat(401, "", "Unauthorized", detail="Unauthorized"),
        R: flat(429, "1300", "Rate limit exceeded", object="error", message="Rate limit exceeded",
                type="rate_limited", param=None, code="1300", raw_status_code=429),
        T: flat(500, "1000", "Internal Server Error", object="error", type="internal_server_error",
                message="Internal Server Error", param=None, code="1000")._replace(event={
            "id": "0", "object": "chat.completion.chunk", "choices": [
                {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}),
        P: flat(400, "1500", "Invalid model: nothing", object="error", type="invalid_model",
                message="Invalid model: nothing", param=None, code="1500")._replace(
            event=_NO_MODEL),
    },
    "moonshot": {
        class_: nested(status, {"message": message, "type": type_})
        for class_, status, type_, message in (
            (V, 400, "invalid_request_error", "Invalid request: temperature must be in [0, 1]"),
            (A, 401, "invalid_authentication_error", "Invalid Authentication"),
            (R, 429, "rate_limit_reached_error",
             "request reached max RPM: 3, please try again after {wait} seconds"),
            (T, 500, "server_error", "Internal server error, please try again later"),
            (P, 404, "resource_not_found_error",
             "Not found the model nothing or Permission denied"),
        )
    },
    "perplexity": {
        class_: nested(status, {"message": message, "type": type_, "code": status})
        for class_, status, type_, message in (
            (V, 400, "bad_request", "Invalid request: temperature must be less than 2"),
            (A, 401, "authentication_error", "Invalid API key provided."),
            (R, 429, "request_rate_limit_exceeded", "Request rate limit exceeded."),
            (T, 500, "internal_server_error", "Internal server error"),
            (P, 400, "invalid_model", "Invalid model 'nothing'."),
        )
    },
    "together": {
        V: _together(422, "invalid_request_error", None, "Input validation error: `temperature` "
                     "must be strictly positive"),
        A: _together(401, "invalid_request_error", "invalid_api_key", "Invalid API key provided."),
        R: _together(429, "model_rate_limit", None, "You have reached the rate limit specific to "
                     "this model."),
        T: _together(503, "service_unavailable", None, "The server is overloaded or not ready "
                     "yet."),
        P: _together(404, "invalid_request_error", "model_not_available", "Unable to access model "
                     "nothing."),
    },
    "xai": {
        V: _xai(400, "Client specified an invalid argument", "Invalid temperature."),
        A: _xai(400, "Client specified an invalid argument", "Incorrect API key provided: xa***00. "
                "You can obtain an API key from https://console.x.ai."),
        R: _xai(429, "Some resource has been exhausted", "Too many requests for team. Your rate "
                "limit is requests per minute 60."),
        T: _xai(503, "The service is currently unavailable", "Service temporarily unavailable."),
        P: _xai(404, "Some requested entity was not found", "The model nothing does not exist or "
                "your team does not have access to it.")._replace(event=_NO_MODEL),
    },
    "zai": {
        class_: nested(status, {"code": code, "message": message})
        for class_, status, code, message in (
            (V, 400, "1210", "Invalid API parameter, please check the documentation."),
            (A, 401, "1002", "Invalid Authentication Token"),
            (R, 429, "1302", "Rate limit reached for requests"),
            (T, 500, "1234", "Network error, please contact customer service."),
            (P, 400, "1211", "Model does not exist, please check the model code"),
        )
    },
}  # fmt: skip
"""By dialect."""
