"""Every recorded stream through a whole daemon, cut anywhere: the verdict is the one it has whole."""

from __future__ import annotations

import asyncio
import random

from tests.cases import all_cases, seen_of

from .callers import Caller, request
from .test_streams import chunk
from .upstreams import Visit

CUTS = 12


def ways(body: bytes, cuts: random.Random) -> list[list[bytes]]:
    """A body whole, byte by byte, and in two pieces cut at several places, the first among them."""
    places = [1, *cuts.sample(range(1, len(body)), CUTS)]
    halves = [[body[:at], body[at:]] for at in places]
    return [[body], [body[at : at + 1] for at in range(len(body))], *halves]


async def test_every_recorded_stream(start, upstream) -> None:
    cases = [case for case in all_cases() if case.get("stream")]
    names = {case["provider"]: case["provider"].replace(".", "-") for case in cases}
    pieces: list[bytes] = []
    head = b""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(head)
        for piece in pieces:
            await visit.send(chunk(piece))
            await asyncio.sleep(0)
        await visit.send(b"0\r\n\r\n")

    upstream.script = script
    running = await start(
        {
            name: {"upstream": upstream.url, "dialect": dialect, "mode": "observe"}
            for dialect, name in names.items()
        }
    )
    cuts = random.Random(4)
    for case in cases:
        seen, expect = seen_of(case), case["expect"]
        told = "".join(f"{name}: {value}\r\n" for name, value in seen.headers)
        head = f"HTTP/1.1 {seen.status} X\r\n{told}Transfer-Encoding: chunked\r\n\r\n".encode()
        asks = b"{}" if seen.method == "POST" else None
        for pieces in ways(seen.body, cuts):  # noqa: B007 - the script sends them
            caller = await Caller.connect(running.port)
            kind = ("Content-Type", "application/json")
            path = f"/{names[case['provider']]}{seen.path}"
            before = len(running.calls)
            await caller.send(request(path, seen.method, asks, kind))
            await caller.answer()
            caller.close()
            while len(running.calls) == before:
                await asyncio.sleep(0)
            call = running.calls[-1]
            found = call.envelope
            assert call.verdict == expect["verdict"], case["id"]
            assert (found.class_ if found else None) == expect["class"], case["id"]
            assert (found.code if found else None) == expect["code"], case["id"]
            assert (found.retryable if found else False) is expect["retryable"], case["id"]
