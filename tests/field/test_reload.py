"""Area config, F124: a key that changed changes what the daemon does, from the next call on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
import yaml

from sidecar.config import schema
from sidecar.config.load import load
from sidecar.daemon import restart_needed
from tests.proxy.callers import Caller, call, chat, request
from tests.proxy.upstreams import Upstream, Visit, answer, says

from .scene import (
    CHAT,
    JSON,
    OK,
    STREAM_HEAD,
    admin,
    ask,
    base,
    chunk,
    delta,
    error,
    hang,
    open_stream,
    trip,
    until,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"

# --- F124: every key, one at a time -----------------------------------------------------------

Check = Callable[[Any, Upstream], Awaitable[object]]


class Change(msgspec.Struct):
    """An edit of one key, and what it must change in the daemon's behaviour."""

    key: str
    value: object
    see: Check
    before: object
    after: object


async def _answer_to(running: Any, upstream: Upstream, raw: bytes, n: int = 0) -> Any:
    upstream.script = says(raw)
    return await ask(running, n=n)


async def _envelope_is_there(running: Any, upstream: Upstream) -> object:
    found = await _answer_to(running, upstream, error(400))
    return found.get("x-error-envelope") is not None


async def _status_of_a_typo(running: Any, upstream: Upstream) -> object:
    return (await _answer_to(running, upstream, error(503, "model_not_found"))).status


async def _code_of_a_hang(running: Any, upstream: Upstream) -> object:
    upstream.script = hang
    caller = await Caller.connect(running.port)
    await caller.send(request(CHAT, "POST", chat(), JSON))
    return await _within(caller)


async def _within(caller: Caller) -> object:
    """The envelope's code of an answer; None if there is none in half a second."""
    try:
        async with asyncio.timeout(0.5):
            found = await caller.answer()
    except TimeoutError:
        return None
    finally:
        caller.close()
    for name in ("first_byte", "first_content", "idle", "total"):
        if f"{name}_timeout".encode() in found.body:
            return f"{name}_timeout"
    return None


def _streaming(*parts: bytes) -> Any:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD, *map(chunk, parts))
        await visit.closed()
        visit.keep = False

    return script


async def _code_of_a_ping(running: Any, upstream: Upstream) -> object:
    upstream.script = _streaming(b": ping\n\n")
    return await _within(await open_stream(running.port))


async def _code_of_a_silence(running: Any, upstream: Upstream) -> object:
    upstream.script = _streaming(delta("a"))
    return await _within(await open_stream(running.port))


async def _held(running: Any, upstream: Upstream) -> object:
    """Is the head of an answer held while its body stalls?"""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\na"
        )
        await visit.closed()
        visit.keep = False

    upstream.script = script
    caller = await Caller.connect(running.port)
    await caller.send(request("/up/x"))
    try:
        async with asyncio.timeout(0.5):
            await caller.head()
    except TimeoutError:
        return True
    finally:
        caller.close()
    return False


async def _verdict_of_a_caller_who_leaves(running: Any, upstream: Upstream) -> object:
    upstream.script = hang
    hits, calls = upstream.hits, len(running.calls)
    caller = await Caller.connect(running.port)
    await caller.send(request(CHAT, "POST", chat(), JSON))
    await until(lambda: upstream.hits > hits)
    await asyncio.sleep(0.1)
    caller.close()
    await until(lambda: len(running.calls) > calls)
    return running.calls[-1].verdict


async def _cuts_a_stalled_caller(running: Any, upstream: Upstream) -> object:
    caller = await Caller.connect(running.port)
    await caller.send(request("/up/x", "POST", None, ("Content-Length", "100"), JSON))
    try:
        async with asyncio.timeout(0.5):
            await caller.reader.read()
    except TimeoutError:
        return False
    finally:
        caller.close()
    return True


async def _refused_after_two(running: Any, upstream: Upstream) -> object:
    found = [await _answer_to(running, upstream, error(500), n) for n in range(3)]
    await admin(running, "/breakers/up%2Fgpt-x/reset", "POST")
    return found[-1].get("x-sidecar-decision")


