"""The load: wrk where it is installed, else a small client of our own; streams always the latter.

Every run is bounded by seconds and by connections, and says what it saw: how many answers, how
long each took, which were not the ones expected.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from bench.peers import which

Result = TypeVar("Result")


@dataclass
class Seen:
    """What one run of load saw.

    Attributes:
        requests: answers that came whole.
        seconds: how long the run was.
        p50: median time of an answer, milliseconds.
        p99: time that 99 of 100 answers kept to, milliseconds.
        errors: answers of another status than expected, and connections that broke.
        size: bytes that were read.
        events: of streams.
        p999: time that 999 of 1,000 answers kept to, milliseconds.
    """

    requests: int
    seconds: float
    p50: float
    p99: float
    errors: int
    size: int = 0
    events: int = 0
    p999: float = 0.0

    @property
    def rate(self) -> float:
        return self.requests / self.seconds if self.seconds else 0.0


@dataclass
class Ask:
    """One kind of request."""

    method: str
    path: str
    body: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()

    def bytes_for(self, base: str) -> bytes:
        parts = urlsplit(base)
        lines = [
            f"{self.method} {parts.path}{self.path} HTTP/1.1",
            f"Host: {parts.netloc}",
            "Authorization: Bearer sk-bench-0123456789abcdef",
            "User-Agent: bench/1",
            "Accept: application/json",
            *(f"{name}: {value}" for name, value in self.headers),
        ]
        if self.body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(self.body)}"]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of them lie; 0 without any."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


# -- wrk ------------------------------------------------------------------------------------

LUA = """\
wrk.method = "%(method)s"
wrk.headers["Authorization"] = "Bearer sk-bench-0123456789abcdef"
wrk.headers["User-Agent"] = "bench/1"
wrk.headers["Accept"] = "application/json"
%(more)s
%(body)s
done = function(summary, latency)
  local bad = summary.errors.connect + summary.errors.read + summary.errors.write
            + summary.errors.timeout
  io.write(string.format(
    '\\n{"requests": %%d, "micros": %%d, "bytes": %%d, "p50": %%f, "p99": %%f, "p999": %%f, '
    .. '"status": %%d, "broken": %%d}\\n',
    summary.requests, summary.duration, summary.bytes,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9),
    summary.errors.status, bad))
