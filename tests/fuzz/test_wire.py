"""A few rounds of hostile exchanges over sockets, and those that broke something once."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import wire
from .wire import Play


@pytest.mark.parametrize("file", wire.kept(), ids=lambda file: file.name)
async def test_what_was_found(file: Path) -> None:
    plays = [Play.from_json(line) for line in file.read_text().splitlines()]
    assert await wire._alone(plays) == []


@pytest.mark.parametrize("seed", [1, 2])
async def test_some_rounds(seed: int) -> None:
    outcome = await wire.run(seed, rounds=2, at_once=32)
    assert outcome.broken == []
    assert outcome.plays == 64
    assert outcome.good > 20
