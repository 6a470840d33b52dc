"""Redis: a server without a disk, with whatever settings make it fail."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

from tests.servers.processes import Account, Server, found, free_port

# A cluster's bus listens ten thousand above the port.
_HIGHEST = 55000


def program() -> str | None:
    return found("redis-server", "valkey-server")


def _port() -> int:
    while True:
        port = free_port()
        if port < _HIGHEST:
            return port


class Redis(Server):
    """One server; it saves nothing."""

    def __init__(self, account: Account, folder: Path) -> None:
        super().__init__(account, folder, _port())

    def run(self, **settings: str) -> None:
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "save": "",
            "appendonly": "no",
            **{name.replace("_", "-"): value for name, value in settings.items()},
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        self.start(program(), *arguments, ready=self._answers)

    def _answers(self) -> bool:
        with (
            suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection,
        ):
            connection.settimeout(1)
            connection.sendall(b"PING\r\n")
            return connection.recv(64)[:1] in {b"+", b"-"}
        return False
