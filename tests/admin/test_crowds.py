"""Whoever opens connections, sends bodies or takes answers without end gets no more than their due."""

import asyncio
from pathlib import Path

import pytest

from sidecar.admin import listeners, requests
from sidecar.telemetry.observer import Fault

from .daemon import PROVIDERS, Daemon, started
from .raw import ADMIN, call, connect, post

HEAD = "POST /v1/classify HTTP/1.1\r\nHost: localhost\r\n"


async def said(reader: asyncio.StreamReader) -> bytes:
    """What comes until the other side closes."""
    try:
        return await reader.read(-1)
    except ConnectionError:
        return b""


async def opened(
    address: str, count: int
) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    return [await connect(address) for _ in range(count)]


async def test_the_oldest_idle_connection_makes_room(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "MOST_CONNECTIONS", 4)
    held = await opened(address, 4)
    try:
        assert (await call(address, "/healthz")).status == 200
        assert await said(held[0][0]) == b""
        held[3][1].write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"200 OK" in await said(held[3][0])
    finally:
        for _, writer in held:
            writer.close()


async def test_half_a_head_makes_room_too(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "MOST_CONNECTIONS", 3)
    held = await opened(address, 3)
    try:
        for _, writer in held:
            writer.write(HEAD.encode())
            await writer.drain()
        for _ in range(5):
            assert (await call(address, "/healthz")).status == 200
    finally:
        for _, writer in held:
            writer.close()


async def test_a_busy_connection_is_left_alone(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "MOST_CONNECTIONS", 2)
    streams = await opened(address, 2)
    try:
        for reader, writer in streams:
            writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"changes follow" in await reader.readuntil(b"follow")
        reader, writer = await connect(address)
        assert await said(reader) == b""
        writer.close()
        assert not streams[0][0].at_eof()
    finally:
        for _, writer in streams:
            writer.close()


async def test_closed_connections_give_their_places_back(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "MOST_CONNECTIONS", 2)
    for _ in range(10):
        assert (await call(address, "/healthz")).status == 200


async def test_an_answer_that_nobody_takes_is_given_up(
    daemon: Daemon, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "ANSWER_SECONDS", 0.05)
    reader, writer = await connect(address)
    transport = writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    # More than the buffers of both sides hold.
    for _ in range(400):
        writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with asyncio.timeout(20):
        while not transport.is_closing():
            writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.sleep(0.01)
    assert (await call(address, "/healthz")).status == 200
    assert not [fact for fact in daemon.facts if isinstance(fact, Fault)]
    del reader


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 50\r\n\r\n{",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
)
async def test_a_body_that_does_not_come_is_408(
    daemon: Daemon, address: str, monkeypatch: pytest.MonkeyPatch, rest: bytes
) -> None:
    monkeypatch.setattr(requests, "_BODY_SECONDS", 0.05)
    reader, writer = await connect(address)
    writer.write(HEAD.encode() + rest)
    assert b" 408 " in await reader.readline()
    writer.close()
    assert not [fact for fact in daemon.facts if isinstance(fact, Fault)]


@pytest.mark.parametrize(
    "garbage", [b"zz\r\n\r\n", b"-1\r\n{\r\n", b"5\r\n{}\r\nzz", b"0x2\r\n{}\r\n"]
)
@pytest.mark.parametrize("together", [True, False])
async def test_a_body_that_cannot_be_read_is_the_caller_s_fault(
    daemon: Daemon,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    garbage: bytes,
    together: bool,
) -> None:
    monkeypatch.setattr(requests, "_BODY_SECONDS", 0.2)
    reader, writer = await connect(address)
    head = HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\n"
    for part in [head + garbage] if together else [head, garbage]:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.02)
    line = await reader.readline()
    assert line.split(b" ")[1] in (b"400", b"408"), line
    writer.close()
    assert not [fact for fact in daemon.facts if isinstance(fact, Fault)]


@pytest.mark.parametrize("size", [64 * 1024 + 1, 10**12])
async def test_a_body_that_is_too_large_is_not_read(address: str, size: int) -> None:
    reader, writer = await connect(address)
    writer.write(
        f"POST /breakers/openai/open HTTP/1.1\r\nHost: localhost\r\n{ADMIN}\r\n"
        f"Content-Length: {size}\r\n\r\n".encode()
    )
    assert b" 413 " in await reader.readline()
    writer.close()


async def test_a_chunked_body_without_end_is_cut(address: str) -> None:
    reader, writer = await connect(address)
    writer.write(
        f"POST /breakers/openai/open HTTP/1.1\r\nHost: localhost\r\n{ADMIN}\r\n"
        "Transfer-Encoding: chunked\r\n\r\n".encode()
    )
    for _ in range(20):
        writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
    assert b" 413 " in await reader.readline()
    writer.close()


@pytest.mark.parametrize(
    "line",
    [
        "CONNECT localhost:80 HTTP/1.1",
        "CONNECT /status HTTP/1.1",
        "TRACE /status HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "SEARCH /status HTTP/1.1",
        "BREW /status HTTP/1.1",
        "get /status HTTP/1.1",
        "PRI * HTTP/2.0",
        "GET /status HTTP/3.0",
    ],
)
async def test_odd_methods_and_versions_are_refused(
    daemon: Daemon, address: str, line: str
) -> None:
    reader, writer = await connect(address)
    writer.write(f"{line}\r\nHost: localhost\r\nCookie: hunter2\r\n\r\n".encode())
    status = (await reader.readline()).split(b" ")[1]
    assert status in (b"400", b"404", b"405")
    writer.close()
    assert b"hunter2" not in await said(reader)
    assert not [fact for fact in daemon.facts if isinstance(fact, Fault)]


async def test_a_form_of_a_web_page_changes_nothing(daemon: Daemon, address: str) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        headers = [f"Content-Type: {kind}", "Origin: null"]
        answer = await call(address, "/breakers/openai/open", "POST", *headers, body="{}")
        assert answer.status == 403
        bare = await call(address, "/breakers/openai/open", "POST", headers[0], body="{}")
        assert (bare.status, bare.code) == (403, "admin_header_required")
    assert (await post(address, "/breakers/openai/reset")).status == 200


async def test_thousands_of_wrong_keys_are_told_in_short(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "faults: {allowed: true}\n" + PROVIDERS)
    plane, address = await started(daemon)
    try:
        body = "".join(f"k{number}: 1\n" for number in range(4000))
        answer = await post(address, "/faults", body=body)
        assert (answer.status, answer.code) == (400, "bad_request")
        assert answer.json()["error"]["message"].endswith("; and 3980 more")
    finally:
        await plane.stop()
