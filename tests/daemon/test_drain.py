"""The end of a daemon under load: many streams, more signals, and edits that come too late."""

from __future__ import annotations

import asyncio
import json
import signal
import sys

import pytest
import yaml

from tests.field.process import Process
from tests.field.scene import (
    DONE,
    OK,
    STREAM_HEAD,
    admin,
    ask,
    base,
    chunk,
    delta,
    document,
    open_stream,
    until,
)
from tests.proxy.callers import Caller
from tests.proxy.upstreams import Visit, says

MANY = 100


def streaming(go: asyncio.Event, begun: list[int] | None = None):
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD, chunk(delta("a")))
        if begun is not None:
            begun.append(1)
        await go.wait()
        await visit.send(chunk(delta("b", "stop")), chunk(DONE), b"0\r\n\r\n")

    return script


async def open_streams(port: int, count: int) -> list[Caller]:
    callers = await asyncio.gather(*(open_stream(port) for _ in range(count)))
    for caller in callers:
        await caller.head()
    return callers


async def rest(caller: Caller) -> bytes:
    return await caller.reader.read()


async def test_a_hundred_streams_end_by_themselves(process, upstream) -> None:
    go = asyncio.Event()
    upstream.script = streaming(go)
    one = await process({"up": base(upstream.url)}, drain={"timeout": "40s"})
    callers = await open_streams(one.port, MANY)
    one.signal(signal.SIGTERM)
    await until(lambda: one.lines("daemon.draining"))
    assert one.lines("daemon.draining")[0]["in_flight"] == MANY
    go.set()
    for raw in await asyncio.gather(*(rest(caller) for caller in callers)):
        assert raw.endswith(DONE + b"\r\n0\r\n\r\n")
    assert await one.exit_code(20) == 0
    assert not one.lines("daemon.cutting")
    assert not one.lines("call.failed")


@pytest.mark.parametrize("twice", [False, True], ids=["time is over", "second signal"])
async def test_a_hundred_streams_are_cut_honestly(process, upstream, twice) -> None:
    upstream.script = streaming(asyncio.Event())
    timeout = "300s" if twice else "300ms"
    one = await process({"up": base(upstream.url)}, drain={"timeout": timeout})
    callers = await open_streams(one.port, MANY)
    one.signal(signal.SIGTERM)
    await until(lambda: one.lines("daemon.draining"))
    if twice:
        one.signal(signal.SIGTERM)
    for raw in await asyncio.gather(*(rest(caller) for caller in callers)):
        # Each one is told, in the form of its dialect, and none could be taken for whole.
        assert b'"code":"draining"' in raw.replace(b" ", b"")
        assert DONE not in raw
        assert not raw.endswith(b"0\r\n\r\n")
    assert await one.exit_code(20) == 0
    (line,) = one.lines("daemon.cutting")
    assert line["in_flight"] == MANY
    # Lines that say the same are summed up after some.
    found = {(told["ending"], told["verdict"]) for told in one.lines("call.failed")}
    assert found == {("shutdown", "neutral")}


@pytest.mark.parametrize(
    "numbers",
    [
        [signal.SIGINT, signal.SIGTERM],
        [signal.SIGTERM, signal.SIGINT],
        [signal.SIGTERM] * 20,
        [signal.SIGHUP, signal.SIGTERM, signal.SIGHUP, signal.SIGTERM, signal.SIGHUP],
    ],
    ids=["int term", "term int", "twenty", "mixed"],
)
async def test_more_signals(process, upstream, numbers) -> None:
    upstream.script = streaming(asyncio.Event())
    one = await process({"up": base(upstream.url)}, drain={"timeout": "300s"})
    (caller,) = await open_streams(one.port, 1)
    for number in numbers:
        one.signal(number)
        await asyncio.sleep(0.02)
    assert DONE not in await rest(caller)
    assert await one.exit_code(20) == 0
    assert len(one.lines("daemon.draining")) == len(one.lines("daemon.stopped")) == 1
    assert "Traceback" not in one.log.read_text()


async def test_a_signal_after_the_end_of_the_drain(process, upstream) -> None:
    """While everything is closed a further signal neither breaks off nor begins anew."""
    upstream.script = streaming(asyncio.Event())
    one = await process({"up": base(upstream.url)}, drain={"timeout": "10ms"})
    await open_streams(one.port, 20)
    one.signal(signal.SIGTERM)
    await until(lambda: one.lines("daemon.cutting") or one.popen.poll() is not None)
    while one.popen.poll() is None:
        one.signal(signal.SIGTERM)
        one.signal(signal.SIGHUP)
        await asyncio.sleep(0.005)
    assert one.popen.returncode == 0
    assert "Traceback" not in one.log.read_text()


def edit(one, **more) -> None:
    content = yaml.safe_load(one.config.read_text())
    content.update(more)
    one.config.write_text(yaml.safe_dump(content))


