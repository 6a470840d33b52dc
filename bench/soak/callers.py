"""The callers: as many at once as are asked for, and a line for each call of what became of it.

They go by what is on the wire alone. An id is in the query, in the body and in `x-request-id`, and
an answer counts as whole only if every byte of it belongs to that id.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from contextlib import suppress
from typing import NamedTuple

from bench.soak import calls
from bench.soak.process import CLIENT

LONGEST = 30.0
"""Seconds after which a call that has no end yet has none; every clock of the daemon is shorter."""


CUT = (b"stream_truncated", b"_timeout", b"connection_", b"draining")
"""In the last event of a stream that the daemon had ended before its caller left."""

PAUSE = 0.05
"""Seconds for which a caller waits that was not let through: else most calls were refusals."""


class Seen(NamedTuple):
    """What one caller saw of one call.

    Attributes:
        id: of the call.
        kind: which one it was.
        model: that it asked for.
        began: when it was sent, monotonic seconds.
        over: when it was over.
        ending: `whole`; `cut` (a head, and no clean end); `left` (the caller did); `thrown` (a
            stuck caller was cut); `nothing` (closed without a byte); `unreachable` (no connection);
            `endless`.
        status: 0 without a head.
        decision: of `x-sidecar-decision`.
        code: of the envelope, in the head or in the last event.
        verdict: of `x-sidecar-verdict`.
        breaker: of `x-sidecar-breaker`.
        wrong: what was wrong with what came; empty if nothing was.
    """

    id: str
    kind: str
    model: str
    began: float
    over: float
    ending: str
    status: int = 0
    decision: str = ""
    code: str = ""
    verdict: str = ""
    breaker: str = ""
    wrong: str = ""


class _Head(NamedTuple):
    status: int
    fields: dict[str, str]


class Callers:
    """Calls until they are told to stop.

    Args:
        port: the daemon's.
        admin: the port of its admin plane.
        seed: of what is drawn.

    Attributes:
        seen: what became of each call.
        reports: of the dependency, by how they ended.
    """

    def __init__(self, port: int, admin: int, seed: int) -> None:
        self._port = port
        self._admin = admin
        self._random = random.Random(seed)
        self._stop = False
        self._number = 0
        self._drawn = [name for name, kind in calls.KINDS.items() for _ in range(kind.weight)]
        self.seen: list[Seen] = []
        self.reports: dict[str, int] = dict.fromkeys(("ok", "failed", "refused", "unknown"), 0)

    def stop(self) -> None:
        """No further call begins."""
        self._stop = True

    async def run(self, count: int) -> None:
        """Calls over so many connections at once."""
        workers = [asyncio.ensure_future(self._work()) for _ in range(count)]
        await asyncio.gather(*workers, self._depend())

    async def _work(self) -> None:
        line = _Line(self._port)
        while not self._stop:
            self._number += 1
            kind = self._random.choice(self._drawn)
            seen = await self.call(line, kind, self._number)
            self.seen.append(seen)
            if seen.ending == "unreachable" or seen.decision == "breaker_open":
                await asyncio.sleep(PAUSE)
        line.close()

    async def call(self, line: _Line, kind: str, number: int) -> Seen:
        """One call."""
        id_, model = f"{kind}-{number}", calls.model_of(kind, number)
        began = time.monotonic()

        def seen(ending: str, head: _Head | None = None, code: str = "", wrong: str = "") -> Seen:
            fields = {} if head is None else head.fields
            told = fields.get("x-error-envelope")
            return Seen(
                id=id_,
                kind=kind,
                model=model,
                began=began,
                over=time.monotonic(),
                ending=ending,
                status=0 if head is None else head.status,
                decision=fields.get("x-sidecar-decision", ""),
                code=json.loads(told)["code"] if told else code,
                verdict=fields.get("x-sidecar-verdict", ""),
                breaker=fields.get("x-sidecar-breaker", ""),
                wrong=wrong or _wrong_head(id_, head),
            )

        try:
            async with asyncio.timeout(LONGEST):
                return await self._called(line, kind, id_, number, seen)
        except TimeoutError:
            line.close()
            return seen("endless")
        except (asyncio.IncompleteReadError, ConnectionError):
            heard = line.heard
            line.close()
            if heard is not None:
                return seen("cut", heard)
            return seen("thrown" if line.waited_for else "nothing")
        except OSError:
            line.close()
            return seen("unreachable")

    async def _called(self, line: _Line, kind: str, id_: str, number: int, seen: _Told) -> Seen:
        if kind in calls.STUCK or line.reader is None:
            line.close()
            try:
                await line.open(small=kind == "stuck_reader")
            except OSError:
                return seen("unreachable")
        line.heard, line.waited_for = None, False
        expects = kind in calls.LEAVING or kind == "stuck_sender"
        body = calls.request_body(kind, id_, number) if calls.KINDS[kind].method == "POST" else b""
        line.write(_request_head(kind, id_, body, expects=expects))
        if expects:
            head = await line.head()
            if head.status != 100:
                return await self._rest(line, kind, id_, head, seen)
            if kind == "stuck_sender":
                line.waited_for = True
                line.write(body[:-10])
                head = await line.head()
                found = await self._rest(line, kind, id_, head, seen)
                line.close()
                return found
        line.write(_framed(kind, body))
        if kind == "leave_waiting":
            return await self._leave(line, seen, None)
        head = await line.head()
        return await self._rest(line, kind, id_, head, seen)

    async def _rest(self, line: _Line, kind: str, id_: str, head: _Head, seen: _Told) -> Seen:
        """The body, and what it is worth."""
        line.heard = head
        if head.status == 101:
            return seen("whole", head, wrong=await _converse(line, id_))
        good = head.status == 200 and head.fields.get("x-sidecar-decision") == "forwarded"
        if good and kind == "leave_streaming":
            return await self._leave(line, seen, head)
        if good and kind == "stuck_reader":
            await asyncio.sleep(CLIENT * 2 + 1)
            line.close()
            return seen("thrown", head)
        body, clean = await line.body(head, slowly=good and kind == "slow_reader")
        code = _code_in(body) if good else ""
        if not clean:
            line.close()
            return seen("cut", head, code)
        if head.fields.get("connection", "").lower() == "close":
            line.close()
        wrong = _wrong_body(kind, id_, body) if good else ""
        return seen("whole", head, code, wrong)

    async def _leave(self, line: _Line, seen: _Told, head: _Head | None) -> Seen:
        """Goes away after a while; what was sent by then still comes, and tells who was first."""
        reader, writer = line.reader, line.writer
        assert reader is not None
        assert writer is not None
        heard, ended = bytearray(), False
        try:
            async with asyncio.timeout(self._random.uniform(0.02, 0.3)):
                while part := await reader.read(65536):
                    heard += part
            ended = True
        except TimeoutError:
            writer.write_eof()
            with suppress(ConnectionError):
                while part := await reader.read(65536):
                    heard += part
        except ConnectionError:
            ended = True
        line.close()
        if head is None and heard.startswith(b"HTTP/1.1 "):
            return seen("whole", _parse_head(bytes(heard.partition(b"\r\n\r\n")[0])))
        return seen("cut" if ended or any(word in heard for word in CUT) else "left", head)

    # -- what the daemon does not carry -----------------------------------------------------

    async def _depend(self) -> None:
        """Permits and reports of a database that the agent calls itself."""
        line = _Line(self._admin)
        while not self._stop:
            await asyncio.sleep(0.02)
            try:
                async with asyncio.timeout(LONGEST):
                    await self._report(line)
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                self.reports["unknown"] += 1
                line.close()

    async def _report(self, line: _Line) -> None:
        if line.reader is None:
            await line.open()
        given = await _ask(line, "permit", {})
        if "permit" not in given:
            self.reports["refused"] += 1
            return
        fails = self._random.random() < 0.3
        report: dict[str, object] = {"permit": given["permit"]}
        if fails:
            report["error"] = {"type": "psycopg.errors.UniqueViolation", "sqlstate": "23505"}
        else:
            report["ok"] = True
        told = await _ask(line, "report", report)
        if "verdict" not in told or "error" in told:
            self.reports["unknown"] += 1
        else:
            self.reports["failed" if fails else "ok"] += 1


class _Told:
    """The shape of what makes a `Seen`."""

    def __call__(
        self, ending: str, head: _Head | None = None, code: str = "", wrong: str = ""
    ) -> Seen:
        raise NotImplementedError


class _Line:
    """A caller's connection.

    Attributes:
        heard: the head of the answer to the call under way.
        waited_for: the daemon has asked for the rest of a body, and can have thrown its caller out.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.waited_for = False
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.heard: _Head | None = None

    async def open(self, *, small: bool = False) -> None:
        sock = socket.socket()
        if small:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(0)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self._port))
        except BaseException:
            sock.close()
            raise
        self.reader, self.writer = await asyncio.open_connection(sock=sock, limit=2**16)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None

    def write(self, data: bytes) -> None:
        assert self.writer is not None
        self.writer.write(data)

    async def head(self) -> _Head:
        assert self.reader is not None
        return _parse_head(await self.reader.readuntil(b"\r\n\r\n"))

    async def body(self, head: _Head, *, slowly: bool = False) -> tuple[bytes, bool]:
        """The body, and whether its framing says that it is whole."""
        reader = self.reader
        assert reader is not None
        length = head.fields.get("content-length")
        parts: list[bytes] = []
        try:
            if head.fields.get("transfer-encoding") == "chunked":
                while size := int(await reader.readuntil(b"\r\n"), 16):
                    parts.append((await reader.readexactly(size + 2))[:-2])
                await reader.readexactly(2)
            elif length is not None:
                left = int(length)
                while left:
                    part = await reader.read(min(left, 16384 if slowly else left))
                    if not part:
                        return b"".join(parts), False
                    parts.append(part)
                    left -= len(part)
                    if slowly:
                        await asyncio.sleep(0.01)
            else:
                parts.append(await reader.read(-1))
        except (asyncio.IncompleteReadError, ConnectionError):
            return b"".join(parts), False
        return b"".join(parts), True


