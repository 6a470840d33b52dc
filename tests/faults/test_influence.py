"""A fault takes nothing from real calls unless it is to count; then it counts as one of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sidecar import clock
from tests.field.scene import (
    CHAT,
    JSON,
    OK,
    STREAM_HEAD,
    admin,
    ask,
    base,
    chunk,
    delta,
    open_stream,
    shots,
    trip,
    until,
)
from tests.proxy.callers import call, chat
from tests.proxy.upstreams import Visit, answer, says
from tests.telemetry.collector import Sink, exporting

FAULT = "X-Sidecar-Fault"
KINDS = [
    "class=validation",
    "class=authentication",
    "class=rate_limit",
    "class=transient",
    "class=permanent; code=insufficient_quota; status=429",
    "kind=refuse",
    "kind=reset",
    "kind=hang",
    "kind=fake_200",
    "kind=wrong_length",
    "kind=error_event",
    "kind=cut",
    "kind=delay; after=1ms",
    "kind=dribble; after=1ms",
    "source=sidecar; decision=breaker_open",
    "source=sidecar; decision=shed",
    "source=sidecar; decision=quota",
    "source=sidecar; decision=connect_error",
    "source=sidecar; decision=timeout",
]


def streaming(count: int = 3):
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD)
        for n in range(count):
            await visit.send(chunk(delta(f"w{n}", "stop" if n == count - 1 else None)))
        await visit.send(chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n")

    return script


async def asking(running, fault: str | None = None, model: str = "gpt-x", path: str = CHAT) -> Any:
    headers = [JSON] if fault is None else [JSON, (FAULT, fault)]
    return await call(running.port, path, "POST", chat(model), *headers)


def standing(running, *, neutral: bool) -> Any:
    """All that a call could have changed, but for the calls that say nothing."""
    plane = running.daemon.plane
    runtime = plane.runtimes["up"]
    budget = runtime.retry_budget
    return {
        "breakers": [
            (one.key, one.state, one.consecutive_failures, one.opens, one.window.success,
             one.window.failure, one.window.alive, one.window.throttle,
             one.window.neutral if neutral else None, one.probes_in_flight)
            for one in shots(running)
        ],
        "gates": runtime.gates.gate_snapshots(clock.monotonic()),
        "quota": runtime.gates.quota_snapshots(),
        "places": (runtime.bulkhead.held, runtime.bulkhead.waiting),
        "network": (plane.watch.network.down, plane.watch.network.uneasy),
        "heard": dict(runtime.heard),
        "budget": None if budget is None else (budget._calls, budget._repeated),
    }  # fmt: skip


@pytest.mark.parametrize("fault", KINDS)
async def test_nothing_is_changed(start, upstream, fault) -> None:
    upstream.script = streaming()
    section = base(
        upstream.url,
        timeouts={"first_byte": "50ms"},
        retry={"attempts": 1, "budget": 0.5, "methods": ["POST"]},
    )
    running = await start({"up": section}, faults={"allowed": True})
    assert (await asking(running)).status == 200
    before = standing(running, neutral=False)
    for _ in range(7):
        await asking(running, fault)
    after = standing(running, neutral=False)
    assert after == before
    assert (await asking(running)).status == 200


@pytest.mark.parametrize("fault", ["class=transient", "kind=refuse", "kind=reset"])
async def test_a_repeated_fault_fills_and_spends_no_budget(start, upstream, fault) -> None:
    """The request goes out once in earnest: one call, and no repetition of it."""
    upstream.script = says(OK)
    rule = dict(part.split("=") for part in fault.split("; "))
    section = base(
        upstream.url, retry={"attempts": 2, "budget": 0.5, "require_idempotency_key": False}
    )
    running = await start({"up": section}, faults={"rules": [{**rule, "every": 2}]})
    budget = running.daemon.plane.runtimes["up"].retry_budget
    for n in range(6):
        found = await ask(running, n=n)
        assert found.status == 200
    assert upstream.hits == 6
    assert (budget._calls, budget._repeated) == (6, 0)
    window = running.breaker("up/gpt-x").window
    assert (window.success, window.failure) == (6, 0)
    told = (await admin(running, "/faults")).json["record"]
    assert len(told) >= 3
    for one in told:
        assert (one["status"], one["decision"]) == (0, "repeated")
        assert one["envelope"]["class"] == "transient"
        assert one["first_seen_after"] is None
        assert one["seen_after"] >= 0


async def test_a_repeated_fault_that_counts_spends_as_in_earnest(start, upstream) -> None:
    upstream.script = says(OK)
    section = base(
        upstream.url, retry={"attempts": 2, "budget": 1, "require_idempotency_key": False}
    )
    rule = {"class": "transient", "every": 2, "breakers": True}
    running = await start({"up": section}, faults={"rules": [rule]})
    budget = running.daemon.plane.runtimes["up"].retry_budget
    for n in range(4):
        assert (await ask(running, n=n)).status == 200
    assert budget._calls == 4
    assert budget._repeated == len((await admin(running, "/faults")).json["record"])
    # However many attempts a call takes, its breaker hears of one.
    window = running.breaker("up/gpt-x").window
    assert (window.success, window.failure) == (4, 0)


async def test_the_last_attempt_counts_if_it_was_a_fault(start, upstream) -> None:
    upstream.script = says(OK)
    section = base(
        upstream.url, retry={"attempts": 1, "budget": 1, "require_idempotency_key": False}
    )
    rule = {"class": "transient", "breakers": True}
    running = await start({"up": section}, faults={"rules": [rule]})
    for n in range(5):
        found = await ask(running, n=n)
        assert found.status == 500
    assert running.breaker("up/gpt-x").state == "open"
    first, second, *_ = (await admin(running, "/faults")).json["record"]
    assert (first["decision"], second["decision"]) == ("repeated", "forwarded")
    assert second["first_seen_after"] is not None


async def test_a_probe_is_left_to_a_real_call(start, upstream) -> None:
    """A fault that hangs would else keep an open breaker open."""
    upstream.script = says(OK)
    running = await start({"up": base(upstream.url)}, faults={"allowed": True})
    await trip(running, upstream)
    await asyncio.sleep(0.25)
    hanging = asyncio.create_task(asking(running, "kind=hang"))
    await until(lambda: running.daemon.faults.record)
    assert running.breaker("up/gpt-x").state == "half_open"
    assert running.breaker("up/gpt-x").probes_in_flight == 0
    for _ in range(2):
        assert (await asking(running)).status == 200
    assert running.breaker("up/gpt-x").state == "closed"
    hanging.cancel()


async def test_a_place_is_left_to_a_real_call(start, upstream) -> None:
    upstream.script = says(OK)
    section = base(
        upstream.url, limits={"in_flight": 1}, shedding={"max_queue": 0, "max_wait": "50ms"}
    )
    running = await start({"up": section}, faults={"allowed": True})
    caller = await open_stream(running.port, CHAT, (FAULT, "kind=hang"))
    await until(lambda: running.daemon.faults.record)
    assert (await asking(running)).status == 200
    caller.close()
    await until(lambda: running.daemon.plane.active == 0)
    assert running.daemon.plane.runtimes["up"].bulkhead.held == 0


async def test_a_fault_that_counts_holds_its_place(start, upstream) -> None:
    upstream.script = says(OK)
    section = base(
        upstream.url, limits={"in_flight": 1}, shedding={"max_queue": 0, "max_wait": "50ms"}
    )
    running = await start({"up": section}, faults={"allowed": True})
    caller = await open_stream(running.port, CHAT, (FAULT, "kind=hang; breakers=true"))
    await until(lambda: running.daemon.faults.record)
    found = await asking(running)
    assert found.get("x-sidecar-decision") == "bulkhead"
    caller.close()
    await until(lambda: running.daemon.plane.runtimes["up"].bulkhead.held == 0)


async def test_after_a_fault_a_repetition_has_place_and_permit(start, upstream) -> None:
    upstream.script = says(OK)
    section = base(
        upstream.url,
        limits={"in_flight": 1},
        retry={"attempts": 1, "budget": 1, "require_idempotency_key": False},
    )
    running = await start({"up": section}, faults={"rules": [{"kind": "reset", "nth": 1}]})
    held = []

    async def script(visit: Visit) -> None:
        held.append(running.daemon.plane.runtimes["up"].bulkhead.held)
        await says(OK)(visit)

    upstream.script = script
    assert (await ask(running)).status == 200
    assert held == [1]
    await until(lambda: running.daemon.plane.runtimes["up"].bulkhead.held == 0)
    assert running.breaker("up/gpt-x").window.success == 1


async def test_after_a_fault_a_repetition_keeps_its_slot(
    start, upstream, clocks, monkeypatch
) -> None:
    """Slots come one by one after a wait, and here nobody may queue: a second one would be refused."""
    monkeypatch.setattr("sidecar.proxy.repeats.pause", lambda *_: 0.0)
    body = b'{"error":{"message":"m","code":"rate_limit_exceeded"}}'
    upstream.script = says(answer(429, body, (b"Retry-After", b"5")))
    section = base(
        upstream.url,
        shedding={"max_queue": 0},
        retry={"attempts": 1, "budget": 1, "require_idempotency_key": False},
    )
    running = await start({"up": section}, faults={"rules": [{"kind": "reset", "nth": 2}]})
    assert (await ask(running)).status == 429
    clocks.later(5)
    upstream.script = says(OK)
    found = await ask(running, n=1)
    assert (found.status, found.get("x-sidecar-decision")) == (200, "forwarded")
    assert running.calls[-1].waited is not None
    (told,) = (await admin(running, "/faults")).json["record"]
    assert told["decision"] == "repeated"


@pytest.mark.parametrize(
    ("rule", "seen"),
    [
        ({"class": "rate_limit"}, "shedding"),
        ({"class": "permanent", "code": "insufficient_quota", "status": 429}, "quota"),
    ],
)
async def test_the_gates_hear_of_what_counts(start, upstream, rule, seen) -> None:
    upstream.script = says(OK)
    running = await start(
        {"up": base(upstream.url)}, faults={"rules": [{**rule, "breakers": True, "nth": 1}]}
    )
    await ask(running)
    shown = (await admin(running, "/status")).json["providers"]["up"]
    assert shown[seen] != []


async def test_the_network_hears_of_what_counts(start, upstream) -> None:
    running = await start(
        {"one": base("http://one.example.test"), "two": base("http://two.example.org")},
        faults={"rules": [{"kind": "refuse", "breakers": True}]},
    )
    codes = [
        (await call(running.port, f"/{name}/x")).envelope["code"] for name in ("one", "two", "one")
    ]
    assert codes == ["connection_refused", "local_network_down", "local_network_down"]
    assert running.daemon.network_down


async def test_the_hold_back_of_what_counts(start, upstream) -> None:
    """An error before the first word of a stream is held back, repeated, and counts when it ends."""
    upstream.script = streaming()
    rule = {"kind": "error_event", "events": 0, "class": "transient", "breakers": True}
    section = base(
        upstream.url, retry={"attempts": 1, "budget": 1, "require_idempotency_key": False}
    )
    running = await start({"up": section}, faults={"rules": [rule]})
    for n in range(5):
        body = chat(stream=True, n=n)
        found = await call(running.port, CHAT, "POST", body, JSON)
        assert found.status == 503
    assert running.breaker("up/gpt-x").state == "open"
    told = (await admin(running, "/faults")).json["record"]
    assert [one["decision"] for one in told[:2]] == ["repeated", "forwarded"]


async def test_metrics_and_logs_tell_them_apart(start, upstream, log) -> None:
    upstream.script = says(OK)
    running = await start(
        {"up": base(upstream.url)},
        faults={"rules": [{"class": "transient", "name": "out", "times": 2}, {"kind": "delay",
                "after": "1ms", "name": "slow"}]},
    )  # fmt: skip
    for n in range(3):
        await ask(running, n=n)
    text = (await admin(running, "/metrics")).body.decode()
    for line in (
        'faults_injected_total{provider="up",fault="transient"} 2',
        'faults_injected_total{provider="up",fault="delay"} 1',
        'faults_injected_total{provider="up",fault="permanent"} 0',
        'calls_total{provider="up",model="",verdict="failure"} 0',
    ):
        assert f"breaker_sidecar_{line}" in text
    injected = [
        (line["fault"], line["injected"], line["call"]) for line in log.lines("fault.injected")
    ]
    assert injected == [("out", "transient", 1), ("out", "transient", 2), ("slow", "delay", 3)]
    assert {line["level"] for line in log.lines("call.failed")} == {"info"}
    json.dumps(injected)
    failures = (await admin(running, "/v1/failures?after=0")).json["failures"]
    assert [one["fault"] for one in failures] == ["out", "out"]
    alone = (await admin(running, "/faults?rules")).json
    assert (alone["injected"], alone["record"]) == (3, [])
    assert [one["rule"] for one in alone["rules"]] == ["out", "slow"]


async def test_a_span_says_that_its_fault_was_injected(
    start, upstream, tmp_path, monkeypatch
) -> None:
    sink = Sink(tmp_path)
    await sink.start()
    try:
        for name, value in exporting(sink.port).items():
            monkeypatch.setenv(name, value)
        upstream.script = says(OK)
        running = await start(
            {"up": base(upstream.url)},
            faults={"rules": [{"class": "transient", "name": "out", "nth": 1}]},
        )
        for n in range(2):
            await ask(running, n=n)

        def servers() -> list[dict[str, Any]]:
            return [span for span in sink.spans() if span["kind"] == "SPAN_KIND_SERVER"]

        await until(lambda: len(servers()) == 2)
        told = [span["attributes"].get("breaker_sidecar.fault") for span in servers()]
        assert told == ["out", None]
    finally:
        await sink.stop()
