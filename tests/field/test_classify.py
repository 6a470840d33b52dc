"""Area classify: what an answer means, whatever status it wears."""

from __future__ import annotations

import asyncio
import errno
import json
import re

import aiohappyeyeballs
import pytest

from sidecar.cli import COMMANDS
from tests.proxy.callers import Caller, call, chat, request
from tests.proxy.upstreams import Visit, answer, says

from .scene import (
    CHAT,
    JSON,
    OK,
    admin,
    ask,
    base,
    closed,
    counted,
    document,
    error,
    half_open,
    hang,
    shots,
    total,
    trip,
    until,
)

ENVELOPE = ("Accept", "application/vnd.error-envelope+json")


@pytest.mark.parametrize("status", [400, 500])
async def test_f001_a_refused_prompt_darkens_nothing(start, upstream, status) -> None:
    refused = error(status, "content_filter", "the prompt was filtered")

    async def script(visit: Visit) -> None:
        body = await visit.read_body()
        await visit.send(refused if b"BAD" in body else OK)

    upstream.script = script
    running = await start({"up": base(upstream.url)})
    for n in range(20):
        found = await ask(running, n=n, user="BAD")
        assert found.status == 400
        assert found.envelope["class"] == "validation"
        assert found.envelope["code"] == "content_filtered"
        assert found.envelope["retryable"] is False
        assert found.body == refused.partition(b"\r\n\r\n")[2]
    assert (await ask(running)).status == 200
    assert (upstream.hits, counted(running), closed(running)) == (21, 0, True)


async def test_f002_one_agents_broken_history_is_its_own(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        broken = visit.request.get(b"x-agent") == b"A"
        message = "tool_call_id call_1 has no preceding tool_calls"
        kind = "invalid_request_error"
        await visit.send(error(400, None, message, type=kind) if broken else OK)

    upstream.script = script
    running = await start({"up": base(upstream.url)})

    async def agent(name: str, calls: int) -> list[int]:
        found = []
        for n in range(calls):
            one = await call(running.port, CHAT, "POST", chat(n=n), JSON, ("X-Agent", name))
            found.append(one.status)
        return found

    broken, valid = await asyncio.gather(agent("A", 50), agent("B", 50))
    assert (set(broken), set(valid)) == ({400}, {200})
    assert (counted(running), closed(running)) == (0, True)


async def test_f002_what_hints_name_exists(start, upstream) -> None:
    running = await start({"up": base(upstream.url)})
    await trip(running, upstream)
    texts = [
        (await ask(running)).envelope["message"],
        (await call(running.port, "/nobody/x")).envelope["message"],
        (await admin(running, "/")).body.decode(),
        json.dumps(await document(running)),
        (await admin(running, "/nothing")).json["error"]["message"],
        (await admin(running, "/breakers/nobody/reset", "POST")).json["error"]["message"],
        (await admin(running, "/breakers/up/explode", "POST")).json["error"]["message"],
    ]
    everything = "\n".join(texts)
    for command in re.findall(r"breaker-sidecar ([a-z]+)", everything):
        assert command in COMMANDS
    endpoints = re.findall(r"(?:GET|POST|, )\s?(/[a-z.]*(?:/\{key\}/\{verb\})?)", texts[4])
    assert {"/status", "/reload", "/breakers/{key}/{verb}"} <= set(endpoints)
    for endpoint in endpoints:
        path = endpoint.format(key="up", verb="reset")
        method = "POST" if endpoint.startswith(("/reload", "/breakers")) else "HEAD"
        head = request(path, method, None, ("x-sidecar-admin", "1"))
        caller = await Caller.connect(running.admin_port)
        await caller.send(head)
        assert (await caller.answer(head_only=method == "HEAD")).status == 200, endpoint
        caller.close()
    verbs = texts[6].partition("there are ")[2].split(", ")
    assert len(verbs) == 6
    for verb in verbs:
        assert (await admin(running, f"/breakers/up%2Fgpt-x/{verb}", "POST")).status == 200


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (
            200,
            (
                b'{"jsonrpc":"2.0","id":1,"result":{"isError":true,'
                b'"content":[{"type":"text","text":"no such file"}]}}'
            ),
        ),
        (404, b'{"detail":"no such tool"}'),
        (422, b'{"detail":[{"loc":["arguments","path"],"msg":"field required"}]}'),
    ],
)
async def test_f003_a_tool_that_fails_is_no_dead_server(start, upstream, status, body) -> None:
    upstream.script = says(answer(status, body))
    running = await start({"up": base(upstream.url, "generic")})
    for n in range(30):
        rpc = json.dumps({"jsonrpc": "2.0", "id": n, "method": "tools/call"}).encode()
        found = await call(running.port, "/up/mcp", "POST", rpc, JSON)
        assert (found.status, found.body) == (status, body)
    assert (upstream.hits, counted(running), closed(running)) == (30, 0, True)


