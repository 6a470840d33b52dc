"""Whatever was raised: the envelope keeps the contract, nothing raises, and long things cost little."""

import json
import math
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.envelope.raised import Raised, recorded
from sidecar.envelope.sdk import classify
from sidecar.envelope.sdks import FAMILIES
from sidecar.envelope.transport_classes import SURE, VAGUE
from tests.cases import NOW, all_cases

CASES = all_cases("sdk-cases.jsonl")
CODE = re.compile(r"[A-Za-z0-9._:/#-]{1,64}")

KNOWN = sorted(
    {name for family in FAMILIES for table in (family.classes, family.statuses, family.words) for name in table}
    | set(SURE) | set(VAGUE)
)  # fmt: skip
CODES = sorted({code for family in FAMILIES for table in (family.codes, family.kinds) for code in table})  # fmt: skip
NAMES = sorted({name for family in FAMILIES for name in family.sdks} | {case["sdk"] for case in CASES})  # fmt: skip

MESSAGES = [case["error"]["message"] for case in CASES]


def one_of_many(many):
    """One of a list that is too long to be printed with the strategy."""

    def pick(index):
        return many[index]

    return st.integers(0, len(many) - 1).map(pick)


leaf = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=40),
    one_of_many(CODES),
)  # fmt: skip
# Names that dialects and families look for in a body, so that each may hold anything.
MEMBERS = [
    "@type", "Code", "Error", "Errors", "HTTPHeaders", "Message", "Reason", "RequestId",
    "ResponseMetadata", "__type", "base_resp", "blockReason", "body", "cause", "choices",
    "cloudflare_error", "code", "content", "data", "description", "detail", "details", "error",
    "errorInfo", "error_code", "error_description", "error_message", "error_type", "errors",
    "estimated_time", "extensions", "field", "fieldViolations", "fields", "headers", "index",
    "innerError", "innererror", "interval", "kind", "location", "locations", "message",
    "messages", "metadata", "name", "originalStatusCode", "param", "promptFeedback",
    "quotaValue", "quotaViolations", "raw", "reason", "reasons", "request_id",
    "response_metadata", "result", "retryAfterSeconds", "retryDelay", "retry_delay",
    "root_cause", "seconds", "nanos", "severity", "status", "statusCode", "status_code",
    "success", "type", "value", "violations", "word", "CancellationReasons",
]  # fmt: skip
value = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(one_of_many(MEMBERS), inner, max_size=5),
    ),
    max_leaves=16,
)
headers = st.dictionaries(
    st.sampled_from(
        ["retry-after", "retry-after-ms", "x-should-retry", "stripe-should-retry", "x-error-envelope",
         "grpc-retry-pushback-ms", "grpc-status-details-bin", "google.rpc.retryinfo-bin", "grpc-status",
         "x-ratelimit-remaining", "x-ratelimit-reset", "x-error-code", "content-type", "x-request-id"]
    ),
    st.one_of(st.text(max_size=30), st.sampled_from(["true", "false", "0", "-1", "1e999", "nan", "14"])),
    max_size=4,
)  # fmt: skip
error = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.one_of(one_of_many(KNOWN), st.text(max_size=20)),
            "mro": st.lists(st.one_of(one_of_many(KNOWN), st.text(max_size=10)), max_size=3),
            "status": st.one_of(st.integers(-5, 1200), st.sampled_from([200, 302, 400, 401, 409, 429, 500])),
            "code": leaf,
            "headers": headers,
            "body": st.one_of(value, st.text(max_size=60), st.sampled_from(["{", "[", '{"error": "x"}'])),
            "args": st.lists(value, max_size=3),
            "message": st.one_of(st.text(max_size=80), one_of_many(MESSAGES)),
            "attrs": st.dictionaries(st.sampled_from(["details", "reason", "status_code", "retry_after_s", "request_id", "host", "_message"]), value, max_size=3),
            "errno": st.one_of(st.integers(-10, 200), st.integers()),
            "phase": st.sampled_from(["connect", "commit", "x"]),
        },
    ),
    lambda inner: st.one_of(
        st.builds(lambda outer, cause: {**outer, "cause": cause}, inner, inner),
        st.builds(lambda outer, held: {**outer, "exceptions": held}, inner, st.lists(inner, max_size=3)),
    ),
    max_leaves=4,
)  # fmt: skip


