"""What is measured, and how: each scenario takes the peers in turn, round after round.

A B C, B C A, C A B: whatever drifts on the machine meanwhile (clock, heat, neighbours) meets all
of them alike. Ratios are taken within a round and then their median; so are added latencies.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field

from bench import classification, guarding, load, machine, shedding, telemetry
from bench.load import Ask, Seen
from bench.peers import Lab, Peer, clean_environment
from bench.upstream import MIB, REQUEST

Values = dict[str, float]

COMPLETION = Ask("POST", "/v1/chat/completions", REQUEST)
MODELS = Ask("GET", "/v1/models")
DOWNLOAD = Ask("GET", "/blob")
DOWNLOAD_JSON = Ask("GET", "/big-json")
UPLOAD = Ask(
    "POST",
    "/upload",
    b'{"model": "gpt-bench-mini", "input": "' + b"QUJD" * ((MIB - 64) // 4) + b'"}',
)
STREAM = Ask("POST", "/v1/chat/completions?stream=100", REQUEST)
SLOW_STREAM = Ask("POST", "/v1/chat/completions?stream=100&gap=2", REQUEST)
SHORT_STREAM = Ask("POST", "/v1/chat/completions?stream=1", REQUEST)
PACED_STREAM = Ask("POST", "/v1/chat/completions?stream=150&gap=20", REQUEST)
HELD = Ask("POST", "/v1/chat/completions?hold=500", REQUEST)
BRIEFLY_HELD = Ask("POST", "/v1/chat/completions?hold=100", REQUEST)


@dataclass
class Plan:
    """How much is measured.

    Attributes:
        rounds: turns that every peer gets in each scenario.
        seconds: length of one run of load.
        quick: a smoke run: everything works, no figure means much.
    """

    rounds: int = 5
    seconds: float = 1.0
    quick: bool = False


@dataclass
class Bench:
    """The state of one run."""

    lab: Lab
    peers: list[Peer]
    load: load.Wrk | load.Own
    plan: Plan
    say: Callable[[str], None]
    results: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)

    def peer(self, name: str) -> Peer | None:
        return next((peer for peer in self.peers if peer.name == name), None)

    def rounds(self, scenario: str, measure: Callable[[Peer], Values], peers: list[Peer]) -> None:
        """Lets every peer have its turn, round after round."""
        found = self.results.setdefault(scenario, {peer.name: {} for peer in peers})
        for number in range(self.plan.rounds):
            turn = number % len(peers)
            for peer in peers[turn:] + peers[:turn]:
                for name, value in measure(peer).items():
                    found[peer.name].setdefault(name, []).append(value)
            self.say(f"  {scenario}: round {number + 1} of {self.plan.rounds}")

    def loaded(self, peer: Peer, base: str, ask: Ask, *, connections: int) -> tuple[Seen, Values]:
        """One run of load, and what the proxy spent on it."""
        before = machine.cpu_seconds(peer.pids)
        began = time.monotonic()
        seen = self.load.run(base, ask, connections=connections, seconds=self.plan.seconds)
        took = time.monotonic() - began
        spent = machine.cpu_seconds(peer.pids) - before
        values: Values = {"errors": seen.errors}
        if peer.pids and seen.requests:
            values["cpu_us"] = spent / seen.requests * 1e6
            values["core"] = spent / took
        return seen, values


# -- small answers --------------------------------------------------------------------------


def _small(bench: Bench, name: str, ask: Ask) -> None:
    def measure(peer: Peer) -> Values:
        busy, values = bench.loaded(peer, peer.static, ask, connections=32)
        alone, more = bench.loaded(peer, peer.static, ask, connections=1)
        values["errors"] += more["errors"]
        return {
            **values,
            "rate": busy.rate,
            "busy_p50": busy.p50,
            "busy_p99": busy.p99,
            "alone_p50": alone.p50,
            "alone_p99": alone.p99,
        }

    bench.rounds(name, measure, bench.peers)


def post(bench: Bench) -> None:
    """A chat completion of some 600 bytes: 32 connections, then one."""
    _small(bench, "post", COMPLETION)


def get(bench: Bench) -> None:
    """A small GET, likewise."""
    _small(bench, "get", MODELS)


# -- streams --------------------------------------------------------------------------------


def stream(bench: Bench) -> None:
    """100 events at once to 16 callers; then 100 events, one each 2 ms, to one caller."""
    times = 1 if bench.plan.quick else 5

    def measure(peer: Peer) -> Values:
        before = machine.cpu_seconds(peer.pids)
        busy, _ = load.run(load.call(peer.live, STREAM, connections=16, seconds=bench.plan.seconds))
        spent = machine.cpu_seconds(peer.pids) - before
        slow, tally = load.run(
            load.call(peer.live, SLOW_STREAM, connections=1, times=times, stamped=True)
        )
        values = {
            "errors": busy.errors + slow.errors,
            "rate": busy.events / busy.seconds,
            "first": load.percentile(tally.first, 0.5),
            "event_p50": load.percentile(tally.delays, 0.5),
            "event_p99": load.percentile(tally.delays, 0.99),
        }
        if peer.pids and busy.events:
            values["cpu_us"] = spent / busy.events * 1e6
        return values

    bench.rounds("stream", measure, bench.peers)


def paced_streams(bench: Bench) -> None:
    """200 streams of 50 events a second each: delays, and events that arrived as one."""
    count, times = (20, 1) if bench.plan.quick else (200, 1)

    def measure(peer: Peer) -> Values:
        before = machine.cpu_seconds(peer.pids)
        seen, tally = load.run(
            load.call(peer.live, PACED_STREAM, connections=count, times=times, stamped=True)
        )
        values = {
            "errors": seen.errors,
            "event_p50": load.percentile(tally.delays, 0.5),
            "event_p99": load.percentile(tally.delays, 0.99),
            "merged": tally.merged,
        }
        if peer.pids and tally.delays:
            spent = machine.cpu_seconds(peer.pids) - before
            values["cpu_us"] = spent / len(tally.delays) * 1e6
        return values

    bench.rounds("paced_streams", measure, bench.peers)


def open_streams(bench: Bench) -> None:
    """2,000 streams that are open and silent, ten times: memory of each, descriptors afterwards."""
    count, rounds = (100, 2) if bench.plan.quick else (2000, 10)
    silent, gap = (0.3, 600) if bench.plan.quick else (3.0, 4000)
    ask = Ask("POST", f"/v1/chat/completions?stream=2&gap={gap}", REQUEST)
    for name in ("sidecar", "forwarder", "envoy"):
        shared = bench.peer(name)
        if shared is None:
            continue
        own = {"sidecar": lambda: bench.lab.daemon("open"), "forwarder": bench.lab.forwarder}
        peer = own[name]() if name in own else shared
        load.run(load.call(peer.live, COMPLETION, connections=1, times=50))
        found = bench.results.setdefault("open_streams", {}).setdefault(name, {})
        pids = peer.pids or _pids(peer)
        base = machine.resident(pids)
        found["descriptors_before"] = [machine.descriptors(pids[0])]
        for _ in range(rounds if name == "sidecar" else 1):
            rss, errors = load.run(_hold_open(peer.live, pids, ask, count, silent))
            found.setdefault("rss", []).append(rss)
            found.setdefault("kib_each", []).append((rss - base) * 1024 / count)
            found.setdefault("errors", []).append(errors)
        time.sleep(0 if bench.plan.quick else 10)
        found["descriptors_after"] = [machine.descriptors(pids[0])]
        if name in own and peer.process is not None:
            bench.lab.end(peer.process)
        bench.say(f"  open_streams: {name} done")


def _pids(peer: Peer) -> list[int]:
    assert peer.process is not None
    return [peer.process.pid]


async def _hold_open(
    base: str, pids: list[int], ask: Ask, count: int, silent: float
) -> tuple[float, int]:
    """Resident memory while so many streams are open and say nothing."""
    task = asyncio.create_task(load.call(base, ask, connections=count, times=1))
    await asyncio.sleep(silent)
    rss = machine.resident(pids)
    seen, _ = await task
    return rss, seen.errors


def many_streams(bench: Bench) -> None:
    """A day's worth of streams: memory after each tenth of 200,000."""
    peer = bench.peer("sidecar")
    if peer is None:
        return
    peer = bench.lab.daemon("day")
    found: dict[str, list[float]] = {}
    bench.results["many_streams"] = {"sidecar": found}
    each = 50 if bench.plan.quick else 625
    for _ in range(10):
        seen, _ = load.run(load.call(peer.live, SHORT_STREAM, connections=32, times=each))
        found.setdefault("rss", []).append(machine.resident(_pids(peer)))
        found.setdefault("streams", []).append(seen.requests)
        found.setdefault("errors", []).append(seen.errors)
    assert peer.process is not None
    bench.lab.end(peer.process)
    bench.say("  many_streams: done")


