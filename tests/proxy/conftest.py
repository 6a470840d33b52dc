"""A whole daemon in the test's own loop, between real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar.config.load import load
from sidecar.daemon import Daemon, Options
from sidecar.telemetry.observer import CallFinished, Fault

from .callers import Caller
from .upstreams import Upstream


class Running:
    """A daemon under test, with what it reported."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.calls: list[CallFinished] = []
        self.faults: list[Fault] = []
        daemon.observer.add(self._hear)

    def _hear(self, fact: Any) -> None:
        if isinstance(fact, CallFinished):
            self.calls.append(fact)
        elif isinstance(fact, Fault):
            self.faults.append(fact)

    @property
    def port(self) -> int:
        return int(self.daemon.addresses["listen"][0].rpartition(":")[2])

    @property
    def admin_port(self) -> int:
        return int(self.daemon.addresses["admin"][0].rpartition(":")[2])

    def breaker(self, key: str) -> Any:
        from sidecar import clock

        provider = key.split("/", maxsplit=1)[0]
        found = self.daemon.registry.snapshots(provider, clock.monotonic())
        return next((shot for shot in found if shot.key == key), None)


Start = Callable[..., Awaitable[Running]]


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    server = Upstream()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts daemons; a provider is given by its upstream or by its whole section."""
    running: list[Running] = []

    async def begin(providers: dict[str, Any] | None = None, **top: Any) -> Running:
        sections = {
            name: {"upstream": one, "dialect": "openai"} if isinstance(one, str) else one
            for name, one in (providers or {}).items()
        }
        file = tmp_path / f"breakers-{len(running)}.yaml"
        document = {
            "listen": "127.0.0.1:0",
            "admin": {"listen": "127.0.0.1:0"},
            "providers": sections,
            **top,
        }
        file.write_text(yaml.safe_dump(document))
        options = Options(config=file)
        daemon = Daemon(options, load(file, environ={}))
        await daemon.start()
        running.append(Running(daemon))
        return running[-1]

    yield begin
    await Caller.close_all()
    for one in running:
        await one.daemon.close()
        assert not one.faults, [fault.error for fault in one.faults]
