"""The measurements still run. What they measure is never asserted here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_a_quick_run(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = ["-m", "bench", "--quick", "--scenarios", "post,breaker_open", "--json", str(figures)]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "sidecar" in done.stdout
    assert json.loads(figures.read_text())
