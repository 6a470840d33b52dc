"""The event parsers: the same events for every cut, and never more memory than their cap."""

from __future__ import annotations

import random
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.envelope.events import Event, LinesParser, SseParser

GOLDEN = (
    b"\xef\xbb\xbf: hello\r\n\r\n"
    b'data: {"text":"line\xe2\x80\xa8separator \xc2\x85 next \x0b\x0c\x1c \xf0\x9f\x90\x8d"}\n\n'
    b"event: message_start\r\ndata: {}\r\n\r\n"
    b"data:no space\rdata:  two spaces\r\r"
    b"data: name comes last\nevent: late\n: comment inside\n\n"
    b"event: ping\n\n"
    b"id: 7\nretry: 10\n\n"
    b"data\n\n"
    b"colour:red\ndata: unknown field before\n\n"
    b"status: 429 \nevent:error\ndata:{}\n\n"
    b'error: {"code":400,\r\nerror: "message":"too long"}\r\n\r\n'
    b"\n\n\n"
    b'{\n  "error": {\n    "code": 503,\n    "message": "a } in \\" text"\n  }\n}\n'
    b"data: after bare\n\n"
    b'[{\n  "error": {\n    "code": 500\n\n'
    b"data: one\n{not bare}\ndata: two\n\n"
    b"data: \xff broken \xe2\x80\n\n"
    b"data: [DONE]\n\n"
    b"data: no end"
)

GOLDEN_EVENTS = [
    Event(None, '{"text":"line\u2028separator \x85 next \x0b\x0c\x1c \U0001f40d"}', None),
    Event("message_start", "{}", None),
    Event(None, "no space\n two spaces", None),
    Event("late", "name comes last", None),
    Event("ping", "", None),
    Event(None, "", None),
    Event(None, "unknown field before", None),
    Event("error", "{}", None, "429"),
    Event(None, "", '{"code":400,\n"message":"too long"}'),
    Event(
        None,
        '{\n  "error": {\n    "code": 503,\n    "message": "a } in \\" text"\n  }\n}',
        None,
    ),
    Event(None, "after bare", None),
    Event(None, '[{\n  "error": {\n    "code": 500', None),
    Event(None, "one\ntwo", None),
    Event(None, "\ufffd broken \ufffd", None),
    Event(None, "[DONE]", None),
    Event(None, "no end", None),
]


def parse(pieces, max_event=1 << 20):
    parser = SseParser(max_event)
    events = [event for piece in pieces for event in parser.feed(piece)]
    events += parser.close()
    return events, parser.comments, parser.skipped


