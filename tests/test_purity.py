"""The two thinking packages import no loop, no sockets, no clock and no log."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "sidecar"
FORBIDDEN = {
    "aiohttp", "asyncio", "concurrent", "http.client", "http.server", "logging", "os", "random",
    "requests", "select", "selectors", "signal", "socket", "ssl", "subprocess", "threading",
    "time", "urllib.request", "sidecar.proxy", "sidecar.admin", "sidecar.daemon", "sidecar.clock",
    "sidecar.telemetry", "sidecar.config",
}  # fmt: skip
# The breaker draws its jitter from a function that is handed in; this is the default.
ALLOWED = {("breaker", "random")}
CLOCKS = {"now", "utcnow", "today", "time", "monotonic", "perf_counter"}

FILES = sorted((ROOT / "envelope").rglob("*.py")) + sorted((ROOT / "breaker").rglob("*.py"))


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports(path):
    package = path.relative_to(ROOT).parts[0]
    for name in imported(ast.parse(path.read_text())):
        for forbidden in FORBIDDEN:
            hit = name == forbidden or name.startswith(f"{forbidden}.")
            assert not hit or (package, forbidden) in ALLOWED, f"{path.name} imports {name}"
        if package == "envelope":
            assert not name.startswith("sidecar.breaker"), f"{path.name} imports {name}"
        elif name.startswith("sidecar."):
            assert name.startswith(("sidecar.breaker", "sidecar.envelope.model")), name


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_clock_is_read(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            named = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            assert not (node.func.attr in CLOCKS and named in {"datetime", "date", "time"}), path
