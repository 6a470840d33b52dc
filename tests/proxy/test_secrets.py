"""No secret of a call, a configuration or an upstream shows up anywhere but in the upstream's body.

The upstream quotes everything that it was sent. Each secret is planted where calls carry it; then
heads, log lines and every page of the admin plane are searched for all of them.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from sidecar.telemetry.lines import JsonFormatter

from .callers import Answer, call, chat
from .conftest import Running, Start
from .upstreams import Upstream, Visit, answer

KEY = "hush0Secret77Key99AAbbCC"
BOT = "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
HOOK = "TW92ZWhpZGRlbnRva2VuMTIz"
COOKIE = "cookieval8899aabbccdd"
HEX = "0123456789abcdef0123456789abcdef"
CONFIGURED = "injectedByTheSidecar1"
MODEL_KEY = "sk-proj-aB3dE5gH7jK9mN1pQ3rS"
SECRETS = (KEY, BOT, HOOK, COOKIE, HEX, CONFIGURED, MODEL_KEY)

CREDENTIALS = (
    ("Authorization", f"Bearer {KEY}"),
    ("x-api-key", KEY),
    ("api-key", HEX),
    ("Cookie", f"sid={COOKIE}; theme=dark"),
)
PATHS = (
    "/up/v1/chat",
    f"/up/bot123456789:{BOT}/getMe",
    f"/up/bot123456789%3A{BOT}/getMe",
    f"/up/services/T0AAAAAAA/B0BBBBBBB/{HOOK}",
    f"/up/hooks/{HOOK}",
    f"/up/v1/x?key={KEY}&api_key={KEY}&apiKey={KEY}&access_token={KEY}",
    f"/up/v1/x?appid={HEX}",
    f"/up/v1/x?k%65y={HOOK}",
)
ACCEPT = ("Accept", "application/vnd.error-envelope+json")


class Lines(logging.Handler):
    """The log as it would be written."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(JsonFormatter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def log() -> Iterator[Lines]:
    lines = Lines()
    logger = logging.getLogger("sidecar")
    before = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(lines)
    yield lines
    logger.removeHandler(lines)
    logger.setLevel(before)


def found_in(text: str) -> set[str]:
    return {secret for secret in SECRETS if secret in text}


def echo(status: int, *, stream: bool = False) -> Any:
    """A script that quotes the whole request, in its head too."""

    async def script(visit: Visit) -> None:
        body = await visit.read_body()
        said = (visit.request.head + b" " + body).decode().replace("\r\n", " ")
        error = {"error": {"message": f"Wrong key {KEY}: {said}", "code": f"bad_{KEY}"}}
        data, kind = json.dumps(error).encode(), b"application/json"
        if stream:
            data, kind = b"data: " + data + b"\n\n", b"text/event-stream"
        await visit.send(
            answer(
                status,
                data,
                (b"X-Request-Id", KEY.encode()),
                (b"X-Echo", b" ".join(value for _, value in visit.request.headers)),
                (b"Location", b"http://x/?code=" + KEY.encode()),
                kind=kind,
            )
        )

    return script


def own_words(found: Answer) -> str:
    """The head without the lines that are the upstream's own."""
    theirs = {b"x-request-id", b"x-echo", b"location"}
    return repr([pair for pair in found.headers if pair[0].lower() not in theirs])


async def everything_shown(running: Running) -> str:
    shown = ""
    for page in ("/status", "/config", "/"):
        found = await call(running.admin_port, page)
        assert found.status == 200
        shown += found.raw.decode()
    return shown


def provider(upstream: Upstream, **more: Any) -> dict[str, Any]:
    return {"upstream": upstream.url, "dialect": "openai", **more}


@pytest.mark.parametrize("status", [401, 500])
@pytest.mark.parametrize("path", PATHS)
async def test_an_echoing_upstream(
    upstream: Upstream, start: Start, log: Lines, path: str, status: int
) -> None:
    running = await start({"up": provider(upstream, set_headers={"x-gate": {"value": CONFIGURED}})})
    upstream.script = echo(status)
    plain = await call(running.port, path, "GET", None, *CREDENTIALS)
    assert plain.envelope["message"]
    assert not found_in(own_words(plain))
    assert CONFIGURED.encode() in plain.body, "the upstream's own body passes untouched"

    asked = await call(running.port, path, "GET", None, ACCEPT, *CREDENTIALS)
    assert asked.json["raw"]["status"] == status
    assert not found_in(own_words(asked) + asked.body.decode())

    assert not found_in(await everything_shown(running))
    failed = [json.loads(line) for line in log.lines if "call.failed" in line]
    assert len(failed) == 2
    assert not found_in("".join(log.lines))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_success_that_holds_an_error(
    upstream: Upstream, start: Start, log: Lines, stream: bool
) -> None:
    running = await start({"up": provider(upstream)})
    upstream.script = echo(200, stream=stream)
    found = await call(
        running.port, "/up/v1/chat/completions", "POST", chat(), ("Content-Type", "application/json"),
        *CREDENTIALS,
    )  # fmt: skip
    assert not found_in(own_words(found))
    assert running.calls[-1].envelope is not None
    assert not found_in(str(running.calls[-1]))
    assert not found_in("".join(log.lines) + await everything_shown(running))


