"""Every recorded exception of an SDK comes out with class, code, retryability, wait and verdict."""

import pytest

from sidecar.envelope.raised import recorded
from sidecar.envelope.sdk import classify
from tests.cases import NOW, all_cases

CASES = all_cases("sdk-cases.jsonl")


def classify_case(case):
    return classify(
        recorded(case["error"]),
        sdk=case["sdk"],
        correlation_id="corr-1",
        now=float(case.get("now") or NOW),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_recorded(case):
    classified = classify_case(case)
    envelope, expect = classified.envelope, case["expect"]
    got = {
        "class": envelope.class_,
        "code": envelope.code,
        "retryable": envelope.retryable,
        "verdict": classified.verdict,
    }
    assert got == {name: expect[name] for name in got}, (classified.rule, envelope)
    if expect["retry_after"] is None:
        assert envelope.retry_after is None
    else:
        assert envelope.retry_after == pytest.approx(expect["retry_after"], abs=1)
    assert envelope.source == "sdk"
    assert envelope.correlation_id == "corr-1"
