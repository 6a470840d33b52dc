"""What the field cases share: the base configuration, words for what is counted, and waiting."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from sidecar import clock
from sidecar.breaker.model import Snapshot
from tests.proxy.callers import Answer, Caller, call, chat, request
from tests.proxy.conftest import Running
from tests.proxy.upstreams import Script, Visit, answer

CHAT = "/up/v1/chat/completions"
JSON = ("Content-Type", "application/json")
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
DONE = b"data: [DONE]\n\n"
OK = answer(200, b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}')


def base(upstream: str, dialect: str = "openai", **more: Any) -> dict[str, Any]:
    """The base configuration of the cases, its waits in tenths of a second."""
    section: dict[str, Any] = {
        "upstream": upstream,
        "dialect": dialect,
        "breaker": {
            "window": "10s",
            "minimum_calls": 5,
            "failure_ratio": 0.5,
            "open_for": "200ms",
            "jitter": 0,
        },
        "timeouts": {"connect": "1s", "hold": "200ms"},
    }
    for name, value in more.items():
        known = section.get(name)
        section[name] = {**known, **value} if isinstance(known, dict) else value
    return section


async def until(condition: Callable[[], object], limit: float = 20.0) -> None:
    """Waits for something to become true; a time limit only catches a hang."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen")
        await asyncio.sleep(0.005)


def shots(running: Running, provider: str = "up") -> list[Snapshot]:
    return running.daemon.registry.snapshots(provider, clock.monotonic())


def total(running: Running, verdict: str, provider: str = "up") -> int:
    """Verdicts of one kind on the breakers of a provider's models and routes.

    Its own breaker hears of connections: of their failures, and of every byte as a success.
    """
    own, *others = shots(running, provider)
    found = sum(getattr(shot.window, verdict) for shot in others)
    return found + (own.window.failure if verdict == "failure" else 0)


def counted(running: Running, provider: str = "up") -> int:
    """Failures booked for a provider."""
    return total(running, "failure", provider)


def closed(running: Running, provider: str = "up") -> bool:
    return all(shot.state == "closed" for shot in shots(running, provider))


def error(status: int, code: object = "server_error", message: str = "boom", **more: Any) -> bytes:
    """An answer with an error in OpenAI's shape."""
    return answer(
        status, json.dumps({"error": {"message": message, "code": code, **more}}).encode()
    )


async def ask(running: Running, model: str = "gpt-x", n: int = 0, **more: Any) -> Answer:
    """One chat completion; `n` makes it a request of its own."""
    return await call(running.port, CHAT, "POST", chat(model, n=n, **more), JSON)


async def trip(running: Running, upstream: Any, model: str = "gpt-x") -> None:
    """Opens the breaker of a model by failures of the upstream."""
    before, upstream.script = upstream.script, says_error(500)
    n = 0
    while (shot := running.breaker(f"up/{model}")) is None or shot.state != "open":
        await ask(running, model, n)
        n += 1
    upstream.script = before


def says_error(status: int) -> Script:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(error(status))

    return script


async def half_open(running: Running, key: str = "up/gpt-x") -> None:
    await until(lambda: running.breaker(key).state == "half_open")


async def hang(visit: Visit) -> None:
    """An upstream that reads and never answers."""
    await visit.read_body()
    await visit.closed()
    visit.keep = False


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def delta(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


async def open_stream(port: int, path: str = CHAT, *headers: tuple[str, str]) -> Caller:
    """A caller that has asked for a stream and read nothing yet."""
    caller = await Caller.connect(port)
    await caller.send(request(path, "POST", chat(stream=True), JSON, *headers))
    return caller


async def admin(
    running: Any,
    path: str,
    method: str = "GET",
    body: bytes | None = None,
    *headers: tuple[str, str],
) -> Answer:
    """A call of the admin plane, with its header where something changes."""
    own = [("x-sidecar-admin", "1")] if method == "POST" and not headers else []
    return await call(running.admin_port, path, method, body, *own, *headers)


async def document(running: Any) -> Any:
    """`GET /status`."""
    return (await admin(running, "/status")).json


async def reload_with(running: Running, old: str, new: str) -> Any:
    """Edits the configuration and reloads it."""
    file = running.daemon._options.config
    assert file is not None
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return await running.daemon.reload()
