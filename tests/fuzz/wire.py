"""A whole daemon between a hostile caller and a hostile upstream, on real sockets.

Every exchange is drawn from a seed of its own: bytes of a request, bytes of an answer, the pieces
and the pauses in which they come, and how each side ends. Well-behaved calls run beside them over
the same pools of connections, and must get exactly their own bytes. After each round nothing may be
left: no call, place, probe, task, connection or descriptor; and no fault was stated on the way.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import h11
import yaml

from bench.load import run as run_on_the_fastest_loop
from sidecar import clock
from sidecar.config.load import load
from sidecar.daemon import Daemon, Options
from sidecar.proxy import connection as connection_module
from sidecar.proxy import relay as relay_module
from sidecar.proxy.websocket import close_frame
from sidecar.telemetry.observer import CallFinished, Fault

from . import promises
from .mutate import Mutator
from .targets import CORPUS, exchange_of, exchanges

CALLERS = 48
"""Hostile exchanges at once."""

GOOD_CALLERS = 4

LONGEST = 8.0
"""Seconds after which a caller that waits for its answer was forgotten; every clock is shorter."""

READ_SLOWLY = 20_000
"""Bytes that a slow caller takes its time for, 10 KB a second: well within `LONGEST`."""

HELD = 1.0
"""Seconds of work between two turns of the loop that no round of such small messages needs."""

TIMEOUTS = {
    "connect": 0.5, "first_byte": 0.4, "first_content": 0.4, "idle": 0.4, "total": 3.0,
    "abandoned": 0.3, "hold": 0.05, "keep_alive": 0.5, "client": 0.5,
}  # fmt: skip
DIALECTS = {
    "openai": {}, "anthropic": {}, "gemini": {}, "bedrock": {}, "auto": {}, "generic": {"on_reclassified": "annotate"},
    "sidecar": {}, "mcp": {}, "grpc-web": {}, "ollama": {}, "slack": {},
}  # fmt: skip
ENFORCING = {"strict": "openai", "retrying": "anthropic", "narrow": "auto"}


def document(upstream: str) -> dict[str, Any]:
    """Providers of many dialects in front of one upstream."""
    observing = {
        name: {"upstream": upstream, "dialect": name, "mode": "observe", **more}
        for name, more in DIALECTS.items()
    }
    enforcing = {
        name: {"upstream": upstream, "dialect": dialect, "mode": "enforce"}
        for name, dialect in ENFORCING.items()
    }
    enforcing["strict"]["breaker"] = {"open_for": 0.2, "open_max": 0.5}
    enforcing["retrying"]["retry"] = {"attempts": 2, "budget": 1.0, "methods": ["GET", "POST"]}
    enforcing["narrow"]["limits"] = {
        "in_flight": 2,
        "request_body": "4KiB",
        "classify_body": "1KiB",
    }
    return {
        "listen": "127.0.0.1:0",
        "admin": {"listen": "127.0.0.1:0"},
        "faults": {"allowed": True},
        "defaults": {"timeouts": TIMEOUTS, "shedding": {"max_wait": 0.1}},
        "providers": {**observing, **enforcing, "off": {"upstream": upstream, "mode": "off"}},
    }


# -- what both sides do ---------------------------------------------------------------------


@dataclass
class Play:
    """One hostile exchange: what the caller sends, what the upstream answers, and how they end."""

    number: int
    provider: str
    sends: list[tuple[bytes, float]]
    then: str
    answers: list[tuple[bytes, float]]
    finally_: str
    reads: str

    def as_json(self) -> str:
        def told(pieces: list[tuple[bytes, float]]) -> list[Any]:
            return [[base64.b64encode(data).decode(), pause] for data, pause in pieces]

        return json.dumps({**vars(self), "sends": told(self.sends), "answers": told(self.answers)})

    @classmethod
    def from_json(cls, line: str | bytes) -> Play:
        def read(pieces: list[Any]) -> list[tuple[bytes, float]]:
            return [(base64.b64decode(data), pause) for data, pause in pieces]

        fields = json.loads(line)
        fields |= {name: read(fields[name]) for name in ("sends", "answers")}
        return cls(**fields)


HEADERS = [
    b"Content-Type: application/json", b"Content-Type: text/event-stream", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked", b"Content-Length: 5", b"Content-Length: 0", b"Content-Length: 99999",
    b"Content-Encoding: gzip", b"Connection: close", b"Connection: keep-alive, x-a", b"Expect: 100-continue",
    b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Key: x", b"Retry-After: 1", b"TE: trailers",
    b"X-Correlation-Id: \xff\xfe", b"x-sidecar-decision: forwarded", b"X-Error-Envelope: {}", b"Host: evil.test",
    b"Accept: application/vnd.error-envelope+json", b"Origin: http://evil.test", b"Cookie: " + b"a=b; " * 200,
    b"X: \0", b" folded", b"X-A : b", b": no name", b"Content-Length: 5, 5", b"Trailer: x", b"Via: 1.1 a",
    b"Idempotency-Key: k", b"grpc-status: 14", b"Range: bytes=0-1", b"X" * 9000 + b": y",
]  # fmt: skip
FAULTS = [
    b"class=transient", b"class=rate_limit; retry_after=7", b"kind=reset", b"kind=refuse", b"kind=hang",
    b"kind=cut; events=1", b"kind=error_event; class=permanent; events=1", b"kind=wrong_length; class=validation",
    b"kind=fake_200; class=authentication; breakers=true", b"kind=dribble", b"kind=delay; after=50ms", b"kind=\xff",
]  # fmt: skip
"""Lines that somebody somewhere reads in their own way."""

TOKENS = (
    *(line + b"\r\n" for line in HEADERS), b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n",
    b"GET /up/x HTTP/1.1\r\n", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"0\r\n\r\n", b"5\r\nabcde\r\n",
    b"5;ext=1\r\nabcde\r\n", b"ffffffffffffffff\r\n", b"-1\r\n", b"\n\n", b"\r", b"%00", b"..", b"//", b"@", b"#",
)  # fmt: skip


class Plays:
    """Draws exchanges.

    Args:
        upstream_path: how a target of the hostile kind is marked.
    """

    def __init__(self) -> None:
        self._exchanges = exchanges()

    def draw(self, seed: int, number: int) -> Play:
        """The exchange of a seed."""
        random = Random(seed)
        known = exchange_of(random.choice(self._exchanges))
        provider = random.choice([*DIALECTS, *ENFORCING, "off"])
        mark = f"/{provider}/h/{number}".encode()
        if random.random() < 0.06:
            asked, answered = self._conversation(random, mark)
        else:
            asked, answered = self._request(random, known, mark), self._answer(random, known)
        dice = random.random()
        if dice < 0.45:
            asked = self._mutated(random, asked)
        if dice > 0.35:
            answered = self._mutated(random, answered)
        return Play(
            number=number,
            provider=provider,
            sends=_pieces(random, asked),
            then=random.choices(["wait", "close", "reset", "half"], [8, 1, 1, 1])[0],
            answers=_pieces(random, answered),
            finally_=random.choices(["keep", "close", "reset", "hang"], [5, 3, 2, 1])[0],
            reads=random.choices(["all", "slowly", "nothing", "leaves"], [12, 1, 1, 2])[0],
        )

    def _conversation(self, random: Random, mark: bytes) -> tuple[bytes, bytes]:
        """A WebSocket: what each side sends, its frames right behind its head."""
        said = [
            b"\x81\x05hello", b"\x82\x7e\x01\x00" + b"x" * 256, b"\x89\x00", b"\x81\xff" + b"\xff" * 8, b"\x01\x03abc",
            close_frame(1011, "in trouble", masked=False), close_frame(1000, "", masked=False), b"\x88\x01\x03",
            close_frame(1000, "bye", masked=True), b"\x00", b"",
        ]  # fmt: skip
        asked = (
            b"GET "
            + mark
            + b"/v1/realtime?model=m HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
            b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n"
        )
        answered = b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
        words = [b"".join(random.choices(said, k=random.randrange(4))) for _ in range(2)]
        return asked + words[0], answered + words[1]

    def _mutated(self, random: Random, data: bytes) -> bytes:
        others = [data, self._answer(random, exchange_of(random.choice(self._exchanges)))]
        return Mutator(random, others, TOKENS).mutated(data)

    def _request(self, random: Random, known: Any, mark: bytes) -> bytes:
        """One request, or a few behind each other."""
        whole = b""
        for _ in range(random.choice((1, 1, 1, 1, 2, 3))):
            body = b'{"model": "m-%d", "stream": true, "messages": []}' % random.randrange(4)
            body = random.choice((body, b"", b"x" * random.choice((10, 5000, 300_000)), known.body))
            method = random.choice(
                (known.method.encode("latin-1"), b"POST", b"GET", b"HEAD", b"PUT", b"OPTIONS")
            )
            lines = [
                method + b" " + mark + known.path.encode("latin-1") + b" HTTP/1.1",
                b"Host: localhost",
            ]
            lines += random.sample(HEADERS, random.choice((0, 0, 0, 1, 2, 4)))
            if random.random() < 0.1:
                lines.append(b"x-sidecar-fault: " + random.choice(FAULTS))
            if random.random() < 0.3:
                lines.append(b"Transfer-Encoding: chunked")
                body = (
                    b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in _cut(random, body))
                    + b"0\r\n\r\n"
                )
            elif body or random.random() < 0.3:
                lines.append(b"Content-Length: %d" % len(body))
            whole += b"\r\n".join(lines) + b"\r\n\r\n" + body
        return whole

    def _answer(self, random: Random, known: Any) -> bytes:
        lines = [b"HTTP/1.1 %d X" % known.status]
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in known.headers]
        lines += [b"%b: %b" % pair for pair in pairs if pair[0]]
        lines += random.sample(HEADERS, random.choice((0, 0, 0, 1, 2)))
        body = known.body
        if random.random() < 0.4:
            lines.append(b"Transfer-Encoding: chunked")
            body = (
                b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in _cut(random, body))
                + b"0\r\n\r\n"
            )
        elif random.random() < 0.9:
            lines.append(b"Content-Length: %d" % len(body))
        before = random.choice((b"", b"", b"", b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n"))
        return before + b"\r\n".join(lines) + b"\r\n\r\n" + body


def _cut(random: Random, data: bytes) -> list[bytes]:
    cuts = sorted(random.randint(0, len(data)) for _ in range(random.choice((0, 1, 3))))
    return [
        part for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if (part := data[a:b])
    ]


def _pieces(random: Random, data: bytes) -> list[tuple[bytes, float]]:
    pauses = (0.0, 0.0, 0.0, 0.0, 0.002, 0.02, 0.3 if random.random() < 0.05 else 0.0)
    if random.random() < 0.05 and len(data) < 300:
        return [(data[at : at + 1], 0.0) for at in range(len(data))]
    return [(part, random.choice(pauses)) for part in _cut(random, data)]


# -- the upstream ---------------------------------------------------------------------------


@dataclass
class Received:
    """A request as a strict server reads it."""

    target: bytes
    body: bytes = b""
    whole: bool = False


class Upstream(asyncio.Protocol):
    """One connection of the upstream: strict in what it reads, without shame in what it answers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._transport: asyncio.Transport | None = None
        self._reader = h11.Connection(h11.SERVER, max_incomplete_event_size=200_000)
        self._task: asyncio.Task[None] | None = None
        self._current: Received | None = None
        self._switched = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._world.upstreams.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._world.upstreams.discard(self)
        if self._task is not None:
            self._task.cancel()
        self._transport = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._switched:
            return
        if self._task is not None and self._current is not None and self._current.whole:
            # What it has not said yet would be taken for the answer to this: it could only lie.
            self.close()
            return
        self._reader.receive_data(data)
        self._next()

    def _next(self) -> None:
        while self._transport is not None:
            try:
                event = self._reader.next_event()
            except h11.RemoteProtocolError as error:
                # Nothing that the daemon sends may be read in two ways.
                self._world.broken.append(f"the upstream cannot read what was sent: {error}")
                self.close()
                return
            if isinstance(event, h11.Request):
                self._current = Received(bytes(event.target))
                self._world.requests.append(self._current)
                if b"/h/" in self._current.target and self._task is None:
                    # It may answer before it has read everything.
                    self._begin(self._current)
            elif isinstance(event, h11.Data):
                assert self._current is not None
                self._current.body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                assert self._current is not None
                self._current.whole = True
                if self._task is None:
                    self._begin(self._current)
            else:
                return

    def _begin(self, request: Received) -> None:
        self._task = asyncio.get_running_loop().create_task(self._answer(request))

    async def _answer(self, request: Received) -> None:
        good = request.target.partition(b"/c/")[2]
        if good:
            text = b"only for %b: " % good + b"*" * (int(good.split(b"-")[-1]) % 5000)
            self._write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n"
                % len(text)
                + text
            )
            self._again()
            return
        play = self._world.play_of(request.target)
        if play is None:
            self._write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            self._again()
            return
        # From here on it hears frames, and no requests.
        self._switched = b" 101 " in b"".join(data for data, _ in play.answers)
        for data, pause in play.answers:
            if pause:
                await asyncio.sleep(pause)
            self._write(data)
        if play.finally_ == "close" and self._transport is not None:
            self._transport.close()
        elif play.finally_ == "reset":
            self._reset()
        elif play.finally_ == "hang":
            await asyncio.sleep(LONGEST / 2)
            self.close()
        else:
            deadline = time.monotonic() + LONGEST / 2
            while not request.whole and time.monotonic() < deadline:
                await asyncio.sleep(0.02)
            self._again()

    def _again(self) -> None:
        """Reads the next request on this connection, as a server does that keeps it."""
        self._task = None
        if self._transport is None:
            return
        with contextlib.suppress(h11.LocalProtocolError):
            self._reader.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            self._reader.send(h11.EndOfMessage())
            self._reader.start_next_cycle()
            self._next()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _reset(self) -> None:
        if self._transport is None:
            return
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()