# -- bodies ---------------------------------------------------------------------------------


def bodies(bench: Bench) -> None:
    """1 MiB down (bytes, then JSON) and 1 MiB up, over four connections."""
    for name, ask in (("download", DOWNLOAD), ("download_json", DOWNLOAD_JSON), ("upload", UPLOAD)):

        def measure(peer: Peer, ask: Ask = ask) -> Values:
            seen, values = bench.loaded(peer, peer.live, ask, connections=4)
            size = seen.requests * len(ask.body) if ask.body else seen.size
            return {**values, "rate": size / seen.seconds / MIB}

        bench.rounds(name, measure, bench.peers)


# -- the open breaker -----------------------------------------------------------------------


def breaker_open(bench: Bench) -> None:
    """Answers of an open breaker: how long each takes, and that none reaches the upstream."""
    peer = bench.peer("sidecar")
    if peer is None:
        return
    ask = Ask(
        "POST", "/v1/chat/completions?fail", REQUEST.replace(b"gpt-bench-mini", b"gpt-down"), 503
    )
    found: dict[str, list[float]] = {}
    bench.results["breaker_open"] = {"sidecar": found}
    for _ in range(bench.plan.rounds):
        _open(peer, ask)
        before = _hits(bench)
        for name, connections in (("alone", 1), ("busy", 8)):
            seen, values = bench.loaded(peer, peer.live, ask, connections=connections)
            values |= {f"{name}_p50": seen.p50, f"{name}_p99": seen.p99, f"{name}_rate": seen.rate}
            for key, value in values.items():
                found.setdefault(key, []).append(value)
        found.setdefault("upstream_hits", []).append(_hits(bench) - before)
    bench.say("  breaker_open: done")


