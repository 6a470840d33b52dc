"""Daemons that are played, and nothing left open after a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sidecar.client import close, daemon

from .fake import Fake, letting_through


@pytest.fixture(autouse=True)
def _afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No daemon but the test's own, and no address of the machine's."""
    for name in ("ADMIN", "TOKEN", "TOKEN_FILE"):
        monkeypatch.delenv(f"BREAKER_SIDECAR_{name}", raising=False)
    monkeypatch.setattr(daemon, "_daemons", {})
    yield
    close()


@pytest.fixture
def fake() -> Iterator[Callable[..., Fake]]:
    started: list[Fake] = []

    def start(answer: Any = letting_through, **more: Any) -> Fake:
        started.append(Fake(answer, **more))
        return started[-1]

    yield start
    close()
    for one in started:
        one.close()
