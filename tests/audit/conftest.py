from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.audit.audit import Audit, Report
from sidecar.audit.findings import Finding
from sidecar.audit.providers import plan_of
from sidecar.config.load import load
from sidecar.config.resolved import Provider
from sidecar.proxy.runtime import dialect_of

from .upstream import KEY, Started, Upstream


@pytest.fixture
async def started() -> AsyncIterator[Started]:
    """Starts upstreams."""
    running: list[Upstream] = []

    async def start(**options: Any) -> Upstream:
        upstream = Upstream(**options)
        await upstream.start()
        running.append(upstream)
        return upstream

    yield start
    for upstream in running:
        await upstream.stop()


def provider(folder: Path, upstream: str, **more: Any) -> Provider:
    """A provider of a configuration file, as `audit` finds it."""
    import msgspec

    section = {"upstream": upstream, "dialect": "openai", **more}
    file = folder / "breakers.yaml"
    file.write_bytes(msgspec.yaml.encode({"providers": {"p": section}}))
    return load(file, environ={}).providers["p"]


async def audited(folder: Path, upstream: Upstream, key: str | None = KEY, **more: Any) -> Report:
    """The report of an audit that waits for nothing."""
    slept = more.pop("slept", [])

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    config = more.pop("config", {})
    given = provider(folder, upstream.url, **config)
    plan = more.pop("plan", None) or plan_of(dialect_of(given).name)
    audit = Audit(
        given, plan, own=key, key="none" if key is None else "KEY", sleep=sleep, timeout=5, **more
    )
    return await audit.run()


def found(report: Report, id_: str) -> Finding:
    """One finding."""
    return next(one for one in report.findings if one.id == id_)
