"""What a rate limit and a spent budget do to further calls, through the whole daemon."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from email.utils import formatdate
from typing import Any

import pytest

from sidecar import clock
from sidecar.breaker.bulkhead import Bulkhead
from sidecar.breaker.gating import GateState
from sidecar.proxy.places import wait_for_place
from tests.cases import all_cases, classify_case

from .callers import Caller, call, chat, request
from .upstreams import Visit, answer, says

CHAT = "/up/v1/chat/completions"
JSON = ("Content-Type", "application/json")
OK = answer(200, b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}')
KEY, OTHER_KEY = ("Authorization", "Bearer one"), ("Authorization", "Bearer two")


class Clock:
    """The daemon's clock, ahead of the machine's by what a test says."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def later(self, seconds: float) -> None:
        self.ahead += seconds


@pytest.fixture
def ahead(monkeypatch) -> Clock:
    moved = Clock()
    real = time.monotonic
    monkeypatch.setattr(clock, "monotonic", lambda: real() + moved.ahead)
    return moved


def error(status: int, code: object = "rate_limit_exceeded", *headers: tuple[bytes, bytes]):
    return answer(status, json.dumps({"error": {"message": "m", "code": code}}).encode(), *headers)


def throttle(wait: object = None, name: bytes = b"Retry-After"):
    return error(429, "rate_limit_exceeded", *([(name, str(wait).encode())] if wait else []))


SPENT = error(429, "insufficient_quota")


async def ask(running, model: str = "gpt-x", *headers: tuple[str, str], n: int = 0, path=CHAT):
    return await call(running.port, path, "POST", chat(model, n=n), JSON, *(headers or (KEY,)))


def decision(found) -> str | None:
    return found.get("x-sidecar-decision")


async def provider(running) -> Any:
    found = await call(running.admin_port, "/status")
    return found.json["providers"]["up"]


async def entry(running) -> Any:
    (found,) = (await provider(running))["shedding"]
    return found


async def reset(running, key: str = "up%2Fgpt-x") -> None:
    found = await call(
        running.admin_port, f"/breakers/{key}/reset", "POST", None, ("x-sidecar-admin", "1")
    )
    assert found.status == 200


# -- shed -----------------------------------------------------------------------------------


async def test_the_upstreams_own_429_passes_and_the_next_call_is_told_what_is_left(
    start, upstream
) -> None:
    upstream.script = says(throttle(20))
    running = await start({"up": upstream.url})
    own = await ask(running)
    assert (own.status, decision(own), own.get("retry-after")) == (429, "forwarded", "20")
    assert own.body.startswith(b'{"error": {"message": "m"')
    found = await ask(running)
    assert (found.status, decision(found)) == (429, "shed")
    envelope = found.envelope
    assert (envelope["class"], envelope["source"], envelope["code"]) == (
        "rate_limit",
        "sidecar",
        "shed",
    )
    assert envelope["retryable"] is True
    assert 19 < envelope["retry_after"] <= 21
    assert found.get("retry-after") in {"20", "21"}
    assert int(found.get("retry-after-ms") or 0) == pytest.approx(
        envelope["retry_after"] * 1000, abs=1
    )
    assert found.get("x-should-retry") is None
    assert found.get("x-sidecar-breaker") == "up/gpt-x; state=closed; mode=enforce"
    assert found.get("x-sidecar-verdict") is None
    assert found.get("cache-control") == "no-store"
    assert "its wait ends in" in envelope["message"]
    assert found.json["error"]["envelope"]["code"] == "shed"
    assert upstream.hits == 1
    window = running.breaker("up/gpt-x").window
    assert (window.throttle, window.neutral, window.failure) == (1, 0, 0)
    assert running.calls[-1].verdict is None


