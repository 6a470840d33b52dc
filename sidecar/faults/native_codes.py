"""What some providers say of a class in other words than the usual ones, by their codes.

A rule with a `code` means the answer that goes with it: whoever asks for OpenAI's spent quota means
its 429, although what is permanent has another status as a rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sidecar.envelope.model import ErrorClass
from sidecar.faults.told import A, P, R, T, Told, V, google, nested, openai


def _anthropic(status: int, type_: str, message: str) -> Told:
    told = nested(status, {"type": type_, "message": message}, ("type", "error"),
                  ("request_id", "req_0"), request_id="req_0")  # fmt: skip
    return told._replace(code=type_, retry_after=type_ == "rate_limit_error")


def _stripe(status: int, type_: str, code: str, message: str, **more: str) -> Told:
    error = {"code": code, **more, "message": message, "type": type_}
    return nested(status, error, request_id="req_0")._replace(retry_after=False)


CODES: Final[Mapping[str, Mapping[ErrorClass, tuple[Told, ...]]]] = {
    "openai": {
        V: (
            openai(400, "invalid_request_error", "context_length_exceeded", "This model's maximum "
                   "context length is 8192 tokens. However, your messages resulted in 10061 "
                   "tokens. Please reduce the length of the messages.", "messages"),
            openai(400, "invalid_request_error", "content_policy_violation", "Your request was "
                   "rejected as a result of our safety system."),
        ),
        R: (openai(429, "requests", "slow_down", "Please reduce your request rate."),),
        T: (
            openai(503, "service_unavailable_error", "server_is_overloaded", "The server is "
                   "overloaded. Please try again later."),
        ),
        P: (
            openai(429, "insufficient_quota", "insufficient_quota", "You exceeded your current "
                   "quota, please check your plan and billing details."),
        ),
    },
    "anthropic": {
        A: (
            _anthropic(403, "permission_error", "Your API key does not have permission to use the "
                       "specified resource."),
        ),
        T: (
            _anthropic(500, "api_error", "Internal server error"),
            _anthropic(504, "timeout_error", "Request timed out"),
        ),
        P: (
            _anthropic(402, "billing_error", "Your credit balance is too low to access the API."),
            _anthropic(413, "request_too_large", "Request exceeds the maximum size"),
        ),
    },
    "gemini": {
        T: (
            google(500, "INTERNAL", "An internal error has occurred. Please retry."),
            google(504, "DEADLINE_EXCEEDED", "Deadline expired before operation could complete."),
        ),
    },
    "stripe": {
        T: (
            _stripe(429, "invalid_request_error", "lock_timeout", "This object cannot be accessed "
                    "right now because another API request or Stripe process is currently "
                    "accessing it."),
            _stripe(409, "idempotency_error", "idempotency_key_in_use", "There is currently "
                    "another in-progress request using this idempotent key."),
        ),
        P: (
            _stripe(402, "card_error", "card_declined", "Your card was declined.",
                    decline_code="generic_decline"),
        ),
    },
}  # fmt: skip
"""By dialect and class; of the lines of one class each has its code."""
