"""The admin plane: what people, probes and dashboards ask, and the few things they may change.

It shares the process with the data plane and nothing else: it reads one snapshot a call and waits
for nothing that traffic waits for. The order of the guards is fixed: who calls (Host, Origin),
whether they may call at all (the token, beyond loopback), what they call (404, 405), whether they
may change it (`mutations`, the admin header, the token). The raw target is routed, because a key is
one percent-encoded segment and a decoded slash would split it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NoReturn, Protocol

import msgspec
from aiohttp import web

from sidecar import clock
from sidecar.admin import faults
from sidecar.admin.agents import AgentCalls, AgentView, Route
from sidecar.admin.answers import HEADERS, AdminError, answer, json_answer
from sidecar.admin.events import EventHub
from sidecar.admin.faults import FaultsView
from sidecar.admin.listeners import Door, Listeners
from sidecar.admin.orders import read_orders
from sidecar.admin.page import page
from sidecar.admin.requests import (
    check_caller,
    check_method,
    check_mutating,
    check_token,
    read_body,
    target_path,
)
from sidecar.admin.routes import Access, Found, Operation, find, not_found, operation_of
from sidecar.admin.status import (
    SnapshotSource,
    Times,
    breaker_entry,
    dependency_entry,
    status,
)
from sidecar.breaker.model import NoRoomError, Snapshot, UnknownKeyError, Verb
from sidecar.config.addresses import Listen
from sidecar.config.problems import Problem
from sidecar.envelope.redact import shown_name
from sidecar.telemetry import exposition, readings
from sidecar.telemetry.observer import Controlled, Fault, Observer

_EVENT_SECONDS = 30.0
_KNOWN_KEYS = 50


class ReloadResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a reload came to.

    Attributes:
        generation: of the configuration that is in force now.
        hash: of the configuration that is in force now.
        added: providers and dependencies that are new.
        removed: those that are gone.
        changed: those whose settings changed.
        restart_needed: keys that changed but count only after a restart.
        warnings: what the loader warned of.
        problems: why the new configuration was refused; empty if it is in force.
    """

    generation: int
    hash: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    restart_needed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


class BreakerControl(SnapshotSource, readings.Breakers, Protocol):
    """The part of the breaker registry that is steered here."""

    def control(
        self, key: str, verb: Verb, now: float, for_: float | None = None, reason: str | None = None
    ) -> Snapshot:
        """Act on one breaker; see `Registry.control` for what it raises."""


class DaemonView(AgentView, FaultsView, readings.Source, Protocol):
    """What the admin plane sees of the daemon."""

    @property
    def registry(self) -> BreakerControl:
        """The breakers."""

    @property
    def observer(self) -> Observer:
        """Where facts go."""

    @property
    def listening(self) -> bool:
        """Whether the data plane accepts calls."""

    @property
    def draining(self) -> bool:
        """Whether the daemon is on its way out."""

    async def settled(self) -> None:
        """Wait until what must survive a restart is kept, or cannot be."""

    async def reload(self) -> ReloadResult:
        """Read the configuration again, and take it if it is good."""


class ProbePlane:
    """Liveness, readiness and metrics for who comes by any name and changes nothing."""

    def __init__(self, daemon: DaemonView) -> None:
        self._daemon = daemon
        self._listeners = Listeners(self._handle)

    async def start(self, listens: Sequence[Listen]) -> tuple[str, ...]:
        """Listen; see `Listeners.start`."""
        return await self._listeners.start(listens)

    async def stop(self) -> None:
        """Stop listening."""
        await self._listeners.stop()

    async def _handle(self, _door: Door, request: web.BaseRequest) -> web.StreamResponse:
        try:
            path = target_path(request)
            if path == "/metrics":
                check_method(request, "GET", "HEAD")
                return await _metrics(self._daemon, request)
            return _probe(self._daemon, request, path)
        except AdminError as refusal:
            return refusal.answer()


