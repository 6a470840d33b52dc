"""`demo`: what the product is for, shown with a real daemon, on loopback, in half a minute.

Every number on the screen was measured in the run that shows it. Where a measurement does not bear
out what the text claims, the demo says so and fails.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.table import Table

from sidecar import clock
from sidecar.cli.admin_client import Address, AdminClient
from sidecar.cli.children import DaemonChild, free_ports, is_ready
from sidecar.cli.errors import CommandError, Exit, say
from sidecar.faults.demo import (
    GOOD_MODEL,
    MISSPELT_MODEL,
    OTHER_MODEL,
    Answer,
    Caller,
    Health,
    LyingUpstream,
    StatusOnlyBreaker,
)

_CALLS = 20  # callers in the first act, and callers who wait for the recovery in the third
_VALID = 4  # too few to reach `minimum_calls` of the ratio rule together with the outage
_OPENS_AT = 5  # the shipped `consecutive_failures`
_REFUSED = 200
_KEY = f"openai/{GOOD_MODEL}"
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take.

    Attributes:
        open_for: seconds that the breaker stays open at first.
        probe: seconds that the recovering upstream takes for an answer.
        retry: the share of the SDK's own waits that is waited.
        reading: seconds for the audience between two acts.
    """

    open_for: float
    probe: float
    retry: float
    reading: float


