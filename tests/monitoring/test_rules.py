"""The rules and the dashboard as they ship: promtool takes them, and they name what there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar.telemetry.instruments import INSTRUMENTS, Kind
from tests.conftest import need

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "monitoring"
RULES = yaml.safe_load((FOLDER / "rules.yaml").read_text())
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
ALERTS = {
    rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule
}
RECORDS = {
    rule["record"]: rule for group in RULES["groups"] for rule in group["rules"] if "record" in rule
}
TARGETS = [
    (panel["title"], target["expr"])
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
]


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    found = shutil.which("promtool")
    if found is None:
        need("promtool is not installed: the rules cannot be checked as Prometheus reads them")
    return subprocess.run(
        [found, *arguments], cwd=FOLDER, check=False, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "arguments", [("check", "rules", "rules.yaml"), ("test", "rules", "rules-test.yaml")]
)
def test_promtool_is_content(arguments: tuple[str, ...]) -> None:
    done = promtool(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout


def test_every_alert_and_record_is_tested() -> None:
    tests = yaml.safe_load((FOLDER / "rules-test.yaml").read_text())["tests"]
    fired = {
        one["alertname"]
        for test in tests
        for one in test.get("alert_rule_test", [])
        if one["exp_alerts"]
    }
    assert fired == set(ALERTS)
    asked = " ".join(one["expr"] for test in tests for one in test.get("promql_expr_test", []))
    unasked = [name for name in RECORDS if name not in asked]
    # This one is tested through the alerts that are made of it.
    assert unasked == ["instance_provider_model:breaker_sidecar_open_time:ratio_rate10m"]


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_has_its_paragraph(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in ("info", "warning", "critical")
    annotations = alert["annotations"]
    assert annotations["runbook"] == f"docs/runbook.md#{name.lower()}"
    assert annotations["summary"]
    assert annotations["description"].endswith(".")
    section = RUNBOOK.partition(f"## {name}\n")[2].partition("\n## ")[0]
    assert re.search(r"^1\. ", section, re.MULTILINE) or "|---|" in section


def test_no_paragraph_is_about_an_alert_that_does_not_exist() -> None:
    assert set(re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)) == set(ALERTS)


def shown() -> dict[str, set[str]]:
    """Every name of a series with its labels."""
    series: dict[str, set[str]] = {}
    for one in INSTRUMENTS:
        if one.kind is Kind.HISTOGRAM:
            series[f"{one.shown}_bucket"] = {*one.labels, "le"}
        else:
            series[one.shown] = set(one.labels)
    return series


def selectors(expression: str) -> list[tuple[str, set[str]]]:
    """The names of series in an expression, each with the labels that it is selected by."""
    text = re.sub(r"\b(by|on|without|ignoring)\s*\([^)]*\)|\$\w+", " ", expression)
    found = re.findall(
        r"([a-z][a-z0-9_:]*_[a-z0-9_:]*)(\{[^}]*\})?", re.sub(r'"[^"]*"', '""', text)
    )
    return [
        (name, set(re.findall(r"(\w+)\s*[=!]", braces)))
        for name, braces in found
        if name != "histogram_quantile"
    ]  # fmt: skip


EXPRESSIONS: list[tuple[str, Any]] = [
    *TARGETS,
    *((name, rule["expr"]) for name, rule in (ALERTS | RECORDS).items()),
]


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_every_name_and_label_exists(where: str, expression: str) -> None:
    series, everywhere = shown(), {"job", "instance"}
    found = selectors(expression)
    if where != "BreakerSidecarDown":
        assert found
    for name, labels in found:
        if name in RECORDS:
            continue
        assert name in series, where
        assert labels <= series[name] | everywhere, where


def test_every_series_is_looked_at() -> None:
    """Nothing is measured that neither the dashboard nor a rule has a use for."""
    used = {name for _, expression in EXPRESSIONS for name, _ in selectors(expression)}
    unused = set(shown()) - used
    assert unused == {
        "breaker_sidecar_breaker_probes",
        "breaker_sidecar_config_generation",
        "breaker_sidecar_permits_expired_total",
        "breaker_sidecar_telemetry_exported_total",
        "process_start_time_seconds",
    }


def test_the_panels_lie_side_by_side() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"].endswith("."), panel["title"]
            assert panel["datasource"]["uid"] == "${datasource}"
