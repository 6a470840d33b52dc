"""The model of a request: found wherever it stands, whatever surrounds it, however it arrives."""

from __future__ import annotations

import json
import random
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.envelope.model_name import ModelScan, model_in_json, model_in_multipart


def scan(pieces, limit=1 << 20):
    scanner = ModelScan(limit)
    for piece in pieces:
        scanner.feed(piece)
    return scanner.name, scanner.done


def cut(data, positions):
    edges = [0, *sorted(positions), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


GOLDEN = (
    "\ufeff \r\n\t{ "
    '"a": {"model": "nested", "x": [{"model": "deeper"}, [], {}, [[["]}"]]]]}, '
    '"messages" :[ {"role":"user","content":"say \\"model\\": \\"wrong\\" } ] \\\\"}, {"n": [1, -2.5e3, null]} ],'
    '"text": "\\\\\\\\", "quote": "\\\\\\"", "brackets": "{[[{",'
    '"Model": "case", "models": "plural", "model ": "space", "": "",'
    '"number": -1.5E+3, "yes": true, "no": false, "nothing": null, "emoji": "\U0001f40d\u2028",'
    '"mod\\u0065l"\n:\n"gpt-\\u00e9/\\"x\\" \U0001f40d", "tail": {"model": "late"}}'
).encode()
GOLDEN_NAME = 'gpt-é/"x" \U0001f40d'
GOLDEN_END = GOLDEN.index(b', "tail"')


def test_golden_body_whole():
    assert json.loads(GOLDEN.decode("utf-8-sig"))["model"] == GOLDEN_NAME
    assert scan([GOLDEN]) == (GOLDEN_NAME, True)
    assert model_in_json(GOLDEN) == GOLDEN_NAME


def test_golden_body_cut_at_every_position():
    for position in range(len(GOLDEN) + 1):
        assert scan(cut(GOLDEN, [position])) == (GOLDEN_NAME, True), position


def test_golden_body_byte_by_byte_and_at_random_sizes():
    assert scan(GOLDEN[i : i + 1] for i in range(len(GOLDEN))) == (GOLDEN_NAME, True)
    chance = random.Random(7)
    for _ in range(100):
        positions = chance.sample(range(len(GOLDEN)), chance.randint(1, 40))
        assert scan(cut(GOLDEN, positions)) == (GOLDEN_NAME, True)


def test_every_prefix_knows_the_name_or_waits():
    for end in range(len(GOLDEN) + 1):
        known = end >= GOLDEN_END
        assert scan([GOLDEN[:end]]) == ((GOLDEN_NAME, True) if known else (None, False)), end
        assert model_in_json(GOLDEN[:end]) == (GOLDEN_NAME if known else None), end


def test_limit():
    assert scan([GOLDEN], GOLDEN_END) == (GOLDEN_NAME, True)
    assert scan([GOLDEN], GOLDEN_END - 1) == (None, True)
    assert scan(cut(GOLDEN, [50]), GOLDEN_END - 1) == (None, True)
    assert scan([b'{"model": "x"}'], 0) == (None, True)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'["model"]',
        b'[{"model": "x"}]',
        b'"model"',
        b"17",
        b"<html>",
        b"model=x",
        b"\x00\x01",
        b"\xff\xfe{\x00",
        b"{}",
        b"{ }",
        b'{"a": 1}',
        b'{"a" 1, "model": "x"}',
        b'{"a": 1,, "model": "x"}',
        b"{'model': 'x'}",
        b'{model: "x"}',
        b'{"messages": {"model": "x"}}',
        b'{"model": null}',
        b'{"model": 4}',
        b'{"model": true}',
        b'{"model": ["x"]}',
        b'{"model": {"model": "x"}}',
        b'{"model": ""}',
        b'{"model": "' + b"x" * 201 + b'"}',
        b'{"model": "' + b"x" * 100_000 + b'"}',
        b'{"model": "a\\nb"}',
        b'{"model": "a\\u2028b"}',
        b'{"model": "\\ud800"}',
        b'{"model": "\xff"}',
        b'{"model": "bad \\x escape"}',
        b'{"' + b"model" * 1000 + b'": "x"}',
        b'{"\\m\\o\\d\\e\\l": "x"}',
    ],
)
def test_bodies_without_a_model(body):
    assert scan([body]) == (None, True)
    assert scan(body[i : i + 1] for i in range(len(body))) == (None, True)
    assert model_in_json(body) is None


