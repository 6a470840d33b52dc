"""Real commands as real processes, in an environment that holds nothing of the machine's own."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
START = [sys.executable, "-P", "-W", "error", "-m", "sidecar"]

CONFIG = """\
providers:
  openai:
    upstream: http://127.0.0.1:9
    dialect: openai
    env: {OPENAI_BASE_URL: /v1, OPENAI_API_BASE: /v1}
  anthropic: {upstream: "http://127.0.0.1:9", dialect: anthropic, env: {ANTHROPIC_BASE_URL: ""}}
  private: {upstream: "https://${PRIVATE_HOST}", dialect: generic, env: {PRIVATE_URL: ""}}
"""


class Commands:
    """Starts commands and ends what is left of them."""

    def __init__(self, folder: Path, config: Path) -> None:
        self.folder = folder
        self.environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "BREAKER_SIDECAR_CONFIG": str(config),
        }
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*START, *arguments],
            env=self.environ | environ,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def run(
        self, *arguments: str, stdin: str | None = None, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*START, *arguments],
            check=False,
            env=self.environ | environ,
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def serve(self, *arguments: str) -> tuple[subprocess.Popen[str], int, int]:
        """A daemon that is listening, with its two ports."""
        data, admin = free_port(), free_port()
        process = self.start(
            "serve", "--listen", f"127.0.0.1:{data}", "--admin", f"127.0.0.1:{admin}", *arguments
        )
        wait_for(lambda: ready(admin) or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        return process, data, admin

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=10)
            process.kill()
            process.communicate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def ready(port: int) -> bool:
    try:
        return get(port, "/readyz") == 200
    except OSError:
        return False


def wait_for(condition: Callable[[], object], limit: float = 20.0) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """A suite that a shell runs in the background inherits an ignored SIGINT; so would children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "breakers.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def commands(tmp_path: Path, config: Path) -> Iterator[Commands]:
    commands = Commands(tmp_path, config)
    yield commands
    commands.end()
