"""More cases of the kinds that were recorded: other codes, statuses, wordings and shapes.

They were written from the providers' documentation and from answers quoted in public issues, in the
form of the recorded ones. A rule that fits one case's text alone fails here.
"""

import json
from pathlib import Path

import pytest

from sidecar.envelope.decode import decode, decode_wrapped
from sidecar.envelope.dialects import get
from sidecar.envelope.fields import is_prose, last_segment, normal
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.model import Seen
from sidecar.envelope.retry_after import from_headers, from_prose
from tests.cases import NOW, classify_case
from tests.envelope.test_cases import check, ids

_FILES = [
    Path(__file__).with_name("kinds.jsonl"),
    *sorted(Path(__file__).with_name("kinds").glob("*.jsonl")),
]
CASES = [json.loads(line) for file in _FILES for line in file.read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_kind(case):
    check(case, classify_case(case))


@pytest.mark.parametrize("piece", [1, 7])
@pytest.mark.parametrize("case", [c for c in CASES if c.get("stream")], ids=ids)
def test_stream_in_pieces(case, piece):
    check(case, classify_case(case, piece=piece))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"errors": {"name": ["is required"]}}, "name: is required"),
        (
            {"title": "Not valid.", "errors": {"Age": ["must be positive"]}},
            "Not valid: Age: must be positive",
        ),
        (
            {"message": "Validation Failed", "errors": [{"field": "title", "code": "missing"}]},
            "Validation Failed (at title)",
        ),
        ({"errors": [{"detail": "must be int", "pointer": "#/age"}]}, "must be int (at #/age)"),
        ({"error": {"message": "bad", "param": ["messages", 0]}}, "bad (at messages.0)"),
        ({"message": ["a must be b", "c is d"], "error": "Bad Request"}, "a must be b; c is d"),
        ({"errorMessages": ["Field x is bad"], "errors": {}}, "Field x is bad"),
        (
            {"title": "bad", "invalid-params": [{"name": "age", "reason": "must be positive"}]},
            "bad: age: must be positive",
        ),
        (
            {"message": "Validation failed", "details": [{"field": "age", "issue": "negative"}]},
            "Validation failed: age: negative",
        ),
        (
            {"message": "invalid", "violations": [{"propertyPath": "age", "message": "negative"}]},
            "invalid: age: negative",
        ),
        (
            {"errors": [{"detail": "is bad", "source": {"pointer": "/data/attributes/age"}}]},
            "is bad (at /data/attributes/age)",
        ),
        (
            [{"message": "Required fields are missing", "fields": ["Name", "Age"]}],
            "Required fields are missing (at Name, Age)",
        ),
        ({"message": "no", "details": [{"@type": "x", "reason": "WORD"}]}, "no"),
        ({"detail": [{"loc": ["body", "n"], "msg": "required"}]}, "body.n: required"),
        ({"error": {"message": "bad", "path": "/v1/things"}}, "bad"),
        ({"message": {"name": ["has already been taken"]}}, "name: has already been taken"),
        (
            {"error": {"message": "Invalid input", "code": 2001, "errors": ["Title is empty."]}},
            "Invalid input: Title is empty.",
        ),
        ({"errors": "[API] This action requires approval"}, "[API] This action requires approval"),
        (
            {"error": "Bad Request", "details": [{"path": ["url"], "message": "not a URL"}]},
            "Bad Request: url: not a URL",
        ),
        (
            {
                "error": "RecordInvalid",
                "description": "Record validation errors",
                "details": {"subject": [{"description": "cannot be blank", "error": "BlankValue"}]},
            },
            "Record validation errors: subject: cannot be blank",
        ),
        (
            {"errors": [{"error": {"code": "blank", "message": "is blank", "field": "name"}}]},
            "is blank (at name)",
        ),
        ({"status": 400, "err": "Invalid token"}, "Invalid token"),
        ({"status": {"error": "Wrong input"}, "time": 0.1}, "Wrong input"),
    ],
)
def test_the_message_names_what_is_at_fault(body, message):
    seen = Seen(status=400, headers=Headers(), body=json.dumps(body).encode(), now=NOW)
    assert classify(seen, get("generic")).envelope.message == message


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ('said: {"error": {"code": "c"}}', {"error": {"code": "c"}}),
        ("404 - {'error': {'code': 'c', 'n': None, 'ok': True}}",
         {"error": {"code": "c", "n": None, "ok": True}}),
        ("{'message': \"it's\", 'other': 'it\\'s'}", {"message": "it's", "other": "it's"}),
        ("b'{\\n \\\"code\\\": \\\"c\\\"}\\n'", {"code": "c"}),
        ("{'open", None),
        ("{'a': {1, 2}}", None),
        ("no braces", None),
        ("}{", None),
    ],
)  # fmt: skip
def test_what_gateways_wrap(text, inner):
    assert decode_wrapped(text) == inner


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": NaN, "b": -Infinity, "c": 1}', 1),
        (b'{"c": "half \\ud83d"}', "half \ufffd"),
        (b'{"c": "\\udc00 half"}', "\ufffd half"),
        (b'{"c": "\\ud83d\\ude00 \\ud800"}', "\U0001f600 \ufffd"),
    ],
)
def test_json_that_only_some_write(body, value):
    assert decode(body)["c"] == value


@pytest.mark.parametrize(
    ("reference", "segment"),
    [
        ("https://example.test/probs/out-of-credit", "out-of-credit"),
        ("https://example.test/probs/out-of-credit/?x=1", "out-of-credit"),
        ("https://example.test/types#quota-exceeded", "quota-exceeded"),
        ("https://example.test/", ""),
        ("/probs/out-of-credit", "out-of-credit"),
        ("probs/out-of-credit", "out-of-credit"),
        ("#out-of-credit", "out-of-credit"),
        ("urn:ietf:params:acme:error:rateLimited", "rateLimited"),
        ("tag:example.test,2026:out-of-credit", "out-of-credit"),
        ("out-of-credit", "out-of-credit"),
    ],
)
def test_the_last_segment_of_a_type(reference, segment):
    assert last_segment(reference) == segment


def test_a_code_with_a_slash_is_a_code():
    assert normal("auth/invalid-email") == "auth/invalid_email"
    assert not is_prose("a" * 500)
    assert not is_prose("tag:example.test,2026:x")


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("Please wait 30 seconds and try again", 30),
        ("Please wait for about 2 minutes", 120),
        ("wait a moment", None),
    ],
)
def test_prose_that_says_wait(text, wait):
    found = from_prose(text)
    assert (found and found[0]) == wait


def test_milliseconds_that_read_as_an_epoch():
    headers = Headers([("retry-after-ms", str(int(NOW * 1000) + 60_000))])
    assert from_headers(headers, NOW)[0] == pytest.approx(60)