async def test_b_other_credentials_models_and_providers_go_on(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        body = await visit.read_body()
        mine = visit.request.get(b"authorization") == b"Bearer one" and b"gpt-x" in body
        await visit.send(throttle(20) if mine else OK)

    upstream.script = script
    running = await start({"up": upstream.url, "other": upstream.url})
    await ask(running)
    assert decision(await ask(running)) == "shed"
    assert (await ask(running, "gpt-x", OTHER_KEY)).status == 200
    assert (await ask(running, "gpt-y")).status == 200
    other = await ask(running, path=CHAT.replace("/up", "/other"))
    assert (other.status, decision(other)) == (429, "forwarded")
    project = ("OpenAI-Project", "another")
    assert decision(await ask(running, "gpt-x", KEY, project)) == "forwarded"


async def test_a_short_wait_is_held(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(throttle("0.3") if visit.number == 1 else OK)

    upstream.script = script
    running = await start({"up": upstream.url})
    assert (await ask(running)).status == 429
    began = time.monotonic()
    held = [asyncio.create_task(ask(running, n=n)) for n in range(5)]
    await asyncio.sleep(0.1)
    shown = await entry(running)
    assert (shown["state"], shown["queued"], shown["hint"]) == ("waiting", 5, 0.3)
    found = await asyncio.gather(*held)
    assert {(one.status, decision(one)) for one in found} == {(200, "forwarded")}
    assert time.monotonic() - began > 0.25
    assert upstream.hits == 6
    assert running.breaker("up/gpt-x").window.success == 5


async def test_a_long_wait_is_not_left_to_an_sdk(start, upstream) -> None:
    upstream.script = says(throttle(568157))
    running = await start({"up": upstream.url})
    assert (await ask(running)).get("retry-after") == "568157"
    found = await ask(running)
    assert decision(found) == "shed"
    assert found.get("x-should-retry") == "false"
    assert 3599 <= found.envelope["retry_after"] <= 3601
    assert (await entry(running))["hint"] == 568157


async def test_a_call_that_waits_and_leaves_takes_nothing_along(start, upstream) -> None:
    upstream.script = says(throttle("0.4"))
    running = await start({"up": upstream.url})
    await ask(running)
    callers = []
    for n in range(10):
        caller = await Caller.connect(running.port)
        await caller.send(request(CHAT, "POST", chat(n=n), JSON, KEY))
        callers.append(caller)
    while (await entry(running))["queued"] < 10:
        await asyncio.sleep(0.01)
    for caller in callers:
        await caller.closed()
    while running.daemon.plane.active:
        await asyncio.sleep(0.01)
    assert (await entry(running))["queued"] == 0
    assert running.daemon.plane.in_flight("up") == 0
    assert upstream.hits == 1
    assert running.breaker("up/gpt-x").in_flight == 0


async def test_an_error_in_a_stream_closes_the_gate_too(start, upstream) -> None:
    event = b'data: {"error":{"message":"slow","type":"requests","code":"rate_limit_exceeded"}}\n\n'
    upstream.script = says(answer(200, event, kind=b"text/event-stream"))
    running = await start({"up": upstream.url})
    assert (await ask(running)).envelope["class"] == "rate_limit"
    assert (await entry(running))["state"] == "waiting"


async def test_a_stream_that_runs_counts_as_accepted_from_its_first_word(start, upstream) -> None:
    """Streams last minutes; the doubling of waits must not."""
    going = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        if visit.number < 3:
            await visit.send(throttle())
            return
        word = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
        await visit.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(word), word)
        )
        await going.wait()
        visit.keep = False

    upstream.script = script
    running = await start({"up": upstream.url})
    await ask(running)
    await reset(running)
    await ask(running)
    await reset(running)
    (limit,) = running.daemon.registry.gates("up").limits.values()
    limit.gate._unhinted = 5
    caller = await Caller.connect(running.port)
    await caller.send(request(CHAT, "POST", chat(stream=True), JSON, KEY))
    await caller.head()
    assert limit.gate._unhinted == 0
    going.set()


# -- in which order -------------------------------------------------------------------------


async def test_the_order_of_refusals(start, upstream) -> None:
    """Budget, breaker, slot; and what one of them refuses costs the others nothing."""
    upstream.script = says(throttle(600))
    running = await start({"up": upstream.url})
    await ask(running)
    assert decision(await ask(running)) == "shed"
    await call(
        running.admin_port,
        "/breakers/up%2Fgpt-x/open",
        "POST",
        b'{"for": "1h"}',
        ("x-sidecar-admin", "1"),
    )
    assert decision(await ask(running)) == "breaker_open"
    (key,) = running.daemon.registry.gates("up").limits
    now = clock.monotonic()
    running.daemon.registry.gates("up").ran_out(key, now, "credits_exhausted", None)
    found = await ask(running)
    assert decision(found) == "quota"
    assert found.get("x-sidecar-breaker").startswith("up/gpt-x; state=open")
    running.daemon.plane.draining = True
    assert decision(await ask(running)) == "draining"
    assert upstream.hits == 1
    assert running.breaker("up/gpt-x").in_flight == 0


