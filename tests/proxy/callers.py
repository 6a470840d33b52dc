"""A caller on a raw socket: sends bytes as they are and reads an answer without interpreting it."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass
class Answer:
    """An answer as it came."""

    line: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    clean: bool
    raw: bytes

    @property
    def status(self) -> int:
        return int(self.line.split(b" ")[1])

    def get(self, name: str) -> str | None:
        wanted = name.encode()
        return next((v.decode("latin-1") for k, v in self.headers if k.lower() == wanted), None)

    def all(self, name: str) -> list[bytes]:
        return [v for k, v in self.headers if k.lower() == name.encode()]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def envelope(self) -> Any:
        value = self.get("x-error-envelope")
        return None if value is None else json.loads(value)


class Caller:
    """One connection to the daemon."""

    open: ClassVar[set[Caller]] = set()

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.open.add(self)

    @classmethod
    async def close_all(cls) -> None:
        """Closes what a test left open, so that no socket outlives it."""
        while cls.open:
            await cls.open.pop().closed()

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1", **more: Any) -> Caller:
        return cls(*await asyncio.open_connection(host, port, limit=2**22, **more))

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
        await self.writer.drain()

    async def head(self) -> tuple[bytes, list[tuple[bytes, bytes]], bytes]:
        raw = await self.reader.readuntil(b"\r\n\r\n")
        line, *rows = raw[:-4].split(b"\r\n")
        headers = [tuple(row.split(b": ", 1)) for row in rows]
        return line, headers, raw  # type: ignore[return-value]

    async def answer(self, *, head_only: bool = False) -> Answer:
        """Reads one answer in whatever framing it has."""
        while True:
            line, headers, raw = await self.head()
            if not line.split(b" ")[1].startswith(b"1"):
                break
        found = Answer(line, headers, b"", clean=True, raw=raw)
        status = found.status
        if head_only or status in (204, 304):
            return found
        length = found.get("content-length")
        if found.get("transfer-encoding") == "chunked":
            await self._chunks(found)
        elif length is not None:
            try:
                found.body = await self.reader.readexactly(int(length))
            except asyncio.IncompleteReadError as error:
                found.body, found.clean = error.partial, False
            found.raw += found.body
        else:
            try:
                found.body = await self.reader.read(-1)
            except ConnectionError:
                found.clean = False
            found.raw += found.body
        return found

    async def _chunks(self, found: Answer) -> None:
        try:
            while True:
                line = await self.reader.readuntil(b"\r\n")
                found.raw += line
                size = int(line, 16)
                part = await self.reader.readexactly(size + 2)
                found.raw += part
                if not size:
                    return
                found.body += part[:-2]
        except (asyncio.IncompleteReadError, ConnectionError):
            found.clean = False

    def close(self) -> None:
        self.writer.close()

    async def closed(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


def request(
    target: str | bytes = "/up/v1/x",
    method: str = "GET",
    body: bytes | None = None,
    *headers: tuple[str, str],
    host: str = "localhost",
) -> bytes:
    """The bytes of a request with a sized body."""
    raw = target.encode() if isinstance(target, str) else target
    lines = [method.encode() + b" " + raw + b" HTTP/1.1", b"Host: " + host.encode()]
    lines += [f"{name}: {value}".encode("latin-1") for name, value in headers]
    if body is not None:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


async def call(port: int, *args: Any, **more: Any) -> Answer:
    """One request on a connection of its own."""
    caller = await Caller.connect(port)
    try:
        await caller.send(request(*args, **more))
        return await caller.answer(head_only=len(args) > 1 and args[1] == "HEAD")
    finally:
        caller.close()


def chat(model: str = "gpt-x", **more: Any) -> bytes:
    """The body of a chat completion."""
    return json.dumps({"model": model, "messages": [], **more}).encode()
