"""Does a call cost more where there is more of something? More breakers, more calls in the window,
more open streams, more rules: it should not.

Plain calls through a daemon of its own, over 16 connections; CPU time of the daemon's process.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from bench import load, machine
from bench.load import Ask
from bench.peers import Lab, Peer
from bench.upstream import REQUEST

PATH = "/v1/chat/completions"
CALLS = 2000
"""Of one measurement; the median of three counts."""

BREAKERS = (3, 4, 16, 64, 256, 1024)
ENTRIES = (1_000, 4_000, 16_000, 64_000)
STREAMS = (0, 250, 500, 1000, 2000)
RULES = (0, 10, 50, 200)
DIALECTS = ("groq", "sendgrid", "openai", "stripe", "google-apis", "bedrock", "openrouter")

Curve = list[tuple[float, float]]

CONFIG = """\
listen: 127.0.0.1:$port
admin: {listen: "127.0.0.1:$admin"}
providers:
  static: {upstream: "http://127.0.0.1:$static", dialect: $dialect}
  live: {upstream: "http://127.0.0.1:$live", dialect: openai}
defaults:
  limits: {in_flight: 8192}
$rules
"""


class Cycling(load.Caller):
    """A caller that asks one thing after another."""

    def __init__(self, requests: Iterator[bytes], tally: load.Tally, times: int) -> None:
        super().__init__(b"", 200, tally, times=times)
        self._requests = requests

    def _ask(self) -> None:
        self._request = next(self._requests)
        super()._ask()


def measure(lab: Lab, say: Callable[[str], None]) -> dict[str, Curve]:
    """CPU microseconds of a call by how many there are, for each of them."""
    curves: dict[str, Curve] = {}
    for name, curve in (
        ("breakers", _breakers),
        ("calls in the window", _entries),
        ("open streams", _streams),
        ("operator's rules", _rules),
        ("rules of the dialect", _dialects),
    ):
        curves[name] = curve(lab)
        say(f"growth: {name}: " + ", ".join(f"{x:g}: {y:.0f} µs" for x, y in curves[name]))
    return curves


@contextmanager
def _daemon(lab: Lab, rules: int = 0, dialect: str = "openai") -> Iterator[Peer]:
    port, admin = machine.free_ports(2)
    written = [
        f'    - {{name: rule {n}, when: {{status: 4{n % 90 + 10}, "body.error.code": "c{n}"}}, '
        "class: permanent}"
        for n in range(rules)
    ]
    config = lab.write(
        f"growth-{port}.yaml",
        CONFIG,
        port=port,
        admin=admin,
        static=lab.static_port,
        live=lab.live_port,
        dialect=dialect,
        rules="\n".join(["  rules:", *written]) if written else "",
    )
    command = [sys.executable, "-m", "sidecar", "serve", "--config", str(config)]
    process = lab.start(f"growth-{port}", command, [port, admin], core=lab.cores.proxy, seconds=60)
    base = f"http://127.0.0.1:{port}"
    peer = Peer("growth", f"{base}/static", f"{base}/live", process=process, admin=admin)
    peer.pids = machine.family(process.pid)
    try:
        _run(peer, [REQUEST], CALLS)
        yield peer
    finally:
        lab.end(process)


def _run(peer: Peer, bodies: list[bytes], calls: int) -> float:
    """CPU microseconds of one of so many calls."""
    before = machine.cpu_seconds(peer.pids)
    load.run(_ask(peer.static, bodies, calls))
    return (machine.cpu_seconds(peer.pids) - before) / calls * 1e6


async def _ask(base: str, bodies: list[bytes], calls: int, connections: int = 16) -> None:
    requests = itertools.cycle([Ask("POST", PATH, body).bytes_for(base) for body in bodies])
    parts = urlsplit(base)
    tally = load.Tally(time.perf_counter())
    loop = asyncio.get_running_loop()

    async def one() -> None:
        _, caller = await loop.create_connection(
            lambda: Cycling(requests, tally, calls // connections), parts.hostname, parts.port
        )
        await caller.done

    await asyncio.gather(*(one() for _ in range(connections)))
    if tally.errors:
        raise RuntimeError(f"{tally.errors} calls failed")


def _cost(peer: Peer, bodies: list[bytes]) -> float:
    return statistics.median(_run(peer, bodies, CALLS) for _ in range(3))


def _breakers(lab: Lab) -> Curve:
    curve: Curve = []
    with _daemon(lab) as peer:
        for count in BREAKERS:
            # Each of the two providers has one of its own. Of one more than a provider may have at
            # once, asked for in turn, one would be made for each call.
            others = [REQUEST.replace(b"gpt-bench-mini", b"gpt-%d" % n) for n in range(count - 3)]
            bodies = [REQUEST, *others]
            _run(peer, bodies, max(count, 16))
            curve.append((count, _cost(peer, bodies)))
    return curve


def _entries(lab: Lab) -> Curve:
    curve: Curve = []
    with _daemon(lab) as peer:
        made = CALLS
        for count in ENTRIES:
            if count > made:
                _run(peer, [REQUEST], count - made)
                made = count
            curve.append((made, _cost(peer, [REQUEST])))
            made += 3 * CALLS
    return curve


def _streams(lab: Lab) -> Curve:
    ask = Ask("POST", f"{PATH}?stream=2&gap=600000", REQUEST)
    curve: Curve = []
    with _daemon(lab) as peer:
        for count in STREAMS:
            curve.append((count, load.run(_beside(peer, ask, count))))
    return curve


async def _beside(peer: Peer, ask: Ask, count: int) -> float:
    parts = urlsplit(peer.live)
    request = ask.bytes_for(peer.live)

    async def one() -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(request)
        await reader.readuntil(b"data: ")
        return writer

    writers = []
    for begin in range(0, count, 250):
        writers += await asyncio.gather(*(one() for _ in range(min(250, count - begin))))
    costs = []
    for _ in range(3):
        before = machine.cpu_seconds(peer.pids)
        await _ask(peer.static, [REQUEST], CALLS)
        costs.append((machine.cpu_seconds(peer.pids) - before) / CALLS * 1e6)
    for writer in writers:
        writer.close()
    await asyncio.sleep(0.5)
    return statistics.median(costs)


def _rules(lab: Lab) -> Curve:
    curve: Curve = []
    for count in RULES:
        with _daemon(lab, rules=count) as peer:
            curve.append((count, _cost(peer, [REQUEST])))
    return curve


def _dialects(lab: Lab) -> Curve:
    from sidecar.envelope import dialects  # noqa: PLC0415 - only the lengths of their tables

    curve: Curve = []
    for name in DIALECTS:
        rules = len(dialects.get(name).table._rules)  # noqa: SLF001
        with _daemon(lab, dialect=name) as peer:
            curve.append((rules, _cost(peer, [REQUEST])))
    return sorted(curve)