@pytest.mark.parametrize(
    "body", [b"", b" \n", b"\xef\xbb", b"\xef\xbb\xbf", b"{", b'{"a"', b'{"a":']
)
def test_bodies_of_which_too_little_is_known(body):
    assert scan([body]) == (None, False)
    assert model_in_json(body) is None


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"gpt-x", "gpt-x"),
        (b"vendor/model:free", "vendor/model:free"),
        (b"with space", "with space"),
        (b"x" * 200, "x" * 200),
        (b"\\ud83d\\udc0d" * 200, "\U0001f40d" * 200),
        (b"\\u006d" * 200, "m" * 200),
        (b"\\/", "/"),
    ],
)
def test_names(raw, name):
    body = b'{"model":"' + raw + b'"}'
    assert scan([body]) == (name, True)
    assert scan(body[i : i + 1] for i in range(len(body))) == (name, True)
    assert model_in_json(body) == name


@pytest.mark.parametrize(("first", "name"), [(b'"a"', "a"), (b"null", None), (b'{"x": 1}', None)])
def test_of_two_models_the_first_counts_at_every_cut(first, name):
    body = b'{"model": ' + first + b', "model": "b"}'
    assert model_in_json(body) == name
    for position in range(len(body) + 1):
        assert scan(cut(body, [position])) == (name, True), position


def test_a_broken_tail_does_not_cost_the_name():
    for tail in (b"", b", oops", b', "image": "aGVsbG8', b', "x": tru}', b"}}}", b', "x": NaN}'):
        assert model_in_json(b'{"model": "gpt-x"' + tail) == "gpt-x"


def test_deep_nesting_is_no_recursion():
    for bracket in (b"[", b'{"a":'):
        deep = b'{"deep": ' + bracket * 100_000
        assert model_in_json(deep) is None
        assert scan([deep]) == (None, False)
    closed = b'{"deep": ' + b"[" * 50_000 + b"]" * 50_000 + b', "model": "x"}'
    assert model_in_json(closed) == "x"
    assert scan(cut(closed, range(0, len(closed), 1000))) == ("x", True)


@pytest.mark.parametrize(
    "content", [b"QUJD" * 2_000_000, b'\\n\\"' * 2_000_000, b"\\\\" * 4_000_000]
)
def test_f082_an_image_before_the_model_is_skipped_in_bounded_memory(content):
    body = b'{"messages":[{"content":"' + content + b'"}],"top":"' + content + b'","model":"gpt-x"}'
    pieces = [body[at : at + 65_535] for at in range(0, len(body), 65_535)]
    scanner = ModelScan(len(body))
    tracemalloc.start()
    for piece in pieces:
        scanner.feed(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (scanner.name, scanner.done) == ("gpt-x", True)
    assert peak < 1 << 20
    assert scan([body], len(body)) == ("gpt-x", True)
    assert model_in_json(body[:-1]) == "gpt-x"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["model", "a", 'x"}', "\\", "["]), inner, max_size=4)
    ),
    max_leaves=20,
)
KEYS = st.text(max_size=6) | st.sampled_from(
    ["Model", "mode", "models", '"model"', "model\\", "\\"]
)


