"""A collector that takes everything at once: what is measured is what the daemon spends on it.

python -m bench.collector PORT
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from typing import cast

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: (\d+)\r\n")
_TAKEN = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n"


class Taker(asyncio.Protocol):
    """Reads a request to its end and says that it was taken."""

    def __init__(self) -> None:
        self._kept = b""
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._left:
            taken = min(self._left, len(data))
            self._left -= taken
            data = data[taken:]
            if not self._left:
                self._transport.write(_TAKEN)
        self._kept += data
        while (end := self._kept.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._kept[: end + 2])
            size = int(length[1]) if length else 0
            body = len(self._kept) - end - 4
            self._left = max(size - body, 0)
            self._kept = self._kept[end + 4 + size :]
            if self._left:
                return
            self._transport.write(_TAKEN)


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Taker, "127.0.0.1", port)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
