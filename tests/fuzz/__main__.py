"""The long run: `python -m tests.fuzz [TARGET …] --seconds 600`.

Each target runs in processes of its own, as many at once as are asked for. Where atheris is
installed (`pip install --group fuzz`) coverage guides
the changes, else they are drawn by chance alone. What breaks a promise, or takes longer than its size allows,
is written to a file: `python -m tests.fuzz TARGET --replay FILE` shows it again; once it is mended,
the file belongs into `tests/data/fuzz/TARGET`, and a test of its kind beside the code.

`wire` is the whole daemon over sockets, see `wire.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import time
import traceback
from pathlib import Path
from random import Random

from .mutate import Mutator
from .targets import TARGETS, seeds

FOUND = Path("fuzz-found")
SLOW = (0.5, 20e-6)
"""Seconds of a thread's time that an input may take: at least, and for each of its bytes.

Every target reads an input several times over, by several dialects; ten times of what the slowest
takes is far below what anything that is not linear needs for a quarter of a megabyte."""

MEMORY = 2048
"""MiB above which a process is ended."""


class TooSlow(AssertionError):
    """An input took longer than its size allows."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, "wire", []], metavar="TARGET")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--jobs", type=int, default=1, help="targets at once")
    parser.add_argument("--seed", type=int, default=None, help="of the changes; default: the time")
    parser.add_argument("--engine", choices=["auto", "coverage", "random"], default="auto")
    parser.add_argument("--keep-going", action="store_true", help="collect several finds")
    parser.add_argument("--replay", type=Path, help="run one target on one file")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    chosen = arguments()
    names = chosen.targets or [*TARGETS, "wire"]
    if chosen.replay is not None:
        _replay(names[0], chosen.replay.read_bytes())
        _say("no promise is broken")
        return 0
    if chosen.here:
        return run(names[0], chosen)
    return _each(names, chosen)


def _each(names: list[str], chosen: argparse.Namespace) -> int:
    """Every target in a process of its own: atheris does not return, and memory is freed."""
    waiting, running, bad = list(names), {}, []
    while waiting or running:
        while waiting and len(running) < chosen.jobs:
            name = waiting.pop(0)
            command = [sys.executable, "-m", "tests.fuzz", name, "--here", *_options(chosen)]
            running[name] = subprocess.Popen(command)
        time.sleep(0.2)
        for name, process in list(running.items()):
            if process.poll() is not None:
                del running[name]
                if process.returncode:
                    bad.append(name)
    _say("nothing was found" if not bad else f"found something in: {', '.join(bad)}; see {FOUND}/")
    return int(bool(bad))


def _options(chosen: argparse.Namespace) -> list[str]:
    options = ["--seconds", str(chosen.seconds), "--engine", chosen.engine]
    if chosen.seed is not None:
        options += ["--seed", str(chosen.seed)]
    return [*options, "--keep-going"] if chosen.keep_going else options


def run(name: str, chosen: argparse.Namespace) -> int:
    """Runs one target in this process."""
    seed = int(time.time()) if chosen.seed is None else chosen.seed
    if name == "wire":
        from . import wire

        return wire.run_for(chosen.seconds, seed, FOUND)
    engine = chosen.engine
    if engine != "random":
        try:
            import atheris  # noqa: F401
        except ImportError:
            if engine == "coverage":
                raise
        else:
            from . import coverage

            return coverage.run(name, chosen.seconds, seed, FOUND)
    return by_chance(name, chosen.seconds, seed, keep_going=chosen.keep_going)


def by_chance(name: str, seconds: float, seed: int, *, keep_going: bool = False) -> int:
    """Changes drawn by chance, for a time."""
    target, known, random = TARGETS[name], seeds(name), Random(seed)
    mutator = Mutator(random, known, target.tokens)
    ends, count, kinds = time.monotonic() + seconds, 0, set[str]()
    while time.monotonic() < ends:
        data = mutator.mutated(random.choice(known))
        count += 1
        try:
            once(name, data)
        except Exception as error:
            kind = _where(error)
            if kind in kinds:
                continue
            kinds.add(kind)
            _say(f"{name}: {_keep(name, data)}: {kind}")
            traceback.print_exc(limit=-6)
            if not keep_going:
                break
    _say(f"{name}: {count} inputs by chance, seed {seed}, {len(kinds)} kinds of finds")
    return int(bool(kinds))


def once(name: str, data: bytes) -> None:
    """One input, and whether it took longer than its size allows."""
    began = time.thread_time()
    TARGETS[name].check(data)
    took = time.thread_time() - began
    if took > SLOW[0] + SLOW[1] * len(data):
        # Once more: a collection of garbage, or a first import, is not the input's.
        began = time.thread_time()
        TARGETS[name].check(data)
        took = min(took, time.thread_time() - began)
        if took > SLOW[0] + SLOW[1] * len(data):
            raise TooSlow(f"{took:.2f} s for {len(data)} bytes")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    return f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno}"


def _keep(name: str, data: bytes) -> Path:
    FOUND.mkdir(exist_ok=True)
    file = FOUND / f"{name}-{hashlib.blake2b(data, digest_size=6).hexdigest()}"
    file.write_bytes(data)
    return file


def _replay(name: str, data: bytes) -> None:
    if name == "wire":
        from . import wire

        wire.replay(data)
    else:
        once(name, data)


if __name__ == "__main__":
    sys.exit(main())
