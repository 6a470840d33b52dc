"""The upstream of the soak: does what a call's kind says, and writes down what it did.

    python -m bench.soak.upstream PORT RECORD

A line leaves this process before what it tells is done, so that the record holds what was begun
however the process ends.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
import struct
import sys
from contextlib import suppress
from urllib.parse import parse_qsl

from bench.load import run as run_on_the_fastest_loop
from bench.soak import calls

GAP = 0.01
"""Seconds between two events of a stream."""

LATE = 30.0
"""Seconds for which nothing is said by an upstream that hangs: longer than every clock."""


class Upstream:
    """Answers connections.

    Args:
        record: where lines go.
    """

    def __init__(self, record: int) -> None:
        self._record = record
        self._asked: dict[str, int] = {}

    def write_down(self, word: str, id_: str, more: str = "") -> None:
        os.write(self._record, f"{word} {id_} {more}\n".encode())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if not await self._one(head, reader, writer):
                    break
        writer.transport.abort()

    async def _one(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        line, _, lines = head.partition(b"\r\n")
        query = line.split(b" ")[1].partition(b"?")[2].decode("latin-1")
        asked = dict(parse_qsl(query))
        kind, id_ = asked["k"], asked["i"]
        self.write_down("head", id_)
        body = await _body(lines.lower(), reader)
        self.write_down("got", id_, hashlib.blake2b(body, digest_size=8).hexdigest())
        return await self._answer(kind, id_, reader, writer)

    async def _answer(
        self, kind: str, id_: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        nth = self._asked[id_] = self._asked.get(id_, 0) + 1 if kind == "flaky" else 1
        if kind == "flaky" and nth == 1:
            _say(writer, *calls.failure(kind))
        elif kind in calls.GOOD:
            body = calls.completion(id_)
            if kind == "dribble":
                await _dribble(writer, _head(200, len(body), []) + body)
            else:
                if kind == "narrow":
                    await asyncio.sleep(0.05)
                _say(writer, 200, body, [])
        elif kind in ("typo", "key", "spent", "throttle", "boom"):
            _say(writer, *calls.failure(kind))
        elif kind in (
            "stream",
            "claude",
            "error_event",
            "cut_stream",
            "silence",
            "leave_streaming",
        ):
            return await _stream(kind, id_, writer)
        elif kind in calls.LARGE:
            return await _large(kind, id_, writer)
        elif kind == "cut_body":
            writer.write(_head(200, 1000, []) + b'{"id": "half')
            await writer.drain()
            return False
        elif kind == "reset":
            _reset(writer)
            return False
        elif kind == "page":
            _say(writer, 200, b"<html><title>Bad gateway</title></html>", [], b"text/html")
        elif kind == "socket":
            await _socket(id_, reader, writer)
            return False
        else:
            # hang, leave_waiting, stuck_sender: until the other side has had enough.
            with suppress(TimeoutError):
                async with asyncio.timeout(LATE):
                    while await reader.read(65536):
                        pass
            return False
        await writer.drain()
        return True


async def _body(lines: bytes, reader: asyncio.StreamReader) -> bytes:
    if b"transfer-encoding: chunked" in lines:
        body = b""
        while True:
            size = int(await reader.readuntil(b"\r\n"), 16)
            body += (await reader.readexactly(size + 2))[:-2]
            if not size:
                return body
    _, found, rest = lines.partition(b"content-length:")
    return await reader.readexactly(int(rest.split(b"\r\n")[0])) if found else b""


def _head(
    status: int, length: int | None, lines: list[bytes], kind: bytes = b"application/json"
) -> bytes:
    framing = b"Transfer-Encoding: chunked" if length is None else b"Content-Length: %d" % length
    return b"\r\n".join(
        [b"HTTP/1.1 %d X" % status, b"Content-Type: " + kind, framing, *lines, b"", b""]
    )


def _say(
    writer: asyncio.StreamWriter,
    status: int,
    body: bytes,
    lines: list[bytes],
    kind: bytes = b"application/json",
) -> None:
    writer.write(_head(status, len(body), lines, kind) + body)


async def _dribble(writer: asyncio.StreamWriter, data: bytes) -> None:
    for at in range(0, len(data), 16):
        writer.write(data[at : at + 16])
        await writer.drain()
        await asyncio.sleep(0.005)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _stream(kind: str, id_: str, writer: asyncio.StreamWriter) -> bool:
    writer.write(_head(200, None, [], b"text/event-stream"))
    for event in calls.events(kind, id_)[
        : 3 if kind in ("error_event", "cut_stream", "silence") else None
    ]:
        writer.write(_chunk(event))
        await writer.drain()
        await asyncio.sleep(GAP)
    if kind == "error_event":
        error = (
            b'data: {"error": {"message": "The server had an error", "type": "server_error"}}\n\n'
        )
        writer.write(_chunk(error) + b"0\r\n\r\n")
    elif kind == "cut_stream":
        return False
    elif kind in ("silence", "leave_streaming"):
        # Whoever leaves does so while something comes; the other one hears nothing any more.
        for n in range(int(LATE / GAP / 2)):
            if kind == "leave_streaming":
                writer.write(_chunk(b'data: {"choices": [{"delta": {"content": "%d"}}]}\n\n' % n))
                await writer.drain()
            await asyncio.sleep(GAP * 2)
            if writer.is_closing():
                break
        return False
    else:
        writer.write(_chunk(calls.ending(kind)) + b"0\r\n\r\n")
    await writer.drain()
    return True


async def _large(kind: str, id_: str, writer: asyncio.StreamWriter) -> bool:
    body = calls.large(id_)
    writer.write(_head(200, len(body), [], b"application/octet-stream"))
    if kind == "cut_large":
        writer.write(body[: len(body) // 2])
        await writer.drain()
        return False
    writer.write(body)
    await writer.drain()
    return True


async def _socket(id_: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A WebSocket that says one thing, hears one, and closes well."""
    word = id_.encode()
    writer.write(
        b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: x\r\n\r\n"
        + bytes((0x81, len(word))) + word
    )  # fmt: skip
    await reader.readexactly(6 + len(word))
    writer.write(b"\x88\x02\x03\xe8")
    await writer.drain()
    with suppress(TimeoutError):
        async with asyncio.timeout(2):
            await reader.read(100)


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _serve(port: int, record: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    upstream = Upstream(record)
    server = await asyncio.start_server(
        upstream.serve, "127.0.0.1", port, backlog=4096, limit=2**20, reuse_address=True
    )
    await stop.wait()
    server.close()


def main() -> None:
    record = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    run_on_the_fastest_loop(_serve(int(sys.argv[1]), record))


if __name__ == "__main__":
    main()