@pytest.mark.parametrize(
    "status", [400, 401, 403, 404, 405, 406, 409, 410, 413, 415, 422, 428, 431, 451]
)
async def test_f004_the_callers_mistakes_are_sent_once_and_not_counted(
    start, upstream, status
) -> None:
    upstream.script = says(error(status, None))
    running = await start({"up": base(upstream.url)})
    caller = await Caller.connect(running.port)
    for n in range(20):
        await caller.send(request(CHAT, "POST", chat(n=n), JSON))
        assert (await caller.answer()).status == status
    assert (upstream.hits, counted(running), closed(running)) == (20, 0, True)


async def test_f005_an_empty_account_is_no_bad_request(start, upstream) -> None:
    body = (
        b'{"type":"error","error":{"type":"invalid_request_error",'
        b'"message":"Your credit balance is too low to access the API."}}'
    )
    plain = body.replace(b"Your credit balance is too low to access the API.", b"bad prompt")
    upstream.script = says(answer(400, body))
    observed = {"quota": {"mode": "observe"}}
    running = await start({"up": base(upstream.url, "anthropic", shedding=observed)})
    found = await call(running.port, "/up/v1/messages", "POST", chat(), JSON)
    assert (found.status, found.body) == (402, body)
    assert found.envelope["code"] == "credits_exhausted"
    assert found.envelope["retryable"] is False
    asked = await call(running.port, "/up/v1/messages", "POST", chat(), JSON, ENVELOPE)
    assert asked.json["raw"]["body"].encode() == body
    upstream.script = says(answer(400, plain))
    other = await call(running.port, "/up/v1/messages", "POST", chat(), JSON)
    assert (other.status, other.envelope["code"]) == (400, "invalid_request_error")
    assert counted(running) == 0


@pytest.mark.parametrize("mode", ["observe", "gate"])
async def test_f006_a_spent_budget_is_no_rate_limit(start, upstream, mode) -> None:
    upstream.script = says(error(429, "insufficient_quota", type="insufficient_quota"))
    running = await start({"up": base(upstream.url, shedding={"quota": {"mode": mode}})})
    for n in range(10):
        found = await ask(running, n=n)
        gated = mode == "gate" and n > 0
        assert found.get("x-sidecar-decision") == ("quota" if gated else "forwarded")
        assert (found.status, found.envelope["code"]) == (402, "quota_exhausted")
        assert found.envelope["retryable"] is False
        assert found.get("retry-after") is None
        assert found.get("x-should-retry") == "false"
    hits = 10 if mode == "observe" else 1
    shown = (await document(running))["providers"]["up"]
    assert (upstream.hits, shown["shedding"], len(shown["quota"])) == (hits, [], 1)
    await admin(running, "/breakers/up%2Fgpt-x/reset", "POST")
    upstream.script = says(error(429, "rate_limit_exceeded"))
    limited = await ask(running)
    assert limited.envelope["code"] not in ("quota_exhausted", "insufficient_quota")
    assert limited.envelope["retryable"] is True
    assert (counted(running), total(running, "throttle")) == (0, 1)


async def test_f007_a_providers_own_words_can_be_told(start, upstream, clocks) -> None:
    """The words of a spent budget for a burst, for three seconds."""
    rule = {
        "name": "proxy says quota for a burst",
        "when": {"status": 429, "body.error": "INSUFFICIENT QUOTA"},
        "class": "rate_limit",
        "code": "burst",
    }
    upstream.script = says(answer(429, b'{"error":"INSUFFICIENT QUOTA"}'))
    running = await start(
        {"up": base(upstream.url, "generic", rules=[rule]), "other": base(upstream.url, "generic")}
    )
    for wait in (1.01, 2.01):
        found = await ask(running)
        assert (found.status, found.envelope["code"]) == (429, "burst")
        assert (found.envelope["class"], found.envelope["retryable"]) == ("rate_limit", True)
        clocks.later(wait)
    other = await call(running.port, CHAT.replace("/up", "/other"), "POST", chat(), JSON)
    assert other.envelope["code"] != "burst"
    # Three seconds are over: the next call passes, and nothing is latched.
    upstream.script = says(OK)
    assert (await ask(running)).status == 200
    assert (counted(running), closed(running)) == (0, True)


