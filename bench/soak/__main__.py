"""`python -m bench.soak`: the whole of it, ten minutes; `--seconds 20` for a first look.

Exit 1 if anything was lost, was left behind or had no cause.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench import machine
from bench.load import run as run_on_the_fastest_loop
from bench.soak.books import Books, Life
from bench.soak.callers import Callers
from bench.soak.leaks import MOST_GROWTH, Watch, at_rest
from bench.soak.process import Daemon, UpstreamProcess
from bench.soak.trouble import Trouble


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="of load (default: 600)")
    parser.add_argument("--callers", type=int, default=96, help="at once (default: 96)")
    parser.add_argument("--seed", type=int, default=None, help="of what is drawn")
    parser.add_argument("--json", type=Path, help="also write what was found")
    parser.add_argument(
        "--trace", action="store_true", help="the daemon also writes a line for every call"
    )
    parser.add_argument("--keep", type=Path, help="keep logs and records in this folder")
    return parser.parse_args()


def main() -> int:
    chosen = arguments()
    if not Path("/proc/self/stat").exists():
        sys.stderr.write("the soak reads /proc and runs on Linux only\n")
        return 2
    machine.raise_descriptor_limit(8192)
    # The callers remember a million calls, and a look through all of them would halt them a second.
    gc.set_threshold(100_000, 10, 1_000_000)
    seed = int(time.time()) if chosen.seed is None else chosen.seed
    if chosen.keep is not None:
        chosen.keep.mkdir(parents=True, exist_ok=True)
        found = run_on_the_fastest_loop(soak(chosen.keep, chosen, seed))
    else:
        with tempfile.TemporaryDirectory(prefix="soak-") as name:
            found = run_on_the_fastest_loop(soak(Path(name), chosen, seed))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")
    _print(found)
    return int(bool(found["problems"]))


async def soak(folder: Path, chosen: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Runs it, and closes the books."""
    seconds = chosen.seconds
    cores = machine.cores()
    upstream = UpstreamProcess(folder, cores.load)
    daemon = Daemon(folder, upstream.port, cores.proxy, trace=chosen.trace)
    try:
        upstream.start()
        await upstream.up()
        daemon.start()
        descriptors = machine.descriptors(daemon.pid)
        callers = Callers(daemon.port, daemon.admin, seed)
        trouble = Trouble(daemon, upstream, seconds, seed)
        watch = Watch(daemon)
        watching = asyncio.gather(watch.run(), trouble.watch())
        began = time.monotonic()
        calling = asyncio.ensure_future(callers.run(chosen.callers))
        ends = asyncio.get_running_loop().call_later(seconds, callers.stop)
        await asyncio.gather(calling, trouble.run(began + seconds))
        ends.cancel()
        took = time.monotonic() - began
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        left, metrics = await at_rest(daemon, descriptors)
        last = daemon.pid
        problems = watch.problems + left + _dependency(metrics, callers, daemon.lives)
        await daemon.stop()
        ended = [*trouble.exits, time.monotonic()]
        lives = [Life(end, daemon.log(number)) for number, end in enumerate(ended)]
        books = Books(callers.seen, trouble.spans, upstream.records(), lives, metrics)
        problems += books.close()
        if daemon.trace is not None:
            problems += books.traced(daemon.trace.read_text().splitlines())
        third, end = watch.growth(last)
        if end - third > MOST_GROWTH:
            problems.append(f"memory grew from {third:.1f} to {end:.1f} MiB")
        problems += [f"exit code {code}" for code in daemon.codes if code]
    finally:
        daemon.kill()
        upstream.kill()
    return {
        "seconds": round(took, 1),
        "seed": seed,
        "calls": len(callers.seen),
        "rate": round(len(callers.seen) / took),
        "endings": dict(Counter(one.ending for one in callers.seen).most_common()),
        "decisions": dict(Counter(one.decision or "-" for one in callers.seen).most_common()),
        "kinds": dict(Counter(one.kind for one in callers.seen).most_common()),
        "reports": callers.reports,
        "trouble": trouble.counts,
        "spans": [[span.what, span.began - began, span.over - began] for span in trouble.spans],
        "lives": daemon.lives,
        "memory": [round(third, 1), round(end, 1)],
        "problems": problems,
    }


def _dependency(metrics: dict[str, Any], callers: Callers, lives: int) -> list[str]:
    """The reports of the one life that saw all of them."""
    if lives > 1:
        return []
    told = Counter[str]()
    for (provider, _, verdict), count in metrics["breaker_sidecar_calls_total"].items():
        if provider == "orders-db":
            told[verdict] += int(count)
    wanted = {"success": callers.reports["ok"], "alive": callers.reports["failed"]}
    found = {name: told[name] for name in wanted}
    same = found == wanted and not callers.reports["unknown"]
    return [] if same else [f"reports: {found} in the metrics, and not {wanted}"]


def _print(found: dict[str, Any]) -> None:
    for name, value in found.items():
        if name not in ("problems", "spans"):
            print(f"{name}: {value}")
    problems = found["problems"]
    print(f"{len(problems)} problems" if problems else "nothing was lost, and nothing is left")
    for line in problems[:60]:
        print(f"  {line}")


if __name__ == "__main__":
    sys.exit(main())