@pytest.mark.parametrize("by_signal", [True, False], ids=["signal", "call"])
async def test_a_reload_in_the_middle_of_the_drain(process, upstream, by_signal) -> None:
    """It may take the provider of a running stream away: the stream ends by itself all the same."""
    go = asyncio.Event()
    upstream.script = streaming(go)
    one = await process({"up": base(upstream.url)}, drain={"timeout": "40s"})
    callers = await open_streams(one.port, 3)
    one.signal(signal.SIGTERM)
    await until(lambda: one.lines("daemon.draining"))
    edit(one, providers={"other": base(upstream.url)}, drain={"timeout": "1ms"})
    if by_signal:
        one.signal(signal.SIGHUP)
        await until(lambda: one.lines("config.reloaded"))
    else:
        assert (await admin(one, "/reload", "POST")).status == 200
    assert (await admin(one, "/readyz")).status == 503
    with pytest.raises(ConnectionError):
        await Caller.connect(one.port)
    assert one.popen.poll() is None
    edit(one, providers={"up": {"upstrem": "x"}})
    one.signal(signal.SIGHUP)
    await until(lambda: one.lines("config.refused"))
    assert (await document(one))["config"]["error"]
    go.set()
    for caller in callers:
        assert (await rest(caller)).endswith(DONE + b"\r\n0\r\n\r\n")
    assert await one.exit_code(20) == 0
    assert "Traceback" not in one.log.read_text()


async def test_a_drain_in_the_middle_of_a_reload(process, upstream) -> None:
    upstream.script = says(OK)
    one = await process({"up": base(upstream.url)})
    names = {f"p{n}": base(upstream.url) for n in range(400)}
    edit(one, providers=names)
    one.signal(signal.SIGHUP)
    one.signal(signal.SIGTERM)
    assert await one.exit_code(20) == 0
    assert one.lines("daemon.stopped")
    assert "Traceback" not in one.log.read_text()


async def test_what_waits_on_a_kept_connection_is_told(process, upstream) -> None:
    """A call that comes in on a connection of before, while the daemon drains."""
    go = asyncio.Event()
    upstream.script = streaming(go)
    one = await process({"up": base(upstream.url)}, drain={"timeout": "40s", "delay": "40s"})
    kept = await Caller.connect(one.port)
    (caller,) = await open_streams(one.port, 1)
    one.signal(signal.SIGTERM)
    await until(lambda: one.lines("daemon.draining"))
    # Still in the delay: calls are taken.
    upstream.script = says(OK)
    assert (await ask(one)).status == 200
    one.signal(signal.SIGTERM)
    assert await rest(kept) == b""
    assert DONE not in await rest(caller)
    assert await one.exit_code(20) == 0


HANG = """
import sys, time
from sidecar import daemon
from sidecar.cli import main

daemon.Daemon._load = lambda self: time.sleep(1000)
sys.exit(main(sys.argv[1:]))
"""


SELF_RELOAD = """
import os, signal, sys
from sidecar import cli

real = cli.module_of

def module_of(name):
    found = real(name)
    os.kill(os.getpid(), signal.SIGHUP)
    return found

cli.module_of = module_of
sys.exit(cli.main(sys.argv[1:]))
"""
EARLY = [sys.executable, "-P", "-c", SELF_RELOAD]


async def test_a_reload_that_hangs_holds_up_no_stop(process, upstream) -> None:
    """As one does whose file is on a mount that does not answer."""
    upstream.script = says(OK)
    one = await process({"up": base(upstream.url)}, command=[sys.executable, "-P", "-c", HANG])
    one.signal(signal.SIGHUP)
    assert (await ask(one)).status == 200
    one.signal(signal.SIGTERM)
    assert await one.exit_code(20) == 0
    assert one.lines("daemon.stopped")


async def test_a_reload_during_the_start_is_no_end(tmp_path, upstream) -> None:
    """From the first line of ours on; what came in meanwhile is read once it listens."""
    upstream.script = says(OK)
    one = Process(tmp_path / "early", {"up": base(upstream.url)}, command=EARLY)
    await one.listening()
    await until(lambda: one.lines("config.reloaded"))
    assert (await ask(one)).status == 200
    one.signal(signal.SIGTERM)
    assert await one.exit_code(20) == 0


async def test_reloads_without_end_hold_up_no_stop(process, upstream) -> None:
    upstream.script = says(OK)
    one = await process({"up": base(upstream.url)})
    for _ in range(50):
        one.signal(signal.SIGHUP)
        await asyncio.sleep(0.002)
    assert (await ask(one)).status == 200
    for _ in range(20):
        one.signal(signal.SIGHUP)
    one.signal(signal.SIGTERM)
    assert await one.exit_code(20) == 0
    assert "Traceback" not in one.log.read_text()
    assert {json.dumps(line["problems"]) for line in one.lines("config.refused")} == set()
