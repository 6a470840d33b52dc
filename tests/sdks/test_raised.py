"""What the real libraries raise, against an upstream that fails as it is told.

Nothing here is built by hand: each exception is provoked, described and classified. Where the same
failure was recorded, what is described agrees with the record.
"""

import json

import pytest

from sidecar.envelope.describe import describe
from sidecar.envelope.sdk import classify
from tests.cases import NOW, all_cases

from . import scripted
from .libraries import LIBRARIES, STREAMS, put, read_object, transact

pytestmark = [
    # Sockets that a client leaves to the collector when its call fails.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAMES = sorted(LIBRARIES)
REFUSED = "http://127.0.0.1:1"
UNKNOWN = "http://no-such-host.invalid"


@pytest.fixture(scope="module")
def server():
    with scripted.threads_without_signals():
        running = scripted.Scripted()
        yield running
        running.close()


def raised(call, url):
    with pytest.raises(BaseException) as caught:
        call(url)
    return caught.value


def classified(error, sdk, now=NOW):
    return classify(describe(error), sdk=sdk, correlation_id="corr-9", now=now)


def told(found):
    envelope = found.envelope
    assert envelope.source == "sdk"
    assert envelope.correlation_id == "corr-9"
    assert envelope.message
    return envelope.class_, envelope.code, envelope.retryable, found.verdict


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("kind", "code", "retryable"),
    [
        ("refused", "connection_refused", True),
        ("unknown", "dns_failure", True),
        ("closed", "connection_reset", True),
        ("reset", "connection_reset", True),
        ("hang", "read_timeout", True),
        ("tls", "tls_failure", False),
    ],
)
def test_no_answer(server, name, kind, code, retryable):
    url = {"refused": REFUSED, "unknown": UNKNOWN, "tls": server.url.replace("http:", "https:")}
    server.script = {
        "closed": scripted.closed,
        "reset": scripted.reset,
        "hang": server.hang,
        "tls": scripted.plain,
    }.get(kind, scripted.closed)
    found = classified(raised(LIBRARIES[name].call, url.get(kind, server.url)), name)
    assert told(found) == ("transient", code, retryable, "failure")
    assert found.envelope.retry_after is None


@pytest.mark.parametrize("name", [name for name in NAMES if name != "boto3-dynamodb"])
def test_a_body_that_is_cut(server, name):
    server.script = scripted.cut
    found = classified(raised(LIBRARIES[name].call, server.url), name)
    code = "stream_truncated" if LIBRARIES[name].unwrapped else "connection_reset"
    assert told(found) == ("transient", code, True, "failure")


def test_an_object_that_is_cut_while_it_is_read(server):
    server.script = scripted.cut
    found = classified(raised(read_object, server.url), "boto3-s3")
    assert told(found) == ("transient", "connection_reset", True, "failure")


