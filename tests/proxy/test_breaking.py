"""What a call does to its breaker, and what a breaker does to a call."""

from __future__ import annotations

import asyncio
import json

import pytest

from .callers import Caller, call, chat, request
from .upstreams import Visit, answer, says

CHAT = "/up/v1/chat/completions"
OK = answer(200, b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}')


def failing(status: int = 500, message: str = "boom") -> bytes:
    return answer(status, json.dumps({"error": {"message": message}}).encode())


async def ask(running, model: str = "gpt-x", n: int = 0):
    return await call(
        running.port, CHAT, "POST", chat(model, n=n), ("Content-Type", "application/json")
    )


async def test_b_a_misspelt_model_as_503_never_trips(start, upstream) -> None:
    wrong = answer(503, b'{"error":{"code":"model_not_found","message":"no model gpt-y"}}')

    async def script(visit: Visit) -> None:
        body = await visit.read_body()
        await visit.send(wrong if b"gpt-y" in body else OK)

    upstream.script = script
    running = await start({"up": upstream.url})
    for n in range(50):
        found = await ask(running, "gpt-y", n)
        assert found.status == 404
        assert found.get("x-sidecar-upstream-status") == "503"
        assert found.get("x-should-retry") == "false"
        assert found.body.endswith(b'"no model gpt-y"}}')
    assert (await ask(running, "gpt-x")).status == 200
    assert running.breaker("up/gpt-y").state == "closed"
    assert upstream.hits == 51


async def test_f006_c_a_spent_budget(start, upstream) -> None:
    body = b'{"error":{"code":"insufficient_quota","type":"insufficient_quota","message":"m"}}'
    upstream.script = says(answer(429, body))
    running = await start({"up": upstream.url})
    found = await ask(running)
    assert (found.status, found.envelope["class"]) == (402, "permanent")
    assert (found.get("x-should-retry"), found.get("retry-after")) == ("false", None)


async def test_d_opens_at_exactly_five_distinct_failures(start, upstream) -> None:
    upstream.script = says(failing())
    running = await start({"up": upstream.url})
    for n in range(5):
        assert (await ask(running, n=n)).status == 500
    found = await ask(running, n=5)
    assert (found.status, found.get("x-sidecar-decision")) == (503, "breaker_open")
    assert upstream.hits == 5
    assert found.get("x-should-retry") == "false"
    assert found.get("cache-control") == "no-store"
    assert int(found.get("retry-after") or 0) >= 30
    assert "5" in found.envelope["message"]
    assert found.get("x-sidecar-breaker") == "up/gpt-x; state=open; mode=enforce"
    for name in ("etag", "last-modified", "age"):
        assert found.get(name) is None


async def test_one_poisoned_request_darkens_nobody(start, upstream) -> None:
    upstream.script = says(failing())
    running = await start({"up": upstream.url})
    for _ in range(9):
        await ask(running)
    assert upstream.hits == 9
    assert running.breaker("up/gpt-x").deduplicated == 8


async def test_refused_connections_open_the_providers_own_breaker(start, upstream) -> None:
    await upstream.stop()
    running = await start({"up": upstream.url})
    for _ in range(5):
        found = await ask(running)
        assert (found.status, found.envelope["code"]) == (502, "connection_refused")
        assert found.envelope["source"] == "http"
    found = await ask(running, "another")
    assert found.get("x-sidecar-decision") == "breaker_open"
    assert found.get("x-sidecar-breaker").startswith("up; state=open")


