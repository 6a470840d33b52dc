"""The daemon as a native sidecar, with the kubelet's part played by the test.

It is started first and found ready, then the agent runs and ends, then the daemon is told to stop.
Its configuration is a mounted ConfigMap, which changes by a swapped link and without a signal.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.config.test_watch import Volume
from tests.field.process import START, environment
from tests.field.process import Process as Daemon
from tests.field.scene import (
    DONE,
    OK,
    STREAM_HEAD,
    admin,
    base,
    chunk,
    delta,
    document,
    open_stream,
    until,
)
from tests.proxy.callers import Caller, call
from tests.proxy.conftest import upstream
from tests.proxy.upstreams import Visit, says

__all__ = ["upstream"]

PROMPTLY = 2.0
"""Seconds: what is left of a pod's grace period when the agent has used up nearly all of it."""

LIVE = 10.0
"""Seconds within which a swapped ConfigMap is in force."""

AGENT = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], b'{"model": "gpt-x", "messages": []}', method="POST")
request.add_header("Content-Type", "application/json")
with urllib.request.urlopen(request, timeout=30) as answer:
    sys.exit(0 if answer.status == 200 else 1)
"""


class Sidecar(Daemon):
    """The daemon with its configuration in a volume; the probe listener as the chart sets it."""

    def __init__(self, folder: Path, providers: dict[str, Any], **top: Any) -> None:
        self.volume = Volume(folder)
        self.document = {
            "listen": "127.0.0.1:0",
            "admin": {"listen": "127.0.0.1:0", "mutations": False},
            "probe": {"listen": "127.0.0.1:0"},
            "providers": providers,
            **top,
        }
        self.write()
        self.log = folder.with_suffix(".log")
        with self.log.open("wb") as stream:
            self.popen = subprocess.Popen(
                [*START, "serve", "--config", self.volume.path(), "--unknown-keys", "warn"],
                env=environment(), cwd=folder, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            )  # fmt: skip
        self.addresses: dict[str, list[str]] = {}

    def write(self, **more: Any) -> None:
        self.volume.write(breakers=yaml.safe_dump({**self.document, **more}))

    async def started(self) -> None:
        """What the startup probe waits for."""
        await self.listening()
        port = int(self.addresses["probe"][0].rpartition(":")[2])
        assert (await call(port, "/readyz")).status == 200


@pytest.fixture
async def sidecar(tmp_path, upstream):
    made: list[Sidecar] = []

    async def begin(**top: Any) -> Sidecar:
        one = Sidecar(tmp_path / f"pod-{len(made)}", {"up": base(upstream.url)}, **top)
        made.append(one)
        await one.started()
        return one

    yield begin
    await Caller.close_all()
    for one in made:
        await one.end()


def streaming(go: asyncio.Event):
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(STREAM_HEAD, chunk(delta("a")))
        await go.wait()
        await visit.send(chunk(delta("b", "stop")), chunk(DONE), b"0\r\n\r\n")

    return script


async def test_f129_a_pod_from_its_start_to_its_end(sidecar, upstream):
    upstream.script = says(OK)
    one = await sidecar()
    # The agent starts as soon as the startup probe passed, and does not try twice.
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", AGENT, f"http://127.0.0.1:{one.port}/up/v1/chat/completions"
    )
    assert await agent.wait() == 0
    one.signal(signal.SIGTERM)
    assert await one.exit_code(PROMPTLY) == 0
    assert [line["event"] for line in one.lines()][-1] == "daemon.stopped"


async def test_a_stop_waits_for_streams_and_no_longer(sidecar, upstream):
    go = asyncio.Event()
    upstream.script = streaming(go)
    one = await sidecar(drain={"timeout": "30s"})
    callers = [await open_stream(one.port) for _ in range(5)]
    for caller in callers:
        await caller.head()
    one.signal(signal.SIGTERM)
    await until(lambda: one.lines("daemon.draining"))
    go.set()
    for caller in callers:
        assert (await caller.reader.readuntil(b"0\r\n\r\n")).endswith(DONE + b"\r\n0\r\n\r\n")
    assert await one.exit_code(PROMPTLY) == 0


async def test_what_the_grace_period_cuts_is_no_whole_answer(sidecar, upstream):
    upstream.script = streaming(asyncio.Event())
    one = await sidecar(drain={"timeout": "500ms"})
    callers = [await open_stream(one.port) for _ in range(5)]
    for caller in callers:
        await caller.head()
    one.signal(signal.SIGTERM)
    for caller in callers:
        raw = await caller.reader.read()
        assert DONE not in raw
        assert not raw.endswith(b"0\r\n\r\n")
    assert await one.exit_code(PROMPTLY) == 0


async def test_f131_calls_go_on_until_the_sidecar_itself_is_told(sidecar, upstream):
    """The agent's own preStop may still call: a native sidecar hears of the end last."""
    upstream.script = says(OK)
    one = await sidecar()
    for _ in range(3):
        body = b'{"model": "gpt-x"}'
        kind = ("Content-Type", "application/json")
        assert (await call(one.port, "/up/v1/chat/completions", "POST", body, kind)).status == 200
    one.signal(signal.SIGTERM)
    assert await one.exit_code(PROMPTLY) == 0


