"""The daemon between official clients and a fake of the APIs they are made for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.proxy.conftest import Running, Start, start, upstream
from tests.proxy.upstreams import Upstream

from .clients import Client
from .fake_api import FakeApi

__all__ = ["start", "upstream"]

Make = Callable[..., Client]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a developer's machine says about proxies, keys and addresses is not tested here."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in (
        "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID",
        "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL",
        "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_PROFILE",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def api(upstream: Upstream) -> FakeApi:
    """The fake behind `upstream`."""
    fake = FakeApi()
    upstream.script = fake
    return fake


@pytest.fixture
async def running(start: Start, upstream: Upstream, api: FakeApi) -> Running:
    """A daemon with both providers in front of the fake."""
    return await begin(start, upstream.url)


async def begin(start: Start, url: str, **more: Any) -> Running:
    """A daemon with both providers in front of one address; `more` stands in both sections."""
    return await start(
        {name: {"upstream": url, "dialect": name, **more} for name in ("openai", "anthropic")}
    )


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Makes clients, by kind, for a daemon or for an address, and closes them."""
    made: list[Client] = []

    def client(kind: str, where: Running | str, **options: Any) -> Client:
        if not isinstance(where, str):
            where = f"http://127.0.0.1:{where.port}/{kind.removesuffix('-async')}"
        made.append(Client.make(kind, where, **options))
        return made[-1]

    yield client
    for one in made:
        await one.close()


def envelope(error: Any) -> dict[str, Any]:
    """The envelope in the header of the answer that an exception carries."""
    found: dict[str, Any] = json.loads(error.response.headers["x-error-envelope"])
    return found


def beside(error: Any) -> dict[str, Any]:
    """The envelope in the body that an exception carries, where that client leaves it."""
    found: dict[str, Any] = error.body["envelope"]
    return found
