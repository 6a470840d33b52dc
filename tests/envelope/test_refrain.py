"""What repeats a content event is content, whatever its text: nothing that means more is passed over."""

from __future__ import annotations

import json
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.envelope.dialects import get
from sidecar.envelope.headers import Headers
from sidecar.envelope.model import Seen
from sidecar.envelope.refrain import LESSONS, Refrain
from sidecar.envelope.stream import StreamReader

CHAT = (
    'data: {"id":"c-1","model":"gpt-4.1","choices":[{"index":0,"delta":{"content":%s},'
    '"finish_reason":null}],"obfuscation":%s}\n\n'
)
RESPONSES = (
    'event: response.output_text.delta\ndata: {"type":"response.output_text.delta",'
    '"sequence_number":%d,"delta":%s,"logprobs":[]}\n\n'
)
CLAUDE = (
    'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    '"delta":{"type":"text_delta","text":%s}}\n\n'
)
TEXTS = st.text(max_size=20) | st.sampled_from(
    ["error", '"', "\\", '\\"', "[DONE]", "a\nb", "}", ""]
)


def told(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def learned(event: str) -> Refrain:
    refrain = Refrain()
    refrain.learn(event.encode())
    return refrain


@given(TEXTS, TEXTS)
def test_a_text_without_quotes_is_nothing_new(text, other) -> None:
    refrain = learned(CHAT % (told("Hello"), told("xyz")))
    event = CHAT % (told(text), told(other))
    assert refrain.repeats(event.encode("utf-8", "surrogatepass")) == ('"' not in text + other)


@pytest.mark.parametrize(
    ("known", "event"),
    [
        (RESPONSES % (4, told("In")), RESPONSES % (1234, told(" the"))),
        (CLAUDE % told("In"), CLAUDE % told(" the error")),
    ],
)
def test_the_forms_of_others(known, event) -> None:
    assert learned(known).repeats(event.encode())


@pytest.mark.parametrize(
    "event",
    [
        (CHAT % (told("a"), told("b"))).replace("null", '"stop"'),
        (CHAT % (told("a"), told("b"))).replace('"index":0', '"index":1'),
        (CHAT % (told("a"), told("b"))).replace("}]", "}],"),
        (CHAT % (told("a"), told("b"))) * 2,
        (CHAT % (told("a"), told("b")))[:-1],
        "\n" + CHAT % (told("a"), told("b")),
        CHAT % ('"a\n\nevent: error\ndata: {"', told("b")),
        CHAT % ('"a\revent: error\rdata: "', told("b")),
        CHAT % ('"a","error":{"message":"b"},"x":""', told("b")),
        "data: [DONE]\n\n",
        "",
    ],
)
def test_what_is_another_event(event) -> None:
    assert not learned(CHAT % (told("Hello"), told("xyz"))).repeats(event.encode())


@pytest.mark.parametrize("number", ["", "-1", "1.5", '{"a":1', '"7"', "7 ", "\n7"])
def test_a_number_is_digits(number) -> None:
    refrain = learned(RESPONSES % (4, told("In")))
    event = (RESPONSES % (4, told("In"))).replace(":4,", f":{number},")
    assert not refrain.repeats(event.encode())


def test_nothing_is_learned_from_what_has_no_text_or_from_too_many() -> None:
    refrain = learned("data: {}\n\n")
    assert not refrain.repeats(b"data: {}\n\n")
    assert not refrain.repeats(b"")
    for _ in range(LESSONS):
        refrain.learn((CLAUDE % told("a")).encode())
    refrain.learn((CHAT % (told("a"), told("b"))).encode())
    assert refrain.repeats((CLAUDE % told("b")).encode())


PIECES = st.lists(
    st.builds(lambda a, b: CHAT % (told(a), told(b)), TEXTS, TEXTS)
    | st.builds(lambda a: CLAUDE % told(a), TEXTS)
    | st.sampled_from(
        [
            "data: [DONE]\n\n",
            'data: {"error":{"message":"overloaded","type":"server_error","code":null}}\n\n',
            CHAT % (told("a"), '""},"error":{"message":"x","code":"server_error"'),
            (CHAT % (told(""), told(""))).replace('"finish_reason":null', '"finish_reason":"stop"'),
            ": ping\n\n",
        ]
    ),
    max_size=8,
)


@pytest.mark.interpreted
@given(PIECES, st.sampled_from(["openai", "anthropic", "auto", "generic"]))
def test_a_stream_means_the_same_without_it(pieces, name) -> None:
    def read() -> tuple[object, ...]:
        seen = Seen(
            status=200,
            headers=Headers.from_raw([(b"Content-Type", b"text/event-stream")]),
            body=b"",
            method="POST",
            path="/v1/chat/completions",
        )
        reader = StreamReader(get(name), seen)
        for piece in pieces:
            reader.feed(piece.encode("utf-8", "surrogatepass"))
        end = reader.finish(clean=True)
        envelope = end.envelope
        code = (envelope.class_, envelope.code, envelope.message) if envelope else None
        return end.verdict, end.rule, code, reader.content, reader.done, reader.terminated

    whole = read()
    with mock.patch.object(Refrain, "repeats", return_value=False):
        assert read() == whole
