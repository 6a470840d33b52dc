"""The daemon: compose, listen, serve, reload, drain, stop, in named phases.

It owns no decision of its own; it puts the parts together, tells them what the operating system
says (signals), and takes them down in the order in which callers notice it least.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import msgspec

from sidecar import __version__, clock
from sidecar.admin.server import AdminPlane, ProbePlane, ReloadResult
from sidecar.breaker.model import Transition, UpstreamVerdict
from sidecar.breaker.registry import Registry
from sidecar.compiled import compiled
from sidecar.config.addresses import Listen
from sidecar.config.load import Overrides, load
from sidecar.config.problems import ConfigError
from sidecar.config.resolved import Config
from sidecar.config.watch import EVERY, SETTLE, Watch, watchable
from sidecar.dependencies.guard import Dependencies
from sidecar.faults.injector import Faults
from sidecar.fleet.state import Keeper
from sidecar.proxy import limit_key
from sidecar.proxy.plane import DataPlane
from sidecar.service_manager import ServiceManager
from sidecar.telemetry import logs
from sidecar.telemetry.export import Export
from sidecar.telemetry.failures import Failures
from sidecar.telemetry.figures import Figures
from sidecar.telemetry.observer import ConfigReloaded, Fault, Observer
from sidecar.telemetry.pacing import GatePacing
from sidecar.telemetry.readings import PacingSource
from sidecar.telemetry.tally import Tally

TICK = 0.5
"""Seconds between two looks at the breakers: a deadline that passed is announced within these."""

SUSPENDED = 5.0
"""Seconds by which the wall clock runs ahead of the monotonic one within a tick after a suspend."""

CLOSING = 5.0
"""Seconds that closing may take after the drain, as told to the service manager."""

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What a daemon is told by: stop, stop, reload."""

EXITING = 2.0
"""Seconds that the interpreter may take to end once everything is closed."""

STATUS_EVERY = 5.0
"""Seconds between two looks at what the service manager should show of the state."""

GC_THRESHOLD = 10_000
"""Objects between two looks of the collector: a call leaves no cycles behind, so few are needed."""

