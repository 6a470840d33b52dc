"""All upstreams unreachable at once, in a network namespace of its own: this machine's fault.

The namespace has loopback and no route. The daemon in it is reached over Unix sockets, which know
no namespaces. The network returns as the upstreams' addresses, behind which a server has been
waiting all along.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import need
from tests.proxy.callers import Caller, chat, request

from .process import START, Process
from .scene import until

ONE, TWO, PORT = "203.0.113.1", "198.51.100.1", 8080
SERVER = f"""
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{{}}")
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("0.0.0.0", {PORT}), Handler).serve_forever()
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def namespace() -> Iterator[str]:
    if shutil.which("ip") is None:
        need("ip of iproute2 makes the network namespace, and is not installed")
    name = f"breakers-{os.getpid()}"
    try:
        ip("netns", "add", name)
    except subprocess.CalledProcessError:
        need("a network namespace needs CAP_SYS_ADMIN and CAP_NET_ADMIN, which this user has not")
    try:
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        ip("netns", "del", name)


@pytest.fixture
def server(namespace: str) -> Iterator[None]:
    """Waits in the namespace for the network's return."""
    running = subprocess.Popen(["ip", "netns", "exec", namespace, sys.executable, "-c", SERVER])
    yield
    running.kill()
    running.wait()


class Unix:
    """A daemon that is spoken to over Unix sockets."""

    def __init__(self, folder: Path) -> None:
        self.calls, self.admin = folder / "calls", folder / "admin"

    async def ask(self, where: Path, raw: bytes):
        caller = Caller(*await asyncio.open_unix_connection(str(where)))
        try:
            await caller.send(raw)
            return await caller.answer()
        finally:
            await caller.closed()

    async def call(self, provider: str, n: int = 0):
        raw = request(
            f"/{provider}/v1/chat/completions",
            "POST",
            chat(n=n),
            ("Content-Type", "application/json"),
        )
        return await self.ask(self.calls, raw)

    async def status(self):
        return json.loads((await self.ask(self.admin, request("/status"))).body)


def states(document: dict) -> set[str]:
    return {
        breaker["state"]
        for provider in document["providers"].values()
        for breaker in provider["breakers"].values()
    }


async def test_without_a_route_no_breaker_moves_and_it_is_over_when_it_returns(
    namespace: str, server: None, tmp_path: Path
) -> None:
    daemon = Unix(tmp_path)
    process = Process(
        tmp_path / "process",
        {
            "one": {"upstream": f"http://{ONE}:{PORT}", "dialect": "openai"},
            "two": {"upstream": f"http://{TWO}:{PORT}", "dialect": "openai"},
            "named": {"upstream": "http://api.named.example", "dialect": "openai"},
        },
        command=["ip", "netns", "exec", namespace, *START],
        listen=f"unix:{daemon.calls}",
        admin={"listen": f"unix:{daemon.admin}"},
    )
    try:
        await process.listening()
        for n in range(20):
            found = await daemon.call(("one", "two", "named")[n % 3], n)
            assert (found.status, found.get("x-sidecar-decision")) == (503, "local_network")
            assert found.envelope["code"] == "local_network_down"
        down = await daemon.status()
        assert down["network"] == "down"
        assert states(down) == {"closed"}
        assert process.lines("network.down")
        for address in (ONE, TWO):
            ip("-n", namespace, "addr", "add", f"{address}/32", "dev", "lo")
        returned = time.monotonic()
        while (await daemon.status())["network"] != "up":
            assert time.monotonic() - returned < 5, "recovery takes longer than promised"
            await asyncio.sleep(0.05)
        assert (await daemon.call("one")).status == (await daemon.call("two")).status == 200
        up = await daemon.status()
        assert states(up) == {"closed"}
        assert all(
            shot["opens"] == 0
            for one in up["providers"].values()
            for shot in one["breakers"].values()
        )
        await until(lambda: process.lines("network.up"))
    finally:
        await process.end()
