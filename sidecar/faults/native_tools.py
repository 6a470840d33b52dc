"""What the APIs that agents use as tools answer for each class of error.

The lines hold what the APIs document, or what their SDKs and public reports show. Several tell a
limit by a header of their own and send no `Retry-After`, and several tell errors under 200.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sidecar.faults.told import (
    HTML,
    SECONDS,
    TEXT,
    A,
    P,
    R,
    T,
    Table,
    Told,
    V,
    flat,
    named,
    nested,
)

_NO_PAGE = "<html>\n<head><title>{0}</title></head>\n<body>\n<h1>{0}</h1>\n</body>\n</html>\n"


def _slack(status: int, code: str, **more: Any) -> Told:
    """The sentence of Slack is its code."""
    return Told(status, code, code, {"ok": False, "error": code, **more},
                (("x-slack-req-id", "0"),))  # fmt: skip


def _github(status: int, message: str, page: str, *errors: Mapping[str, str]) -> Told:
    body: dict[str, Any] = {"message": message}
    if errors:
        body["errors"] = list(errors)
    body["documentation_url"] = f"https://docs.github.com/rest{page}"
    body["status"] = str(status)
    return Told(status, "", message, body, (("x-github-request-id", "0"),))


def _stripe(status: int, type_: str, code: str | None, message: str, **more: Any) -> Told:
    """Stripe leaves members out that have no value; it tells no wait."""
    error = {"code": code} if code else {}
    told = nested(status, {**error, **more, "message": message, "type": type_},
                      request_id="req_0")  # fmt: skip
    return told._replace(code=code or "", retry_after=False)


def _twilio(status: int, number: int, message: str) -> Told:
    page = f"https://www.twilio.com/docs/errors/{number}"
    body = {"code": number, "message": message, "more_info": page, "status": status}
    return Told(status, str(number), message, body, (("twilio-request-id", "RQ0"),))


def _sendgrid(status: int, message: str, field: str | None = None, **headers: str) -> Told:
    body = {"errors": [{"message": message, "field": field, "help": None}]}
    return Told(status, "", message, body, named(headers), retry_after=False)


def _notion(status: int, code: str, message: str) -> Told:
    return flat(status, code, message, object="error", status=status, code=code, message=message,
                request_id="0")  # fmt: skip


def _discord(status: int, code: int, message: str, /, **more: Any) -> Told:
    return flat(status, str(code) if code else "", message, message=message, code=code, **more)


def _airtable(status: int, type_: str, message: str) -> Told:
    return nested(status, {"type": type_, "message": message})


def _zendesk(status: int, word: str, description: str, /, **more: Any) -> Told:
    return flat(status, word, description, error=word, description=description, **more)


def _hubspot(status: int, category: str, message: str, /, **more: Any) -> Told:
    return flat(status, category, message, status="error", message=message, correlationId="0",
                category=category, **more)  # fmt: skip


def _jira(status: int, *messages: str, **errors: str) -> Told:
    told = " ".join((*messages, *errors.values()))
    return flat(status, "", told, errorMessages=list(messages), errors=errors)


TOOLS: Final[Mapping[str, Table]] = {
    "airtable": {
        V: _airtable(422, "UNKNOWN_FIELD_NAME", 'Unknown field name: "Nothing"'),
        A: _airtable(401, "AUTHENTICATION_REQUIRED", "Authentication required"),
        # The wait is documented (thirty seconds), and is not in the answer.
        R: Told(429, "RATE_LIMIT_REACHED", "Rate limit exceeded. Please try again later", {
            "errors": [{"error": "RATE_LIMIT_REACHED",
                        "message": "Rate limit exceeded. Please try again later"}],
            }, retry_after=False),
        T: _airtable(503, "SERVICE_UNAVAILABLE", "The server could not process your request in "
                     "time. Please try again later."),
        P: Told(404, "NOT_FOUND", "", {"error": "NOT_FOUND"}),
    },
    "discord": {
        V: _discord(400, 50035, "Invalid Form Body", errors={"content": {"_errors": [
            {"code": "BASE_TYPE_REQUIRED", "message": "This field is required"}]}}),
        A: _discord(401, 0, "401: Unauthorized"),
        R: Told(429, "", "You are being rate limited.", {
            "message": "You are being rate limited.", "retry_after": SECONDS, "global": False,
            }, (("via", "1.1 google"), ("x-ratelimit-scope", "user"),
                ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset-after", "{wait}"))),
        T: _discord(503, 0, "503: Service Unavailable"),
        P: _discord(404, 10003, "Unknown Channel"),
    },
    "github": {
        V: _github(422, "Validation Failed", "/issues/issues#create-an-issue",
                   {"resource": "Issue", "code": "missing_field", "field": "title"},
                   )._replace(code="missing_field"),
        A: _github(401, "Bad credentials", ""),
        R: _github(403, "You have exceeded a secondary rate limit. Please wait a few minutes "
                   "before you try again.", "/using-the-rest-api/rate-limits-for-the-rest-api"),
        T: Told(502, "", "", _NO_PAGE.format("502 Bad Gateway"),
                (("server", "github.com"), ("x-github-request-id", "0")), HTML),
        P: _github(404, "Not Found", ""),
    },
    "hubspot": {
        V: _hubspot(400, "VALIDATION_ERROR", "Property values were not valid"),
        A: _hubspot(401, "INVALID_AUTHENTICATION", "Authentication credentials not found. This API "
                    "supports OAuth 2.0 authentication."),
        R: Told(429, "RATE_LIMIT", "You have reached your secondly limit.", {
            "status": "error", "message": "You have reached your secondly limit.",
            "errorType": "RATE_LIMIT", "correlationId": "0", "policyName": "SECONDLY",
            "requestId": "0",
            }, (("x-hubspot-ratelimit-remaining", "0"),
                ("x-hubspot-ratelimit-interval-milliseconds", "{ms}")), retry_after=False),
        T: flat(503, "", "service temporarily unavailable", status="error",
                message="service temporarily unavailable", correlationId="0"),
        P: _hubspot(404, "OBJECT_NOT_FOUND", "resource not found"),
    },
    "jira": {
        V: _jira(400, summary="You must specify a summary of the issue."),
        A: flat(401, "", "Unauthorized; scope does not match", code=401,
                message="Unauthorized; scope does not match"),
        R: Told(429, "", "Rate limit exceeded.", {"errorMessages": ["Rate limit exceeded."],
                "errors": {}}, (("ratelimit-reason", "jira-burst-based"),)),
        T: _jira(503, "The service is temporarily unavailable."),
        P: _jira(404, "Issue does not exist or you do not have permission to see it."),
    },
    "notion": {
        V: _notion(400, "validation_error", "body failed validation: body.parent should be defined,"
                   " instead was `undefined`."),
        A: _notion(401, "unauthorized", "API token is invalid."),
        R: _notion(429, "rate_limited", "You have been rate limited. Please try again in a few "
                   "minutes."),
        T: _notion(503, "service_unavailable", "Notion is unavailable, please try again later."),
        P: _notion(404, "object_not_found", "Could not find page with ID: 0. Make sure the relevant"
                   " pages and databases are shared with your integration."),
    },
    "sendgrid": {
        V: _sendgrid(400, "The subject is required.", "subject"),
        A: _sendgrid(401, "The provided authorization grant is invalid, expired, or revoked"),
        R: _sendgrid(429, "too many requests", x_ratelimit_remaining="0",
                     x_ratelimit_reset="{reset}"),
        T: _sendgrid(503, "service unavailable"),
        P: _sendgrid(404, "resource not found"),
    },
    "slack": {
        V: _slack(200, "invalid_arguments"),
        A: _slack(200, "invalid_auth"),
        R: _slack(429, "ratelimited"),
        T: _slack(200, "internal_error"),
        P: _slack(200, "channel_not_found"),
    },
    "stripe": {
        V: _stripe(400, "invalid_request_error", "parameter_missing",
                   "Missing required param: amount.", param="amount"),
        A: _stripe(401, "invalid_request_error", None, "Invalid API Key provided: sk_test_***0000"),
        R: _stripe(429, "invalid_request_error", "rate_limit", "Request rate limit exceeded. Learn "
                   "more about rate limits here https://stripe.com/docs/rate-limits."),
        T: _stripe(500, "api_error", None, "An unknown error occurred"),
        P: _stripe(404, "invalid_request_error", "resource_missing",
                   "No such customer: 'cus_nothing'", param="customer"),
    },
    "twilio": {
        V: _twilio(400, 21211, "The 'To' number +0 is not a valid phone number."),
        A: _twilio(401, 20003, "Authenticate"),
        R: _twilio(429, 20429, "Too Many Requests"),
        T: _twilio(503, 20503, "Service Unavailable"),
        P: _twilio(404, 20404, "The requested resource /2010-04-01/Accounts/AC0/Messages/SM0.json "
                   "was not found"),
    },
    "zendesk": {
        V: _zendesk(422, "RecordInvalid", "Record validation errors", details={"subject": [
            {"description": "Subject: cannot be blank", "error": "BlankValue"}]}),
        A: flat(401, "", "Couldn't authenticate you", error="Couldn't authenticate you"),
        R: Told(429, "", "", "Rate limit for ticket updates exceeded, please wait before updating "
                "this ticket again", media_type=HTML),
        T: Told(503, "", "", "Service Unavailable", media_type=TEXT),
        P: _zendesk(404, "RecordNotFound", "Not found"),
    },
}  # fmt: skip
"""By dialect."""
