"""What an agent may send as a report."""

import json

import pytest

from sidecar.dependencies.reports import ReportError, read_object, read_report

ERROR = {"type": "psycopg.Error", "sqlstate": "40001", "cause": {"type": "OSError"}}


def given(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_both_forms() -> None:
    report = read_report(given(permit="db.1", ok=True))
    assert (report.permit, report.error) == ("db.1", None)
    report = read_report(given(permit="db.1", error=ERROR))
    assert report.error.sqlstate == "40001"
    assert report.error.cause.type == "OSError"
    assert read_report(given(permit="db.1", ok=False, error={})).error.type == "Exception"


def test_what_may_stand_beside_it() -> None:
    report = read_report(
        given(permit="p", ok=True, correlation_id="a b", duration=1.5, now=7, driver="psycopg", x=1)
    )
    assert (report.correlation_id, report.duration, report.now) == ("a_b", 1.5, 7.0)
    assert report.driver == "psycopg"


def test_what_is_wrong_beside_it_costs_no_report() -> None:
    error = {"type": 5, "mro": "x", "cause": [], "headers": 3}
    text = json.dumps({"permit": "p", "error": error, "correlation_id": 3, "driver": {}})
    for duration in ("-1", "NaN", "1e400", "true", '"soon"', "1" + "0" * 400):
        report = read_report(f'{text[:-1]}, "duration": {duration}}}'.encode())
        assert report.duration is None
        assert report.correlation_id is None
        assert report.error.type == "Exception"


@pytest.mark.parametrize(
    ("body", "says", "malformed"),
    [
        (b"{", "not JSON", True),
        (b"\xff\xfe{}", "not JSON", True),
        (b"[" * 100_000, "not JSON", True),
        (b"[]", "JSON object", True),
        (b"", "permit is missing", False),
        (given(ok=True), "permit is missing", False),
        (given(permit=3, ok=True), "permit is missing", False),
        (given(permit="", ok=True), "permit is missing", False),
        (given(permit="x" * 200, ok=True), "permit is missing", False),
        (given(permit="p"), "exactly one is needed", False),
        (given(permit="p", ok=False), "exactly one is needed", False),
        (given(permit="p", ok="yes"), "exactly one is needed", False),
        (given(permit="p", ok=[]), "exactly one is needed", False),
        (given(permit="p", ok=True, error={}), "exactly one is needed", False),
        (given(permit="p", error="boom"), "error is an object", False),
    ],
)
def test_what_is_no_report_says_what_to_change(body: bytes, says: str, malformed: bool) -> None:
    with pytest.raises(ReportError, match=says) as raised:
        read_report(body)
    assert raised.value.malformed is malformed


def test_an_empty_body_is_an_empty_object() -> None:
    assert read_object(b" \r\n") == {}