async def test_a_probe_that_is_shed_gives_its_lease_back(start, upstream, ahead) -> None:
    running = await start({"up": {"upstream": upstream.url, "dialect": "openai"}})
    upstream.script = says(error(500, "server_error"))
    for n in range(5):
        await ask(running, n=n)
    ahead.later(40)
    upstream.script = says(throttle(20))
    assert decision(await ask(running)) == "forwarded"
    for _ in range(5):
        assert decision(await ask(running)) == "shed"
    shot = running.breaker("up/gpt-x")
    assert (shot.state, shot.probes_in_flight) == ("half_open", 0)
    assert upstream.hits == 6


async def test_a_breaker_that_opens_meanwhile_refuses_the_held(start, upstream) -> None:
    upstream.script = says(throttle("0.3"))
    running = await start({"up": upstream.url})
    await ask(running)
    held = asyncio.create_task(ask(running))
    await asyncio.sleep(0.1)
    await call(
        running.admin_port, "/breakers/up%2Fgpt-x/open", "POST", None, ("x-sidecar-admin", "1")
    )
    assert decision(await held) == "breaker_open"
    assert upstream.hits == 1


@pytest.mark.parametrize("leaves", [False, True], ids=["it is refused", "it leaves"])
async def test_c_a_slot_that_was_not_used_is_the_next_ones(start, upstream, leaves) -> None:
    """At one call in twenty seconds: what gets the slot finds no place at the provider."""
    upstream.script = says(throttle(0.001))
    section = {
        "upstream": upstream.url,
        "dialect": "openai",
        "limits": {"in_flight": 1},
        "shedding": {"min_rate": 0.05, "sustained": {"count": 1, "ratio": 0}, "max_queue": 4},
    }
    running = await start({"up": section})
    await ask(running)
    ended = asyncio.Event()

    async def hang(visit: Visit) -> None:
        await visit.read_body()
        await ended.wait()
        await visit.send(OK)

    upstream.script = hang
    other = asyncio.create_task(ask(running, "gpt-y"))
    while upstream.hits < 2:
        await asyncio.sleep(0.01)
    if leaves:
        caller = await Caller.connect(running.port)
        await caller.send(request(CHAT, "POST", chat(), JSON, KEY))
        bulkhead = running.daemon.plane.runtimes["up"].bulkhead
        while not bulkhead.waiting:
            await asyncio.sleep(0.01)
        await caller.closed()
        while bulkhead.waiting:
            await asyncio.sleep(0.01)
    else:
        assert decision(await ask(running)) == "bulkhead"
    ended.set()
    assert (await other).status == 200
    upstream.script = says(OK)
    assert (await ask(running)).status == 200


async def test_the_wait_for_a_slot_and_that_for_a_place_share_one_max_wait(
    start, upstream, monkeypatch
) -> None:
    seconds: list[float] = []

    async def waits(bulkhead: Bulkhead, most: float) -> None:
        seconds.append(most)
        await wait_for_place(bulkhead, most)

    monkeypatch.setattr("sidecar.proxy.entry.wait_for_place", waits)
    upstream.script = says(throttle(0.3))
    section = {"upstream": upstream.url, "dialect": "openai", "limits": {"in_flight": 1}}
    running = await start({"up": {**section, "shedding": {"max_wait": "500ms"}}})
    await ask(running)
    ended = asyncio.Event()

    async def hang(visit: Visit) -> None:
        await visit.read_body()
        await ended.wait()
        await visit.send(OK)

    upstream.script = hang
    other = asyncio.create_task(ask(running, "gpt-y"))
    while upstream.hits < 2:
        await asyncio.sleep(0.01)
    assert decision(await ask(running)) == "bulkhead"
    assert 0 <= seconds[0] < 0.5
    ended.set()
    assert (await other).status == 200


