"""B and C: a mistake in the clothes of an outage stays a mistake, for every kind of client."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from typing import Any

import anthropic
import openai
import pytest

from .clients import KINDS
from .conftest import envelope


@pytest.mark.parametrize("kind", KINDS)
async def test_b_two_hundred_typos_trip_nothing(running, make, api, upstream, kind) -> None:
    client = make(kind, running)
    assert client.raw.max_retries == 2
    for n in range(200):
        error = await client.error("gpt-typo")
        assert isinstance(error, (openai.NotFoundError, anthropic.NotFoundError))
        assert "gpt-typo" in error.message
        if n % 20 == 0:
            await client.ask("gpt-4o")
    assert upstream.hits == 210
    assert sum(call.decision == "forwarded" for call in running.calls) == 210
    found = envelope(error)
    assert (found["class"], found["code"]) == ("permanent", "model_not_found")
    assert found["retryable"] is False
    provider = kind.removesuffix("-async")
    shot = running.breaker(f"{provider}/gpt-typo")
    assert (shot.state, shot.window.failure, shot.window.alive) == ("closed", 0, 200)
    assert running.breaker(f"{provider}/gpt-4o").window.success == 10
    assert error.response.headers["x-sidecar-upstream-status"] == "503"


@pytest.mark.parametrize("kind", KINDS)
async def test_b_without_the_daemon_each_typo_is_three_requests(make, api, upstream, kind) -> None:
    client = make(kind, upstream.url)
    for _ in range(5):
        error = await client.error("gpt-typo")
        assert isinstance(error, (openai.InternalServerError, anthropic.InternalServerError))
    assert upstream.hits == 15


def plain_loop(url: str, attempts: int = 3) -> tuple[int, int]:
    """What many write by hand: again on any 5xx. Returns the last status and the attempts."""
    body = b'{"model": "gpt-typo", "messages": []}'
    for attempt in range(1, attempts + 1):
        request = urllib.request.Request(
            f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request) as found:
                return found.status, attempt
        except urllib.error.HTTPError as error:
            with error:
                if error.code < 500:
                    return error.code, attempt
                status = error.code
    return status, attempts


async def test_b_a_loop_that_goes_by_the_status_alone(running, api, upstream) -> None:
    direct = await asyncio.to_thread(plain_loop, upstream.url)
    through = await asyncio.to_thread(plain_loop, f"http://127.0.0.1:{running.port}/openai")
    assert direct == (503, 3)
    assert through == (404, 1)


OPENAI_ROWS: list[tuple[Any, ...]] = [
    ("spent-429", openai.APIStatusError, 402, "permanent", "quota_exhausted", "current quota"),
    ("long-500", openai.BadRequestError, 400, "validation", "context_length_exceeded", "128000"),
    ("refused-500", openai.BadRequestError, 400, "validation", "content_filtered", "filtered"),
    ("typo-200", openai.NotFoundError, 404, "permanent", "model_not_found", "typo-200"),
    ("key-200", openai.AuthenticationError, 401, "authentication", "invalid_api_key", "API key"),
]
ANTHROPIC_ROWS: list[tuple[Any, ...]] = [
    ("spent-429", anthropic.APIStatusError, 402, "permanent", "credits_exhausted", "credit"),
    ("long-500", anthropic.BadRequestError, 400, "validation", "context_length_exceeded", "208310"),
    ("refused-500", anthropic.BadRequestError, 400, "validation", "content_filtered", "blocked"),
    ("typo-200", anthropic.NotFoundError, 404, "permanent", "model_not_found", "typo-200"),
    ("key-200", anthropic.AuthenticationError, 401, "authentication", "authentication_error", "x-api-key"),
]  # fmt: skip
ROWS = [
    (kind, *row)
    for kind in KINDS
    for row in (OPENAI_ROWS if kind.startswith("openai") else ANTHROPIC_ROWS)
]


@pytest.mark.parametrize(("kind", "model", "raised", "status", "class_", "code", "says"), ROWS)
async def test_c_one_request_the_right_class_and_nothing_counted(
    running, make, api, upstream, kind, model, raised, status, class_, code, says
) -> None:
    error = await make(kind, running).error(model)
    assert upstream.hits == 1
    assert isinstance(error, raised)
    assert error.status_code == status
    assert says in str(error)
    found = envelope(error)
    assert (found["class"], found["code"], found["retryable"]) == (class_, code, False)
    assert says in found["message"]
    shot = running.breaker(f"{kind.removesuffix('-async')}/{model}")
    assert (shot.window.failure, shot.window.success, shot.window.alive) == (0, 0, 1)
    assert error.response.headers["x-sidecar-verdict"] == "alive"


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_c_without_the_daemon(make, api, upstream, kind) -> None:
    """What the same clients make of the same answers: repeats, or an answer without content."""
    client = make(kind, upstream.url)
    for model in ("spent-429", "long-500", "refused-500"):
        before = upstream.hits
        await client.error(model)
        assert upstream.hits == before + 3
    found = await client.ask("typo-200")
    assert not (found.choices if client.is_openai else found.content)


@pytest.mark.parametrize("kind", KINDS)
async def test_c_in_a_stream(running, make, api, upstream, kind) -> None:
    """An error in a 200 instead of a stream has its real status too."""
    client = make(kind, running)
    _, error = await client.stream("chat" if client.is_openai else "messages", "typo-200")
    assert isinstance(error, (openai.NotFoundError, anthropic.NotFoundError))
    assert upstream.hits == 1
