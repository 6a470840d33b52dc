"""Repetition by the daemon: off, unless asked for, and then only where it can do no harm."""

from __future__ import annotations

import asyncio
import json

import pytest

from sidecar.breaker import retries
from sidecar.telemetry.observer import AttemptFinished

from .callers import Caller, call, chat, request
from .upstreams import Visit, answer

JSON = ("Content-Type", "application/json")
KEY = ("Idempotency-Key", "abc")
CHAT = "/up/v1/chat/completions"
BOOM = answer(503, b'{"error": {"message": "boom", "code": "server_error"}}')
OK = answer(200, b'{"ok": true}')


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch) -> None:
    monkeypatch.setattr(retries, "BASE", 0.001)


def section(upstream: str, attempts: int = 2, **more) -> dict:
    retry = {"attempts": attempts, "budget": 1, **more.pop("retry", {})}
    return {"upstream": upstream, "dialect": "openai", "retry": retry, **more}


def in_turn(*answers: bytes | str):
    """Each request gets the next answer; the last one stays. A word is something else to do."""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        what = answers[min(visit.number, len(answers)) - 1]
        if what == "reset":
            visit.reset()
        elif what == "hang":
            await visit.closed()
            visit.keep = False
        else:
            await visit.send(what)

    return script


async def test_off_by_default(start, upstream) -> None:
    upstream.script = in_turn(BOOM, OK)
    running = await start({"up": upstream.url})
    assert (await call(running.port)).status == 503
    assert upstream.hits == 1


async def test_a_hiccup_is_not_seen(start, upstream) -> None:
    upstream.script = in_turn(BOOM, BOOM, OK)
    running = await start({"up": section(upstream.url)})
    found = await call(running.port)
    assert (found.status, found.body, upstream.hits) == (200, b'{"ok": true}', 3)
    assert found.envelope is None
    window = running.breaker("up/~v1/x").window
    assert (window.success, window.failure) == (1, 0), "one verdict"
    assert len(running.calls) == 1


async def test_what_fails_each_time_tells_of_each(start, upstream) -> None:
    upstream.script = in_turn(BOOM)
    running = await start({"up": section(upstream.url)})
    facts: list = []
    running.daemon.observer.add(facts.append)
    accept = ("Accept", "application/vnd.error-envelope+json")
    found = await call(running.port, "/up/v1/x", "GET", None, accept)
    assert (found.status, upstream.hits) == (503, 3)
    attempts = found.json["raw"]["attempts"]
    assert [(one["status"], one["code"], one["class"]) for one in attempts] == [
        (503, "server_error", "transient")
    ] * 3
    assert [one["wait"] is None for one in attempts] == [False, False, True]
    window = running.breaker("up/~v1/x").window
    assert (window.success, window.failure) == (0, 1), "one verdict"
    told = [fact for fact in facts if isinstance(fact, AttemptFinished)]
    assert [(one.number, one.status) for one in told] == [(1, 503), (2, 503), (3, 503)]
    assert {one.correlation_id for one in told} == {found.get("x-correlation-id")}
    assert all(one.duration >= 0 and one.began <= one.at for one in told)


async def test_a_connection_that_is_cut_and_one_that_is_refused(start, upstream) -> None:
    upstream.script = in_turn("reset", OK)
    running = await start({"up": section(upstream.url, attempts=3)})
    assert (await call(running.port)).status == 200
    await upstream.stop()
    await asyncio.sleep(0)
    found = await call(
        running.port, "/up/v1/x", "GET", None, ("Accept", "application/vnd.error-envelope+json")
    )
    assert (found.status, found.json["code"]) == (502, "connection_refused")
    assert len(found.json["raw"]["attempts"]) == 3
    assert running.breaker("up").window.failure == 1


@pytest.mark.parametrize(
    ("method", "headers", "retry", "hits"),
    [
        ("GET", (), {}, 2),
        ("PUT", (), {}, 2),
        ("DELETE", (), {}, 2),
        ("POST", (), {}, 1),
        ("PATCH", (), {}, 1),
        ("POST", (KEY,), {}, 2),
        ("POST", (), {"methods": ["POST"]}, 2),
        ("GET", (), {"methods": ["POST"]}, 1),
        ("POST", (), {"require_idempotency_key": False}, 2),
        ("GET", (), {"budget": 0}, 1),
    ],
)
async def test_which_requests(start, upstream, method, headers, retry, hits) -> None:
    upstream.script = in_turn(BOOM, OK)
    running = await start({"up": section(upstream.url, retry=retry)})
    body = None if method in ("GET", "DELETE") else chat()
    found = await call(running.port, CHAT, method, body, JSON, *headers)
    assert (found.status, upstream.hits) == (200 if hits == 2 else 503, hits)
    if body is not None:
        assert {one.body for one in upstream.requests} == {body}
    assert (
        b"idempotency-key"
        not in {name.lower() for one in upstream.requests for name, _ in one.headers}
        or headers
    )