@pytest.mark.parametrize(
    ("said", "refused"), [(throttle(20), (429, "shed")), (SPENT, (402, "quota"))]
)
async def test_what_is_said_while_calls_wait_for_a_place_concerns_them(
    start, upstream, said, refused
) -> None:
    ended = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await ended.wait()
        await visit.send(said if visit.number == 1 else OK)

    upstream.script = script
    section = {"upstream": upstream.url, "dialect": "openai", "limits": {"in_flight": 1}}
    running = await start({"up": {**section, "shedding": {"max_wait": "20s"}}})
    first = asyncio.create_task(ask(running))
    while not upstream.hits:
        await asyncio.sleep(0.01)
    bulkhead = running.daemon.plane.runtimes["up"].bulkhead
    others = [asyncio.create_task(ask(running, n=n)) for n in range(5)]
    stranger = asyncio.create_task(ask(running, "gpt-x", OTHER_KEY))
    while bulkhead.waiting < 6:
        await asyncio.sleep(0.01)
    ended.set()
    assert decision(await first) == "forwarded"
    found = await asyncio.gather(*others)
    assert {(one.status, decision(one)) for one in found} == {refused}
    assert (await stranger).status == 200
    assert (upstream.hits, bulkhead.held) == (2, 0)


async def test_one_asks_about_a_spent_budget_also_if_it_waits_for_a_place(
    start, upstream, ahead
) -> None:
    upstream.script = says(SPENT)
    section = {"upstream": upstream.url, "dialect": "openai", "limits": {"in_flight": 1}}
    running = await start({"up": {**section, "shedding": {"max_wait": "20s"}}})
    await ask(running)
    ended = asyncio.Event()

    async def hang(visit: Visit) -> None:
        await visit.read_body()
        await ended.wait()
        await visit.send(OK)

    upstream.script = hang
    other = asyncio.create_task(ask(running, "gpt-y"))
    while upstream.hits < 2:
        await asyncio.sleep(0.01)
    ahead.later(61)
    asks = asyncio.create_task(ask(running))
    while not running.daemon.plane.runtimes["up"].bulkhead.waiting:
        await asyncio.sleep(0.01)
    ended.set()
    assert (await other).status == (await asks).status == 200
    assert (await ask(running)).status == 200, "the budget is there again"


# -- hints ----------------------------------------------------------------------------------


def _gmt(seconds: float) -> bytes:
    return formatdate(time.time() + seconds, usegmt=True).encode()


@pytest.mark.parametrize(
    ("headers", "left", "source"),
    [
        ([(b"Retry-After", b"0")], 0, "retry-after"),
        ([(b"Retry-After", b"-5")], 1, None),
        ([(b"Retry-After", b"NaN")], 1, None),
        ([(b"Retry-After", b"inf")], 1, None),
        ([(b"Retry-After", b"soon")], 1, None),
        ([(b"Retry-After", _gmt(-60)), (b"Date", _gmt(0))], 0, "retry-after"),
        ([(b"Retry-After", _gmt(60)), (b"Date", _gmt(0))], 60, "retry-after"),
        ([(b"Retry-After", b"568157")], 3600, "retry-after"),
        ([(b"retry-after-ms", b"2500")], 2.5, "retry-after-ms"),
        ([(b"Retry-After", b"3"), (b"retry-after-ms", b"2500")], 2.5, "retry-after-ms"),
        ([(b"Retry-After", b"7"), (b"X-Should-Retry", b"false")], 7, "retry-after"),
        (
            [
                (b"x-ratelimit-remaining-requests", b"0"),
                (b"x-ratelimit-reset-requests", b"12s"),
                (b"x-ratelimit-remaining-tokens", b"900"),
                (b"x-ratelimit-reset-tokens", b"6m0s"),
            ],
            12,
            "x-ratelimit-reset-requests",
        ),
    ],
)
async def test_d_hints_in_every_form(start, upstream, headers, left, source) -> None:
    upstream.script = says(error(429, "rate_limit_exceeded", *headers))
    running = await start({"up": upstream.url})
    await ask(running)
    (limit,) = running.daemon.registry.gates("up").limits.values()
    now = clock.monotonic()
    assert max(0.0, limit.gate.opens_at - now) == pytest.approx(left, abs=1.1 if left > 9 else 0.3)
    shown = limit.gate.snapshot(now)
    assert shown.hint_source == source
    assert (await entry(running))["hint"] == shown.hint