@pytest.mark.parametrize("scope", ["model", "provider"])
async def test_f008_one_model_without_a_plan_leaves_the_other_alone(start, upstream, scope) -> None:
    async def script(visit: Visit) -> None:
        big = b'"big"' in await visit.read_body()
        await visit.send(
            error(429, "model_not_in_plan", "your plan has no such model") if big else OK
        )

    upstream.script = script
    running = await start({"up": base(upstream.url, scope=scope)})
    found = {"big": set(), "small": set()}
    for n in range(40):
        model = "big" if n % 2 else "small"
        found[model].add((await ask(running, model, n)).status)
    assert found["small"] == {200}
    assert 200 not in found["big"]
    assert (counted(running), closed(running)) == (0, True)


@pytest.mark.parametrize(
    ("wait", "expected"),
    [(3.2, 3.2), ("3.2", 3.2), ("abc", None), ("-1s", None), ("", None), (-5, None), ([], None)],
)
async def test_f009_the_wait_stands_in_the_body(start, upstream, wait, expected) -> None:
    body = {"error": {"message": "slow down", "code": "slow", "retry_after": wait}}
    upstream.script = says(answer(429, json.dumps(body).encode()))
    running = await start({"up": base(upstream.url, "generic")})
    found = await ask(running)
    assert (found.status, found.envelope["retryable"]) == (429, True)
    assert found.envelope["retry_after"] == expected
    assert found.get("retry-after") == (None if expected is None else "4")
    assert found.get("retry-after-ms") == (None if expected is None else "3200")


RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"
QUOTA_FAILURE = "type.googleapis.com/google.rpc.QuotaFailure"


def _google_429(delay: object, quota: str) -> bytes:
    details = [
        {"@type": QUOTA_FAILURE, "violations": [{"quotaId": quota}]},
        {"@type": RETRY_INFO, "retryDelay": delay},
    ]
    body = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}}
    return answer(429, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("delay", "closed_for"),
    [("3.2s", 3.2), ("abc", 1), ("-1s", 1), ("", 1), (7, None)],
)
async def test_f009_a_gate_is_closed_for_the_wait_in_the_body(
    start, upstream, clocks, delay, closed_for
) -> None:
    upstream.script = says(_google_429(delay, "GenerateRequestsPerMinutePerProject"))
    running = await start({"up": base(upstream.url, "gemini", shedding={"max_wait": 0})})
    path = "/up/v1beta/models/gemini-x:generateContent"
    assert (await call(running.port, path, "POST", b"{}", JSON)).status == 429
    if closed_for is None:
        return
    clocks.later(closed_for - 0.5)
    early = await call(running.port, path, "POST", b"{}", JSON)
    assert early.get("x-sidecar-decision") == "shed"
    clocks.later(0.7)
    assert (await call(running.port, path, "POST", b"{}", JSON)).get(
        "x-sidecar-decision"
    ) == "forwarded"


async def test_f009_a_days_quota_is_another_code_and_asked_about_again(
    start, upstream, clocks
) -> None:
    upstream.script = says(_google_429("70000s", "GenerateRequestsPerDayPerProject"))
    running = await start({"up": base(upstream.url, "gemini")})
    path = "/up/v1beta/models/gemini-x:generateContent"
    found = await call(running.port, path, "POST", b"{}", JSON)
    assert found.envelope["code"] == "plan_window_exhausted"
    shown = (await document(running))["providers"]["up"]
    assert (shown["shedding"], shown["quota"][0]["code"]) == ([], "plan_window_exhausted")
    gated = await call(running.port, path, "POST", b"{}", JSON)
    assert gated.get("x-sidecar-decision") == "quota"
    clocks.later(61)
    again = await call(running.port, path, "POST", b"{}", JSON)
    assert again.get("x-sidecar-decision") == "forwarded"


