"""A scripted upstream on a real socket: it records every byte and answers what it is told."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass
class Received:
    """One request as it arrived, byte for byte."""

    head: bytes
    body: bytes = b""
    peer: str = ""

    @property
    def line(self) -> bytes:
        return self.head.split(b"\r\n", 1)[0]

    @property
    def target(self) -> bytes:
        return self.line.split(b" ")[1]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        rows = self.head.split(b"\r\n")[1:]
        return [tuple(row.split(b": ", 1)) for row in rows if row]  # type: ignore[misc]

    def get(self, name: bytes) -> bytes | None:
        return next((v for k, v in self.headers if k.lower() == name), None)


Script = Callable[["Visit"], Awaitable[None]]


@dataclass
class Visit:
    """One connection's exchange: what a script works with."""

    request: Received
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int
    keep: bool = True

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
        await self.writer.drain()

    async def read_body(self) -> bytes:
        """Reads the body in either framing."""
        length = self.request.get(b"content-length")
        if length is not None:
            self.request.body = await self.reader.readexactly(int(length))
        elif self.request.get(b"transfer-encoding") is not None:
            body = b""
            while True:
                size = int((await self.reader.readline()).split(b";")[0], 16)
                part = await self.reader.readexactly(size)
                await self.reader.readline()
                if not size:
                    break
                body += part
            self.request.body = body
        return self.request.body

    async def closed(self) -> None:
        """Waits until the other side has closed."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def reset(self) -> None:
        self.writer.transport.abort()
        self.keep = False


def answer(
    status: int = 200,
    body: bytes = b"{}",
    *headers: tuple[bytes, bytes],
    kind: bytes = b"application/json",
) -> bytes:
    """A sized answer."""
    lines = [b"HTTP/1.1 %d X" % status, b"Content-Type: %b" % kind]
    lines += [b"%b: %b" % pair for pair in headers]
    lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def says(raw: bytes) -> Script:
    """A script that reads the request and answers these bytes."""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(raw)

    return script


@dataclass
class Upstream:
    """The server; `script` can be changed at any time."""

    script: Script = field(default_factory=lambda: says(answer()))
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    open_connections: int = 0
    port: int = 0
    server: asyncio.Server | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def hits(self) -> int:
        return len(self.requests)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self, tls: ssl.SSLContext | None = None, path: str | None = None) -> None:
        if path:
            self.server = await asyncio.start_unix_server(self._serve, path, limit=2**20)
            return
        self.server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=tls, limit=2**20, backlog=4096
        )
        self.port = self.server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        self.connections += 1
        self.open_connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                request = Received(head[:-4])
                self.requests.append(request)
                visit = Visit(request, reader, writer, len(self.requests))
                await self.script(visit)
                if not visit.keep:
                    break
        except (asyncio.IncompleteReadError, ConnectionError, ValueError, asyncio.CancelledError):
            pass
        finally:
            self.open_connections -= 1
            self.tasks.discard(task)
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()
