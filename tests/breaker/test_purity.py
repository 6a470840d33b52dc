"""The package decides from its arguments alone, so it must not be able to do anything else."""

import ast
from pathlib import Path

import pytest

import sidecar.breaker

FILES = sorted(Path(sidecar.breaker.__file__).parent.glob("*.py"))
ALLOWED = {
    "__future__",
    "collections",
    "collections.abc",
    "contextlib",
    "enum",
    "math",
    "msgspec",
    "pybreaker",
    "random",
    "sidecar.envelope.model",
    "typing",
}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_imports_nothing_that_waits_or_tells_the_time(path):
    foreign = {name for name in imported(path) if not name.startswith("sidecar.breaker.")}
    assert foreign <= ALLOWED


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_never_asks_pybreaker_for_more_than_its_state(path):
    tree = ast.parse(path.read_text())
    asked = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "cell"
    }
    assert asked <= {"open", "half_open", "close"}
