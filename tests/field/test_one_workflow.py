"""One workflow, three tools, three failures: an SDK, a database, an API; one way to handle them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.proxy.callers import Answer, call, chat
from tests.proxy.upstreams import Upstream, answer, says

from .scene import JSON, admin, until

WORKFLOW = "order-4711"
ID = ("x-correlation-id", WORKFLOW)
ADMIN = ("x-sidecar-admin", "1")

SDK_SAYS_SLOW_DOWN = {
    "type": "openai.RateLimitError",
    "mro": ["openai.APIStatusError", "openai.APIError", "openai.OpenAIError"],
    "status": 429,
    "code": "rate_limit_exceeded",
    "headers": {"retry-after": "8"},
    "body": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"},
    "message": "Error code: 429 - Rate limit reached; Authorization: Bearer sk-live-4f9a8b7c6d5e4f3a",
}
DATABASE_LOST_A_RACE = {
    "type": "psycopg.errors.SerializationFailure",
    "mro": ["psycopg.OperationalError", "psycopg.DatabaseError", "psycopg.Error"],
    "sqlstate": "40001",
    "message": "could not serialize access due to concurrent update",
}
CARRIER_NAMES_A_FIELD = answer(
    422,
    json.dumps(
        {
            "errors": [
                {"field": "to.postcode", "code": "invalid", "message": "postcode is not valid"}
            ]
        }
    ).encode(),
)


def decide(envelope: dict[str, Any]) -> str:
    """All that an agent needs to know about failing tools."""
    if envelope["retryable"]:
        return f"again after {envelope['retry_after'] or 0:g} s"
    if envelope["class"] == "validation":
        return f"ask the user: {envelope['message']}"
    return "give up"


async def guarded(process: Any, name: str, error: dict[str, Any]) -> dict[str, Any]:
    """A call that the agent makes itself, and that fails."""
    base = f"/v1/dependencies/{name}"
    given = await admin(process, f"{base}/permit", "POST", b"{}", ID, ADMIN)
    assert given.status == 200
    body = json.dumps({"permit": given.json["permit"], "error": error}).encode()
    reported = await admin(process, f"{base}/report", "POST", body, ID, ADMIN)
    assert reported.status == 200
    assert reported.get("x-correlation-id") == WORKFLOW
    envelope: dict[str, Any] = reported.json["envelope"]
    return envelope


async def through_the_daemon(process: Any) -> Answer:
    return await call(process.port, "/carrier/labels", "POST", chat(), JSON, ID)


async def test_three_failures_in_one_request(
    process: Callable[..., Any], upstream: Upstream
) -> None:
    upstream.script = says(CARRIER_NAMES_A_FIELD)
    running = await process(
        {"carrier": {"upstream": upstream.url, "dialect": "generic"}},
        dependencies={
            "llm": {"source": "sdk", "sdk": "openai"},
            "orders-db": {"source": "database", "vendor": "postgresql"},
        },
    )
    refused = await guarded(running, "llm", SDK_SAYS_SLOW_DOWN)
    lost = await guarded(running, "orders-db", DATABASE_LOST_A_RACE)
    answered = await through_the_daemon(running)

    # One shape, whatever failed.
    envelopes = [refused, lost, answered.envelope]
    assert answered.status == 422
    assert [envelope["class"] for envelope in envelopes] == [
        "rate_limit",
        "transient",
        "validation",
    ]
    assert [envelope["source"] for envelope in envelopes] == ["sdk", "database", "http"]
    assert {envelope["correlation_id"] for envelope in envelopes} == {WORKFLOW}

    # One branch on `retryable`, one on `class`.
    first, second, third = map(decide, envelopes)
    assert first == "again after 8 s"
    assert second == "again after 0 s"
    assert third.startswith("ask the user:")
    assert "postcode" in third

    # One id on all three lines of the log.
    await until(lambda: len(running.lines("call.failed")) == 3)
    lines = running.lines("call.failed")
    assert {line["correlation_id"] for line in lines} == {WORKFLOW}
    assert [line["code"] for line in lines] == [envelope["code"] for envelope in envelopes]
    assert [line.get("dependency") for line in lines] == ["llm", "orders-db", None]
    assert {line["level"] for line in lines} == {"info"}

    # They are found by it, and counted where they belong.
    found = (await admin(running, f"/v1/failures/{WORKFLOW}", "GET", None, ADMIN)).json["failures"]
    assert [one["envelope"]["code"] for one in found] == [line["code"] for line in lines]
    assert [one["dependency"] or one["provider"] for one in found] == [
        "llm",
        "orders-db",
        "carrier",
    ]
    assert all(one["envelope"]["raw"] for one in found)
    groups = (await admin(running, "/v1/failures?by=provider,class")).json["groups"]
    assert {(group["provider"], group["class"], group["count"]) for group in groups} == {
        ("llm", "rate_limit", 1),
        ("orders-db", "transient", 1),
        ("carrier", "validation", 1),
    }
    document = (await admin(running, "/status")).json
    assert document["dependencies"]["orders-db"]["errors"]["by_class"]["transient"] == 1
    assert document["providers"]["carrier"]["errors"]["by_class"]["validation"] == 1
    # Nobody was down: a race, a full window and a typo are no outages.
    assert {entry["state"] for entry in document["dependencies"].values()} == {"closed"}

    shown = running.log.read_text() + json.dumps([found, groups, document])
    assert "sk-live-4f9a8b7c6d5e4f3a" not in shown
