"""Every form in which a person may paste an error."""

import base64
import gzip
import json
from typing import Any

import pytest

from sidecar.cli.recorded import NotBuiltError, RecordedError, read

NOW = 1_800_000_000.0


def given(**fields: Any) -> str:
    return json.dumps(fields)


def test_a_call_of_classify() -> None:
    recorded = read(
        given(
            source="http",
            dialect="openai",
            method="GET",
            path="/v1/models?limit=2",
            status=404,
            headers={"Content-Type": "application/json", "x-twice": ["a", "b"]},
            body='{"error": {}}',
            stream=False,
            now=7,
        ),
        NOW,
    )
    seen = recorded.seen
    assert (seen.status, seen.method, seen.path, seen.now) == (404, "GET", "/v1/models", 7.0)
    assert seen.headers.get("content-type") == "application/json"
    assert seen.headers.get_all("x-twice") == ["a", "b"]
    assert seen.body == b'{"error": {}}'
    assert (recorded.dialect, recorded.stream) == ("openai", False)


def test_the_status_alone_is_enough() -> None:
    recorded = read(given(status=503), NOW)
    seen = recorded.seen
    assert (seen.status, seen.method, seen.path, seen.body, seen.now) == (
        503,
        "POST",
        "/",
        b"",
        NOW,
    )
    assert (recorded.dialect, recorded.stream) == (None, None)


def test_a_line_of_the_recorded_cases() -> None:
    recorded = read(
        given(
            id="x",
            provider="anthropic",
            source="found somewhere, in prose",
            stream=True,
            request={"method": "POST", "path": "/v1/messages"},
            response={
                "status": 200,
                "headers": {"content-type": "text/event-stream"},
                "body": base64.b64encode(b"\x00\xff").decode(),
                "body_encoding": "base64",
            },
            expect={"class": "transient"},
        ),
        NOW,
    )
    assert recorded.seen.body == b"\x00\xff"
    assert recorded.seen.path == "/v1/messages"
    assert (recorded.dialect, recorded.stream) == ("anthropic", True)


def test_a_compressed_body_is_read_as_it_was_meant() -> None:
    body = base64.b64encode(gzip.compress(b'{"error": 1}')).decode()
    headers = {"Content-Encoding": "gzip"}
    seen = read(given(status=500, headers=headers, body=body, body_encoding="base64"), NOW).seen
    assert seen.body == b'{"error": 1}'
    assert read(given(status=500, headers=headers, body="text"), NOW).seen.body == b"text"


def test_a_body_may_be_pasted_as_json_and_headers_as_pairs() -> None:
    seen = read(given(status=500, headers=[["a", "1"], ["a", "2"]], body={"é": None}), NOW).seen
    assert json.loads(seen.body) == {"é": None}
    assert seen.headers.get_all("a") == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (given(source="database", vendor="postgresql", type="x"), "database"),
        (given(source="sdk", sdk="openai"), "sdk"),
        (given(id="x", vendor="mysql", error={}, source="observed, MySQL 8"), "database"),
        (given(id="x", sdk="boto3", error={}, source="botocore"), "sdk"),
    ],
)
def test_other_sources_are_not_built_and_it_says_so(text: str, source: str) -> None:
    with pytest.raises(NotBuiltError, match=f"source {source} .*not built in this version"):
        read(text, NOW)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no JSON"),
        ('{"status": 500}\n{"status": 501}', "2 lines where one error is expected"),
        ("[]", "JSON object"),
        ("{}", "status is missing"),
        (given(status=True), "status is missing"),
        (given(status=99), "status is missing"),
        (given(response={}), "status is missing"),
        (given(status=500, source="grpc"), "http, database or sdk"),
        (given(status=500, headers="x"), "headers"),
        (given(status=500, body="x", body_encoding="rot13"), "body_encoding"),
        (given(status=500, body="?", body_encoding="base64"), "no base64"),
        (given(status=500, path=3), "path"),
        (given(status=500, now="soon"), "now"),
        (given(status=500, dialect=3), "dialect"),
    ],
)
def test_what_is_no_recorded_error_says_what_is_missing(text: str, says: str) -> None:
    with pytest.raises(RecordedError, match=says):
        read(text, NOW)