async def test_d_a_hint_in_the_body(start, upstream) -> None:
    body = b'{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"m","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"32.5s"}]}}'
    upstream.script = says(answer(429, body))
    running = await start({"up": {"upstream": upstream.url, "dialect": "gemini"}})
    await ask(running, path="/up/v1beta/models/gemini-x:generateContent")
    shown = await entry(running)
    assert (shown["hint"], shown["hint_source"]) == (32.5, "body")
    assert shown["key"] == "up/gemini-x"


THROTTLES = [case for case in all_cases() if classify_case(case).verdict == "throttle"]


def test_b_the_recorded_throttles_are_many() -> None:
    assert len(THROTTLES) > 30


@pytest.mark.parametrize("case", THROTTLES, ids=lambda case: case["id"])
async def test_b_no_storm_of_them_trips_a_breaker(start, upstream, ahead, case) -> None:
    """Forty calls of one key, half of them after a day in which the gate opened."""
    response = case["response"]
    headers = [
        (name.encode(), str(value).encode())
        for name, value in (response.get("headers") or {}).items()
        if name.lower() not in {"content-type", "content-length", "content-encoding"}
    ]
    kind = (response.get("headers") or {}).get("content-type", "application/json").encode()
    body = (response.get("body") or "").encode()
    if response.get("body_encoding") == "base64":
        body = base64.b64decode(body)
    upstream.script = says(answer(response["status"], body, *headers, kind=kind))
    section = {"upstream": upstream.url, "dialect": case["provider"], "shedding": {"max_wait": 0}}
    running = await start({"up": section})
    caller = await Caller.connect(running.port)
    method, path = case["request"]["method"], case["request"]["path"]
    for n in range(40):
        await caller.send(
            request("/up" + path, method, chat(n=n) if method == "POST" else None, JSON)
        )
        found = await caller.answer()
        assert decision(found) in {"forwarded", "shed"}
        ahead.later(86400 if n % 2 else 0)
    shots = running.daemon.registry.snapshots("up", clock.monotonic())
    assert {shot.state for shot in shots} == {"closed"}
    assert sum(shot.window.failure for shot in shots) == 0
    assert upstream.hits >= 20


# -- sustained ------------------------------------------------------------------------------


async def test_status_shows_state_rate_queue_and_shed(start, upstream) -> None:
    upstream.script = says(throttle(0.001))
    running = await start({"up": {"upstream": upstream.url, "shedding": {"min_rate": 50}}})
    for n in range(8):
        await ask(running, n=n)
    shown = await entry(running)
    assert shown["key"] == "up/gpt-x"
    assert shown["state"] == "shedding"
    assert shown["rate"] == 50
    assert set(shown) == {
        "key", "state", "not_before", "rate", "queued", "shed", "hint", "hint_source",
    }  # fmt: skip
    assert (await provider(running))["verdict"] == "degraded"
    assert (await provider(running))["breakers"]["up/gpt-x"]["state"] == "closed"


async def test_a_three_times_the_load_of_a_real_bucket(start, upstream) -> None:
    """Some seconds of it; the minute is in `bench/shedding.py`, and simulated in `tests/breaker`."""
    rate, level, at, refused = 40.0, 40.0, time.monotonic(), 0

    async def script(visit: Visit) -> None:
        nonlocal level, at, refused
        await visit.read_body()
        now = time.monotonic()
        level, at = min(rate, level + (now - at) * rate), now
        if level >= 1:
            level -= 1
            await visit.send(OK)
        else:
            refused += 1
            await visit.send(throttle(1))

    upstream.script = script
    section = {
        "upstream": upstream.url,
        "dialect": "openai",
        "shedding": {"sustained": {"count": 2, "ratio": 0.3}, "max_wait": "500ms"},
    }
    running = await start({"up": section})
    longest = 0.0

    async def one(n: int) -> str | None:
        nonlocal longest
        found = await ask(running, n=n)
        call = running.calls[-1]
        longest = max(longest, call.duration)
        return decision(found)

    calls = []
    began = time.monotonic()
    for n in range(480):
        calls.append(asyncio.create_task(one(n)))
        await asyncio.sleep(max(0.0, began + n / 120 - time.monotonic()))
    seen = await asyncio.gather(*calls)
    assert set(seen) == {"forwarded", "shed"}
    assert (await entry(running))["state"] == "shedding"
    assert refused <= 0.2 * upstream.hits
    assert running.breaker("up/gpt-x").state == "closed"
    assert running.breaker("up/gpt-x").window.failure == 0
    # What waits is shed at its time; the rest is what a busy machine adds.
    assert longest < 2


