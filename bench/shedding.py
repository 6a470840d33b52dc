"""What a rate limit costs: the caller's goodput, the upstream's refusals, and the loop's latency.

An upstream with a true token bucket (10 a second) is offered 30 a second for a minute, then the
bucket doubles. It says how long to wait in whole seconds, or not at all. Last, thousands of callers
wait at one gate, and leave, are shed and are served in random order.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import select
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench import load, machine
from bench.peers import clean_environment
from bench.upstream import COMPLETED, head

if TYPE_CHECKING:
    from bench.scenarios import Bench

Values = dict[str, float]

RATE, OFFERED = 10.0, 30.0

FOLLOWS = 20.0
"""Seconds in which the rate is to follow a bucket that has doubled."""

CONFIG = """\
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin}"}}
providers:
  up: {{upstream: "http://127.0.0.1:{upstream}", dialect: openai}}
  crowd:
    upstream: "http://127.0.0.1:{upstream}"
    dialect: openai
    shedding: {{max_queue: 100000, max_wait: 3s, min_rate: 300, sustained: {{count: 1, ratio: 0}}}}
"""

LIMITED = json.dumps(
    {"error": {"message": "Slow down", "type": "requests", "code": "rate_limit_exceeded"}}
).encode()


@dataclass
class Bucket:
    """The upstream: so many a second, and as many at once; None says nothing of the wait."""

    rate: float = RATE
    hint: int | None = None
    level: float = RATE
    at: float = field(default_factory=time.monotonic)
    taken: int = 0
    refused: int = 0

    def answer(self) -> bytes:
        now = time.monotonic()
        self.level = min(self.rate, self.level + (now - self.at) * self.rate)
        self.at = now
        if self.level >= 1:
            self.level -= 1
            self.taken += 1
            return COMPLETED
        self.refused += 1
        wait = b""
        if self.hint is not None:
            seconds = max(self.hint, math.ceil((1 - self.level) / self.rate))
            wait = b"Retry-After: %d\r\n" % seconds
        top = head(b"429 Too Many Requests", b"application/json", len(LIMITED))
        return top[:-2] + wait + b"\r\n" + LIMITED

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                top = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in top.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                )
                await reader.readexactly(length)
                writer.write(self.answer())
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@dataclass
class Place:
    """Where everything listens."""

    port: int
    admin: int
    bucket: Bucket


async def ask(place: Place, provider: str, number: int) -> tuple[int, str]:
    """Status and decision of one call on a connection of its own."""
    body = b'{"model": "gpt-bench", "n": %d}' % number
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    try:
        writer.write(
            b"POST /%b/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Authorization: Bearer sk-bench\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (provider.encode(), len(body), body)
        )
        top = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    finally:
        writer.close()
    decision = top.lower().partition("x-sidecar-decision: ")[2].partition("\r")[0]
    return int(top[9:12]), decision


async def rate_shown(place: Place) -> tuple[float, str]:
    """The rate of the gate and the state of the breaker, as /status shows them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", place.admin)
    writer.write(b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    document = json.loads((await reader.read()).partition(b"\r\n\r\n")[2])
    writer.close()
    provider = document["providers"]["up"]
    (gate,) = provider["shedding"] or [{"rate": None}]
    return gate["rate"] or 0.0, provider["breakers"]["up/gpt-bench"]["state"]


async def offer(place: Place, seconds: float, *, doubling: float) -> Values:
    """Offers three times what the bucket allows; then the bucket doubles."""
    bucket = place.bucket
    before = Counter(taken=bucket.taken, refused=bucket.refused)
    good, longest, states = 0, 0.0, set()
    calls: list[asyncio.Task[None]] = []
    began = time.monotonic()

    async def one(number: int) -> None:
        nonlocal good, longest
        asked = time.monotonic()
        status, _ = await ask(place, "up", number)
        good += status == 200
        longest = max(longest, time.monotonic() - asked)

    follows = math.inf
    steady: Values = {}
    for number in range(int((seconds + doubling) * OFFERED)):
        now = time.monotonic() - began
        if now >= seconds and bucket.rate == RATE:
            taken = bucket.taken - before["taken"]
            refused = bucket.refused - before["refused"]
            steady = {
                "goodput": taken / (RATE * seconds),
                "refused": refused / (taken + refused),
            }
            bucket.rate *= 2
        calls.append(asyncio.create_task(one(number)))
        if not number % 15:
            rate, state = await rate_shown(place) if number > 30 else (0.0, "closed")
            states.add(state)
            if now > seconds and math.isinf(follows) and rate >= 1.9 * RATE:
                follows = now - seconds
        await asyncio.sleep(began + (number + 1) / OFFERED - time.monotonic())
    await asyncio.gather(*calls)
    found = {**steady, "longest_ms": longest * 1000, "errors": len(states - {"closed"})}
    # A quick run is too short to tell.
    return found if doubling < FOLLOWS else {**found, "follows_s": follows}


async def crowd(place: Place, count: int) -> Values:
    """So many callers wait at one gate and leave, are shed, or are served; how late is /healthz?"""
    place.bucket.rate, place.bucket.level, place.bucket.at = 300.0, 0.0, time.monotonic()
    draw = random.Random(1)
    ends = Counter[str]()

    async def one(number: int) -> None:
        try:
            async with asyncio.timeout(draw.choice([draw.random() * 3, 30])):
                _, decision = await ask(place, "crowd", number)
                ends[decision] += 1
        except (TimeoutError, OSError):
            ends["left"] += 1

    watching = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.shedding",
        str(place.admin),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=clean_environment(),
    )
    calls = []
    for number in range(count):
        calls.append(asyncio.create_task(one(number)))
        if not number % 20:
            await asyncio.sleep(0.005)
    await asyncio.gather(*calls)
    seen, _ = await watching.communicate(b"enough")
    return {"calls": count, "late_ms": float(seen), **{key: float(n) for key, n in ends.items()}}