@pytest.mark.parametrize("model", [MODEL_KEY, KEY, f"openai/{KEY}"])
@pytest.mark.parametrize("status", [200, 500])
async def test_a_model_that_is_a_key(
    upstream: Upstream, start: Start, log: Lines, model: str, status: int
) -> None:
    running = await start({"up": provider(upstream, breaker={"consecutive_failures": 2})})
    upstream.script = echo(status)
    for n in range(3):
        found = await call(
            running.port,
            "/up/v1/chat/completions",
            "POST",
            chat(model, seed=n),
            ("Content-Type", "application/json"),
            *CREDENTIALS,
        )
        assert not found_in(own_words(found))
        assert "redacted" in (found.get("x-sidecar-breaker") or "")
    assert model.encode() in upstream.requests[0].body, "it is hidden, not changed"
    keys = {finished.key for finished in running.calls}
    assert len(keys) == 1, "it has a breaker of its own"
    shown = await everything_shown(running)
    assert "[redacted]-" in shown
    assert not found_in(shown + "".join(log.lines))


async def test_a_route_that_is_a_key(upstream: Upstream, start: Start, log: Lines) -> None:
    running = await start({"up": provider(upstream)})
    upstream.script = echo(503)
    letters = "onlySmallAndLargeLetters"
    await call(running.port, f"/up/hooks/{letters}", "POST", b"{}")
    assert running.calls[-1].key == "up/~hooks"
    assert letters not in "".join(log.lines) + await everything_shown(running)


async def test_a_path_that_the_dialect_knows_to_be_a_key(
    upstream: Upstream, start: Start, log: Lines
) -> None:
    word = "twelve-plain-words"
    running = await start({"up": provider(upstream, dialect="discord")})
    upstream.script = echo(503)
    path = f"/up/api/v10/interactions/123456789012345678/{word}/callback"
    found = await call(running.port, path, "POST", b"{}", ACCEPT)
    assert found.status == 503
    assert upstream.requests[-1].target.endswith(f"/{word}/callback".encode()), (
        "hidden, not changed"
    )
    finished = running.calls[-1]
    assert finished.path == "/api/v10/interactions/123456789012345678/[redacted]/callback"
    assert finished.key == "up/~api/v10"
    assert word not in found.raw.decode()
    assert word not in "".join(log.lines) + await everything_shown(running)


async def test_an_upstream_that_is_gone(start: Start, log: Lines) -> None:
    gone = {"upstream": "http://127.0.0.1:1", "dialect": "openai", "mode": "observe"}
    running = await start({"up": gone})
    for path in PATHS:
        found = await call(running.port, path, "GET", None, *CREDENTIALS)
        assert found.status == 502
        assert not found_in(found.raw.decode())
    assert not found_in("".join(log.lines) + await everything_shown(running))


async def test_the_reason_of_a_control_call(upstream: Upstream, start: Start, log: Lines) -> None:
    running = await start({"up": upstream.url})
    order = json.dumps({"reason": f"it said: bad key {MODEL_KEY}; tell bob"}).encode()
    found = await call(
        running.admin_port, "/breakers/up/open", "POST", order, ("x-sidecar-admin", "1")
    )
    assert found.json["reason"] == "forced open: it said: bad key [redacted]; tell bob"
    refused = await call(running.port, "/up/v1/x")
    assert refused.status == 503
    shown = await everything_shown(running)
    assert not found_in(refused.raw.decode() + shown + "".join(log.lines))


async def test_a_path_of_hostile_length(upstream: Upstream, start: Start, log: Lines) -> None:
    """A pattern that tries again at every `-eyJ` holds all calls up for seconds."""
    running = await start({"up": upstream.url})
    upstream.script = echo(500)
    found = await call(running.port, "/up/" + "eyJ-" * 15900)
    assert found.status == 500
    assert running.calls[-1].path == "/..."
    assert sum("call.failed" in line for line in log.lines) == 1


async def test_a_trace_of_zeros_is_no_id(upstream: Upstream, start: Start) -> None:
    running = await start({"up": upstream.url})
    zeros, trace = "0" * 32, "0af7651916cd43dd8448eb211c80319c"
    for given, wanted in ((zeros, False), (trace, True)):
        traceparent = f"00-{given}-b7ad6b7169203331-01"
        found = await call(running.port, "/up/v1/x", "GET", None, ("traceparent", traceparent))
        assert (found.get("x-correlation-id") == given) is wanted
        assert len(found.get("x-correlation-id") or "") == 32


async def test_the_key_of_a_control_call(upstream: Upstream, start: Start, log: Lines) -> None:
    """An agent may hold a breaker by the name of its model, whatever it takes for one."""
    running = await start({"up": upstream.url})
    for verb in ("open", "observe"):
        path = f"/breakers/up%2F{MODEL_KEY}/{verb}"
        found = await call(running.admin_port, path, "POST", None, ("x-sidecar-admin", "1"))
        assert found.status == 200
    shown = await everything_shown(running)
    assert shown.count("up/[redacted]-") >= 1
    assert not found_in(found.raw.decode() + shown + "".join(log.lines))
    # It is the same breaker that calls of that name go through.
    (key,) = [one for one in found_keys(shown) if "redacted" in one]
    assert running.breaker(key).mode == "observe"


def found_keys(shown: str) -> set[str]:
    return set(re.findall(r'"(up/[^"]+)":', shown))