class AdminPlane:
    """The admin plane of one daemon.

    Attributes:
        events: the event streams; it listens to the daemon's observer between start and stop.
    """

    def __init__(self, daemon: DaemonView) -> None:
        self._daemon = daemon
        self._listeners = Listeners(self._handle)
        self.events = EventHub()
        self._routes: Mapping[str, Route] = {
            "page": self._page,
            "healthz": self._probe,
            "readyz": self._probe,
            "status": self._status,
            "metrics": self._metrics,
            "events": self._events,
            "config": self._config,
            "openapi": self._openapi,
            "faults": self._faults,
            "add_faults": self._add_faults,
            "reload": self._reload,
            "control": self._control,
            **AgentCalls(daemon).routes,
        }

    async def start(self, listens: Sequence[Listen]) -> tuple[str, ...]:
        """Listen; see `Listeners.start`."""
        addresses = await self._listeners.start(listens)
        self._daemon.observer.add(self.events)
        return addresses

    async def stop(self) -> None:
        """End the event streams and stop listening."""
        self._daemon.observer.remove(self.events)
        self.events.close()
        await self._listeners.stop()

    async def _handle(self, door: Door, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._admit(door, request)
        except AdminError as refusal:
            return refusal.answer()
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - one bad answer must not be the last
            self._daemon.observer.emit(Fault(at=clock.wall(), where="admin", error=error))
            message = "a fault of the daemon's own; see its log"
            return AdminError(500, "internal_error", message).answer()

    async def _admit(self, door: Door, request: web.BaseRequest) -> web.StreamResponse:
        path = target_path(request)
        if door.web:
            check_caller(request, self._daemon.config.allowed_hosts)
        found = find(path)
        if found is not None and path in _PROBES:
            return await self._call(operation_of(found, request.method), request, found)
        if door.exposed:
            try:
                check_token(request, self._daemon.config.admin.token)
            except AdminError as refusal:
                if path != "/" or not _wants_html(request):
                    raise
                # A browser has no token to send before it has a page that asks for one; the page
                # itself holds nothing that anybody may not know.
                return _page(refusal.status, refusal.headers)
        if found is None:
            raise not_found(path)
        return await self._call(operation_of(found, request.method), request, found)

    async def _call(
        self, operation: Operation, request: web.BaseRequest, found: Found
    ) -> web.StreamResponse:
        admin = self._daemon.config.admin
        if operation.access is Access.STEER and not admin.mutations:
            raise AdminError(403, "mutations_off", "admin.mutations is false: nothing changes here")
        if operation.access in (Access.STEER, Access.SETTLE):
            check_mutating(request, admin.token)
        return await self._routes[operation.id](request, found.parts)

    async def _probe(
        self, request: web.BaseRequest, _parts: Mapping[str, str]
    ) -> web.StreamResponse:
        return _probe(self._daemon, request, target_path(request))

    async def _status(
        self, _request: web.BaseRequest, _parts: Mapping[str, str]
    ) -> web.StreamResponse:
        return json_answer(status(self._daemon, clock.monotonic(), clock.wall()))

    async def _metrics(
        self, request: web.BaseRequest, _parts: Mapping[str, str]
    ) -> web.StreamResponse:
        return await _metrics(self._daemon, request)

    async def _page(
        self, _request: web.BaseRequest, _parts: Mapping[str, str]
    ) -> web.StreamResponse:
        return _page()

    async def _config(
        self, _request: web.BaseRequest, _parts: Mapping[str, str]
    ) -> web.StreamResponse:
        return json_answer(self._daemon.config.redacted())

    async def _openapi(
        self, _request: web.BaseRequest, _parts: Mapping[str, str]
    ) -> web.StreamResponse:
        # Seldom asked for, and a daemon has to be ready within a second.
        from sidecar.admin import openapi  # noqa: PLC0415

        return answer(openapi.document(), "application/json")

    async def _reload(
        self, _request: web.BaseRequest, _parts: Mapping[str, str]
    ) -> web.StreamResponse:
        # A caller that hangs up does not stop a reload halfway.
        result = await asyncio.shield(self._daemon.reload())
        if not result.problems:
            document = msgspec.to_builtins(result)
            del document["problems"]
            return json_answer(document)
        count = len(result.problems)
        raise AdminError(
            422,
            "invalid_config",
            f"{count} problem{'s' if count > 1 else ''}; the old configuration stays in force",
            details={
                "generation": result.generation,
                "hash": result.hash,
                "problems": msgspec.to_builtins(result.problems),
            },
        )

    async def _faults(
        self, request: web.BaseRequest, _parts: Mapping[str, str]
    ) -> web.StreamResponse:
        return faults.shown(self._daemon, record="rules" not in request.query)

    async def _add_faults(
        self, request: web.BaseRequest, _parts: Mapping[str, str]
    ) -> web.StreamResponse:
        return faults.added(self._daemon, await read_body(request))

    async def _control(
        self, request: web.BaseRequest, parts: Mapping[str, str]
    ) -> web.StreamResponse:
        key, word = _shown(parts["key"]), parts["verb"]
        orders = read_orders(await read_body(request))
        now = clock.monotonic()
        try:
            snapshot = self._daemon.registry.control(
                key, Verb(word), now, orders.seconds, orders.reason
            )
        except UnknownKeyError as error:
            self._unknown_key(error.why, now)
        except NoRoomError as error:
            raise AdminError(409, "too_many_breakers", str(error)) from None
        except ValueError as error:
            raise AdminError(400, "bad_request", str(error)) from None
        wall = clock.wall()
        self._daemon.observer.emit(
            Controlled(
                at=wall, key=snapshot.key, verb=word, duration=orders.seconds, reason=orders.reason
            )
        )
        # Who reads the answer may pull the plug after it.
        await self._daemon.settled()
        times = Times(now, wall)
        if snapshot.key in self._daemon.config.dependencies:
            return json_answer(dependency_entry(self._daemon, snapshot, times))
        return json_answer(breaker_entry(snapshot, times))

    def _unknown_key(self, why: str, now: float) -> NoReturn:
        daemon = self._daemon
        known = [
            snapshot.key
            for name in (*daemon.config.providers, *daemon.config.dependencies)
            for snapshot in daemon.registry.snapshots(name, now)
        ]
        more = f" and {len(known) - _KNOWN_KEYS} more" if len(known) > _KNOWN_KEYS else ""
        names = ", ".join(known[:_KNOWN_KEYS])
        raise AdminError(
            404,
            "unknown_breaker",
            f"{why}; there are {names}{more}",
            details={"known": known[:_KNOWN_KEYS]},
        ) from None

    async def _events(
        self, request: web.BaseRequest, _parts: Mapping[str, str]
    ) -> web.StreamResponse:
        headers = {**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers=headers)
        if request.method == "HEAD":
            return response
        if self.events.full:
            raise AdminError(503, "too_many_readers", "all event streams are taken; try again")
        transport = request.transport
        if transport is None:
            raise ConnectionResetError
        subscription = self.events.subscribe(transport.abort)
        try:
            await response.prepare(request)
            await response.write(b": changes follow\n\n")
            async for piece in subscription.pieces():
                async with asyncio.timeout(_EVENT_SECONDS):
                    await response.write(piece)
            await response.write_eof()
        except TimeoutError:
            transport.abort()
        finally:
            self.events.unsubscribe(subscription)
        return response


def _shown(key: str) -> str:
    """The key as calls of that model make it: a name that is a credential is not shown."""
    provider, slash, subject = key.partition("/")
    return f"{provider}/{shown_name(subject)}" if slash else key


async def _metrics(daemon: DaemonView, request: web.BaseRequest) -> web.StreamResponse:
    """Everything that is measured, in the format that the caller prefers.

    Read here, at one moment; written in a thread, since the text of many models is long.
    """
    openmetrics = exposition.wants_openmetrics(request.headers.get("Accept"))
    reading = readings.read(daemon, clock.monotonic())
    body = await asyncio.to_thread(exposition.render, reading, openmetrics=openmetrics)
    return answer(body, exposition.OPENMETRICS if openmetrics else exposition.TEXT)


_PROBES = frozenset({"/healthz", "/readyz"})
_HTML = "text/html; charset=utf-8"


def _page(status: int = 200, headers: Mapping[str, str] = MappingProxyType({})) -> web.Response:
    policy = {"Content-Security-Policy": page().policy}
    return answer(page().body, _HTML, status=status, headers={**headers, **policy})


def _wants_html(request: web.BaseRequest) -> bool:
    return "text/html" in request.headers.get("Accept", "").lower()


def _probe(daemon: DaemonView, request: web.BaseRequest, path: str) -> web.StreamResponse:
    """Liveness is this very answer; readiness asks only whether calls are accepted."""
    if path not in _PROBES:
        raise AdminError(404, "not_found", "this listener has /healthz, /readyz and /metrics only")
    check_method(request, "GET", "HEAD")
    if path == "/healthz":
        return json_answer({"status": "ok"})
    if daemon.draining:
        return json_answer({"status": "draining"}, status=503)
    if not daemon.listening:
        return json_answer({"status": "starting"}, status=503)
    return json_answer({"status": "ready"})