BY_STATUS = {
    400: ("validation", False, "alive"),
    401: ("authentication", False, "alive"),
    403: ("authentication", False, "alive"),
    404: ("permanent", False, "alive"),
    409: ("permanent", False, "alive"),
    422: ("validation", False, "alive"),
    429: ("rate_limit", True, "throttle"),
    500: ("transient", True, "failure"),
    503: ("transient", True, "failure"),
}
WAITS = {429: "7", 503: "3"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("status", sorted(BY_STATUS))
def test_a_status(server, name, status):
    library = LIBRARIES[name]
    headers = {library.id_header: "req-77"}
    if status in WAITS:
        headers["retry-after"] = WAITS[status]
    body = library.body(status, "some_code", "it says so")
    server.script = scripted.answer(status, body, headers)
    found = classified(raised(library.call, server.url), name)
    class_, retryable, verdict = BY_STATUS[status]
    if status == 409 and library.conflict:
        class_, retryable = "transient", True
    code = "some_code" if library.has_code else str(status)
    assert told(found) == (class_, code, retryable, verdict)
    wait = float(WAITS[status]) if status in WAITS else None
    assert found.envelope.retry_after == wait
    assert found.envelope.raw["upstream_request_id"] == "req-77"
    assert found.envelope.raw["status"] == status
    if name not in {"aiohttp", "slack_sdk"}:
        # The one does not read the body of an error, the other's has a code alone.
        assert "it says so" in found.envelope.message


@pytest.mark.parametrize(
    ("name", "status", "body", "expected"),
    [
        (
            "openai", 429,
            {"error": {"message": "You exceeded your current quota", "type": "insufficient_quota", "param": None, "code": "insufficient_quota"}},
            ("permanent", "quota_exhausted", False, "alive"),
        ),
        (
            "openai", 404,
            {"error": {"message": "The model `x` does not exist", "type": "invalid_request_error", "param": None, "code": "model_not_found"}},
            ("permanent", "model_not_found", False, "alive"),
        ),
        (
            "openai", 500,
            {"error": {"message": "maximum context length", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}},
            ("validation", "context_length_exceeded", False, "alive"),
        ),
        (
            "anthropic", 400,
            {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access the Anthropic API."}},
            ("permanent", "credits_exhausted", False, "alive"),
        ),
        (
            "anthropic", 404,
            {"type": "error", "error": {"type": "not_found_error", "message": "model: claude-x"}},
            ("permanent", "model_not_found", False, "alive"),
        ),
        (
            "anthropic", 529,
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            ("transient", "overloaded", True, "failure"),
        ),
        (
            "boto3-dynamodb", 400,
            {"__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", "message": "slow"},
            ("rate_limit", "ProvisionedThroughputExceededException", True, "throttle"),
        ),
        (
            "boto3-dynamodb", 400,
            {"__type": "com.amazon.coral.service#ExpiredTokenException", "message": "old"},
            ("authentication", "token_expired", True, "alive"),
        ),
        (
            "stripe", 402,
            {"error": {"type": "card_error", "code": "card_declined", "message": "declined", "decline_code": "insufficient_funds", "param": ""}},
            ("permanent", "card_declined", False, "alive"),
        ),
    ],
)  # fmt: skip
def test_what_the_body_says(server, name, status, body, expected):
    server.script = scripted.answer(status, body, {"retry-after": "1"})
    assert told(classified(raised(LIBRARIES[name].call, server.url), name)) == expected


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (["None", "ConditionalCheckFailed"], ("validation", "ConditionalCheckFailed", False, "alive")),
        (["TransactionConflict", "None"], ("transient", "TransactionConflict", True, "alive")),
        (["ThrottlingError"], ("rate_limit", "ThrottlingError", True, "throttle")),
        # One that the same request never meets outweighs one that would pass.
        (["ThrottlingError", "ConditionalCheckFailed"], ("validation", "ConditionalCheckFailed", False, "alive")),
    ],
)  # fmt: skip
def test_a_cancelled_transaction_means_what_its_reasons_mean(server, reasons, expected):
    body = {
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "Message": f"Transaction cancelled, please refer cancellation reasons for specific reasons [{', '.join(reasons)}]",
        "CancellationReasons": [{"Code": reason} for reason in reasons],
    }
    server.script = scripted.answer(400, body)
    assert told(classified(raised(transact, server.url), "boto3-dynamodb")) == expected


def test_an_error_in_a_stream(server):
    error = '{"error":{"message":"Slow down","type":"server_error","param":null,"code":"rate_limit_exceeded"}}'
    server.script = scripted.stream(f"data: {error}\n\n")
    found = classified(raised(STREAMS["openai"], server.url), "openai")
    assert told(found) == ("rate_limit", "rate_limit_exceeded", True, "throttle")

    error = '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    server.script = scripted.stream(f"event: error\ndata: {error}\n\n")
    found = classified(raised(STREAMS["anthropic"], server.url), "anthropic")
    assert told(found) == ("transient", "overloaded", True, "failure")


@pytest.mark.parametrize(
    "name", ["mistralai", "cohere", "stripe", "slack_sdk", "httpx", "requests", "aiohttp"]
)
def test_a_success_that_cannot_be_read(server, name):
    server.script = scripted.answer(200, "<html>hello", {"content-type": "text/html"})
    found = classified(raised(LIBRARIES[name].call, server.url), name)
    assert told(found) == ("transient", "invalid_upstream_response", True, "failure")


