"""Whatever an upstream sends, classification answers, and its answer is consistent."""

import json
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.envelope.dialects import NAMES, get
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.model import Classified, Seen
from sidecar.envelope.policy import header_envelope, status_for
from sidecar.envelope.stream import StreamReader
from tests.cases import NOW, all_cases

CODES = [
    "insufficient_quota", "model_not_found", "rate_limit_exceeded", "context_length_exceeded",
    "overloaded_error", "server_error", "invalid_request_error", "invalid_token", "token_expired",
    "slow_down", "authorization_pending", "429", 500, 10000, None, True, 1.5, [], {}, "",
    "a sentence of prose", "x" * 300, "ünïcode", "personal-team-blocked:spending-limit",
]  # fmt: skip

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(CODES),
)
names = st.sampled_from(
    ["error", "errors", "code", "type", "message", "status", "detail", "success", "ok", "choices",
     "details", "error_code", "metadata", "finish_reason", "retry_after", "title", "object", "raw",
     "headers", "response", "word", "delta", "done", "param", "error_description", "reason"]
)  # fmt: skip
jsons = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=5)),
    max_leaves=12,
)


def dumped(value):
    return json.dumps(value, allow_nan=True).encode("utf-8", "surrogatepass")


bodies = st.one_of(
    st.binary(max_size=200),
    jsons.map(dumped),
    jsons.map(lambda value: dumped({"error": value})),
    jsons.map(lambda value: dumped({"error": value})[:-3]),
    st.sampled_from([case["response"].get("body") or "" for case in all_cases()]).map(str.encode),
    st.sampled_from([b"<html><title>502</title>", b"\xef\xbb\xbf{}", b"null", b"[]", b'"x"', b"1"]),
)
header_values = st.one_of(
    st.text(st.characters(codec="latin-1"), max_size=30),
    st.sampled_from(
        ["true", "false", "0", "-5", "NaN", "inf", "1796040060", "1796040060000", "1e400", "9" * 400,
         "Mon, 30 Nov 2026 12:00:40 GMT", "6m0s", "2026-11-30T12:00:33Z", "rejected", "application/json",
         "text/event-stream", "application/problem+json", "limit=1, remaining=0, reset=9",
         'Bearer error="invalid_token", error_description="expired"', "cloudflare"]
    ),
)  # fmt: skip
headers = st.lists(
    st.tuples(
        st.sampled_from(
            ["retry-after", "retry-after-ms", "x-should-retry", "content-type", "date", "ratelimit",
             "x-ratelimit-remaining", "x-ratelimit-reset", "www-authenticate", "server", "cf-ray",
             "anthropic-ratelimit-unified-status", "x-error-envelope", "x-sidecar-verdict",
             "content-encoding", "x-envoy-overloaded", "cf-mitigated"]
        ),
        header_values,
    ),
    max_size=4,
)  # fmt: skip
statuses = st.one_of(
    st.integers(100, 599), st.sampled_from([200, 400, 401, 402, 403, 404, 409, 429, 500, 503])
)
paths = st.sampled_from(["/v1/chat/completions", "/v1/messages", "/v1/things", "/api/chat", "/"])


def check(classified: Classified):
    envelope = classified.envelope
    assert not classified.rule.startswith("fault")
    if envelope is None:
        assert classified.verdict == "success"
        return
    assert classified.verdict != "success"
    if envelope.class_ in {"validation", "authentication", "permanent"}:
        assert classified.verdict == "alive"
    assert (envelope.class_ == "rate_limit") == (classified.verdict == "throttle")
    if envelope.class_ == "transient":
        assert classified.verdict in {"failure", "alive"}
    if envelope.class_ == "permanent":
        assert not envelope.retryable
    if envelope.retry_after is not None:
        assert envelope.retryable
        assert math.isfinite(envelope.retry_after)
        assert envelope.retry_after >= 0
    assert 0 < len(envelope.code) <= 64
    assert set(envelope.code) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/#-"
    )
    assert 0 < len(envelope.message) <= 500
    assert len(envelope.message.splitlines()) == 1
    header = header_envelope(envelope)
    assert len(header) <= 2048
    assert header.isascii()
    assert header.isprintable()
    status = status_for(classified, 200)
    assert status_for(classified, status) == status


answers = st.builds(
    Seen,
    status=statuses,
    headers=headers.map(Headers),
    body=bodies,
    path=paths,
    now=st.sampled_from([NOW, 0.0]),
    truncated=st.booleans(),
)


