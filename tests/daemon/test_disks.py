"""Disks that are full, limited or read-only: they cost lines and memory of the next start, no call."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.field.process import START, Process
from tests.field.scene import OK, admin, ask, base, until
from tests.proxy.callers import Caller
from tests.proxy.upstreams import says

LOG_IS_FULL = """
import os, sys

os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
os.execv(sys.executable, [sys.executable, "-P", "-W", "error", "-m", "sidecar", *sys.argv[1:]])
"""


LOG_IS_STUCK = """
import os, sys

reader, writer = os.pipe()
os.set_blocking(writer, False)
try:
    while True:
        os.write(writer, b"x" * 4096)
except BlockingIOError:
    os.set_blocking(writer, True)
os.set_inheritable(reader, True)
os.dup2(writer, 2)
os.execv(sys.executable, [sys.executable, "-P", "-W", "error", "-m", "sidecar", *sys.argv[1:]])
"""


def limit(one, what: int, soft: int) -> None:
    """Lowers a limit of a running process; the hard one stays, so that it can be raised again."""
    hard = resource.prlimit(one.popen.pid, what)[1]
    resource.prlimit(one.popen.pid, what, (soft if soft >= 0 else hard, hard))


def order(one, verb, name="gpt-x", body=b"{}"):
    return admin(one, f"/breakers/up%2F{name}/{verb}", "POST", body)


def kept(one) -> list[str]:
    document = json.loads(one.config.with_name("state.json").read_bytes())
    return [
        found["subject"]
        for section in document["providers"].values()
        for found in section["breakers"]
    ]


async def test_a_file_that_may_not_grow(process, upstream) -> None:
    """What was kept stays whole, and nothing is half written; the log may not grow either."""
    upstream.script = says(OK)
    one = await process({"up": base(upstream.url)}, state_file="state.json")
    limit(one, resource.RLIMIT_FSIZE, 3000)
    for n in range(40):
        assert (await order(one, "open", f"m{n}")).status == 200
        assert (await ask(one)).status == 200
    before = kept(one)
    assert 0 < len(before) < 40
    assert not one.config.with_name("state.json.new").exists()
    for n in range(40):
        assert (await order(one, "reset", f"m{n}")).status == 200
    assert kept(one) == []
    one.signal(signal.SIGTERM)
    assert await one.exit_code() == 0


async def test_a_disk_without_a_byte_left(process, upstream) -> None:
    upstream.script = says(OK)
    one = await process({"up": base(upstream.url)}, state_file="/dev/full/state.json")
    assert (await order(one, "open")).status == 200
    assert (await ask(one, "other")).status == 200
    assert len(one.lines("state.not_saved")) == 1
    one.signal(signal.SIGTERM)
    assert await one.exit_code() == 0


async def test_a_log_that_nobody_can_write(tmp_path, upstream) -> None:
    """Not even the start can say that it listens, and it serves all the same."""
    upstream.script = says(OK)
    socket = tmp_path / "in.sock"
    one = Process(
        tmp_path / "full",
        {"up": base(upstream.url)},
        command=[sys.executable, "-P", "-c", LOG_IS_FULL],
        admin={"listen": f"unix:{socket}"},
    )
    await until(socket.exists)
    assert healthcheck(one, socket) == 0
    one.signal(signal.SIGTERM)
    assert await one.exit_code() == 0


def healthcheck(one, socket: Path) -> int:
    done = subprocess.run(
        [*START, "healthcheck", "--admin", f"unix:{socket}"],
        env=one._environ, check=False, timeout=30, capture_output=True,
    )  # fmt: skip
    return done.returncode


def read_only_places() -> list[str]:
    return [path for path in ("/sys", "/proc") if Path(path).is_dir()]


@pytest.mark.parametrize("place", read_only_places())
async def test_a_read_only_file_system(process, upstream, place) -> None:
    """Where not even root can make a file, as on the root of a container."""
    upstream.script = says(OK)
    one = await process({"up": base(upstream.url)}, state_file=f"{place}/sidecar-state.json")
    for verb in ("open", "reset", "observe"):
        assert (await order(one, verb)).status == 200
    assert (await ask(one)).status == 200
    (line,) = one.lines("state.not_saved")
    assert line["reason"]
    one.signal(signal.SIGTERM)
    assert await one.exit_code() == 0
    assert "Traceback" not in one.log.read_text()


async def test_nothing_but_the_state_file_is_ever_written(process, upstream) -> None:
    upstream.script = says(OK)
    one = await process({"up": base(upstream.url)})
    before = {path: path.stat().st_mtime_ns for path in one.config.parent.iterdir()}
    await ask(one)
    await order(one, "open")
    one.signal(signal.SIGHUP)
    await until(lambda: one.lines("config.reloaded"))
    one.signal(signal.SIGTERM)
    assert await one.exit_code() == 0
    after = {path: path.stat().st_mtime_ns for path in one.config.parent.iterdir()}
    after.pop(one.log)
    before.pop(one.log)
    assert after == before


async def test_descriptors_that_run_out(process, upstream) -> None:
    upstream.script = says(OK)
    one = await process({"up": base(upstream.url)}, state_file="state.json")
    assert (await order(one, "open")).status == 200
    await Caller.close_all()
    descriptors = one.descriptors
    # Enough for who gives the order, and for nothing else.
    limit(one, resource.RLIMIT_NOFILE, descriptors + 1)
    assert (await order(one, "open", "other")).status == 200
    limit(one, resource.RLIMIT_NOFILE, -1)
    assert (await order(one, "open", "third")).status == 200
    assert sorted(kept(one)) == ["gpt-x", "other", "third"]


async def test_a_reader_of_the_log_that_stalls_holds_up_no_stop(tmp_path, upstream) -> None:
    upstream.script = says(OK)
    socket = tmp_path / "in.sock"
    one = Process(
        tmp_path / "stalled",
        {"up": base(upstream.url)},
        command=[sys.executable, "-P", "-c", LOG_IS_STUCK],
        admin={"listen": f"unix:{socket}"},
    )
    await until(socket.exists)
    assert healthcheck(one, socket) == 0
    one.signal(signal.SIGTERM)
    assert await one.exit_code() == 0