Result = TypeVar("Result")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How the daemon is started.

    Attributes:
        config: the file, if the search is not wanted.
        overrides: what the flags say; above file and environment.
        unknown_keys: `warn` lets a file with keys of a later version pass.
        watch: a changed file is reloaded by itself even if it is no symbolic link.
    """

    config: Path | None = None
    overrides: Overrides = Overrides()
    unknown_keys: Literal["error", "warn"] = "error"
    watch: bool = False


class CannotListen(Exception):
    """An address of the configuration cannot be listened on."""

    exit_code = 69


class Daemon:
    """One daemon in the running loop.

    Args:
        options: how it was started; a reload reads the same places again.
        config: the configuration to begin with.
        manager: the service manager that started it; by default none.

    Attributes:
        generation: how many configurations have been in force, from 1.
        config_error: why the last reload was refused; None if it was taken.
        listening: calls are accepted.
        draining: it is on its way out.
        addresses: where the planes listen, by plane.
    """

    def __init__(
        self, options: Options, config: Config, manager: ServiceManager | None = None
    ) -> None:
        self.manager = manager or ServiceManager({}, os.getpid())
        self._options = options
        self.config = config
        self.tally = Tally()
        self.failures = Failures()
        self.figures = Figures((*config.providers, *config.dependencies))
        self.log = logs.LogListener()
        self.observer = Observer(self.tally, self.figures, self.failures, self.log)
        self.exports = Export(self, os.environ)
        self.registry = Registry(self._transition, on_fault=self._breaker_fault)
        self.plane = DataPlane(config, self.registry, self.observer, self.exports.tracing)
        self.pacing: PacingSource = GatePacing(self.registry, self.plane.watch.network)
        self.dependencies = Dependencies(
            config.dependencies,
            self.registry,
            self.observer,
            self.plane.watch.network,
            self.plane.faults,
        )
        self.keeper = Keeper(config.state_file, self.registry, self._state_fault)
        self.admin = AdminPlane(self)
        self.probe = ProbePlane(self)
        self.started_at = clock.wall()
        self.generation = 1
        self.config_error: str | None = None
        self.listening = False
        self.draining = False
        self.addresses: dict[str, tuple[str, ...]] = {}
        self._reloading = asyncio.Lock()
        self._files = Watch(plain=options.watch)
        self._files.note(watchable(config))
        self._watcher: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._at_once = asyncio.Event()
        self._ticker: asyncio.Task[None] | None = None
        self._pinger: asyncio.Task[None] | None = None

    # -- what the admin plane sees ----------------------------------------------------------

    @property
    def faults(self) -> Faults:
        """What is done to calls on purpose."""
        return self.plane.faults

    def in_flight(self, provider: str) -> int:
        """Calls of a provider that have begun and not ended."""
        return self.plane.in_flight(provider)

    async def settled(self) -> None:
        """Returns when what must survive a restart is kept, or cannot be."""
        await self.keeper.settled()

    @property
    def network_down(self) -> bool:
        """Has this machine no way out?"""
        return self.plane.watch.network.down

    def telemetry_failures(self) -> int:
        """How often a part of the telemetry failed."""
        return self.observer.failures

    def log_losses(self) -> tuple[int, int]:
        """Lines of the log that were dropped, and that were summed up."""
        return logs.dropped(), self.log.suppressed

    async def reload(self) -> ReloadResult:
        """Reads the configuration again and takes it if it is good; never half of it."""
        async with self._reloading:
            if not self.draining:
                self.manager.reloading()
            try:
                config = await asyncio.to_thread(self._load)
                result = self._take(config)
            except ConfigError as error:
                self.config_error = "; ".join(str(problem) for problem in error.problems)
                result = ReloadResult(
                    generation=self.generation,
                    hash=self.config.hash,
                    problems=tuple(error.problems),
                )
            if not self.draining:
                self.manager.ready(self._status_line())
        self.observer.emit(
            ConfigReloaded(
                at=clock.wall(),
                generation=result.generation,
                hash=result.hash,
                added=result.added,
                removed=result.removed,
                changed=result.changed,
                restart_needed=result.restart_needed,
                warnings=result.warnings,
                problems=tuple(str(problem) for problem in result.problems),
            )
        )
        return result

    def _load(self) -> Config:
        self._files.note(watchable(self.config))
        config = load(
            self._options.config,
            environ=os.environ,
            unknown_keys=self._options.unknown_keys,
            overrides=self._options.overrides,
        )
        self._files.note_new(watchable(config))
        return config

    async def _watch(self) -> None:
        """Reloads when a file was exchanged and stands still; not while draining."""
        while not self.draining:
            await asyncio.sleep(EVERY)
            # A file system may hang; calls go on meanwhile.
            changes = await asyncio.to_thread(self._files.changes)
            if not changes:
                continue
            await asyncio.sleep(SETTLE)
            if changes == await asyncio.to_thread(self._files.changes) and not self.draining:
                await self.reload()

    def _take(self, config: Config) -> ReloadResult:
        old = self.config
        known = {**old.providers, **old.dependencies}
        new = {**config.providers, **config.dependencies}
        self.plane.reconfigure(config)
        self.dependencies.configure(config.dependencies, clock.monotonic())
        self.figures.configure((*config.providers, *config.dependencies))
        self.config = config
        self.config_error = None
        if config.log.level != old.log.level:
            logs.set_level(config.log.level)
        if config.hash != old.hash:
            self.generation += 1
        return ReloadResult(
            generation=self.generation,
            hash=config.hash,
            added=tuple(name for name in new if name not in known),
            removed=tuple(name for name in known if name not in new),
            changed=tuple(name for name, one in new.items() if known.get(name, one) != one),
            restart_needed=restart_needed(old, config),
            warnings=config.warnings,
        )

    # -- facts ------------------------------------------------------------------------------

    def _transition(self, transition: Transition) -> None:
        self.observer.emit(transition)
        self.keeper.soon()

    def _state_fault(self, error: Exception) -> None:
        self.observer.emit(Fault(at=clock.wall(), where="state", error=error))

    def _breaker_fault(self, error: Exception) -> None:
        self.observer.emit(Fault(at=clock.wall(), where="breaker", error=error))

    def _loop_fault(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if not isinstance(error, BaseException):
            error = RuntimeError(str(context.get("message")))
        self.observer.emit(Fault(at=clock.wall(), where="loop", error=error))

    # -- phases -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Listens on every address.

        Raises:
            CannotListen: one of them cannot be listened on; nothing listens then.
        """
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._loop_fault)
        await self.keeper.restore()
        limit_key.use_secret(self.keeper.secret)
        try:
            names: list[str] = []
            for address in self.manager.listens("listen", self.config.listen):
                try:
                    names += await self.plane.listen(address)
                except OSError as error:
                    raise CannotListen(f"cannot listen on {address}: {_reason(error)}") from error
            self.addresses["listen"] = tuple(names)
            for plane, where, configured in (
                (self.admin, "admin", self.config.admin.listen),
                (self.probe, "probe", self.config.probe_listen),
            ):
                addresses = self.manager.listens(where, configured)
                self._check_exposure(where, addresses)
                try:
                    self.addresses[where] = await plane.start(addresses)
                except OSError as error:
                    listed = ", ".join(str(address) for address in addresses)
                    raise CannotListen(
                        f"cannot listen on {listed} ({where}): {_reason(error)}"
                    ) from error
        except CannotListen:
            await self.close()
            raise
        self.listening = True
        self.exports.start(self.observer)
        self._ticker = loop.create_task(self._tick())
        logs.event(
            "daemon.listening",
            version=__version__,
            compiled=compiled(),
            config=self.config.path,
            hash=self.config.hash,
            providers=sorted(self.config.providers),
            dependencies=sorted(self.config.dependencies),
            addresses=self.addresses,
        )
        for warning in self.config.warnings:
            logs.event("config.warning", level=logging.WARNING, warning=warning)
        for name in self.manager.unknown:
            logs.event("manager.socket_unused", level=logging.WARNING, descriptor_name=name)
        self.manager.ready(self._status_line())
        self._pinger = loop.create_task(self.manager.keep_pinging())
        self._watcher = loop.create_task(self._watch())

    def _check_exposure(self, where: str, addresses: tuple[Listen, ...]) -> None:
        """The rule of the configuration, for sockets that it did not choose."""
        if where != "admin" or self.config.admin.token_file is not None:
            return
        for address in addresses:
            if not address.loopback:
                raise CannotListen(
                    f"the socket at {address} that was handed over for admin can be reached from"
                    " other machines: set admin.token_file, or let it listen on localhost"
                )

    def _status_line(self) -> str:
        """What `systemctl status` shows: one line for a person in a hurry."""
        now = clock.monotonic()
        if self.draining:
            return f"draining, {_count(self.plane.active, 'call')} under way"
        names = sorted(self.config.providers)
        bad = []
        for name in names:
            verdict = self.registry.provider_verdict(name, now)
            if verdict is not UpstreamVerdict.UP:
                bad.append(f"{name} {verdict.value}")
        told = ", ".join(bad) if bad else "all up"
        running = _count(self.plane.active, "call")
        line = f"{_count(len(names), 'provider')}, {told}; {running} under way"
        if self.network_down:
            line += "; network down"
        if self.config_error is not None:
            line += f"; the last reload was refused: {self.config_error}"
        return line[:500]

    async def _tick(self) -> None:
        before = clock.wall() - clock.monotonic()
        told = 0.0
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + TICK
            await asyncio.sleep(TICK)
            self.figures.loop_delay.add(max(loop.time() - due, 0.0))
            now = clock.monotonic()
            self.registry.tick(now)
            if now - told >= STATUS_EVERY and self.manager.address is not None:
                told = now
                self.manager.status(self._status_line())
            self.dependencies.tick(now)
            self.keeper.look()
            self.failures.settle()
            offset = clock.wall() - now
            if offset - before > SUSPENDED:
                # The machine slept: sockets that look alive have lost their other side.
                self.plane.drop_idle()
                logs.event("daemon.resumed", slept=round(offset - before, 1))
            before = offset

    async def run(self) -> None:
        """Serves until it is told to stop, then drains."""
        await self._stop.wait()
        await self._drain()

    def stop(self) -> None:
        """Begins to drain; told twice, stops at once."""
        if self._stop.is_set():
            self._at_once.set()
        self._stop.set()

    async def _drain(self) -> None:
        """Says so, lets callers notice, takes no new calls, lets running ones end."""
        self.draining = True
        drain = self.config.drain
        self.manager.stopping(self._status_line(), drain.delay + drain.timeout + CLOSING)
        logs.event("daemon.draining", in_flight=self.plane.active, timeout=drain.timeout)
        await self._unless_at_once(asyncio.sleep(drain.delay))
        self.plane.stop_listening()
        if not await self._unless_at_once(self.plane.drain(drain.timeout)):
            logs.event("daemon.cutting", level=logging.WARNING, in_flight=self.plane.active)

    async def _unless_at_once(self, waiting: Coroutine[Any, Any, Result]) -> Result | None:
        """The result of what is waited for; None if a second signal came first."""
        task = asyncio.ensure_future(waiting)
        at_once = asyncio.ensure_future(self._at_once.wait())
        await asyncio.wait({task, at_once}, return_when=asyncio.FIRST_COMPLETED)
        result = task.result() if task.done() else None
        for left in (task, at_once):
            left.cancel()
            with suppress(asyncio.CancelledError):
                await left
        return result

    async def close(self) -> None:
        """Frees everything."""
        for task in (self._ticker, self._pinger, self._watcher):
            if task is not None:
                task.cancel()
        self.plane.stop_listening()
        await self.plane.stop()
        if self.listening:
            await self.keeper.close()
        await self.admin.stop()
        await self.probe.stop()
        self.log.flush()
        self.manager.close()
        if self.listening:
            totals = self.tally.totals
            logs.event(
                "daemon.stopped",
                requests=totals.requests,
                forwarded=totals.forwarded,
                answered_here=totals.answered_here,
            )
        await self.exports.close()