async def test_f011_overload_is_counted_by_its_status(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        status = 400 if visit.number % 2 else 502
        await visit.send(error(status, None, "servers are overloaded", type="vendor_overload"))

    upstream.script = script
    running = await start({"up": base(upstream.url, mode="observe")})
    for n in range(20):
        found = await ask(running, n=n)
        assert found.envelope["code"] == "vendor_overload"
        assert found.envelope["class"] == ("transient" if found.status == 502 else "validation")
    assert (counted(running), total(running, "alive")) == (10, 10)
    assert (await document(running))["providers"]["up"]["errors"]["by_code"] == {
        "vendor_overload": 20
    }
    upstream.script = says(error(400, None, "Overloaded", type="overloaded_error"))
    known = await ask(running, n=99)
    assert (known.envelope["class"], known.envelope["code"]) == ("transient", "overloaded")
    assert (counted(running), total(running, "alive")) == (10, 11)


@pytest.mark.parametrize(("code", "verdict"), [(502, "failure"), (429, "throttle"), (400, "alive")])
async def test_f014_an_error_in_a_200_is_one(start, upstream, code, verdict) -> None:
    body = json.dumps({"error": {"code": code, "message": "Provider returned error"}}).encode()
    upstream.script = says(answer(200, body))
    running = await start({"up": base(upstream.url, "openrouter", mode="observe")})
    for n in range(10):
        found = await ask(running, n=n)
        assert found.body == body
        assert found.get("x-sidecar-upstream-status") == "200"
    assert (total(running, verdict), total(running, "success")) == (10, 0)
    assert counted(running) == (10 if verdict == "failure" else 0)


async def test_f014_a_model_may_write_about_errors(start, upstream) -> None:
    text = 'The API says {"error": {"code": 502}} and "error" twice.'
    body = json.dumps(
        {"choices": [{"message": {"content": text, "refusal": None}, "finish_reason": "stop"}]}
    ).encode()
    upstream.script = says(answer(200, body))
    running = await start({"up": base(upstream.url, "openrouter")})
    for n in range(10):
        found = await ask(running, n=n)
        assert (found.status, found.body) == (200, body)
        assert found.get("x-error-envelope") is None
    assert (counted(running), total(running, "success") > 0) == (0, True)


async def test_f014_switched_off_nothing_is_touched(start, upstream) -> None:
    body = b'{"error":{"code":502,"message":"Provider returned error"}}'
    upstream.script = says(answer(200, body))
    running = await start({"up": base(upstream.url, "openrouter", mode="off")})
    for n in range(10):
        found = await ask(running, n=n)
        assert (found.status, found.body) == (200, body)
        assert found.get("x-error-envelope") is None
    assert closed(running)


async def test_f020_no_answer_of_ours_is_cached(start, upstream) -> None:
    running = await start(
        {
            "up": base(upstream.url),
            "dead": base("http://127.0.0.1:9"),
            "slow": base(upstream.url, timeouts={"first_byte": "50ms"}),
        }
    )
    upstream.script = says(error(500))
    for n in range(5):
        await call(running.port, f"/up/v1/models?{n}")
    found = {"breaker_open": await call(running.port, "/up/v1/models")}
    found["unknown_provider"] = await call(running.port, "/nobody/x")
    found["connect_error"] = await call(running.port, "/dead/x")
    upstream.script = hang
    found["timeout"] = await call(running.port, "/slow/x")
    found["forbidden_host"] = await call(running.port, "/up/x", host="evil.test")
    found["bad_request"] = await call(running.port, "/up/x#y")
    for decision, one in found.items():
        assert one.get("x-sidecar-decision") == decision
        assert one.get("cache-control") == "no-store"
        for name in ("etag", "last-modified", "age", "expires"):
            assert one.get(name) is None


async def test_f021_two_hops_wrap_nothing_twice(start, upstream) -> None:
    body = b'{"error":{"message":"M","type":"T","code":"C"}}'
    upstream.script = says(answer(400, body))
    inner = await start({"up": base(upstream.url)})
    outer = await start({"up": base(f"http://127.0.0.1:{inner.port}/up", "sidecar")})
    found = await ask(outer)
    assert (found.status, found.body) == (400, body)
    assert (found.envelope["message"], found.envelope["code"]) == ("M", "C")
    asked = await call(outer.port, CHAT, "POST", chat(), JSON, ENVELOPE)
    assert (asked.json["message"], asked.json["code"]) == ("M", "C")
    assert "\\" not in asked.json["message"]
    # Two values of one header, and nobody knows which one counts.
    names = [name.lower() for name, _ in found.headers]
    own = [name for name in names if name.startswith((b"x-sidecar-", b"x-error-", b"x-corr"))]
    assert sorted(own) == sorted(set(own))


async def test_f021_the_decision_of_the_one_in_front_is_passed_on(start, upstream) -> None:
    inner = await start({"up": base(upstream.url, breaker={"open_for": "60s"})})
    outer = await start({"up": base(f"http://127.0.0.1:{inner.port}/up", "sidecar")})
    await trip(inner, upstream)
    refused = (await ask(inner)).envelope["message"]
    for n in range(8):
        found = await ask(outer, n=n)
        assert found.status == 503
        assert found.envelope["code"] == "breaker_open"
        assert found.envelope["source"] == "sidecar"
        assert found.envelope["message"].split(", last ")[0] == refused.split(", last ")[0]
        assert found.get("x-should-retry") == "false"
    assert (counted(outer), closed(outer)) == (0, True)
    assert total(outer, "neutral") >= 8


@pytest.mark.parametrize(("size", "cut"), [(20_000, False), (200_000, True)])
async def test_f021_a_long_error_keeps_its_end_or_says_that_it_was_cut(
    start, upstream, size, cut
) -> None:
    useful = "the tensor 'q_proj' has the wrong shape"
    text = json.dumps({"trace": "x" * size, "error": {"message": useful, "code": "C"}})
    upstream.script = says(answer(500, text.encode()))
    running = await start({"up": base(upstream.url)})
    asked = await call(running.port, CHAT, "POST", chat(), JSON, ENVELOPE)
    assert asked.json["message"] == useful
    raw = asked.json["raw"]
    assert raw["body_cut"] is cut
    if not cut:
        assert raw["body"].endswith(text[-200:])
    plain = await ask(running)
    assert plain.body == text.encode()


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", 1),
        (b"HTTP/1.1 500 X\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000, 1),
        (b"HTTP/1.1 403 X\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n", 0),
    ],
)
async def test_f022_an_error_body_that_never_ends(start, upstream, head, expected) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(head)
        await visit.closed()
        visit.keep = False

    upstream.script = script
    running = await start({"up": base(upstream.url)})
    caller = await Caller.connect(running.port)
    await caller.send(request(CHAT, "POST", chat(), JSON))
    line, _, _ = await caller.head()
    assert line.split(b" ")[1] == head.split(b" ")[1]
    assert counted(running) == expected
    caller.close()
    await until(lambda: not upstream.open_connections)
    assert counted(running) == expected


