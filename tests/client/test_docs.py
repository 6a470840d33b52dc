"""docs/retry.md and docs/clients.md know what there is."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

import sidecar.client
from sidecar.client import Budget, Policy, retry
from sidecar.client.repeatable import NEVER_BEGUN

DOCS = Path(__file__).resolve().parents[2] / "docs"
RETRY = (DOCS / "retry.md").read_text()
BOTH = RETRY + (DOCS / "clients.md").read_text()


@pytest.mark.parametrize("field", fields(Policy), ids=lambda field: field.name)
def test_every_bound_and_its_default(field) -> None:
    row = re.search(rf"^\| `Policy\.{field.name}` \| ([^ |,]+)", RETRY, re.MULTILINE)
    assert row, field.name
    assert row[1] == str(field.default).lower().removesuffix(".0"), field.name


@pytest.mark.parametrize("code", NEVER_BEGUN)
def test_every_code_of_what_was_never_begun(code: str) -> None:
    assert f"`{code}`" in RETRY


@pytest.mark.parametrize("name", sidecar.client.__all__)
def test_every_name(name: str) -> None:
    if name not in {"Entry", "Guard", "Retry", "Counts", "close", "envelope_of"}:
        assert re.search(rf"\b{name}\b", BOTH), name


def test_the_options() -> None:
    for name in ("repair", "refresh", "timeout", "budget", "sleep", "clock", "random", "make_key"):
        assert name in inspect.signature(type(retry())).parameters
        assert name in RETRY
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(Budget).parameters.items()
    }
    shown = ", ".join(f"{name}={defaults[name]:g}" for name in ("ratio", "per_second", "burst"))
    assert f"`Budget({shown})`" in RETRY
