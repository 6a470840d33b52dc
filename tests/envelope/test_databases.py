"""Every recorded error of a database: what it means, and what of it may be seen."""

import pytest

from sidecar.envelope.database import classify
from sidecar.envelope.raised import recorded
from tests.cases import all_cases

CASES = all_cases("db-cases.jsonl")
FIELDS = ("class", "code", "retryable", "verdict")


def judged(case):
    found = classify(
        recorded(case["error"]),
        vendor=case["vendor"],
        driver=case["driver"],
        correlation_id="corr-1",
    )
    shown = {**found.envelope.for_model(), "verdict": found.verdict.value}
    return found, shown


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_recorded_errors(case):
    found, shown = judged(case)
    expected = case["expect"]
    assert {name: shown[name] for name in FIELDS} == {name: expected[name] for name in FIELDS}, (
        found.rule
    )
    if expected["retry_after"] is None:
        assert shown["retry_after"] is None
    else:
        assert shown["retry_after"] == pytest.approx(expected["retry_after"], abs=1)
