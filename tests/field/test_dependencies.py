"""A whole daemon in front of what the agent calls by itself: reloads, events, the log, time."""

from __future__ import annotations

import json
from typing import Any

from tests.proxy.callers import Answer, Caller, request

from .scene import admin, document, reload_with, until

ADMIN = ("x-sidecar-admin", "1")
DEAD = {"type": "ConnectionRefusedError", "errno": 111, "message": "Connection refused"}
SECTION: dict[str, Any] = {
    "source": "database",
    "vendor": "postgresql",
    "breaker": {"consecutive_failures": 2, "open_for": "30s", "jitter": 0},
}
UP = {"up": "http://127.0.0.1:9"}


async def permit(running: Any, name: str = "db") -> Answer:
    return await admin(running, f"/v1/dependencies/{name}/permit", "POST", b"{}", ADMIN)


async def report(running: Any, permit: str, name: str = "db", **fields: Any) -> Answer:
    body = json.dumps({"permit": permit, **fields}).encode()
    return await admin(running, f"/v1/dependencies/{name}/report", "POST", body, ADMIN)


async def trip(running: Any, name: str = "db") -> None:
    for _ in range(2):
        given = (await permit(running, name)).json["permit"]
        assert (await report(running, given, name, error=DEAD)).json["verdict"] == "failure"


async def test_an_outage_and_its_end(start, clocks, log) -> None:
    running = await start(UP, dependencies={"db": SECTION})
    await trip(running)
    refused = await permit(running)
    assert refused.status == 503
    assert refused.json["envelope"]["message"].startswith("db: 2 failures in a row")
    clocks.later(30.0)
    given = (await permit(running)).json["permit"]
    assert (await permit(running)).status == 503
    closed = await report(running, given, ok=True)
    # Refused connections opened it, so one good answer closes it.
    assert closed.json["breaker"]["state"] == "closed"
    names = [line["event"] for line in log.lines() if line["event"].startswith("breaker.")]
    assert names == ["breaker.opened", "breaker.half_open", "breaker.closed"]
    assert {line["key"] for line in log.lines() if line["event"].startswith("breaker.")} == {"db"}


async def test_changes_are_pushed(start) -> None:
    running = await start(UP, dependencies={"db": SECTION})
    caller = await Caller.connect(running.admin_port)
    await caller.send(request("/events"))
    await caller.head()
    await trip(running)
    await caller.reader.readuntil(b"event: transition")
    event = (await caller.reader.readuntil(b"\n\n")).decode()
    assert '"key":"db"' in event
    assert '"new":"open"' in event


async def test_a_reload_keeps_what_is_known(start) -> None:
    running = await start(UP, dependencies={"db": SECTION, "cache": {"source": "database"}})
    waiting = (await permit(running)).json["permit"]
    other = (await permit(running, "cache")).json["permit"]
    await trip(running)
    result = await reload_with(running, "consecutive_failures: 2", "consecutive_failures: 3")
    assert (result.problems, result.changed) == ((), ("db",))
    assert (await document(running))["dependencies"]["db"]["state"] == "open"
    assert (await report(running, waiting, ok=True)).status == 200
    result = await reload_with(running, "cache:", "cash:")
    assert (result.added, result.removed) == (("cash",), ("cache",))
    assert set((await document(running))["dependencies"]) == {"db", "cash"}
    gone = await report(running, other, "cache", error=DEAD)
    assert (gone.status, gone.json["error"]["code"]) == (404, "unknown_dependency")
    assert gone.json["envelope"]["code"] == "connection_refused"
    assert gone.json["breaker"] is None
    assert (await permit(running, "cache")).status == 404


async def test_a_bad_reload_changes_nothing(start) -> None:
    running = await start(UP, dependencies={"db": SECTION})
    await trip(running)
    result = await reload_with(running, "source: database", "source: databse")
    (problem,) = result.problems
    assert 'did you mean "database"?' in str(problem)
    assert (await permit(running)).status == 503


async def test_a_permit_is_over_though_nobody_asks(start, clocks, log) -> None:
    running = await start(UP, dependencies={"db": {**SECTION, "lease": "60s"}})
    await permit(running)
    clocks.later(60.0)
    await until(lambda: running.daemon.dependencies.in_flight("db") == 0)
    shown = (await document(running))["dependencies"]["db"]
    assert (shown["in_flight"], shown["window"]["neutral"]) == (0, 1)
    running.daemon.log.flush()
    (line,) = log.lines("permits.expired")
    assert (line["count"], line["by_key"]) == (1, {"db": 1})
