"""What a call leaves behind: nothing that only the garbage collector can free."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter

import pytest

from .callers import call
from .upstreams import Visit, answer

STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
ANSWERS = {
    "good": answer(200, b"{}"),
    "error": answer(503, b'{"error":{"message":"overloaded"}}'),
    "mistake": answer(400, b'{"error":{"message":"no","type":"invalid_request_error"}}'),
    "large": answer(200, b"x" * 400_000),
    "stream": STREAM,
    "cut": STREAM[:-20],
    "silent": b"",
}


@pytest.mark.parametrize("kind", ANSWERS)
async def test_a_finished_call_is_freed_at_once(start, upstream, kind) -> None:
    """Else memory grows with the traffic between two runs of the collector."""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(ANSWERS[kind])
        if kind in ("stream", "cut", "silent"):
            visit.writer.close()

    upstream.script = script
    running = await start({"up": upstream.url})
    for _ in range(3):
        await call(running.port, "/up/v1/chat/completions")
    await asyncio.sleep(0.05)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(20):
            await call(running.port, "/up/v1/chat/completions")
        await asyncio.sleep(0.05)
        gc.collect()
        left = Counter(
            type(thing).__qualname__
            for thing in gc.garbage
            if type(thing).__module__.startswith("sidecar")
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left
