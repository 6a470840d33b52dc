"""Whatever Gemini, Bedrock, Cohere or Hugging Face send, classification answers, and consistently."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.envelope.dialects import get
from sidecar.envelope.event_stream import frame
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.model import Seen
from sidecar.envelope.stream import StreamReader
from tests.cases import NOW
from tests.envelope.test_invariants import check

DIALECTS = ["gemini", "vertex", "bedrock", "cohere", "huggingface", "auto"]
WORDS = [
    "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "API_KEY_INVALID", "34.07s", "GenerateRequestsPerDay",
    "type.googleapis.com/google.rpc.ErrorInfo", "type.googleapis.com/google.rpc.QuotaFailure",
    "type.googleapis.com/google.rpc.RetryInfo", "type.googleapis.com/google.rpc.BadRequest",
    "SAFETY", "STOP", "failed", "ERROR", "TIMEOUT", "generation", "com.amazon#ThrottlingException",
    "ThrottlingException:http://x", "Model x is currently loading", "", "e30=", "message-end",
    "interaction.completed", "per day", None, True, 429, -1, 1.5,
]  # fmt: skip
NAMES = [
    "error", "errors", "code", "message", "status", "details", "@type", "reason", "metadata",
    "violations", "quotaId", "quotaValue", "retryDelay", "seconds", "nanos", "fieldViolations",
    "field", "promptFeedback", "blockReason", "candidates", "finishReason", "response", "__type",
    "Message", "originalStatusCode", "bytes", "delta", "finish_reason", "type", "event_type",
    "interaction", "error_type", "estimated_time", "token", "generated_text", "quota_limit",
    "quotaResetDelay", "errorInfo", "quotaViolations",
]  # fmt: skip
jsons = st.recursive(
    st.sampled_from(WORDS) | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
    ),
    max_leaves=14,
)
bodies = (jsons | jsons.map(lambda value: {"error": value}) | jsons.map(lambda value: [value])).map(
    lambda value: json.dumps(value).encode("utf-8", "surrogatepass")
)
paths = st.sampled_from(
    ["/v1beta/models/m:generateContent", "/v1beta/models/m:streamGenerateContent",
     "/v1beta/interactions", "/model/m/converse-stream", "/model/m/invoke-with-response-stream",
     "/v2/chat", "/generate_stream", "/models/org/model", "/x"]
)  # fmt: skip
types = st.sampled_from(
    ["application/json", "text/event-stream", "application/vnd.amazon.eventstream",
     "application/x-ndjson", "application/xml", ""]
)  # fmt: skip
codes = st.sampled_from(["", "ThrottlingException:", "a#B:c", ":", "#", "RepoNotFound", "x" * 200])


@settings(max_examples=400, deadline=None)
@given(bodies, st.sampled_from([200, 400, 403, 404, 424, 429, 503]), paths, types, codes,
       st.sampled_from(DIALECTS))  # fmt: skip
def test_any_answer(body, status, path, kind, code, name):
    headers = Headers([("content-type", kind), ("x-amzn-errortype", code), ("x-error-code", code)])
    check(classify(Seen(status=status, headers=headers, body=body, path=path, now=NOW), get(name)))


@settings(max_examples=400, deadline=None)
@given(st.lists(bodies, max_size=5), paths, types, st.sampled_from(DIALECTS), st.booleans())
def test_any_stream(events, path, kind, name, clean):
    reader = StreamReader(
        get(name), Seen(status=200, headers=Headers([("content-type", kind)]), path=path, now=NOW)
    )
    for body in events:
        if "amazon" in kind:
            reader.feed(frame({":event-type": "chunk", ":message-type": "event"}, body))
            continue
        reader.feed(b"data: " + body + b"\r\n\r\n" if "event" in kind else body + b"\n")
    check(reader.finish(clean=clean))


def test_the_message_names_the_field_at_fault():
    violations = [{"field": "contents[0].role", "description": "must be user or model"}]
    detail = {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}
    error = {"code": 400, "message": "Invalid", "status": "INVALID_ARGUMENT", "details": [detail]}
    body = json.dumps({"error": error}).encode()
    seen = Seen(status=400, headers=Headers(), body=body, path="/v1beta/models/m:generateContent")
    assert classify(seen, get("gemini")).envelope.message == "Invalid (at contents[0].role)"


def test_an_id_of_the_request_in_the_details():
    detail = {"@type": "type.googleapis.com/google.rpc.RequestInfo", "requestId": "r-1"}
    error = {"code": 500, "message": "M", "status": "INTERNAL", "details": [detail]}
    seen = Seen(status=500, headers=Headers(), body=json.dumps({"error": error}).encode())
    assert classify(seen, get("vertex")).envelope.raw["upstream_request_id"] == "r-1"


def test_what_the_hub_says_to_a_head_request():
    headers = Headers([("x-error-code", "EntryNotFound"), ("x-error-message", "Entry not found")])
    seen = Seen(status=404, headers=headers, method="HEAD", path="/org/model/resolve/main/x")
    envelope = classify(seen, get("huggingface")).envelope
    assert (envelope.code, envelope.message) == ("EntryNotFound", "Entry not found")


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("gemini", {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED",
                              "message": "quota exceeded for " * 40_000}}),
        ("gemini", {"error": {"code": 404, "status": "NOT_FOUND", "message": "model " * 100_000}}),
        ("cohere", {"message": "model " * 100_000}),
        ("cohere", {"message": "too many tokens max tokens " * 40_000}),
        ("huggingface", {"error": "tokens` + `max_ inputs " * 40_000}),
        ("bedrock", {"message": "model identifier " * 60_000}),
    ],
)  # fmt: skip
def test_long_messages_take_no_longer_than_they_are(dialect, body):
    raw = json.dumps(body).encode()
    for status in (400, 404, 429):
        seen = Seen(status=status, headers=Headers(), body=raw, now=NOW)
        started = time.process_time()
        classify(seen, get(dialect))
        # A rule that looks at each place anew would take minutes.
        assert time.process_time() - started < 5


def test_xml_that_never_ends():
    body = b"<Error>" + b"<Code>" * 20_000 + b"<Message>" * 20_000
    seen = Seen(status=400, headers=Headers(), body=body, now=NOW)
    assert classify(seen, get("bedrock")).verdict == "alive"
