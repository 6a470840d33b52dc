"""A daemon and its successor on one state file, on disks that are full, read-only, slow or strange."""

from __future__ import annotations

import asyncio
import json
import os
import threading

import pytest

from sidecar.fleet import state
from sidecar.fleet.disk import StateFile
from tests.field.scene import CHAT, JSON, OK, admin, ask, base, error, until
from tests.proxy.callers import call, chat
from tests.proxy.upstreams import says

KEY = "/breakers/up%2Fgpt-x"


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "state.json"


def order(running, verb, body=b"{}", key=KEY):
    return admin(running, f"{key}/{verb}", "POST", body)


def breakers(kept):
    document = json.loads(kept.read_bytes())
    return {
        one.get("subject"): one
        for provider in document["providers"].values()
        for one in provider["breakers"]
    }


async def follow(start, upstream, running, kept, **more):
    """The next daemon on the same file, the one before gone."""
    await running.daemon.close()
    return await start({"up": base(upstream.url)}, state_file=str(kept), **more)


async def test_an_order_is_kept_before_it_is_answered(start, upstream, kept) -> None:
    running = await start({"up": base(upstream.url)}, state_file=str(kept))
    found = await order(running, "open", b'{"for": "10m", "reason": "maintenance"}')
    assert found.status == 200
    # No wait: whoever has the answer may pull the plug.
    assert breakers(kept)["gpt-x"]["hold"]["reason"] == "maintenance"
    assert (await order(running, "off")).status == 200
    assert breakers(kept)["gpt-x"]["mode"]["mode"] == "off"
    assert (await order(running, "reset")).status == 200
    assert breakers(kept) == {}


async def test_orders_at_once_are_all_kept(start, upstream, kept) -> None:
    running = await start({"up": base(upstream.url)}, state_file=str(kept))
    names = [f"m{n}" for n in range(30)]

    async def one(name: str) -> None:
        assert (await order(running, "open", key=f"/breakers/up%2F{name}")).status == 200
        assert name in breakers(kept)

    await asyncio.gather(*(one(name) for name in names))


async def test_the_next_daemon_goes_on(start, upstream, kept, log, clocks) -> None:
    running = await start({"up": base(upstream.url)}, state_file=str(kept))
    await order(running, "open", b'{"for": "10m", "reason": "maintenance"}')
    before = (await admin(running, "/status")).json["providers"]["up"]["breakers"]["up/gpt-x"]
    await running.daemon.close()
    clocks.later(60)
    clocks.monotonic -= 5000  # the machine was started anew, and so was its clock
    following = await start({"up": base(upstream.url)}, state_file=str(kept))
    shown = (await admin(following, "/status")).json["providers"]["up"]["breakers"]["up/gpt-x"]
    assert shown["state"] == "open"
    assert shown["reason"] == "forced open: maintenance"
    for name in ("since", "opened_at", "half_open_at"):
        assert shown[name][:19] == before[name][:19], name
    assert shown["retry_after"] == pytest.approx(540, abs=5)
    refused = await ask(following)
    assert (refused.status, refused.envelope["code"]) == (503, "breaker_open")
    (line,) = log.lines("state.restored")
    assert (line["entries"], line["age"]) == (1, pytest.approx(60, abs=5))
    assert (await call(following.port, "/up/other/x")).status == 200


async def test_a_wait_that_an_upstream_named_goes_on(start, upstream, kept) -> None:
    running = await start({"up": base(upstream.url)}, state_file=str(kept))
    upstream.script = says(error(503).replace(b"\r\n\r\n", b"\r\nRetry-After: 300\r\n\r\n", 1))
    for n in range(5):
        await ask(running, n=n)
    assert running.breaker("up/gpt-x").state == "open"
    following = await follow(start, upstream, running, kept)
    shown = following.breaker("up/gpt-x")
    assert shown.state == "open"
    assert shown.retry_after == pytest.approx(300, abs=5)


async def test_without_a_state_file_nothing_is_written(start, upstream, tmp_path) -> None:
    running = await start({"up": base(upstream.url)})
    before = set(tmp_path.iterdir())
    await order(running, "open")
    await running.daemon.close()
    assert set(tmp_path.iterdir()) == before