def serve(options: Options) -> int:
    """Runs a daemon in the foreground until it is told to stop.

    Returns:
        The exit code, 0.

    Raises:
        ConfigError: the configuration is bad; nothing was started.
        CannotListen: an address is taken or does not exist.
    """
    config = load(
        options.config,
        environ=os.environ,
        unknown_keys=options.unknown_keys,
        overrides=options.overrides,
    )
    handler = logs.setup(config.log.level, config.log.format)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(options, config))
    finally:
        handler.flush()
        _forget_unwritten()


def _forget_unwritten() -> None:
    """Lines that a full disk did not take must not turn the end into a failure."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


async def _serve(options: Options, config: Config) -> int:
    daemon = Daemon(options, config, ServiceManager(os.environ, os.getpid()))
    loop = asyncio.get_running_loop()
    reloads: set[asyncio.Task[ReloadResult]] = set()

    def reload() -> None:
        task = loop.create_task(daemon.reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    for number, act in zip(SIGNALS, (daemon.stop, daemon.stop, reload), strict=True):
        loop.add_signal_handler(number, act)
    # Held back since the command began, so that an edit during the start is not lost.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    await daemon.start()
    # What exists now lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    try:
        await daemon.run()
    finally:
        await daemon.close()
        _nothing_more(loop)
    return 0


def _nothing_more(loop: asyncio.AbstractEventLoop) -> None:
    """What is left is the interpreter's own end, which nothing may turn into a failure.

    A loop that closes gives signals their defaults back, and a further SIGTERM would end the
    process as if it had failed; a thread that hangs (a resolver, a mount) would be waited for
    without end.
    """
    # Of a signal that came just before it is ignored Python complains, with a traceback.
    sys.unraisablehook = lambda _: None
    for number in SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    overdue = threading.Timer(EXITING, os._exit, (0,))
    overdue.daemon = True
    overdue.start()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where the platform has it."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return None
    return cast("Callable[[], asyncio.AbstractEventLoop]", uvloop.new_event_loop)


def restart_needed(old: Config, new: Config) -> tuple[str, ...]:
    """The keys that changed but count only after a restart."""
    pairs = {
        "listen": (old.listen, new.listen),
        "admin.listen": (old.admin.listen, new.admin.listen),
        "probe.listen": (old.probe_listen, new.probe_listen),
        "log.format": (old.log.format, new.log.format),
        "state_file": (old.state_file, new.state_file),
    }
    return tuple(key for key, (before, after) in pairs.items() if before != after)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