def _parse_head(raw: bytes) -> _Head:
    first, *lines = raw.rstrip(b"\r\n").decode("latin-1").split("\r\n")
    fields = {}
    for line in lines:
        name, _, value = line.partition(": ")
        fields[name.lower()] = value
    return _Head(int(first[9:12]), fields)


def _request_head(kind: str, id_: str, body: bytes, *, expects: bool) -> bytes:
    told = calls.KINDS[kind]
    path = told.path if "#" in told.path else f"{told.path}?k={kind}&i={id_}"
    lines = [
        f"{told.method} /{told.provider}{path} HTTP/1.1",
        "Host: evil.test" if kind == "foreign" else "Host: localhost",
        f"Authorization: Bearer sk-soak-{kind}-0123456789",
        f"x-request-id: {id_}",
    ]
    if kind == "socket":
        lines += [
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: eA==",
        ]
    if body:
        lines.append("Content-Type: application/json")
        lines.append(
            "Transfer-Encoding: chunked" if kind == "chunked" else f"Content-Length: {len(body)}"
        )
    if expects:
        lines.append("Expect: 100-continue")
    return "\r\n".join([*lines, "", ""]).encode()


def _framed(kind: str, body: bytes) -> bytes:
    if kind != "chunked":
        return body
    parts = [body[at : at + 1000] for at in range(0, len(body), 1000)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


async def _converse(line: _Line, id_: str) -> str:
    """One word each way over a WebSocket; what was wrong with it."""
    assert line.reader is not None
    word = id_.encode()
    heard = await line.reader.readexactly(2 + len(word))
    line.write(bytes((0x81, 0x80 | len(word))) + b"\0\0\0\0" + word)
    close = await line.reader.readexactly(4)
    line.write(b"\x88\x82\0\0\0\0\x03\xe8")
    line.close()
    well = heard[2:] == word and close == b"\x88\x02\x03\xe8"
    return "" if well else f"the conversation was {heard!r} {close!r}"


def _code_in(body: bytes) -> str:
    """The code of the error that ends a stream; empty if none does."""
    for line in reversed(body[-8192:].split(b"\n")):
        if line.startswith(b"data: {") and b'"error"' in line:
            with suppress(ValueError):
                error = json.loads(line[6:])["error"]
                return str(error.get("code") or error.get("type"))
    return ""


def _wrong_head(id_: str, head: _Head | None) -> str:
    if head is None:
        return ""
    if head.fields.get("x-correlation-id") != id_ and "bad_request" not in id_:
        return f"the correlation id is {head.fields.get('x-correlation-id')}"
    if (
        head.fields.get("x-sidecar-decision", "forwarded") != "forwarded"
        and "x-error-envelope" not in head.fields
    ):
        return "an answer of the daemon's own without an envelope"
    return ""


def _wrong_body(kind: str, id_: str, body: bytes) -> str:
    """What a whole answer holds that it should not, or lacks."""
    if kind in calls.GOOD:
        wanted = calls.completion(id_)
    elif kind in calls.LARGE:
        wanted = calls.large(id_)
    elif kind in ("stream", "claude"):
        wanted = b"".join(calls.events(kind, id_)) + calls.ending(kind)
    else:
        return ""
    return "" if body == wanted else f"{len(body)} bytes came for {len(wanted)}: {body[:80]!r}"


async def _ask(line: _Line, what: str, document: dict[str, object]) -> dict[str, object]:
    body = json.dumps(document).encode()
    line.write(
        f"POST /v1/dependencies/orders-db/{what} HTTP/1.1\r\n"
        "Host: localhost\r\nx-sidecar-admin: 1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    head = await line.head()
    answer, _ = await line.body(head)
    found: dict[str, object] = json.loads(answer)
    return found