async def test_what_moves_is_written_soon(start, upstream, kept) -> None:
    running = await start({"up": base(upstream.url)}, state_file=str(kept))
    upstream.script = says(error(503).replace(b"\r\n\r\n", b"\r\nRetry-After: 300\r\n\r\n", 1))
    for n in range(5):
        await ask(running, n=n)
    await until(lambda: kept.exists() and "gpt-x" in breakers(kept), 5)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "broken"),
        (b'{"schema":1,"saved_at":17', "broken"),
        (b"\0" * 1000, "broken"),
        (b'{"schema": 2}', "version 2"),
        (
            b'{"schema": 1, "saved_at": 99999999999, "secret": "%b", "providers": {}}'
            % (b"0" * 64),
            "from now",
        ),
        (b'{"schema": 1, "x": ' + b"[" * 200_000, "broken"),
    ],
    ids=["empty", "cut", "zeros", "later version", "future", "deep"],
)
async def test_a_file_that_is_not_believed(start, upstream, kept, log, content, reason) -> None:
    kept.write_bytes(content)
    running = await start({"up": base(upstream.url)}, state_file=str(kept))
    (line,) = log.lines("state.ignored")
    assert reason in line["reason"]
    assert (await ask(running)).status == 200
    await order(running, "open")
    assert "gpt-x" in breakers(kept)
    # It is not lost: it may have been somebody's.
    assert kept.with_name("state.json.ignored").read_bytes() == content
    assert not log.lines("state.not_saved")


@pytest.mark.parametrize("kind", ["pipe", "unreadable"])
async def test_a_file_that_cannot_be_read(start, upstream, kept, log, monkeypatch, kind) -> None:
    if kind == "pipe":
        os.mkfifo(kept)
    else:

        def refuse(_file):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(StateFile, "read", refuse)
    running = await start({"up": base(upstream.url)}, state_file=str(kept))
    (line,) = log.lines("state.ignored")
    assert ("no regular file" if kind == "pipe" else "permission denied") in line["reason"]
    assert (await ask(running)).status == 200


async def test_a_disk_that_hangs(start, upstream, kept, log, monkeypatch) -> None:
    """Neither a start, nor a call, nor a stop waits for it; who gives an order waits a little."""
    stuck = threading.Event()
    monkeypatch.setattr(state, "PATIENCE", 0.2)
    monkeypatch.setattr(StateFile, "read", lambda _file: stuck.wait(30))
    monkeypatch.setattr(StateFile, "write", lambda _file, _content: stuck.wait(30))
    running = await start({"up": base(upstream.url)}, state_file=str(kept))
    (line,) = log.lines("state.ignored")
    assert "within 0.2 s" in line["reason"]
    assert (await order(running, "open", key="/breakers/up%2Fother")).status == 200
    assert (await ask(running)).status == 200
    await running.daemon.close()
    stuck.set()


def full(_file, _content):
    raise OSError(28, "No space left on device")


async def test_a_full_disk_is_said_once_and_costs_no_call(
    start, upstream, kept, log, monkeypatch
) -> None:
    monkeypatch.setattr(StateFile, "write", full)
    monkeypatch.setattr(state, "RETRY", 0.01)
    running = await start({"up": base(upstream.url)}, state_file=str(kept))
    for _ in range(3):
        assert (await order(running, "open")).status == 200
        assert (await ask(running, "other")).status == 200
    (line,) = log.lines("state.not_saved")
    assert line["reason"] == "no space left on device"
    monkeypatch.undo()
    await order(running, "observe")
    assert breakers(kept)["gpt-x"]["mode"]["mode"] == "observe"
    assert len(log.lines("state.saved")) == 1
    monkeypatch.setattr(StateFile, "write", full)
    await order(running, "enforce")
    assert len(log.lines("state.not_saved")) == 2


async def test_it_is_tried_again(start, upstream, kept, monkeypatch) -> None:
    tries = []

    def fail(_file, _content):
        tries.append(1)
        full(_file, _content)

    monkeypatch.setattr(StateFile, "write", fail)
    monkeypatch.setattr(state, "RETRY", 0.01)
    running = await start({"up": base(upstream.url)}, state_file=str(kept))
    await order(running, "open")
    await until(lambda: len(tries) > 2, 10)
    monkeypatch.undo()
    await until(lambda: kept.exists() and "gpt-x" in breakers(kept), 10)


async def test_a_missing_folder_is_said_before_anything_starts(start, upstream, tmp_path, log):
    path = tmp_path / "none" / "state.json"
    running = await start({"up": base(upstream.url)}, state_file=str(path))
    assert any("does not exist" in line for line in running.daemon.config.warnings)
    assert (await order(running, "open")).status == 200
    (line,) = log.lines("state.not_saved")
    assert line["reason"] == "no such file or directory"


