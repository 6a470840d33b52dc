"""An injected answer is the provider's own, and is found to be what was asked for."""

from __future__ import annotations

import json

import pytest

from sidecar.cli import main
from sidecar.envelope import dialects
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.model import ErrorClass, Seen
from sidecar.envelope.stream import StreamReader
from sidecar.faults import answers, failing_events
from sidecar.faults.matrix import PATHS, STREAMS, rows
from sidecar.faults.native import WAIT

CHAT = "/v1/chat/completions"
GEMINI = "/v1beta/models/m:generateContent"
ROUTES = (CHAT, "/v1/messages", "/v1/responses", "/graphql", "/v1beta/interactions", "/")
NAMES = sorted(dialects.NAMES)
WAITS = {
    "airtable": 30.0,
    **dict.fromkeys(("aws-edge", "bedrock", "envoy", "google-apis", "nginx"), None),
    **dict.fromkeys(("salesforce", "stripe"), None),
}
"""What is known of the wait where the answer itself does not tell it."""


@pytest.mark.parametrize("name", NAMES)
def test_expected_is_actual(name) -> None:
    found = list(rows(dialects.get(name)))
    assert len(found) >= len(ErrorClass)
    for row in found:
        assert row.right, row
        if row.expected == "rate_limit" and row.as_ == "answer":
            assert row.retry_after == WAITS.get(name, WAIT), row


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_ours_is_left_in_it(name) -> None:
    dialect = dialects.get(name)
    path = PATHS.get(name, CHAT)
    for class_ in ErrorClass:
        told = answers.answer(dialect, class_, path)
        assert b'"envelope"' not in told.body
        assert b"sidecar" not in told.body
        assert not any(key.startswith("x-sidecar") for key, _ in told.headers)
        if class_ in failing_events.said_in_streams(dialect):
            assert b'"envelope"' not in failing_events.stream_event(dialect, class_, path)


def judged(name: str, told: answers.Answer, path: str, now: float = 0.0):
    seen = Seen(
        status=told.status, headers=Headers(told.headers), body=told.body, path=path, now=now
    )
    return classify(seen, dialects.get(name)).envelope


@pytest.mark.parametrize("wait", [1.0, 90.0])
@pytest.mark.parametrize("name", NAMES)
def test_a_wait_of_ones_own(name, wait) -> None:
    path, now = PATHS.get(name, CHAT), 1_800_000_000.0
    told = answers.answer(dialects.get(name), ErrorClass.RATE_LIMIT, path, wait=wait, now=now)
    assert judged(name, told, path, now).retry_after == pytest.approx(wait, abs=0.01)


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini", "bedrock", "slack", "github"])
def test_a_part_of_a_second(name) -> None:
    path = PATHS.get(name, CHAT)
    told = answers.answer(dialects.get(name), ErrorClass.RATE_LIMIT, path, wait=0.25)
    assert judged(name, told, path).retry_after == 0.25


@pytest.mark.parametrize("class_", ErrorClass)
@pytest.mark.parametrize("name", NAMES)
def test_on_routes_of_other_clients_too(name, class_) -> None:
    """A server that imitates another provider on a route answers there as that one does."""
    for path in ROUTES:
        told = answers.answer(dialects.get(name), class_, path)
        assert judged(name, told, path).class_ is class_, (path, told)


@pytest.mark.parametrize("class_", ErrorClass)
@pytest.mark.parametrize("name", NAMES)
def test_a_code_and_a_message_are_said_where_there_is_a_place(name, class_) -> None:
    dialect, path = dialects.get(name), PATHS.get(name, CHAT)
    without_code = {"discord", "ollama", "shopify", "zendesk"}
    for asked in ({"code": "strange_code"}, {"message": "My words."}):
        told = answers.answer(dialect, class_, path, **asked)
        said = told.body + repr(told.headers).encode()
        (word,) = asked.values()
        assert word.encode() in said or ("code" in asked and name in without_code)
        event = failing_events.stream_event(dialect, class_, path, **asked)
        for text in (said, event):
            assert b"sidecar" not in text
            assert b"envelope" not in text


@pytest.mark.parametrize("class_", ErrorClass)
@pytest.mark.parametrize(
    "name", [name for name in NAMES if failing_events.said_in_streams(dialects.get(name))]
)
def test_a_class_that_is_not_said_in_streams_is_understood_in_one(name, class_) -> None:
    """Whoever asks for it all the same gets it, but from Cohere: that tells of no class."""
    if name == "cohere":
        return
    dialect, path = dialects.get(name), PATHS.get(name, CHAT)
    headers = Headers([("content-type", STREAMS.get(name, "text/event-stream"))])
    reader = StreamReader(dialect, Seen(status=200, headers=headers, path=path))
    reader.feed(failing_events.stream_event(dialect, class_, path))
    found = reader.failed or reader.finish(clean=True)
    assert found.envelope.class_ is class_