async def test_f026_a_local_shortage_is_nobody_elses(start, upstream, monkeypatch) -> None:
    upstream.script = says(OK)
    running = await start({"up": base(upstream.url)})
    connect = aiohappyeyeballs.start_connection

    async def no_descriptors(*_args, **_more):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(aiohappyeyeballs, "start_connection", no_descriptors)
    found = [await ask(running, n=n) for n in range(20)]
    monkeypatch.setattr(aiohappyeyeballs, "start_connection", connect)
    assert {one.envelope["code"] for one in found} == {"local_resource"}
    assert {one.get("x-sidecar-verdict") for one in found} == {"neutral"}
    assert {one.envelope["source"] for one in found} == {"sidecar"}
    assert (upstream.hits, counted(running), closed(running)) == (0, 0, True)
    assert (await ask(running)).status == 200


async def test_f026_calls_that_wait_for_nothing_of_ours_all_pass(start, upstream) -> None:
    """There is no pool of ours to wait for: twenty slow calls are twenty connections."""
    gate = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await gate.wait()
        await visit.send(OK)

    upstream.script = script
    running = await start({"up": base(upstream.url)})
    waiting = [asyncio.create_task(ask(running, n=n)) for n in range(20)]
    await until(lambda: upstream.hits == 20)
    gate.set()
    assert {(await one).status for one in waiting} == {200}
    assert (counted(running), closed(running)) == (0, True)
    assert not any(shot.in_flight for shot in shots(running))


async def test_f026_calls_that_never_got_a_place_are_counted_against_nobody(
    start, upstream
) -> None:
    """Two places, twenty calls at once: whoever was sent is answered, the others are told why."""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await asyncio.sleep(0.3)
        await visit.send(OK)

    upstream.script = script
    section = base(upstream.url, limits={"in_flight": 2}, shedding={"max_wait": "500ms"})
    running = await start({"up": section})
    found = await asyncio.gather(*(ask(running, n=n) for n in range(20)))
    sent = [one for one in found if one.get("x-sidecar-decision") == "forwarded"]
    kept = [one for one in found if one.get("x-sidecar-decision") == "bulkhead"]
    assert len(sent) + len(kept) == 20
    assert len(sent) == upstream.hits >= 4
    assert {one.status for one in sent} == {200}
    assert {(one.status, one.envelope["code"]) for one in kept} == {(503, "bulkhead_full")}
    waits = [call.waited for call in running.calls if call.decision == "bulkhead"]
    assert all(wait < 1 for wait in waits)
    assert sum(wait > 0.4 for wait in waits) == 16 - (len(sent) - 2)
    assert (counted(running), closed(running)) == (0, True)
    assert not any(shot.in_flight for shot in shots(running))


async def test_f020_not_even_a_refused_probe(start, upstream) -> None:
    running = await start({"up": base(upstream.url)})
    await trip(running, upstream)
    await half_open(running)
    upstream.script = hang
    probe = asyncio.create_task(ask(running))
    await until(lambda: running.breaker("up/gpt-x").probes_in_flight)
    found = await ask(running, n=1)
    assert (found.status, found.get("cache-control")) == (503, "no-store")
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
