"""What a model is told of a failed tool call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.client import for_model
from sidecar.envelope.model import Envelope, ErrorClass, Source

from .failures import deadlock, envelope, failure


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (
            envelope("validation", code="22P02", message='invalid input for "age": "x"'),
            ('The call was refused because of what it contains (22P02): invalid input for "age":'
            ' "x". Do not repeat it unchanged. Change what the message names, then call again.'
            " Reference: w-1."),
        ),
        (
            envelope("authentication", code="28P01", message="wrong password."),
            ("The call was refused: the credentials or the rights do not suffice (28P01): wrong"
            " password. Do not repeat it unchanged. Tell the person you work for: somebody has to"
            " grant access. Reference: w-1."),
        ),
        (
            envelope("rate_limit", code="burst", retry_after=11.2),
            ("The call was turned away: too many calls at the moment (burst): it failed. The same"
            " call may succeed in 12 seconds. Reference: w-1."),
        ),
        (
            envelope("transient", code="40P01", retry_after=0.0, correlation_id=""),
            ("The call failed: the service, or the way to it, is in trouble (40P01): it failed."
            " The same call may succeed at once."),
        ),
        (
            envelope("transient", code="connection_reset", retryable=False, raw={"phase": "commit"}),
            ("The call failed: the service, or the way to it, is in trouble (connection_reset):"
            " it failed. Do not repeat it. It is not known whether it was carried out: look before"
            " you do it again. Reference: w-1."),
        ),
        (
            envelope("permanent", code="model_not_found"),
            ("The call cannot succeed (model_not_found): it failed. Do not repeat it unchanged. Use"
            " a model that exists and that this account may use. Reference: w-1."),
        ),
    ],
    ids=lambda told: told.code if isinstance(told, Envelope) else "",
)  # fmt: skip
def test_the_words(told: Envelope, expected: str) -> None:
    assert for_model(told) == expected


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        (None, "a little later"), (0.0, "at once"), (0.2, "in 1 second."), (1.0, "in 1 second."),
        (119.5, "in 120 seconds"), (121.0, "in 3 minutes"), (3600.0, "in 60 minutes"),
    ],
)  # fmt: skip
def test_the_wait(wait: float | None, words: str) -> None:
    assert words in for_model(envelope("rate_limit", retry_after=wait))


def test_exceptions_of_any_kind() -> None:
    assert "40P01" in for_model(deadlock())
    assert "nobody listens" not in for_model(failure("permanent"))
    assert "connection_refused" in for_model(ConnectionRefusedError(111, "Connection refused"))
    assert for_model(KeyboardInterrupt()) == (
        "The call failed: KeyboardInterrupt. Do not repeat it unchanged."
    )


def test_no_secret_and_nothing_of_raw() -> None:
    error = RuntimeError("no way in: Authorization: Bearer sk-proj-abcdefghijklmnopqrstuvwxyz0123")
    assert "abcdefghijklmnop" not in for_model(error)
    told = envelope(raw={"body": "inside", "headers": {"x": "inside"}})
    assert "inside" not in for_model(told)


@given(
    class_=st.sampled_from(ErrorClass),
    code=st.sampled_from(["x", "token_expired", "content_filtered", "quota_exhausted"]),
    message=st.text(max_size=2000),
    retryable=st.booleans(),
    wait=st.none() | st.floats(0, 1e9),
    raw=st.none() | st.just({"sent": True}),
)
def test_it_is_short_and_says_whether_to_go_on(
    class_: ErrorClass, code: str, message: str, retryable: bool, wait: Any, raw: Any
) -> None:
    text = for_model(
        Envelope(
            class_=class_,
            source=Source.HTTP,
            code=code,
            message=message,
            retryable=retryable,
            retry_after=wait,
            raw=raw,
        )
    )
    assert len(text) < 750
    assert "\n" not in text
    assert ("Do not repeat it" in text) is not retryable or "Do not repeat it" in message
