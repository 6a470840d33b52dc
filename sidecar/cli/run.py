"""`run -- CMD`: a program with a daemon of its own, from before its first call to after its last.

The daemon listens before the program starts, is started again on the same ports if it dies, and
drains once the program has ended. The program keeps the terminal, its three streams and its exit
code; all that it notices are a few variables.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
from collections.abc import Container
from typing import Any

from sidecar import clock
from sidecar.cli import arguments as shared
from sidecar.cli.admin_client import Address, parse_address
from sidecar.cli.children import Child, DaemonChild, free_ports, is_ready, is_taken, start_program
from sidecar.cli.errors import CommandError, Exit, say
from sidecar.cli.settings import load, overrides_of
from sidecar.cli.signals import Signals, collect
from sidecar.cli.variables import Plan, adopt, without_proxy
from sidecar.config.addresses import AddressError, Listen, parse_listen

_START_LIMIT = 15.0  # seconds until a daemon that does not listen is given up
_POLL = 0.01
_DRAIN_MARGIN = 5.0  # seconds beyond what the configuration grants
_ATTEMPTS = 3  # with other ports each, where one was taken between choosing and binding
_LONGEST_PAUSE = 30.0  # seconds between two starts of a daemon that keeps dying
_STEADY = 60.0  # seconds after which a daemon's next end counts as its first
_OWN = ("BREAKER_SIDECAR_LISTEN", "BREAKER_SIDECAR_ADMIN", "BREAKER_SIDECAR_PROBE")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.usage = "breaker-sidecar run [options] -- CMD [ARGUMENT ...]"
    shared.add_config(parser)
    shared.add_daemon(parser)
    parser.set_defaults(log_level="warning")
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="-- CMD",
        help="the program and its arguments; everything behind -- belongs to it",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Runs the program; returns its exit code, or 128 plus the signal that ended it."""
    program = arguments.program
    if program and program[0] == "--":
        program = program[1:]
    if not program:
        raise CommandError("there is no command to run: breaker-sidecar run -- CMD", Exit.USAGE)
    with collect() as signals:
        for _ in range(_ATTEMPTS):
            run = _Run(arguments, signals)
            code = run.start()
            if code != Exit.CANNOT_LISTEN or not run.chose_ports:
                break
        return run.run(program) if code is None else code