# -- the world ------------------------------------------------------------------------------


@dataclass
class World:
    """The daemon under test and everything that is counted about it."""

    daemon: Daemon
    server: asyncio.Server
    plays: dict[int, Play] = field(default_factory=dict)
    requests: list[Received] = field(default_factory=list)
    upstreams: set[Upstream] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    calls: list[CallFinished] = field(default_factory=list)
    good: int = 0
    lag: float = 0.0

    @property
    def port(self) -> int:
        return int(self.daemon.addresses["listen"][0].rpartition(":")[2])

    def play_of(self, target: bytes) -> Play | None:
        digits = target.partition(b"/h/")[2][:9].split(b"/")[0]
        return self.plays.get(int(digits)) if digits.isdigit() else None

    def hear(self, fact: Any) -> None:
        if isinstance(fact, Fault):
            self.faults.append(fact)
        elif isinstance(fact, CallFinished):
            self.calls.append(fact)


@contextlib.asynccontextmanager
async def world() -> AsyncIterator[World]:
    """A daemon in this loop, with clocks so short that nothing has to be waited for."""
    loop = asyncio.get_running_loop()
    held: list[World] = []
    server = await loop.create_server(lambda: Upstream(held[0]), "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="fuzz-wire-"))
    file = folder / "breakers.yaml"
    file.write_text(yaml.safe_dump(document(f"http://127.0.0.1:{port}")))
    daemon = Daemon(Options(config=file), load(file, environ={}))
    patches = [
        mock.patch.object(connection_module, "LINGER", 0.3),
        mock.patch.object(connection_module, "REFUSED_LINGER", 0.05),
        mock.patch.object(relay_module, "TERMINATED_GRACE", 0.2),
    ]
    for patch in patches:
        patch.start()
    await daemon.start()
    found = World(daemon, server)
    held.append(found)
    daemon.observer.add(found.hear)
    try:
        yield found
    finally:
        await daemon.close()
        server.close()
        for one in list(found.upstreams):
            one.close()
        await server.wait_closed()
        for patch in patches:
            patch.stop()


# -- the callers ----------------------------------------------------------------------------


async def hostile(world: World, play: Play) -> None:
    """Plays the caller's part, and looks at what comes back."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port, limit=2**22)
    except OSError as error:
        world.broken.append(f"no connection: {error}")
        return
    came = b""
    try:
        async with asyncio.timeout(LONGEST):
            reading = asyncio.ensure_future(_read(reader, play))
            try:
                for data, pause in play.sends:
                    if pause:
                        await asyncio.sleep(pause)
                    if writer.is_closing() or reading.done():
                        break
                    writer.write(data)
                    with contextlib.suppress(ConnectionError):
                        await asyncio.wait_for(writer.drain(), 1)
            except TimeoutError:
                pass
            if play.then == "close":
                writer.close()
            elif play.then == "reset":
                _reset(writer)
            elif play.then == "half":
                with contextlib.suppress(OSError, RuntimeError):
                    writer.write_eof()
            came = await reading
    except TimeoutError:
        world.broken.append(f"play {play.number}: neither answered nor closed within {LONGEST} s")
    finally:
        writer.transport.abort()
    _look(world, play, came)


async def _read(reader: asyncio.StreamReader, play: Play) -> bytes:
    """Everything until the other side closes; the daemon closes whoever falls silent."""
    came = b""
    if play.reads == "nothing":
        await asyncio.sleep(1.2)
    # Closing one half of a connection that is gone is an OSError of no better kind.
    with contextlib.suppress(OSError):
        while True:
            slowly = play.reads == "slowly" and len(came) < READ_SLOWLY
            if slowly:
                await asyncio.sleep(0.01)
            part = await reader.read(100 if slowly else 65536)
            if not part or (play.reads == "leaves" and came):
                break
            came += part
            if len(came) > 4_000_000:
                break
    return came


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _look(world: World, play: Play, came: bytes) -> None:
    """Answers of the daemon's own carry an envelope; nobody gets what was meant for another."""
    if b"only for " in came and b"/c/" not in b"".join(data for data, _ in play.sends):
        world.broken.append(f"play {play.number}: bytes of another call")
    for head in _heads(came):
        lines = head.split(b"\r\n")
        fields = {
            name.lower(): value.strip()
            for line in lines[1:]
            for name, _, value in [line.partition(b":")]
        }
        decision = fields.get(b"x-sidecar-decision")
        told = fields.get(b"x-error-envelope")
        try:
            assert lines[0][9:12].isdigit(), "an answer has a status"
            assert decision is not None, "every answer says who decided"
            assert fields.get(b"x-correlation-id"), "every answer has a correlation id"
            if decision != b"forwarded" and play.provider != "sidecar":
                assert told is not None, "an answer of the daemon's own carries an envelope"
            if told is not None and play.provider != "sidecar":
                promises.check_told(json.loads(told), fields=promises.FIELDS[:-1])
                status = int(lines[0][9:12])
                if decision != b"forwarded":
                    assert status >= 400
        except (AssertionError, ValueError) as error:
            world.broken.append(f"play {play.number}: {error}: {head[:400]!r}")


def _heads(came: bytes) -> list[bytes]:
    """The heads of the answers that can be told for sure: the first, and those behind sized bodies."""
    found = []
    while came.startswith(b"HTTP/1.1 ") and b"\r\n\r\n" in came:
        head, _, rest = came.partition(b"\r\n\r\n")
        if head.startswith(b"HTTP/1.1 100"):
            came = rest
            continue
        found.append(head)
        lengths = [
            line.partition(b":")[2].strip()
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        ]
        if len(lengths) != 1 or b"x-sidecar-decision: forwarded" in head.lower():
            break
        came = rest[int(lengths[0]) :]
    return found


async def good(world: World, ends: Callable[[], bool]) -> None:
    """Calls that are well over one connection, until they are told to stop."""
    names = list(DIALECTS)
    reader = writer = None
    while not ends():
        world.good += 1
        number = world.good
        name = names[number % len(names)]
        body = b'{"model": "good-%d", "pad": "%b"}' % (number, b"#" * (number % 700))
        mark = b"%d-%d" % (number, number * 37)
        if writer is None:
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        assert reader is not None
        try:
            async with asyncio.timeout(LONGEST):
                writer.write(
                    b"POST /%b/c/%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%b" % (name.encode(), mark, len(body), body)
                )
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                answer = await reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            if world.lag < 0.1:
                world.broken.append(f"a good call to {name} failed: {error!r}")
            writer.close()
            reader = writer = None
            continue
        wanted = b"only for %b: " % mark + b"*" * (number * 37 % 5000)
        # A machine that has no time for this process is nobody's fault.
        stale = b"connection_closed" in head or (b"_timeout" in head and world.lag > 0.1)
        if not stale and (not head.startswith(b"HTTP/1.1 200") or answer != wanted):
            world.broken.append(f"a good call to {name} got {head[:300]!r} {answer[:200]!r}")
        seen = [one for one in world.requests[-4000:] if one.target.endswith(b"/c/" + mark)]
        if not stale and (len(seen) != 1 or seen[0].body != body):
            world.broken.append(f"a good call to {name} arrived as {seen!r}"[:500])
        await asyncio.sleep(0.005)
    if writer is not None:
        writer.close()


# -- rounds ---------------------------------------------------------------------------------


async def one_round(world: World, plays: list[Play]) -> None:
    """Some exchanges at once, good calls beside them, and a look at what is left."""
    for play in plays:
        world.plays[play.number] = play
    before = len(world.calls)
    over = False
    world.lag = 0.0
    watch = asyncio.ensure_future(_watch(world))
    others = [asyncio.ensure_future(good(world, lambda: over)) for _ in range(GOOD_CALLERS)]
    await asyncio.gather(*(hostile(world, play) for play in plays))
    over = True
    await asyncio.gather(*others)
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    await settled(world)
    attempts = sum(call.attempts for call in world.calls[before:])
    if len(world.requests) > attempts:
        world.broken.append(f"{len(world.requests)} requests arrived of {attempts} that were sent")
    world.plays.clear()
    world.requests.clear()
    world.calls.clear()


async def _watch(world: World) -> None:
    """How long the loop was away, and whether it was this process that held it."""
    while True:
        wall, own = time.monotonic(), time.thread_time()
        await asyncio.sleep(0.02)
        world.lag = max(world.lag, time.monotonic() - wall - 0.02)
        if time.thread_time() - own > HELD:
            world.broken.append(f"the loop was held for {time.thread_time() - own:.2f} s of work")


async def settled(world: World) -> None:
    """Waits until everything is over, and says what is left if it does not end."""
    daemon = world.daemon
    deadline = time.monotonic() + LONGEST
    left = _left(daemon)
    while left and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
        left = _left(daemon)
    if left:
        world.broken.append(f"left behind: {left}")


def _left(daemon: Daemon) -> list[str]:
    plane, now = daemon.plane, clock.monotonic()
    left = [f"{plane.active} calls"] if plane.active else []
    if plane._connections:
        left.append(f"{len(plane._connections)} connections of callers")
    for name, runtime in plane.runtimes.items():
        for what, count in (
            ("in flight", runtime.in_flight),
            ("places", runtime.bulkhead.held),
            ("waiting", runtime.bulkhead.waiting),
        ):
            if count:
                left.append(f"{name}: {count} {what}")
        for shot in daemon.registry.snapshots(name, now):
            if shot.in_flight or shot.probes_in_flight:
                left.append(f"{shot.key}: {shot.in_flight} permits, {shot.probes_in_flight} probes")
    return left


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@dataclass
class Outcome:
    """What a run came to."""

    plays: int
    good: int
    broken: list[str]
    last: list[Play]


async def run(
    seed: int, *, rounds: int = 10**9, seconds: float = 1e9, at_once: int = CALLERS
) -> Outcome:
    """Rounds until one of them breaks a promise, or the time is over."""
    drawn, dice, number = Plays(), Random(seed), 0
    ends = time.monotonic() + seconds
    async with world() as found:
        await one_round(found, [])
        await _at_rest(found)
        tasks, files = len(asyncio.all_tasks()), descriptors()
        plays: list[Play] = []
        for _ in range(rounds):
            if time.monotonic() > ends or found.broken or found.faults:
                break
            plays = [drawn.draw(dice.getrandbits(48), number + place) for place in range(at_once)]
            number += at_once
            await one_round(found, plays)
        broken = found.broken + [f"fault in {one.where}: {one.error!r}" for one in found.faults]
        await _at_rest(found)
        if len(asyncio.all_tasks()) > tasks:
            broken.append(
                f"{len(asyncio.all_tasks()) - tasks} tasks are left: {asyncio.all_tasks()}"
            )
        if descriptors() > files:
            broken.append(f"{descriptors() - files} descriptors are left")
        return Outcome(number, found.good, broken, plays)


async def _at_rest(world: World) -> None:
    """No connection is kept to the upstream any more."""
    world.daemon.plane.drop_idle()
    for one in list(world.upstreams):
        one.close()
    deadline = time.monotonic() + LONGEST
    while world.upstreams and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.6)