async def test_f121_an_edit_of_the_configmap_is_live_without_a_signal(sidecar, upstream):
    upstream.script = says(OK)
    one = await sidecar()
    before = (await document(one))["config"]
    assert (await call(one.port, "/second/x")).status == 404

    # While a call is under way, which the edit must not disturb.
    go = asyncio.Event()
    upstream.script = streaming(go)
    caller = await open_stream(one.port)
    await caller.head()
    both = {"up": base(upstream.url), "second": base(upstream.url)}
    one.write(providers=both)
    await until(lambda: one.lines("config.reloaded"), LIVE)
    upstream.script = says(OK)
    assert (await call(one.port, "/second/x")).status == 200
    now = (await document(one))["config"]
    assert now["generation"] == before["generation"] + 1
    assert now["hash"] != before["hash"]
    go.set()
    assert (await caller.reader.readuntil(b"0\r\n\r\n")).endswith(DONE + b"\r\n0\r\n\r\n")


async def test_a_bad_edit_leaves_the_old_and_says_so(sidecar, upstream):
    upstream.script = says(OK)
    one = await sidecar()
    before = (await document(one))["config"]
    one.write(providers={"up": {"upstream": "ftp://nowhere"}})
    await until(lambda: one.lines("config.refused"), LIVE)
    now = (await document(one))["config"]
    assert (now["generation"], now["hash"]) == (before["generation"], before["hash"])
    assert "providers.up.upstream" in now["error"]
    assert "ftp" not in (await admin(one, "/readyz")).body.decode()
    told = (await admin(one, "/metrics")).body
    assert b"breaker_sidecar_config_last_reload_successful 0\n" in told
    assert (await call(one.port, "/up/x")).status == 200
    # It is said once, and the next good edit is taken.
    one.write(providers={"up": base(upstream.url, mode="observe")})
    await until(lambda: one.lines("config.reloaded"), LIVE)
    assert (await document(one))["config"]["error"] is None
    assert len(one.lines("config.refused")) == 1


async def test_a_rotated_secret_is_live_too(sidecar, upstream, tmp_path):
    secrets = Volume(tmp_path / "secrets")
    secrets.write(token="first")
    plane = {"listen": "127.0.0.1:0", "token_file": secrets.path("token")}
    one = await sidecar(admin=plane)

    async def reset(token: str) -> int:
        headers = (("x-sidecar-admin", "1"), ("authorization", f"Bearer {token}"))
        return (await admin(one, "/breakers/up/reset", "POST", None, *headers)).status

    assert (await reset("first"), await reset("second")) == (200, 401)
    secrets.write(token="second")
    await until(lambda: one.lines("config.reloaded"), LIVE)
    assert (await reset("first"), await reset("second")) == (401, 200)


async def test_a_plain_file_waits_for_a_signal(tmp_path, upstream):
    upstream.script = says(OK)
    one = Daemon(tmp_path / "plain", {"up": base(upstream.url)})
    watched = Daemon(tmp_path / "watched", {"up": base(upstream.url)}, options=["--watch"])
    await one.listening()
    await watched.listening()
    for daemon in (one, watched):
        daemon.config.write_text(daemon.config.read_text() + "x-note: edited\n")
    await until(lambda: watched.lines("config.reloaded"), LIVE)
    assert not one.lines("config.reloaded")
    for daemon in (one, watched):
        await daemon.end()
