"""The race still runs, and its page and plots are written. What it measures is never asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

from bench import plot, race_report

ROOT = Path(__file__).resolve().parent.parent.parent


def test_a_short_race(tmp_path: Path) -> None:
    figures = tmp_path / "race.json"
    command = ["-m", "bench.race", "--quick", "--peers", "direct,sidecar,nobody", "--json"]
    done = subprocess.run(
        [sys.executable, *command, str(figures)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(figures.read_text())
    assert "nobody" in found["missing"]
    assert found["results"]["sidecar"]["typo_refused"] == 0
    (tmp_path / "images").mkdir()
    race_report.write(tmp_path / "page.md", found, None)
    page = (tmp_path / "page.md").read_text()
    assert "| sidecar" in page
    assert "| nobody | **missing** |" in page


def test_plots_are_well_formed() -> None:
    drawn = [
        plot.bars([("calls & more", {"one": 10.0, "two": 1000.0}, "{:,.0f}")], marked="one"),
        plot.curves("cost", {"breakers": [(1, 90.0), (1024, 91.0)]}),
    ]
    for text in drawn:
        ET.fromstring(text)
