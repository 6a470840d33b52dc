"""An injected answer is the provider's own, and is found to be what was asked for."""

from __future__ import annotations

import json

import pytest

from sidecar.cli import main
from sidecar.envelope import dialects
from sidecar.envelope.http import classify
from sidecar.envelope.model import ErrorClass, Headers, Seen
from sidecar.faults import answers, failing_events
from sidecar.faults.matrix import PATHS, rows
from sidecar.faults.native import WAIT

NAMES = sorted(dialects.NAMES)
WAITS = {
    "airtable": 30.0,
    **dict.fromkeys(("aws-edge", "bedrock", "envoy", "google-apis", "nginx"), None),
    **dict.fromkeys(("salesforce", "stripe"), None),
}
"""What is known of the wait where the answer itself does not tell it."""


@pytest.mark.parametrize("name", NAMES)
def test_expected_is_actual(name) -> None:
    found = list(rows(dialects.get(name)))
    assert len(found) >= len(ErrorClass)
    for row in found:
        assert row.right, row
        if row.expected == "rate_limit" and row.as_ == "answer":
            assert row.retry_after == WAITS.get(name, WAIT), row


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_ours_is_left_in_it(name) -> None:
    dialect = dialects.get(name)
    path = PATHS.get(name, "/v1/chat/completions")
    for class_ in ErrorClass:
        told = answers.answer(dialect, class_, path)
        assert b'"envelope"' not in told.body
        assert b"sidecar" not in told.body
        assert not any(key.startswith("x-sidecar") for key, _ in told.headers)
        if class_ in failing_events.said_in_streams(dialect):
            assert b'"envelope"' not in failing_events.stream_event(dialect, class_, path)


@pytest.mark.parametrize("wait", [0.25, 1.0, 90.0])
@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini", "bedrock", "slack", "github"])
def test_a_wait_of_ones_own(name, wait) -> None:
    dialect = dialects.get(name)
    path = PATHS.get(name, "/v1/chat/completions")
    told = answers.answer(dialect, ErrorClass.RATE_LIMIT, path, wait=wait)
    seen = Seen(status=told.status, headers=Headers(told.headers), body=told.body, path=path)
    envelope = classify(seen, dialect).envelope
    assert envelope.retry_after == pytest.approx(wait, abs=0.01)


def test_a_code_and_a_status_of_ones_own() -> None:
    told = answers.answer(
        dialects.get("openai"), ErrorClass.PERMANENT, "/v1/chat/completions",
        status=503, code="insufficient_quota", message="Check your plan.",
    )  # fmt: skip
    assert told.status == 503
    assert json.loads(told.body)["error"]["code"] == "insufficient_quota"
    assert json.loads(told.body)["error"]["message"] == "Check your plan."


def test_the_command(capsys) -> None:
    assert main(["faults", "matrix", "openai"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[-1] == "10 injected, 10 as expected"
    assert main(["faults", "matrix", "all", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["dialect"] for row in found} >= {"openai", "anthropic", "slack"}
    assert all(row["right"] for row in found)
    assert main(["faults", "matrix", "nobody"]) == 2
