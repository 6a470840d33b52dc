"""Opens what a `listen` key asks for, so that every caller finds the daemon where it looks.

`localhost` resolves to 127.0.0.1 for one client and to ::1 for the next, so both are bound, on one
port, if the machine has both. A Unix socket that a killed daemon left behind is taken over; one
that still answers is not.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
from pathlib import Path

from sidecar.config.addresses import Listen

_BACKLOG = 1024
_ATTEMPTS = 20
_NO_SUCH_FAMILY = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT})


def open_sockets(listen: Listen) -> list[socket.socket]:
    """Bound, listening sockets for one address; several for `localhost`.

    Raises:
        OSError: if nothing can be bound, or one of both loopback addresses is taken.
    """
    if listen.descriptor is not None:
        return [_adopted(listen.descriptor)]
    if listen.kind == "unix":
        return [_unix(listen.path)]
    for attempt in range(_ATTEMPTS):
        try:
            return _tcp(listen.hosts, listen.port)
        except OSError as error:
            # A port that the kernel chose for one family may be taken in the other: draw again.
            retry = listen.port == 0 and error.errno == errno.EADDRINUSE
            if not retry or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError  # pragma: no cover


def address_of(sock: socket.socket) -> str:
    """Where a socket listens, as `listen` would be written."""
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return f"unix:{name}"
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def server_tls(listen: Listen) -> ssl.SSLContext | None:
    """The TLS context of a listener; None for plain HTTP.

    Raises:
        OSError: if a file cannot be read; ssl.SSLError, one of them, if key and certificate do
            not fit.
    """
    if listen.tls is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*listen.tls)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _adopted(descriptor: int) -> socket.socket:
    """A socket that a service manager opened; it outlives this process and is only borrowed."""
    sock = socket.socket(fileno=os.dup(descriptor))
    sock.settimeout(0)
    return sock


def _tcp(hosts: tuple[str, ...], port: int) -> list[socket.socket]:
    opened: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for host in hosts:
            try:
                sock = _bind(host, port)
            except OSError as error:
                if len(hosts) == 1 or error.errno not in _NO_SUCH_FAMILY:
                    raise
                absent = error
                continue
            opened.append(sock)
            port = sock.getsockname()[1]
    except OSError:
        for sock in opened:
            sock.close()
        raise
    if not opened and absent is not None:
        raise absent
    return opened


def _bind(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
        sock.settimeout(0)
    except OSError:
        sock.close()
        raise
    return sock


def _unix(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        # Who may connect is the whole protection of a Unix socket, from its first moment on.
        mask = os.umask(0o177)
        try:
            sock.bind(path)
        finally:
            os.umask(mask)
        sock.listen(_BACKLOG)
        sock.settimeout(0)
    except OSError:
        sock.close()
        raise
    return sock


def _remove_stale(path: str) -> None:
    if not Path(path).is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            with contextlib.suppress(FileNotFoundError):
                Path(path).unlink()
        except FileNotFoundError:
            return
        else:
            raise OSError(errno.EADDRINUSE, "another process listens on this socket", path)
