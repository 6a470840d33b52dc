"""A real Prometheus scrapes the daemon, and what it stores is what happened."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import urllib.parse
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import need
from tests.proxy.callers import call
from tests.proxy.upstreams import says

from .scene import CHAT, JSON, admin, ask, base, error


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        need(f"{name} is not installed: apt-get install prometheus")
    return found


class Prometheus:
    """A server that scrapes one target five times a second."""

    def __init__(self, folder: Path, target: int) -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = int(sock.getsockname()[1])
        config = {
            "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
            "scrape_configs": [
                {"job_name": "sidecar", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
            ],
        }
        file = folder / "prometheus.yml"
        file.write_text(json.dumps(config))
        self._log = (folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                _program("prometheus"),
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    async def ask(self, query: str) -> list[dict[str, Any]]:
        """The result of an instant query; nothing while the server starts."""
        path = "/api/v1/query?" + urllib.parse.urlencode({"query": query})
        try:
            found = await call(self.port, path, "GET")
        except (OSError, asyncio.IncompleteReadError):
            return []
        return found.json["data"]["result"] if found.status == 200 else []

    async def value(self, query: str) -> float | None:
        found = await self.ask(query)
        return float(found[0]["value"][1]) if len(found) == 1 else None

    async def has(self, query: str, wanted: float) -> None:
        """Waits until a query gives one value, and that one."""
        while await self.value(query) != wanted:
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        self._process.terminate()
        await asyncio.to_thread(self._process.wait)
        self._log.close()


@pytest.fixture
async def prometheus(tmp_path: Path) -> AsyncIterator[Any]:
    started: list[Prometheus] = []

    def begin(target: int) -> Prometheus:
        started.append(Prometheus(tmp_path, target))
        return started[-1]

    yield begin
    for one in started:
        await one.stop()


async def test_prometheus_scrapes_and_stores_what_happened(start, upstream, prometheus) -> None:
    running = await start({"up": base(upstream.url, breaker={"open_for": "300s"})})
    server = prometheus(running.admin_port)
    await server.has('up{job="sidecar"}', 1)
    state = 'breaker_sidecar_breaker_state{provider="up",model="gpt-x",state="open"}'
    await server.has('breaker_sidecar_breaker_state{provider="up",model="",state="open"}', 0)
    upstream.script = says(error(500))
    n = 0
    while (await ask(running, n=n)).get("x-sidecar-decision") != "breaker_open":
        n += 1
    failures = upstream.hits
    await server.has(state, 1)
    calls = 'sum(breaker_sidecar_calls_total{provider="up",verdict="failure"})'
    await server.has(calls, failures)
    await server.has('breaker_sidecar_refusals_total{decision="breaker_open",provider="up"}', 1)
    await server.has(
        'histogram_quantile(1, breaker_sidecar_upstream_duration_seconds_bucket{provider="up"})'
        " <= bool 10", 1,
    )  # fmt: skip
    # Nothing of what was scraped was thrown away, and every series has its metadata.
    scraped = await server.value("scrape_samples_scraped")
    kept = await server.value("scrape_samples_post_metric_relabeling")
    assert scraped == kept
    metadata = (await call(server.port, "/api/v1/metadata", "GET")).json["data"]
    known = metadata["breaker_sidecar_breaker_state"]
    assert known[0]["type"] == "gauge"
    assert metadata["breaker_sidecar_upstream_duration_seconds"][0]["type"] == "histogram"


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text"])
async def test_promtool_finds_nothing_to_complain_of(start, upstream, accept) -> None:
    running = await start({"up": base(upstream.url)})
    upstream.script = says(error(500, 'odd "code"'))
    body = json.dumps({"model": 'a "quoted" model, back\\slash'}).encode()
    await call(running.port, CHAT, "POST", body, JSON)
    found = await admin(running, "/metrics", "GET", None, ("Accept", accept))
    text = found.body
    assert found.get("content-type").startswith(accept)
    assert text.count(b'model="a \\"quoted\\" model') > 10
    if accept != "text/plain":
        # promtool reads the older format only; of the newer one it misses nothing but the names.
        text = text.replace(b"# EOF\n", b"")
        text = b"\n".join(line for line in text.split(b"\n") if not line.startswith(b"#"))
    checked = await asyncio.to_thread(
        subprocess.run,
        [_program("promtool"), "check", "metrics"],
        input=text,
        capture_output=True,
        check=False,
    )
    said = (checked.stderr + checked.stdout).decode()
    if accept == "text/plain":
        assert (checked.returncode, said) == (0, "")
    else:
        assert "error while" not in said, said
