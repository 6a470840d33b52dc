"""The daemon's own answers in the shapes of tools: what their clients read, where they read it.

The members were taken from the clients' sources; each client was also run against these bodies.
"""

import json

import pytest

from sidecar.envelope.dialects import get
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.model import Envelope, ErrorClass, Seen, Source

SHOPIFY_GRAPHQL, REST = "/admin/api/2026-10/graphql.json", "/admin/api/2026-10/products.json"


def envelope(class_="transient", code="breaker_open", wait=12.5):
    return Envelope(
        class_=ErrorClass(class_),
        source=Source.SIDECAR,
        code=code,
        message="the breaker up/~x is open",
        retryable=True,
        retry_after=wait,
        correlation_id="corr-1",
    )


def body(name, path="/x", told=None, status=503):
    return json.loads(get(name).error_body(told or envelope(), status, path))


SHED = envelope("rate_limit", "shed", 0.5)


def test_discord_reads_a_number_as_code_and_the_wait_in_the_body():
    told = body("discord", told=SHED, status=429)
    assert told["code"] == 0
    assert told["retry_after"] == 0.5
    assert told["global"] is False
    assert "retry_after" not in body("discord")
    assert body("discord", told=envelope("rate_limit", "shed", None))["retry_after"] == 1.0


def test_salesforce_is_an_array_whose_first_item_has_the_code():
    (error,) = body("salesforce")
    assert error["errorCode"] == "SERVER_UNAVAILABLE"
    assert error["message"] == "the breaker up/~x is open"
    assert error["envelope"]["code"] == "breaker_open"
    assert body("salesforce", told=SHED)[0]["errorCode"] != "REQUEST_LIMIT_EXCEEDED"
    graphql = body("salesforce", "/services/data/v64.0/graphql")
    assert graphql["errors"][0]["extensions"] == {"code": "SERVER_UNAVAILABLE"}


def test_graphql_clients_find_errors_and_no_data():
    for name, path in (("shopify", SHOPIFY_GRAPHQL), ("linear", "/graphql")):
        told = body(name, path)
        assert told["errors"][0]["message"] == "the breaker up/~x is open"
        assert "data" not in told
    assert body("shopify", SHOPIFY_GRAPHQL, SHED)["errors"][0]["extensions"]["code"] == "THROTTLED"
    assert body("shopify", REST)["errors"] == "the breaker up/~x is open"
    extensions = body("linear", told=SHED)["errors"][0]["extensions"]
    assert (extensions["type"], extensions["code"]) == ("ratelimited", "RATELIMITED")
    assert body("linear")["errors"][0]["extensions"]["type"] == "internal error"


def test_the_flat_ones():
    assert body("airtable", told=SHED)["error"]["type"] == "RATE_LIMIT_REACHED"
    assert body("zendesk")["error"] == "ServiceUnavailable"
    told = body("hubspot", told=SHED)
    assert (told["status"], told["category"], told["subCategory"]) == (
        "error",
        "RATE_LIMITS",
        "shed",
    )
    assert told["correlationId"] == "corr-1"
    denied = Envelope(
        class_=ErrorClass.PERMANENT,
        source=Source.SIDECAR,
        code="not_allowed",
        message="x",
        retryable=False,
    )
    assert body("airtable", told=denied)["error"]["type"] == "not_allowed"


@pytest.mark.parametrize(
    "name", ["airtable", "discord", "hubspot", "linear", "salesforce", "shopify", "zendesk"]
)
@pytest.mark.parametrize("path", ["/x", SHOPIFY_GRAPHQL, "/graphql"])
def test_a_shed_call_is_read_back_as_a_throttle(name, path):
    sent = get(name).error_body(SHED, 429, path)
    found = classify(Seen(status=429, headers=Headers(), body=sent, path=path), get(name))
    assert found.verdict == "throttle"
    assert found.envelope.message == "the breaker up/~x is open"


@pytest.mark.parametrize(
    ("name", "path", "repeatable"),
    [
        ("hubspot", "/crm/v3/objects/contacts/search", True),
        ("hubspot", "/crm/v3/objects/contacts/batch/read?x=1", True),
        ("hubspot", "/crm/v3/objects/contacts", False),
        ("airtable", "/v0/app1/Table/listRecords", True),
        ("airtable", "/v0/app1/completions", False),
        ("discord", "/api/v10/channels/1/messages", False),
        ("zendesk", "/api/v2/tickets.json", False),
        ("shopify", SHOPIFY_GRAPHQL, False),
        ("salesforce", "/services/data/v64.0/parameterizedSearch", True),
    ],
)
def test_what_may_be_sent_twice(name, path, repeatable):
    assert get(name).repeatable("POST", path) is repeatable
    assert not get(name).is_model_route("POST", path)