@pytest.mark.parametrize(
    ("name", "path", "class_", "status", "headers", "body"),
    [
        ("openai", CHAT, "rate_limit", 429,
         {"retry-after": "2", "x-ratelimit-reset-requests": "2s"},
         {"error": {"type": "requests", "code": "rate_limit_exceeded"}}),
        ("gemini", GEMINI, "rate_limit", 429, {"retry-after": None},
         {"error": {"status": "RESOURCE_EXHAUSTED"}}),
        ("gemini", GEMINI, "authentication", 400, {}, {"error": {"status": "INVALID_ARGUMENT"}}),
        ("anthropic", "/v1/messages", "transient", 529, {"request-id": "req_0"},
         {"type": "error", "error": {"type": "overloaded_error"}}),
        ("azure-openai", CHAT, "rate_limit", 429, {"retry-after-ms": "2000"},
         {"error": {"code": "429"}}),
        ("slack", "/api/chat.postMessage", "transient", 200, {},
         {"ok": False, "error": "internal_error"}),
        ("stripe", "/v1/charges", "rate_limit", 429, {"retry-after": None},
         {"error": {"type": "invalid_request_error", "code": "rate_limit"}}),
        ("github", "/repos/o/r/issues", "rate_limit", 403, {"retry-after": "2"},
         {"status": "403"}),
        ("github", "/graphql", "rate_limit", 200,
         {"x-ratelimit-reset": "1800000002", "retry-after": None},
         {"errors": [{"type": "RATE_LIMITED"}]}),
        ("sendgrid", "/v3/mail/send", "rate_limit", 429,
         {"x-ratelimit-reset": "1800000002", "retry-after": None}, {}),
        ("shopify", "/admin/api/2026-07/graphql.json", "rate_limit", 200, {},
         {"extensions": {"cost": {"requestedQueryCost": 100}}}),
        ("shopify", "/admin/api/2026-07/orders.json", "rate_limit", 429, {"retry-after": "2"}, {}),
        ("discord", "/api/v10/channels/1/messages", "rate_limit", 429,
         {"x-ratelimit-reset-after": "2"}, {"retry_after": 2, "global": False}),
        ("salesforce", "/services/data/v60.0/query", "rate_limit", 403, {}, None),
        ("linear", "/graphql", "rate_limit", 400,
         {"x-ratelimit-requests-reset": "1800000002000"},
         {"errors": [{"extensions": {"code": "RATELIMITED"}}]}),
        ("grpc-web", "/s.S/M", "transient", 200,
         {"grpc-status": "14", "content-type": "application/grpc-web+proto"}, None),
        ("ollama", "/api/chat", "permanent", 404, {}, {"error": "model 'nothing' not found"}),
        ("ollama", CHAT, "permanent", 404, {}, {"error": {"code": "model_not_found"}}),
        ("vllm", CHAT, "authentication", 401, {}, {"error": "Unauthorized"}),
        ("zai", "/api/anthropic/v1/messages", "validation", 400, {},
         {"type": "error", "error": {"type": "invalid_request_error"}}),
        ("nginx", "/", "transient", 502, {"server": "nginx", "content-type": "text/html"}, None),
    ],
)  # fmt: skip
def test_the_words_of_the_provider(name, path, class_, status, headers, body) -> None:
    told = answers.answer(dialects.get(name), ErrorClass(class_), path, now=1_800_000_000.0)
    sent = dict(told.headers)
    assert told.status == status
    assert {key: sent.get(key) for key in headers} == headers
    if body is not None:
        assert holds(json.loads(told.body), body), told.body


def holds(found: object, wanted: object) -> bool:
    """Is all of this in it?"""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            holds(found.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and all(map(holds, found, wanted))
    return found == wanted


@pytest.mark.parametrize(
    ("name", "path", "class_", "code", "status", "type_"),
    [
        ("openai", CHAT, "permanent", "insufficient_quota", 429, "insufficient_quota"),
        ("openai-compatible", CHAT, "transient", "server_is_overloaded", 503,
         "service_unavailable_error"),
        ("openai", CHAT, "transient", "new_word", 500, "server_error"),
        ("anthropic", "/v1/messages", "permanent", "billing_error", 402, "billing_error"),
        ("stripe", "/v1/charges", "permanent", "card_declined", 402, "card_error"),
    ],
)  # fmt: skip
def test_a_code_brings_its_answer_along(name, path, class_, code, status, type_) -> None:
    told = answers.answer(dialects.get(name), ErrorClass(class_), path, code=code)
    assert told.status == status
    error = json.loads(told.body)["error"]
    assert (error.get("code", code), error["type"]) == (code, type_)


def test_a_code_and_a_status_of_ones_own() -> None:
    told = answers.answer(
        dialects.get("openai"), ErrorClass.PERMANENT, "/v1/chat/completions",
        status=503, code="insufficient_quota", message="Check your plan.",
    )  # fmt: skip
    assert told.status == 503
    assert json.loads(told.body)["error"]["code"] == "insufficient_quota"
    assert json.loads(told.body)["error"]["message"] == "Check your plan."


def test_the_command(capsys) -> None:
    assert main(["faults", "matrix", "openai"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[-1] == "10 injected, 10 as expected"
    assert main(["faults", "matrix", "all", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["dialect"] for row in found} >= {"openai", "anthropic", "slack"}
    assert all(row["right"] for row in found)
    assert main(["faults", "matrix", "nobody"]) == 2