@settings(max_examples=400, deadline=None)
@given(answers, st.sampled_from(sorted(NAMES - {"sidecar"})))
def test_any_answer(seen, name):
    check(classify(seen, get(name)))


@settings(max_examples=200, deadline=None)
@given(headers, bodies, st.lists(st.binary(max_size=40), max_size=5), paths, st.booleans())
def test_any_stream(pairs, body, pieces, path, clean):
    seen = Seen(status=200, headers=Headers(pairs), path=path, now=NOW)
    reader = StreamReader(get("auto"), seen)
    for piece in (b"data: " + body + b"\n\n", *pieces, b"event: error\ndata: " + body[:20]):
        reader.feed(piece)
    check(reader.finish(clean=clean))


@settings(max_examples=100, deadline=None)
@given(statuses, headers, st.text(max_size=300))
def test_another_sidecar_is_read_whatever_it_sends(status, pairs, told):
    seen = Seen(status=status, headers=Headers([("x-error-envelope", told), *pairs]), now=NOW)
    assert classify(seen, get("sidecar")).verdict is not None


def test_a_fault_in_a_dialect_is_neutral():
    class Broken(type(get("generic"))):
        def locate(self, body, seen):
            raise KeyError(body)

    seen = Seen(status=503, headers=Headers(), body=b'{"error": {"code": "x"}}')
    classified = classify(seen, Broken())
    assert classified.verdict == "neutral"
    assert classified.envelope.class_ == "transient"
    assert classified.rule == "fault in classification: KeyError"
    reader = StreamReader(Broken(), Seen(status=200, headers=Headers()))
    reader.feed(b'data: {"error": "x"}\n\ndata: [1,2]\n\n')
    assert reader.finish(clean=True).verdict in {"neutral", "failure"}


@pytest.mark.parametrize(
    "body", [b"[" * 50000, b'{"error":' * 20000, b'{"error":{"message":"' + b"{" * 60000 + b'"}}']
)
def test_deep_nesting_is_survived(body):
    for truncated in (False, True):
        seen = Seen(status=500, headers=Headers(), body=body, truncated=truncated)
        assert classify(seen, get("openai")).verdict == "failure"


@pytest.mark.parametrize("name", ["generic", "openai", "shopify", "salesforce", "linear"])
@pytest.mark.parametrize("depth", [450, 900, 1100])
@pytest.mark.parametrize("shape", [b"%s", b'{"error":%s}', b'{"detail":%s}', b'{"errors":[%s]}',
                                   b'{"data":%s,"errors":[{"message":"x"}]}'])  # fmt: skip
@pytest.mark.parametrize(
    "piece", [b'{"a":%s}', b"[%s]", b'{"detail":%s}', b'{"error":%s}', b'{"message":%s}']
)
def test_nesting_that_only_just_decodes_is_survived(name, depth, shape, piece):
    start, end = piece.split(b"%s")
    body = shape % (start * depth + b"1" + end * depth)
    seen = Seen(status=500, headers=Headers(), body=body, path="/graphql")
    assert classify(seen, get(name)).verdict == "failure"
    seen = Seen(status=200, headers=Headers(), body=body, path="/graphql")
    assert not classify(seen, get(name)).rule.startswith("fault")


@pytest.mark.parametrize(
    "piece", [b"<h1>a\n", b"<title>", b"<h1 ", b"<title\n", b"</h1", b"<h1></"]
)
def test_a_page_of_beginnings_is_read_once(piece):
    """Each of them could be the one whose end comes."""
    page = b"<html>" + piece * (1 << 16)
    began = time.process_time()
    seen = Seen(status=502, headers=Headers([("content-type", "text/html")]), body=page)
    assert classify(seen, get("generic")).verdict == "failure"
    assert time.process_time() - began < 1


def test_a_code_as_long_as_a_book_makes_no_long_message():
    body = b'{"error": {"type": "%s", "code": ""}}' % (b"x" * 600)
    envelope = classify(Seen(status=200, headers=Headers(), body=body), get("openai")).envelope
    assert 0 < len(envelope.message) <= 500
    assert envelope.message.endswith("in an answer with the status 200")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "piece", ["/model/a", "/models/a", "/openai/deployments/", "/v1/a:", "%3a"]
)
def test_a_path_of_beginnings_is_read_once(name, piece):
    began = time.process_time()
    get(name).model_of(piece * (1 << 15))
    assert time.process_time() - began < 1
