"""The upstream of the race: what it does stands in the body, for some peers pass nothing else on.

A misspelt model comes back as 503, as some gateways do it. `stream: true` yields `max_tokens`
events, one each `seed` milliseconds. `/counts` tells how many requests came by model, `/health/…`
breaks and heals it.

    python -m bench.scripted PORT
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import Counter
from typing import ClassVar, cast

from bench.upstream import COMPLETED, EVENT, MODELS, ROLE, STOP, chunk, head, serving, whole

GOOD, MISSPELT = "gpt-demo", "gpt-dmeo"
NOT_FOUND = json.dumps(
    {
        "error": {
            "message": f"The model `{MISSPELT}` does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }
).encode()
BROKEN = json.dumps(
    {"error": {"message": "The server had an error", "type": "server_error", "code": None}}
).encode()
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_MODEL = re.compile(rb'"model" ?: ?"([^"]*)"')


class Scripted(asyncio.Protocol):
    """One connection. Requests are answered one after another."""

    seen: ClassVar[Counter[str]] = Counter()
    broken = False

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        del exc
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        top, body = self._buffer[: end + 2], self._buffer[end + 4 :]
        length = _LENGTH.search(top)
        if length is None and re.search(rb"\r\ntransfer-encoding: *chunked", top, re.IGNORECASE):
            if not body.endswith(b"0\r\n\r\n"):
                return
        elif length is not None and len(body) < int(length[1]):
            return
        self._buffer = b""
        self._answer(top.split(b" ", 2)[1], body)

    def _answer(self, target: bytes, body: bytes) -> None:
        if target == b"/counts":
            self._write(whole(b"200 OK", b"application/json", json.dumps(Scripted.seen).encode()))
            return
        if target.startswith(b"/health/"):
            Scripted.broken = target.endswith(b"/broken")
            self._write(whole(b"200 OK", b"text/plain", b"done"))
            return
        found = _MODEL.search(body)
        model = found[1].decode() if found else ""
        Scripted.seen[model] += 1
        if target.endswith(b"/models"):
            self._write(whole(b"200 OK", b"application/json", MODELS))
        elif model == MISSPELT:
            self._write(whole(b"503 Service Unavailable", b"application/json", NOT_FOUND))
        elif Scripted.broken and model == GOOD:
            self._write(whole(b"500 Internal Server Error", b"application/json", BROKEN))
        elif re.search(rb'"stream" ?: ?true', body):
            gap = _number(b"seed", body) / 1000
            self._write(head(b"200 OK", b"text/event-stream", None) + chunk(ROLE))
            self._event(_number(b"max_tokens", body), gap)
        else:
            self._write(COMPLETED)

    def _event(self, left: int, gap: float) -> None:
        loop = asyncio.get_running_loop()
        if self._transport is None:
            return
        if not left:
            self._write(chunk(STOP) + b"0\r\n\r\n")
            return
        self._write(chunk(EVENT % time.monotonic_ns()))
        if gap:
            loop.call_later(gap, self._event, left - 1, gap)
        else:
            loop.call_soon(self._event, left - 1, gap)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _number(name: bytes, body: bytes) -> int:
    found = re.search(rb'"%b" ?: ?(\d+)' % name, body)
    return int(found[1]) if found else 0


if __name__ == "__main__":
    serving(Scripted, int(sys.argv[1]))
