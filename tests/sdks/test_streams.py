"""A stream that dies on its way ends in the client's own error, with a code and an envelope."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import openai
import pytest

from .conftest import begin

APIS = [
    ("openai", "chat"),
    ("openai-async", "chat"),
    ("openai", "responses"),
    ("openai-async", "responses"),
    ("anthropic", "messages"),
    ("anthropic-async", "messages"),
]
ENDS = [
    ("cut-close", "stream_truncated"),
    ("cut-reset", "stream_truncated"),
    ("cut-clean", "stream_truncated"),
    ("cut-hang", "idle_timeout"),
]


def told(error: Any) -> tuple[str | None, Any]:
    """The code and the envelope that an exception shows."""
    if isinstance(error, openai.APIError):
        return error.code, error.body["envelope"]
    return error.body["error"]["details"]["error_code"], error.body["envelope"]


@pytest.mark.parametrize(("kind", "api_name"), APIS)
@pytest.mark.parametrize(("model", "code"), ENDS)
async def test_it_raises(start, upstream, api, make, kind, api_name, model, code) -> None:
    running = await begin(start, upstream.url, timeouts={"idle": "100ms"})
    text, error = await make(kind, running).stream(api_name, model)
    assert text == "Hello"
    assert isinstance(error, (openai.APIError, anthropic.APIError)), repr(error)
    assert not isinstance(error, (openai.APIConnectionError, anthropic.APIConnectionError))
    found_code, found = told(error)
    assert found_code == found["code"] == code
    assert found["class"] == "transient"
    assert found["message"] in str(error)
    assert upstream.hits == 1
    assert running.calls[0].verdict == "failure"


@pytest.mark.parametrize(("kind", "api_name"), APIS)
async def test_the_upstreams_own_event_passes(running, api, make, kind, api_name) -> None:
    text, error = await make(kind, running).stream(api_name, "cut-event")
    assert text == "Hello"
    assert "verloaded" in str(error)
    assert isinstance(error, (openai.APIError, anthropic.APIError)), repr(error)
    assert running.calls[0].verdict == "failure"
    assert running.calls[0].envelope.class_ == "transient"


@pytest.mark.parametrize(("kind", "api_name"), APIS)
async def test_an_error_in_the_place_of_the_first_word(
    running, upstream, api, make, kind, api_name
) -> None:
    """A misspelt model that is told in a stream: raised, asked once, and counted by nobody."""
    text, error = await make(kind, running).stream(api_name, "typo-early")
    assert text == ""
    assert isinstance(error, (openai.NotFoundError, anthropic.NotFoundError)), repr(error)
    assert "typo-early" in str(error)
    assert upstream.hits == 1
    assert running.calls[0].envelope.code == "model_not_found"
    shot = running.breaker(running.calls[0].key)
    assert (shot.window.failure, shot.window.alive) == (0, 1)


async def test_without_the_daemon_a_clean_cut_is_a_short_answer(upstream, api, make) -> None:
    """What the clients make of it by themselves: nothing at all."""
    for kind, api_name in APIS[::2]:
        assert await make(kind, upstream.url).stream(api_name, "cut-clean") == ("Hello", None)


@pytest.mark.parametrize(("kind", "api_name"), APIS)
async def test_the_daemon_stops_in_the_middle(start, upstream, api, make, kind, api_name) -> None:
    """What was received stays, and the client raises its own error."""
    running = await begin(start, upstream.url)
    task = asyncio.create_task(make(kind, running).stream(api_name, "cut-hang"))
    async with asyncio.timeout(10):
        while not any(call for call in upstream.requests):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        running.daemon.plane.stop_listening()
        await running.daemon.plane.stop()
        text, error = await task
    assert text == "Hello"
    assert isinstance(error, (openai.APIError, anthropic.APIError)), repr(error)
    assert told(error)[0] == "draining"