# --- what was recorded ----------------------------------------------------------------------


def _answered(case):
    error = case["error"]
    return case["sdk"] in LIBRARIES and error.get("status") is not None


def _wire(case):
    """What the upstream said, out of what the SDK kept of it."""
    error, sdk = case["error"], case["sdk"]
    body = error.get("body")
    if sdk == "openai" and isinstance(body, dict):
        body = {"error": body}
    if sdk == "boto3-dynamodb":
        body = {"__type": error["code"], "message": body["Error"].get("Message", "x"), **body}
        del body["Error"]
    if body is None:
        body = "<html/>" if sdk == "stripe" else ""
    headers = dict(error.get("headers") or {})
    if error["status"] == 302:
        headers["location"] = "/"
    return error["status"], body, headers


def _call(case):
    if (case["error"].get("headers") or {}).get("content-type") == "text/event-stream":
        return STREAMS[case["sdk"]]
    operations = {"PutItem": put, "TransactWriteItems": transact}
    told = case["error"]["message"]
    named = (call for operation, call in operations.items() if f"the {operation} operation" in told)
    return next(named, LIBRARIES[case["sdk"]].call)


ANSWERED = [case for case in all_cases("sdk-cases.jsonl") if _answered(case)]


@pytest.mark.parametrize("case", ANSWERED, ids=lambda case: case["id"])
def test_a_recorded_answer_is_raised_and_described_again(server, case):
    status, body, headers = _wire(case)
    if headers.get("content-type") == "text/event-stream":
        server.script = scripted.stream(f"event: error\ndata: {json.dumps(body)}\n\n")
    else:
        server.script = scripted.answer(status, body, headers)
    error = case["error"]
    live = describe(raised(_call(case), server.url))
    assert (live.type, list(live.mro)) == (error["type"], error["mro"])
    assert live.status == status
    assert live.code == error["code"]
    for name, value in (error.get("headers") or {}).items():
        assert live.headers.get(name) == value
    if error.get("body") is not None and case["sdk"] not in {"boto3-dynamodb", "httpx", "requests"}:
        assert live.body == error["body"]
    expect = case["expect"]
    found = classify(live, sdk=case["sdk"], now=float(case.get("now") or NOW))
    envelope = found.envelope
    assert (envelope.class_, envelope.code, envelope.retryable, found.verdict) == (
        expect["class"], expect["code"], expect["retryable"], expect["verdict"],
    )  # fmt: skip
    assert envelope.retry_after == pytest.approx(expect["retry_after"], abs=1)


KINDS = {
    "close": scripted.closed,
    "trunc": scripted.cut,
    "hang": None,
    "dns": None,
    "refused": None,
    "tls-on-plain": scripted.plain,
}


def _unanswered():
    for case in all_cases("sdk-cases.jsonl"):
        for kind in KINDS:
            if case["sdk"] in LIBRARIES and case["id"].endswith(f"-{kind}"):
                yield pytest.param(case, kind, id=case["id"])


@pytest.mark.parametrize(("case", "kind"), list(_unanswered()))
def test_a_recorded_silence_is_raised_and_described_again(server, case, kind):
    server.script = KINDS[kind] or server.hang
    url = {
        "dns": UNKNOWN,
        "refused": REFUSED,
        "tls-on-plain": server.url.replace("http:", "https:"),
    }.get(kind, server.url)
    live = describe(raised(LIBRARIES[case["sdk"]].call, url))
    error = case["error"]
    assert (live.type, list(live.mro), live.status) == (error["type"], error["mro"], None)
    chain = []
    while error is not None:
        chain.append(error["type"])
        error = error.get("cause")
    assert [link.type for link in live.chain()][: len(chain)] == chain
    expect = case["expect"]
    found = classify(live, sdk=case["sdk"], now=NOW)
    assert (found.envelope.class_, found.envelope.code, found.verdict) == (
        expect["class"], expect["code"], expect["verdict"],
    )  # fmt: skip
