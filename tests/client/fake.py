"""An admin plane that does what a test says: it answers, is silent, or talks nonsense."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REFUSAL = {
    "class": "transient",
    "source": "sidecar",
    "code": "breaker_open",
    "message": "orders-db: 5 failures in a row",
    "retryable": True,
    "retry_after": 12.5,
    "correlation_id": "w-1",
    "raw": None,
}


@dataclass
class Seen:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    document: Any


@dataclass
class Fake:
    """The daemon.

    Attributes:
        answer: what it says to a request; None is silence. Bytes go out as they are.
        seen: the requests so far.
        connections: accepted so far.
    """

    answer: Callable[[Seen], bytes | None]
    path: Path | None = None
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self._more = threading.Condition()
        self._open: list[socket.socket] = []
        family = socket.AF_INET if self.path is None else socket.AF_UNIX
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.bind(("127.0.0.1", 0) if self.path is None else str(self.path))
        self._listener.listen(64)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def wait_for(self, count: int) -> list[Seen]:
        """The requests, once there are so many."""
        with self._more:
            came = self._more.wait_for(lambda: len(self.seen) >= count, 20)
            assert came, f"{len(self.seen)} requests of {count}"
            return list(self.seen)

    def outcomes(self, count: int) -> list[Any]:
        """What the reports said, once there are so many requests."""
        return [one.document for one in self.wait_for(count) if one.path.endswith("/report")]

    def hang_up(self) -> None:
        """End every connection."""
        for sock in self._open:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads[1:]:
            thread.join(20)
        for sock in self._open:
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        with sock.makefile("rb") as lines:
            while True:
                try:
                    first = lines.readline()
                    if not first:
                        return
                    headers = {}
                    while (line := lines.readline()) not in {b"\r\n", b""}:
                        name, _, value = line.decode().partition(":")
                        headers[name] = value.strip()
                    body = lines.read(int(headers.get("content-length", "0")))
                except OSError:
                    return
                one = Seen(first.decode().split()[1], headers, json.loads(body) if body else None)
                answer = self.answer(one)
                with self._more:
                    self.seen.append(one)
                    self._more.notify_all()
                if answer is not None:
                    try:
                        sock.sendall(answer)
                    except OSError:
                        return


def said(document: Any, status: int = 200, *more: str) -> bytes:
    """An answer as the daemon writes it."""
    body = json.dumps(document).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *more, "", ""]
    return "\r\n".join(lines).encode() + body


def letting_through(seen: Seen) -> bytes:
    if seen.path.endswith("/permit"):
        return said({"permit": f"orders-db.{id(seen)}"})
    return said({"envelope": None, "verdict": "success", "rule": "x", "breaker": {}})


def refusing(seen: Seen) -> bytes:
    return said({"error": {"code": "breaker_open"}, "envelope": REFUSAL}, 503)


def silent(seen: Seen) -> None:
    return None