def _open(peer: Peer, ask: Ask) -> None:
    """Fails distinct requests until the breaker refuses."""
    for number in range(100):
        body = ask.body.replace(b"jumped", b"jumped %d times" % number)
        request = urllib.request.Request(
            peer.live + ask.path, body, {"Content-Type": "application/json"}
        )
        try:
            urllib.request.urlopen(request, timeout=10).close()
        except urllib.error.HTTPError as error:
            with error:
                if error.headers["x-sidecar-decision"] == "breaker_open":
                    left = float(error.headers["retry-after"])
                    if left > 15:
                        return
                    # So little is left of the open time that the measurement would outlast it.
                    _control(peer, "gpt-down")
    raise RuntimeError("the breaker did not open")


def _control(peer: Peer, model: str) -> None:
    key = f"live%2F{model}"
    request = urllib.request.Request(
        f"http://127.0.0.1:{peer.admin}/breakers/{key}/reset", b"{}", {"x-sidecar-admin": "1"}
    )
    urllib.request.urlopen(request, timeout=10).close()


def _hits(bench: Bench) -> int:
    url = f"http://127.0.0.1:{bench.lab.live_port}/hits"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return int(answer.read())


# -- at rest --------------------------------------------------------------------------------


def idle(bench: Bench) -> None:
    """The shipped configuration: from the command to ready, and memory a second later."""
    found: dict[str, list[float]] = {}
    bench.results["idle"] = {"sidecar": found}
    for number in range(1 if bench.plan.quick else 5):
        port, admin = machine.free_ports(2)
        command = [sys.executable, "-m", "sidecar", "serve"]
        command += ["--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}"]
        began = time.monotonic()
        process = bench.lab.start(
            f"idle-{number}", command, [port, admin], core=bench.lab.cores.proxy
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=10) as answer:
            assert answer.status == 200
        found.setdefault("ready_ms", []).append((time.monotonic() - began) * 1000)
        time.sleep(0.2 if bench.plan.quick else 1)
        pids = machine.family(process.pid)
        found.setdefault("rss", []).append(machine.resident(pids))
        found.setdefault("descriptors", []).append(machine.descriptors(process.pid))
        bench.lab.end(process)
    interpreter = _time_of([sys.executable, "-c", "pass"])
    found["python_ms"] = [interpreter]
    bench.say("  idle: done")


