"""The field cases: a whole daemon between real sockets, with clocks that can be set."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar import clock
from sidecar.telemetry import logs
from sidecar.telemetry.lines import LineHandler
from tests.proxy.callers import Caller
from tests.proxy.conftest import start, upstream

from .process import Process

__all__ = ["start", "upstream"]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a developer's machine says about proxies is not tested here."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class Clocks:
    """Both of the daemon's clocks, each ahead of the machine's by what a test says."""

    monotonic = 0.0
    wall = 0.0

    def later(self, seconds: float) -> None:
        """Time passes, for both."""
        self.monotonic += seconds
        self.wall += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    ahead = Clocks()
    monkeypatch.setattr(clock, "monotonic", lambda: time.monotonic() + ahead.monotonic)
    monkeypatch.setattr(clock, "wall", lambda: time.time() + ahead.wall)
    return ahead


class Log:
    """The lines of the log, as a collector would read them."""

    def __init__(self, handler: LineHandler, stream: io.StringIO) -> None:
        self._handler = handler
        self._stream = stream

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        self._handler.flush()
        found = [json.loads(line) for line in self._stream.getvalue().splitlines()]
        return [line for line in found if event is None or line["event"] == event]


@pytest.fixture
def log() -> Iterator[Log]:
    root, ours = logging.getLogger(), logging.getLogger("sidecar")
    levels = root.level, ours.level
    stream = io.StringIO()
    handler = logs.setup("info", "json", stream)
    yield Log(handler, stream)
    root.removeHandler(handler)
    handler.close()
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """Starts daemons as real processes, from the top of a configuration."""
    started: list[Process] = []

    async def begin(providers: dict[str, Any], **top: Any) -> Process:
        one = Process(tmp_path / f"process-{len(started)}", providers, **top)
        started.append(one)
        await one.listening()
        return one

    yield begin
    await Caller.close_all()
    for one in started:
        await one.end()