async def test_open_after_is_the_last_resort(start, upstream, ahead) -> None:
    """No success and no hint for ten minutes: an outage that calls itself a limit."""
    upstream.script = says(throttle())
    section = {"upstream": upstream.url, "dialect": "openai", "shedding": {"min_rate": 50}}
    running = await start({"up": section})
    began, seen = clock.monotonic(), []
    for n in range(200):
        found = await ask(running, n=n)
        if decision(found) == "breaker_open":
            break
        seen.append((decision(found), found.get("x-sidecar-verdict")))
        (limit,) = running.daemon.registry.gates("up").limits.values()
        ahead.later(max(5.0 if n < 20 else 20.0, limit.gate.opens_at - clock.monotonic()))
    assert decision(found) == "breaker_open"
    assert 600 < clock.monotonic() - began < 800
    assert set(seen[:-5]) == {("forwarded", "throttle")}
    assert [verdict for _, verdict in seen[-5:]] == ["failure"] * 5
    assert running.calls[-2].envelope.class_ == "rate_limit"
    assert "open_after" in running.calls[-2].rule


@pytest.mark.parametrize("wait", [None, "1"])
async def test_open_after_never_with_hints_or_switched_off(start, upstream, ahead, wait) -> None:
    upstream.script = says(throttle(wait))
    shedding = {"min_rate": 50} | ({} if wait else {"open_after": 0})
    running = await start(
        {"up": {"upstream": upstream.url, "dialect": "openai", "shedding": shedding}}
    )
    for n in range(60):
        assert decision(await ask(running, n=n)) == "forwarded"
        ahead.later(60)
    assert running.breaker("up/gpt-x").state == "closed"


# -- budgets --------------------------------------------------------------------------------


async def test_f006_a_spent_budget_is_asked_about_once(start, upstream) -> None:
    upstream.script = says(SPENT)
    running = await start({"up": upstream.url})
    first = await ask(running)
    assert (first.status, decision(first)) == (402, "forwarded")
    for n in range(9):
        found = await ask(running, n=n)
        assert (found.status, decision(found)) == (402, "quota")
        envelope = found.envelope
        assert (envelope["class"], envelope["code"]) == ("permanent", "quota_exhausted")
        assert (envelope["source"], envelope["retryable"]) == ("sidecar", False)
        assert envelope["retry_after"] is None
        assert (found.get("retry-after"), found.get("retry-after-ms")) == (None, None)
        assert found.get("x-should-retry") == "false"
        assert found.get("x-sidecar-breaker") == "up/gpt-x; state=closed; mode=enforce"
    assert upstream.hits == 1
    assert running.calls[-1].key == "up/gpt-x"
    shown = await provider(running)
    (quota,) = shown["quota"]
    assert (quota["key"], quota["code"], quota["until"]) == ("up/gpt-x", "quota_exhausted", None)
    assert quota["next_check"] is not None
    assert shown["shedding"] == []
    assert shown["verdict"] == "degraded"
    assert (await ask(running, "gpt-x", OTHER_KEY)).get("x-sidecar-decision") == "forwarded"


async def test_f066_a_top_up_takes_effect_with_the_next_recheck(start, upstream, ahead) -> None:
    upstream.script = says(SPENT)
    running = await start({"up": upstream.url})
    for n in range(300):
        await ask(running, n=n)
        ahead.later(1)
    assert upstream.hits <= 1 + 300 / 60
    upstream.script = says(OK)
    for n in range(62):
        found = await ask(running, n=n)
        if found.status == 200:
            break
        ahead.later(1)
    assert found.status == 200
    assert (await ask(running)).status == 200
    assert (await provider(running))["quota"] == []


async def test_a_recheck_that_its_caller_gives_up_is_the_next_ones(start, upstream, ahead) -> None:
    upstream.script = says(SPENT)
    running = await start({"up": upstream.url})
    await ask(running)
    ahead.later(61)

    async def hang(visit: Visit) -> None:
        await visit.read_body()
        await visit.closed()
        visit.keep = False

    upstream.script = hang
    caller = await Caller.connect(running.port)
    await caller.send(request(CHAT, "POST", chat(), JSON, KEY))
    while upstream.hits < 2:
        await asyncio.sleep(0.01)
    assert decision(await ask(running)) == "quota"
    await caller.closed()
    while running.daemon.plane.active:
        await asyncio.sleep(0.01)
    upstream.script = says(OK)
    assert decision(await ask(running)) == "forwarded"


