"""What every peer of the race is asked: plain calls, streams, a typo that looks like an outage, and
an outage that is one."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from bench import load, machine
from bench.load import Ask
from bench.race_peers import Header, Runner
from bench.scripted import GOOD, MISSPELT
from bench.upstream import REQUEST

PATH = "/v1/chat/completions"
STREAMED = 100
"""Events of a stream."""

EVERY = 0.05
"""Seconds between two calls of the outage."""

OUTAGE = 6.0
GIVEN_UP = 40.0

Values = dict[str, float]


def body(model: str, prompt: str = "Hello.", **more: object) -> bytes:
    asked = {"model": model, "messages": [{"role": "user", "content": prompt}], **more}
    return json.dumps(asked).encode()


def stream(events: int, gap: int) -> bytes:
    """A request for so many events, one each `gap` milliseconds."""
    return body("gpt-stream", stream=True, max_tokens=events, seed=gap)


def post(base: str, headers: tuple[Header, ...], data: bytes) -> tuple[int, dict[str, str]]:
    """One call on a connection of its own: status and headers; 0 where there was no answer."""
    parts = urlsplit(base)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    fixed = {"Content-Type": "application/json", "Authorization": "Bearer sk-race"}
    try:
        connection.request("POST", parts.path + PATH, data, {**fixed, **dict(headers)})
        answer = connection.getresponse()
        answer.read()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}
    except (OSError, http.client.HTTPException):
        return 0, {}
    finally:
        connection.close()


def answers(runner: Runner) -> bool:
    """Does it answer a plain call?"""
    return post(runner.base, runner.headers, REQUEST)[0] == 200


# -- speed ----------------------------------------------------------------------------------


def calls(runner: Runner, generator: load.Wrk | load.Own, seconds: float) -> Values:
    """Plain calls by one caller, then by 64."""
    ask = Ask("POST", PATH, REQUEST, headers=runner.headers)
    alone = generator.run(runner.base, ask, connections=1, seconds=seconds)
    before = machine.cpu_seconds(runner.pids)
    busy = generator.run(runner.base, ask, connections=64, seconds=seconds)
    spent = machine.cpu_seconds(runner.pids) - before
    values: Values = {"errors": alone.errors + busy.errors, "rate": busy.rate}
    for name, seen in (("alone", alone), ("busy", busy)):
        values |= {f"{name}_p50": seen.p50, f"{name}_p99": seen.p99, f"{name}_p999": seen.p999}
    if runner.pids and busy.requests:
        values["cpu_us"] = spent / busy.requests * 1e6
    return values


def streams(runner: Runner, seconds: float) -> Values:
    """Events as fast as they go to 16 callers, then 50 a second to each of 40."""
    values: Values = {}
    flat = Ask("POST", PATH, stream(STREAMED, 0), headers=runner.live_headers)
    paced = Ask("POST", PATH, stream(STREAMED, 20), headers=runner.live_headers)
    for name, ask, how in (
        ("flat", flat, {"connections": 16, "seconds": seconds}),
        ("paced", paced, {"connections": 40, "times": 1}),
    ):
        before = machine.cpu_seconds(runner.pids)
        seen, tally = load.run(load.call(runner.live, ask, stamped=name == "paced", **how))
        spent = machine.cpu_seconds(runner.pids) - before
        values[f"{name}_errors"] = seen.errors
        if runner.pids and seen.events:
            values[f"{name}_us"] = spent / seen.events * 1e6
        if tally.delays:
            values["event_p50"] = load.percentile(tally.delays, 0.5)
            values["event_p99"] = load.percentile(tally.delays, 0.99)
    return values


def open_streams(runner: Runner, count: int) -> Values:
    """Memory of each of so many open and silent streams, in a process that has done little yet."""
    if not runner.pids:
        return {}
    load.run(
        load.call(
            runner.live,
            Ask("POST", PATH, stream(2, 1), headers=runner.live_headers),
            connections=8,
            times=5,
        )
    )
    ask = Ask("POST", PATH, stream(2, 600_000), headers=runner.live_headers)
    before = machine.resident(runner.pids)
    held, opened = load.run(_hold(runner, ask, count))
    if opened < count * 0.95:
        return {"opened": opened}
    return {"opened": opened, "kib_each": (held - before) * 1024 / opened}


async def _hold(runner: Runner, ask: Ask, count: int) -> tuple[float, int]:
    parts = urlsplit(runner.live)
    request = ask.bytes_for(runner.live)

    async def one() -> asyncio.StreamWriter | None:
        try:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(request)
            async with asyncio.timeout(30):
                await reader.readuntil(b"data: ")
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return None
        return writer

    writers = [writer for writer in await asyncio.gather(*(one() for _ in range(count))) if writer]
    await asyncio.sleep(2)
    held = machine.resident(runner.pids)
    for writer in writers:
        writer.close()
    await asyncio.sleep(1)
    return held, len(writers)


# -- behaviour ------------------------------------------------------------------------------


class Upstream:
    """The scripted upstream, asked directly."""

    def __init__(self, port: int) -> None:
        self._port = port

    def count(self, model: str) -> int:
        return int(json.loads(self._get("/counts")).get(model, 0))

    def heal(self, *, well: bool) -> None:
        self._get("/health/well" if well else "/health/broken")

    def _get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()


def typo(runner: Runner, upstream: Upstream) -> Values:
    """Two agents that misspell a model, again and again; between them valid calls of another."""
    before = upstream.count(MISSPELT)
    refused = valid = 0
    since: float | None = None
    for number in range(10):
        for agent in range(2):
            _with_retries(runner, body(MISSPELT, f"{agent} asks for the {number}. time"))
        for again in range(2):
            valid += 1
            status, _ = post(runner.live, runner.live_headers, body(GOOD, f"{number} {again}"))
            if status != 200:
                refused += 1
                since = since or time.monotonic()
        time.sleep(0.2)
    reached = upstream.count(MISSPELT) - before
    values: Values = {"upstream": reached, "valid": valid, "refused": refused, "refused_for": 0.0}
    if since is not None:
        values["refused_for"] = _until_well(runner, since)[0]
    return values


def _with_retries(runner: Runner, data: bytes) -> None:
    """As the official SDKs do it, faster: twice more on 408, 409, 429, 5xx, unless told not to."""
    for attempt in range(3):
        status, headers = post(runner.live, runner.live_headers, data)
        told = headers.get("x-should-retry")
        passing = status in (0, 408, 409, 429) or status >= 500
        if told == "false" or (told != "true" and not passing):
            return
        time.sleep(0.02 * 2**attempt)


def outage(runner: Runner, upstream: Upstream) -> Values:
    """A model that answers nothing but 500 for a while: valid calls all along, no retries."""
    for number in range(10):
        post(runner.live, runner.live_headers, body(GOOD, f"before {number}"))
    upstream.heal(well=False)
    began, before = time.monotonic(), upstream.count(GOOD)
    asked, reached, opened = 0, 0, 0.0
    try:
        while time.monotonic() - began < OUTAGE:
            asked += 1
            post(runner.live, runner.live_headers, body(GOOD, f"during {asked}"))
            now = upstream.count(GOOD) - before
            if now == reached and not opened:
                opened = time.monotonic() - began
            reached = now
            time.sleep(EVERY)
    finally:
        upstream.heal(well=True)
    recovered, refused = _until_well(runner, time.monotonic())
    values: Values = {"asked": asked, "upstream": reached, "recovered": recovered}
    if opened:
        values["opened"] = opened
    values["refused_after"] = refused
    return values


def _until_well(runner: Runner, since: float) -> tuple[float, int]:
    """Seconds until a valid call passes, and how many did not before."""
    refused = 0
    while time.monotonic() - since < GIVEN_UP:
        status, _ = post(runner.live, runner.live_headers, body(GOOD, f"{refused} after"))
        if status == 200:
            break
        refused += 1
        time.sleep(EVERY)
    return time.monotonic() - since, refused


MEASURES: dict[str, Callable[[Runner, Upstream], Values]] = {"typo": typo, "outage": outage}
