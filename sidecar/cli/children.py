"""Processes of `run` and `demo`: the program, and a daemon that belongs to it.

Spawned without a fork of this interpreter and without threads. The daemon gets a session of its
own, so that the terminal's signals pass it by: it has to outlast the program's last call.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sidecar
from sidecar.cli.admin_client import Address, AdminClient, UnreachableError

_ROOT = str(Path(sidecar.__file__).parents[1])
# The current folder must not decide what is imported (-P), yet the child has to find this very
# package, which need not be installed, and after all else what lies beside it (compiled parts do).
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import sidecar;"
    " sys.path.append(sys.path.pop(0));"
    " from sidecar.cli import main; sys.exit(main())"
)
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores these; a program expects the defaults


class Child:
    """A process that was started here.

    Attributes:
        pid: its id.
        code: None while it runs, then its exit code, or minus the signal that ended it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None

    def poll(self) -> int | None:
        """Its code, if it has ended by now."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def send(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self) -> int:
        """Its code, however long it takes."""
        if self.code is None:
            _, status = os.waitpid(self.pid, 0)
            self.code = os.waitstatus_to_exitcode(status)
        return self.code


def start_program(
    command: Sequence[str], environ: Mapping[str, str], mask: Sequence[int] = ()
) -> Child:
    """Starts a program with our standard streams, found on the PATH.

    Raises:
        OSError: if there is no such program, or it cannot be executed.
    """
    pid = os.posix_spawnp(
        command[0], list(command), dict(environ), setsigmask=mask, setsigdef=_RESET
    )
    return Child(pid)


class DaemonChild:
    """A daemon that is started, awaited, started again and drained.

    Attributes:
        child: the process; None before the first start.
    """

    def __init__(
        self, arguments: Sequence[str], environ: Mapping[str, str], handover: Mapping[str, Any]
    ) -> None:
        """Prepares one.

        Args:
            arguments: of `serve`, the admin address among them.
            environ: its environment.
            handover: what `serve --supervised` reads.
        """
        self._arguments = list(arguments)
        self._environ = dict(environ)
        self._handover = json.dumps(dict(handover)).encode() + b"\n"
        self._pipe: int | None = None
        self.child: Child | None = None

    def start(self) -> None:
        """Starts it, for the first time or again."""
        self.close()
        reader, self._pipe = os.pipe()
        try:
            os.set_inheritable(reader, True)  # noqa: FBT003 - the name of the call says it
            command = [sys.executable, "-P", "-c", _START, _ROOT, "serve", *self._arguments]
            command += ["--supervised", str(reader)]
            pid = os.posix_spawn(
                sys.executable,
                command,
                self._environ,
                # Its output goes where its log goes: the program's own must not be mixed with it.
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 2, 1),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=(*_RESET, signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
            )
        finally:
            os.close(reader)
        self.child = Child(pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, self._handover)

    @property
    def pid(self) -> int:
        """Its process id; 0 before the first start."""
        return self.child.pid if self.child else 0

    def poll(self) -> int | None:
        """Its exit code, if it has ended by now."""
        return self.child.poll() if self.child else None

    def drain(self) -> None:
        """Asks it to end; asked a second time, it ends at once."""
        if self.child:
            self.child.send(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it without asking."""
        if self.child:
            self.child.send(signal.SIGKILL)

    def close(self) -> None:
        """Lets go of its pipe; a daemon that still runs takes that as a request to end."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


def is_ready(admin: Address) -> bool:
    """Does a daemon at this address say that it is listening?"""
    try:
        return AdminClient(admin, timeout=1.0).get("/readyz")[0] == 200
    except UnreachableError:
        return False


def is_taken(address: Address) -> bool:
    """Does anything listen at this address already?"""
    family = socket.AF_UNIX if address.path else socket.AF_INET6
    if not address.path and ":" not in address.host:
        family = socket.AF_INET
    host = "127.0.0.1" if address.host == "localhost" else address.host
    with socket.socket(family, socket.SOCK_STREAM) as probe, contextlib.suppress(OSError):
        probe.settimeout(1.0)
        return probe.connect_ex(address.path or (host, address.port)) == 0
    return False  # a name that leads nowhere: binding will say so


def free_ports(count: int) -> list[int]:
    """Different ports of 127.0.0.1 on which nothing listens at this moment."""
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            probe = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
        return ports
