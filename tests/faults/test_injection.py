"""Faults in calls of a real daemon: on the wire, for the breaker, in the log and in the record."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.field.scene import (
    CHAT,
    DONE,
    JSON,
    OK,
    STREAM_HEAD,
    admin,
    ask,
    base,
    chunk,
    delta,
    open_stream,
    reload_with,
)
from tests.proxy.callers import Caller, call, chat
from tests.proxy.upstreams import Visit, says

WEBSOCKET = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
)


def with_rules(*rules, **more):
    return {"rules": list(rules), **more}


async def injected(running):
    return (await admin(running, "/faults")).json["record"]


STATUSES = {
    "validation": (400, "alive"),
    "authentication": (401, "alive"),
    "rate_limit": (429, "throttle"),
    "transient": (500, "failure"),
    "permanent": (404, "alive"),
}


@pytest.mark.parametrize("class_", STATUSES)
async def test_by_class(start, upstream, log, class_) -> None:
    upstream.script = says(OK)
    running = await start(
        {"up": base(upstream.url)}, faults=with_rules({"name": "test", "class": class_})
    )
    found = await ask(running)
    status, verdict = STATUSES[class_]
    assert found.status == status
    assert found.envelope["class"] == class_
    assert found.get("x-sidecar-fault") == f"test; {class_}"
    assert found.get("x-sidecar-verdict") == verdict
    assert upstream.hits == 0
    (told,) = await injected(running)
    assert (told["fault"], told["status"], told["verdict"]) == (class_, status, verdict)
    assert told["envelope"]["class"] == class_
    assert told["correlation_id"] == found.get("x-correlation-id")
    assert told["seen_after"] >= 0
    (line,) = log.lines("call.failed")
    assert line["fault"] == "test"


async def test_real_breakers_hear_of_it_only_if_asked(start, upstream) -> None:
    upstream.script = says(OK)
    rule = {"class": "transient", "model": "ill"}
    running = await start(
        {"up": base(upstream.url)},
        faults=with_rules(rule, {**rule, "model": "counted", "breakers": True}),
    )
    for n in range(12):
        assert (await ask(running, "ill", n)).status == 500
    assert running.breaker("up/ill").window.failure == 0
    assert running.breaker("up/ill").window.neutral == 12
    assert running.breaker("up").window.success == 0
    for n in range(5):
        assert (await ask(running, "counted", n)).status == 500
    assert running.breaker("up/counted").state == "open"


async def test_a_refused_connection_does_not_count_either(start, upstream) -> None:
    running = await start({"up": base(upstream.url)}, faults=with_rules({"kind": "refuse"}))
    for n in range(12):
        found = await ask(running, n=n)
        assert (found.status, found.envelope["code"]) == (502, "connection_refused")
    assert running.breaker("up").state == "closed"
    assert running.breaker("up").window.failure == 0


@pytest.mark.parametrize(
    ("rule", "status", "code"),
    [
        ({"kind": "refuse"}, 502, "connection_refused"),
        ({"kind": "reset"}, 502, "connection_reset"),
        ({"kind": "hang"}, 504, "first_byte_timeout"),
        ({"kind": "fake_200"}, 503, "server_error"),
        ({"kind": "fake_200", "class": "rate_limit"}, 429, "rate_limit_exceeded"),
        # What the rest of the body would have said is not known.
        ({"kind": "wrong_length", "class": "transient"}, 500, "500"),
        ({"kind": "wrong_length", "status": 200}, 502, "invalid_upstream_response"),
        ({"class": "permanent", "status": 503, "code": "model_not_found"}, 404, "model_not_found"),
        ({"class": "rate_limit", "retry_after": "90s"}, 429, "rate_limit_exceeded"),
    ],
)
async def test_each_kind_before_the_first_byte(start, upstream, rule, status, code) -> None:
    upstream.script = says(OK)
    running = await start(
        {"up": base(upstream.url, timeouts={"first_byte": "100ms"})}, faults=with_rules(rule)
    )
    found = await ask(running)
    assert (found.status, found.envelope["code"]) == (status, code)
    if "retry_after" in rule:
        assert found.envelope["retry_after"] == 90
    assert upstream.hits == 0
    assert not running.faults


def streaming(count: int = 5):
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD)
        for n in range(count):
            await visit.send(chunk(delta(f"w{n}", "stop" if n == count - 1 else None)))
        await visit.send(chunk(DONE), b"0\r\n\r\n")

    return script


async def stream_of(running) -> bytes:
    caller = await open_stream(running.port, CHAT, ("Connection", "close"))
    return await caller.reader.read()


@pytest.mark.parametrize("events", [1, 2, 4])
async def test_a_stream_that_is_cut(start, upstream, events) -> None:
    upstream.script = streaming()
    running = await start(
        {"up": base(upstream.url)}, faults=with_rules({"kind": "cut", "events": events})
    )
    raw = await stream_of(running)
    assert raw.count(b'"content"') == events
    assert b"stream_truncated" in raw
    assert DONE not in raw
    assert not raw.endswith(b"0\r\n\r\n")
    (told,) = await injected(running)
    assert (told["verdict"], told["envelope"]["code"]) == ("failure", "stream_truncated")


@pytest.mark.parametrize("events", [0, 1, 3])
async def test_a_stream_that_ends_with_an_error(start, upstream, events) -> None:
    upstream.script = streaming()
    rule = {"kind": "error_event", "events": events, "class": "rate_limit"}
    running = await start({"up": base(upstream.url)}, faults=with_rules(rule))
    raw = await stream_of(running)
    assert raw.count(b'"content"') == events
    if events:
        assert b"rate_limit_exceeded" in raw
        assert raw.startswith(b"HTTP/1.1 200")
    else:
        # In the place of the first word it becomes a real status.
        assert raw.startswith(b"HTTP/1.1 429")
    (told,) = await injected(running)
    assert (told["verdict"], told["envelope"]["class"]) == ("throttle", "rate_limit")


async def test_a_trickle_changes_no_byte(start, upstream) -> None:
    upstream.script = says(OK)
    running = await start({"up": base(upstream.url)})
    whole = (await ask(running)).body
    slow = await start(
        {"up": base(upstream.url)}, faults=with_rules({"kind": "dribble", "after": "2ms"})
    )
    found = await ask(slow)
    assert (found.status, found.body) == (200, whole)
    (told,) = await injected(slow)
    assert (told["envelope"], told["status"]) == (None, 200)


async def test_a_delay(start, upstream) -> None:
    upstream.script = says(OK)
    running = await start(
        {"up": base(upstream.url)}, faults=with_rules({"kind": "delay", "after": "150ms"})
    )
    began = asyncio.get_running_loop().time()
    found = await ask(running)
    assert asyncio.get_running_loop().time() - began >= 0.15
    assert (found.status, found.get("x-sidecar-fault")) == (200, "rule 1; delay")


@pytest.mark.parametrize(
    "rule",
    [{"kind": "delay"}, {"class": "validation"}, {"kind": "reset"}, {"kind": "cut"}],
)  # fmt: skip
async def test_the_daemons_clocks_run_while_it_waits(start, upstream, rule) -> None:
    """As with a provider that is slow in earnest."""
    upstream.script = says(OK)
    running = await start(
        {"up": base(upstream.url, timeouts={"first_byte": "50ms"})},
        faults=with_rules({**rule, "after": "30s"}),
    )
    found = await ask(running)
    assert (found.status, found.envelope["code"]) == (504, "first_byte_timeout")
    (told,) = await injected(running)
    assert (told["verdict"], told["decision"]) == ("failure", "timeout")


async def test_a_connection_that_takes_too_long(start, upstream) -> None:
    running = await start(
        {"up": base(upstream.url, timeouts={"connect": "30ms"})},
        faults=with_rules({"kind": "refuse", "after": "30s"}),
    )
    found = await ask(running)
    assert (found.status, found.envelope["code"]) == (502, "connect_timeout")


async def test_an_answer_that_comes_late_and_in_time(start, upstream) -> None:
    running = await start(
        {"up": base(upstream.url)}, faults=with_rules({"class": "validation", "after": "40ms"})
    )
    assert (await ask(running)).status == 400
    (told,) = await injected(running)
    assert told["first_seen_after"] >= 0.04


@pytest.mark.parametrize(
    ("step", "hit"),
    [
        ({"nth": 3}, [3]),
        ({"every": 4}, [4, 8, 12]),
        ({"every": 2, "times": 2}, [2, 4]),
        ({"times": 3}, [1, 2, 3]),
        ({"share": 0}, []),
        ({"share": 1}, list(range(1, 13))),
    ],
)
async def test_by_step(start, upstream, step, hit) -> None:
    upstream.script = says(OK)
    running = await start(
        {"up": base(upstream.url)}, faults=with_rules({"class": "validation", **step})
    )
    statuses = [(await ask(running, n=n)).status for n in range(12)]
    assert [n for n, status in enumerate(statuses, 1) if status == 400] == hit
    assert [told["call"] for told in await injected(running)] == hit


async def test_a_share_is_the_same_in_every_run(start, upstream) -> None:
    upstream.script = says(OK)
    runs = []
    for seed in (7, 7, 8):
        running = await start(
            {"up": base(upstream.url)},
            faults=with_rules({"class": "validation", "share": 0.4}, seed=seed),
        )
        runs.append([(await ask(running, n=n)).status for n in range(40)])
    assert runs[0] == runs[1] != runs[2]
    assert 4 < runs[0].count(400) < 30


@pytest.mark.parametrize(
    ("rule", "hits"),
    [
        ({"provider": "up"}, True),
        ({"provider": "other"}, False),
        ({"model": "gpt-*"}, True),
        ({"model": "claude-*"}, False),
        ({"path": "/v1/chat/*"}, True),
        ({"path": "/v1/embeddings"}, False),
        ({"method": "POST"}, True),
        ({"method": "GET"}, False),
    ],
)
async def test_which_calls(start, upstream, rule, hits) -> None:
    upstream.script = says(OK)
    running = await start(
        {"up": base(upstream.url)}, faults=with_rules({"class": "validation", **rule})
    )
    assert (await ask(running)).status == (400 if hits else 200)


async def test_off_by_default(start, upstream) -> None:
    upstream.script = says(OK)
    running = await start({"up": base(upstream.url)})
    header = ("X-Sidecar-Fault", "class=transient")
    found = await call(running.port, CHAT, "POST", chat(), JSON, header)
    assert found.status == 200
    assert found.get("x-sidecar-fault") is None
    assert upstream.requests[0].get(b"x-sidecar-fault") is None
    body = json.dumps({"rules": [{"class": "transient"}]}).encode()
    assert (await admin(running, "/faults", "POST", body)).status == 403
    assert (await admin(running, "/faults")).json["allowed"] is False


async def test_by_header(start, upstream) -> None:
    upstream.script = says(OK)
    running = await start({"up": base(upstream.url)}, faults={"allowed": True})

    async def asking(text: str):
        return await call(running.port, CHAT, "POST", chat(), JSON, ("X-Sidecar-Fault", text))

    found = await asking("class=rate_limit; retry_after=7; name=mine")
    assert (found.status, found.envelope["retry_after"]) == (429, 7)
    assert found.get("x-sidecar-fault") == "mine; rate_limit"
    for wrong in (
        "", "class=odd", "clas=transient", "kind=hang; class=transient", "nth=1",
        # What is said twice, and what chooses calls, would not be what was meant.
        "class=transient; class=validation", "class=transient; nth=2", "class=transient; times=1",
        "class=transient; share=0.5", "class=transient; provider=other", "class=transient; model=x",
    ):  # fmt: skip
        found = await asking(wrong)
        assert (found.status, found.envelope["code"]) == (400, "bad_request"), wrong
    found = await call(
        running.port, CHAT, "POST", chat(), JSON,
        ("X-Sidecar-Fault", "class=transient"), ("X-Sidecar-Fault", "class=validation"),
    )  # fmt: skip
    assert "stands twice" in found.envelope["message"]
    found = await asking("clas=transient")
    assert "clas: unknown key" in found.envelope["message"]
    found = await asking("class=transient; retry_after=1d")
    assert "one of 250ms" in found.envelope["message"]
    found = await asking('class=transient; message="one; two"')
    assert found.envelope["message"] == "one; two"
    assert upstream.hits == 0
    assert (await ask(running)).status == 200


async def test_by_order_with_an_end(start, upstream, clocks) -> None:
    upstream.script = says(OK)
    running = await start({"up": base(upstream.url)}, faults={"allowed": True})
    body = json.dumps({"rules": [{"class": "authentication", "name": "x"}], "for": "5m"}).encode()
    shown = await admin(running, "/faults", "POST", body)
    assert shown.status == 200
    assert shown.json["ends_in"] == pytest.approx(300, abs=5)
    assert (await ask(running)).status == 401
    clocks.later(301)
    assert (await ask(running)).status == 200
    assert (await admin(running, "/faults")).json["rules"] == []
    nobody = json.dumps({"rules": [{"class": "transient", "provider": "nobody"}]}).encode()
    found = await admin(running, "/faults", "POST", nobody)
    assert found.status == 400
    assert "no provider is called nobody" in found.json["error"]["message"]
    assert "configured: up" in found.json["error"]["message"]
    endless = json.dumps({"rules": [{"class": "transient"}], "for": "1000d"}).encode()
    found = await admin(running, "/faults", "POST", endless)
    assert "one of 250ms" in found.json["error"]["message"]
    assert (await admin(running, "/faults", "POST", body)).status == 200
    assert (await admin(running, "/faults", "POST", b'{"rules": []}')).status == 200
    assert (await ask(running)).status == 200
    for wrong in (b"", b"[]", b'{"rules": [{"clas": "x"}]}', b'{"rules": [{}], "for": -1}', b"{"):
        assert (await admin(running, "/faults", "POST", wrong)).status == 400, wrong
    # As everything that changes something, it needs the header.
    assert (await admin(running, "/faults", "POST", body, ("x-none", "1"))).status == 403


async def test_a_reload_changes_what_is_injected(start, upstream) -> None:
    upstream.script = says(OK)
    running = await start(
        {"up": base(upstream.url)}, faults=with_rules({"class": "validation", "nth": 1})
    )
    assert (await ask(running)).status == 400
    result = await reload_with(running, "nth: 1", "every: 1")
    assert not result.problems
    assert (await ask(running)).status == 400
    result = await reload_with(running, "class: validation", "class: permanent")
    assert not result.problems
    assert (await ask(running)).status == 404


async def test_a_reload_leaves_the_counts_of_other_rules(start, upstream) -> None:
    upstream.script = says(OK)
    running = await start(
        {"up": base(upstream.url)},
        faults=with_rules({"class": "validation", "nth": 2}, {"class": "permanent", "nth": 50}),
    )
    assert [(await ask(running, n=n)).status for n in range(3)] == [200, 400, 200]
    assert not (await reload_with(running, "nth: 50", "nth: 51")).problems
    assert [(await ask(running, n=n)).status for n in range(3)] == [200, 200, 200]
    shown = (await admin(running, "/faults")).json["rules"]
    assert [(rule["matched"], rule["injected"]) for rule in shown] == [(6, 1), (3, 0)]


async def test_a_rule_that_is_spent_goes_on_counting(start, upstream) -> None:
    upstream.script = says(OK)
    running = await start(
        {"up": base(upstream.url)}, faults=with_rules({"class": "validation", "times": 1})
    )
    for n in range(4):
        await ask(running, n=n)
    (rule,) = (await admin(running, "/faults")).json["rules"]
    assert (rule["matched"], rule["injected"]) == (4, 1)


@pytest.mark.parametrize(
    ("head", "line"),
    [
        (b"HEAD /up/v1/models HTTP/1.1", b"HTTP/1.1 429 Too Many Requests"),
        (b"GET /up/v1/models HTTP/1.0", b"HTTP/1.1 429 Too Many Requests"),
        (b"GET /up/v1/realtime HTTP/1.1\r\n" + WEBSOCKET, b"HTTP/1.1 429 Too Many Requests"),
    ],
)  # fmt: skip
async def test_whatever_is_asked(start, upstream, head, line) -> None:
    running = await start({"up": base(upstream.url)}, faults=with_rules({"class": "rate_limit"}))
    caller = await Caller.connect(running.port)
    await caller.send(head, b"\r\nHost: 127.0.0.1\r\n\r\n")
    assert (await caller.head())[0] == line
    (told,) = await injected(running)
    assert (told["status"], told["envelope"]["class"]) == (429, "rate_limit")


async def test_a_caller_who_leaves_while_it_hangs(start, upstream) -> None:
    running = await start({"up": base(upstream.url)}, faults=with_rules({"kind": "hang"}))
    caller = await open_stream(running.port)
    while not running.daemon.faults.record:
        await asyncio.sleep(0.01)
    caller.close()
    while running.daemon.faults.record[0].status is None:
        await asyncio.sleep(0.01)
    (told,) = await injected(running)
    assert (told["status"], told["envelope"]) == (0, None)
    assert running.breaker("up/gpt-x").window.failure == 0


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({}, "injects nothing"),
        ({"kind": "hang", "class": "transient"}, "tells no class"),
        ({"class": "transient", "nth": 1, "every": 2}, "two ways"),
        ({"kind": "delay"}, 'add "after"'),
        ({"kind": "hang", "after": "1s"}, "hang sends nothing"),
        ({"class": "transient", "events": 3}, "cut and error_event only"),
        ({"kind": "reset", "status": 500}, "no effect"),
        ({"kind": "fake_200", "status": 500}, "fake_200 has its own"),
        ({"kind": "error_event", "status": 500}, "error_event has its own"),
        ({"class": "rate_limit", "status": 304}, "has no body"),
        ({"class": "transient", "share": 1.5}, "at most 1"),
        ({"kind": "cutt"}, 'did you mean "cut"'),
    ],
)
async def test_rules_that_cannot_be(start, upstream, rule, told) -> None:
    from sidecar.config.problems import ConfigError

    with pytest.raises(ConfigError, match=told):
        await start({"up": base(upstream.url)}, faults=with_rules(rule))


async def test_a_repeated_call_meets_the_fault_once(start, upstream) -> None:
    """The daemon's own repetition is an attempt like any other."""
    upstream.script = says(OK)
    running = await start(
        {"up": base(upstream.url, retry={"attempts": 2, "budget": 1})},
        faults=with_rules({"class": "transient", "nth": 1}),
    )
    found = await call(running.port, "/up/v1/models")
    assert (found.status, upstream.hits) == (200, 1)
    assert [told["call"] for told in await injected(running)] == [1]
    assert running.breaker("up/~v1/models").window.failure == 0


async def test_a_refusal_by_order_is_no_trouble_of_this_machine(start, upstream) -> None:
    """Two hosts that refuse at once would look like a machine without a way out."""
    running = await start(
        {"one": base("http://one.example.test"), "two": base("http://two.example.test")},
        faults=with_rules({"kind": "refuse"}),
    )
    for name in ("one", "two") * 3:
        found = await call(running.port, f"/{name}/x")
        assert (found.status, found.envelope["code"]) == (502, "connection_refused")
    assert not running.daemon.network_down


async def test_the_gates_do_not_hear_of_it_either(start, upstream) -> None:
    upstream.script = says(OK)
    spent = {"class": "permanent", "code": "insufficient_quota", "status": 429, "model": "b"}
    running = await start(
        {"up": base(upstream.url)},
        faults=with_rules({"class": "rate_limit", "model": "a", "nth": 1}, {**spent, "nth": 1}),
    )
    for model in "ab":
        assert (await ask(running, model)).envelope["class"] in ("rate_limit", "permanent")
        assert (await ask(running, model)).status == 200
    shown = (await admin(running, "/status")).json["providers"]["up"]
    assert (shown["shedding"], shown["quota"]) == ([], [])
