"""Whose limit a call counts against, told by a hash that tells nothing else."""

from __future__ import annotations

import re

import pytest

from sidecar.proxy.limit_key import SUBJECT_LENGTH, limit_key, tells_whose

BEARER = (b"Authorization", b"Bearer sk-one-0123456789")


def key(*headers, target="/v1/chat/completions", subject="gpt-x", **more):
    return limit_key(subject, headers, target, **more)


@pytest.mark.parametrize(
    "name",
    [
        "Authorization", "x-api-key", "api-key", "X-Goog-Api-Key", "xi-api-key", "apikey",
        "Ocp-Apim-Subscription-Key", "x-auth-token", "PRIVATE-TOKEN", "X-Subscription-Token",
        "OpenAI-Organization", "OpenAI-Project", "x-goog-user-project", "ChatGPT-Account-Id",
        "anthropic-workspace-id", "X-Tenant-ID",
    ],
)  # fmt: skip
def test_headers_that_tell_whose(name) -> None:
    assert tells_whose(name.encode())
    assert key((name.encode(), b"one")) != key((name.encode(), b"two"))
    assert key((name.encode(), b"one")) == key((name.upper().encode(), b" one "))


@pytest.mark.parametrize(
    "name",
    [
        "Idempotency-Key", "X-Idempotency-Key", "Sec-WebSocket-Key", "X-CSRF-Token",
        "Mcp-Session-Id", "X-Session-Token", "Cookie", "User-Agent", "X-Request-Id", "Content-Type",
        "Proxy-Authorization", "Surrogate-Key", "anthropic-version", "OpenAI-Beta", "x-author",
        "traceparent",
    ],
)  # fmt: skip
def test_headers_that_differ_from_call_to_call_or_say_nothing(name) -> None:
    assert not tells_whose(name.encode())
    assert key(BEARER, (name.encode(), b"one")) == key(BEARER, (name.encode(), b"two"))


def test_the_order_of_headers_makes_no_difference() -> None:
    project = (b"OpenAI-Project", b"p")
    assert key(BEARER, project) == key(project, BEARER)
    assert key(BEARER, project) != key(BEARER)


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("?key=a", "?key=b", False),
        ("?alt=sse&key=a", "?key=a&alt=json", True),
        ("?api_key=a", "?api_key=b", False),
        ("?API-KEY=a", "?API-KEY=b", False),
        ("?access_token=a", "?access_token=b", False),
        ("?page=a", "?page=b", True),
        ("?monkey=a", "?monkey=b", True),
        ("?sig=a", "?sig=b", True),
    ],
)
def test_credentials_in_the_query(one, two, same) -> None:
    assert (key(target=f"/x{one}") == key(target=f"/x{two}")) is same


def test_credentials_in_the_path_where_the_provider_has_them() -> None:
    hooks = (re.compile(r"/services/(T[A-Z0-9]+/B[A-Z0-9]+/[A-Za-z0-9]+)"),)
    one, two = "/services/T000/B000/aaaaaaaaaaaa", "/services/T000/B000/bbbbbbbbbbbb"
    assert key(target=one, secret_paths=hooks) != key(target=two, secret_paths=hooks)
    assert key(target=one) == key(target=two)


def test_what_the_configuration_sets_is_the_same_for_all() -> None:
    other = (b"authorization", b"Bearer sk-two")
    assert key(BEARER, configured={b"authorization"}) == key(other, configured={b"authorization"})


def test_subjects_are_apart_and_bounded() -> None:
    assert key(BEARER, subject="gpt-x") != key(BEARER, subject="gpt-y")
    assert len(key(subject="x" * 100_000).subject) == SUBJECT_LENGTH


def test_nothing_of_a_credential_is_in_it() -> None:
    found = key(BEARER)
    assert len(found.credential) == 16
    assert b"sk-one" not in found.credential
    # Not one value's end and the next one's beginning.
    assert key((b"x-a-key", b"ab"), (b"x-b-key", b"c")) != key(
        (b"x-a-key", b"a"), (b"x-b-key", b"bc")
    )


def test_no_credential_is_one_too() -> None:
    assert key() == key((b"Accept", b"*/*"))
    assert key() != key(BEARER)
