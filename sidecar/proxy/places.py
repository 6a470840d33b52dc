"""Waiting for a place in a bulkhead without ever losing one.

Whoever waits here comes back with a place, or without one and without a trace: refused, timed out
or cancelled, also in the very instant in which the place was granted.
"""

from __future__ import annotations

import asyncio
from functools import partial

from sidecar.breaker.bulkhead import Bulkhead
from sidecar.proxy.failures import Refused


async def wait_for_place(bulkhead: Bulkhead, seconds: float) -> None:
    """Waits until one of the calls under way has ended; the place must be left afterwards.

    Args:
        bulkhead: that has no place free.
        seconds: to wait at most.

    Raises:
        Refused: `bulkhead`; no place is held then, nor on any other exception.
    """
    place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ticket = bulkhead.wait(partial(_tell, place))
    if ticket is None:
        raise _full(bulkhead, "and as many wait as may")
    try:
        async with asyncio.timeout(seconds):
            await place
    except TimeoutError:
        if not ticket.granted:
            bulkhead.give_back(ticket)
            raise _full(bulkhead, f"and none ended within {seconds:.3g} s") from None
    except BaseException:
        bulkhead.give_back(ticket)
        raise


def _tell(place: asyncio.Future[None]) -> None:
    if not place.done():
        place.set_result(None)


def _full(bulkhead: Bulkhead, why: str) -> Refused:
    under_way = f"{bulkhead.held} calls of this provider are under way (limits.in_flight)"
    return Refused("bulkhead", f"{under_way}, {why}")
