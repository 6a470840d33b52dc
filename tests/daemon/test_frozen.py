"""A daemon that stands still for a while: what its callers sent meanwhile is read before it judges them."""

from __future__ import annotations

import asyncio
import signal

from tests.field.scene import base
from tests.proxy.callers import Caller, request
from tests.proxy.upstreams import answer, says

SHORT = {"timeouts": {"client": "150ms"}}
FROZEN = 0.4


async def frozen(one, meanwhile) -> None:
    """Stops the process for longer than its clocks of callers run."""
    one.signal(signal.SIGSTOP)
    await meanwhile
    await asyncio.sleep(FROZEN)
    one.signal(signal.SIGCONT)


async def test_a_request_that_came_meanwhile_is_answered(start, upstream) -> None:
    """A timer that is late fires before the socket is read, where the loop is busy with others."""
    upstream.script = says(answer())
    running = await start({"up": base(upstream.url)})
    caller = await Caller.connect(running.port)
    for _ in range(2):
        await caller.send(request("/up/x"))
        assert (await caller.answer()).status == 200
    (connection,) = running.daemon.plane._connections
    caller.writer.write(request("/up/x"))
    connection._last_heard -= 1000.0
    connection._idled()
    assert (await caller.answer()).status == 200


async def test_a_body_that_came_meanwhile_is_read(process, upstream) -> None:
    upstream.script = says(answer())
    one = await process({"up": {**base(upstream.url), **SHORT}})
    caller = await Caller.connect(one.port)
    head = request("/up/x", "POST", None, ("Content-Length", "8"), ("Expect", "100-continue"))
    await caller.send(head)
    assert b" 100 " in await caller.reader.readuntil(b"\r\n\r\n")
    await caller.send(b"half")
    await asyncio.sleep(0.05)
    await frozen(one, caller.send(b"half"))
    assert (await caller.answer()).status == 200
    assert upstream.requests[0].body == b"halfhalf"