async def _advice_of_a_refusal(running: Any, upstream: Upstream) -> object:
    await trip(running, upstream)
    found = await ask(running)
    await admin(running, "/breakers/up%2Fgpt-x/reset", "POST")
    return found.get("x-should-retry")


async def _advice_of_a_long_wait(running: Any, upstream: Upstream) -> object:
    limited = answer(429, b"{}", (b"Retry-After", b"5"))
    return (await _answer_to(running, upstream, limited)).get("x-should-retry")


async def _open_time_after_a_hint(running: Any, upstream: Upstream) -> object:
    waits = answer(503, b"{}", (b"Retry-After", b"500"))
    for n in range(5):
        await _answer_to(running, upstream, waits, n)
    shot = running.breaker("up/gpt-x")
    await admin(running, "/breakers/up%2Fgpt-x/reset", "POST")
    return round(shot.half_open_at - shot.opened_at)


async def _status_of_a_large_request(running: Any, upstream: Upstream) -> object:
    upstream.script = says(OK)
    return (await call(running.port, CHAT, "POST", chat(pad="x" * 5000), JSON)).status


async def _model_behind_two_kilobytes(running: Any, upstream: Upstream) -> object:
    upstream.script = says(OK)
    body = b'{"messages": "%b", "model": "late"}' % (b"x" * 2000)
    found = await call(running.port, CHAT, "POST", body, JSON)
    return found.get("x-sidecar-breaker").partition(";")[0]


async def _code_behind_two_kilobytes(running: Any, upstream: Upstream) -> object:
    raw = answer(400, b'{"pad": "%b", "error": {"code": "late", "message": "m"}}' % (b"x" * 2000))
    return (await _answer_to(running, upstream, raw)).envelope["code"] == "late"


async def _code_of_a_burst(running: Any, upstream: Upstream) -> object:
    return (await _answer_to(running, upstream, error(429, "quota"))).envelope["code"]


async def _second_call_when_nothing_remains(running: Any, upstream: Upstream) -> object:
    spent = [(b"x-ratelimit-remaining-requests", b"0"), (b"x-ratelimit-reset-requests", b"60s")]
    await _answer_to(running, upstream, answer(200, b'{"choices":[]}', *spent))
    return (await ask(running)).get("x-sidecar-decision")


async def _after_one_more(running: Any, upstream: Upstream, raw: bytes) -> object:
    await admin(running, "/breakers/up/reset", "POST")
    await _answer_to(running, upstream, raw)
    upstream.script = says(OK)
    return (await ask(running)).get("x-sidecar-decision")


async def _call_before_a_short_wait_is_over(running: Any, upstream: Upstream) -> object:
    limited = answer(429, b'{"error":{"code":"slow"}}', (b"Retry-After", b"0.2"))
    return await _after_one_more(running, upstream, limited)


async def _call_without_a_budget(running: Any, upstream: Upstream) -> object:
    return await _after_one_more(running, upstream, error(429, "insufficient_quota"))


async def _shape_of_a_refusal(running: Any, upstream: Upstream) -> object:
    await trip(running, upstream)
    found = await ask(running)
    await admin(running, "/breakers/up%2Fgpt-x/reset", "POST")
    return found.json.get("type")


async def _target_at_the_upstream(running: Any, upstream: Upstream) -> object:
    upstream.script = says(OK)
    await call(running.port, "/up/x")
    return upstream.requests[-1].target


async def _header_at_the_upstream(running: Any, upstream: Upstream) -> object:
    upstream.script = says(OK)
    await call(running.port, "/up/x")
    return upstream.requests[-1].get(b"x-key")


async def _connections_of_two_calls(running: Any, upstream: Upstream) -> object:
    upstream.script = says(OK)
    before = upstream.connections
    await call(running.port, "/up/x")
    await asyncio.sleep(0.15)
    await call(running.port, "/up/x")
    return upstream.connections - before


async def _key_of_a_call(running: Any, upstream: Upstream) -> object:
    return (await _answer_to(running, upstream, OK)).get("x-sidecar-breaker").partition(";")[0]


async def _status_for_a_name(running: Any, upstream: Upstream) -> object:
    upstream.script = says(OK)
    return (await call(running.port, "/up/x", host="new.test")).status


