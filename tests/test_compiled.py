"""What is compiled keeps the rules that compiling asks for, also while it runs interpreted."""

from __future__ import annotations

import importlib
import os
import pkgutil
import tomllib
from pathlib import Path

import pytest

import sidecar
from sidecar.compiled import compiled

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HOOK = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
MODULES = {f"sidecar.{name.replace('/', '.')}" for name in HOOK["modules"]}


def test_it_is_compiled_where_that_is_what_is_tested() -> None:
    if os.environ.get("SIDECAR_COMPILED") == "1":
        assert compiled()


def test_the_list_is_in_order_and_names_modules() -> None:
    assert HOOK["modules"] == sorted(HOOK["modules"])
    assert all((ROOT / f"sidecar/{name}.py").is_file() for name in HOOK["modules"])


@pytest.mark.parametrize("name", sorted(MODULES))
def test_it_runs_as_the_build_was_told(name: str) -> None:
    found = importlib.import_module(name).__file__
    assert found is not None
    assert found.endswith(".py") is not compiled()


def test_nobody_outside_derives_from_a_class_in_it() -> None:
    for module in pkgutil.walk_packages(sidecar.__path__, "sidecar."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in MODULES:
        for one in vars(importlib.import_module(name)).values():
            if isinstance(one, type) and one.__module__ == name:
                assert {derived.__module__ for derived in one.__subclasses__()} <= MODULES, one
