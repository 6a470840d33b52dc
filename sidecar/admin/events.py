"""`GET /events`: every change of a breaker, pushed to whoever listens, as server-sent events.

A subscriber that stops reading must cost nothing: what waits for it is bounded, and when the bound
is reached it is dropped. It reads /status when it comes back, since events carry changes and the
document carries everything.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable

from sidecar import clock
from sidecar.admin.answers import encode_json
from sidecar.admin.status import Times
from sidecar.breaker.model import Transition
from sidecar.telemetry.observer import Fact

QUEUED_EVENTS = 256
"""Events that wait for one subscriber before it is dropped; each is below 8 KiB."""
MOST_SUBSCRIBERS = 64
HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": still here\n\n"
_LONGEST_REASON = 500


class Subscription:
    """One reader of the stream.

    Args:
        on_overflow: called once, when the reader is too slow to go on; it must cut the connection.
    """

    def __init__(self, on_overflow: Callable[[], object]) -> None:
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._on_overflow = on_overflow
        self.dropped = False

    def push(self, event: bytes) -> None:
        """Queue an event, or give the reader up."""
        if self.dropped:
            return
        if self._queue.qsize() >= QUEUED_EVENTS:
            self.dropped = True
            while not self._queue.empty():
                self._queue.get_nowait()
            self._queue.put_nowait(None)
            self._on_overflow()
            return
        self._queue.put_nowait(event)

    def end(self) -> None:
        """Let the reader finish after what is queued."""
        self._queue.put_nowait(None)

    async def pieces(self) -> AsyncIterator[bytes]:
        """What to send, heartbeats included, until the end."""
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    event = await self._queue.get()
            except TimeoutError:
                event = HEARTBEAT
            if event is None:
                return
            yield event


class EventHub:
    """Encodes each transition once and hands it to every subscriber; a listener of facts."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        self._ids = itertools.count(1)

    def __call__(self, fact: Fact) -> None:
        """Hear a fact."""
        if isinstance(fact, Transition):
            # Numbered even when nobody listens, so that a gap shows what was missed.
            number = next(self._ids)
            if self._subscriptions:
                event = encode(fact, number)
                for subscription in tuple(self._subscriptions):
                    subscription.push(event)

    @property
    def full(self) -> bool:
        """Whether there are as many subscribers as there may be."""
        return len(self._subscriptions) >= MOST_SUBSCRIBERS

    def subscribe(self, on_overflow: Callable[[], object]) -> Subscription:
        """Listen from now on; give it back with `unsubscribe`."""
        subscription = Subscription(on_overflow)
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop listening."""
        self._subscriptions.discard(subscription)

    def __len__(self) -> int:
        return len(self._subscriptions)

    def close(self) -> None:
        """Let every stream end."""
        for subscription in self._subscriptions:
            subscription.end()


def encode(transition: Transition, number: int) -> bytes:
    """One server-sent event, `transition`, with its facts as one line of JSON."""
    times = Times(clock.monotonic(), clock.wall())
    left = transition.retry_after
    facts = {
        "at": times.text(transition.at),
        "key": transition.key,
        "provider": transition.provider,
        "old": transition.old,
        "new": transition.new,
        "reason": transition.reason[:_LONGEST_REASON],
        "enforced": transition.enforced,
        "retry_after": None if left is None else max(0.0, round(left, 3)),
    }
    data = encode_json(facts)
    return b"event: transition\nid: %d\ndata: %s\n\n" % (number, data)
