"""Area observability: metrics. Series that are there from the start, true, and bounded."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from sidecar import daemon as daemon_module
from sidecar.breaker.breaker import CAUSES, TABLE, Event
from sidecar.telemetry import instruments
from sidecar.telemetry.readings import MOVES
from tests.proxy.callers import Caller, call, chat, request
from tests.proxy.upstreams import answer, says
from tests.telemetry.scrape import Series, parse, total, value

from .scene import DONE, JSON, STREAM_HEAD, admin, ask, base, chunk, delta, error, trip, until

P = "breaker_sidecar_"


async def scrape(running: Any) -> Series:
    found = await admin(running, "/metrics")
    assert found.status == 200
    assert found.get("content-type") == "text/plain; version=0.0.4; charset=utf-8"
    return parse(found.body.decode())


async def test_f164_every_series_is_there_before_the_first_call(start, upstream) -> None:
    running = await start(
        {"up": base(upstream.url), "other-one": base(upstream.url)},
        dependencies={"db": {"source": "database", "vendor": "postgresql"}},
    )
    found = await scrape(running)
    for name in ("up", "other-one", "db"):
        assert value(found, P + "breaker_state", provider=name, model="", state="closed") == 1
        assert value(found, P + "breaker_state", provider=name, model="", state="open") == 0
        for verdict in instruments.VERDICTS:
            assert value(found, P + "calls_total", provider=name, model="", verdict=verdict) == 0
        for class_ in instruments.CLASSES:
            for source in instruments.SOURCES:
                labels = {"provider": name, "class_": class_, "source": source}
                assert value(found, P + "envelopes_total", **labels) == 0
        for decision in instruments.REFUSALS:
            assert value(found, P + "refusals_total", provider=name, decision=decision) == 0
        for old, new, reason in MOVES:
            labels = {"from_": old, "to": new, "reason": reason, "enforced": "true"}
            assert (
                value(found, P + "breaker_transitions_total", provider=name, model="", **labels)
                == 0
            )
        assert value(found, P + "upstream_duration_seconds_count", provider=name) == 0
    names = {name for name, _ in found}
    for one in instruments.INSTRUMENTS:
        if one is not instruments.CODES:
            shown = one.shown + ("_bucket" if one.bounds else "")
            assert shown in names, shown

    file = running.daemon._options.config
    text = file.read_text()
    kept = text.replace("other-one", "new-one")
    file.write_text(kept)
    await running.daemon.reload()
    found = await scrape(running)
    assert not [pairs for _, pairs in found if ("provider", "other-one") in pairs]
    assert value(found, P + "breaker_state", provider="new-one", model="", state="closed") == 1
    assert value(found, P + "config_reloads_total", result="taken") == 1


def test_every_move_of_the_machine_is_a_series() -> None:
    moves = {(old, new) for old, events in TABLE.items() for new in events.values()}
    assert {(old, new) for old, new, _ in MOVES} == moves
    assert set(CAUSES) == set(Event) - {Event.TRIP}
    assert {reason for _, _, reason in MOVES} == set(instruments.CAUSES)


async def test_f163_the_gauge_follows_time_and_the_counter_proves_what_no_scrape_saw(
    start, upstream, monkeypatch
) -> None:
    monkeypatch.setattr(daemon_module, "TICK", 0.01)
    running = await start({"up": base(upstream.url)})
    await trip(running, upstream)
    found = await scrape(running)
    labels = {"provider": "up", "model": "gpt-x"}
    assert value(found, P + "breaker_state", state="open", **labels) == 1
    assert value(found, P + "breaker_enforced", **labels) == 1
    assert 0 < value(found, P + "breaker_retry_after_seconds", **labels) <= 0.3
    await until(lambda: running.breaker("up/gpt-x").state == "half_open")
    found = await scrape(running)
    assert value(found, P + "breaker_state", state="open", **labels) == 0
    assert value(found, P + "breaker_state", state="half_open", **labels) == 1
    opened = {"from_": "closed", "to": "open", "enforced": "true", **labels}
    moved = P + "breaker_transitions_total"
    # Five in a row, of which three suffice for the ratio: whichever rule, it opened once.
    assert total(found, moved, **opened) == 1
    assert value(found, moved, from_="open", to="half_open", reason="open_time_over",
                 enforced="true", **labels) == 1  # fmt: skip
    assert 0.19 <= value(found, P + "breaker_open_time_seconds_total", **labels) < 5


async def test_what_calls_come_to_is_counted(start, upstream) -> None:
    running = await start({"up": base(upstream.url, breaker={"open_for": "300s"})})
    upstream.script = says(answer(200, b'{"choices":[{"message":{"content":"hi"}}]}'))
    await ask(running)
    missing = {"message": "no", "code": "model_not_found", "type": "invalid_request_error"}
    upstream.script = says(answer(503, json.dumps({"error": missing}).encode()))
    await ask(running, "gpt-typo")
    upstream.script = says(error(429, "made_up_by_this_upstream_4711"))
    await ask(running, n=1)
    await trip(running, upstream)
    for n in range(3):
        assert (await ask(running, n=n)).status == 503
    await call(running.port, "/nobody/x", "GET")
    found = await scrape(running)
    calls = P + "calls_total"
    up = {"provider": "up"}
    assert value(found, calls, model="gpt-x", verdict="success", **up) == 1
    assert value(found, calls, model="gpt-x", verdict="throttle", **up) == 1
    assert value(found, calls, model="gpt-x", verdict="failure", **up) >= 3
    # A typo has no series of its own.
    assert value(found, calls, model="other", verdict="alive", **up) == 1
    assert total(found, calls, model="gpt-typo") == 0
    assert value(found, P + "reclassified_total", class_="permanent", **up) == 1
    assert value(found, P + "refusals_total", decision="breaker_open", **up) == 3
    assert value(found, P + "refusals_total", provider="", decision="unknown_provider") == 1
    coded = P + "envelopes_coded_total"
    assert value(found, coded, code="model_not_found", class_="permanent", **up) == 1
    assert value(found, coded, code="breaker_open", source="sidecar", **up) == 3
    assert not [pairs for _, pairs in found if any("4711" in text for _, text in pairs)]
    assert value(found, coded, code="other", class_="rate_limit", **up) == 1
    assert value(found, P + "calls_in_flight", **up) == 0
    ended = P + "calls_ended_total"
    assert value(found, ended, ending="refused", **up) == 3
    assert value(found, ended, ending="answered", **up) == upstream.hits
    sent = upstream.hits
    assert value(found, P + "upstream_attempts_total", **up) == sent
    for name in ("upstream_duration", "upstream_first_byte_duration", "overhead_duration"):
        assert value(found, f"{P}{name}_seconds_count", **up) == sent
    assert value(found, P + "upstream_duration_seconds_bucket", le="600.0", **up) == sent


async def test_f103_the_first_content_is_no_error_and_no_opening_frame(start, upstream) -> None:
    running = await start({"up": base(upstream.url)})
    opening = b'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
    failing = b'data: {"error":{"message":"boom","code":"server_error"}}\n\n'
    for first, counted in ((opening + failing, 0), (b": hello\n\n" + failing, 0),
                           (opening + delta("a", "stop") + DONE, 1)):  # fmt: skip
        upstream.script = says(STREAM_HEAD + chunk(first) + b"0\r\n\r\n")
        caller = await Caller.connect(running.port)
        await caller.send(request("/up/v1/chat/completions", "POST", chat(stream=True), JSON))
        await caller.answer()
        found = await scrape(running)
        name = P + "upstream_first_content_duration_seconds_count"
        assert value(found, name, provider="up") == counted


async def test_f122_a_refused_reload_is_a_metric(start, upstream) -> None:
    running = await start({"up": base(upstream.url)})
    file = running.daemon._options.config
    good = file.read_text()
    file.write_text(good + "\nnonsense: 1\n")
    await running.daemon.reload()
    found = await scrape(running)
    assert value(found, P + "config_last_reload_successful") == 0
    assert value(found, P + "config_reloads_total", result="refused") == 1
    file.write_text(good)
    await running.daemon.reload()
    found = await scrape(running)
    assert value(found, P + "config_last_reload_successful") == 1
    assert value(found, P + "config_info", hash=running.daemon.config.hash) == 1


async def test_ten_thousand_names_make_no_unbounded_series(start, upstream) -> None:
    """Paths and models of callers' own invention, answered well: the worst case."""
    upstream.script = says(answer(200, b'{"choices":[{"message":{"content":"hi"}}]}'))
    running = await start({"up": base(upstream.url)})
    first = len(await scrape(running))

    async def worker(start_at: int) -> None:
        caller = await Caller.connect(running.port)
        for n in range(start_at, 10_000, 20):
            if n % 2:
                await caller.send(request(f"/up/p{n}/q{n}?x={n}", "GET", None))
            else:
                body = chat(f"model-{n}", n=n)
                await caller.send(request("/up/v1/chat/completions", "POST", body, JSON))
            assert (await caller.answer()).status == 200

    await asyncio.gather(*(worker(n) for n in range(20)))
    found = await scrape(running)
    each = len([pairs for _, pairs in found if ("model", "other") in pairs])
    assert len(found) <= first + 100 * each
    assert total(found, P + "calls_total", provider="up", verdict="success") == 10_000
    assert total(found, P + "calls_total", provider="up", model="other", verdict="success") > 9_000
    models = {text for _, pairs in found for label, text in pairs if label == "model"}
    assert len(models) <= 102


