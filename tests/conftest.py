"""What every test may ask for: the right to skip, which is not given everywhere."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from sidecar.compiled import compiled

ALLOWED = Path(__file__).parent / "allowed-skips.txt"

_skipped: dict[str, str] = {}


def need(reason: str) -> NoReturn:
    """Skips a test for want of something that the machine has not.

    Where `SIDECAR_ALLOW_SKIPS=0` the session fails for it, unless `allowed-skips.txt` lists the
    test: what nobody runs proves nothing.

    Args:
        reason: what is missing, and why the test needs it.
    """
    pytest.skip(reason)


def allowed_skips(text: str) -> dict[str, str]:
    """Ids of tests that may be skipped, each with its reason.

    Raises:
        ValueError: a line gives no reason.
    """
    allowed = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        test, mark, reason = line.partition(" # ")
        if not (mark and reason.strip()):
            raise ValueError(f"no reason is given for the skip of {test.strip()}")
        allowed[test.strip()] = reason.strip()
    return allowed


def _forbidden() -> dict[str, str]:
    if os.environ.get("SIDECAR_ALLOW_SKIPS") != "0":
        return {}
    allowed = allowed_skips(ALLOWED.read_text()) if ALLOWED.exists() else {}
    return {test: why for test, why in _skipped.items() if test not in allowed}


def _note(nodeid: str, report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    told = report.longrepr
    _skipped[nodeid] = str(told[2]) if isinstance(told, tuple) else str(told)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _note(report.nodeid, report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _note(report.nodeid, report)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _forbidden() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for test, why in _forbidden().items():
        terminalreporter.write_line(f"SKIPPED WITHOUT LEAVE {test}: {why}", red=True)


HANGS = 60.0
"""Seconds after which a test is taken to hang; no test asserts how fast anything is."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test that waits for ever fails and says where; what is compiled is left as it is."""
    if compiled():
        left_out = [item for item in items if item.get_closest_marker("interpreted")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("interpreted")]
    for item in items:
        if isinstance(item, pytest.Function):
            item.obj = _limited(item.obj)


def _limited(test: Callable[..., Any]) -> Callable[..., Any]:
    if not inspect.iscoroutinefunction(test):
        return test

    @functools.wraps(test)
    async def limited(*args: Any, **more: Any) -> None:
        async with asyncio.timeout(HANGS):
            await test(*args, **more)

    return limited