_TALK = Pace(open_for=4.0, probe=0.5, retry=1.0, reading=2.0)
_FAST = Pace(open_for=0.5, probe=0.4, retry=0.02, reading=0.0)


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "--fast", action="store_true", help="without the pauses for reading; for tests"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Plays the three acts."""
    pace = _FAST if arguments.fast else _TALK
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    with (
        LyingUpstream(pace.probe) as upstream,
        _daemon(upstream.port, pace) as (port, admin),
        closing(Caller("127.0.0.1", upstream.port, pace=pace.retry)) as direct,
        closing(Caller("127.0.0.1", port, "/openai", pace=pace.retry)) as through,
        closing(Caller("127.0.0.1", port, "/openai", retries=0)) as once,
    ):
        stage = _Stage(console, pace, upstream, direct, through, once, admin)
        _prologue(stage)
        _lie(stage)
        _outage(stage)
        _recovery(stage)
        _epilogue(stage)
    for claim in stage.broken:
        say(f"this run did not bear out: {claim}")
    return Exit.FAILED if stage.broken else Exit.FINE


@dataclass(slots=True)
class _Stage:
    """Everything on it; `direct`, `through` and `once` are callers, the last without retries."""

    console: Console
    pace: Pace
    upstream: LyingUpstream
    direct: Caller
    through: Caller
    once: Caller
    admin: AdminClient
    broken: list[str] = field(default_factory=list)

    def claim(self, text: str, holds: bool) -> None:  # noqa: FBT001 - a claim holds or not
        """Remembers a claim that the measurements do not bear out."""
        if not holds:
            self.broken.append(text)

    def state(self, key: str = _KEY) -> str:
        """The state of a breaker, as `GET /status` has it; `closed` if it is not known yet."""
        _, document = self.admin.get("/status")
        entry = document["providers"]["openai"]["breakers"].get(key)
        return str(entry["state"]) if entry else "closed"

    def pause(self) -> None:
        """Time to read."""
        time.sleep(self.pace.reading)


def _prologue(stage: _Stage) -> None:
    stage.console.print(
        "A daemon, an upstream that lies and callers that retry as the official SDKs do, all on"
        f" loopback. The shipped settings but one: a breaker stays open for"
        f" {stage.pace.open_for:g} s, not 30."
    )


def _lie(stage: _Stage) -> None:
    _title(stage, "1. A typo, dressed as an outage")
    stage.console.print(
        f"{_CALLS} calls misspell the model ({MISSPELT_MODEL!r}); the upstream answers 503 to each."
        f" Then {_VALID} calls are right."
    )
    table = Table("", "without the daemon", "with it", box=None, pad_edge=False)
    without, with_it = _Lied(stage, stage.direct), _Lied(stage, stage.through)
    for title, read in (
        ("requests that reached the upstream", lambda lied: str(lied.requests)),
        ("what each caller got", lambda lied: lied.got),
        ("seconds until the last one knew", lambda lied: f"{lied.seconds:.2f}"),
        ("a breaker that reads statuses", lambda lied: lied.naive),
        ("right calls that it would refuse", lambda lied: f"{lied.lost} of {_VALID}"),
        ("right calls that were answered", lambda lied: f"{lied.answered} of {_VALID}"),
    ):
        table.add_row(title, read(without), read(with_it))
    state = stage.state(f"openai/{MISSPELT_MODEL}")
    table.add_row("the daemon's breaker", "-", state)
    stage.console.print()
    stage.console.print(table)
    stage.console.print(f"\nThe caller reads: {with_it.message}")
    stage.claim("three requests for each call without the daemon", without.requests == 3 * _CALLS)
    stage.claim("one request for each call with it", with_it.requests == _CALLS)
    stage.claim("404 model_not_found with it", with_it.got == "404 model_not_found")
    stage.claim("the breaker stays closed", state == "closed")
    stage.claim("every right call is answered with it", with_it.answered == _VALID)
    stage.pause()


class _Lied:
    """One side of the first act: what the callers saw, and what reached the upstream."""

    def __init__(self, stage: _Stage, caller: Caller) -> None:
        before, began = stage.upstream.total, clock.monotonic()
        prompts = [f"question {number}" for number in range(_CALLS)]
        answers = _together(caller, MISSPELT_MODEL, prompts)
        self.seconds = clock.monotonic() - began
        self.requests = stage.upstream.total - before
        self.got = ", ".join(sorted({f"{one.status} {one.code}" for one in answers}))
        self.message = answers[0].message
        naive = StatusOnlyBreaker()
        for one in answers:
            naive.hear(one.statuses)
        opened = naive.open_after
        self.naive = "stays closed" if opened is None else f"opens after {opened} answers"
        self.lost = 0 if opened is None else _VALID
        valid = [caller.call(OTHER_MODEL, f"right {number}") for number in range(_VALID)]
        self.answered = sum(one.status == 200 for one in valid)


def _outage(stage: _Stage) -> None:
    _title(stage, "2. An outage that is one")
    stage.upstream.health = Health.BROKEN
    before, failed = stage.upstream.total, 0
    # Without retries, so that calls and failures are the same number.
    while stage.state() == "closed" and failed < 2 * _OPENS_AT:
        failed += stage.once.call(GOOD_MODEL, f"unlucky {failed}").status == 500
    reached = stage.upstream.total - before
    stage.console.print(
        f"The upstream answers {GOOD_MODEL} with 500. The breaker of {_KEY} is"
        f" {stage.state()} after {failed} failures ({reached} requests)."
    )
    before = stage.upstream.total
    answers = [stage.once.call(GOOD_MODEL, f"too late {number}") for number in range(_REFUSED)]
    reached = stage.upstream.total - before
    refused = [one for one in answers if one.decision == "breaker_open"]
    times = sorted(one.seconds * 1000 for one in refused) or [0.0]
    stage.console.print(
        f"{len(refused)} of {_REFUSED} more calls are answered by the daemon:"
        f" {refused[0].status if refused else '-'} {refused[0].code if refused else '-'},"
        f" half of them within {statistics.median(times):.2f} ms, 99 of 100 within"
        f" {times[int(len(times) * 0.99) - 1]:.2f} ms. {reached} of them reached the upstream."
    )
    other = stage.through.call(OTHER_MODEL, "another model").status
    stage.console.print(f"Meanwhile {OTHER_MODEL}, another model of the same provider: {other}.")
    stage.claim("another model is answered", other == 200)
    stage.claim("open after exactly five failures", failed == _OPENS_AT)
    stage.claim("every later call is answered by the daemon", len(refused) == _REFUSED)
    stage.claim("none of them reaches the upstream", reached == 0)
    stage.pause()


def _recovery(stage: _Stage) -> None:
    _title(stage, "3. A recovery, one probe at a time")
    stage.upstream.health = Health.SLOW
    began = clock.monotonic()
    limit = began + 3 * stage.pace.open_for + 5
    while stage.state() == "open" and clock.monotonic() < limit:
        time.sleep(0.02)
    stage.console.print(
        f"The upstream is well again. {clock.monotonic() - began:.1f} s later the breaker is"
        f" {stage.state()}, and {_CALLS} callers ask at once."
    )
    table = Table("", "reach the upstream", "answered 200", "refused", "the breaker then is")
    table.box, table.pad_edge = None, False
    rounds = []
    for number in range(1, 4):
        before = stage.upstream.total
        prompts = [f"waiting {number}.{index}" for index in range(_CALLS)]
        answers = _together(stage.once, GOOD_MODEL, prompts)
        reached = stage.upstream.total - before
        good = sum(one.status == 200 for one in answers)
        refused = sum(one.decision == "breaker_open" for one in answers)
        state = stage.state()
        rounds.append((reached, state))
        table.add_row(f"{_CALLS} callers", str(reached), str(good), str(refused), state)
    stage.console.print()
    stage.console.print(table)
    expected = [(1, "half_open"), (1, "closed"), (_CALLS, "closed")]
    stage.claim("one probe at a time, closed after two, then everybody", rounds == expected)
    stage.pause()


def _epilogue(stage: _Stage) -> None:
    stage.console.print()
    stage.console.print(Rule(style="dim"))
    stage.console.print(
        "The same beside your own program:  breaker-sidecar run -- python agent.py", style="bold"
    )


def _title(stage: _Stage, text: str) -> None:
    stage.console.print()
    stage.console.print(Rule(text, align="left", style="dim"))


def _together(caller: Caller, model: str, prompts: list[str]) -> list[Answer]:
    """All at once, each from a thread of its own."""
    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(lambda prompt: caller.call(model, prompt), prompts))


@contextmanager
def _daemon(upstream: int, pace: Pace) -> Iterator[tuple[int, AdminClient]]:
    """A daemon of the demo's own, whatever this machine's configuration says."""
    data, admin = free_ports(2)
    address = Address("127.0.0.1", admin)
    environ = {k: v for k, v in os.environ.items() if not k.startswith("BREAKER_SIDECAR_")}
    with tempfile.TemporaryDirectory(prefix="breaker-sidecar-demo-") as folder:
        config = Path(folder, "breakers.yaml")
        config.write_text(
            f"""providers:
  openai:
    upstream: http://127.0.0.1:{upstream}
    dialect: openai
    breaker: {{open_for: {pace.open_for}s}}
""",
            encoding="utf-8",
        )
        options = ["--config", str(config), "--log-level", "error"]
        options += ["--listen", f"127.0.0.1:{data}", "--admin", str(address)]
        daemon = DaemonChild(options, environ, {})
        daemon.start()
        try:
            _await(lambda: is_ready(address), daemon)
            yield data, AdminClient(address)
        finally:
            daemon.drain()
            if daemon.child is not None:
                daemon.child.wait()
            daemon.close()


def _await(ready: Callable[[], bool], daemon: DaemonChild) -> None:
    limit = clock.monotonic() + 15
    while not ready():
        code = daemon.poll()
        if code is not None or clock.monotonic() > limit:
            raise CommandError(f"the daemon did not start (exit code {code})")
        time.sleep(0.02)
