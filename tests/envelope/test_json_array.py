"""A JSON array that grows: its elements, however it is cut, and an end that is none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.envelope.dialects import get
from sidecar.envelope.headers import Headers
from sidecar.envelope.json_array import JsonArrayParser
from sidecar.envelope.model import Seen
from sidecar.envelope.stream import StreamReader
from tests.cases import NOW

STREAM = "/v1beta/models/gemini-x:streamGenerateContent"


def parsed(body, *cuts):
    parser, found, at = JsonArrayParser(), [], 0
    for cut in [*cuts, len(body)]:
        found += parser.feed(body[at : at + cut])
        at += cut
    return [json.loads(event.data) for event in found], parser


VALUES = [
    {"a": 'brackets "]}[{" and a \\ backslash', "b": [1, [2, {"c": []}]]},
    [],
    {"d": {}},
    [{"e": "\\"}],
]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("between", [b",", b",\r\n", b"\n,\n"])
def test_elements(indent, between):
    written = [json.dumps(value, indent=indent).encode() for value in VALUES]
    body = b"[" + between.join(written) + b"\n]\n"
    found, parser = parsed(body)
    assert found == VALUES
    assert not parser.pending
    for cut in range(len(body)):
        assert parsed(body, cut)[0] == VALUES
    assert parsed(body, *[1] * len(body))[0] == VALUES


def test_what_stands_in_no_array_and_arrays_in_a_row():
    assert parsed(b'{"a":1}\n{"b":2}[{"c":3}][{"d":4}]')[0] == [
        {"a": 1}, {"b": 2}, {"c": 3}, {"d": 4},
    ]  # fmt: skip
    assert parsed(b'[1, "x", null]')[0] == []


@pytest.mark.parametrize("body", [b"[", b'[{"a":1}', b'[{"a":1},', b'[{"a":"', b'[{"a":1},{'])
def test_an_open_bracket_is_a_cut(body):
    assert parsed(body)[1].pending


def test_an_element_larger_than_the_cap_is_left_out():
    parser = JsonArrayParser(max_element=100)
    found = parser.feed(b'[{"a":"' + b"x" * 500)
    found += parser.feed(b"x" * 500 + b'"},{"b":1}]')
    assert [event.data for event in found] == ['{"b":1}']
    assert parser.skipped == 1
    assert not parser.pending


@given(
    st.binary(max_size=200) | st.text('[]{}",\\ a1', max_size=60).map(str.encode), st.integers(1, 9)
)
def test_whatever_it_is_the_pieces_change_nothing(body, size):
    whole, one = JsonArrayParser(), JsonArrayParser()
    found = whole.feed(body)
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    assert [event for piece in pieces for event in one.feed(piece)] == found
    assert whole.pending == one.pending


def candidate(text, reason=None):
    one = {"content": {"parts": [{"text": text}], "role": "model"}}
    return {"candidates": [{**one, "finishReason": reason} if reason else one]}


ERROR = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}


@pytest.mark.parametrize(
    ("elements", "end", "code"),
    [
        ([candidate("a"), candidate("b", "STOP")], "]", None),
        ([candidate("a"), candidate("b", "SAFETY")], "]", None),
        ([candidate("a"), ERROR], "]", "overloaded"),
        ([candidate("a", "STOP"), ERROR], "]", "overloaded"),
        ([ERROR], "]", "overloaded"),
        ([candidate("a")], "]", "stream_truncated"),
        ([candidate("a")], "", "stream_truncated"),
        ([{"promptFeedback": {"blockReason": "SAFETY"}}], "]", "content_filtered"),
        ([], "]", "invalid_upstream_response"),
    ],
)
def test_a_stream_of_gemini(elements, end, code):
    body = ("[" + ",\r\n".join(json.dumps(one, indent=2) for one in elements) + end).encode()
    seen = Seen(
        status=200,
        headers=Headers([("content-type", "application/json; charset=UTF-8")]),
        path=STREAM,
        now=NOW,
    )
    stream = StreamReader(get("gemini"), seen)
    for at in range(0, len(body), 11):
        stream.feed(body[at : at + 11])
    envelope = stream.finish(clean=True).envelope
    assert (envelope and envelope.code) == code
