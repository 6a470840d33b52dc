"""What the daemon and a service manager say to each other: systemd's protocols, without a library.

The manager hands over sockets that it has opened already, is told when the daemon is ready, reloads
or stops, and is pinged by the event loop itself, so that a loop that hangs is noticed. Everything
goes by environment variables and one datagram socket; without them nothing is said.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress

from sidecar.config.addresses import Listen

FIRST_DESCRIPTOR = 3
"""The first descriptor that a manager hands over (sd_listen_fds(3))."""

PINGS = 3
"""Pings in one watchdog period: one may be late, another lost."""

_SEND_SECONDS = 1.0


class ServiceManager:
    """The manager that started this process, if there is one.

    Args:
        environ: where its variables are; they are taken out, for they concern this process alone.
        pid: of this process.

    Attributes:
        watchdog: seconds within which a ping must come; None where nobody waits for one.
        address: the address of its socket; None where it listens to nobody.
    """

    def __init__(self, environ: MutableMapping[str, str], pid: int) -> None:
        self.address = _address(environ.pop("NOTIFY_SOCKET", ""))
        self.watchdog = _watchdog(
            environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", ""), pid
        )
        self._handed = _handed(
            environ.pop("LISTEN_FDS", ""),
            environ.pop("LISTEN_PID", ""),
            environ.pop("LISTEN_FDNAMES", ""),
            pid,
        )
        self._socket: socket.socket | None = None
        self._status = ""

    # -- sockets ----------------------------------------------------------------------------

    def listens(self, name: str, configured: tuple[Listen, ...]) -> tuple[Listen, ...]:
        """Where a plane listens: on what was handed over under its name, else as configured.

        Args:
            name: `listen`, `admin` or `probe`, as in `FileDescriptorName=`.
            configured: what the configuration says; its certificate holds for both.
        """
        handed = self._handed.get(name, ())
        tls = next((listen.tls for listen in configured if listen.tls is not None), None)
        return tuple(_listen(descriptor, tls) for descriptor in handed) or configured

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names under which sockets were handed over that no plane asks for."""
        return tuple(sorted(set(self._handed) - {"listen", "admin", "probe"}))

    # -- what it is told --------------------------------------------------------------------

    def ready(self, status: str) -> None:
        """The daemon listens, or has finished a reload."""
        self._tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """A reload begins; `ready` ends it, whatever came of it."""
        moment = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._tell("RELOADING=1", f"MONOTONIC_USEC={moment}")

    def stopping(self, status: str, seconds: float) -> None:
        """The daemon is on its way out, and may take so long."""
        self._tell("STOPPING=1", f"STATUS={status}", f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def status(self, status: str) -> None:
        """One line for people; said only when it changed."""
        if status != self._status:
            self._status = status
            self._tell(f"STATUS={status}", patient=False)

    def ping(self) -> None:
        """The event loop lives."""
        self._tell("WATCHDOG=1", patient=False)

    async def keep_pinging(self) -> None:
        """Pings as often as the watchdog wants, for as long as the loop turns."""
        while self.watchdog is not None:
            self.ping()
            await asyncio.sleep(self.watchdog / PINGS)

    def _tell(self, *lines: str, patient: bool = True) -> None:
        if self.address is None:
            return
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(_SEND_SECONDS if patient else 0)
        text = "\n".join(line.replace("\n", " ") for line in lines)
        # A manager that does not listen is its own trouble and not that of any call.
        with suppress(OSError):
            self._socket.sendto(text.encode("utf-8", "replace"), self.address)

    def close(self) -> None:
        """Nothing more will be said."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _address(text: str) -> str | None:
    """A path, or an abstract name (`@…`); other families are not spoken."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else None


def _watchdog(period: str, pid: str, own: int) -> float | None:
    if pid and pid != str(own):
        return None
    if not (period.isascii() and period.isdecimal()) or int(period) <= 0:
        return None
    return int(period) / 1e6


def _handed(count: str, pid: str, names: str, own: int) -> dict[str, tuple[int, ...]]:
    if pid != str(own) or not (count.isascii() and count.isdecimal()):
        return {}
    named = names.split(":") if names else []
    found: dict[str, tuple[int, ...]] = {}
    for index in range(min(int(count), 1024)):
        descriptor = FIRST_DESCRIPTOR + index
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - its own signature
        # Without names there is one kind of sockets, and it is for calls.
        name = named[index] if index < len(named) else "listen"
        plane = "listen" if name in {"unknown", ""} else name
        found[plane] = (*found.get(plane, ()), descriptor)
    return found


def _listen(descriptor: int, tls: tuple[str, str] | None) -> Listen:
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        name = sock.getsockname()
        if sock.family == socket.AF_UNIX:
            path = name if isinstance(name, str) else name.decode("utf-8", "replace")
            return Listen(kind="unix", path=path, tls=tls, descriptor=descriptor)
        return Listen(host=name[0], port=name[1], tls=tls, descriptor=descriptor)
