"""HTTP as it is on the wire, so that odd requests can be sent."""

import asyncio
import json
from typing import Any


class Answer:
    """A parsed answer with a sized body."""

    def __init__(self, head: str, body: bytes) -> None:
        lines = head.split("\r\n")
        self.status = int(lines[0].split(" ")[1])
        self.headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }
        self.body = body

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error."""
        code: str = self.json()["error"]["code"]
        return code


async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to `host:port`, `[host]:port` or `unix:/path`."""
    if address.startswith("unix:"):
        return await asyncio.open_unix_connection(address[5:])
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host.strip("[]"), int(port))


async def send(address: str, data: bytes) -> Answer:
    """Send bytes, read one answer."""
    reader, writer = await connect(address)
    try:
        writer.write(data)
        async with asyncio.timeout(10):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            sized = Answer(head, b"")
            if sized.status == 100:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                sized = Answer(head, b"")
            no_body = data.startswith(b"HEAD")
            length = 0 if no_body else int(sized.headers.get("content-length", "0"))
            return Answer(head, await reader.readexactly(length))
    finally:
        writer.close()


async def call(
    address: str,
    target: str = "/status",
    method: str = "GET",
    *headers: str,
    host: str | None = "localhost",
    body: bytes | str | None = None,
    version: str = "1.1",
) -> Answer:
    """One call; headers as they stand on the wire."""
    lines = [f"{method} {target} HTTP/{version}"]
    if host is not None:
        lines.append(f"Host: {host}")
    lines += headers
    content = b""
    if body is not None:
        content = body.encode() if isinstance(body, str) else body
        lines.append(f"Content-Length: {len(content)}")
    return await send(address, ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + content)


ADMIN = "x-sidecar-admin: 1"


async def post(address: str, target: str, *headers: str, **options: Any) -> Answer:
    """A POST with the admin header."""
    return await call(address, target, "POST", ADMIN, *headers, **options)
