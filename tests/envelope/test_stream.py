"""Streams: content, ends, errors on the way, and bytes that are none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.envelope.dialects import get
from sidecar.envelope.headers import Headers
from sidecar.envelope.model import Seen
from sidecar.envelope.stream import (
    StreamReader,
    begins_events,
    begins_lines,
    classify_stream,
    is_stream,
    plain_length,
)
from sidecar.envelope.vocabulary import OTHER_TERMINALS, TERMINAL_RESPONSES
from tests.cases import NOW

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


def reader(dialect="openai", path=CHAT, kind="text/event-stream"):
    seen = Seen(status=200, headers=Headers([("content-type", kind)]), path=path, now=NOW)
    return StreamReader(get(dialect), seen)


def chunk(delta, reason=None):
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + b"\n\n"


def event(kind, **fields):
    data = json.dumps({"type": kind, **fields})
    return f"event: {kind}\ndata: {data}\n\n".encode()


def test_opening_frames_are_not_content():
    stream = reader()
    stream.feed(b": keep-alive\n\n")
    stream.feed(chunk({"role": "assistant", "content": ""}))
    assert not stream.content
    stream.feed(chunk({"content": "x"}))
    assert stream.content
    assert not stream.done


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "x"},
        {"tool_calls": [{"index": 0}]},
        {"reasoning_content": "hm"},
        {"refusal": "no"},
    ],
)
def test_any_delta_beyond_the_role_is_content(delta):
    stream = reader()
    stream.feed(chunk({"role": "assistant", **delta}))
    assert stream.content


def test_anthropic_opening_frames():
    stream = reader("anthropic", MESSAGES)
    for piece in (
        event("message_start", message={"id": "m"}),
        event("ping"),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    ):
        stream.feed(piece)
        assert not stream.content
    stream.feed(event("content_block_delta", index=0, delta={"type": "text_delta", "text": "x"}))
    assert stream.content
    assert not stream.done
    stream.feed(event("message_stop"))
    assert stream.done
    assert stream.terminated


def test_responses_opening_frames():
    stream = reader("openai", RESPONSES)
    stream.feed(event("response.created", response={"id": "r", "error": None}))
    stream.feed(event("response.in_progress", response={"id": "r"}))
    assert not stream.content
    stream.feed(event("response.output_text.delta", delta="x"))
    assert stream.content
    stream.feed(event("response.completed", response={"id": "r", "error": None}))
    assert stream.terminated
    assert stream.finish(clean=True).verdict == "success"


@pytest.mark.parametrize("end", ["response.completed", "response.incomplete"])
def test_a_terminal_response_is_an_answer_even_if_the_connection_is_cut(end):
    stream = reader("openai", RESPONSES)
    stream.feed(event("response.output_text.delta", delta="x"))
    stream.feed(event(end, response={"id": "r"}))
    assert stream.finish(clean=False).verdict == "success"


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "content_filter"])
def test_a_finish_reason_is_an_end(reason):
    stream = reader()
    stream.feed(chunk({"content": "x"}))
    stream.feed(chunk({}, reason))
    assert stream.done
    assert not stream.terminated
    assert stream.finish(clean=True).verdict == "success"


@pytest.mark.parametrize(
    ("dialect", "path", "piece"),
    [
        ("openai", CHAT, chunk({"content": "x"})),
        ("openai", RESPONSES, event("response.output_text.delta", delta="x")),
        ("anthropic", MESSAGES, event("message_start", message={})),
        ("generic", "/elsewhere", chunk({"content": "x"})),
        ("auto", "/elsewhere", event("message_start", message={})),
    ],
)
@pytest.mark.parametrize("clean", [True, False])
def test_an_end_without_the_terminator_is_a_cut(dialect, path, piece, clean):
    stream = reader(dialect, path)
    stream.feed(piece)
    classified = stream.finish(clean=clean)
    assert classified.envelope.code == "stream_truncated"
    assert classified.envelope.class_ == "transient"
    assert classified.verdict == "failure"


def test_an_unknown_stream_ends_well_if_it_ends_cleanly():
    for clean, verdict in ((True, "success"), (False, "failure")):
        stream = reader("generic", "/events")
        stream.feed(b"event: tick\ndata: 1\n\n")
        assert stream.content
        assert stream.finish(clean=clean).verdict == verdict


@pytest.mark.parametrize("body", [b"", b"\n\n", b": ping\n\n"])
def test_an_empty_stream_is_no_answer(body):
    stream = reader()
    stream.feed(body)
    assert stream.finish(clean=True).envelope.code == "invalid_upstream_response"


def test_an_error_is_known_at_once_and_the_first_one_counts():
    stream = reader()
    stream.feed(chunk({"content": "x"}))
    stream.feed(b'data: {"error":{"message":"M","type":"server_error","code":null}}\n\n')
    assert stream.failed.envelope.code == "server_error"
    stream.feed(b'data: {"error":{"code":"insufficient_quota"}}\n\ndata: [DONE]\n\n')
    assert stream.finish(clean=True).envelope.code == "server_error"
    assert stream.failed.envelope.raw["body"].startswith('{"error"')


def test_what_a_model_writes_about_errors_is_content():
    stream = reader()
    said = '{"error": {"code": "insufficient_quota"}} event: error data: [DONE]'
    stream.feed(chunk({"content": said}))
    stream.feed(chunk({"content": json.dumps({"error": "x"}), "role": "assistant"}))
    stream.feed(chunk({}, "stop"))
    assert stream.failed is None
    assert stream.finish(clean=True).verdict == "success"


def test_error_null_is_no_error():
    stream = reader("openai", RESPONSES)
    stream.feed(event("response.output_text.delta", delta="x", error=None))
    stream.feed(event("response.completed", response={"error": None}))
    assert stream.finish(clean=True).verdict == "success"


@pytest.mark.parametrize(
    ("dialect", "path", "data", "class_", "code"),
    [
        ("openai", RESPONSES, {"type": "error", "code": "server_error", "message": "M"},
         "transient", "server_error"),
        ("openai", RESPONSES, {"type": "error", "code": None, "message": "M"},
         "transient", "stream_error"),
        ("openai", RESPONSES, {"type": "error", "error": {"code": "invalid_prompt"}},
         "validation", "invalid_prompt"),
        ("mistral", "/v1/conversations", {"type": "conversation.response.error", "code": 3000},
         "transient", "3000"),
        ("anthropic", MESSAGES, {"type": "error", "error": {"type": "overloaded_error"}},
         "transient", "overloaded"),
        ("anthropic", MESSAGES, {"type": "error", "error": {"type": "invalid_request_error"}},
         "validation", "invalid_request_error"),
    ],
)  # fmt: skip
def test_error_events(dialect, path, data, class_, code):
    stream = reader(dialect, path)
    stream.feed(b"event: error\ndata: " + json.dumps(data).encode() + b"\n\n")
    assert (stream.failed.envelope.class_, stream.failed.envelope.code) == (class_, code)


@pytest.mark.parametrize(
    ("sentence", "told", "expected"),
    [
        ("Client specified an invalid argument", "Bad tools", ("validation", "alive")),
        ("Client specified an invalid argument", "Incorrect API key", ("authentication", "alive")),
        ("Some resource has been exhausted", "Too many requests", ("rate_limit", "throttle")),
        ("Some resource has been exhausted", "Out of credits", ("permanent", "alive")),
        ("Some requested entity was not found", "No such thing", ("permanent", "alive")),
        ("The operation was aborted", "Try again", ("transient", "alive")),
        ("The service is currently unavailable", "No first token", ("transient", "failure")),
        ("A sentence of another day", "Who knows", ("transient", "failure")),
    ],
)
def test_a_stream_of_xai_has_no_status_but_a_sentence(sentence, told, expected):
    stream = reader("xai")
    stream.feed(b"data: " + json.dumps({"code": sentence, "error": told}).encode() + b"\n\n")
    classified = stream.finish(clean=True)
    assert (classified.envelope.class_, classified.verdict) == expected
    assert classified.envelope.code != "200"


def test_a_deepseek_overload_is_a_finish_reason():
    stream = reader("deepseek")
    stream.feed(chunk({"content": "x"}, "insufficient_system_resource"))
    assert stream.failed.envelope.code == "overloaded"
    assert stream.failed.verdict == "failure"


def test_lines():
    stream = reader("ollama", "/api/chat", "application/x-ndjson")
    stream.feed(b'{"message":{"content":"a"},"done":fal')
    stream.feed(b'se}\n{"done":true}\n')
    assert stream.content
    assert stream.terminated


def test_the_kind_is_told_by_the_bytes_where_the_type_does_not():
    stream = reader("ollama", "/api/chat", "application/json")
    stream.feed(b"\n")
    stream.feed(b'{"error":"boom"}\n')
    assert stream.failed is not None
    stream = reader("openai", CHAT, "text/plain")
    stream.feed(chunk({"content": "x"}, "stop"))
    assert stream.finish(clean=True).verdict == "success"


@pytest.mark.parametrize("space", [b" ", b"\n", b"\t \r\n", b"\xef\xbb\xbf ", b""])
def test_what_stands_before_the_first_word_is_dropped_however_it_is_cut(space):
    body = space + b'error\n\ndata: {"error": {"code": "quota_exceeded", "message": "M."}}\n\n'
    found = set()
    for cut in range(len(body)):
        stream = reader(kind="text/plain")
        stream.feed(body[:cut])
        stream.feed(body[cut:])
        found.add(stream.finish(clean=True).envelope.code)
    assert len(found) == 1


def test_a_huge_event_is_skipped_and_the_stream_read_on():
    stream = reader()
    stream.feed(b'data: {"choices":[{"delta":{"content":"')
    for _ in range(24):
        stream.feed(b"x" * 65536)
    stream.feed(b'"}}]}\n\n')
    stream.feed(chunk({}, "stop"))
    assert stream.finish(clean=True).verdict == "success"


@pytest.mark.parametrize(
    ("kind", "begin", "answer"),
    [
        ("text/event-stream; charset=utf-8", b"", True),
        ("application/x-ndjson", b"", True),
        ("application/jsonl", b"", True),
        ("application/json", b"data: {}", True),
        ("text/plain", b"data: {}", True),
        ("text/plain", b"date: x", False),
        (None, b"event: x", True),
        (None, b"\x00\xff", False),
    ],
)
def test_is_stream(kind, begin, answer):
    assert is_stream(kind, begin) is answer


@pytest.mark.parametrize(
    ("begin", "answer"),
    [
        (b"", None), (b"\xef", None), (b"\xef\xbb\xbf", None), (b"da", None), (b" \r\n ev", None),
        (b": comment", None), (b"id: 1\nretry: 2\n: c\r\n\r\n", None), (b":" * 5000, False),
        (b"data:", True), (b"\xef\xbb\xbfevent: x", True), (b"id: 1\r: c\n\ndata: x", True),
        (b"date: x", False), (b"id: 1\nname: x", False), (b"{", False), (b"\xef\xbb{", False),
    ],
)  # fmt: skip
def test_how_a_stream_begins(begin, answer):
    """None: more is needed to tell."""
    assert begins_events(begin) is answer
    assert is_stream(None, begin) is (answer is True)


@pytest.mark.parametrize(
    ("begin", "answer"),
    [
        (b"", None), (b'{"a":', None), (b'{"a":1}', None), (b'{"a":1}\n', None),
        (b'{"a":1}\n \r\n', None), (b'{"a":1}\n{', True), (b'\xef\xbb\xbf{"a":1}\r\n{"b', True),
        (b'{\n  "a": 1', False), (b'{"a":1}\n[', False), (b"{a}\n{b}", False), (b"data: x", False),
        (b'{"a":"' + b"x" * 5000, False), (b"[1]\n[2]", False),
    ],
)  # fmt: skip
def test_how_lines_begin(begin, answer):
    """None: more is needed to tell."""
    assert begins_lines(begin) is answer


def test_a_byte_order_mark_in_pieces():
    seen = Seen(status=200, headers=Headers([]), path="/v1/chat/completions")
    body = b"\xef\xbb\xbf" + chunk({"content": "x"}, "stop") + b"data: [DONE]\n\n"
    for cut in range(len(body)):
        stream = StreamReader(get("openai"), seen)
        stream.feed(body[:cut])
        stream.feed(body[cut:])
        assert stream.terminated, cut


def test_a_recorded_stream_is_classified_whole():
    body = chunk({"content": "x"})
    seen = Seen(status=200, headers=Headers([("content-type", "text/event-stream")]), body=body)
    assert classify_stream(seen, get("openai")).envelope.code == "stream_truncated"


PLAIN = {
    "chat": b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}\n\n',
    "anthropic": b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}\n\n',
    "responses": b"event: response.output_text.delta\n"
    b'data: {"type":"response.output_text.delta","delta":"Hi"}\n\n',
}
TELLING = [
    b'data: {"error":{"code":"server_error","message":"m"}}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason" : "stop"}]}\n\n',
    b"data: [DONE]\n\n",
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    b"event: error\ndata: upstream reset\n\n",
    b'data: {"type":"response.completed","response":{}}\n\n',
    b'data: {"type":"response.failed","response":{"error":{"code":"x"}}}\n\n',
    b'data: {"done":true}\n\n',
    b'error: {"code":400,"message":"m"}\n\n',
    b'data: {"type":"image_generation.completed"}\n\n',
    b'data: {"type": "transcript.text.done"}\n\n',
    b'data: {"type":"response.done"}\n\n',
]


@pytest.mark.parametrize("name", PLAIN)
def test_content_is_not_looked_into(name):
    one = PLAIN[name]
    assert plain_length(one * 3) == len(one) * 3
    for telling in TELLING:
        assert plain_length(one * 2 + telling) == len(one) * 2
        assert plain_length(one + telling + one) == len(one)
        assert plain_length(telling + one) == 0
    assert plain_length(one + one[:-1]) == len(one)
    assert plain_length(one[:-1]) == plain_length(one[1:]) == plain_length(b"") == 0


@pytest.mark.parametrize("kind", sorted(OTHER_TERMINALS | TERMINAL_RESPONSES))
@pytest.mark.parametrize("named", [True, False])
def test_every_last_word_is_heard_behind_content(kind, named):
    """Not every server repeats the type of an event in its name."""
    stream = reader()
    stream.feed(b'data: {"type":"image_generation.partial_image","b64_json":"x"}\n\n')
    name = f"event: {kind}\n" if named else ""
    stream.feed(f'{name}data: {{"type":"{kind}"}}\n\n'.encode())
    assert stream.terminated
    assert stream.finish(clean=True).verdict == "success"


def test_a_run_that_failed():
    """The Assistants API tells in the state of the run why it failed."""
    stream = reader()
    stream.feed(b'event: thread.run.created\ndata: {"object":"thread.run"}\n\n')
    error = b'{"code":"rate_limit_exceeded","message":"slow down"}'
    run = b'{"object":"thread.run","status":"failed","last_error":%b}' % error
    stream.feed(b"event: thread.run.failed\ndata: %b\n\nevent: done\ndata: [DONE]\n\n" % run)
    ended = stream.finish(clean=True)
    assert (ended.envelope.code, ended.verdict) == ("rate_limit_exceeded", "throttle")
    assert ended.envelope.message == "slow down"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            '{"type":"response.failed","response":{"status":"failed","error":null}}',
            "without a word",
        ),
        ('{"error":{"code":"server_error"}}', "server_error"),
    ],
)
def test_an_error_without_a_message_is_not_called_ok(data, told):
    stream = reader()
    stream.feed(f"data: {data}\n\n".encode())
    message = stream.finish(clean=True).envelope.message
    assert told in message
    assert "OK" not in message


@given(
    st.lists(st.sampled_from([*PLAIN.values(), *TELLING]), max_size=12),
    st.lists(st.integers(1, 200), min_size=1, max_size=12),
)
def test_what_is_passed_over_changes_no_verdict(parts, cuts):
    """The same stream in any pieces, and in one byte each, where nothing can be passed over."""
    seen = Seen(
        status=200,
        headers=Headers([("content-type", "text/event-stream")]),
        path="/v1/chat/completions",
    )
    body = b"".join([PLAIN["chat"], *parts])

    def read(pieces):
        reader = StreamReader(get("openai"), seen)
        for piece in pieces:
            reader.feed(piece)
        ended = reader.finish(clean=True)
        return ended.verdict, ended.rule, reader.content, reader.done, reader.terminated

    one = read(body[at : at + 1] for at in range(len(body)))
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(body[at : at + cut])
        at += cut
    assert read([*pieces, body[at:]]) == one
    assert read([PLAIN["chat"], *parts]) == one


def test_a_finish_reason_is_no_end_of_a_body_that_was_cut():
    stream = reader()
    stream.feed(chunk({"content": "Hi"}) + chunk({}, "stop"))
    assert stream.done
    assert stream.finish(clean=False).envelope.code == "stream_truncated"
    stream = reader()
    stream.feed(chunk({"content": "Hi"}) + chunk({}, "stop") + b"data: [DONE]\n\n")
    assert stream.finish(clean=False).envelope is None


@pytest.mark.parametrize(
    "last",
    [
        b"data: [DONE]\n\n",
        b'event: message_stop\ndata: {"type": "message_stop"}\n\n',
        b'data: {"type": "response.completed", "response": {}}\n\n',
    ],
)
def test_what_follows_the_last_word_counts_in_no_case(last):
    """Whether it comes along with it is up to the network."""
    start = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}\n\n'
    error = b'event: error\ndata: {"error": {"code": "server_error", "message": "m"}}\n\n'
    seen = Seen(status=200, headers=Headers([("content-type", "text/event-stream")]), path="/v1/x")
    told = set()
    for pieces in ([start + last + error], [start, last, error]):
        reader = StreamReader(get("openai"), seen)
        for piece in pieces:
            reader.feed(piece)
        told.add(reader.finish(clean=True).verdict.value)
    assert told == {"success"}
