"""Area observability: what is shown is true, and every call leaves its trace."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from sidecar import daemon as daemon_module
from sidecar.breaker.model import Transition
from tests.proxy.callers import Caller, call, chat, request
from tests.proxy.upstreams import Visit, answer, says

from .scene import (
    CHAT,
    DONE,
    JSON,
    STREAM_HEAD,
    admin,
    ask,
    base,
    chunk,
    delta,
    document,
    error,
    trip,
    until,
)


async def test_f163_open_ends_without_any_call(start, upstream, log, monkeypatch) -> None:
    monkeypatch.setattr(daemon_module, "TICK", 0.01)
    running = await start({"up": base(upstream.url)})
    heard: list[Transition] = []
    running.daemon.observer.add(lambda fact: isinstance(fact, Transition) and heard.append(fact))
    await trip(running, upstream)
    opened = (await document(running))["providers"]["up"]
    assert opened["breakers"]["up/gpt-x"]["state"] == "open"
    assert opened["verdict"] == "degraded"
    # Nobody calls and nobody looks: the change is announced all the same.
    await until(lambda: [fact.new for fact in heard] == ["open", "half_open"])
    shown = (await document(running))["providers"]["up"]["breakers"]["up/gpt-x"]
    assert (shown["state"], shown["retry_after"]) == ("half_open", None)
    assert shown["half_open_at"] > shown["opened_at"]
    # A short open time that no scrape saw is proven by the count of openings.
    assert shown["opens"] == 1
    assert [line["new"] for line in log.lines("breaker.half_open")] == ["half_open"]


@pytest.mark.parametrize(
    "headers",
    [
        [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
         ("tracestate", "a=1,b=2"), ("baggage", "k=v")],
        [("Traceparent", "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01")],
        [("TRACEPARENT", "garbage"), ("traceparent", "00-0-0-0")],
    ],
)  # fmt: skip
async def test_f162_without_tracing_trace_headers_pass_as_they_came(
    start, upstream, headers
) -> None:
    running = await start({"up": base(upstream.url)})
    assert (await call(running.port, "/up/x", "GET", None, *headers)).status == 200
    sent = [(name.encode(), value.encode()) for name, value in headers]
    assert upstream.requests[0].headers[1:] == sent


async def test_f166_no_call_leaves_no_trace(start, upstream, log) -> None:
    """A hundred calls for each of five endings: a line each but for refusals, which are summed."""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        kind = visit.request.get(b"x-kind")
        if kind == b"cut":
            await visit.send(STREAM_HEAD, chunk(delta("a")))
            visit.keep = False
            return
        await visit.closed()
        visit.keep = False

    upstream.script = script
    # Counted and shown, but never refused: the endings are what is looked at.
    running = await start(
        {
            "up": base(upstream.url, mode="observe", timeouts={"first_byte": "300s"}),
            "quick": base(upstream.url, mode="observe", timeouts={"first_byte": "50ms"}),
            "shut": base(upstream.url, breaker={"open_for": "300s"}),
        },
        drain={"timeout": "100ms"},
    )
    await admin(running, "/breakers/shut/open", "POST")

    # Ten models, since ten lines a minute are written of each: a storm of one kind is summed up.
    async def cut(n: int) -> None:
        await (await waiting(n, ("X-Kind", "cut"), stream=True)).answer()

    async def timed_out(n: int) -> None:
        path = CHAT.replace("up", "quick", 1)
        found = await call(running.port, path, "POST", chat(f"gpt-{n % 10}"), JSON)
        assert found.status == 504

    async def refused(n: int) -> None:
        path = CHAT.replace("up", "shut", 1)
        found = await call(running.port, path, "POST", chat(f"gpt-{n % 10}"), JSON)
        assert found.status == 503

    async def waiting(n: int, *headers: tuple[str, str], **more: object) -> Caller:
        caller = await Caller.connect(running.port)
        await caller.send(request(CHAT, "POST", chat(f"gpt-{n % 10}", **more), JSON, *headers))
        return caller

    for one in (cut, timed_out, refused):
        await asyncio.gather(*(one(n) for n in range(100)))

    def at_upstream(kind: bytes) -> int:
        return sum(one.get(b"x-kind") == kind for one in upstream.requests)

    leaving = [await waiting(n, ("X-Kind", "left")) for n in range(100)]
    await until(lambda: at_upstream(b"left") == 100)
    for caller in leaving:
        caller.close()
    await until(lambda: len(running.calls) == 400)
    for n in range(100):
        await waiting(n, ("X-Kind", "stopped"))
    await until(lambda: at_upstream(b"stopped") == 100)
    running.daemon.stop()
    await running.daemon.run()
    await running.daemon.close()

    assert len(running.calls) == 500
    lines = [line for line in log.lines() if line["event"].startswith("call.")]
    assert Counter(line["ending"] for line in lines) == {
        "client_left": 100, "upstream_cut": 100, "timed_out": 100, "shutdown": 100,
    }  # fmt: skip
    assert sum(line["count"] for line in log.lines("calls.refused")) == 100
    assert len({line["correlation_id"] for line in lines}) == 400
    for line in lines:
        assert line["duration"] >= 0
        if line["ending"] == "client_left":
            assert line["event"] == "call.cancelled"
            assert line["status"] is None
            assert line["verdict"] == "neutral"
    totals = (running.daemon.tally.totals.requests, running.daemon.tally.totals.answered_here)
    assert totals[0] == 500
    # Those who left are in no rate of errors.
    errors = running.daemon.tally.named("up").errors()["by_class"]
    assert sum(errors.values()) <= 200


async def test_f166_a_refusal_is_summed_and_an_error_is_a_line(start, upstream, log) -> None:
    upstream.script = says(error(500))
    running = await start({"up": base(upstream.url, breaker={"open_for": "300s"})})
    for n in range(5):
        await ask(running, n=n)
    for n in range(50):
        assert (await ask(running, n=n)).status == 503
    upstream.script = says(answer(200, DONE))
    running.daemon.log.flush()
    assert len(log.lines("call.failed")) == 5
    (summary,) = log.lines("calls.refused")
    assert summary["by_decision"] == {"breaker_open": 50}
    assert summary["by_key"] == {"up/gpt-x": 50}
