"""Keys that are planted wherever a call can carry one are found nowhere that anybody reads.

Twenty kinds, in headers, queries, paths, bodies and names, each echoed by the upstream in its error;
then everything that was logged, exported, shown and stored is searched for them.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.proxy.callers import Caller, call, request
from tests.proxy.upstreams import Visit, answer
from tests.telemetry.collector import Sink, exporting

from .scene import JSON, STREAM_HEAD, admin, base, chunk, document, until

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJwbGFudGVkLWp3dC0wMDAxIn0.c2lnbmF0dXJlLXBsYW50ZWQtMDAwMQ"
PEM = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjPLANTED0018"

FORM = ("Content-Type", "application/x-www-form-urlencoded")

Kind = dict[str, Any]
KINDS: dict[str, tuple[str, Kind]] = {
    # what nobody may see, and where it stands in the request
    "bearer": ("sk-planted0001AbCdEf", {"headers": [("Authorization", "Bearer {}")]}),
    "api key header": ("planted0002-ZxYw-Vu98", {"headers": [("x-api-key", "{}")]}),
    "azure key": ("planted0003abcdef01234567", {"headers": [("api-key", "{}")]}),
    "google key header": ("AIzaPlanted0004QwErTyUiOpAsDfGh", {"headers": [("x-goog-api-key", "{}")]}),
    "cookie": ("planted0005cookie77", {"headers": [("Cookie", "session={}; theme=dark")]}),
    "basic": ("dXNlcjpwbGFudGVkMDAwNi1wYXNz", {"headers": [("Authorization", "Basic {}")]}),
    "aws token": ("IQoJPLANTED0007aaabbbccc", {"headers": [("X-Amz-Security-Token", "{}")]}),
    "github": ("ghp_Planted0008AbCdEfGhIjKlMn", {"headers": [("Authorization", "token {}")]}),
    "jwt": (JWT, {"headers": [("Authorization", "Bearer {}")]}),
    "private token": ("glpat-Planted0010abcdefgh", {"headers": [("PRIVATE-TOKEN", "{}")]}),
    "query key": ("AIzaPlanted0011ZxCvBnMaSdFgHjKl", {"query": "key={}"}),
    "query access token": ("planted0012accesstoken", {"query": "access_token={}&x=1"}),
    "query signature": ("planted0013signature", {"query": "sig={}"}),
    "bot in the path": ("110201543:AAPlanted0014AbCdEfGhIjKlMnOpQrStUv", {"path": "/bot{}/sendMessage"}),
    "slack hook": ("Planted0015SlackHookSecr", {"path": "/services/T0AAAAAAA/B0BBBBBBB/{}"}),
    "discord hook": ("Planted0016-discord_hook-token", {"path": "/api/webhooks/123456789012345678/{}"}),
    "password in the body": ("planted0017-hunter2", {"body": {"model": "m", "password": "{}"}}),
    "key in the body": ("sk-planted0018InTheBody", {"body": {"model": "m", "api_key": "{}"}}),
    "private key in the body": (
        PEM,
        {"body": {"m": "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----"}},
    ),
    "parameter of another name": ("planted0023-api-token", {"query": "api_token={}"}),
    "header of another name": ("planted0024signature", {"headers": [("X-Signature", "{}")]}),
    "scheme of its own": ("planted0025AbCdEfGh", {"headers": [("Authorization", "key={}")]}),
    "subprotocol": ("planted0026abcdef0123", {"headers": [("Sec-WebSocket-Protocol", "token, {}")]}),
    "bot token in the body": ("planted0027-bot", {"body": {"model": "m", "botToken": "{}"}}),
    "form": ("planted0028-client", {"form": "grant_type=x&client_secret={}"}),
    "token in the path": ("planted0029word", {"path": "/v1/token/{}"}),
    "a key as the model": ("sk-planted0020AsAModelName", {"body": {"model": "{}"}}),
    "a key as the id": ("sk-planted0021AsAnId", {"headers": [("x-correlation-id", "{}")]}),
    "configured": ("planted0022-from-the-file", {}),
}  # fmt: skip


@pytest.fixture
async def sink(tmp_path: Path) -> AsyncIterator[Sink]:
    one = Sink(tmp_path)
    await one.start()
    yield one
    await one.stop()


def _request(kind: Kind, secret: str, host_path: str = "/v1/chat/completions") -> tuple[bytes, str]:
    headers = [(name, value.format(secret)) for name, value in kind.get("headers", ())]
    path = kind.get("path", host_path).format(secret)
    query = kind.get("query")
    target = f"/up{path}" + (f"?{query.format(quote(secret))}" if query else "")
    if form := kind.get("form"):
        body = form.format(secret).encode()
        return request(target, "POST", body, FORM, *headers), target
    body = json.dumps(kind.get("body", {"model": "m"})).replace("{}", secret).encode()
    return request(target, "POST", body, JSON, *headers), target


async def test_planted_keys_are_found_nowhere(
    start, upstream, sink, log, tmp_path, monkeypatch
) -> None:
    for name, value in exporting(sink.port).items():
        monkeypatch.setenv(name, value)
    secrets = {name: secret for name, (secret, _) in KINDS.items()}
    (tmp_path / "key").write_text(secrets["configured"])
    running = await start(
        {
            "up": base(
                upstream.url,
                mode="observe",
                set_headers={"x-upstream-key": {"file": str(tmp_path / "key")}},
            )
        }
    )
    shapes = 6

    async def echo(visit: Visit) -> None:
        """Quotes everything it was sent: in a message, a code, a stream, as text."""
        body = await visit.read_body()
        told = visit.request.head.decode("latin-1") + body.decode("latin-1")
        turn = upstream.hits % shapes
        if turn == 0:
            error = {"message": told, "code": "bad"}
            await visit.send(answer(401, json.dumps({"error": error}).encode()))
        elif turn == 1:
            secret = next((one for one in secrets.values() if one in told), "none")
            error = {"message": f"It was {secret}, and that is wrong", "code": secret}
            await visit.send(answer(503, json.dumps({"error": error}).encode()))
        elif turn == 2:
            event = b"data: " + json.dumps({"error": {"message": told, "code": told}}).encode()
            first = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
            await visit.send(STREAM_HEAD, chunk(first + event + b"\n\n"), b"0\r\n\r\n")
        elif turn == 3:
            await visit.send(answer(502, html.escape(told).encode(), kind=b"text/html"))
        elif turn == 4:
            lines = enumerate(visit.request.head.splitlines())
            heads = b"".join(b"X-Echo-%d: %b\r\n" % (n, line) for n, line in lines if line)
            await visit.send(b"HTTP/1.1 429 No\r\nContent-Length: 2\r\n" + heads + b"\r\n{}")
        else:
            await visit.send(answer(500, told.encode(), kind=b"text/plain"))

    upstream.script = echo
    ids = []
    for secret, kind in KINDS.values():
        for _ in range(shapes):
            raw, _ = _request(kind, secret)
            caller = await Caller.connect(running.port)
            await caller.send(raw)
            found = await caller.answer()
            assert found.status >= 200
            ids.append(found.get("x-correlation-id"))
            caller.close()
    count = len(KINDS) * shapes
    assert upstream.hits == count
    sent = [one.head.decode("latin-1") + one.body.decode("latin-1") for one in upstream.requests]
    assert all(any(secret in text for text in sent) for secret in secrets.values())
    await until(lambda: len(sink.spans()) >= 2 * count)
    await until(lambda: sink.points("breaker_sidecar.calls", provider="up"))
    await until(lambda: sink.records())

    seen: dict[str, str] = {"log": json.dumps(log.lines()), "exported": sink.file.read_text()}
    for path in ("/status", "/metrics", "/v1/failures?by=class,source,code", "/", "/config"):
        found = await admin(running, path)
        assert found.status == 200, path
        seen[path] = found.body.decode()
    for id_ in ids:
        found = await call(
            running.admin_port, f"/v1/failures/{quote(id_, safe='')}", "GET", None,
            ("x-sidecar-admin", "1"),
        )  # fmt: skip
        seen[f"failure {id_}"] = found.body.decode()
    hits = {
        (place, name)
        for place, text in seen.items()
        for name, secret in secrets.items()
        if secret in text
        or quote(secret, safe="") in text
        or base64.b64encode(secret.encode()).decode() in text
    }
    assert hits == set()
    # What was searched is what calls left behind, not nothing.
    assert seen["log"].count("call.failed") >= 10
    assert seen["exported"].count("envelope.message") >= count // 2


async def test_planted_keys_are_not_stored(process, upstream) -> None:
    """What outlives the process: budgets and waits of credentials, orders with their reasons."""

    async def limit(visit: Visit) -> None:
        await visit.read_body()
        code, wait = [("insufficient_quota", ""), ("rate_limit_exceeded", "Retry-After: 600\r\n")][
            upstream.hits % 2
        ]
        body = json.dumps({"error": {"message": "no", "code": code, "type": code}}).encode()
        head = f"HTTP/1.1 429 No\r\nContent-Type: application/json\r\n{wait}"
        await visit.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    upstream.script = limit
    one = await process({"up": base(upstream.url)}, state_file="state.json")
    secrets = [secret for secret, _ in KINDS.values()]
    for secret, kind in KINDS.values():
        for _ in range(2):
            caller = await Caller.connect(one.port)
            await caller.send(_request(kind, secret)[0])
            await caller.answer()
            caller.close()
    # What a person writes is known by its looks alone.
    order = json.dumps({"for": "1h", "reason": f"it was {KINDS['github'][0]}"}).encode()
    assert (await admin(one, "/breakers/up%2Fm/open", "POST", order)).status == 200
    file = one.config.with_name("state.json")
    shown = await document(one)
    limited = shown["providers"]["up"]
    assert len(limited["quota"]) + len(limited["shedding"]) >= 10
    await until(lambda: file.read_text().count('"limits":[{"credential":') == 1)
    stored = file.read_text()
    assert "it was" in stored
    assert stored.count('"credential":') >= 10
    for place, text in (("state", stored), ("status", json.dumps(shown))):
        assert [secret for secret in secrets if secret in text] == [], place