async def _status_of_a_reset(running: Any, _upstream: Upstream) -> object:
    return (await admin(running, "/breakers/up/reset", "POST")).status


async def _status_of_a_permit(running: Any, _upstream: Upstream) -> object:
    return (await admin(running, "/v1/dependencies/db/permit", "POST")).status


async def _level(_running: Any, _upstream: Upstream) -> object:
    return logging.getLogger("sidecar").level


async def _drain_time(running: Any, _upstream: Upstream) -> object:
    return (running.daemon.config.drain.delay, running.daemon.config.drain.timeout)


async def _set_variables(running: Any, _upstream: Upstream) -> object:
    return (await admin(running, "/config")).json["providers"]["up"]["env"]


async def _connect_limit(running: Any, _upstream: Upstream) -> object:
    return running.daemon.plane.runtimes["up"].upstream._timeout.connect


RULE = {"when": {"status": 429}, "class": "rate_limit", "code": "burst"}
UP = "providers.up."
CHANGES = [
    Change(UP + "mode", "off", _envelope_is_there, before=True, after=False),
    Change(UP + "scope", "provider", _key_of_a_call, "up/gpt-x", "up"),
    Change(UP + "on_reclassified", "annotate", _status_of_a_typo, 404, 503),
    Change(UP + "timeouts.first_byte", "50ms", _code_of_a_hang, None, "first_byte_timeout"),
    Change(UP + "timeouts.first_content", "50ms", _code_of_a_ping, None, "first_content_timeout"),
    Change(UP + "timeouts.idle", "50ms", _code_of_a_silence, None, "idle_timeout"),
    Change(UP + "timeouts.total", "50ms", _code_of_a_silence, None, "total_timeout"),
    Change(UP + "timeouts.hold", "30s", _held, before=False, after=True),
    Change(UP + "timeouts.abandoned", "50ms", _verdict_of_a_caller_who_leaves, "neutral", "failure"),
    Change(UP + "timeouts.client", "50ms", _cuts_a_stalled_caller, before=False, after=True),
    Change(UP + "timeouts.keep_alive", "50ms", _connections_of_two_calls, 1, 2),
    Change(UP + "timeouts.connect", "2s", _connect_limit, 1, 2),
    Change(UP + "breaker.consecutive_failures", 2, _refused_after_two, "forwarded", "breaker_open"),
    Change(UP + "breaker.fail_fast", False, _advice_of_a_refusal, "false", None),
    Change(UP + "shedding.sdk_wait_max", "1s", _advice_of_a_long_wait, None, "false"),
    Change(UP + "shedding.retry_after_max", "100s", _open_time_after_a_hint, 500, 100),
    Change(UP + "shedding.preempt", True, _second_call_when_nothing_remains, "forwarded", "shed"),
    Change(UP + "shedding.max_wait", 0, _call_before_a_short_wait_is_over, "forwarded", "shed"),
    Change(UP + "shedding.quota.mode", "off", _call_without_a_budget, "quota", "forwarded"),
    Change(UP + "limits.request_body", 4000, _status_of_a_large_request, 200, 413),
    Change(UP + "limits.classify_body", "1KiB", _code_behind_two_kilobytes, before=True, after=False),
    Change(
        UP + "limits.model_scan", "1KiB", _model_behind_two_kilobytes, "up/late",
        "up/~v1/chat",
    ),
    Change(UP + "rules", [RULE], _code_of_a_burst, "quota", "burst"),
    Change(UP + "dialect", "anthropic", _shape_of_a_refusal, None, "error"),
    Change(UP + "upstream", "{url}/v2", _target_at_the_upstream, b"/x", b"/v2/x"),
    Change(UP + "set_headers", {"x-key": {"value": "k"}}, _header_at_the_upstream, None, b"k"),
    Change(UP + "env", {"UP_URL": ""}, _set_variables, {}, {"UP_URL": ""}),
    Change("defaults.timeouts.total", "50ms", _code_of_a_silence, None, "total_timeout"),
    Change("allowed_hosts", ["new.test"], _status_for_a_name, 403, 200),
    Change("admin.mutations", False, _status_of_a_reset, 200, 403),
    Change("dependencies", {"db": {"source": "database"}}, _status_of_a_permit, 404, 200),
    Change("log.level", "error", _level, logging.INFO, logging.ERROR),
    Change("drain.timeout", "7s", _drain_time, (0.0, 20.0), (0.0, 7.0)),
    Change("drain.delay", "1s", _drain_time, (0.0, 20.0), (1.0, 20.0)),
]  # fmt: skip

