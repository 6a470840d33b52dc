"""Waits in every form in which sources write them, and which of several wins."""

import pytest

from sidecar.envelope.dialects import get
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.model import Seen
from sidecar.envelope.retry_after import (
    from_days_clock,
    from_headers,
    from_prose,
    from_reset,
    seconds_of,
)
from tests.cases import NOW


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("2.5", 2.5),
        (" 30 ", 30),
        ("86400", 86400),
        ("2591999", 2591999),
        ("6m0s", 360),
        ("2m59.56s", 179.56),
        ("120ms", 0.12),
        ("1h2m3s", 3723),
        ("34.074824224s", 34.074824224),
        ("1d", 86400),
        ("1796040060", 60),
        ("1796040060.5", 60.5),
        ("1796040060000", 60),
        ("1796039000", 0),
        ("Mon, 30 Nov 2026 12:00:40 GMT", 40),
        ("Monday, 30-Nov-26 12:00:40 GMT", 40),
        ("Mon Nov 30 12:00:40 2026", 40),
        ("Mon, 30 Nov 2026 11:59:00 GMT", 0),
        ("2026-11-30T12:00:33Z", 33),
        ("2026-11-30T13:00:33+01:00", 33),
        ("2026-11-30T12:05Z", 300),
        ("2026-11-30 12:00:33", 33),
    ],
)
def test_readable(text, seconds):
    assert seconds_of(text, NOW) == pytest.approx(seconds, abs=0.01)


@pytest.mark.parametrize(
    "text",
    ["", "soon", "-5", "NaN", "inf", "-inf", "1e3", "10, 20", "0x10", "9" * 400, "abc", "-1s", "s",
     "Mon Nov 30 2026 13:00:30 GMT+0100 (Central European Standard Time)", "2026-13-45T99:99Z",
     "Mon, 99 Nov 2026 12:00:40 GMT", "١٢"],
)  # fmt: skip
def test_unreadable_is_no_hint(text):
    found = seconds_of(text, NOW)
    assert found is None or found >= 0
    if text != "١٢":
        assert found is None


@pytest.mark.parametrize("told", ["9" * 60 + "s", "9" * 60 + "d", "1" + "0" * 50])
def test_a_wait_beyond_a_life_is_none(told):
    headers = Headers([("retry-after", told)])
    seen = Seen(status=429, headers=headers, body=b"{}", method="POST", path="/", now=NOW)
    envelope = classify(seen, get("openai"), correlation_id="x").envelope
    assert (envelope.retryable, envelope.retry_after) == (True, None)


def test_a_moment_needs_a_clock():
    assert seconds_of("1796040060", 0) is None
    assert seconds_of("30", 0) == 30


def test_a_sentence_about_a_wait_stands_at_either_end_of_a_long_text():
    filling = "word " * 100_000
    assert from_prose(f"Please try again in 20s. {filling}")[0] == 20
    assert from_prose(f"{filling} Please try again in 20s.")[0] == 20
    assert from_prose(f"{filling} Please try again in 20s. {filling}") is None


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after-ms": "2500", "retry-after": "3"}, 2.5),
        ({"x-ms-retry-after-ms": "1200", "retry-after": "2"}, 1.2),
        ({"retry-after-ms": "NaN", "retry-after": "3"}, 3),
        ({"retry-after-ms": "-1", "retry-after": "3"}, 3),
        ({"retry-after": "soon"}, None),
        ({}, None),
        (
            {
                "retry-after": "Mon, 30 Nov 2026 11:50:30 GMT",
                "date": "Mon, 30 Nov 2026 11:50:00 GMT",
            },
            30,
        ),
    ],
)
def test_outright(headers, wait):
    found = from_headers(Headers(headers.items()), NOW)
    assert (found and found[0]) == wait


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"x-ratelimit-remaining-requests": "499", "x-ratelimit-reset-requests": "8s",
          "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "8s",
          "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "2s"}, 8),
        ({"x-ratelimit-remaining-tokens": "-1", "x-ratelimit-reset-tokens": "0"}, None),
        ({"x-ratelimit-remaining": "10", "x-ratelimit-reset": "1796043000"}, None),
        ({"x-ratelimit-reset": "1796040030"}, 30),
        ({"ratelimit-reset": "50"}, 50),
        ({"ratelimit": "limit=100, remaining=0, reset=50"}, 50),
        ({"ratelimit": "limit=100, remaining=5, reset=50"}, None),
        ({"ratelimit": '"a";r=10;t=5, "b";r=0;t=9'}, 9),
        ({"ratelimit": '"a";r=10;t=5'}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset-after": "1.25",
          "x-ratelimit-reset": "1796040099.5"}, 1.25),
        ({"anthropic-ratelimit-tokens-remaining": "0",
          "anthropic-ratelimit-tokens-reset": "2026-11-30T12:00:42Z"}, 42),
        ({"x-ratelimit-remaining": "many", "x-ratelimit-reset": "5"}, None),
    ],
)  # fmt: skip
def test_the_reset_of_what_is_exhausted(headers, wait):
    found = from_reset(Headers(headers.items()), NOW)
    assert (found and found[0]) == wait


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("Please try again in 11.054s.", 11.054),
        ("Please try again in 6m0s.", 360),
        ("Please try again in 1h2m3s", 3723),
        ("Please retry in 900ms.", 0.9),
        ("Please retry after 6 seconds.", 6),
        ("Try again in 5 minutes", 300),
        ("Rate limit is exceeded. Try again in 1 second.", 1),
        ("Your limit resets in 2 hours", 7200),
        ("try again in a moment", None),
        ("try again in 5 bananas", None),
        ("limit 30 seconds", None),
    ],
)
def test_prose(text, wait):
    found = from_prose(text)
    assert (found and found[0]) == (None if wait is None else pytest.approx(wait))


def test_days_clock():
    assert from_days_clock("replenished in 02.13:45:11.") == 222311
    assert from_days_clock("replenished soon") is None


@pytest.mark.parametrize(
    ("dialect", "headers", "body", "wait"),
    [
        ("openai", {"retry-after": "2"}, '{"error":{"message":"try again in 9s"}}', 2),
        ("openai", {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "50"},
         '{"error":{"message":"try again in 9s"}}', 9),
        ("generic", {}, '{"message":"try again in 9s"}', None),
        ("generic", {}, '{"message":"x","retry_after":3.25}', 3.25),
        ("generic", {}, '{"message":"x","retry_after":"-3"}', None),
        ("generic", {"retry-after": "7"}, '{"message":"x","retry_after":3.25}', 7),
        ("generic", {"retry-after": "soon"}, '{"message":"x","retry_after_ms":1500}', 1.5),
    ],
)  # fmt: skip
def test_the_most_precise_source_wins(dialect, headers, body, wait):
    seen = Seen(status=429, headers=Headers(headers.items()), body=body.encode(), now=NOW)
    assert classify(seen, get(dialect)).envelope.retry_after == wait


def test_the_source_spelling_is_kept():
    seen = Seen(status=400, headers=Headers([("retry-after", "30")]), now=NOW)
    envelope = classify(seen, get("generic")).envelope
    assert envelope.retry_after is None
    assert envelope.raw["retry_after"] == "30"


def test_a_wait_for_people_is_no_retry_after():
    body = b'{"error":{"type":"usage_limit_reached","resets_in_seconds":13872}}'
    seen = Seen(status=429, headers=Headers([("retry-after", "9")]), body=body, now=NOW)
    envelope = classify(seen, get("openai")).envelope
    assert envelope.code == "plan_window_exhausted"
    assert envelope.retry_after is None
    assert envelope.raw["resets_in"] == 13872
