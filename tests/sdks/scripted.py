"""An upstream in a thread that fails as it is told: for clients that block the thread they run in."""

from __future__ import annotations

import json
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

Script = Callable[[socket.socket], None]


@contextmanager
def threads_without_signals() -> Iterator[None]:
    """Threads that begin in here never receive a signal: some of them, gRPC's, outlive their test.

    A later test that signals its own process means the main thread.
    """
    kept = {
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGCHLD,
    }
    before = signal.pthread_sigmask(signal.SIG_BLOCK, kept)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Scripted:
    """Accepts connections, reads one request of each, and does what `script` says."""

    def __init__(self) -> None:
        self.script: Script = answer(200, {})
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._over = threading.Event()
        self._held: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._over.set()
        # Closing alone does not wake a thread that accepts.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for held in self._held:
            held.close()

    def hang(self, connection: socket.socket) -> None:
        """Says nothing until the end of the test."""
        self._held.append(connection.dup())

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(5)
            if _read(connection):
                self.script(connection)


def _read(connection: socket.socket) -> bool:
    """Reads a request whole; False if it is none. A handshake counts as one."""
    seen = b""
    while b"\r\n\r\n" not in seen:
        part = connection.recv(65536)
        if not part:
            return False
        seen += part
        if seen[:1] == b"\x16":
            return True
    head, _, body = seen.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
        if line.startswith(b"expect:"):
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    while len(body) < length:
        body += connection.recv(65536)
    return True


def answer(status: int, body: Any, headers: dict[str, str] | None = None) -> Script:
    """One whole answer; a body that is no text is sent as JSON."""
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    sent = {"content-type": "application/json", **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())

    def script(connection: socket.socket) -> None:
        head = (
            f"HTTP/1.1 {status} X\r\n{lines}content-length: {len(raw)}\r\nconnection: close\r\n\r\n"
        )
        connection.sendall(head.encode() + raw)

    return script


def stream(*events: str) -> Script:
    """A stream of server-sent events that ends cleanly."""
    return answer(200, "".join(events), {"content-type": "text/event-stream"})


def cut(connection: socket.socket) -> None:
    """Announces a body of a thousand bytes and closes after five."""
    connection.sendall(
        b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"a":'
    )


def closed(connection: socket.socket) -> None:
    """Closes without a byte."""
    connection.shutdown(socket.SHUT_RDWR)


def reset(connection: socket.socket) -> None:
    """Resets the connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def plain(connection: socket.socket) -> None:
    """Answers a handshake in HTTP."""
    connection.sendall(
        b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    )
