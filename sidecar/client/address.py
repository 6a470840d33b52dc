"""Where the daemon is: a loopback address or a Unix socket, found without waiting for a resolver.

A name other than `localhost` is resolved on a thread of its own, once a minute at most: a resolver
that does not answer must not hold anybody.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_ADDRESS = "http://localhost:7601"
_DEFAULT_PORT = 7601
_KNOWN_FOR = 60.0
"""Seconds for which a resolved name is believed."""

Endpoint = tuple[socket.AddressFamily, "str | tuple[str, int]"]


@dataclass(frozen=True, slots=True)
class Address:
    """An admin plane.

    Attributes:
        host: without brackets; empty for a Unix socket.
        port: 0 for a Unix socket.
        path: of the Unix socket, else empty.
    """

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def authority(self) -> str:
        """What `Host` says."""
        if self.path:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read `http://host:port` or `unix:/path`; of several, with commas, the first.

    Raises:
        ValueError: if it is neither, or asks for TLS, which is not spoken here.
    """
    text = text.strip().partition(",")[0].strip()
    if text.startswith("unix:/"):
        return Address(path=text.removeprefix("unix:"))
    split = urlsplit(text if "://" in text else f"http://{text}")
    if split.scheme != "http" or not split.hostname or split.path.strip("/"):
        raise ValueError(f"{text!r} is no address of a daemon: http://host:port or unix:/path")
    return Address(host=split.hostname, port=split.port or _DEFAULT_PORT)


def given_address() -> str:
    """What the environment says, else the default."""
    return os.environ.get("BREAKER_SIDECAR_ADMIN") or DEFAULT_ADDRESS


def given_token() -> str | None:
    """The token of the environment: itself, or the file that holds it; None without one.

    Raises:
        OSError: if the file cannot be read.
        UnicodeDecodeError: if it holds no text.
    """
    token = os.environ.get("BREAKER_SIDECAR_TOKEN")
    if token:
        return token
    path = os.environ.get("BREAKER_SIDECAR_TOKEN_FILE")
    return Path(path).read_text(encoding="utf-8").strip() or None if path else None


class Endpoints:
    """The socket addresses behind an address.

    Args:
        address: where the daemon is.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._fixed = _without_resolver(address)
        self._found: list[Endpoint] = []
        self._found_at = 0.0
        self._resolving: threading.Thread | None = None

    def known(self, patience: float) -> list[Endpoint]:
        """Those that are known, or become known within so many seconds; empty if none do."""
        if self._fixed is not None:
            return self._fixed
        if time.monotonic() - self._found_at > _KNOWN_FOR or not self._found:
            thread = self._resolving
            if thread is None or not thread.is_alive():
                thread = threading.Thread(target=self._resolve, name="sidecar-dns", daemon=True)
                self._resolving = thread
                thread.start()
            if not self._found and patience > 0:
                thread.join(patience)
        return self._found

    def _resolve(self) -> None:
        try:
            infos = socket.getaddrinfo(
                self._address.host, self._address.port, type=socket.SOCK_STREAM
            )
        except (OSError, UnicodeError):
            return
        self._found = [(family, (str(where[0]), int(where[1]))) for family, _, _, _, where in infos]
        self._found_at = time.monotonic()


def _without_resolver(address: Address) -> list[Endpoint] | None:
    if address.path:
        return [(socket.AF_UNIX, address.path)]
    port = address.port
    if address.host == "localhost":
        return [(socket.AF_INET, ("127.0.0.1", port)), (socket.AF_INET6, ("::1", port))]
    try:
        version = ipaddress.ip_address(address.host).version
    except ValueError:
        return None
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    return [(family, (address.host, port))]