@pytest.mark.parametrize(
    "failure",
    [
        answer(400, b'{"error": {"message": "no", "code": "invalid_value"}}'),
        answer(401, b'{"error": {"message": "no", "code": "invalid_api_key"}}'),
        answer(429, b'{"error": {"message": "slow", "code": "rate_limit_exceeded"}}'),
        answer(429, b'{"error": {"message": "spent", "code": "insufficient_quota"}}'),
        answer(503, b'{"error": {"message": "no", "code": "model_not_found"}}'),
        answer(503, b"{}", (b"Retry-After", b"30")),
        answer(503, b'{"error": {"message": "x"}}', (b"X-Should-Retry", b"false")),
        answer(501),
    ],
)
async def test_which_failures_are_final(start, upstream, failure: bytes) -> None:
    upstream.script = in_turn(failure, OK)
    running = await start({"up": section(upstream.url)})
    assert (await call(running.port)).status != 200
    assert upstream.hits == 1


async def test_never_earlier_than_the_upstream_asked(start, upstream) -> None:
    loop = asyncio.get_running_loop()
    times: list[float] = []

    async def script(visit: Visit) -> None:
        times.append(loop.time())
        await visit.send(answer(503, b"{}", (b"Retry-After-Ms", b"200")) if len(times) == 1 else OK)

    upstream.script = script
    running = await start({"up": section(upstream.url)})
    assert (await call(running.port)).status == 200
    assert times[1] - times[0] >= 0.2


@pytest.mark.parametrize("in_the_pause", [False, True])
async def test_never_while_the_upstream_throttles_the_key(start, upstream, in_the_pause) -> None:
    """Another call was told to wait half a minute: what failed before is not sent again meanwhile."""
    throttled = asyncio.Event()

    async def script(visit: Visit) -> None:
        if visit.number == 2:
            body = b'{"error": {"message": "slow", "code": "rate_limit_exceeded"}}'
            await visit.send(answer(429, body, (b"Retry-After", b"30")))
            throttled.set()
            return
        if not in_the_pause:
            await throttled.wait()
        await visit.send(answer(503, b"{}", (b"Retry-After-Ms", b"500")))

    upstream.script = script
    running = await start({"up": section(upstream.url)})
    accept = ("Accept", "application/vnd.error-envelope+json")
    first = asyncio.create_task(call(running.port, "/up/v1/x", "GET", None, accept))
    budget = running.daemon.plane.runtimes["up"].retry_budget
    async with asyncio.timeout(20):
        while not (budget._repeated if in_the_pause else upstream.hits):
            await asyncio.sleep(0.005)
    assert (await call(running.port)).status == 429
    found = await first
    assert upstream.hits == 2
    if in_the_pause:
        assert (found.status, found.get("x-sidecar-decision")) == (429, "shed")
        assert 28 < found.json["retry_after"] < 32
        assert [one["code"] for one in found.json["raw"]["attempts"]] == ["503", "shed"]
    else:
        assert (found.status, found.get("x-sidecar-decision")) == (503, "forwarded")


async def test_who_leaves_between_two_attempts_had_its_slot(start, upstream) -> None:
    throttled = answer(
        429,
        b'{"error": {"message": "m", "code": "rate_limit_exceeded"}}',
        (b"Retry-After-Ms", b"50"),
    )
    upstream.script = in_turn(throttled, answer(503, b"{}", (b"Retry-After-Ms", b"1000")))
    running = await start({"up": section(upstream.url)})
    await call(running.port)
    caller = await Caller.connect(running.port)
    await caller.send(request())
    budget = running.daemon.plane.runtimes["up"].retry_budget
    async with asyncio.timeout(20):
        while budget._repeated < 1:
            await asyncio.sleep(0.005)
        await caller.closed()
        while running.daemon.plane.active:
            await asyncio.sleep(0.005)
    (limit,) = running.daemon.registry.gates("up").limits.values()
    assert not limit.gate.spare


async def test_under_a_budget(start, upstream) -> None:
    upstream.script = in_turn(BOOM)
    breaker = {"consecutive_failures": 0, "failure_ratio": 1, "minimum_calls": 1000}
    running = await start({"up": section(upstream.url, retry={"budget": 0.1}, breaker=breaker)})
    for n in range(50):
        await call(running.port, f"/up/v1/{n}")
    assert upstream.hits == 55