def run_for(seconds: float, seed: int, found: Path) -> int:
    """The long run. A round that breaks a promise is written down, then each of its exchanges alone."""
    outcome = run_on_the_fastest_loop(run(seed, seconds=seconds))
    sys.stdout.write(f"wire: {outcome.plays} exchanges, {outcome.good} good calls, seed {seed}\n")
    if not outcome.broken:
        return 0
    for line in outcome.broken[:20]:
        sys.stdout.write(f"wire: {line[:1000]}\n")
    found.mkdir(exist_ok=True)
    (found / f"wire-round-{seed}").write_text("\n".join(play.as_json() for play in outcome.last))
    for play in outcome.last:
        broken = run_on_the_fastest_loop(_alone([play]))
        if broken:
            file = found / f"wire-{seed}-{play.number}"
            file.write_text(play.as_json())
            sys.stdout.write(f"wire: {file}, alone: {broken[0][:500]}\n")
    return 1


async def _alone(plays: list[Play]) -> list[str]:
    async with world() as found:
        await one_round(found, plays)
        return found.broken + [f"fault in {one.where}: {one.error!r}" for one in found.faults]


def replay(data: bytes) -> None:
    """Plays what was written down."""
    plays = [Play.from_json(line) for line in data.splitlines() if line.strip()]
    broken = run_on_the_fastest_loop(_alone(plays))
    assert not broken, broken


def kept() -> list[Path]:
    return sorted((CORPUS / "wire").glob("*"))
