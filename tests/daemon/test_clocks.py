"""A wall clock that is set, forwards or back: nothing that was decided moves with it."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from sidecar.daemon import TICK
from tests.field.scene import DONE, OK, admin, ask, base, document, error, trip
from tests.proxy.upstreams import says

from .test_drain import open_streams, streaming

STEPS = [-86400.0, -3600.0, -10.0, 3600.0, 86400.0 * 365]


async def ticks(count: int = 2) -> None:
    # The daemon looks at its clocks once a tick; nothing tells from outside that it has.
    await asyncio.sleep(count * TICK)


@pytest.mark.parametrize("step", STEPS)
async def test_an_open_breaker_stays_open_and_a_closed_one_closed(
    start, upstream, clocks, step
) -> None:
    running = await start({"up": base(upstream.url, breaker={"open_for": "60s"})})
    await trip(running, upstream)
    upstream.script = says(OK)
    before = running.breaker("up/gpt-x").retry_after
    clocks.wall = step
    await ticks()
    assert running.breaker("up/gpt-x").state == "open"
    assert running.breaker("up/gpt-x").retry_after == pytest.approx(before, abs=10)
    assert (await ask(running)).status == 503
    assert (await ask(running, "well")).status == 200
    clocks.monotonic = 61
    assert (await ask(running)).status == 200


@pytest.mark.parametrize("step", STEPS)
async def test_a_hold_by_hand_lasts_its_time(start, upstream, clocks, step) -> None:
    running = await start({"up": base(upstream.url)})
    body = b'{"for": "10m"}'
    assert (await admin(running, "/breakers/up%2Fgpt-x/open", "POST", body)).status == 200
    clocks.wall = step
    await ticks()
    shown = (await document(running))["providers"]["up"]["breakers"]["up/gpt-x"]
    assert shown["retry_after"] == pytest.approx(600, abs=10)
    # For people the end is shown by the clock on their wall.
    told = datetime.fromisoformat(shown["half_open_at"]).timestamp()
    assert told == pytest.approx(datetime.now().timestamp() + step + 600, abs=10)
    clocks.monotonic = 601
    await ticks()
    assert running.breaker("up/gpt-x").state == "half_open"


@pytest.mark.parametrize("step", STEPS)
async def test_the_window_does_not_roll(start, upstream, clocks, step) -> None:
    running = await start({"up": base(upstream.url)})
    upstream.script = says(OK)
    for n in range(3):
        await ask(running, n=n)
    clocks.wall = step
    await ask(running, n=4)
    assert running.breaker("up/gpt-x").window.success == 4


async def test_failures_are_kept_for_their_hour(start, upstream, clocks) -> None:
    running = await start({"up": base(upstream.url)})
    upstream.script = says(error(500))
    await ask(running, n=1)
    for step in STEPS:
        clocks.wall = step
        await ask(running, "other", n=int(step))
        assert (await admin(running, "/v1/failures?by=class")).status == 200
        assert (await admin(running, "/status")).status == 200
    assert not running.faults


async def test_a_clock_that_is_set_ends_no_call(start, upstream, clocks) -> None:
    go = asyncio.Event()
    upstream.script = streaming(go)
    running = await start({"up": base(upstream.url)})
    callers = await open_streams(running.port, 3)
    for step in STEPS:
        clocks.wall = step
        await ticks(1)
    go.set()
    for caller in callers:
        assert DONE in await caller.reader.readuntil(b"0\r\n\r\n")