async def test_a_clock_that_is_set(start, upstream, kept, clocks) -> None:
    """The file follows the clock, so that the next daemon reads what is left, not what was."""
    running = await start({"up": base(upstream.url)}, state_file=str(kept))
    await order(running, "open", b'{"for": "10m"}')
    first = breakers(kept)["gpt-x"]["hold"]["until"]
    for step in (7200.0, -3600.0):
        clocks.wall = step
        await until(
            lambda: abs(breakers(kept)["gpt-x"]["hold"]["until"] - first - clocks.wall) < 1, 5
        )
    following = await follow(start, upstream, running, kept)
    assert following.breaker("up/gpt-x").retry_after == pytest.approx(600, abs=10)


@pytest.mark.interpreted
async def test_a_fault_of_ours_costs_nothing(start, upstream, kept, monkeypatch) -> None:
    running = await start({"up": base(upstream.url)}, state_file=str(kept))
    await order(running, "open")
    before = kept.read_bytes()

    def broken(_now):
        raise ZeroDivisionError("injected")

    monkeypatch.setattr(running.daemon.registry, "saved", broken)
    assert (await order(running, "reset")).status == 200
    assert (await ask(running)).status == 200
    assert kept.read_bytes() == before
    assert [fault.where for fault in running.faults] == ["state"]
    running.faults.clear()
    monkeypatch.undo()


async def test_a_second_daemon_takes_over_only_when_the_first_is_gone(
    start, upstream, kept, log
) -> None:
    """While an old daemon drains, its successor may run already: what is newer must win."""
    old = await start({"up": base(upstream.url)}, state_file=str(kept))
    await order(old, "open")
    new = await start({"up": base(upstream.url)}, state_file=str(kept))
    assert new.breaker("up/gpt-x").state == "open"
    await order(new, "reset")
    (line,) = log.lines("state.not_saved")
    assert "another daemon" in line["reason"]
    assert "gpt-x" in breakers(kept)
    await old.daemon.close()
    await order(new, "observe")
    assert list(breakers(kept)) == ["gpt-x"]
    assert "hold" not in breakers(kept)["gpt-x"] or not breakers(kept)["gpt-x"]["hold"]


@pytest.mark.parametrize("name", ["breakers-0.yaml", "."])
async def test_what_is_somebody_elses_is_refused(start, upstream, tmp_path, name) -> None:
    from sidecar.config.problems import ConfigError

    with pytest.raises(ConfigError, match=r"a file of its own"):
        await start({"up": base(upstream.url)}, state_file=str(tmp_path / name))


def limits(kept):
    document = json.loads(kept.read_bytes())
    return [one for provider in document["providers"].values() for one in provider["limits"]]


async def test_a_spent_budget_is_known_to_the_next_daemon(start, upstream, kept) -> None:
    """And to nobody but the key that spent it."""
    mine, other = ("Authorization", "Bearer sk-mine"), ("Authorization", "Bearer sk-other")

    async def asking(running, key):
        return await call(running.port, CHAT, "POST", chat("gpt-x"), JSON, key)

    upstream.script = says(error(429, "insufficient_quota"))
    running = await start({"up": base(upstream.url)}, state_file=str(kept))
    assert (await asking(running, mine)).status == 402
    await until(lambda: kept.exists() and limits(kept), 5)
    assert b"sk-mine" not in kept.read_bytes()
    upstream.script = says(OK)
    following = await follow(start, upstream, running, kept)
    hits = upstream.hits
    refused = await asking(following, mine)
    assert (refused.status, refused.get("x-sidecar-decision")) == (402, "quota")
    assert upstream.hits == hits
    assert (await asking(following, other)).status == 200
    shown = (await admin(following, "/status")).json["providers"]["up"]["quota"]
    assert [one["key"] for one in shown] == ["up/gpt-x"]


async def test_a_named_wait_of_a_key_is_known_to_the_next_daemon(start, upstream, kept) -> None:
    upstream.script = says(error(429).replace(b"\r\n\r\n", b"\r\nRetry-After: 120\r\n\r\n", 1))
    running = await start({"up": base(upstream.url)}, state_file=str(kept))
    assert (await ask(running)).status == 429
    upstream.script = says(OK)
    following = await follow(start, upstream, running, kept)
    refused = await ask(following)
    assert (refused.status, refused.get("x-sidecar-decision")) == (429, "shed")
    assert refused.envelope["retry_after"] == pytest.approx(120, abs=5)
