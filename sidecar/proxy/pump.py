"""Serving those who wait at one gate: one pump acquires, the callers wait on futures.

asyncio-throttle paces by asking again and again. Ten thousand callers that did so would stall the
loop, so one task asks for all of them, and only while somebody waits; each slot it gets goes to
whoever `Gate.serve` names. Callers are bound by the gate's deadlines, which one timer watches. A
caller that leaves gives up its place, or the slot it had just been given, and whatever happens to
many callers at once happens to a few at a time: between them the loop belongs to everybody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from asyncio_throttle.throttler import Throttler

from sidecar import clock as machine
from sidecar.breaker.gating import Shed
from sidecar.breaker.shedding import Gate, Ticket

BATCH = 16
"""Callers that are woken in one turn of the loop."""

GRAIN = 0.01
"""Seconds into which calls of a high rate are gathered; below 1 / GRAIN a second they go singly."""

FASTEST = 10_000.0
"""Calls a second from which nothing is held: one process does not send as many."""

LOOK = 0.001
"""Seconds between two looks of the throttler, once its slot is due."""


class Pump:
    """Serves the queue of one gate.

    Args:
        gate: decides who is next, and who waits in vain.
        loop: the running loop.
        on_fault: hears of a fault in here, which costs no call: those who wait go on.
    """

    __slots__ = (
        "_gate",
        "_loop",
        "_on_fault",
        "_task",
        "_throttler",
        "_timer",
        "_waiting",
    )

    def __init__(
        self,
        gate: Gate,
        loop: asyncio.AbstractEventLoop,
        on_fault: Callable[[Exception], None],
    ) -> None:
        self._gate = gate
        self._loop = loop
        self._on_fault = on_fault
        self._throttler = Throttler(rate_limit=1)
        self._waiting: dict[Ticket, asyncio.Future[Shed | None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def turn(self, ticket: Ticket) -> Shed | None:
        """Waits for the slot of a call that `Gate.enter` gave a ticket.

        Returns:
            None when it has come; why it does not come, where that is so.
        """
        future: asyncio.Future[Shed | None] = self._loop.create_future()
        self._waiting[ticket] = future
        self._begin()
        try:
            shed = await future
        except asyncio.CancelledError:
            if self._waiting.pop(ticket, None) is not None:
                self._gate.leave(ticket)
                if not self._gate.queued:
                    self._rest()
            elif not future.cancelled() and future.result() is None:
                self._gate.give_back()
            raise
        return shed

    def changed(self) -> None:
        """The gate opens at another time, or lets calls pass at another rate."""
        self._sweep()
        self._restart()

    # -- the pump ---------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._task is None and self._gate.queued:
            self._task = self._loop.create_task(self._serve())
        self._watch()

    def _restart(self) -> None:
        # Cancelled in its wait for a slot it has taken none; nothing else in it waits.
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._gate.queued:
            self._begin()
        else:
            self._rest()

    def _rest(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _serve(self) -> None:
        try:
            await self._serve_all()
        except Exception as error:  # noqa: BLE001 - on doubt calls go on
            self._on_fault(error)
            while (ticket := self._gate.take()) is not None:
                self._tell(ticket, None)
        self._task = None
        self._rest()

    async def _serve_all(self) -> None:
        gate, served = self._gate, 0
        while gate.queued:
            closed_for = gate.opens_at - machine.monotonic()
            if closed_for > 0:
                await asyncio.sleep(closed_for)
                continue
            await self._slot()
            ticket = gate.serve(machine.monotonic())
            if ticket is not None:
                self._tell(ticket, None)
                served += 1
                if not served % BATCH:
                    await asyncio.sleep(0)

    async def _slot(self) -> None:
        """Waits until one more call may pass."""
        if self._gate.spare:
            return
        now = machine.monotonic()
        rate = self._gate.rate
        if rate > FASTEST:
            return
        throttler = self._throttler
        throttler.rate_limit, throttler.period = allowance(rate)
        throttler.retry_interval = LOOK
        early = self._gate.next_turn(now) - now
        if early > LOOK:
            # It would look a thousand times a second until then.
            await asyncio.sleep(early)
        await throttler.acquire()  # type: ignore[no-untyped-call]  # the library has no types

    def _tell(self, ticket: Ticket, answer: Shed | None) -> None:
        future = self._waiting.pop(ticket, None)
        if future is not None and not future.done():
            future.set_result(answer)

    # -- those who wait in vain -------------------------------------------------------------

    def _watch(self) -> None:
        deadline = self._gate.next_deadline
        if deadline is not None and self._timer is None:
            left = max(deadline - machine.monotonic(), 0.0)
            self._timer = self._loop.call_later(left, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self._sweep()
        if self._gate.queued:
            self._watch()
        else:
            self._rest()

    def _sweep(self) -> None:
        found = self._gate.hopeless(machine.monotonic(), BATCH)
        for ticket, shed in found:
            self._tell(ticket, shed)
        if len(found) == BATCH:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(0, self._time_is_up)


def allowance(rate: float) -> tuple[int, float]:
    """How many calls in how many seconds a rate means to the throttler.

    Singly where that can be told apart, so that a window begins with one call and not with a
    second's worth of them; below one a second it is the period that grows.
    """
    count = max(1, round(rate * GRAIN))
    return count, count / rate
