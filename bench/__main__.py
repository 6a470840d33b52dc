"""`python -m bench`: all of it in one run, some five minutes; `--quick` in seconds.

The proxy under test has a core to itself; the load and its upstream share another. Everything is on
loopback, bounded in count and time, and whatever was started is ended.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import load, machine, report
from bench.peers import STARTERS, DidNotStart, Lab
from bench.scenarios import SCENARIOS, Bench, Plan


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds")
    parser.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const="-",
        help="also write everything as JSON, every round; without FILE instead of the tables",
    )
    parser.add_argument("--peers", type=_listed(STARTERS), help="some of " + ", ".join(STARTERS))
    parser.add_argument(
        "--scenarios", type=_listed(SCENARIOS), help="some of " + ", ".join(SCENARIOS)
    )
    parser.add_argument("--rounds", type=int, help="turns of each peer (default: 5)")
    parser.add_argument("--seconds", type=float, help="length of one run of load (default: 1)")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 if what the project promises is missed"
    )
    parser.add_argument(
        "--priority",
        action="store_true",
        help="ask for precedence over other work on the machine (needs root)",
    )
    return parser.parse_args(words)


def _listed(known: dict[str, object]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return read


def main() -> int:
    chosen = arguments()
    if not Path("/proc/self/stat").exists():
        sys.stderr.write("the benchmark reads /proc and runs on Linux only\n")
        return 2
    # Ended from outside, it still ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if chosen.priority:
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    plan = Plan(
        rounds=max(1, chosen.rounds or (1 if chosen.quick else 5)),
        seconds=min(max(0.1, chosen.seconds or (0.12 if chosen.quick else 1.0)), 60.0),
        quick=chosen.quick,
    )
    found = run(plan, chosen.peers or list(STARTERS), chosen.scenarios or list(SCENARIOS))
    promises = [report.Bar(**bar) for bar in found["bars"]]
    if chosen.json == "-":
        print(json.dumps(found, indent=1))
    else:
        if chosen.json:
            Path(chosen.json).write_text(json.dumps(found, indent=1) + "\n")
        print(head(found))
        print(report.tables(found["rounds"]))
        print(f"\n{report.bar_lines(promises)}")
    return int(chosen.check and any(bar.met is False for bar in promises))


def run(plan: Plan, peers: list[str], scenarios: list[str]) -> dict[str, Any]:
    """Starts everything, measures, ends everything."""
    cores = machine.cores()
    about = machine.describe()
    limit = machine.raise_descriptor_limit(8192)
    os.sched_setaffinity(0, {cores.load})
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        lab = Lab(folder, cores)
        try:
            lab.start_upstreams()
            started = lab.start_peers(peers)
            if not started:
                raise DidNotStart("; ".join(lab.missing.values()) or "no peer")
            generator = load.generator(folder, quick=plan.quick)
            bench = Bench(lab, started, generator, plan, _say)
            _warm(bench)
            for scenario in scenarios:
                SCENARIOS[scenario](bench)
        finally:
            lab.close()
    return {
        "machine": {**about, "apart": cores.apart, "descriptor_limit": limit},
        "plan": asdict(plan),
        "load": generator.name,
        "versions": lab.versions,
        "left_out": lab.missing,
        "summary": report.summary(bench.results),
        "bars": [asdict(bar) for bar in report.bars(bench.results)],
        "rounds": bench.results,
    }


def _warm(bench: Bench) -> None:
    """Nobody's first round pays for what happens once."""
    for peer in bench.peers:
        for base in (peer.static, peer.live):
            load.run(load.call(base, load.Ask("GET", "/v1/models"), connections=8, seconds=0.1))


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def head(found: dict[str, Any]) -> str:
    """What was measured on what."""
    about, plan = found["machine"], found["plan"]
    lines = [
        f"{about['system']}, {about['cores']} cores, Python {about['python']}",
        f"{plan['rounds']} rounds of {plan['seconds']:g} s; load: {found['load']}",
        "; ".join(f"{name}: {version}" for name, version in found["versions"].items()),
    ]
    if not about["apart"]:
        lines.append("only one core: proxy, load and upstream share it, so rates are far too low")
    if about["load_before"] > 0.5:
        lines.append(
            f"the machine was busy before (load {about['load_before']}): "
            "go by the ratios and by the CPU time"
        )
    if plan["quick"]:
        lines.append("a smoke run: the figures mean little")
    lines += [f"left out: {name}: {why}" for name, why in found["left_out"].items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
