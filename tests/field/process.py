"""A daemon as a process of its own: what it costs can be measured, and it can be stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from tests.conftest import need

from .scene import until

ROOT = Path(__file__).resolve().parents[2]
START = [sys.executable, "-P", "-W", "error", "-m", "sidecar"]
MIB = 2**20


def environment(**more: str) -> dict[str, str]:
    """Nothing of the machine's own, so that its proxies and files have no say."""
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **more}


class Process:
    """A daemon process on free ports.

    Args:
        folder: for its files.
        providers: the section of that name.
        environ: further variables.
        top: further sections.
    """

    def __init__(
        self,
        folder: Path,
        providers: dict[str, Any],
        *,
        command: list[str] | None = None,
        options: Sequence[str] = (),
        environ: Mapping[str, str] = MappingProxyType({}),
        **top: Any,
    ) -> None:
        folder.mkdir()
        self.config = folder / "breakers.yaml"
        self._folder = folder
        document = {
            "listen": "127.0.0.1:0",
            "admin": {"listen": "127.0.0.1:0"},
            "providers": providers,
            **top,
        }
        self.config.write_text(yaml.safe_dump(document))
        serve = ["serve", "--config", str(self.config), "--log-format", "json", *options]
        self._command = [*(command or START), *serve]
        self._environ = environment(**environ)
        self._spawned = 0
        self.spawn()

    def spawn(self) -> None:
        """Starts it, or starts it again once it has ended; each time it has a log of its own."""
        self.log = self._folder / f"log-{self._spawned}"
        self._spawned += 1
        self.addresses: dict[str, list[str]] = {}
        with self.log.open("wb") as stream:
            self.popen = subprocess.Popen(
                self._command,
                env=self._environ,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )

    def kill(self) -> None:
        """SIGKILL: nothing of the daemon's own runs any more."""
        self.popen.kill()
        self.popen.wait()

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """The lines of its log so far; what is no JSON stands under `text`."""
        found = []
        for line in self.log.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({"event": "", "text": line})
        return [line for line in found if event is None or line["event"] == event]

    async def listening(self) -> None:
        await until(lambda: self.lines("daemon.listening") or self.popen.poll() is not None)
        assert self.popen.poll() is None, self.log.read_text()
        self.addresses = self.lines("daemon.listening")[0]["addresses"]

    @property
    def port(self) -> int:
        return int(self.addresses["listen"][0].rpartition(":")[2])

    @property
    def admin_port(self) -> int:
        return int(self.addresses["admin"][0].rpartition(":")[2])

    # -- what it costs ----------------------------------------------------------------------

    def settled(self) -> int:
        """Its resident memory in bytes now; from here on the peak counts."""
        self._proc("clear_refs").write_text("5")
        return self._status("VmRSS")

    @property
    def peak(self) -> int:
        """The most resident memory since `settled`, bytes."""
        return self._status("VmHWM")

    @property
    def descriptors(self) -> int:
        return sum(1 for _ in self._proc("fd").iterdir())

    def _status(self, name: str) -> int:
        for line in self._proc("status").read_text().splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return int(value.split()[0]) * 1024
        need(f"memory is measured by {name} in /proc, which is not there")
        return None

    def _proc(self, name: str) -> Path:
        path = Path(f"/proc/{self.popen.pid}/{name}")
        if not path.exists():
            need(f"{path.name} of a process is read in /proc, which is not there")
        return path

    # -- its end ----------------------------------------------------------------------------

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    async def exit_code(self, limit: float = 20.0) -> int:
        await until(lambda: self.popen.poll() is not None, limit)
        assert self.popen.returncode is not None
        return self.popen.returncode

    async def end(self) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            self.popen.send_signal(signal.SIGTERM)
            with suppress(TimeoutError):
                await self.exit_code(5)
        self.popen.kill()
        await asyncio.to_thread(self.popen.wait)