def watch(admin: int) -> float:
    """The longest that /healthz took until standard input ended, in milliseconds.

    In a process of its own: the callers' loop is busier than the daemon's.
    """
    late = 0.0
    with socket.create_connection(("127.0.0.1", admin)) as connection:
        while not select.select([sys.stdin], [], [], 0.01)[0]:
            asked = time.monotonic()
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(65536)
            late = max(late, time.monotonic() - asked)
    return late * 1000


async def measure_one(bench: Bench, name: str, hint: int | None) -> Values:
    """A daemon and a bucket of their own."""
    bucket = Bucket(hint=hint)
    server = await asyncio.start_server(bucket.serve, "127.0.0.1", 0, backlog=4096)
    upstream = server.sockets[0].getsockname()[1]
    port, admin = machine.free_ports(2)
    file = bench.lab.folder / f"shedding-{name}.yaml"
    file.write_text(CONFIG.format(port=port, admin=admin, upstream=upstream))
    command = [sys.executable, "-m", "sidecar", "serve", "--config", str(file)]
    process = await asyncio.to_thread(
        bench.lab.start, f"shedding-{name}", command, [port, admin], core=bench.lab.cores.proxy
    )
    place = Place(port, admin, bucket)
    quick = bench.plan.quick
    try:
        if name == "crowd":
            return await crowd(place, 200 if quick else 3000)
        seconds = 4.0 if quick else 60.0
        return await offer(place, seconds, doubling=2.0 if quick else FOLLOWS)
    finally:
        bench.lab.end(process)
        server.close()


def shedding(bench: Bench) -> None:
    """Three times the load for a minute, twice; and thousands who wait at one gate."""
    found = bench.results.setdefault("shedding", {})
    for name, hint in (("whole seconds", 1), ("no hint", None)):
        label = name.replace(" ", "-")
        values = load.run(measure_one(bench, label, hint))
        found[name] = {key: [value] for key, value in values.items()}
        bench.say(f"  shedding: {name} done")
    values = load.run(measure_one(bench, "crowd", 1))
    found["crowd"] = {key: [value] for key, value in values.items()}
    bench.say("  shedding: crowd done")


if __name__ == "__main__":
    print(watch(int(sys.argv[1])))
