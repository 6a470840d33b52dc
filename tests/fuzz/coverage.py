"""The same targets under atheris, which keeps the inputs that reach new code."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from random import Random

import atheris

from .mutate import BLOWN_UP, Mutator


def run(name: str, seconds: float, seed: int, found: Path) -> int:
    """Fuzzes one target; never returns, since libFuzzer ends the process.

    Args:
        name: of the target.
        seconds: for which it runs.
        seed: of its dice.
        found: where an input goes that breaks a promise.
    """
    # What was imported before is instrumented only if it is imported anew.
    for module in [one for one in sys.modules if one.startswith(("sidecar", "tests."))]:
        if not module.startswith(("tests.fuzz.coverage", "tests.fuzz.mutate")):
            del sys.modules[module]
    with atheris.instrument_imports(include=["sidecar"]):
        from .targets import TARGETS, seeds
    from .__main__ import once

    known = seeds(name)
    random = Random(seed)
    mutator = Mutator(random, known, TARGETS[name].tokens)
    folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    for data in known:
        (folder / hashlib.blake2b(data, digest_size=8).hexdigest()).write_bytes(data)
    found.mkdir(exist_ok=True)

    def change(data: bytes, most: int, own: int) -> bytes:
        random.seed(own)
        if random.random() < 0.3:
            return bytes(atheris.Mutate(data, most))
        return mutator.mutated(data)[:most]

    atheris.Setup(
        [
            sys.argv[0], str(folder), f"-max_total_time={int(seconds)}", f"-seed={seed % 2**31 or 1}",
            f"-artifact_prefix={found}/{name}-", f"-max_len={BLOWN_UP}", "-rss_limit_mb=3000", "-timeout=60",
            "-print_final_stats=1", "-verbosity=1", "-len_control=0",
        ],
        lambda data: once(name, data),
        custom_mutator=change,
    )  # fmt: skip
    atheris.Fuzz()
    return 0
