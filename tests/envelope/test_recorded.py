"""Every form in which a person may paste an error."""

import base64
import gzip
import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given as given_by_hypothesis
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sidecar.envelope.model import Source
from sidecar.envelope.raised import recorded
from sidecar.envelope.recorded import (
    RecordedAnswer,
    RecordedError,
    RecordedFailure,
    classify,
    read,
)

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


ERROR = {
    "type": "psycopg.errors.SerializationFailure",
    "mro": ["psycopg.OperationalError"],
    "code": None,
    "sqlstate": "40001",
    "args": ["could not serialize access"],
    "message": "could not serialize access",
    "attrs": {"diag.severity": "ERROR"},
    "cause": {"type": "OSError", "errno": 104, "exceptions": [{"type": "TimeoutError"}]},
    "headers": {"x-twice": ["a", "b"]},
    "body": {"any": ["thing"]},
}


@pytest.mark.parametrize(
    ("text", "source", "named"),
    [
        (
            given(source="database", vendor="postgresql", driver="psycopg", **ERROR),
            Source.DATABASE,
            ("postgresql", "psycopg", None),
        ),
        (given(source="database", error=ERROR), Source.DATABASE, (None, None, None)),
        (given(vendor="mysql", **ERROR), Source.DATABASE, ("mysql", None, None)),
        (given(source="sdk", sdk="openai", **ERROR), Source.SDK, (None, None, "openai")),
        (given(source="sdk", **ERROR), Source.SDK, (None, None, None)),
        (
            given(id="x", vendor="mysql", error=ERROR, source="observed, MySQL 8", tags=[]),
            Source.DATABASE,
            ("mysql", None, None),
        ),
        (given(sdk="boto3", error=ERROR, source="botocore"), Source.SDK, (None, None, "boto3")),
    ],
)
def test_every_form_of_an_exception(text: str, source: Source, named: tuple[Any, ...]) -> None:
    found = read(text, NOW)
    assert found.source is source
    assert (found.vendor, found.driver, found.sdk) == named
    assert found.raised.headers.get_all("x-twice") == ["a", "b"]
    assert found.raised.cause.exceptions[0].type == "TimeoutError"
    plain = recorded(ERROR)
    for field in plain.__struct_fields__:
        if field not in ("headers", "cause"):
            assert getattr(found.raised, field) == getattr(plain, field)
    assert found.now == NOW


def test_every_source_takes_now() -> None:
    for fields in ({"status": 503}, {"source": "database"}, {"sdk": "openai", "error": {}}):
        found = read(given(now=7, **fields), NOW)
        assert (found.seen if hasattr(found, "seen") else found).now == 7.0


def test_null_is_the_same_as_nothing() -> None:
    members = dict.fromkeys(ERROR)
    found = read(given(source="sdk", sdk=None, now=None, **members), NOW)
    assert found.raised == recorded({}) or found.raised.type == "Exception"
    assert read(given(status=500, headers=None, body=None, stream=None, dialect=None), NOW)


def test_the_correlation_id_goes_into_the_envelope() -> None:
    for fields in ({"status": 503}, {"source": "database"}, {"source": "sdk"}):
        found = classify(read(given(**fields), NOW), correlation_id="c-1")
        assert found.envelope.correlation_id == "c-1"
        assert found.envelope.source == fields.get("source", "http")