def _time_of(command: list[str]) -> float:
    took = []
    for _ in range(3):
        began = time.monotonic()
        subprocess.run(command, check=True, env=clean_environment())
        took.append((time.monotonic() - began) * 1000)
    return statistics.median(took)


# -- a thousand at once ---------------------------------------------------------------------


def at_once(bench: Bench) -> None:
    """A thousand calls in flight together, ten times: memory and descriptors stay as they are."""
    count, rounds = (200, 2) if bench.plan.quick else (1000, 10)
    ask = BRIEFLY_HELD if bench.plan.quick else HELD
    for name in ("sidecar", "forwarder"):
        if bench.peer(name) is None:
            continue
        peer = bench.lab.daemon("crowd") if name == "sidecar" else bench.lab.forwarder()
        assert peer.process is not None
        pid = peer.process.pid
        load.run(load.call(peer.live, COMPLETION, connections=1, times=50))
        found = bench.results.setdefault("at_once", {}).setdefault(name, {})
        found["descriptors_before"] = [machine.descriptors(pid)]
        found["calls"] = [count]
        for _ in range(rounds):
            seen, _ = load.run(load.call(peer.live, ask, connections=count, times=1))
            time.sleep(0.3)
            for key, value in (
                ("rss", machine.resident([pid])),
                ("descriptors", machine.descriptors(pid)),
                ("errors", seen.errors),
                ("p99", seen.p99),
            ):
                found.setdefault(key, []).append(value)
        if name == "sidecar":
            found["opened"] = [_opened(peer)]
        # Idle connections to the upstream outlive a round: by default four seconds.
        time.sleep(0 if bench.plan.quick else 6)
        found["descriptors_after"] = [machine.descriptors(pid)]
        found["rss_after"] = [machine.resident([pid])]
        bench.lab.end(peer.process)
        bench.say(f"  at_once: {name} done")


def _opened(peer: Peer) -> int:
    """How often breakers of the daemon opened in all."""
    with urllib.request.urlopen(f"http://127.0.0.1:{peer.admin}/status", timeout=10) as answer:
        status = json.load(answer)
    return sum(
        breaker["opens"]
        for provider in status["providers"].values()
        for breaker in provider["breakers"].values()
    )


def weight(bench: Bench) -> None:
    """What each process weighs after all that it has carried."""
    found = bench.results.setdefault("weight", {})
    for peer in bench.peers:
        if peer.pids:
            found[peer.name] = {"rss": [machine.resident(peer.pids)]}


SCENARIOS: dict[str, Callable[[Bench], None]] = {
    "post": post,
    "get": get,
    "stream": stream,
    "paced_streams": paced_streams,
    "open_streams": open_streams,
    "many_streams": many_streams,
    "bodies": bodies,
    "breaker_open": breaker_open,
    "idle": idle,
    "at_once": at_once,
    "weight": weight,
    "classify": classification.measure,
    "shedding": shedding.shedding,
    "guard": guarding.measure,
    "telemetry": telemetry.measure,
}
