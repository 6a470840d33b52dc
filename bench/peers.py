"""The proxies that are compared, each as a process of its own, pinned to one core.

Every one of them serves `/static/…` from one upstream and `/live/…` from another, the prefix taken
off, with connections kept on both sides and no access log. One that is not installed is left out,
and the report says so.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from bench import configurations, machine
from bench.upstream import COMPLETION, MODELS
from sidecar.compiled import compiled

ROOT = Path(__file__).resolve().parent.parent

COMPILED, INTERPRETED = "compiled", "interpreted"


class NotInstalled(Exception):
    """The program of a peer is not on this machine."""


class DidNotStart(Exception):
    """A process ended, or listens on nothing, seconds after its start."""


@dataclass
class Peer:
    """One way from the load generator to the upstreams.

    Attributes:
        name: as the report shows it.
        static: base URL of the small answers.
        live: base URL of streams, bodies and failures.
        version: what the program calls itself.
        process: None for the direct way.
        admin: the daemon's admin port, 0 for others.
    """

    name: str
    static: str
    live: str
    version: str = ""
    process: subprocess.Popen[bytes] | None = None
    admin: int = 0
    pids: list[int] = field(default_factory=list)


class Lab:
    """Starts processes, remembers them, and ends them all however the run goes.

    Args:
        folder: for configurations and logs; removed by whoever made it.
        cores: where the proxy and the load run.
    """

    def __init__(self, folder: Path, cores: machine.Cores) -> None:
        self.folder = folder
        self.cores = cores
        self.missing: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self._running: list[subprocess.Popen[bytes]] = []
        self.static_port, self.live_port = 0, 0

    def start(
        self,
        name: str,
        command: list[str],
        ports: list[int],
        *,
        core: int,
        environment: dict[str, str] | None = None,
        seconds: float = 15,
    ) -> subprocess.Popen[bytes]:
        """Runs a command until it listens, for so many seconds at most.

        Raises:
            DidNotStart: with the last lines it wrote.
        """
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**clean_environment(), **(environment or {})},
                preexec_fn=lambda: os.sched_setaffinity(0, {core}),  # noqa: PLW1509
            )
        self._running.append(process)
        deadline = time.monotonic() + seconds
        waiting = list(ports)
        while waiting:
            waiting = [port for port in waiting if not listens(port)]
            if waiting and (process.poll() is not None or time.monotonic() > deadline):
                words = log.read_text(errors="replace").strip().splitlines()[-5:]
                raise DidNotStart(f"{name} did not start: " + " | ".join(words))
            if waiting:
                time.sleep(0.005)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Ends one process."""
        if process in self._running:
            self._running.remove(process)
        _end([process])

    def close(self) -> None:
        """Ends all of them."""
        _end(self._running)
        self._running.clear()

    # -- upstreams --------------------------------------------------------------------------

    def start_upstreams(self) -> None:
        """The live one is ours; the static one is nginx, where it is installed, else the same."""
        self.live_port, port = machine.free_ports(2)
        command = [sys.executable, "-m", "bench.upstream", str(self.live_port)]
        self.start("upstream", command, [self.live_port], core=self.cores.load)
        self.static_port = self.live_port
        self.versions["upstream"] = "bench.upstream"
        program = which("nginx")
        if program is None:
            return
        config = self.write(
            "static.conf", configurations.NGINX_STATIC, port=port, folder=self.folder
        )
        try:
            self.start("static", nginx(program, config), [port], core=self.cores.load)
        except DidNotStart as error:
            self.missing["nginx as upstream"] = str(error)
            return
        self.static_port = port
        version = version_of([program, "-v"])
        self.versions["upstream"] = f"nginx {version}, bench.upstream for streams"

    # -- peers ------------------------------------------------------------------------------

    def start_peers(self, wanted: list[str]) -> list[Peer]:
        """Those of `wanted` that can be had, in that order."""
        peers = []
        for name in wanted:
            try:
                peer = STARTERS[name](self)
            except (NotInstalled, DidNotStart) as error:
                self.missing[name] = str(error)
                continue
            if peer.process is not None:
                peer.pids = machine.family(peer.process.pid)
            self.versions[name] = peer.version
            peers.append(peer)
        return peers

    def direct(self) -> Peer:
        return Peer(
            "direct",
            f"http://127.0.0.1:{self.static_port}",
            f"http://127.0.0.1:{self.live_port}",
            version="no proxy",
        )

    def daemon(self, name: str = "sidecar") -> Peer:
        """The real command, on shipped defaults: its file says where, and nothing else."""
        port, admin = machine.free_ports(2)
        config = self.write(
            f"{name}.yaml",
            configurations.DAEMON,
            port=port,
            admin=admin,
            static=self.static_port,
            live=self.live_port,
        )
        command = [sys.executable, "-m", "sidecar", "serve", "--config", str(config)]
        process = self.start(name, command, [port, admin], core=self.cores.proxy)
        return self._peer(name, port, own_version(), process, admin)

    def forwarder(self) -> Peer:
        import aiohttp  # noqa: PLC0415 - only its version; the forwarder is another process

        (port,) = machine.free_ports(1)
        command = [
            sys.executable,
            "-m",
            "bench.plain_forwarder",
            str(port),
            f"static=http://127.0.0.1:{self.static_port}",
            f"live=http://127.0.0.1:{self.live_port}",
        ]
        process = self.start("forwarder", command, [port], core=self.cores.proxy)
        return self._peer("forwarder", port, f"aiohttp {aiohttp.__version__}", process)

    def nginx(self) -> Peer:
        program = _program("nginx")
        (port,) = machine.free_ports(1)
        config = self.write("nginx.conf", configurations.NGINX, port=port, **self._places())
        process = self.start("nginx", nginx(program, config), [port], core=self.cores.proxy)
        return self._peer("nginx", port, f"nginx {version_of([program, '-v'])}", process)

    def envoy(self) -> Peer:
        program = _program("envoy")
        (port,) = machine.free_ports(1)
        config = self.write(
            "envoy.yaml",
            configurations.ENVOY,
            port=port,
            manager=configurations.ENVOY_MANAGER,
            **self._places(),
        )
        command = [program, "-c", str(config), "--concurrency", "1", "--disable-hot-restart"]
        command += ["--log-level", "error"]
        process = self.start("envoy", command, [port], core=self.cores.proxy)
        return self._peer("envoy", port, f"envoy {version_of([program, '--version'])}", process)

    def caddy(self) -> Peer:
        program = _program("caddy")
        (port,) = machine.free_ports(1)
        config = self.write("Caddyfile", configurations.CADDY, port=port, **self._places())
        command = [program, "run", "--adapter", "caddyfile", "--config", str(config)]
        places = {"HOME": str(self.folder), "XDG_DATA_HOME": str(self.folder)}
        process = self.start(
            "caddy",
            command,
            [port],
            core=self.cores.proxy,
            environment={"GOMAXPROCS": "1", **places},
        )
        return self._peer("caddy", port, f"caddy {version_of([program, 'version'])}", process)

    def _places(self) -> dict[str, object]:
        return {"folder": self.folder, "static": self.static_port, "live": self.live_port}

    def _peer(
        self,
        name: str,
        port: int,
        version: str,
        process: subprocess.Popen[bytes],
        admin: int = 0,
    ) -> Peer:
        base = f"http://127.0.0.1:{port}"
        return Peer(name, f"{base}/static", f"{base}/live", version, process, admin)

    def write(self, name: str, template: str, **values: object) -> Path:
        path = self.folder / name
        path.write_text(
            Template(template).substitute(
                values, completion=COMPLETION.decode(), models=MODELS.decode()
            )
        )
        return path


