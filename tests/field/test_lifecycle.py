"""Areas k8s and systemd, as far as a process alone can show them: starting, stopping, exit codes."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys

import pytest

from tests.proxy.callers import Caller, call
from tests.proxy.upstreams import Upstream, Visit, says

from .process import START, Process, environment
from .scene import (
    DONE,
    OK,
    STREAM_HEAD,
    admin,
    ask,
    base,
    chunk,
    delta,
    error,
    open_stream,
    trip,
    until,
)

PROMPTLY = 2.0
"""Seconds within which a stop during the start is over, F132's own figure."""

MOMENTS = [0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2]


@pytest.mark.parametrize("wrapped", [False, True])
async def test_f132_f136_a_stop_during_the_start(tmp_path, wrapped) -> None:
    """At every moment of the start, directly and behind a shell that hands itself over."""
    command = ["sh", "-c", 'exec "$@"', "sh", *START] if wrapped else START
    # A name that does not resolve must hold up neither the start nor the stop.
    providers = {"up": base("http://no-such-host.invalid")}
    few = asyncio.Semaphore(3)

    async def stopped(n: int, moment: float) -> tuple[int, str]:
        async with few:
            one = Process(tmp_path / f"{n}", providers, command=command)
            # The moment itself is what is tested.
            await asyncio.sleep(moment)
            one.signal(signal.SIGTERM)
            return await one.exit_code(PROMPTLY), one.log.read_text()

    found = await asyncio.gather(*(stopped(n, moment) for n, moment in enumerate(MOMENTS)))
    for moment, (code, text) in zip(MOMENTS, found, strict=True):
        # Before any line of ours ran, the signal's own default ends the interpreter.
        assert code in (0, -signal.SIGTERM), (moment, text)
        assert "Traceback" not in text
    assert found[-1][0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_f133_a_b_a_stop_is_no_failure(process, upstream, number) -> None:
    one = await process({"up": base(upstream.url)})
    one.signal(number)
    assert await one.exit_code() == 0
    assert one.lines("daemon.stopped")
    assert "Traceback" not in one.log.read_text()


CRASH = """
import asyncio, sys
from sidecar import daemon
from sidecar.cli import main

async def crash(self):
    await asyncio.sleep(0.1)
    raise ZeroDivisionError("injected")

daemon.Daemon.run = crash
sys.exit(main(sys.argv[1:]))
"""


async def test_f133_c_a_crash_of_the_loop_is_one(tmp_path) -> None:
    one = Process(
        tmp_path / "c",
        {"up": base("http://127.0.0.1:9")},
        command=[sys.executable, "-P", "-c", CRASH],
    )
    code = await one.exit_code()
    assert code not in (0, 2, 69, 78)
    assert code > 0
    last = one.log.read_text().splitlines()[-1]
    assert "injected" in last or "ZeroDivisionError" in last


async def test_f133_d_e_each_reason_has_its_code(process, upstream, tmp_path) -> None:
    one = await process({"up": base(upstream.url)})
    taken = Process(tmp_path / "taken", {"up": base(upstream.url)}, listen=f"127.0.0.1:{one.port}")
    bad = Process(tmp_path / "bad", {"up": {"upstrem": "x"}})
    assert await taken.exit_code() == 69
    assert await bad.exit_code() == 78
    assert f"127.0.0.1:{one.port}" in taken.log.read_text()
    for ended in (taken, bad):
        assert "Traceback" not in ended.log.read_text()
    # One line with the reason; and what never ran has not stopped.
    assert len(taken.log.read_text().splitlines()) == 1


async def test_f135_readiness_depends_on_nobody_else(start, upstream) -> None:
    running = await start({"up": base(upstream.url), "dead": base("http://127.0.0.1:9")})
    await trip(running, upstream)
    for _ in range(6):
        await call(running.port, "/dead/x")
    assert running.breaker("dead").state == "open"
    running.daemon._options.config.write_text("providers: {up: {upstrem: x}}")
    assert (await running.daemon.reload()).problems
    for path in ("/healthz", "/readyz"):
        assert (await admin(running, path)).status == 200


def streaming(go: asyncio.Event):
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD, chunk(delta("a")))
        await go.wait()
        await visit.send(chunk(delta("b", "stop")), chunk(DONE), b"0\r\n\r\n")

    return script


