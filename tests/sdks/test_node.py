"""The official JavaScript clients, and Vercel's `ai`, which goes by the status alone."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sidecar import clock
from sidecar.breaker.model import Verb
from tests.conftest import need
from tests.proxy.conftest import Running

from .conftest import begin

HERE = Path(__file__).parent / "node"
INSTALL_SECONDS = 180

Run = Callable[..., Awaitable[list[Any]]]


@pytest.fixture(scope="session")
def node() -> str:
    """The command `node`, with the clients of package-lock.json beside the script."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if found is None or npm is None:
        need("Node and npm are not installed: the JavaScript clients cannot be tried")
    lock, mark = HERE / "package-lock.json", HERE / "node_modules" / ".installed"
    if not mark.exists() or mark.read_text() != lock.read_text():
        try:
            subprocess.run(
                [npm, "ci", "--prefer-offline"],
                cwd=HERE,
                check=True,
                capture_output=True,
                text=True,
                timeout=INSTALL_SECONDS,
            )
        except subprocess.TimeoutExpired:
            need("npm could not fetch the JavaScript clients in time")
        except subprocess.CalledProcessError as error:
            need(f"npm could not fetch the JavaScript clients: {error.stderr[-300:]}")
        mark.write_text(lock.read_text())
    return found


@pytest.fixture
def drive(node: str) -> Run:
    """Runs the script's runs, in order, in one process; returns what each came to."""

    async def run(where: Running | str, *runs: Any) -> list[Any]:
        if isinstance(where, str):
            urls = {"openai": where, "anthropic": where}
        else:
            base = f"http://127.0.0.1:{where.port}"
            urls = {name: f"{base}/{name}" for name in ("openai", "anthropic")}
        rows = [[one] if isinstance(one, str) else list(one) for one in runs]
        process = await asyncio.create_subprocess_exec(
            node,
            "clients.mjs",
            json.dumps({**urls, "run": rows}),
            cwd=HERE,
            env={**os.environ, "NO_COLOR": "1"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, told = await asyncio.wait_for(process.communicate(), 60)
        except TimeoutError:
            process.kill()
            await process.communicate()
            raise
        assert process.returncode == 0, told.decode()
        found: list[Any] = json.loads(out)
        return found

    return run


async def test_a_everything_works(running, api, drive) -> None:
    found = await drive(
        running,
        ("openai-chat", "gpt-4o"),
        ("openai-responses", "gpt-4o"),
        ("openai-embeddings", "text-embedding-3"),
        ("anthropic-messages", "claude"),
        ("openai-tools", "gpt-4o"),
        ("anthropic-tools", "claude"),
        ("openai-upload", 300_000),
        ("anthropic-upload", 300_000),
        ("ai-chat", "gpt-4o"),
        ("ai-responses", "gpt-4o"),
    )
    assert found == [
        {"value": "Hello world"},
        {"value": "Hello world"},
        {"value": [1.0, 2.0]},
        {"value": "Hello world"},
        {"value": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
        {"value": {"name": "weather", "input": {"city": "Oslo"}}},
        {"value": "file-1"},
        {"value": "file_1"},
        {"value": "Hello world"},
        {"value": "Hello world"},
    ]
    assert [one["file"][1] for one in api.uploads] == [b"h" * 300_000] * 2
    assert {call.verdict for call in running.calls} == {"success"}


async def test_a_everything_streams(running, api, drive) -> None:
    found = await drive(
        running,
        ("stream-chat", "gpt-4o"),
        ("stream-responses", "gpt-4o"),
        ("stream-messages", "claude"),
        ("ai-stream", "gpt-4o", "chat"),
        ("ai-stream", "gpt-4o", "responses"),
    )
    assert found == [{"text": "Hello world"}] * 5
    assert {call.verdict for call in running.calls} == {"success"}


OPENAI_CLASSES = {
    "status-400": "BadRequestError",
    "status-401": "AuthenticationError",
    "status-403": "PermissionDeniedError",
    "status-404": "NotFoundError",
    "status-409": "ConflictError",
    "status-422": "UnprocessableEntityError",
    "status-429": "RateLimitError",
    "status-500": "InternalServerError",
    "status-503": "InternalServerError",
}
ANTHROPIC_CLASSES = {
    **{name: class_ for name, class_ in OPENAI_CLASSES.items() if name[7:] not in {"409", "503"}},
    "status-413": "APIError",
    "status-529": "InternalServerError",
}


async def test_a_errors_of_each_class(running, api, upstream, drive) -> None:
    once = {"maxRetries": 0}
    rows = [("openai-chat", model, once) for model in OPENAI_CLASSES]
    rows += [("anthropic-messages", model, once) for model in ANTHROPIC_CLASSES]
    found = await drive(running, *rows)
    direct = await drive(upstream.url, *rows)
    classes = [*OPENAI_CLASSES.values(), *ANTHROPIC_CLASSES.values()]
    assert [one["error"]["class"] for one in found] == classes
    for one, same in zip(found, direct, strict=True):
        for name in ("class", "status", "code", "message", "body"):
            assert one["error"][name] == same["error"][name]
        assert one["error"]["envelope"]["message"]
    assert {one["error"]["envelope"]["class"] for one in found} == {
        "validation", "authentication", "rate_limit", "transient", "permanent",
    }  # fmt: skip


CLIENTS = ("openai-chat", "anthropic-messages", "ai-chat", "ai-responses")


async def test_b_a_typo_is_one_request_and_three_without_the_daemon(
    running, api, upstream, drive
) -> None:
    rows = [(name, "gpt-typo") for name in (*CLIENTS, "loop")]
    direct = await drive(upstream.url, *rows)
    assert upstream.hits == 15
    assert [one["error"]["status"] for one in direct[:4]] == [503] * 4
    assert [one["error"]["name"] for one in direct[2:4]] == ["AI_RetryError"] * 2
    found = await drive(running, *rows)
    assert upstream.hits == 20
    assert [one["error"]["status"] for one in found[:4]] == [404] * 4
    assert [one["error"]["class"] for one in found[:2]] == ["NotFoundError"] * 2
    assert [one["error"]["name"] for one in found[2:4]] == ["AI_APICallError"] * 2
    for one in found[:4]:
        assert "gpt-typo" in one["error"]["message"]
        assert one["error"]["envelope"]["code"] == "model_not_found"
    assert found[4] == {"status": 404, "attempts": 1}
    for provider, calls in (("openai", 4), ("anthropic", 1)):
        shot = running.breaker(f"{provider}/gpt-typo")
        assert (shot.state, shot.window.failure, shot.window.alive) == ("closed", 0, calls)


COSTUMES = {
    "spent-429": (402, "permanent"),
    "long-500": (400, "validation"),
    "refused-500": (400, "validation"),
    "typo-200": (404, "permanent"),
    "key-200": (401, "authentication"),
}


async def test_c_one_request_and_the_right_class(start, api, upstream, drive) -> None:
    # Two of the clients ask for the same model with the same key.
    running = await begin(start, upstream.url, shedding={"quota": {"mode": "observe"}})
    rows = [(name, model) for name in CLIENTS for model in COSTUMES]
    found = await drive(running, *rows)
    assert upstream.hits == len(rows)
    for (_, model), one in zip(rows, found, strict=True):
        status, class_ = COSTUMES[model]
        assert (one["error"]["status"], one["error"]["envelope"]["class"]) == (status, class_)
    for provider in ("openai", "anthropic"):
        for model in COSTUMES:
            assert running.breaker(f"{provider}/{model}").window.failure == 0


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ("cut-close", "stream_truncated"),
        ("cut-reset", "stream_truncated"),
        ("cut-clean", "stream_truncated"),
        ("cut-hang", "idle_timeout"),
    ],
)
async def test_a_stream_that_dies(start, upstream, api, drive, model, code) -> None:
    """The clients raise their own error; `ai` ends with an error part, not with a finish."""
    running = await begin(start, upstream.url, timeouts={"idle": "100ms"})
    found = await drive(
        running,
        ("stream-chat", model),
        ("stream-responses", model),
        ("stream-messages", model),
        ("ai-stream", model, "chat"),
        ("ai-stream", model, "responses"),
    )
    for one in found:
        assert one["text"] == "Hello"
        assert code in json.dumps(one["error"])
    for one in found[:3]:
        assert one["error"]["api"]
        assert not one["error"]["connection"]
    assert [found[n]["error"]["body"]["envelope"]["code"] for n in range(3)] == [code] * 3
    assert found[0]["error"]["code"] == found[1]["error"]["code"] == code
    assert upstream.hits == 5
    assert {call.verdict for call in running.calls} == {"failure"}


async def test_an_error_in_the_place_of_the_first_word(running, upstream, api, drive) -> None:
    """A status of its own, so that what goes by the status alone is right too."""
    found = await drive(
        running,
        ("stream-chat", "typo-early"),
        ("stream-responses", "typo-early"),
        ("stream-messages", "typo-early"),
        ("ai-stream", "typo-early", "chat"),
    )
    for one in found:
        assert not one["text"]
        assert "typo-early" in json.dumps(one["error"])
    for one in found[:3]:
        assert one["error"]["status"] == 404
    assert upstream.hits == 4
    assert {call.verdict for call in running.calls} == {"alive"}


async def test_an_error_after_the_first_word(running, upstream, api, drive) -> None:
    """The upstream's own event passes, and the text until then is whole."""
    found = await drive(
        running, *((f"stream-{name}", "cut-event") for name in ("chat", "responses", "messages"))
    )
    for one in found:
        assert one["text"] == "Hello"
        assert "verloaded" in json.dumps(one["error"])
        assert one["error"]["api"]
    assert {call.verdict for call in running.calls} == {"failure"}


async def test_the_daemon_stops_in_the_middle(start, upstream, api, drive) -> None:
    """What was received stays, and the client raises its own error."""
    running = await begin(start, upstream.url)
    task = asyncio.create_task(
        drive(running, *((f"stream-{name}", "cut-hang") for name in ("chat",)))
    )
    async with asyncio.timeout(30):
        while not upstream.hits:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        running.daemon.plane.stop_listening()
        await running.daemon.plane.stop()
        (found,) = await task
    assert found["text"] == "Hello"
    assert found["error"]["code"] == "draining"


async def test_a_long_wait_is_told_and_not_slept(running, api, upstream, drive) -> None:
    rows = [
        (name, model)
        for name in ("openai-chat", "anthropic-messages")
        for model in ("wait-week", "wait-61")
    ]
    found = await drive(running, *rows)
    assert upstream.hits == 4
    assert [one["error"]["envelope"]["retry_after"] for one in found] == [568157, 61] * 2


async def test_breaker_open(running, api, upstream, drive) -> None:
    """Asked once, told once."""
    # `ai` goes by the status alone: it would wait for the breaker, as long as it is told.
    rows = [(name, "gpt-4o", {"maxRetries": 0} if name[:2] == "ai" else {}) for name in CLIENTS]
    await drive(running, *rows[:2])
    for name in ("openai", "anthropic"):
        running.daemon.registry.control(f"{name}/gpt-4o", Verb.OPEN, clock.monotonic(), 60.0)
    running.calls.clear()
    found = await drive(running, *rows)
    assert [call.decision for call in running.calls] == ["breaker_open"] * 4
    for one in found:
        assert one["error"]["status"] == 503
        assert one["error"]["decision"] == one["error"]["envelope"]["code"] == "breaker_open"
        assert one["error"]["envelope"]["message"] in one["error"]["message"]
    assert [one["error"]["class"] for one in found[:2]] == ["InternalServerError"] * 2
    assert [one["error"]["body"]["envelope"]["code"] for one in found[:2]] == ["breaker_open"] * 2


async def test_a_provider_that_is_not_there(running, api, upstream, drive) -> None:
    """Every client shows the sentence that names the ones that are."""
    found = await drive(
        f"http://127.0.0.1:{running.port}/opanai", *[(name, "gpt-4o") for name in CLIENTS]
    )
    assert [call.decision for call in running.calls] == ["unknown_provider"] * 4
    assert [one["error"]["status"] for one in found] == [404] * 4
    assert [one["error"]["class"] for one in found[:2]] == ["NotFoundError"] * 2
    for one in found:
        assert "anthropic, openai" in one["error"]["message"]
    assert not upstream.hits