end
"""
BODY = """\
wrk.headers["Content-Type"] = "application/json"
local file = io.open("%s", "rb")
wrk.body = file:read("*a")
file:close()
"""


class Wrk:
    """Runs wrk; one thread, so that it leaves the core to the upstream when it can."""

    name = "wrk"

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder

    def run(self, base: str, ask: Ask, *, connections: int, seconds: float) -> Seen:
        body = ""
        if ask.body:
            stored = self._folder / "body"
            stored.write_bytes(ask.body)
            body = BODY % stored
        more = "\n".join(f'wrk.headers["{name}"] = "{value}"' for name, value in ask.headers)
        script = self._folder / "load.lua"
        script.write_text(LUA % {"method": ask.method, "more": more, "body": body})
        whole = max(1, round(seconds))
        command = [self._program, "-t1", f"-c{connections}", f"-d{whole}s", "--timeout", "10s"]
        done = subprocess.run(
            [*command, "-s", str(script), base + ask.path],
            capture_output=True,
            text=True,
            timeout=whole + 30,
            check=False,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"requests"')]
        if not lines:
            return Seen(0, float(whole), 0.0, 0.0, errors=1)
        found = json.loads(lines[-1])
        wrong = found["status"]
        if ask.status >= 400:
            # wrk calls these errors; here the others would be.
            wrong = found["requests"] - found["status"]
        return Seen(
            requests=found["requests"],
            seconds=found["micros"] / 1e6,
            p50=found["p50"] / 1000,
            p99=found["p99"] / 1000,
            errors=wrong + found["broken"],
            size=found["bytes"],
            p999=found["p999"] / 1000,
        )


# -- our own --------------------------------------------------------------------------------

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_SENT_AT = re.compile(rb'"content":" (\d+)"')
_LAST_CHUNK = b"0\r\n\r\n"


@dataclass
class Tally:
    """Shared by the connections of one run."""

    deadline: float
    times: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    errors: int = 0
    size: int = 0
    events: int = 0
    merged: int = 0


class Caller(asyncio.Protocol):
    """One connection that asks again as soon as it is answered, until the time is over.

    Args:
        request: the bytes of the request.
        status: the status expected.
        tally: where the figures go.
        times: how often to ask; 0: until the deadline.
        stamped: look for the times that events were sent at.
    """

    def __init__(
        self, request: bytes, status: int, tally: Tally, *, times: int = 0, stamped: bool = False
    ) -> None:
        self._request = request
        self._status = b"%d" % status
        self._tally = tally
        self._times = times
        self._stamped = stamped
        self._transport: asyncio.Transport | None = None
        self._asked = 0.0
        self._buffer = b""
        self._left = 0
        self._in_body = False
        self._first_event = False
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def connection_lost(self, exc: BaseException | None) -> None:
        del exc
        if not self.done.done():
            self._tally.errors += 1
            self.done.set_result(None)

    def _ask(self) -> None:
        assert self._transport is not None
        self._buffer = b""
        self._in_body = self._first_event = False
        self._asked = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._stamped:
            self._look(data)
        if self._in_body:
            self._body(data)
            return
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        top = self._buffer[: end + 2]
        if top[9:12] != self._status:
            self._tally.errors += 1
        length = _LENGTH.search(top)
        # -1: chunked, and the end is looked for.
        self._left = int(length[1]) if length else -1
        self._in_body = True
        rest, self._buffer = self._buffer[end + 4 :], b""
        self._body(rest)

    def _look(self, data: bytes) -> None:
        now = time.monotonic_ns()
        tally = self._tally
        count = 0
        for sent in _SENT_AT.finditer(data):
            count += 1
            if not self._first_event:
                self._first_event = True
                tally.first.append((time.perf_counter() - self._asked) * 1000)
            tally.delays.append((now - int(sent[1])) / 1e6)
        tally.merged += max(0, count - 1)

    def _body(self, data: bytes) -> None:
        self._tally.size += len(data)
        if self._left < 0:
            self._tally.events += data.count(b"\ndata: ")
            self._buffer = (self._buffer + data)[-5:]
            if self._buffer == _LAST_CHUNK:
                self._answered()
            return
        self._left -= len(data)
        if self._left <= 0:
            self._answered()

    def _answered(self) -> None:
        now = time.perf_counter()
        self._tally.times.append((now - self._asked) * 1000)
        self._times -= 1
        if self._times == 0 or (self._times < 0 and now >= self._tally.deadline):
            self.done.set_result(None)
            assert self._transport is not None
            self._transport.close()
            return
        self._ask()


async def call(
    base: str,
    ask: Ask,
    *,
    connections: int,
    seconds: float = 0.0,
    times: int = 0,
    stamped: bool = False,
) -> tuple[Seen, Tally]:
    """Asks over so many connections at once, for a time or so many times each."""
    loop = asyncio.get_running_loop()
    parts = urlsplit(base)
    tally = Tally(time.perf_counter() + seconds)
    began = time.perf_counter()
    request = ask.bytes_for(base)

    async def one() -> None:
        try:
            _, caller = await loop.create_connection(
                lambda: Caller(request, ask.status, tally, times=times, stamped=stamped),
                parts.hostname,
                parts.port,
            )
        except OSError:
            tally.errors += 1
            return
        await caller.done

    async with asyncio.timeout(seconds + 60):
        await asyncio.gather(*(one() for _ in range(connections)))
    return (
        Seen(
            requests=len(tally.times),
            seconds=time.perf_counter() - began,
            p50=percentile(tally.times, 0.5),
            p99=percentile(tally.times, 0.99),
            errors=tally.errors,
            size=tally.size,
            events=tally.events,
            p999=percentile(tally.times, 0.999),
        ),
        tally,
    )


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine on the fastest loop there is."""
    try:
        import uvloop  # noqa: PLC0415

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(coroutine)


class Own:
    """The same as `Wrk`, slower: it may be the bottleneck before the fastest peers are."""

    name = "own client"

    def run(self, base: str, ask: Ask, *, connections: int, seconds: float) -> Seen:
        seen, _ = run(call(base, ask, connections=connections, seconds=seconds))
        return seen


def generator(folder: Path, *, quick: bool) -> Wrk | Own:
    """wrk counts in whole seconds: a smoke run has no time for it."""
    program = None if quick else which("wrk")
    return Own() if program is None else Wrk(program, folder)