async def test_f144_running_streams_end_by_themselves(process, upstream) -> None:
    go = asyncio.Event()
    upstream.script = streaming(go)
    one = await process({"up": base(upstream.url)}, drain={"timeout": "30s"})
    callers = [await open_stream(one.port) for _ in range(3)]
    for caller in callers:
        await caller.head()
    one.signal(signal.SIGTERM)
    await until(lambda: one.lines("daemon.draining"))
    assert one.lines("daemon.draining")[0]["in_flight"] == 3
    with pytest.raises(ConnectionError):
        await Caller.connect(one.port)
    assert (await admin(one, "/readyz")).status == 503
    assert one.popen.poll() is None
    go.set()
    for caller in callers:
        assert (await caller.reader.readuntil(b"0\r\n\r\n")).endswith(DONE + b"\r\n0\r\n\r\n")
    # Half a minute was allowed; it needs none of it once the last one is done.
    assert await one.exit_code(10) == 0
    assert not one.lines("daemon.cutting")


async def test_f144_a_second_signal_stops_at_once(process, upstream) -> None:
    upstream.script = streaming(asyncio.Event())
    one = await process({"up": base(upstream.url)}, drain={"timeout": "300s"})
    caller = await open_stream(one.port)
    await caller.head()
    one.signal(signal.SIGTERM)
    await until(lambda: one.lines("daemon.draining"))
    assert one.popen.poll() is None
    one.signal(signal.SIGTERM)
    assert await one.exit_code(10) == 0
    raw = await caller.reader.read()
    # What is cut is never dressed as a whole answer.
    assert DONE not in raw
    assert not raw.endswith(b"0\r\n\r\n")


async def test_f144_what_outlasts_the_drain_is_cut(process, upstream) -> None:
    upstream.script = streaming(asyncio.Event())
    one = await process({"up": base(upstream.url)}, drain={"timeout": "200ms"})
    caller = await open_stream(one.port)
    await caller.head()
    one.signal(signal.SIGTERM)
    assert await one.exit_code(10) == 0
    assert one.lines("daemon.cutting")[0]["in_flight"] == 1
    assert not (await caller.reader.read()).endswith(b"0\r\n\r\n")


async def test_f144_calls_are_taken_until_the_delay_is_over(process, upstream) -> None:
    upstream.script = says(OK)
    one = await process({"up": base(upstream.url)}, drain={"delay": "300s"})
    one.signal(signal.SIGTERM)
    await until(lambda: one.lines("daemon.draining"))
    assert (await admin(one, "/readyz")).status == 503
    assert (await admin(one, "/healthz")).status == 200
    assert (await ask(one)).status == 200
    one.signal(signal.SIGTERM)
    assert await one.exit_code(10) == 0


async def test_f129_who_can_connect_is_answered(tmp_path) -> None:
    """Area k8s, the process's part: the port is bound only when calls are served."""
    upstream = Upstream(says(OK))
    await upstream.start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    one = Process(tmp_path / "race", {"up": base(upstream.url)}, listen=f"127.0.0.1:{port}")
    found = None
    while found is None:
        assert one.popen.poll() is None, one.log.read_text()
        try:
            found = await ask(_At(port))
        except ConnectionError:
            await asyncio.sleep(0.005)
    assert found.status == 200
    await Caller.close_all()
    await one.end()
    await upstream.stop()


class _At:
    """Stands in for a daemon of which only the port is known."""

    def __init__(self, port: int) -> None:
        self.port = port


def test_f132_a_missing_file_is_said_at_once(tmp_path) -> None:
    done = subprocess.run(
        [*START, "serve", "--config", str(tmp_path / "none.yaml")],
        env=environment(), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 78
    assert "Traceback" not in done.stderr
    assert "none.yaml" in done.stderr


@pytest.mark.interpreted
async def test_f133_a_fault_of_a_call_ends_nothing(start, upstream, monkeypatch) -> None:
    from sidecar.proxy.call import Call

    running = await start({"up": base(upstream.url)})
    upstream.script = says(error(500))

    def broken(*_args: object, **_more: object) -> None:
        raise ZeroDivisionError("injected")

    monkeypatch.setattr(Call, "_enter", broken)
    found = await ask(running)
    assert (found.status, found.envelope["code"]) == (500, "internal_error")
    monkeypatch.undo()
    running.faults.clear()
    upstream.script = says(OK)
    assert (await ask(running)).status == 200
