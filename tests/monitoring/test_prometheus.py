"""A real Prometheus scrapes the demo: every query of the dashboard has an answer."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar.cli import demo
from tests.cli.conftest import free_port, wait_for
from tests.conftest import need

from .test_rules import FOLDER, RULES, TARGETS

IN_GRAFANA = {"$job": ".*", "$instance": ".*", "$provider": ".*", "$__rate_interval": "10s"}
STEP = 0.1


class Prometheus:
    """A server on a port of its own that scrapes one address."""

    def __init__(self, folder: Path, target: str) -> None:
        found = shutil.which("prometheus")
        if found is None:
            need("Prometheus is not installed: the dashboard's queries cannot be asked")
        self.port = free_port()
        config = folder / "prometheus.yml"
        job = {"job_name": "breaker-sidecar", "static_configs": [{"targets": [target]}]}
        pace = {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "1s"}
        rules = [str(FOLDER / "rules.yaml")]
        config.write_text(
            yaml.safe_dump({"global": pace, "rule_files": rules, "scrape_configs": [job]})
        )
        self.process = subprocess.Popen(
            [
                found,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--log.level=error",
            ],
            cwd=folder,
            stdin=subprocess.DEVNULL,
        )

    def ready(self) -> bool:
        try:
            self.ask("status/buildinfo")
        except OSError:
            return False
        return True

    def looking(self) -> bool:
        """Whether it has tried its target, in vain so far."""
        targets = self.ask("targets")["activeTargets"]
        return any(target["health"] != "unknown" for target in targets)

    def ask(self, path: str, **query: Any) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.loads(answer.read())["data"]

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def scraped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the daemon which the demo will start."""
    data, admin = free_port(), free_port()
    monkeypatch.setattr(demo, "free_ports", lambda _: [data, admin])
    prometheus = Prometheus(tmp_path, f"127.0.0.1:{admin}")
    try:
        wait_for(lambda: prometheus.ready() or prometheus.process.poll() is not None)
        assert prometheus.process.poll() is None
        wait_for(prometheus.looking)
        yield prometheus
    finally:
        prometheus.stop()


def test_every_query_of_the_dashboard_has_an_answer_in_the_demo(
    scraped: Prometheus, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.time()
    demo.execute(argparse.Namespace(fast=True))
    ended = time.time()
    assert "model_not_found" in capsys.readouterr().out
    silent = []
    for title, expression in TARGETS:
        for variable, value in IN_GRAFANA.items():
            expression = expression.replace(variable, value)
        found = scraped.ask("query_range", query=expression, start=began, end=ended, step=STEP)
        if not any(series["values"] for series in found["result"]):
            silent.append(f"{title}: {expression}")
    assert silent == []
    rules = [rule for group in scraped.ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == sum(len(group["rules"]) for group in RULES["groups"])
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
    (target,) = scraped.ask("targets")["activeTargets"]
    assert target["labels"]["job"] == "breaker-sidecar"