class _Run:
    def __init__(self, arguments: argparse.Namespace, signals: Signals) -> None:
        self._signals = signals
        self._started = 0.0
        self._pause = 0.0
        self.chose_ports = arguments.listen is None or arguments.admin is None
        free = [f"127.0.0.1:{port}" for port in free_ports(3)]
        listen = _tcp(arguments.listen or free[0], "--listen")
        self.base = f"http://{_reachable(listen)}"
        self.admin = parse_address(arguments.admin or free[1])
        if arguments.listen and is_taken(parse_address(str(listen))):
            raise CommandError(f"cannot listen on {arguments.listen}: taken", Exit.CANNOT_LISTEN)
        if arguments.admin and is_taken(self.admin):
            raise CommandError(f"cannot listen on {arguments.admin}: taken", Exit.CANNOT_LISTEN)
        environ = {name: value for name, value in os.environ.items() if name not in _OWN}
        given = argparse.Namespace(**{**vars(arguments), "listen": str(listen)})
        given.admin = arguments.admin or free[1]
        loaded = load(given, environ, overrides_of(given, {}))
        self.plan: Plan = adopt(loaded.variables, loaded.enabled, self.base, os.environ)
        handover: dict[str, Any] = {"upstreams": self.plan.upstreams}
        if loaded.config.probe_listen:
            # A daemon of the same file may run on this machine and have that port.
            handover["probe"] = free[2]
        # That a shipped provider is not used here is no news at each run.
        left_out = tuple(f": providers.{name}." for name in loaded.config.disabled)
        self._warnings = [
            warning
            for warning in loaded.config.warnings
            if not any(part in warning for part in left_out)
        ]
        drain = loaded.config.drain
        self._drain_limit = drain.delay + drain.timeout + _DRAIN_MARGIN
        self._daemon = DaemonChild(_options(given), environ, handover)

    def start(self) -> int | None:
        """Starts the daemon and waits until it listens; a code if that came to nothing."""
        self._start_daemon()
        limit = self._started + _START_LIMIT
        while not is_ready(self.admin):
            code = self._daemon.poll()
            if code is not None:
                self._daemon.close()
                return _exit_code(code)
            received = self._signals.wait(_POLL)
            if received is not None and received.number != signal.SIGCHLD:
                self._stop()
                return 128 + received.number
            if clock.monotonic() > limit:
                self._stop()
                raise CommandError(f"the daemon did not listen within {_START_LIMIT:g} s")
        return None

    def run(self, program: list[str]) -> int:
        """Runs the program beside the daemon, to its end."""
        for notice in (*self._warnings, *self.plan.notices):
            say(notice)
        environ = {
            **os.environ,
            **self.plan.variables,
            **without_proxy(os.environ),
            "BREAKER_SIDECAR_ADMIN": self.admin.url,
        }
        try:
            child = start_program(program, environ, tuple(self._signals.mask))
        except OSError as error:
            self._stop()
            missing = isinstance(error, FileNotFoundError)
            code = Exit.NOT_FOUND if missing else Exit.NOT_EXECUTABLE
            raise CommandError(f"{program[0]}: {error.strerror}", code) from None
        self._accompany(child)
        self._stop()
        assert child.code is not None
        return _exit_code(child.code)

    def _accompany(self, child: Child) -> None:
        due: float | None = None
        while child.poll() is None:
            now = clock.monotonic()
            if due is not None and now >= due:
                self._start_daemon()
                due = None
            received = self._signals.wait(None if due is None else max(0.0, due - now))
            if received is None:
                continue
            if received.number != signal.SIGCHLD:
                if not received.from_terminal:
                    child.send(received.number)
            elif due is None and self._daemon.poll() is not None and child.poll() is None:
                due = self._restart_at()
            _reap_strangers({child.pid, self._daemon.pid})

    def _start_daemon(self) -> None:
        self._daemon.start()
        self._started = clock.monotonic()

    def _restart_at(self) -> float:
        """When the daemon that has just ended is started again."""
        now = clock.monotonic()
        if now - self._started > _STEADY:
            self._pause = 0.0
        say(f"the daemon ended ({_ending(self._daemon.poll())}) and is started again")
        due = now + self._pause
        self._pause = min(_LONGEST_PAUSE, max(0.1, self._pause * 2))
        return due

    def _stop(self) -> None:
        """Drains the daemon; one more signal ends it at once."""
        self._daemon.drain()
        limit = clock.monotonic() + self._drain_limit
        while self._daemon.poll() is None:
            received = self._signals.wait(max(0.0, limit - clock.monotonic()))
            if received is None:
                self._daemon.kill()
                limit += _START_LIMIT
            elif received.number in (signal.SIGINT, signal.SIGTERM):
                self._daemon.drain()
        self._daemon.close()


def _tcp(text: str, option: str) -> Listen:
    try:
        listen = parse_listen(text)
    except AddressError as error:
        raise CommandError(f"{option}: {error}; {error.hint}", Exit.USAGE) from None
    if listen.kind != "tcp" or not listen.port:
        raise CommandError(
            f"{option}: a program's variables need a host and a port, not {text}", Exit.USAGE
        )
    return listen


def _reachable(listen: Listen) -> Address:
    """Where the program finds what listens: an address, since `localhost` may mean either."""
    address = parse_address(str(listen))
    return Address("127.0.0.1", listen.port) if address.host == "localhost" else address


def _options(given: argparse.Namespace) -> list[str]:
    options = ["--unknown-keys", given.unknown_keys, "--log-level", given.log_level]
    options += ["--listen", given.listen, "--admin", given.admin]
    if given.config is not None:
        options += ["--config", str(given.config)]
    if given.log_format is not None:
        options += ["--log-format", given.log_format]
    if given.observe:
        options.append("--observe")
    return options


def _exit_code(code: int) -> int:
    return code if code >= 0 else 128 - code


def _ending(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    return f"signal {-code}"


def _reap_strangers(own: Container[int]) -> None:
    """As process 1 of a container, ends what the program's own children left behind."""
    if os.getpid() != 1:
        return
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in own:
                return  # it ended just now; its signal is still to come
            os.waitpid(ended.si_pid, os.WNOHANG)