async def test_a_reset_after_sending_may_have_been_executed(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        visit.reset()

    upstream.script = script
    running = await start({"up": upstream.url})
    found = await call(running.port, "/up/v1/files", "POST", b"x")
    assert (found.status, found.envelope["code"]) == (502, "connection_reset")
    assert found.get("x-should-retry") == "false"
    assert "may have been executed" in found.envelope["message"]
    assert upstream.hits == 1
    found = await call(running.port, "/up/v1/files", "POST", b"x", ("Idempotency-Key", "k"))
    assert found.get("x-should-retry") is None


async def test_f107_f030_a_hanging_upstream(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.closed()

    upstream.script = script
    running = await start({"up": {"upstream": upstream.url, "timeouts": {"first_byte": "50ms"}}})
    for n in range(5):
        found = await ask(running, n=n)
        assert (found.status, found.envelope["code"]) == (504, "first_byte_timeout")
    assert (await ask(running)).get("x-sidecar-decision") == "breaker_open"


async def test_f036_one_probe_however_many_wait(start, upstream) -> None:
    upstream.script = says(failing())
    running = await start(
        {"up": {"upstream": upstream.url, "dialect": "openai", "breaker": {"open_for": "100ms"}}}
    )
    for n in range(5):
        await ask(running, n=n)
    gate = asyncio.Event()

    async def hang(visit: Visit) -> None:
        await gate.wait()
        await visit.send(OK)

    upstream.script = hang
    await asyncio.sleep(0.15)
    waiting = [asyncio.create_task(ask(running, n=n)) for n in range(50)]
    while sum(task.done() for task in waiting) < 49:
        await asyncio.sleep(0.01)
    assert upstream.hits == 6
    gate.set()
    found = [await task for task in waiting]
    assert sorted(one.status for one in found) == [200] + [503] * 49
    assert (await ask(running)).status == 200
    assert running.breaker("up/gpt-x").state == "closed"


async def test_f033_a_cancelled_probe_frees_its_place(start, upstream) -> None:
    upstream.script = says(failing())
    running = await start(
        {"up": {"upstream": upstream.url, "dialect": "openai", "breaker": {"open_for": "50ms"}}}
    )
    for n in range(5):
        await ask(running, n=n)

    async def slow(visit: Visit) -> None:
        await visit.closed()

    upstream.script = slow
    await asyncio.sleep(0.1)
    caller = await Caller.connect(running.port)
    await caller.send(request(CHAT, "POST", chat()))
    while upstream.hits < 6:
        await asyncio.sleep(0.01)
    caller.close()
    upstream.script = says(OK)
    while running.breaker("up/gpt-x").probes_in_flight:
        await asyncio.sleep(0.01)
    assert (await ask(running)).status == 200
    assert upstream.hits == 7


async def test_observe_computes_and_refuses_nothing(start, upstream) -> None:
    upstream.script = says(failing())
    running = await start({"up": {"upstream": upstream.url, "mode": "observe"}})
    for n in range(8):
        found = await ask(running, n=n)
        assert found.status == 500
    assert found.get("x-sidecar-breaker") == "up/gpt-x; state=open; mode=observe"
    assert running.calls[-1].would_refuse
    assert upstream.hits == 8


async def test_off_touches_nothing(start, upstream) -> None:
    upstream.script = says(
        answer(503, b'{"error":{"code":"model_not_found"}}', (b"Retry-After", b"9"))
    )
    running = await start({"up": {"upstream": upstream.url, "dialect": "openai", "mode": "off"}})
    found = await ask(running)
    assert (found.status, found.get("retry-after")) == (503, "9")
    assert found.get("x-error-envelope") is None


async def test_annotate_keeps_the_status(start, upstream) -> None:
    upstream.script = says(answer(503, b'{"error":{"code":"model_not_found","message":"m"}}'))
    running = await start(
        {"up": {"upstream": upstream.url, "dialect": "openai", "on_reclassified": "annotate"}}
    )
    found = await ask(running)
    assert found.status == 503
    assert found.envelope["code"] == "model_not_found"


async def test_f014_an_error_in_a_200(start, upstream) -> None:
    body = b'{"error":{"code":502,"message":"Provider returned error"}}'
    upstream.script = says(answer(200, body))
    running = await start({"up": {"upstream": upstream.url, "dialect": "openrouter"}})
    found = await ask(running)
    assert (found.status, found.body) == (503, body)
    assert found.get("x-sidecar-upstream-status") == "200"
    assert running.breaker("up/gpt-x").window.failure == 1


async def test_the_envelope_as_the_body(start, upstream) -> None:
    upstream.script = says(failing(503))
    running = await start({"up": upstream.url})
    found = await call(
        running.port,
        CHAT,
        "POST",
        chat(),
        ("Accept", "application/vnd.error-envelope+json"),
        ("X-Correlation-Id", "abc"),
    )
    assert found.get("content-type") == "application/vnd.error-envelope+json"
    assert found.json["class"] == "transient"
    assert found.json["correlation_id"] == "abc"
    assert found.json["raw"]["status"] == 503


@pytest.mark.parametrize(
    ("path", "method", "body", "key"),
    [
        ("/v1/embeddings", "POST", chat("emb"), "up/emb"),
        ("/v1/files", "POST", b"--x", "up/~v1/files"),
        ("/mcp", "POST", b"{}", "up/~mcp"),
        ("/v1/models", "GET", None, "up/~v1/models"),
        ("/x", "DELETE", None, "up/~x"),
        ("/jobs/12345/runs", "GET", None, "up/~jobs/runs"),
    ],
)
async def test_f040_no_route_is_exempt(start, upstream, path, method, body, key) -> None:
    upstream.script = says(failing())
    running = await start({"up": {"upstream": upstream.url, "breaker": {"repeat_window": 0}}})
    for _ in range(5):
        await call(running.port, "/up" + path, method, body)
    assert running.breaker(key).state == "open"


@pytest.mark.parametrize(
    ("model", "key", "mark"),
    [
        ("~x", "up/%7Ex", "up/%257Ex"),
        ("%7Ex", "up/%257Ex", "up/%25257Ex"),
        ("~v1/chat/completions", "up/%7Ev1/chat/completions", "up/%257Ev1/chat/completions"),
        ("a~b%", "up/a~b%", "up/a~b%25"),
    ],
)
async def test_no_model_shares_the_key_of_a_route(start, upstream, model, key, mark) -> None:
    running = await start({"up": upstream.url})
    found = await call(running.port, CHAT, "POST", chat(model))
    assert found.get("x-sidecar-breaker") == f"{mark}; state=closed; mode=enforce"
    assert running.calls[-1].model == model
    assert running.breaker(key).window.success == 1
    assert running.breaker(f"up/{model}") is None or key == f"up/{model}"


async def test_the_model_may_stand_last_in_a_long_body(start, upstream) -> None:
    running = await start({"up": upstream.url})
    body = json.dumps({"messages": [{"content": "x" * 300_000, "model": "no"}], "model": "late"})
    caller = await Caller.connect(running.port)
    head = request(CHAT, "POST", None, ("Content-Length", str(len(body))))
    await caller.send(head)
    for at in range(0, len(body), 50_000):
        await caller.send(body[at : at + 50_000].encode())
        await asyncio.sleep(0)
    await caller.answer()
    caller.close()
    assert running.calls[-1].model == "late"
    assert upstream.requests[0].body == body.encode()


async def test_f022_an_error_body_that_never_ends(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        await visit.closed()

    upstream.script = script
    running = await start({"up": {"upstream": upstream.url, "timeouts": {"hold": "50ms"}}})
    caller = await Caller.connect(running.port)
    await caller.send(request())
    line, _headers, _ = await caller.head()
    assert b" 500 " in line
    assert running.breaker("up/~v1/x").window.failure == 1
    caller.close()
    while upstream.open_connections:
        await asyncio.sleep(0.01)


async def test_f076_a_post_is_sent_once(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        visit.keep = False

    upstream.script = script
    running = await start({"up": upstream.url})
    found = await call(running.port, "/up/x", "POST", b"{}")
    assert (found.status, upstream.hits) == (502, 1)


async def test_a_stale_connection_is_nobodys_failure(start, upstream) -> None:
    running = await start({"up": upstream.url})
    await call(running.port)

    async def die(visit: Visit) -> None:
        await visit.read_body()
        if visit.number == 2:
            visit.reset()
        else:
            await visit.send(answer())

    upstream.script = die
    found = await call(running.port, "/up/x", "POST", b"{}")
    assert found.status == 502
    assert found.envelope["code"] == "connection_closed"
    assert found.get("x-sidecar-verdict") == "neutral"
    assert running.breaker("up").window.failure == 0


async def test_a_get_on_a_stale_connection_is_sent_once_more(start, upstream) -> None:
    running = await start({"up": upstream.url})
    await call(running.port)

    async def die(visit: Visit) -> None:
        if visit.number == 2:
            visit.reset()
        else:
            await visit.send(answer())

    upstream.script = die
    found = await call(running.port)
    assert (found.status, upstream.hits) == (200, 3)


async def test_f089_f078_an_early_answer_stops_the_upload(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        if visit.request.line.startswith(b"GET"):
            await visit.send(answer(200, visit.request.target))
            return
        await visit.reader.read(1000)
        await visit.send(answer(413, b'{"error":"too large"}'))
        # What the case tells: the upstream closes with a reset a moment later.
        await asyncio.sleep(0.2)
        visit.reset()

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    size = 20 * 2**20
    await caller.send(
        request("/up/x", "POST", None, ("Content-Length", str(size)), ("Content-Type", "image/x"))
    )

    async def upload() -> None:
        for _ in range(20):
            await caller.send(b"a" * 2**20)

    sending = asyncio.create_task(upload())
    found = await caller.answer()
    assert (found.status, found.body) == (413, b'{"error":"too large"}')
    await sending
    for n in range(20):
        await caller.send(request(f"/up/{n}"))
        assert (await caller.answer()).body == b"/%d" % n
    caller.close()
    assert running.breaker("up/~x").window.failure == 0


async def test_f099_a_caller_that_leaves_during_an_upload(start, upstream) -> None:
    bodies = []

    async def script(visit: Visit) -> None:
        data = b""
        while part := await visit.reader.read(65536):
            data += part
        bodies.append(data)
        visit.keep = False

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(
        request(
            "/up/x", "POST", None, ("Transfer-Encoding", "chunked"), ("Content-Type", "image/x")
        ),
        b"5\r\nhello\r\n",
    )
    while not upstream.hits:
        await asyncio.sleep(0.01)
    caller.close()
    while not bodies:
        await asyncio.sleep(0.01)
    assert b"0\r\n\r\n" not in bodies[0]
    while not running.calls:
        await asyncio.sleep(0.01)
    assert running.calls[0].verdict == "neutral"


async def test_hang_abandoned(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.closed()

    upstream.script = script
    running = await start({"up": {"upstream": upstream.url, "timeouts": {"abandoned": "50ms"}}})
    caller = await Caller.connect(running.port)
    await caller.send(request())
    await asyncio.sleep(0.15)
    caller.close()
    while not running.calls:
        await asyncio.sleep(0.01)
    assert running.calls[0].envelope.code == "hang_abandoned"
    assert running.calls[0].verdict == "failure"


async def test_f034_every_exit_frees_the_probe(start, upstream) -> None:
    """After each way a probe can end, the next caller reaches the upstream again."""

    async def cut(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        visit.reset()

    async def reset(visit: Visit) -> None:
        visit.reset()

    async def hang(visit: Visit) -> None:
        await visit.closed()

    exits = [
        says(answer(status, b"{}")) for status in (200, 204, 301, 404, 418, 429, 451, 500, 600, 999)
    ]
    exits += [
        cut,
        reset,
        hang,
        says(b"garbage\r\n\r\n"),
        says(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 99_999),
    ]
    section = {
        "upstream": upstream.url,
        "dialect": "openai",
        "breaker": {"open_for": "20ms", "open_max": "20ms", "jitter": 0, "repeat_window": 0},
        "timeouts": {"first_byte": "50ms"},
    }
    running = await start({"up": section})
    for script in exits:
        upstream.script = says(failing())
        while running.breaker("up/gpt-x") is None or running.breaker("up/gpt-x").state != "open":
            await ask(running)
        await asyncio.sleep(0.05)
        upstream.script = script
        await ask(running)
        await asyncio.sleep(0.05)
        hits = upstream.hits
        upstream.script = says(OK)
        found = await ask(running)
        assert upstream.hits == hits + 1, (script, found.raw)
        assert running.breaker("up/gpt-x").probes_in_flight == 0


async def test_an_error_that_drips_is_read_as_far_as_it_came(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(
            b"HTTP/1.1 503 X\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n"
            b'{"error":{"code":"model_not_found","message":"no model gpt-y",'
        )
        await visit.closed()

    upstream.script = script
    section = {"upstream": upstream.url, "dialect": "openai", "timeouts": {"hold": "50ms"}}
    running = await start({"up": section})
    caller = await Caller.connect(running.port)
    await caller.send(request(CHAT, "POST", chat("gpt-y")))
    line, _, _ = await caller.head()
    assert b" 404 " in line
    assert running.breaker("up/gpt-y").window.failure == 0


async def test_a_fault_in_a_dialect_costs_no_call(start, upstream, monkeypatch) -> None:
    from sidecar.envelope.dialects.openai import OpenAI

    def broken(*_: object) -> bool:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(OpenAI, "may_hold_error", broken)
    upstream.script = says(OK)
    running = await start({"up": upstream.url})
    found = await ask(running)
    assert (found.status, found.body) == (200, OK.partition(b"\r\n\r\n")[2])
    assert running.calls[-1].verdict == "neutral"
    assert running.calls[-1].ending == "answered"
    assert [fault.where for fault in running.faults] == ["classify"]
    assert "RuntimeError" in str(running.faults.pop().error)


async def test_a_header_of_the_providers_own_says_whether_to_repeat(start, upstream) -> None:
    """Stripe's clients read no other; what we say differs from what the upstream said."""
    body = b'{"error":{"type":"card_error","code":"card_declined","message":"m"}}'
    upstream.script = says(answer(500, body, (b"Stripe-Should-Retry", b"true")))
    running = await start({"up": {"upstream": upstream.url, "dialect": "stripe"}})
    found = await call(running.port, "/up/v1/charges", "POST", b"a=1")
    assert (found.status, found.get("stripe-should-retry")) == (500, "true")
    upstream.script = says(answer(402, body, (b"Stripe-Should-Retry", b"true")))
    found = await call(running.port, "/up/v1/charges", "POST", b"a=2")
    assert [value for name, value in found.headers if b"should-retry" in name.lower()] == [
        b"false",
        b"false",
    ]
    await upstream.stop()
    found = await call(running.port, "/up/v1/charges", "POST", b"a=3")
    assert (found.status, found.get("stripe-should-retry")) == (502, None)


async def test_a_client_that_reads_errors_in_a_success_gets_its_success(start, upstream) -> None:
    body = b'{"ok":false,"error":"invalid_auth"}'
    upstream.script = says(answer(200, body))
    running = await start({"up": {"upstream": upstream.url, "dialect": "slack"}})
    found = await call(running.port, "/up/api/chat.postMessage", "POST", b"{}")
    assert (found.status, found.body) == (200, body)
    assert found.envelope["class"] == "authentication"
    assert found.get("x-should-retry") == "false"
