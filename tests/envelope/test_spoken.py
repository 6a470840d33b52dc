"""An error of the daemon's own in the form that a tool's official client reads.

What each client looks at was read in its source and tried with it: stripe, PyGithub, slack_sdk,
twilio, sendgrid, notion-client, google-api-core, google-api-python-client, kiota, jira and
atlassian-python-api.
"""

import json

import pytest

from sidecar.envelope.dialects import get
from sidecar.envelope.model import Envelope, ErrorClass, Source
from sidecar.envelope.policy import should_retry

OPEN = Envelope(
    class_=ErrorClass.TRANSIENT,
    source=Source.SIDECAR,
    code="breaker_open",
    message="five calls failed",
    retryable=True,
    retry_after=30.0,
    correlation_id="corr-1",
)
SHED = Envelope(
    class_=ErrorClass.RATE_LIMIT,
    source=Source.SIDECAR,
    code="shed",
    message="too many calls",
    retryable=True,
    retry_after=3.0,
    correlation_id="corr-1",
)
BOTH = [(OPEN, 503), (SHED, 429)]


def spoken(name, envelope, status, path="/v1/things"):
    body = json.loads(get(name).error_body(envelope, status, path))
    assert body["envelope"]["code"] == envelope.code
    assert body["envelope"]["class"] == str(envelope.class_)
    return body


@pytest.mark.parametrize(("envelope", "status"), BOTH)
def test_stripe_reads_an_object_under_error(envelope, status):
    error = spoken("stripe", envelope, status)["error"]
    assert (error["code"], error["message"]) == (envelope.code, envelope.message)
    assert error["type"] == {503: "api_error", 429: "rate_limit_error"}[status]


@pytest.mark.parametrize("path", ["/repos/o/r", "/graphql"])
@pytest.mark.parametrize(("envelope", "status"), BOTH)
def test_github_reads_message_and_errors(envelope, status, path):
    body = spoken("github", envelope, status, path)
    assert body["message"] == envelope.message
    assert body["errors"][0]["code"] == envelope.code
    assert ("type" in body["errors"][0]) == (path == "/graphql")


@pytest.mark.parametrize(("envelope", "status"), BOTH)
def test_slack_reads_ok_and_error(envelope, status):
    body = spoken("slack", envelope, status)
    assert body["ok"] is False
    assert body["error"] == {503: "breaker_open", 429: "ratelimited"}[status]
    assert body["response_metadata"]["messages"] == [envelope.message]


@pytest.mark.parametrize(("envelope", "status"), BOTH)
def test_twilio_reads_a_number_and_takes_a_problem_document_for_another_error(envelope, status):
    body = spoken("twilio", envelope, status)
    assert body["code"] == {503: 20503, 429: 20429}[status]
    assert body["message"] == envelope.message
    assert body["details"]["code"] == envelope.code
    assert not body.keys() >= {"type", "title", "status", "code"}


@pytest.mark.parametrize(("envelope", "status"), BOTH)
def test_sendgrid_reads_a_list(envelope, status):
    assert spoken("sendgrid", envelope, status)["errors"][0]["message"] == envelope.message


@pytest.mark.parametrize("class_", list(ErrorClass))
def test_notion_reads_only_its_own_codes(class_):
    known = {
        "unauthorized", "restricted_resource", "object_not_found", "rate_limited", "invalid_json",
        "invalid_request_url", "invalid_request", "validation_error", "conflict_error",
        "internal_server_error", "service_unavailable", "gateway_timeout",
    }  # fmt: skip
    envelope = Envelope(
        class_=class_, source=Source.SIDECAR, code="c", message="m", retryable=False
    )
    body = spoken("notion", envelope, 400)
    assert body["code"] in known
    assert body["additional_data"]["code"] == "c"


@pytest.mark.parametrize(("envelope", "status"), BOTH)
def test_google_reads_a_reason_in_two_places(envelope, status):
    error = spoken("google-apis", envelope, status)["error"]
    assert (error["code"], error["message"]) == (status, envelope.message)
    assert error["status"] == {503: "UNAVAILABLE", 429: "RESOURCE_EXHAUSTED"}[status]
    assert error["errors"][0]["reason"] == {503: "breaker_open", 429: "rateLimitExceeded"}[status]
    assert error["details"][0]["reason"] == envelope.code
    metadata = error["details"][0]["metadata"]
    assert all(isinstance(value, str) for value in metadata.values())


@pytest.mark.parametrize(("envelope", "status"), BOTH)
def test_graph_reads_an_object_with_an_inner_error(envelope, status):
    error = spoken("msgraph", envelope, status)["error"]
    assert (error["code"], error["message"]) == (envelope.code, envelope.message)
    assert error["innerError"]["request-id"] == "corr-1"


@pytest.mark.parametrize(("envelope", "status"), BOTH)
def test_jira_reads_messages_and_forgets_them_beside_errors(envelope, status):
    body = spoken("jira", envelope, status)
    assert body["errorMessages"] == [envelope.message]
    assert body["errors"] == {}


@pytest.mark.parametrize(
    ("name", "path", "repeatable"),
    [
        ("stripe", "/v1/charges", False),
        ("github", "/graphql", False),
        ("slack", "/api/chat.postMessage", False),
        ("slack", "/api/conversations.list", True),
        ("slack", "/api/users.profile.set", False),
        ("twilio", "/2010-04-01/Accounts/AC1/Messages.json", False),
        ("sendgrid", "/v3/mail/send", False),
        ("notion", "/v1/pages", False),
        ("notion", "/v1/databases/1/query", True),
        ("google-apis", "/calendar/v3/freeBusy", True),
        ("google-apis", "/gmail/v1/users/me/messages/send", False),
        ("msgraph", "/v1.0/me/sendMail", False),
        ("msgraph", "/v1.0/search/query?x=1", True),
        ("jira", "/rest/api/3/issue", False),
        ("jira", "/rest/api/3/search/jql", True),
    ],
)
def test_what_may_be_sent_twice(name, path, repeatable):
    dialect = get(name)
    assert dialect.repeatable("POST", path) is repeatable
    assert not dialect.is_model_route("POST", path)
    said = should_retry(
        OPEN, terminal=False, decision="timeout", sent=True, repeatable=repeatable, fail_fast=False
    )
    assert said == (None if repeatable else "false")