@pytest.mark.parametrize("mode", ["observe", "off"])
async def test_f006_observed_or_off_every_call_goes_on(start, upstream, mode) -> None:
    upstream.script = says(SPENT)
    running = await start(
        {
            "up": {
                "upstream": upstream.url,
                "dialect": "openai",
                "shedding": {"quota": {"mode": mode}},
            }
        }
    )
    for n in range(10):
        assert decision(await ask(running, n=n)) == "forwarded"
    assert upstream.hits == 10
    assert len((await provider(running))["quota"]) == (1 if mode == "observe" else 0)
    assert running.calls[-1].would_refuse is (mode == "observe")


async def test_one_request_over_its_budget_gates_nothing(start, upstream) -> None:
    body = (
        b'{"error":{"code":402,"message":"This request requires more credits, or fewer max_tokens. '
        b'You requested up to 4096 tokens, but can only afford 100."}}'
    )
    upstream.script = says(answer(402, body))
    running = await start({"up": {"upstream": upstream.url, "dialect": "openrouter"}})
    for _ in range(3):
        found = await ask(running)
        assert found.envelope["code"] == "request_over_budget"
        assert decision(found) == "forwarded"
    assert not running.daemon.registry.gates("up")


# -- people, modes, reloads -----------------------------------------------------------------


@pytest.mark.parametrize("key", ["up%2Fgpt-x", "up"])
@pytest.mark.parametrize("raw", [throttle(600), SPENT])
async def test_a_reset_opens_it(start, upstream, raw, key) -> None:
    upstream.script = says(raw)
    running = await start({"up": upstream.url})
    await ask(running)
    assert decision(await ask(running)) in {"shed", "quota"}
    await reset(running, key)
    upstream.script = says(OK)
    assert (await ask(running)).status == 200


async def test_a_reset_lets_those_go_who_wait(start, upstream) -> None:
    upstream.script = says(throttle("1.5"))
    running = await start({"up": upstream.url})
    await ask(running)
    upstream.script = says(OK)
    held = [asyncio.create_task(ask(running, n=n)) for n in range(5)]
    while (await entry(running))["queued"] < 5:
        await asyncio.sleep(0.01)
    began = clock.monotonic()
    await reset(running)
    assert {one.status for one in await asyncio.gather(*held)} == {200}
    assert clock.monotonic() - began < 1


async def test_observe_computes_and_refuses_nothing(start, upstream) -> None:
    upstream.script = says(throttle(600))
    running = await start(
        {"up": {"upstream": upstream.url, "dialect": "openai", "mode": "observe"}}
    )
    for n in range(10):
        assert decision(await ask(running, n=n)) == "forwarded"
    assert [one.would_refuse for one in running.calls] == [False] + [True] * 9
    shown = await entry(running)
    assert (shown["state"], shown["shed"]) == ("shedding", 9)
    assert upstream.hits == 10


@pytest.mark.parametrize("raw", [throttle(600), SPENT])
async def test_off_touches_nothing(start, upstream, raw) -> None:
    upstream.script = says(raw)
    running = await start({"up": {"upstream": upstream.url, "dialect": "openai", "mode": "off"}})
    for n in range(10):
        assert decision(await ask(running, n=n)) == "forwarded"
    assert not running.daemon.registry.gates("up")
    assert running.calls[-1].would_refuse is False


async def test_switched_off_by_hand_it_holds_nobody(start, upstream) -> None:
    upstream.script = says(throttle(600))
    running = await start({"up": upstream.url})
    await ask(running)
    await call(
        running.admin_port, "/breakers/up%2Fgpt-x/off", "POST", None, ("x-sidecar-admin", "1")
    )
    assert decision(await ask(running)) == "forwarded"


