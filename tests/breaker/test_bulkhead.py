"""No schedule of arrivals, grants, departures and cancellations loses a place or a waiter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.breaker.bulkhead import Bulkhead, Ticket

STEP = st.tuples(
    st.sampled_from(["arrive", "arrive", "force", "leave", "cancel", "twice", "resize"]),
    st.integers(0, 10_000),
)


class Crowd:
    """Calls at one bulkhead, as somebody with a list would count them."""

    def __init__(self, limit: int, queue: int) -> None:
        self.bulkhead = Bulkhead(limit, queue)
        self.inside: list[Ticket | None] = []
        self.waiting: list[Ticket] = []
        self.over: list[Ticket] = []
        self.granted: list[Ticket] = []

    def arrive(self) -> None:
        if self.bulkhead.enter():
            assert not self.waiting, "nobody overtakes who waits"
            self.inside.append(None)
            return
        ticket = self.bulkhead.wait(lambda: self.granted.append(ticket))
        if ticket is None:
            assert len(self.waiting) >= self.bulkhead.queue
        else:
            self.waiting.append(ticket)

    def settle(self) -> None:
        """Grants come in the order of arrival."""
        for ticket in self.granted:
            assert self.waiting.pop(0) is ticket
            self.inside.append(ticket)
        self.granted.clear()

    def leave(self, index: int) -> None:
        ticket = self.inside.pop(index % len(self.inside))
        if ticket is None:
            self.bulkhead.leave()
        else:
            self.bulkhead.give_back(ticket)
            self.over.append(ticket)

    def cancel(self, index: int) -> None:
        ticket = self.waiting.pop(index % len(self.waiting))
        self.bulkhead.give_back(ticket)
        self.over.append(ticket)

    def step(self, what: str, number: int) -> None:
        if what == "arrive":
            self.arrive()
        elif what == "force":
            self.bulkhead.force()
            self.inside.append(None)
        elif what == "leave" and self.inside:
            self.leave(number)
        elif what == "cancel" and self.waiting:
            self.cancel(number)
        elif what == "twice" and self.over:
            self.bulkhead.give_back(self.over[number % len(self.over)])
        elif what == "resize":
            self.bulkhead.configure(1 + number % 5, number % 7)
        self.settle()
        assert self.bulkhead.held == len(self.inside)
        assert self.bulkhead.waiting == len(self.waiting)
        if self.waiting:
            assert self.bulkhead.held >= self.bulkhead.limit, "a place is free and somebody waits"


@given(st.integers(1, 4), st.integers(0, 6), st.lists(STEP, max_size=200))
def test_nothing_is_ever_lost(limit: int, queue: int, steps: list[tuple[str, int]]) -> None:
    crowd = Crowd(limit, queue)
    for what, number in steps:
        crowd.step(what, number)
    while crowd.waiting or crowd.inside:
        crowd.step("cancel" if crowd.waiting else "leave", 0)
    assert (crowd.bulkhead.held, crowd.bulkhead.waiting) == (0, 0)


def test_a_call_cancelled_in_the_instant_of_its_grant_passes_the_place_on() -> None:
    bulkhead = Bulkhead(1, 2)
    told: list[str] = []
    assert bulkhead.enter()
    first = bulkhead.wait(lambda: told.append("first"))
    second = bulkhead.wait(lambda: told.append("second"))
    assert first is not None
    assert second is not None
    bulkhead.leave()
    assert told == ["first"]
    bulkhead.give_back(first)
    assert told == ["first", "second"]
    bulkhead.give_back(first)
    bulkhead.give_back(second)
    assert (bulkhead.held, bulkhead.waiting) == (0, 0)
