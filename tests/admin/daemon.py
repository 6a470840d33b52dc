"""A daemon without a data plane: the real breakers, configuration and counters behind the view."""

import asyncio
from pathlib import Path
from typing import Any

from sidecar import clock
from sidecar.admin.server import AdminPlane, ReloadResult
from sidecar.breaker.model import Outcome
from sidecar.breaker.registry import Registry
from sidecar.config.addresses import Listen
from sidecar.config.load import load
from sidecar.config.resolved import Config
from sidecar.dependencies.guard import Dependencies
from sidecar.envelope.model import Verdict
from sidecar.faults.injector import Faults
from sidecar.proxy.runtime import breakers_of
from sidecar.telemetry.export import Export
from sidecar.telemetry.failures import Failures
from sidecar.telemetry.figures import Figures
from sidecar.telemetry.observer import Fact, Observer
from sidecar.telemetry.readings import NoPacing
from sidecar.telemetry.tally import Tally

PROVIDERS = """
providers:
  openai: {upstream: "https://api.openai.com", dialect: openai}
  private: {upstream: "https://llm.example/base", mode: observe, scope: provider}
  missing: {upstream: "${NOT_SET_ANYWHERE}"}
"""


class Daemon:
    """Everything that `DaemonView` asks for."""

    def __init__(self, folder: Path, text: str = PROVIDERS, token: str | None = None) -> None:
        self.facts: list[Fact] = []
        self.tally = Tally()
        self.failures = Failures()
        self.exports = Export(self, {})
        self.pacing = NoPacing()
        self.observer = Observer(self.tally, self.failures, self.facts.append)
        self.registry = Registry(self.observer.emit)
        self.started_at = 1_700_000_000.0
        self.generation = 1
        self.config_error: str | None = None
        self.network_down = False
        self.listening = True
        self.draining = False
        self.running: dict[str, int] = {}
        self.reloads = 0
        self.result = ReloadResult(generation=2, hash="abc", added=("groq",))
        self.reload_gate: asyncio.Event | None = None
        self.config = self._load(folder, text, token)
        self.faults = Faults(self.config.faults)
        self.figures = Figures((*self.config.providers, *self.config.dependencies))
        self.observer.add(self.figures)
        self.registry.configure(breakers_of(self.config), clock.monotonic())
        self.dependencies = Dependencies(self.config.dependencies, self.registry, self.observer)

    def _load(self, folder: Path, text: str, token: str | None) -> Config:
        if token is not None:
            (folder / "token").write_text(token)
        file = folder / "breakers.yaml"
        file.write_text(text)
        return load(file, environ={})

    def in_flight(self, provider: str) -> int:
        return self.running.get(provider, 0)

    async def settled(self) -> None:
        pass

    def telemetry_failures(self) -> int:
        return self.observer.failures

    def log_losses(self) -> tuple[int, int]:
        return 0, 0

    async def reload(self) -> ReloadResult:
        if self.reload_gate is not None:
            await self.reload_gate.wait()
        self.reloads += 1
        return self.result

    def fail(self, subject: str | None = "gpt-x", times: int = 5, provider: str = "openai") -> None:
        """Let calls of a model fail."""
        for _ in range(times):
            now = clock.monotonic()
            admission: Any = self.registry.admit(provider, subject, now)
            admission.first_byte(now)
            admission.settle(Outcome(Verdict.FAILURE, code="503", status=503), now)


LOOPBACK = Listen(host="127.0.0.1", port=0)


async def started(daemon: Daemon, listen: Listen = LOOPBACK) -> tuple[AdminPlane, str]:
    """An admin plane and where it listens."""
    plane = AdminPlane(daemon)
    (address,) = await plane.start([listen])
    return plane, address