STARTERS: dict[str, Callable[[Lab], Peer]] = {
    "direct": Lab.direct,
    "sidecar": Lab.daemon,
    "forwarder": Lab.forwarder,
    "nginx": Lab.nginx,
    "envoy": Lab.envoy,
    "caddy": Lab.caddy,
}


def clean_environment() -> dict[str, str]:
    """This process's environment without what would change how a proxy works."""
    proxies = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}
    return {
        name: value
        for name, value in os.environ.items()
        if name.lower() not in proxies
        and not name.startswith(("BREAKER_SIDECAR_", "OTEL_"))
        and name != "PYTHONASYNCIODEBUG"
    }


def listens(port: int) -> bool:
    """Does somebody accept connections on this loopback port?"""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def nginx(program: str, config: Path) -> list[str]:
    """In the foreground, its folder and its log in ours."""
    return [program, "-p", str(config.parent), "-e", "stderr", "-c", str(config)]


def which(program: str) -> str | None:
    """Beside this Python first: some peers come from PyPI. Then where servers are kept."""
    places = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"]
    )
    return shutil.which(program, path=places)


def _program(name: str) -> str:
    found = which(name)
    if found is None:
        raise NotInstalled(f"{name} is not installed")
    return found


def own_version() -> str:
    """The daemon's, and what every call runs in this one."""
    build = COMPILED if compiled() else INTERPRETED
    return f"{version_of([sys.executable, '-m', 'sidecar', '--version'])}, {build}"


def version_of(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=False, cwd=ROOT
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    words = (done.stdout + done.stderr).strip().splitlines()
    text = next((line for line in words if any(c.isdigit() for c in line)), "unknown")
    # The longest dotted number is the version, wherever a program puts it.
    candidates = [
        part
        for word in text.split()
        for part in word.split("/")
        if part[:1].isdigit() or "." in part
    ]
    return max(
        (c.strip("v,()") for c in candidates if c.strip("v,()")[:1].isdigit()),
        key=lambda c: c.count("."),
        default=text[:40],
    )


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
