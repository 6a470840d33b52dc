"""What gateways and servers of models answer for each class of error: statuses, headers, bodies.

The lines hold what the servers' sources and public reports show. A class that a server has no
error for (llama.cpp limits no rate) is said in the words of a server of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sidecar.faults.told import A, P, R, T, Table, Told, V, nested, openai, sentence


def _openrouter(status: int, message: str, **metadata: str) -> Told:
    error: dict[str, Any] = {"code": status, "message": message}
    if metadata:
        error["metadata"] = metadata
    return Told(status, "", message, {"error": error})


def _ollama(status: int, message: str) -> Told:
    told = sentence(status, message)
    return told._replace(event={"error": message, "status": status})


SERVERS: Final[Mapping[str, Table]] = {
    "github-copilot": {
        R: nested(429, {"message": "You have hit a rate limit. Please try again in {wait} seconds.",
                        "code": "rate_limited"}),
    },
    "huggingface": {
        V: sentence(422, "Input validation error: `temperature` must be strictly positive",
                    error_type="validation"),
        A: sentence(401, "Invalid credentials in Authorization header"),
        R: sentence(429, "Rate limit reached. You reached the limit of requests per hour."),
        T: sentence(500, "Incomplete generation", error_type="incomplete_generation"),
        P: sentence(404, "Model org/nothing does not exist"),
    },
    "litellm": {
        V: openai(400, "invalid_request_error", "400", "litellm.BadRequestError: OpenAIException "
                  "- Invalid 'temperature': decimal above maximum value."),
        A: openai(401, "token_not_found_in_db", "401", "Authentication Error, Invalid proxy "
                  "server token passed.", "key"),
        R: openai(429, "rate_limit_error", "429", "No deployments available for selected model, "
                  "Try again in {wait} seconds. Passed model=m.", x_litellm_call_id="0"),
        T: openai(503, "service_unavailable_error", "503", "litellm.ServiceUnavailableError: "
                  "OpenAIException - the upstream is unavailable"),
        P: openai(400, "invalid_request_error", "400", "/chat/completions: Invalid model name "
                  "passed in model=nothing. Call `/v1/models` to view available models for your "
                  "key.", "model"),
    },
    "llama.cpp": {
        class_: nested(status, {"code": status, "message": message, "type": type_})
        for class_, status, type_, message in (
            (V, 400, "invalid_request_error", '"messages" is required'),
            (A, 401, "authentication_error", "Invalid API Key"),
            (R, 429, "rate_limit_error", "too many requests"),
            (T, 500, "server_error", "Compute error."),
            (P, 404, "not_found_error", "File Not Found"),
        )
    },
    "lmstudio": {
        P: openai(404, "invalid_request_error", "model_not_found", "No models loaded. Please load "
                  "a model in the developer page or use the `lms load` command.", "model"),
    },
    "ollama": {
        V: _ollama(400, "invalid option provided: temperature"),
        A: _ollama(401, "unauthorized"),
        R: _ollama(429, "you've reached your hourly usage limit, please wait or upgrade to "
                    "continue"),
        T: _ollama(500, "llama runner process has terminated: exit status 2"),
        P: _ollama(404, "model 'nothing' not found"),
    },
    "openai-codex": {
        R: nested(429, {"type": "rate_limit_exceeded", "code": "rate_limit_exceeded",
                        "message": "Rate limit reached. Please try again in {wait}s."}),
        P: nested(429, {"type": "usage_limit_reached", "message": "The usage limit has been "
                        "reached", "plan_type": "plus", "resets_in_seconds": 13872}),
    },
    "openrouter": {
        V: _openrouter(400, 'Input required: specify "prompt" or "messages"'),
        A: _openrouter(401, "No auth credentials found"),
        R: _openrouter(429, "Rate limit exceeded", error_type="rate_limit_exceeded"),
        T: _openrouter(502, "Provider returned error", error_type="provider_unavailable"),
        P: _openrouter(404, "No endpoints found for nothing/nothing."),
    },
    "vllm": {
        V: openai(400, "BadRequestError", 400, "temperature must be non-negative, got -1.0.",
                  "temperature"),
        A: sentence(401, "Unauthorized"),
        R: openai(429, "RateLimitError", 429, "too many requests"),
        T: openai(500, "InternalServerError", 500, "EngineCore encountered an issue. See stack "
                  "trace (above) for the root cause."),
        P: openai(404, "NotFoundError", 404, "The model `nothing` does not exist.", "model"),
    },
}  # fmt: skip
"""By dialect."""
