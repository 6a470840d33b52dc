"""The data plane: listeners, providers, and a `Call` for every request.

It holds what all calls share and decides nothing about any of them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from aiohttp import StreamReader

from sidecar import clock
from sidecar.admin.guard import host_allowed, is_loopback, parse_authority
from sidecar.admin.sockets import address_of, open_sockets, server_tls
from sidecar.breaker.admission import Admission
from sidecar.breaker.model import Mode, Refusal, State
from sidecar.breaker.registry import Registry
from sidecar.config.addresses import Listen
from sidecar.config.fault_rules import (
    concerns_dependencies,
    read_fault_header,
)
from sidecar.config.problems import ConfigError
from sidecar.config.resolved import Config
from sidecar.config.schema import FaultSection
from sidecar.envelope import dialects
from sidecar.faults.injector import Faults
from sidecar.proxy import target
from sidecar.proxy.call import Call
from sidecar.proxy.connection import Connection
from sidecar.proxy.failures import Refused
from sidecar.proxy.heads import RequestHead
from sidecar.proxy.incoming import Incoming
from sidecar.proxy.network_watch import NetworkWatch
from sidecar.proxy.runtime import Runtime, breakers_of
from sidecar.telemetry.observer import Fault, Observer
from sidecar.telemetry.trace import Tracing

_DEFAULT_PORTS = {"http": 80, "https": 443}

BACKLOG = 4096
"""Connections the kernel queues for us; a thousand agents may connect at the same instant."""

# From Python 3.13 on the loop removes the path of a socket that it closes, whosever it is.
_KEEPS_PATH: Final[dict[str, Any]] = (
    {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
)


class DataPlane:
    """Serves callers.

    Args:
        config: the configuration in force.
        registry: the breakers; configured here, since it follows the providers and dependencies.
        observer: hears of every finished call.
        tracing: gives calls their places in traces; by default none.

    Attributes:
        runtimes: the providers by name.
        draining: new calls are answered `draining`.
        stopping: what still runs is being cut.
        faults: what is done to calls on purpose.
        watch: whether this machine has a way out.
        generic: the dialect for answers that concern no provider.
    """

    def __init__(
        self,
        config: Config,
        registry: Registry,
        observer: Observer,
        tracing: Tracing | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.config = config
        self.registry = registry
        self.observer = observer
        self.tracing = tracing or Tracing()
        self._configure_registry(config)
        self.runtimes = {
            name: Runtime(provider, self.loop, registry.gates(name))
            for name, provider in config.providers.items()
        }
        self.generic = dialects.get("generic")
        self.faults = Faults(config.faults)
        self.watch = NetworkWatch(self.loop, registry, observer, lambda: self.runtimes)
        self.draining = False
        self.stopping = False
        self._connections: set[Connection] = set()
        self._paths: list[Path] = []
        self._servers: list[asyncio.Server] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self._active = 0

    # -- listening --------------------------------------------------------------------------

    async def listen(self, address: Listen) -> list[str]:
        """Starts to serve on one address of the configuration.

        Returns:
            The addresses that are listened on, as `host:port` or `unix:/path`.

        Raises:
            OSError: none of them can be listened on.
        """
        context = server_tls(address)
        factory = self._factory(trusted=address.kind == "unix")
        names = []
        for sock in open_sockets(address):
            names.append(address_of(sock))
            if address.kind == "unix":
                server: asyncio.Server = await self.loop.create_unix_server(
                    factory, sock=sock, ssl=context, backlog=BACKLOG, **_KEEPS_PATH
                )
                if address.descriptor is None:
                    self._paths.append(Path(sock.getsockname()))
            else:
                server = await self.loop.create_server(
                    factory, sock=sock, ssl=context, backlog=BACKLOG
                )
            self._servers.append(server)
        return names

    def _factory(self, *, trusted: bool) -> Callable[[], Connection]:
        return lambda: Connection(self, self.loop, idle=self._client_timeout(), trusted=trusted)

    def _client_timeout(self) -> float:
        return max((r.config.timeouts.client for r in self.runtimes.values()), default=300.0)

    # -- what connections ask for -----------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        """A caller connected."""
        self._connections.add(connection)

    def closed(self, connection: Connection) -> None:
        """A caller's connection is gone."""
        self._connections.discard(connection)

    async def handle(
        self, connection: Connection, message: RequestHead, payload: StreamReader
    ) -> bool:
        """Answers one request; True if the connection can carry another."""
        if not self._active:
            self._idle.clear()
        self._active += 1
        try:
            return await Call(self, connection, Incoming(connection, message, payload)).run()
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()

    async def refuse(self, connection: Connection, refusal: Refused) -> None:
        """Answers bytes that are no request."""
        await Call(self, connection, Incoming.nothing(connection), refusal).run()

    # -- what calls ask for -----------------------------------------------------------------

    def is_own(self, form: target.AbsoluteForm, connection: Connection) -> bool:
        """Does an absolute-form target name this daemon?"""
        named = parse_authority(form.authority)
        transport = connection.transport
        encrypted = transport is not None and transport.get_extra_info("sslcontext") is not None
        default = _DEFAULT_PORTS.get(form.scheme)
        if named is None or default is None or (form.scheme == "https" and not encrypted):
            return False
        local = transport.get_extra_info("sockname") if transport is not None else None
        if not isinstance(local, tuple):
            return is_loopback(named.host)
        if (named.port or default) != local[1]:
            return False
        if is_loopback(named.host) or named.host == local[0]:
            return True
        return not named.literal and host_allowed(form.authority, self.config.allowed_hosts)

    def fault_asked_for(self, header: str | None) -> FaultSection | None:
        """The fault that a call asks for itself; None where that is not allowed.

        Raises:
            Refused: it asks for nothing that there is.
        """
        if header is None or not self.faults.allowed:
            return None
        try:
            rule = read_fault_header(header)
        except ConfigError as error:
            told = "; ".join(one.told for one in error.problems)
            raise Refused("bad_request", f"x-sidecar-fault: {told}") from None
        if concerns_dependencies(rule):
            raise Refused("bad_request", "x-sidecar-fault: this call is of a provider")
        return rule

    def known(self) -> str:
        """What is said to a call for a provider that is not there; quotes nothing of it."""
        known = ", ".join(sorted(self.runtimes)) or "none"
        off = ", ".join(sorted(self.config.disabled))
        return f"no such provider; configured: {known}" + (f"; disabled: {off}" if off else "")

    def breaker_mark(
        self, provider: str, held_by: Refusal | Admission | None, subject: str | None = None
    ) -> str:
        """The value of `x-sidecar-breaker`: what refused or admitted the call, else what would be.

        Args:
            provider: the call's.
            held_by: what the registry said to the call; None if it was not asked.
            subject: the call's model or route; None if that is not known.
        """
        if held_by is not None:
            return mark(held_by.key, held_by.state, held_by.mode)
        try:
            key, state, mode = self.registry.peek(provider, subject, clock.monotonic())
        except KeyError:
            # A reload took the provider away while the call was under way.
            return mark(provider, State.CLOSED, Mode.OFF)
        return mark(key, state, mode)

    def breaker_line(self, provider: str, admission: Admission | None) -> bytes:
        """`breaker_mark` of a call that went on, as a header line."""
        if admission is None:
            return f"x-sidecar-breaker: {self.breaker_mark(provider, None)}\r\n".encode("latin-1")
        return mark_line(admission.key, admission.state, admission.mode)

    def gate_fault(self, error: Exception) -> None:
        """The pump of a gate failed; the calls that waited there go on."""
        self.observer.emit(Fault(at=clock.wall(), where="breaker", error=error))

    # -- what the daemon asks for -----------------------------------------------------------

    def in_flight(self, provider: str) -> int:
        """Calls under way at one provider."""
        runtime = self.runtimes.get(provider)
        return runtime.in_flight if runtime is not None else 0

    @property
    def active(self) -> int:
        """Calls under way."""
        return self._active

    def reconfigure(self, config: Config) -> None:
        """Takes another configuration without losing a running call."""
        self._configure_registry(config)
        runtimes: dict[str, Runtime] = {}
        for name, provider in config.providers.items():
            gates = self.registry.gates(name)
            runtime = self.runtimes.get(name)
            if runtime is None or not runtime.reconfigured(provider):
                runtime = Runtime(provider, self.loop, gates)
            runtime.gates = gates
            runtimes[name] = runtime
        for name, runtime in self.runtimes.items():
            if runtimes.get(name) is not runtime:
                runtime.retire()
        self.runtimes = runtimes
        self.config = config
        self.faults.configure(config.faults)

    def _configure_registry(self, config: Config) -> None:
        self.registry.configure(breakers_of(config), clock.monotonic())

    def drop_idle(self) -> None:
        """Closes every idle connection to an upstream."""
        for runtime in self.runtimes.values():
            runtime.upstream.drop_idle()

    def stop_listening(self) -> None:
        """Takes no further connections; idle ones are closed."""
        # While the address is still ours: a successor's must not be taken away.
        for path in self._paths:
            with suppress(OSError):
                path.unlink()
        self._paths.clear()
        for server in self._servers:
            server.close()
        self._servers.clear()
        self.draining = True
        for connection in list(self._connections):
            connection.stop()

    async def drain(self, seconds: float) -> bool:
        """Waits until no call runs.

        Returns:
            True if all of them ended by themselves in time.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Cuts what still runs, honestly, and closes every connection."""
        self.stopping = True
        self.watch.close()
        for connection in list(self._connections):
            connection.cancel()
        if self._active:
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._idle.wait()
        for connection in list(self._connections):
            connection.abort()
        await asyncio.gather(*(runtime.upstream.close() for runtime in self.runtimes.values()))


@lru_cache(maxsize=1024)
def mark_line(key: str, state: str, mode: str) -> bytes:
    """`x-sidecar-breaker` as a header line."""
    return f"x-sidecar-breaker: {mark(key, state, mode)}\r\n".encode("latin-1")


@lru_cache(maxsize=1024)
def mark(key: str, state: str, mode: str) -> str:
    """`x-sidecar-breaker`: percent-encoded, at most 160 characters."""
    tail = f"; state={state}; mode={mode}"
    name = quote(key, safe="/~:@!$&'()*+,-._")
    room = 160 - len(tail)
    if len(name) > room:
        name = name[:room].rpartition("%")[0] if "%" in name[room - 2 : room] else name[:room]
    return name + tail