@given(
    st.dictionaries(KEYS.filter(lambda key: key != "model"), JSON, max_size=6),
    st.none() | JSON | st.text(min_size=1, max_size=220),
    st.randoms(),
    st.booleans(),
    st.sampled_from([None, 1, "\t"]),
)
@settings(max_examples=400, deadline=None)
def test_any_object_at_any_cut(members, model, chance, escape, indent):
    pairs = [*members.items(), ("model", model)]
    chance.shuffle(pairs)
    text = json.dumps(dict(pairs), ensure_ascii=escape, indent=indent)
    body = text.encode("utf-8", "surrogatepass")
    named = isinstance(model, str) and 0 < len(model) <= 200 and model.isprintable()
    expected = model if named else None
    assert scan([body]) == (expected, True)
    positions = [chance.randint(0, len(body)) for _ in range(chance.randint(0, 12))]
    assert scan(cut(body, positions)) == (expected, True)
    assert model_in_json(body) == expected
    for end in range(0, len(body), max(1, len(body) // 20)):
        assert scan([body[:end]])[0] in (None, expected)


TOKENS = st.sampled_from(
    [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"\\",
        b",",
        b":",
        b'"model"',
        b'"model":"x"',
        b"1",
        b" ",
        b"\xef",
    ]
)


def test_a_second_mark_is_no_json_wherever_it_is_cut():
    for body in (b"\xef\xbb\xbf\xef", b"\xef\xbb\xbf\xef\xbb\xbf{"):
        assert scan([body], 5) == scan([body[i : i + 1] for i in range(len(body))], 5)


@given(st.lists(TOKENS | st.binary(max_size=5), max_size=40), st.randoms(), st.integers(-1, 200))
@settings(max_examples=400, deadline=None)
def test_any_bytes_never_raise_and_cuts_do_not_matter(tokens, chance, limit):
    body = b"".join([b"{", *tokens] if chance.random() < 0.7 else tokens)
    expected = scan([body], limit)
    assert scan([body[i : i + 1] for i in range(len(body))], limit) == expected
    positions = [chance.randint(0, len(body)) for _ in range(chance.randint(0, 12))]
    assert scan(cut(body, positions), limit) == expected
    model_in_json(body)


FORM_TYPE = "multipart/form-data; boundary=----x7MA"
FORM = (
    b'------x7MA\r\nContent-Disposition: form-data; name="file"; filename="a; name=model.wav"\r\n'
    b"Content-Type: audio/wav\r\n\r\nRIFF\x00\xff\r\n\r\n\n\nmodel\r\n"
    b'------x7MA\r\nContent-Disposition: form-data; name="language"\r\n\r\nen\r\n'
    b'------x7MA\r\ncontent-disposition: form-data; name="model"\r\n'
    b"Content-Type: text/plain\r\n\r\nwhisper-1\r\n"
    b"------x7MA--\r\n"
)


def test_form_whole_and_cut():
    assert model_in_multipart(FORM, FORM_TYPE) == "whisper-1"
    known = FORM.index(b"whisper-1") + len(b"whisper-1\r\n------x7MA")
    for end in range(len(FORM)):
        expected = "whisper-1" if end >= known else None
        assert model_in_multipart(FORM[:end], FORM_TYPE) == expected, end


@pytest.mark.parametrize(
    "content_type",
    [
        'multipart/form-data; boundary="----x7MA"',
        "Multipart/Form-Data;charset=utf-8;BOUNDARY=----x7MA",
        " multipart/form-data ; boundary = ----x7MA ; x=y",
    ],
)
def test_ways_to_write_the_boundary(content_type):
    assert model_in_multipart(FORM, content_type) == "whisper-1"
    assert model_in_multipart(FORM.replace(b"\r\n", b"\n"), content_type) == "whisper-1"
    assert model_in_multipart(b"preamble\r\n" + FORM, content_type) == "whisper-1"


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=other",
        "multipart/form-data; boundary=" + "x" * 300,
        "application/json; boundary=----x7MA",
        'multipart/form-data; x="; boundary=----x7MA"',
    ],
)
def test_no_form_no_model(content_type):
    assert model_in_multipart(FORM, content_type) is None


@pytest.mark.parametrize(
    ("head", "value", "name"),
    [
        (b"form-data; name=model", b"gpt-x", "gpt-x"),
        (b'form-data; NAME="model"', b"  gpt-x ", "gpt-x"),
        (b'form-data; name="model"', "modèle".encode(), "modèle"),
        (b'form-data; name="model"; filename="model.bin"', b"gpt-x", None),
        (b'form-data; name="models"', b"gpt-x", None),
        (b'form-data; x="; name=model"', b"gpt-x", None),
        (b'form-data; name="model"', b"", None),
        (b'form-data; name="model"', b"\xff", None),
        (b'form-data; name="model"', b"a\x00b", None),
        (b'form-data; name="model"', b"x" * 201, None),
        (b'form-data; name="model"', b"x" * 1_000_000, None),
    ],
)
def test_form_fields(head, value, name):
    body = b"--b\r\nContent-Disposition: " + head + b"\r\n\r\n" + value + b"\r\n--b--\r\n"
    assert model_in_multipart(body, "multipart/form-data; boundary=b") == name


@given(st.binary(max_size=60), st.integers(0, 400), st.integers(0, 400), st.text(max_size=30))
@settings(deadline=None)
def test_any_form_never_raises(noise, start, end, parameter):
    body = FORM[:start] + noise + FORM[end:]
    model_in_multipart(body, FORM_TYPE)
    model_in_multipart(body, "multipart/form-data; boundary=" + parameter)
    model_in_multipart(body, parameter)
