"""The upstream of the measurements: answers what the query asks for, as fast as Python can.

A bare protocol that reads just enough of a request to find its end. Small answers come from nginx
where it is installed (see `peers`), since it leaves more of the shared core to the load generator;
streams, bodies, failures and held answers come from here.

    python -m bench.upstream PORT

`?stream=N&gap=MS` streams N events, each with the time at which it was sent; `?hold=MS` answers
late; `?fail` answers 503; `/hits` tells how many other requests there were.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from typing import cast
from urllib.parse import parse_qsl

COMPLETION = json.dumps(
    {
        "id": "chatcmpl-9xKq3vWm2Hc7LrT5eYb8",
        "object": "chat.completion",
        "created": 1767225600,
        "model": "gpt-bench-mini",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "The quick answer is that the lazy dog was never asked. "
                    "It lay in the sun, and the fox, being quick and brown, jumped over it.",
                },
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 24,
            "completion_tokens": 31,
            "total_tokens": 55,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
        "system_fingerprint": "fp_0a1b2c3d4e",
    }
).encode()

REQUEST = json.dumps(
    {
        "model": "gpt-bench-mini",
        "temperature": 0.2,
        "messages": [
            {"role": "system", "content": "You answer in one or two short sentences."},
            {"role": "user", "content": "Who jumped over whom, and what did the other one do?"},
        ],
    }
).encode()

MODELS = json.dumps(
    {"object": "list", "data": [{"id": "gpt-bench-mini", "object": "model", "owned_by": "bench"}]}
).encode()

MIB = 1 << 20
BLOB = bytes(range(256)) * (MIB // 256)
BIG_JSON = (
    b'{"object": "list", "model": "gpt-bench-mini", "data": ['
    + b", ".join([b"0.0123456789"] * (MIB // 14 - 10))
    + b"]}"
)

FAILURE = json.dumps(
    {"error": {"message": "The server had an error", "type": "server_error", "code": None}}
).encode()

ROLE = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"gpt-bench-mini",'
    b'"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
)
# The text alone changes from event to event, as in a real stream: it is when the event was sent.
EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"gpt-bench-mini",'
    b'"choices":[{"index":0,"delta":{"content":" %d"},"finish_reason":null}]}\n\n'
)
STOP = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"gpt-bench-mini",'
    b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)


def head(status: bytes, kind: bytes, length: int | None) -> bytes:
    framing = b"Transfer-Encoding: chunked" if length is None else b"Content-Length: %d" % length
    return b"HTTP/1.1 %b\r\nContent-Type: %b\r\n%b\r\n\r\n" % (status, kind, framing)


def whole(status: bytes, kind: bytes, body: bytes) -> bytes:
    return head(status, kind, len(body)) + body


COMPLETED = whole(b"200 OK", b"application/json", COMPLETION)
FAILED = whole(b"503 Service Unavailable", b"application/json", FAILURE)
PLAIN = {
    b"/v1/chat/completions": COMPLETED,
    b"/v1/models": whole(b"200 OK", b"application/json", MODELS),
    b"/blob": whole(b"200 OK", b"application/octet-stream", BLOB),
    b"/big-json": whole(b"200 OK", b"application/json", BIG_JSON),
}
NOT_FOUND = whole(b"404 Not Found", b"text/plain", b"no such route\n")


class Upstream(asyncio.Protocol):
    """One connection. Requests are answered one after another."""

    hits = 0

    def __init__(self) -> None:
        self._buffer = b""
        self._left = 0
        self._target = b""
        self._chunked = False
        self._tail = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        del exc
        self._transport = None

    def data_received(self, data: bytes) -> None:
        if self._target:
            self._body(data)
            return
        self._buffer = self._buffer + data if self._buffer else data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        top, rest = self._buffer[: end + 2], self._buffer[end + 4 :]
        self._buffer = b""
        self._target = top.split(b" ", 2)[1]
        length = _LENGTH.search(top)
        self._left = int(length[1]) if length else 0
        self._chunked = length is None and _CHUNKED.search(top) is not None
        self._tail = b""
        self._body(rest)

    def _body(self, data: bytes) -> None:
        if self._chunked:
            self._tail = (self._tail + data)[-5:]
            if self._tail != b"0\r\n\r\n":
                return
        else:
            self._left -= len(data)
            if self._left > 0:
                return
        target, self._target = self._target, b""
        self._answer(target)

    def _answer(self, target: bytes) -> None:
        if target == b"/hits":
            self._write(whole(b"200 OK", b"text/plain", b"%d" % Upstream.hits))
            return
        Upstream.hits += 1
        path, _, query = target.partition(b"?")
        if not query:
            if path == b"/upload":
                self._write(COMPLETED)
            else:
                self._write(PLAIN.get(path, NOT_FOUND))
            return
        asked = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
        loop = asyncio.get_running_loop()
        if "fail" in asked:
            self._write(FAILED)
        elif "hold" in asked:
            loop.call_later(int(asked["hold"]) / 1000, self._write, COMPLETED)
        else:
            gap = int(asked.get("gap", "0")) / 1000
            self._write(head(b"200 OK", b"text/event-stream", None) + chunk(ROLE))
            loop.call_soon(self._event, loop, int(asked.get("stream", "1")), gap)

    def _event(self, loop: asyncio.AbstractEventLoop, left: int, gap: float) -> None:
        """Each event is a write of its own, in an iteration of the loop of its own."""
        if not left:
            self._write(chunk(STOP) + b"0\r\n\r\n")
            return
        self._write(chunk(EVENT % time.monotonic_ns()))
        if gap:
            loop.call_later(gap, self._event, loop, left - 1, gap)
        else:
            loop.call_soon(self._event, loop, left - 1, gap)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def serve(protocol: type[asyncio.Protocol], port: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(protocol, "127.0.0.1", port, backlog=4096)
    await stop.wait()
    server.close()


def serving(protocol: type[asyncio.Protocol], port: int) -> None:
    """Serves until it is told to stop, on the fastest loop there is."""
    try:
        import uvloop  # noqa: PLC0415

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(protocol, port))


if __name__ == "__main__":
    serving(Upstream, int(sys.argv[1]))