def test_a_stream_is_read_as_one() -> None:
    body = 'data: {"error": {"message": "overloaded", "type": "server_error"}}\n\n'
    fields = {"status": 200, "dialect": "openai", "body": body}
    marked = classify(read(given(stream=True, **fields), NOW))
    typed = classify(read(given(headers={"content-type": "text/event-stream"}, **fields), NOW))
    assert marked.envelope.class_ == typed.envelope.class_ == "transient"
    assert marked.verdict == typed.verdict == "failure"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no JSON"),
        ('{"status": 500}\n{"status": 501}', "2 lines where one error is expected"),
        ("[]", "JSON object"),
        ("{}", "status is missing"),
        (given(status=True), "status is a number from 100 to 999, not true"),
        (given(status=99), "status is a number from 100 to 999, not 99"),
        (given(response={}), "status is missing"),
        (given(status="503"), 'status is a number from 100 to 999, not "503"'),
        (given(status=500, source="grpc"), "http, database or sdk"),
        (given(status=500, headers="x"), "headers"),
        (given(status=500, body="x", body_encoding="rot13"), "body_encoding"),
        (given(status=500, body="?", body_encoding="base64"), "no base64"),
        (given(status=500, path=3), "path"),
        (given(status=500, now="soon"), "now"),
        (given(status=500, dialect=3), "dialect"),
        (given(status=500, stream="yes"), "stream is true or false"),
        (given(status=500, now=1e400), "now"),
        (given(status=500, now=-1), "now"),
        ('{"status": 500, "now": 1' + "0" * 400 + "}", "now"),
        (given(source=[1], status=500), "not a list"),
        (given(source="database", error="boom"), 'error is an object, not "boom"'),
        (given(status=500, stream=0), "stream is true or false"),
        (given(status=500, response=5), "response is an object, not 5"),
        (given(response={"status": 500}, request=[]), "request is an object, not a list"),
        (given(response={"status": 500, "body_encoding": {}}), "body_encoding"),
        (given(status=500.5), "status is a number from 100 to 999, not 500.5"),
        (given(source={}, sdk="openai"), "not an object"),
        (given(status=500, source="somewhere", response=None), "http, database or sdk"),
        (given(source="sdk", code=True), "code is text or a number"),
        (given(source="sdk", errno="1" * 40), "errno is a whole number"),
        (given(source="database", vendor=3), "vendor is a name"),
        (given(source="sdk", sdk=[]), "sdk is a name"),
        (given(source="database", type=5), "type is text"),
        (given(source="database", mro="x"), "mro is a list of dotted names"),
        (given(source="database", mro=[1]), "mro is a list of dotted names"),
        (given(source="database", sqlstate=40001), "sqlstate is text, not 40001"),
        (given(source="sdk", status="soon"), "status is a whole number"),
        (given(source="sdk", headers=[["a"]]), "headers is an object, or a list of pairs"),
        (given(source="sdk", args={}), "args is a list, not an object"),
        (given(source="sdk", cause={"cause": {"errno": "x"}}), "cause.cause.errno is"),
        (
            given(sdk="x", error={"exceptions": [{}, {"message": 1}]}),
            r"error.exceptions\[1\].message",
        ),
        (given(sdk="x", error={"exceptions": [1]}), "error.exceptions is a list of objects"),
    ],
)
def test_what_is_no_recorded_error_says_what_is_missing(text: str, says: str) -> None:
    with pytest.raises(RecordedError, match=says):
        read(text, NOW)


@pytest.mark.parametrize("deep", [900, 20_000, 200_000])
@pytest.mark.parametrize("member", ["body", "message", "headers", "cause", "exceptions", "args"])
@pytest.mark.parametrize("source", ["http", "sdk"])
def test_what_is_nested_too_deep_is_an_answer_too(deep: int, member: str, source: str) -> None:
    text = f'{{"source": "{source}", "status": 500, "{member}": {"[" * deep}{"]" * deep}}}'
    with suppress(RecordedError):
        assert classify(read(text, NOW)).envelope


def test_json_has_one_kind_of_number() -> None:
    answer = read(given(status=404.0), NOW)
    assert isinstance(answer, RecordedAnswer)
    assert answer.seen.status == 404
    raised = read(given(source="sdk", status=503.0, errno=111.0), NOW)
    assert isinstance(raised, RecordedFailure)
    assert (raised.raised.status, raised.raised.errno) == (503, 111)


def test_what_is_no_utf8_says_so() -> None:
    with pytest.raises(RecordedError, match="no UTF-8") as raised:
        read(b"\xff\xfe", NOW)
    assert raised.value.malformed


def test_an_unknown_dialect_names_the_nearest() -> None:
    with pytest.raises(RecordedError, match="no dialect 'anthropc': did you mean anthropic"):
        classify(read(given(status=500, dialect="anthropc"), NOW))
    with pytest.raises(RecordedError, match="a dialect is for answers over HTTP"):
        classify(read(given(source="sdk"), NOW), dialect="openai")


NAMES = st.sampled_from(
    ["type", "mro", "code", "sqlstate", "status", "headers", "body", "args", "message", "attrs",
     "errno", "phase", "cause", "exceptions", "error", "response", "request", "source", "vendor",
     "driver", "sdk", "dialect", "provider", "stream", "now", "body_encoding", "method", "path"]
)  # fmt: skip
WORDS = st.sampled_from(
    ["http", "database", "sdk", "postgresql", "mysql", "openai", "boto3-s3", "base64", "connect",
     "40001", "psycopg.Error", "openai.APIError", "botocore.exceptions.ClientError", "OSError", "8"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=12,
)


@given_by_hypothesis(st.dictionaries(NAMES, VALUES, max_size=12))
@hypothesis_settings(max_examples=400, deadline=None)
def test_whatever_is_sent_is_judged_or_explained(document: dict[str, Any]) -> None:
    for source in ({}, {"source": "database"}, {"source": "sdk"}):
        try:
            found = classify(read(json.dumps(document | source), NOW), correlation_id="c-1")
        except RecordedError as error:
            told = str(error)
        else:
            told = ""
        if told:
            assert len(told) < 5_000
            continue
        envelope = found.envelope
        assert found.rule
        if envelope is not None:
            assert envelope.correlation_id == "c-1"
            assert len(envelope.code) <= 64
            assert len(envelope.message) <= 500
            json.loads(json.dumps(msgspec.to_builtins(envelope)))
