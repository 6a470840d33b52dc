"""Who takes part in the race, each with what it has against a failing upstream.

What can be set is set alike: five failures, ten seconds. Programs are looked for beside this
Python, in `BENCH_TOOLS` (folders, separated by colons) and on the path; one that is not there is
named in the report, with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench import machine, race_configurations
from bench.peers import (
    COMPILED,
    INTERPRETED,
    ROOT,
    DidNotStart,
    Lab,
    NotInstalled,
    nginx,
    own_version,
    version_of,
)
from sidecar.compiled import compiled

Header = tuple[str, str]


@dataclass
class Runner:
    """One peer at work.

    Attributes:
        name: as the report shows it.
        base: URL before `/v1/…` for small answers.
        live: the same for what the scripted upstream answers.
        headers: what a caller has to send beside its own.
        live_headers: likewise.
        version: what the program calls itself.
        pids: its processes; empty for the direct way.
        ready: milliseconds from the command to the first answer.
        idle: resident memory a second later, MiB.
        guard: what it has against a failing upstream, in words.
    """

    name: str
    base: str
    live: str
    guard: str
    version: str = ""
    headers: tuple[Header, ...] = ()
    live_headers: tuple[Header, ...] = ()
    pids: list[int] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    ready: float = 0.0
    idle: float = 0.0


def tool(name: str) -> str:
    """The path of a program.

    Raises:
        NotInstalled: it is nowhere to be found.
    """
    folders = [str(Path(sys.executable).parent), *os.environ.get("BENCH_TOOLS", "").split(":")]
    places = os.pathsep.join([*folders, os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which(name, path=places)
    if found is None:
        raise NotInstalled(f"{name} is not installed")
    return found


class Starter:
    """Starts the peers of the race in one lab.

    Args:
        lab: where they run.
        scripted: port of the scripted upstream.
    """

    def __init__(self, lab: Lab, scripted: int) -> None:
        self._lab = lab
        self._ports = {"static": lab.static_port, "live": scripted, "folder": lab.folder}

    def start(self, name: str) -> Runner:
        """Starts one and waits for its first answer.

        Raises:
            NotInstalled: its program is not there.
            DidNotStart: it did not listen in time.
        """
        if name not in STARTERS:
            raise NotInstalled(f"none of {', '.join(STARTERS)}")
        return STARTERS[name](self)

    def _begun(
        self,
        runner: Runner,
        command: list[str],
        port: int,
        environment: dict[str, str] | None = None,
    ) -> Runner:
        began = time.monotonic()
        runner.process = self._lab.start(
            f"race-{runner.name}",
            command,
            [port],
            core=self._lab.cores.proxy,
            environment=environment,
            seconds=120,
        )
        from bench.race_load import answers  # noqa: PLC0415 - it needs this file's types

        while not answers(runner):
            if time.monotonic() - began > 120 or runner.process.poll() is not None:
                log = (self._lab.folder / f"race-{runner.name}.log").read_text(errors="replace")
                raise DidNotStart(f"it gave no answer: {' | '.join(log.splitlines()[-3:])}"[:300])
            time.sleep(0.005)
        runner.ready = (time.monotonic() - began) * 1000
        time.sleep(1)
        runner.pids = machine.family(runner.process.pid)
        runner.idle = machine.resident(runner.pids)
        return runner

    def _file(self, name: str, template: str, port: int, **more: object) -> Path:
        return self._lab.write(name, template, port=port, **self._ports, **more)

    def direct(self) -> Runner:
        local = "http://127.0.0.1"
        return Runner(
            "direct", f"{local}:{self._ports['static']}", f"{local}:{self._ports['live']}", "none"
        )

    def _prefixed(self, name: str, port: int, guard: str, version: str) -> Runner:
        base = f"http://127.0.0.1:{port}"
        return Runner(name, f"{base}/static", f"{base}/live", guard, version)

    def sidecar(self) -> Runner:
        return self._daemon("sidecar", own_version())

    def interpreted(self) -> Runner:
        """The same from sources with nothing compiled beside them."""
        if not compiled():
            raise NotInstalled("it is `sidecar`: nothing is compiled here (make bench does)")
        folder = self._lab.folder / "interpreted"
        shutil.copytree(
            ROOT / "sidecar", folder / "sidecar", ignore=shutil.ignore_patterns("*.so", "*.pyc")
        )
        version = own_version().replace(COMPILED, INTERPRETED)
        return self._daemon("interpreted", version, {"PYTHONPATH": str(folder)})

    def _daemon(self, name: str, version: str, environment: dict[str, str] | None = None) -> Runner:
        port, admin = machine.free_ports(2)
        config = self._file(f"race-{name}.yaml", race_configurations.DAEMON, port, admin=admin)
        runner = self._prefixed(
            name,
            port,
            "a breaker a model, by the error's class; 5 in a row, 10 s",
            version,
        )
        safe = ["-P"] if environment else []
        command = [sys.executable, *safe, "-m", "sidecar", "serve", "--config", str(config)]
        return self._begun(runner, command, port, environment)

    def forwarder(self) -> Runner:
        import aiohttp  # noqa: PLC0415 - only its version

        (port,) = machine.free_ports(1)
        local = "http://127.0.0.1"
        command = [sys.executable, "-m", "bench.plain_forwarder", str(port)]
        command += [f"{name}={local}:{self._ports[name]}" for name in ("static", "live")]
        runner = self._prefixed("forwarder", port, "none", f"aiohttp {aiohttp.__version__}")
        return self._begun(runner, command, port)

    def nginx(self) -> Runner:
        program = tool("nginx")
        (port,) = machine.free_ports(1)
        config = self._file("race-nginx.conf", race_configurations.NGINX, port)
        runner = self._prefixed(
            "nginx",
            port,
            "max_fails=5 fail_timeout=10s (ignored for an upstream of one server)",
            version_of([program, "-v"]),
        )
        return self._begun(runner, nginx(program, config), port)

    def haproxy(self) -> Runner:
        program = tool("haproxy")
        (port,) = machine.free_ports(1)
        config = self._file("race-haproxy.cfg", race_configurations.HAPROXY, port)
        runner = self._prefixed(
            "haproxy",
            port,
            "observe layer7, error-limit 5, on-error mark-down; TCP check each 10 s",
            version_of([program, "-v"]),
        )
        return self._begun(runner, [program, "-db", "-f", str(config)], port)

    def envoy(self) -> Runner:
        program = tool("envoy")
        (port,) = machine.free_ports(1)
        config = self._file("race-envoy.yaml", race_configurations.ENVOY, port)
        command = [program, "-c", str(config), "--concurrency", "1", "--disable-hot-restart"]
        runner = self._prefixed(
            "envoy",
            port,
            "outlier detection: consecutive_5xx 5, ejection 10 s, no panic",
            version_of([program, "--version"]),
        )
        return self._begun(runner, [*command, "--log-level", "error"], port)

    def caddy(self) -> Runner:
        program = tool("caddy")
        (port,) = machine.free_ports(1)
        config = self._file("race-Caddyfile", race_configurations.CADDY, port)
        folder = str(self._lab.folder)
        runner = self._prefixed(
            "caddy",
            port,
            "passive health: max_fails 5, fail_duration 10s, unhealthy_status 5xx",
            version_of([program, "version"]),
        )
        return self._begun(
            runner,
            [program, "run", "--adapter", "caddyfile", "--config", str(config)],
            port,
            {"GOMAXPROCS": "1", "HOME": folder, "XDG_DATA_HOME": folder},
        )

    def litellm(self) -> Runner:
        program = tool("litellm")
        (port,) = machine.free_ports(1)
        config = self._file("race-litellm.yaml", race_configurations.LITELLM, port)
        base = f"http://127.0.0.1:{port}"
        runner = Runner(
            "litellm",
            base,
            base,
            "router: allowed_fails 5, cooldown_time 10 s, no retries",
            version_of([program, "--version"]),
        )
        command = [program, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        return self._begun(
            runner,
            [*command, "--num_workers", "1"],
            port,
            {
                "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
                "LITELLM_LOG": "ERROR",
                "LITELLM_LOCAL_MODEL_COST_MAP": "true",
            },
        )

    def portkey(self) -> Runner:
        node = tool("node")
        folders = os.environ.get("BENCH_TOOLS", "").split(":")
        script = "node_modules/@portkey-ai/gateway/build/start-server.js"
        found = next((Path(f) / script for f in folders if (Path(f) / script).exists()), None)
        if found is None:
            raise NotInstalled("@portkey-ai/gateway is not installed")
        (port,) = machine.free_ports(1)
        base = f"http://127.0.0.1:{port}"

        def to(upstream: object) -> tuple[Header, ...]:
            return (
                ("x-portkey-provider", "openai"),
                ("x-portkey-custom-host", f"http://127.0.0.1:{upstream}/v1"),
            )

        runner = Runner(
            "portkey",
            base,
            base,
            "none in the open gateway (retries by header, off here)",
            _package_version(found.parents[1]),
            to(self._ports["static"]),
            to(self._ports["live"]),
        )
        return self._begun(
            runner,
            [node, str(found), f"--port={port}", "--headless"],
            port,
            {"TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost", "NODE_ENV": "production"},
        )

    def mitmproxy(self) -> Runner:
        program = tool("mitmdump")
        (port,) = machine.free_ports(1)
        base = f"http://127.0.0.1:{port}"
        runner = Runner("mitmproxy", base, base, "none", version_of([program, "--version"]))
        command = [program, "-q", "--mode", f"reverse:http://127.0.0.1:{self._ports['live']}"]
        command += ["--listen-host", "127.0.0.1", "--listen-port", str(port)]
        command += ["--set", "stream_large_bodies=1", "--set", f"confdir={self._lab.folder}"]
        return self._begun(runner, command, port)


def _package_version(folder: Path) -> str:
    import json  # noqa: PLC0415

    with suppress(OSError, ValueError, KeyError):
        return str(json.loads((folder / "package.json").read_text())["version"])
    return "unknown"


STARTERS: dict[str, Callable[[Starter], Runner]] = {
    "direct": Starter.direct,
    "sidecar": Starter.sidecar,
    "interpreted": Starter.interpreted,
    "forwarder": Starter.forwarder,
    "nginx": Starter.nginx,
    "haproxy": Starter.haproxy,
    "envoy": Starter.envoy,
    "caddy": Starter.caddy,
    "litellm": Starter.litellm,
    "portkey": Starter.portkey,
    "mitmproxy": Starter.mitmproxy,
}