def cut(data, positions):
    edges = [0, *sorted(positions), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def naive(data, max_event):
    """What the parser should say, from the whole body at once and a line at a time."""
    data = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events, comments, skipped = [], 0, 0
    fields, size, state = [], 0, "fresh"

    def value_of(wanted):
        return [value for name, value in fields if name == wanted]

    def end():
        nonlocal fields, size, state
        names, data_lines, errors = value_of(b"event"), value_of(b"data"), value_of(b"error")
        statuses = [value.strip() for value in value_of(b"status")]
        if data_lines or errors or (names and names[-1]):
            events.append(
                Event(
                    names[-1].decode(errors="replace") or None if names else None,
                    b"\n".join(data_lines).decode(errors="replace"),
                    b"\n".join(errors).decode(errors="replace") if errors else None,
                    statuses[-1].decode("latin-1") or None if statuses else None,
                )
            )
        fields, size, state = [], 0, "fresh"

    def depth():
        level, quoted, escaped = 0, False, False
        for line in value_of(b"data"):
            quoted = escaped = False
            for byte in line.decode("latin-1"):
                if quoted:
                    quoted = escaped or byte != '"'
                    escaped = byte == "\\" and not escaped
                elif byte == '"':
                    quoted = True
                elif byte in "{[":
                    level += 1
                elif byte in "}]":
                    level -= 1
        return level

    for line in data.split(b"\n"):
        if not line:
            end()
            continue
        if line[:1] == b":":
            comments += 1
            continue
        if state == "skipping":
            continue
        name, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        known = name in (b"data", b"event", b"error", b"id", b"retry", b"status")
        if state == "bare" and known:
            end()
        if (
            state == "fresh"
            and not known
            and (line[:1] == b"{" or line[:2] == b"[{" or line == b"[")
        ):
            state = "bare"
        elif state == "fresh" and known:
            state = "fields"
        size += len(line) + 1
        if size > max_event:
            skipped += 1
            fields, size = [], 0
            state = "fresh" if state == "bare" else "skipping"
        elif known:
            fields.append((name, value))
        elif state == "bare":
            fields.append((b"data", line))
            if depth() <= 0:
                end()
        elif state == "fresh":
            size = 0
    end()
    return events, comments, skipped


def test_golden_stream_whole():
    assert parse([GOLDEN]) == (GOLDEN_EVENTS, 2, 0)


def test_naive_reference_reads_the_golden_stream():
    assert naive(GOLDEN, 1 << 20) == (GOLDEN_EVENTS, 2, 0)


def test_f115_golden_stream_cut_at_every_position():
    for position in range(len(GOLDEN) + 1):
        assert parse(cut(GOLDEN, [position])) == (GOLDEN_EVENTS, 2, 0), position


def test_f115_golden_stream_byte_by_byte():
    pieces = [GOLDEN[i : i + 1] for i in range(len(GOLDEN))]
    assert parse(pieces) == (GOLDEN_EVENTS, 2, 0)
    assert parse([piece for byte in pieces for piece in (b"", byte)]) == (GOLDEN_EVENTS, 2, 0)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("max_event", [1 << 20, 64, 40])
def test_f115_golden_stream_at_random_sizes(end, max_event):
    data = GOLDEN.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", end)
    expected = naive(data, max_event)
    chance = random.Random(115)
    for _ in range(60):
        positions = chance.sample(range(len(data)), chance.randint(1, 60))
        assert parse(cut(data, positions), max_event) == expected


FRAGMENTS = st.one_of(
    st.sampled_from(
        [
            b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b":", b": ping", b"data:", b"data: ",
            b"data", b"event: ", b"event: e\ndata: d\n\n", b"error: ", b"id:1", b"retry: 3",
            b"{", b"}", b"[", b"]", b"[{", b'"', b"\\", b'{"a":1}', b'{\n "a": "}"\n}\n', b"x" * 20,
            b"\xef\xbb\xbf", b"\xef", b"\xe2\x80\xa8", b"data: [DONE]\n\n", b"status:429", b" ", b",",
        ]
    ),
    st.binary(max_size=6),
)  # fmt: skip


@given(st.lists(FRAGMENTS, max_size=40), st.randoms(), st.sampled_from([16, 24, 40, 1 << 20]))
@settings(max_examples=400, deadline=None)
def test_any_bytes_at_any_cut_equal_the_naive_reference(fragments, chance, max_event):
    data = b"".join(fragments)
    expected = naive(data, max_event)
    assert parse([data], max_event) == expected
    positions = [chance.randint(0, len(data)) for _ in range(chance.randint(0, 20))]
    assert parse(cut(data, positions), max_event) == expected
    assert parse([data[i : i + 1] for i in range(len(data))], max_event) == expected


def test_events_are_given_out_at_once():
    parser = SseParser()
    assert parser.feed(b"data: a\r\n\r") == [Event(None, "a", None)]
    assert parser.feed(b"\n") == []
    assert parser.feed(b'{"error": 1}\n') == [Event(None, '{"error": 1}', None)]
    assert parser.feed(b": ping\n") == []
    assert parser.comments == 1


def test_close_is_idempotent():
    parser = SseParser()
    parser.feed(b"event: x\ndata: y")
    assert parser.close() == [Event("x", "y", None)]
    assert parser.close() == []


def test_a_model_that_writes_errors_in_raw_lines_is_no_bare_json():
    assert parse([b'data: said:\n{"error": "boom"}\n\n'])[0] == [Event(None, "said:", None)]


def test_bare_json_survives_brackets_and_quotes_in_strings():
    body = b'{\n "message": "open { [ \\" \\\\",\n "x": "}"\n}\ndata: next\n\n'
    assert [event.data for event in parse([body])[0]] == [
        '{\n "message": "open { [ \\" \\\\",\n "x": "}"\n}',
        "next",
    ]


def test_bare_json_lines_are_events_each():
    lines = [b'{"n": %d}' % n for n in range(50)]
    assert [event.data.encode() for event in parse([b"\n".join(lines)])[0]] == lines


def test_bare_json_without_an_end_stops_at_the_next_field():
    body = b'{"a": [\ndata: ' + b"x" * 30 + b"\n\n"
    expected = [Event(None, '{"a": [', None), Event(None, "x" * 30, None)]
    for max_event in (37, 1000):
        assert parse([body], max_event) == (expected, 0, 0)
        assert parse([body[i : i + 1] for i in range(len(body))], max_event) == (expected, 0, 0)
    assert parse([body], 36) == (expected[:1], 0, 1)


def test_bare_json_too_long_loses_its_own_lines_only():
    long = b'{"a": "' + b"x" * 200 + b'"}\n'
    assert parse([long, b'{"b": 1}\n'], 100) == ([Event(None, '{"b": 1}', None)], 0, 1)


def test_open_strings_cost_one_pass():
    # A pattern that begins anew at every quote would need minutes for this line.
    body = b'{"' + b'\\"' * 400_000 + b"\n\n"
    assert len(parse([body])[0]) == 1


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("size", [200_000, 2_000_000, 20_000_000])
def test_f114_big_events_are_skipped_in_bounded_memory(end, size):
    block = b"x" * 16_384
    parser = SseParser()
    events = parser.feed(b"data: first" + end + end + b"data: ")
    tracemalloc.start()
    for _ in range(size // len(block)):
        events += parser.feed(block)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    events += parser.feed(end + b"data: same event" + end + end + b"data: last" + end + end)
    skipped = size > 1 << 20
    assert [event.data[:5] for event in events if event.data[0] != "x"] == ["first", "last"]
    assert parser.skipped == skipped
    assert len(events) == (2 if skipped else 3)
    assert peak < 4 << 20


def test_many_lines_without_an_end_are_skipped_in_bounded_memory():
    parser = SseParser()
    chunk = b"data: some words and more\n" * 500
    tracemalloc.start()
    for _ in range(1_000):
        assert parser.feed(chunk) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
    assert parser.skipped == 1
    assert parser.feed(b"\ndata: x\n\n") == [Event(None, "x", None)]


def test_endless_comments_and_unknown_fields_hide_no_event():
    parser = SseParser(1_000)
    parser.feed(b": waiting\n" * 5_000)
    parser.feed(b"unknown: field\n" * 5_000)
    assert parser.feed(b"data: x\n\n") == [Event(None, "x", None)]
    assert parser.comments == 5_000
    assert parser.skipped == 0


LINES = (
    b'\xef\xbb\xbf{"a":"\xe2\x80\xa8\xc2\x85"}\r\n\n  \n{"b": "' + b"y" * 60 + b'"}\n{"c":1}\n{"d"'
)
LINE_EVENTS = [
    Event(None, '{"a":"\u2028\x85"}', None),
    Event(None, '{"c":1}', None),
    Event(None, '{"d"', None),
]


def parse_lines(pieces, max_line):
    parser = LinesParser(max_line)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.close(), parser.skipped


def test_lines_at_every_position():
    for position in range(len(LINES) + 1):
        assert parse_lines(cut(LINES, [position]), 50) == (LINE_EVENTS, 1), position
    assert parse_lines([LINES[i : i + 1] for i in range(len(LINES))], 50) == (LINE_EVENTS, 1)


@given(st.lists(st.one_of(st.just(b"\n"), st.binary(max_size=30)), max_size=30), st.randoms())
def test_lines_of_any_bytes_equal_a_plain_split(fragments, chance):
    data = b"".join(fragments)
    whole = [line for line in data.split(b"\n") if len(line) <= 20]
    texts = [line.removeprefix(b"\xef\xbb\xbf").strip() for line in whole]
    expected = [Event(None, text.decode(errors="replace"), None) for text in texts if text]
    positions = [chance.randint(0, len(data)) for _ in range(chance.randint(0, 10))]
    events, skipped = parse_lines(cut(data, positions), 20)
    assert events == expected
    assert skipped == sum(len(line) > 20 for line in data.split(b"\n"))


def test_f114_a_line_without_end_is_dropped_in_bounded_memory():
    parser = LinesParser()
    block = b"x" * 65_536
    tracemalloc.start()
    for _ in range(320):
        assert parser.feed(block) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
    assert parser.feed(b'\n{"x": 1}\n') == [Event(None, '{"x": 1}', None)]
    assert parser.skipped == 1