@pytest.mark.parametrize("preempt", [True, False])
async def test_preempt_waits_for_the_reset(start, upstream, preempt) -> None:
    upstream.script = says(
        answer(
            200,
            b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}',
            (b"x-ratelimit-remaining-requests", b"0"),
            (b"x-ratelimit-reset-requests", b"20s"),
            (b"x-ratelimit-remaining-tokens", b"10"),
            (b"x-ratelimit-reset-tokens", b"6m0s"),
        )
    )
    running = await start(
        {
            "up": {
                "upstream": upstream.url,
                "dialect": "openai",
                "shedding": {"preempt": preempt},
            }
        }
    )
    assert (await ask(running)).status == 200
    found = await ask(running)
    assert decision(found) == ("shed" if preempt else "forwarded")
    if preempt:
        shown = await entry(running)
        assert (shown["hint"], shown["hint_source"]) == (20, "x-ratelimit-reset-requests")
        assert 19 < found.envelope["retry_after"] <= 21
    assert upstream.hits == (1 if preempt else 2)


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_preempt_heeds_what_an_error_says_too(start, upstream, status) -> None:
    left = ((b"x-ratelimit-remaining-requests", b"0"), (b"x-ratelimit-reset-requests", b"20s"))
    upstream.script = says(error(status, "x", *left))
    running = await start(
        {"up": {"upstream": upstream.url, "dialect": "openai", "shedding": {"preempt": True}}}
    )
    assert decision(await ask(running)) == "forwarded"
    assert decision(await ask(running)) == "shed"


async def test_preempt_needs_a_reset_and_nothing_that_remains(start, upstream) -> None:
    body = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'
    running = await start(
        {
            "up": {
                "upstream": upstream.url,
                "dialect": "openai",
                "shedding": {"preempt": True},
            }
        }
    )
    for headers in (
        [(b"x-ratelimit-remaining-requests", b"0")],
        [(b"x-ratelimit-reset-requests", b"20s")],
        [(b"x-ratelimit-remaining-requests", b"1"), (b"x-ratelimit-reset-requests", b"20s")],
        [(b"x-ratelimit-remaining-requests", b"0"), (b"x-ratelimit-reset-requests", b"0s")],
        [(b"x-ratelimit-remaining-requests", b"no"), (b"x-ratelimit-reset-requests", b"20s")],
    ):
        upstream.script = says(answer(200, body, *headers))
        assert decision(await ask(running)) == "forwarded"
    assert decision(await ask(running)) == "forwarded"


async def test_f123_a_reload_keeps_what_is_closed_and_takes_other_settings(start, upstream) -> None:
    upstream.script = says(throttle(600))
    running = await start({"up": upstream.url})
    await ask(running)
    file = running.daemon._options.config
    file.write_text(
        file.read_text()
        + "defaults: {timeouts: {connect: 3s}, shedding: {sdk_wait_max: 2h, preempt: true}}\n"
    )
    result = await running.daemon.reload()
    assert (result.problems, result.changed) == ((), ("up",))
    found = await ask(running)
    assert decision(found) == "shed"
    assert found.get("x-should-retry") is None
    assert (await entry(running))["state"] == GateState.WAITING
    file.write_text(file.read_text().replace(upstream.url, f"{upstream.url}/v2"))
    await running.daemon.reload()
    assert decision(await ask(running)) == "forwarded"


async def test_what_is_configured_is_everybodys_credential(start, upstream) -> None:
    """Two callers, one key that the daemon sets: one limit."""
    upstream.script = says(throttle(600))
    running = await start(
        {
            "up": {
                "upstream": upstream.url,
                "dialect": "openai",
                "set_headers": {"authorization": {"value": "Bearer ours"}},
            }
        }
    )
    await ask(running, "gpt-x", KEY)
    assert decision(await ask(running, "gpt-x", OTHER_KEY)) == "shed"


@pytest.mark.parametrize(
    "name", ["Retry-After", "retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after"]
)
async def test_a_wait_is_kept_by_whichever_header_asks_for_it(start, upstream, name) -> None:
    """Of the two places that read these headers, one knew fewer, and the answer was lost for it."""
    wait = b"20" if name == "Retry-After" else b"20000"
    upstream.script = says(error(429, "rate_limit_exceeded", (name.encode(), wait)))
    running = await start({"up": {"upstream": upstream.url, "dialect": "bedrock"}})
    found = await ask(running)
    assert (found.status, decision(found)) == (429, "forwarded")
    (shot,) = running.daemon.registry.gates("up").gate_snapshots(clock.monotonic())
    assert (shot.hint, shot.hint_source) == (20, name.lower())