async def test_both_formats_and_who_asks_for_which(start, upstream) -> None:
    running = await start({"up": base(upstream.url)})
    accept = ("Accept", "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;q=0.5")
    found = await admin(running, "/metrics", "GET", None, accept)
    assert found.get("content-type").startswith("application/openmetrics-text; version=1.0.0")
    text = found.body.decode()
    assert text.endswith("# EOF\n")
    assert "# TYPE breaker_sidecar_calls counter" in text
    assert "# UNIT breaker_sidecar_upstream_duration_seconds seconds" in text
    assert 'breaker_sidecar_calls_total{provider="up"' in text
    plain = (await admin(running, "/metrics", "GET", None, ("Accept", "text/plain"))).body.decode()
    assert "# TYPE breaker_sidecar_calls_total counter" in plain
    assert parse(plain).keys() == parse(text).keys()
    assert (await admin(running, "/metrics", "POST")).status == 405


async def test_the_probe_listener_serves_them_without_a_guard(start, upstream) -> None:
    running = await start({"up": base(upstream.url)}, probe={"listen": "127.0.0.1:0"})
    port = int(running.daemon.addresses["probe"][0].rpartition(":")[2])
    caller = await Caller.connect(port)
    await caller.send(b"GET /metrics HTTP/1.1\r\nHost: pod.example\r\n\r\n")
    found = await caller.answer()
    assert found.status == 200
    assert value(parse(found.body.decode()), P + "network_up") == 1
