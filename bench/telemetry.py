"""What telemetry costs: the same daemon without any, with its metrics, and with everything on.

`off` is a daemon whose counters hear nothing, which nobody can have: it is there to be compared
with. `metrics` is what everybody has, scraped once a second, and exported over OTLP each ten
seconds, which is six times as often as by default. `full` exports every call's spans and the log as
well, to a collector that takes all of it.
"""

from __future__ import annotations

import sys
import threading
import time
import urllib.request
from typing import TYPE_CHECKING

from bench import configurations, machine
from bench.load import Ask
from bench.peers import Lab, Peer
from bench.upstream import REQUEST

if TYPE_CHECKING:
    from bench.scenarios import Bench, Values

DEAF = (
    "from sidecar.telemetry.figures import Figures;"
    "Figures.__call__ = lambda self, fact: None;"
    "from sidecar.cli import main;"
    "raise SystemExit(main())"
)
COMPLETION = Ask("POST", "/v1/chat/completions", REQUEST)


def measure(bench: Bench) -> None:
    """A chat completion over 32 connections, the three in turn."""
    lab = bench.lab
    (port,) = machine.free_ports(1)
    collector = lab.start(
        "collector", [sys.executable, "-m", "bench.collector", str(port)], [port],
        core=lab.cores.load,
    )  # fmt: skip
    exporting = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_METRIC_EXPORT_INTERVAL": "10000",
    }
    peers = [
        _daemon(lab, "off", ["-c", DEAF], {}),
        _daemon(lab, "metrics", ["-m", "sidecar"], {**exporting, "OTEL_TRACES_EXPORTER": "none"}),
        _daemon(lab, "full", ["-m", "sidecar"], {**exporting, "OTEL_LOGS_EXPORTER": "otlp"}),
    ]

    def run(peer: Peer) -> Values:
        with _Scraper(peer if peer.name != "off" else None):
            seen, values = bench.loaded(peer, peer.static, COMPLETION, connections=32)
        return {**values, "rate": seen.rate, "busy_p50": seen.p50, "busy_p99": seen.p99}

    for peer in peers:
        run(peer)
    bench.rounds("telemetry", run, peers)
    for peer in peers:
        found = bench.results["telemetry"][peer.name]
        found["rss"] = [machine.resident(peer.pids)]
        if peer.name == "full":
            found["lost"] = [_lost(peer)]
        assert peer.process is not None
        lab.end(peer.process)
    lab.end(collector)


def _daemon(lab: Lab, name: str, program: list[str], environment: dict[str, str]) -> Peer:
    port, admin = machine.free_ports(2)
    config = lab.write(
        f"telemetry-{name}.yaml",
        configurations.DAEMON,
        port=port,
        admin=admin,
        static=lab.static_port,
        live=lab.live_port,
    )
    command = [sys.executable, *program, "serve", "--config", str(config)]
    process = lab.start(
        f"telemetry-{name}", command, [port, admin], core=lab.cores.proxy, environment=environment
    )
    base = f"http://127.0.0.1:{port}"
    pids = machine.family(process.pid)
    return Peer(name, f"{base}/static", f"{base}/live", "", process, admin, pids)


def _lost(peer: Peer) -> float:
    """The share of spans that no collector took."""
    time.sleep(1)
    taken = lost = 0.0
    for line in _metrics(peer).splitlines():
        if 'signal="traces"' in line:
            value = float(line.rpartition(" ")[2])
            if "_exported_" in line:
                taken += value
            elif "_dropped_" in line:
                lost += value
    return lost / (taken + lost) if taken + lost else 0.0


def _metrics(peer: Peer) -> str:
    url = f"http://127.0.0.1:{peer.admin}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


class _Scraper:
    """Scrapes a daemon once a second while something else runs."""

    def __init__(self, peer: Peer | None) -> None:
        self._peer = peer
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        assert self._peer is not None
        while not self._done.wait(0.5):
            _metrics(self._peer)
            self._done.wait(0.5)

    def __enter__(self) -> None:
        if self._peer is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._peer is not None:
            self._thread.join()