async def test_nothing_after_the_first_byte(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        event = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        await visit.send(head + b"Transfer-Encoding: chunked\r\n\r\n")
        await visit.send(b"%x\r\n%b\r\n" % (len(event), event))
        await asyncio.sleep(0.05)
        visit.reset()

    upstream.script = script
    running = await start({"up": section(upstream.url)})
    found = await call(running.port)
    assert (found.clean, upstream.hits) == (False, 1)
    assert b"hi" in found.body


async def test_an_error_in_the_place_of_the_first_word_of_a_stream(start, upstream) -> None:
    event = b'data: {"error": {"message": "boom", "type": "server_error"}}\n\n'
    stream = answer(200, event, kind=b"text/event-stream")
    good = answer(
        200,
        b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\ndata: [DONE]\n\n',
        kind=b"text/event-stream",
    )
    upstream.script = in_turn(stream, good)
    running = await start({"up": section(upstream.url)})
    found = await call(running.port, CHAT, "POST", chat(stream=True), JSON, KEY)
    assert (found.status, upstream.hits) == (200, 2)
    assert b"hi" in found.body
    assert b"boom" not in found.body


async def test_no_probe_is_repeated(start, upstream) -> None:
    upstream.script = in_turn(BOOM)
    breaker = {"consecutive_failures": 1, "open_for": "50ms", "jitter": 0}
    running = await start({"up": section(upstream.url, attempts=3, breaker=breaker)})
    await call(running.port)
    async with asyncio.timeout(20):
        while running.breaker("up/~v1/x").state != "half_open":
            await asyncio.sleep(0.005)
    before = upstream.hits
    assert (await call(running.port)).status == 503
    assert upstream.hits == before + 1


async def test_a_body_in_chunks_is_sent_again_whole(start, upstream) -> None:
    """The upstream answers before it has read it; the second attempt gets every byte."""
    payload = bytes(range(256)) * 64

    async def script(visit: Visit) -> None:
        if visit.number == 1:
            await visit.send(BOOM)
            visit.keep = False
            return
        await visit.read_body()
        await visit.send(OK)

    upstream.script = script
    running = await start({"up": section(upstream.url)})
    caller = await Caller.connect(running.port)
    head = b"PUT /up/v1/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    await caller.send(head + b"1000\r\n" + payload[:4096] + b"\r\n")
    await asyncio.sleep(0.05)
    await caller.send(b"3000\r\n" + payload[4096:] + b"\r\n0\r\n\r\n")
    found = await caller.answer()
    assert (found.status, upstream.hits) == (200, 2)
    assert upstream.requests[1].body == payload


async def test_a_body_too_large_to_keep_is_sent_once(start, upstream) -> None:
    upstream.script = in_turn(BOOM, OK)
    running = await start({"up": section(upstream.url)})
    found = await call(running.port, "/up/v1/x", "PUT", bytes(1024 * 1024 + 1))
    assert (found.status, upstream.hits) == (503, 1)


async def test_a_caller_that_leaves_between_two_attempts(start, upstream, monkeypatch) -> None:
    monkeypatch.setattr(retries, "BASE", 1000.0)
    monkeypatch.setattr(retries, "LONGEST", 1000.0)
    upstream.script = in_turn(BOOM, OK)
    running = await start({"up": section(upstream.url)})
    caller = await Caller.connect(running.port)
    await caller.send(request())
    async with asyncio.timeout(20):
        while not upstream.hits or running.daemon.plane.runtimes["up"].retry_budget._repeated < 1:
            await asyncio.sleep(0.005)
    await caller.closed()
    async with asyncio.timeout(20):
        while running.daemon.plane.active:
            await asyncio.sleep(0.005)
    assert upstream.hits == 1
    shot = running.breaker("up/~v1/x")
    assert (shot.in_flight, shot.window.neutral) == (0, 1)
    assert running.daemon.plane.runtimes["up"].bulkhead.held == 0


async def test_a_reload_turns_it_on(start, upstream) -> None:
    upstream.script = in_turn(BOOM, BOOM, OK)
    running = await start({"up": section(upstream.url, attempts=0)})
    assert (await call(running.port)).status == 503
    file = running.daemon._options.config
    file.write_text(file.read_text().replace("attempts: 0", "attempts: 1"))
    await running.daemon.reload()
    assert (await call(running.port)).status == 200
    assert json.loads((await call(running.admin_port, "/status")).body)["network"] == "up"


async def test_every_request_is_counted_and_only_the_daemons_own_time_is_its_overhead(
    start, upstream
) -> None:
    async def script(visit: Visit) -> None:
        await asyncio.sleep(0.05)
        await visit.send(BOOM if visit.number < 3 else OK)

    upstream.script = script
    running = await start({"up": section(upstream.url)})
    await call(running.port)
    (fact,) = running.calls
    assert (fact.attempts, upstream.hits) == (3, 3)
    assert running.daemon.figures.named["up"].attempts == 3
    assert fact.overhead is not None
    assert fact.overhead < 0.05, "what the upstream took is not the daemon's"
