"""`python -m bench.race`: the daemon beside its peers, in one run on one machine.

The proxy under test has a core to itself; the load and the upstreams share another. Speed is
measured round after round, the peers in turn; added latency is a percentile less that of the
direct way in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import growth, load, machine, race_load, race_report
from bench.peers import DidNotStart, Lab, NotInstalled
from bench.race_peers import STARTERS, Runner, Starter

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.race", description=__doc__)
    parser.add_argument("--peers", help="some of " + ", ".join(STARTERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one run of load")
    parser.add_argument("--open", type=int, default=500, help="streams that are held open")
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds")
    parser.add_argument("--no-growth", action="store_true", help="leave the curves out")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write everything as data")
    parser.add_argument("--from", dest="stored", metavar="FILE", type=Path, help="measured before")
    parser.add_argument("--figures", metavar="FILE", type=Path, help="of `python -m bench --json`")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md, its plots")
    parser.add_argument("--priority", action="store_true", help="precedence (needs root)")
    return parser.parse_args(words)


def main() -> int:
    chosen = arguments()
    if chosen.quick:
        chosen.rounds, chosen.seconds, chosen.open, chosen.no_growth = 1, 0.2, 20, True
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if chosen.stored is not None:
        found = json.loads(chosen.stored.read_text())
    else:
        if chosen.priority:
            os.setpriority(os.PRIO_PROCESS, 0, -15)
        names = chosen.peers.split(",") if chosen.peers else list(STARTERS)
        found = run(names, chosen)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")
    figures = json.loads(chosen.figures.read_text()) if chosen.figures else None
    if chosen.write:
        race_report.write(DOCUMENT, found, figures)
    print(race_report.race(found))
    return 0


def run(names: list[str], chosen: argparse.Namespace) -> dict[str, Any]:
    """Starts everybody, measures, ends everybody."""
    cores = machine.cores()
    about = machine.describe()
    machine.raise_descriptor_limit(8192)
    os.sched_setaffinity(0, {cores.load})
    with tempfile.TemporaryDirectory(prefix="race-") as name:
        lab = Lab(Path(name), cores)
        try:
            lab.start_upstreams()
            (scripted,) = machine.free_ports(1)
            command = [sys.executable, "-m", "bench.scripted", str(scripted)]
            lab.start("scripted", command, [scripted], core=cores.load)
            runners, missing = _started(Starter(lab, scripted), names)
            generator = load.generator(Path(name), quick=chosen.seconds < 1)
            results = _measured(runners, race_load.Upstream(scripted), generator, chosen)
            curves = {} if chosen.no_growth else growth.measure(lab, _say)
        finally:
            lab.close()
    return {
        "machine": {**about, "apart": cores.apart},
        "rounds": chosen.rounds,
        "seconds": chosen.seconds,
        "load": generator.name,
        "missing": missing,
        "peers": {
            runner.name: {"version": runner.version, "guard": runner.guard} for runner in runners
        },
        "results": results,
        "growth": curves,
    }


def _started(starter: Starter, names: list[str]) -> tuple[list[Runner], dict[str, str]]:
    runners, missing = [], {}
    for name in names:
        try:
            runners.append(starter.start(name))
            _say(f"{name}: ready after {runners[-1].ready:.0f} ms")
        except (NotInstalled, DidNotStart) as error:
            missing[name] = str(error)
            _say(f"{name} is missing: {error}")
    return runners, missing


def _measured(
    runners: list[Runner],
    upstream: race_load.Upstream,
    generator: load.Wrk | load.Own,
    chosen: argparse.Namespace,
) -> dict[str, dict[str, float]]:
    held = {runner.name: race_load.open_streams(runner, chosen.open) for runner in runners}
    _say("open streams: done")
    rounds: dict[str, dict[str, list[float]]] = {runner.name: {} for runner in runners}
    for number in range(chosen.rounds):
        turn = number % len(runners)
        for runner in runners[turn:] + runners[:turn]:
            values = race_load.calls(runner, generator, chosen.seconds)
            values |= race_load.streams(runner, chosen.seconds)
            for key, value in values.items():
                rounds[runner.name].setdefault(key, []).append(value)
        _say(f"speed: round {number + 1} of {chosen.rounds}")
    results = {name: _medians(values, rounds.get("direct")) for name, values in rounds.items()}
    for runner in runners:
        found = results[runner.name]
        if runner.pids:
            found |= {"ready_ms": runner.ready, "idle_mib": runner.idle, **held[runner.name]}
        for scenario, measure in race_load.MEASURES.items():
            if chosen.quick and scenario == "outage":
                continue
            found |= {
                f"{scenario}_{key}": value for key, value in measure(runner, upstream).items()
            }
        _say(f"{runner.name}: behaviour done")
    return results


def _medians(
    rounds: dict[str, list[float]], direct: dict[str, list[float]] | None
) -> dict[str, float]:
    found = {key: statistics.median(values) for key, values in rounds.items()}
    for key, values in rounds.items():
        if direct is not None and "_p" in key and key in direct:
            pairs = zip(values, direct[key], strict=False)
            found[f"added_{key}"] = statistics.median(mine - theirs for mine, theirs in pairs)
    return found


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
