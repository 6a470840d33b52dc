"""How many calls may be under way at one provider, and who waits for a place.

A provider that hangs would otherwise collect calls until descriptors and memory are gone, and take
every other provider with it. A place is held by a ticket, and a ticket is given back in one way,
whatever became of it: waiting, granted at this very instant, or held. So a call that is cancelled
anywhere cannot lose a place.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable


class Ticket:
    """One call's claim to a place.

    Attributes:
        granted: it has the place.
    """

    __slots__ = ("_granted_to", "granted", "over")

    def __init__(self, granted_to: Callable[[], None] | None = None) -> None:
        self._granted_to = granted_to
        self.granted = False
        self.over = False

    def grant(self) -> None:
        """The place is this call's; whoever waits for it is told."""
        self.granted = True
        if self._granted_to is not None:
            self._granted_to()


class Bulkhead:
    """The places of one provider. First come, first served; nobody overtakes who waits.

    Attributes:
        limit: places there are.
        queue: calls that may wait for one.
        held: places that are taken; above `limit` where a call passed all the same, or a reload
            made it smaller.
    """

    __slots__ = ("_waiting", "held", "limit", "queue")

    def __init__(self, limit: int, queue: int) -> None:
        self._waiting: OrderedDict[Ticket, None] = OrderedDict()
        self.held = 0
        self.limit = limit
        self.queue = queue

    @property
    def waiting(self) -> int:
        """Calls that wait for a place."""
        return len(self._waiting)

    def enter(self) -> bool:
        """Takes a place if one is free; `leave` gives it back."""
        if self.held < self.limit:
            self.held += 1
            return True
        return False

    def force(self) -> None:
        """Takes a place whether one is free or not; `leave` gives it back."""
        self.held += 1

    def leave(self) -> None:
        """Gives a place back: to whoever has waited longest, if anybody waits."""
        self.held -= 1
        self._serve()

    def wait(self, granted_to: Callable[[], None]) -> Ticket | None:
        """Takes a place in the queue; None if that is full.

        Args:
            granted_to: called once, when the ticket is granted. It must not raise.
        """
        if len(self._waiting) >= self.queue:
            return None
        ticket = Ticket(granted_to)
        self._waiting[ticket] = None
        return ticket

    def give_back(self, ticket: Ticket) -> None:
        """Ends a claim, whatever became of it; more than once does no harm."""
        if ticket.over:
            return
        ticket.over = True
        if ticket.granted:
            self.leave()
        else:
            del self._waiting[ticket]

    def configure(self, limit: int, queue: int) -> None:
        """Takes other bounds; whoever holds or waits keeps what it has."""
        self.limit = limit
        self.queue = queue
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self.held < self.limit:
            ticket, _ = self._waiting.popitem(last=False)
            self.held += 1
            ticket.grant()
