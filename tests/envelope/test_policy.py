"""What a caller is told beyond the body: status, `x-should-retry`, waits, the envelope's header."""

import json

import pytest

from sidecar.envelope.model import Classified, Envelope, ErrorClass, Source, Verdict
from sidecar.envelope.policy import (
    header_envelope,
    is_reclassified,
    retry_headers,
    should_retry,
    status_for,
)


def envelope(class_="transient", code="x", *, retryable=True, retry_after=None, message="m"):
    return Envelope(
        class_=ErrorClass(class_),
        source=Source.HTTP,
        code=code,
        message=message,
        retryable=retryable,
        retry_after=retry_after,
        correlation_id="c-1",
        raw={"status": 503},
    )


def classified(class_, code="x"):
    return Classified(envelope=envelope(class_, code), verdict=Verdict.ALIVE, rule="r")


KEPT = [
    ("validation", [400, 413, 422]),
    ("authentication", [401, 403]),
    ("rate_limit", [429]),
    ("transient", [408, 409, 425, 499, 500, 502, 503, 504, 508, 511, 520, 529, 599]),
    ("permanent", [402, 404, 405, 409, 410, 411, 412, 413, 414, 418, 451, 498, 501, 505, 507]),
]


@pytest.mark.parametrize(("class_", "status"), [(c, s) for c, many in KEPT for s in many])
def test_a_status_of_the_class_is_kept(class_, status):
    assert status_for(classified(class_), status) == status
    assert not is_reclassified(classified(class_), status)


@pytest.mark.parametrize(
    ("class_", "code", "status", "becomes"),
    [
        ("validation", "x", 503, 400),
        ("validation", "x", 200, 400),
        ("validation", "x", 402, 400),
        ("validation", "context_length_exceeded", 500, 400),
        ("validation", "content_filtered", 403, 400),
        ("authentication", "x", 400, 401),
        ("authentication", "token_expired", 200, 401),
        ("rate_limit", "x", 403, 429),
        ("rate_limit", "x", 503, 429),
        ("transient", "x", 200, 503),
        ("transient", "x", 400, 503),
        ("transient", "x", 501, 503),
        ("transient", "x", 507, 503),
        ("permanent", "x", 503, 422),
        ("permanent", "x", 400, 422),
        ("permanent", "x", 200, 422),
        ("permanent", "model_not_found", 503, 404),
        ("permanent", "model_not_found", 400, 404),
        ("permanent", "quota_exhausted", 429, 402),
        ("permanent", "credits_exhausted", 400, 402),
        ("permanent", "spend_limit_reached", 403, 402),
        ("permanent", "plan_window_exhausted", 429, 402),
        ("permanent", "request_over_budget", 200, 402),
    ],
)
def test_any_other_status_becomes_the_classs_own(class_, code, status, becomes):
    assert status_for(classified(class_, code), status) == becomes
    assert is_reclassified(classified(class_, code), status)


def test_a_good_answer_is_left_alone():
    good = Classified(envelope=None, verdict=Verdict.SUCCESS, rule="r")
    assert status_for(good, 200) == 200
    assert not is_reclassified(good, 200)


@pytest.mark.parametrize(
    ("error", "facts", "value"),
    [
        (envelope(), {}, None),
        (envelope(), {"upstream": "true"}, "true"),
        (envelope(), {"upstream": "false"}, "false"),
        (envelope(), {"terminal": True, "upstream": "true"}, "false"),
        (envelope("authentication", "token_expired"), {"upstream": "true"}, "false"),
        (envelope(), {"decision": "breaker_open"}, "false"),
        (envelope(), {"decision": "breaker_open", "fail_fast": False}, None),
        (envelope(retry_after=61), {}, "false"),
        (envelope(retry_after=60), {}, None),
        (envelope(retry_after=61), {"sdk_wait_max": 120.0}, None),
        (envelope("validation", retryable=False), {"upstream": "true"}, "false"),
        (envelope(), {"decision": "timeout", "sent": True}, "false"),
        (envelope(), {"decision": "upstream_error", "sent": True}, "false"),
        (envelope(), {"decision": "connect_error"}, None),
        (envelope(), {"decision": "timeout", "sent": True, "method": "GET"}, None),
        (envelope(), {"decision": "timeout", "sent": True, "idempotency_key": True}, None),
        (envelope(), {"decision": "timeout", "sent": True, "repeatable": True}, None),
        (envelope(), {"decision": "forwarded", "sent": True}, None),
    ],
)
def test_should_retry(error, facts, value):
    assert should_retry(error, **{"terminal": False, **facts}) == value


@pytest.mark.parametrize(
    ("error", "pairs"),
    [
        (envelope(), []),
        (envelope(retry_after=0), [("retry-after", "0"), ("retry-after-ms", "0")]),
        (envelope(retry_after=2.0004), [("retry-after", "3"), ("retry-after-ms", "2001")]),
        (envelope(retryable=False), []),
    ],
)
def test_retry_headers(error, pairs):
    assert retry_headers(error) == pairs


@pytest.mark.parametrize("message", ["short", "ä" * 500, "\U0001f600" * 500, '"\\' * 250])
def test_the_header_is_one_short_line_of_ascii(message):
    line = header_envelope(envelope(message=message, code="c" * 64))
    assert len(line) <= 2048
    assert line.isascii()
    assert line.isprintable()
    told = json.loads(line)
    assert list(told) == [
        "class", "source", "code", "message", "retryable", "retry_after", "correlation_id",
    ]  # fmt: skip
    assert told["message"].rstrip("…") == message[: len(told["message"].rstrip("…"))]