ELSEWHERE = {
    "breaker.": "each threshold has its effect in tests/breaker/test_reload.py",
    "shedding.": "each of them has its effect in tests/breaker/test_gates.py",
    "tls": "certificates under a name that stays: tests/proxy/test_lifecycle.py",
    "proxy": "an egress proxy makes other connections, as `upstream` does",
    "dependencies.": "the keys of one have their effects in tests/dependencies",
    "sign.": "it begins and ends with a reload in tests/proxy/test_signing.py",
    "faults.": "that a reload changes what is injected is tested in tests/faults",
    "limits.in_flight": "places are made by a reload in tests/proxy/test_bulkhead.py",
    "shedding.max_": "the bounds of waiting are those of tests/proxy/test_bulkhead.py",
    "retry.": "each key has its effect in tests/proxy/test_retries.py",
    "admin.token_file": "what the file holds is tested in tests/admin",
}
AFTER_A_RESTART = {"listen", "admin.listen", "probe.listen", "log.format", "state_file"}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.key)
async def test_f124_a_changed_key_changes_behaviour(start, upstream, change, log) -> None:
    running = await start({"up": base(upstream.url, timeouts={"hold": "50ms"})})
    file = running.daemon._options.config
    assert await change.see(running, upstream) == change.before
    content = yaml.safe_load(file.read_text())
    *sections, key = change.key.split(".")
    section = content
    for name in sections:
        section = section.setdefault(name, {})
    value = change.value
    section[key] = value.format(url=upstream.url) if isinstance(value, str) else value
    file.write_text(yaml.safe_dump(content))
    result = await running.daemon.reload()
    assert (result.problems, result.restart_needed) == ((), ())
    assert result.generation == 2
    assert await change.see(running, upstream) == change.after
    logging.getLogger("sidecar").setLevel(logging.INFO)


def _keys(section: type, path: str = "") -> set[str]:
    found = set()
    for name, kind in get_type_hints(section).items():
        if isinstance(kind, type) and issubclass(kind, schema.Section):
            found |= _keys(kind, f"{path}{name}.")
        else:
            found.add(path + name)
    return found


def test_f124_no_key_is_left_out() -> None:
    tried = {change.key for change in CHANGES}
    known = _keys(schema.Root) - {"providers"} | {UP + key for key in _keys(schema.ProviderSection)}
    for key in known - tried - AFTER_A_RESTART:
        if key.startswith("defaults."):
            assert UP + key.removeprefix("defaults.") in known
            continue
        name = key.removeprefix(UP)
        assert any(name.startswith(known) for known in ELSEWHERE), key


async def test_f124_what_needs_a_restart_is_named(start, upstream, log) -> None:
    running = await start({"up": base(upstream.url)})
    file = running.daemon._options.config
    content = yaml.safe_load(file.read_text())
    content["listen"] = "127.0.0.1:17600"
    content["admin"]["listen"] = "127.0.0.1:17601"
    content["probe"] = {"listen": "127.0.0.1:17602"}
    content["log"] = {"format": "text"}
    content["state_file"] = "state.json"
    file.write_text(yaml.safe_dump(content))
    found = await admin(running, "/reload", "POST")
    assert found.status == 200
    assert set(found.json["restart_needed"]) == AFTER_A_RESTART
    (line,) = log.lines("config.reloaded")
    assert set(line["restart_needed"]) == AFTER_A_RESTART
    assert (await call(running.port)).status == 200


def test_f124_the_reference_names_what_needs_a_restart(tmp_path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("providers: {up: {upstream: 'http://127.0.0.1:1'}}\n")
    config = load(file, environ={})
    assert restart_needed(config, config) == ()
    lines = [
        line for line in (DOCS / "configuration.md").read_text().splitlines() if "restart" in line
    ]
    text = "\n".join(lines)
    for key in AFTER_A_RESTART:
        assert f"`{key}`" in text
