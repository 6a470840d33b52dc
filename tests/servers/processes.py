"""Real servers as child processes: found, started in a folder of their own, and always ended."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

DEADLINE = 30.0
"""Seconds until a server must have done what it was asked; a loaded machine is slow."""


def found(*patterns: str) -> str | None:
    """The path of a program: by name on the path, or by a pattern; the newest of several."""
    for pattern in patterns:
        path = shutil.which(pattern)
        if path is not None:
            return path
        paths = sorted(Path("/").glob(pattern.removeprefix("/")))
        if paths:
            return str(paths[-1])
    return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(done: Callable[[], object], what: str, deadline: float = DEADLINE) -> None:
    """Polls until something is so.

    Raises:
        TimeoutError: it was not so in time.
    """
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        if done():
            return
        time.sleep(0.02)
    raise TimeoutError(f"{what}: not within {deadline} s")


def accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class Account:
    """Whom servers run as: they refuse to run as root."""

    def __init__(self, name: str) -> None:
        self.name = None
        if os.geteuid() == 0:
            with suppress(KeyError):
                pwd.getpwnam(name)
                self.name = name

    def folder(self) -> Path:
        """A new folder that this account, and nobody else, may write."""
        path = Path(tempfile.mkdtemp(prefix="sidecar-"))
        self.give(path)
        return path

    def give(self, path: Path) -> None:
        if self.name is not None:
            subprocess.run(["chown", "-R", self.name, str(path)], check=True)

    def run(self, *command: str) -> None:
        subprocess.run(
            command,
            check=True,
            user=self.name,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": "/nonexistent"},
        )


class Server:
    """One server: a process, its port and its folder."""

    def __init__(self, account: Account, folder: Path, port: int | None = None) -> None:
        self.account = account
        self.folder = folder
        self.port = port or free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *command: str, ready: Callable[[], object] | None = None) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                user=self.account.name,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": "/nonexistent"},
                start_new_session=True,
            )
        try:
            wait_until(
                lambda: self.ended or (ready() if ready else accepts(self.port)), "the start"
            )
            if self.ended:
                raise RuntimeError((self.folder / "log").read_text(errors="replace")[-4000:])
        except BaseException:
            self.stop()
            raise

    @property
    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> None:
        """Ends the process and all it started, and removes the folder."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
