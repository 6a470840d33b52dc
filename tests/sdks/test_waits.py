"""No client sleeps longer for our sake than `sdk_wait_max`."""

from __future__ import annotations

import asyncio

import pytest

from .clients import KINDS
from .conftest import begin, envelope


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("model", "wait"), [("wait-week", 568157), ("wait-61", 61)])
async def test_a_long_wait_is_told_and_not_slept(
    running, upstream, make, kind, model, wait
) -> None:
    """One of the clients obeys 568157 seconds."""
    async with asyncio.timeout(5):
        error = await make(kind, running).error(model)
    assert upstream.hits == 1
    assert error.response.headers["x-should-retry"] == "false"
    assert error.response.headers["retry-after"] == str(wait)
    assert envelope(error)["retry_after"] == wait
    assert envelope(error)["retryable"] is True


@pytest.mark.parametrize("kind", KINDS)
async def test_a_short_one_is_left_to_the_client(start, upstream, api, make, kind) -> None:
    running = await begin(start, upstream.url, shedding={"sdk_wait_max": "1s"})
    client = make(kind, running, max_retries=1)
    error = await client.error("status-429")
    assert upstream.hits == 2
    assert error.response.headers.get("x-should-retry") is None
    await client.error("wait-61")
    assert upstream.hits == 3
