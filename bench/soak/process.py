"""The daemon and its upstream as processes: started, disturbed, read, ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

from bench import machine
from bench.peers import ROOT, clean_environment, listens
from bench.soak.inside import TRACE

CLIENT = 2.5
"""`timeouts.client`: after so many seconds a caller that is stuck is cut."""

TIMEOUTS = {
    "connect": "2s", "first_byte": "1500ms", "first_content": "1500ms", "idle": "1500ms",
    "keep_alive": "3s", "client": f"{int(CLIENT * 1000)}ms",
}  # fmt: skip
BREAKER = {"open_for": "500ms", "open_max": "1s"}


def document(listen: int, admin: int, upstream: int, *, turn: int = 0) -> dict[str, Any]:
    """The configuration; each turn is another one, and none of them changes what is promised."""
    url = f"http://127.0.0.1:{upstream}"
    up = {"upstream": url, "dialect": "openai"}
    providers: dict[str, Any] = {
        "calm": {**up, "limits": {"classify_body": f"{256 + turn % 2}KiB"}},
        "claude": {"upstream": url, "dialect": "anthropic"},
        "rough": up,
        "limited": {**up, "shedding": {"max_wait": "200ms"}},
        "spent": {**up, "shedding": {"quota": {"recheck": "1s"}}},
        "narrow": {
            **up,
            "limits": {"in_flight": 2, "request_body": "64KiB"},
            "shedding": {"max_queue": 2},
        },
        "retried": {**up, "retry": {"attempts": 2, "budget": 1, "methods": ["POST"]}},
    }
    providers["retried"]["retry"]["require_idempotency_key"] = False
    if turn % 3 != 2:
        # Comes and goes.
        providers["passing"] = {**up, "timeouts": {"keep_alive": "1s" if turn % 2 else "2s"}}
    return {
        "listen": f"127.0.0.1:{listen}",
        "admin": {"listen": f"127.0.0.1:{admin}"},
        "log": {"format": "json"},
        "drain": {"timeout": "5s"},
        "defaults": {"timeouts": TIMEOUTS, "breaker": BREAKER},
        "providers": providers,
        "dependencies": {
            "orders-db": {"source": "database", "vendor": "postgresql", "lease": "30s"}
        },
    }


Series = dict[tuple[str, ...], float]
Metrics = dict[str, Series]


def read_metrics(text: str) -> Metrics:
    """Prometheus's text as figures by name and values of labels."""
    found: Metrics = defaultdict(dict)
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        named, _, value = line.rpartition(" ")
        name, _, labels = named.partition("{")
        words = tuple(
            part.partition("=")[2].strip('"') for part in labels.rstrip("}").split('",') if part
        )
        found[name][words] = float(value)
    return found


class Daemon:
    """One daemon after the other on the same ports; each is a life.

    Args:
        folder: for its configuration and logs.
        upstream: the port of its upstream.
        core: where it runs.
        trace: it writes a line for every call.
    """

    def __init__(self, folder: Path, upstream: int, core: int, *, trace: bool) -> None:
        self.folder = folder
        self.port, self.admin = machine.lasting_ports(2)
        self.lives = 0
        self.turn = 0
        self.trace = folder / "trace" if trace else None
        (folder / "trace").unlink(missing_ok=True)
        self._core = core
        self._upstream = upstream
        self.process: subprocess.Popen[bytes] | None = None
        self.codes: list[int] = []

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def config(self) -> Path:
        return self.folder / "breakers.yaml"

    def write(self, *, broken: bool = False) -> None:
        """Another configuration; a broken one must change nothing."""
        text = yaml.safe_dump(document(self.port, self.admin, self._upstream, turn=self.turn))
        new = self.folder / "new.yaml"
        new.write_text(text + ("providers: [\n" if broken else ""))
        new.replace(self.config)

    def start(self) -> None:
        """Begins a life; returns once it is ready."""
        self.write()
        log = self.folder / f"daemon-{self.lives}.log"
        self.lives += 1
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bench.soak.inside", "serve", "--config", str(self.config)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env={**clean_environment(), TRACE: str(self.trace) if self.trace else ""},
                preexec_fn=lambda: os.sched_setaffinity(0, {self._core}),  # noqa: PLW1509
            )
        deadline = time.monotonic() + 15
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text()[-2000:])
            time.sleep(0.02)

    def _ready(self) -> bool:
        try:
            return bool(self.get("/readyz"))
        except OSError:
            return False

    def get(self, path: str) -> str:
        url = f"http://127.0.0.1:{self.admin}{path}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())

    def metrics(self) -> Metrics:
        return read_metrics(self.get("/metrics"))

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/status"))
        return found

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def stop(self) -> None:
        """Tells it to go, and waits until it has."""
        assert self.process is not None
        self.signal(signal.SIGTERM)
        self.codes.append(await asyncio.to_thread(self.process.wait, 30))

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    # -- what it wrote ----------------------------------------------------------------------

    def log(self, life: int) -> list[dict[str, Any]]:
        """The lines of a life; what is no JSON stands under `text`."""
        found = []
        for line in (self.folder / f"daemon-{life}.log").read_text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({"event": "", "text": line})
        return found

    async def inside(self) -> dict[str, dict[str, int]]:
        """Tasks and objects of calls that it holds now."""
        before = len(self.log(self.lives - 1))
        self.signal(signal.SIGUSR2)
        for _ in range(200):
            await asyncio.sleep(0.05)
            for line in self.log(self.lives - 1)[before:]:
                if line["event"] == "soak.inside":
                    return line
        raise RuntimeError("the daemon does not tell what it holds")


class UpstreamProcess:
    """The upstream, which may die at any time and comes back on the same port."""

    def __init__(self, folder: Path, core: int) -> None:
        (self.port,) = machine.lasting_ports(1)
        self.record = folder / "upstream-record"
        self.record.write_text("")
        self._core = core
        self._log = folder / "upstream.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bench.soak.upstream", str(self.port), str(self.record)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=clean_environment(),
                preexec_fn=lambda: os.sched_setaffinity(0, {self._core}),  # noqa: PLW1509
            )

    async def up(self) -> None:
        """Waits until somebody can connect."""
        while not await asyncio.to_thread(listens, self.port):
            await asyncio.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def ended(self) -> None:
        """Waits until the process is gone."""
        assert self.process is not None
        await asyncio.to_thread(self.process.wait)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def records(self) -> list[list[str]]:
        return [line.split() for line in self.record.read_text().splitlines()]
