"""A daemon and its admin plane on a free port."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .daemon import Daemon, started


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path)


@pytest.fixture
async def address(daemon: Daemon) -> AsyncIterator[str]:
    plane, where = await started(daemon)
    yield where
    await plane.stop()
