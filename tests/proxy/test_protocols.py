"""Protocols in front of HTTP on their way through: gRPC-Web, Connect, MCP, GraphQL."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from .callers import Caller, call, request
from .upstreams import Visit, answer, says

METHOD = "/up/pkg.Service/Method"
KEY = "up/~pkg.Service/Method"
GRPC = b"application/grpc-web+proto"
TEXT = b"application/grpc-web-text"
CONNECT = b"application/connect+json"


def frame(flag: int, payload: bytes) -> bytes:
    return bytes([flag]) + len(payload).to_bytes(4, "big") + payload


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def trailers(text: str) -> bytes:
    return frame(0x80, text.encode())


DATA = frame(0, b"\n\x02hi")
OK = trailers("grpc-status: 0\r\n")


def streaming(kind: bytes, *parts: bytes, end: bytes = b"0\r\n\r\n"):
    async def script(visit: Visit) -> None:
        await visit.read_body()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % kind
        await visit.send(head, *(chunk(part) for part in parts), end)
        visit.keep = bool(end)

    return script


async def provider(start, upstream, dialect):
    return await start({"up": {"upstream": upstream.url, "dialect": dialect}})


def window(running, key=KEY):
    shot = running.breaker(key)
    return shot.window if shot else None


@pytest.mark.parametrize(
    ("kind", "body", "verdict", "code"),
    [
        (GRPC, DATA + OK, "success", None),
        (GRPC, DATA + trailers("grpc-status: 14\r\n"), "failure", "14"),
        (GRPC, trailers("grpc-status: 16\r\n"), "alive", "16"),
        (TEXT, base64.b64encode(DATA + trailers("grpc-status: 8\r\n")), "throttle", "8"),
        (CONNECT, frame(0, b"{}") + frame(2, b"{}"), "success", None),
        (CONNECT, frame(2, b'{"error":{"code":"unavailable"}}'), "failure", "unavailable"),
    ],
)
@pytest.mark.parametrize("cuts", [1, 3])
async def test_the_last_frame_is_the_verdict(start, upstream, kind, body, verdict, code, cuts):
    size = -(-len(body) // cuts)
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    upstream.script = streaming(kind, *parts)
    running = await provider(start, upstream, "grpc-web")
    found = await call(running.port, METHOD, "POST", DATA)
    assert (found.status, found.body, found.clean) == (200, body, True)
    assert getattr(window(running), verdict) == 1
    envelope = running.calls[-1].envelope
    assert (envelope and envelope.code) == code


async def test_a_status_in_the_head_is_told_in_the_head(start, upstream):
    raw = answer(200, b"", (b"grpc-status", b"8"), (b"grpc-retry-pushback-ms", b"1500"), kind=GRPC)
    upstream.script = says(raw)
    running = await provider(start, upstream, "grpc-web")
    found = await call(running.port, METHOD, "POST", DATA)
    assert found.status == 200
    assert found.envelope["code"] == "8"
    assert found.get("retry-after-ms") == "1500"
    assert found.get("x-sidecar-verdict") == "throttle"
    assert window(running).throttle == 1


@pytest.mark.parametrize("dialect", ["grpc-web", "auto"])
@pytest.mark.parametrize("kind", [GRPC, TEXT, CONNECT])
async def test_a_body_of_frames_that_is_cut_ends_with_a_frame(start, upstream, kind, dialect):
    first = base64.b64encode(DATA + b"\x00" * 5) if kind is TEXT else DATA
    upstream.script = streaming(kind, first, end=b"")
    running = await provider(start, upstream, dialect)
    found = await call(running.port, METHOD, "POST", DATA)
    assert not found.clean
    last = found.body.removeprefix(first)
    last = base64.b64decode(last) if kind is TEXT else last
    payload = last[5:]
    assert int.from_bytes(last[1:5], "big") == len(payload)
    if kind is CONNECT:
        assert last[0] == 2
        assert json.loads(payload)["error"]["code"] == "unavailable"
        assert json.loads(payload)["envelope"]["code"] == "stream_truncated"
    else:
        assert last[0] == 0x80
        lines = dict(line.split(": ", 1) for line in payload.decode().split("\r\n") if line)
        assert lines["grpc-status"] == "14"
        assert json.loads(lines["x-error-envelope"])["code"] == "stream_truncated"
    assert window(running).failure == 1


async def test_half_a_frame_gets_nothing_behind_it(start, upstream):
    upstream.script = streaming(GRPC, DATA + DATA[:6], end=b"")
    running = await provider(start, upstream, "grpc-web")
    found = await call(running.port, METHOD, "POST", DATA)
    assert not found.clean
    assert found.body == DATA + DATA[:6]


async def test_an_answer_of_ours_has_the_headers_that_grpc_web_reads(start, upstream):
    running = await provider(start, upstream, "grpc-web")
    await upstream.stop()
    found = await call(running.port, METHOD, "POST", DATA)
    assert found.status == 502
    assert found.get("grpc-status") == "14"
    assert "refused" in found.get("grpc-message")
    assert found.json["code"] == "unavailable"


@pytest.mark.parametrize(
    ("dialect", "path", "body", "code"),
    [
        ("mcp", "/mcp", {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "m"}}, "-32603"),
        ("auto", "/mcp", {"jsonrpc": "2.0", "id": 1, "result": {"content": [], "isError": True}}, "tool_error"),
        ("graphql", "/graphql", {"data": None, "errors": [{"message": "boom"}]}, "graphql_error"),
        ("auto", "/graphql", {"data": None, "errors": [{"message": "boom"}]}, "graphql_error"),
    ],
)  # fmt: skip
async def test_clients_that_read_errors_in_a_200_get_their_200(
    start, upstream, dialect, path, body, code
):
    raw = json.dumps(body).encode()
    upstream.script = says(answer(200, raw))
    running = await provider(start, upstream, dialect)
    found = await call(running.port, "/up" + path, "POST", b"{}")
    assert (found.status, found.body) == (200, raw)
    assert found.envelope["code"] == code
    assert found.get("x-should-retry") in (None, "false")


REPLY = b'event: message\ndata: {"jsonrpc":"2.0","id":1,"result":{"content":[]}}\n\n'
FAILED = b'event: message\ndata: {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"m"}}\n\n'


@pytest.mark.parametrize(("event", "verdict"), [(REPLY, "success"), (FAILED, "failure")])
async def test_a_caller_who_hangs_up_on_its_reply_was_answered(start, upstream, event, verdict):
    async def script(visit: Visit) -> None:
        await streaming(b"text/event-stream", event, end=b"")(visit)
        await visit.closed()

    upstream.script = script
    running = await provider(start, upstream, "mcp")
    caller = await Caller.connect(running.port)
    await caller.send(request("/up/mcp", "POST", b"{}"))
    await caller.head()
    await caller.reader.readuntil(b"\n\n")
    await caller.closed()
    async with asyncio.timeout(5):
        while not running.calls:
            await asyncio.sleep(0.01)
    assert getattr(window(running, "up/~mcp"), verdict) == 1