def check(raised: Raised, sdk=None):
    found = classify(raised, sdk=sdk, correlation_id="corr-1", now=NOW)
    assert not found.rule.startswith("fault"), found.rule
    envelope = found.envelope
    assert CODE.fullmatch(envelope.code), envelope.code
    assert envelope.message
    assert len(envelope.message) <= 500
    assert "\n" not in envelope.message
    assert envelope.correlation_id == "corr-1"
    wait = envelope.retry_after
    if wait is not None:
        assert envelope.retryable
        assert math.isfinite(wait)
        assert wait >= 0
    class_ = envelope.class_
    if class_ in {"validation", "permanent"}:
        assert not envelope.retryable
    if class_ == "authentication":
        assert envelope.retryable == (envelope.code == "token_expired")
    if class_ != "transient":
        assert found.verdict == ("throttle" if class_ == "rate_limit" else "alive")
    else:
        assert found.verdict in {"failure", "alive", "neutral"}
    json.dumps(envelope.raw, allow_nan=False)
    return found


@given(error, st.one_of(st.none(), one_of_many(NAMES), st.text(max_size=10)))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_contract_holds_whatever_was_raised(raised, sdk):
    if "x-error-envelope" in (raised.get("headers") or {}):
        # What another sidecar says is believed.
        classify(recorded(raised), sdk=sdk, now=NOW)
        return
    check(recorded(raised), sdk)


@pytest.mark.parametrize("name", ["x-should-retry", "stripe-should-retry"])
@pytest.mark.parametrize("sdk", [None, "openai", "stripe"])
def test_a_wish_that_the_sdk_has_heard_is_no_wish(name, sdk):
    for status in (400, 401):
        check(recorded({"status": status, "headers": {name: "true"}}), sdk)


@pytest.mark.parametrize("sdk", NAMES)
def test_members_of_a_body_may_be_of_any_kind(sdk):
    for held in (1, "x", [], [1], {}, {"x": 1}, True, None, 1e308, "0"):
        error = dict.fromkeys(MEMBERS, held)
        check(recorded({"status": 429, "body": {**error, "error": error}}), sdk)
        check(recorded({"status": 429, "body": {"error": error}}), sdk)
        check(recorded({"body": error, "status": 200}), sdk)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_every_part_of_a_record_may_be_missing(case):
    """A report of other people's code gives what it has: each member alone, and all but each."""
    for name in case["error"]:
        alone = {name: case["error"][name]}
        check(recorded(alone), case["sdk"])
        check(recorded(alone))
        without = {key: held for key, held in case["error"].items() if key != name}
        check(recorded(without), case["sdk"])


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "(Caused by " * 20_000,
        "[errno 1" * 50_000,
        "An error occurred (" * 20_000,
        "status " * 50_000,
        "'error': '" * 30_000,
        "[None, " * 40_000,
        "a, " * 90_000,
    ],
)
@pytest.mark.parametrize("kind", ["botocore.errorfactory.TransactionCanceledException", "requests.exceptions.RetryError", "google.auth.exceptions.RefreshError", "acme.Error"])  # fmt: skip
def test_long_texts_are_no_trouble(text, kind):
    check(recorded({"type": kind, "message": text}))
    check(recorded({"type": kind, "body": text, "status": 500, "message": text}))


def test_deep_and_wide_chains_are_bounded():
    deep = {"type": "acme.Error"}
    for _ in range(500):
        deep = {"type": "acme.Error", "cause": deep, "exceptions": []}
    check(recorded(deep))
    wide = {"type": "ExceptionGroup", "exceptions": [{"type": "ConnectionRefusedError"}] * 5000}
    assert check(recorded(wide)).envelope.code == "connection_refused"
