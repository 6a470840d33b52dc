"""The audit of servers that others wrote; servers.py has those that take longer to install."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from sidecar.audit.providers import PLANS
from tests.conftest import need

from .servers import BASELINES, SERVERS, Place


def test_a_stripe_that_somebody_else_wrote(tmp_path: Path) -> None:
    if importlib.util.find_spec("localstripe") is None:
        need("localstripe, of the group tests")
    done = Place(tmp_path, Path(sys.executable)).audit("localstripe")
    assert done.returncode == 0, done.stdout + done.stderr
    # Any key that begins as a key of Stripe's does is good there.
    assert "case wrong_key accepted" in done.stdout
    assert done.stdout.endswith("7 cases: 6 right, 1 accepted\n")
    assert "breaking" not in done.stdout
    assert "changed" not in done.stdout


@pytest.mark.parametrize("name", SERVERS)
def test_every_server_has_what_was_found_of_it(name: str) -> None:
    found = json.loads((BASELINES / f"{name}.json").read_text())
    assert found["provider"] == name
    assert found["dialect"] in PLANS
    assert found["cases"]
