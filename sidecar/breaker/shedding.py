"""The throttle gate of one key: who goes on, who waits, who is shed.

Idle, every call goes on. A throttle closes the gate until the upstream's own hint has passed, or,
where it gives none, for one second, which doubles up to sixty while all who come back are refused.
While it waits, a call is held if its turn comes within `max_wait`, and shed at once if not: told
how long, it can do better than to queue. When the wait is over those who waited come back one after
another, faster and faster, for all of them at one instant would be the next throttle.

Where throttles keep coming the gate sheds: calls pass at the rate that `Pace` finds, which takes
the place of those doubling waits and not of the upstream's own, until a minute has brought no
throttle.

A gate never trips a breaker, with one exception: at the slowest rate, without one success and
without a hint for `open_after`, a throttle is no limit any more but an outage that calls itself so.

The queue is a fact in here and a matter of futures elsewhere: whoever owns the loop asks `serve`
for the next one each time the throttler lets a call pass, and is told by `changed` when it should
look again.

This file is longer than others: table, prose and moves of one machine belong under one pair of
eyes.
"""

from __future__ import annotations

import random as random_numbers
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, auto
from math import inf
from typing import Final, Protocol

from sidecar.breaker.comeback import Comeback, Passed
from sidecar.breaker.demand import Demand
from sidecar.breaker.gating import GateSettings, GateSnapshot, GateState, Hint, Shed
from sidecar.breaker.pace import Pace
from sidecar.breaker.promises import Promises

IDLE: Final = GateState.IDLE
WAITING: Final = GateState.WAITING
SHEDDING: Final = GateState.SHEDDING


class Event(Enum):
    """What moves a gate."""

    CLOSE = auto()  # a throttle, or an answer that said that nothing remains
    SUSTAIN = auto()  # throttles keep coming
    ELAPSE = auto()  # the wait is over, and those who waited are back
    CLEAN = auto()  # a minute without a throttle
    RESET = auto()  # an operator


TABLE: Final[dict[GateState, dict[Event, GateState]]] = {
    IDLE: {Event.CLOSE: WAITING, Event.SUSTAIN: SHEDDING},
    WAITING: {Event.ELAPSE: IDLE, Event.SUSTAIN: SHEDDING, Event.RESET: IDLE},
    SHEDDING: {Event.CLEAN: IDLE, Event.RESET: IDLE},
}
"""Every move there is; an event that a state does not list leaves it where it is."""

FIRST_WAIT: Final = 1.0
"""Seconds of the first wait where the upstream gives no hint."""

LONGEST_WAIT: Final = 60.0
"""Seconds that the doubling of such waits stops at."""

CLEAN_MINUTE: Final = 60.0
"""Seconds without a throttle after which calls are not paced any more."""

TURN_TAKES: Final = 0.05
"""Seconds that a call whose turn it is has to take it, also where `max_wait` holds nothing."""


class Ticket:
    """The place of one held call in the queue.

    Attributes:
        deadline: when it is shed if its turn has not come.
    """

    __slots__ = ("deadline",)

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline


class Server(Protocol):
    """Who serves the queue."""

    def changed(self) -> None:
        """The gate opens at another time, or the queue has to be looked at."""


class Gate:
    """The gate of one key. Times are monotonic seconds; nothing here reads a clock or waits.

    Attributes:
        key: as it is shown.
        state: as of the last call or tick.
        server: who serves the queue; None before the first call was held.
        spare: a slot that was given was not used.
        was_closed: a throttle was heard of since it was made.
    """

    __slots__ = (
        "_closed_at",
        "_comeback",
        "_demand",
        "_floor_since",
        "_hint",
        "_not_before",
        "_pace",
        "_passed",
        "_passed_before",
        "_promises",
        "_queue",
        "_settings",
        "_shed",
        "_slot_at",
        "_throttled_at",
        "_unhinted",
        "key",
        "server",
        "spare",
        "state",
        "was_closed",
    )

    def __init__(
        self,
        key: str,
        settings: GateSettings,
        *,
        now: float,
        accepted: float = 0.0,
        random: Callable[[], float] = random_numbers.random,
    ) -> None:
        """Start idle.

        Args:
            key: as it is shown.
            settings: `shedding` of the provider.
            now: when the gate came to be.
            accepted: calls a second that were accepted lately, before anybody counted here.
            random: yields numbers in [0, 1) for the spread of waits.
        """
        self.key = key
        self.state = IDLE
        self.server: Server | None = None
        self.was_closed = False
        self._settings = settings
        self._queue: OrderedDict[Ticket, None] = OrderedDict()
        self._demand = Demand(settings, accepted, now)
        self._promises = Promises(random)
        self._shed = 0
        self._throttled_at = now
        self._forget()

    def _forget(self) -> None:
        self._pace: Pace | None = None
        self._hint: Hint | None = None
        self._not_before = -inf
        self._comeback: Comeback | None = None
        self._closed_at = -inf
        self._passed = Passed()
        self._passed_before = Passed()
        self.spare = False
        self._slot_at = -inf
        self._promises.clear()
        self._floor_since: float | None = None
        self._unhinted = 0

    # What a call does.

    def enter(self, now: float) -> Ticket | Shed | None:
        """Let a call on (None), give it a place in the queue, or shed it."""
        self.tick(now)
        if self.state is IDLE:
            self._pass(now)
            return None
        wait = self._expected(now)
        turn_now = wait <= 0 and not self._queue
        self._come_back(now, crowded=not turn_now)
        settings = self._settings
        if turn_now or (len(self._queue) < settings.max_queue and wait <= settings.max_wait):
            patience = max(settings.max_wait, TURN_TAKES) if turn_now else settings.max_wait
            ticket = Ticket(now + patience)
            self._queue[ticket] = None
            return ticket
        return self._refuse(now, wait)

    def observe(self, now: float) -> Shed | None:
        """What `enter` would have said to a call that goes on whatever it is; None holds it not."""
        self.tick(now)
        self._pass(now)
        if self.state is IDLE:
            return None
        wait = self._expected(now)
        self._come_back(now, crowded=wait > 0)
        if wait <= self._settings.max_wait:
            self._slot_at = now + wait
            return None
        return self._refuse(now, wait)

    def recheck(self, now: float) -> Shed | None:
        """Shed a call that had its turn, was not sent, and finds the gate closed meanwhile."""
        self.tick(now)
        return self._refuse(now, self._expected(now)) if now < self._not_before else None

    def _pass(self, now: float) -> None:
        self._passed.add(now)
        self._demand.passed(now)
        if self._pace is not None and self._floor_since is None:
            # At the floor it takes an answer: silence is all that an upstream gives that is down.
            self._pace.passed(now)

    def _come_back(self, now: float, *, crowded: bool) -> None:
        if self._comeback is not None and now >= self._not_before:
            self._comeback.came(now, crowded=crowded)

    def leave(self, ticket: Ticket) -> bool:
        """Give up a place in the queue; False if it was served, shed or left already."""
        if ticket not in self._queue:
            return False
        del self._queue[ticket]
        return True

    def _expected(self, now: float) -> float:
        """Seconds until a call that comes now would have its slot."""
        interval = 1 / self.rate
        return self.next_turn(now) - now + len(self._queue) * interval

    def next_turn(self, now: float) -> float:
        """When the next slot is, if the rate stays as it is; not before `now`."""
        opens_at = max(now, self._not_before)
        return opens_at if self.spare else max(opens_at, self._slot_at + 1 / self.rate)

    def _refuse(self, now: float, wait: float) -> Shed:
        self._shed += 1
        self._demand.shed(now)
        told = self._promises.tell(wait, self.rate, now, closed=now < self._not_before)
        if now < self._not_before:
            why = (
                f"the upstream throttles this key; its wait ends in {self._not_before - now:.1f} s"
            )
        elif self._pace is not None:
            why = f"the upstream throttles this key, which is paced at {self._pace.rate:.3g}/s"
        else:
            why = "those who waited for the upstream come back one by one"
        return Shed(wait=told, reason=f"{why}; a slot is free in {told:.1f} s")

    # What the upstream says.

    def throttled(self, now: float, admitted_at: float, hint: Hint | None) -> bool:
        """The upstream refused a call for its rate.

        Args:
            now: monotonic seconds.
            admitted_at: when the call went on; what left before an earlier throttle was heard of
                says nothing new.
            hint: the wait that it asked for.

        Returns:
            True if this counts as a failure: for `open_after` nothing else has come.
        """
        self.tick(now)
        settings = self._settings
        if hint is not None and not 0 <= hint.seconds < inf:
            hint = None
        self._demand.throttled(now, admitted_at)
        self._throttled_at = now
        self._lose(admitted_at)
        news = admitted_at > self._closed_at
        if news:
            self._closed_at = now
        if hint is not None:
            self._close(now + min(hint.seconds, settings.retry_after_max), hint, now)
            self._unhinted = 0
        elif news and self._pace is None:
            if self._were_taken(now, admitted_at):
                self._unhinted = 0
            wait = min(FIRST_WAIT * 2.0 ** min(self._unhinted, 63), LONGEST_WAIT)
            self._close(now + min(wait, settings.retry_after_max), None, now)
            self._unhinted += 1
        self._adapt(now, news=news)
        self._watch_floor(now, hint)
        self._changed()
        return self._is_dark(now)

    def _lose(self, admitted_at: float) -> None:
        (self._passed if admitted_at > self._closed_at else self._passed_before).lost += 1

    def _were_taken(self, now: float, admitted_at: float) -> bool:
        """Did any pass before the one that was refused, after the last wait or the one before?"""
        patience = self._demand.patience
        return self._passed.some_were_taken(
            admitted_at, patience
        ) or self._passed_before.any_was_taken(now, patience)

    def exhausted(self, now: float, hint: Hint) -> None:
        """An answer that is no throttle said that nothing remains until a reset."""
        self.tick(now)
        self._close(now + min(hint.seconds, self._settings.retry_after_max), hint, now)
        self._changed()

    def answered(self, now: float, admitted_at: float, *, accepted: bool) -> None:
        """The upstream answered without a throttle.

        Args:
            now: monotonic seconds.
            admitted_at: when the call went on.
            accepted: the answer is a good one; another still counts among the calls.
        """
        self.tick(now)
        self._demand.answered(now, accepted=accepted)
        if not accepted:
            self._lose(admitted_at)
            return
        self._floor_since = None
        if admitted_at > self._closed_at:
            self._unhinted = 0
            if self._pace is not None:
                self._pace.accepted()
                self._pace.tick(self._demand.accepted(now), now)
            elif self._comeback is not None:
                self._comeback.accepted()

    def _close(self, until: float, hint: Hint | None, now: float) -> None:
        """Wait until then; a wait that runs is never shortened by a later, shorter hint."""
        self.was_closed = True
        if until > self._not_before:
            self._not_before = until
            self._passed_before, self._passed = self._passed, Passed()
            self._hint = hint
            if self._pace is None:
                self._comeback = Comeback(self._demand.answered_lately(now), until)
        self._move(Event.CLOSE)

    def _adapt(self, now: float, *, news: bool) -> None:
        opens_at, demand = max(now, self._not_before), self._demand
        if self._pace is not None:
            if news:
                self._pace.refused(demand.accepted(now), opens_at, demand.patience)
        elif demand.is_throttled(self._settings, now):
            self._pace = Pace(
                demand.accepted(now), self._settings.min_rate, opens_at, demand.patience
            )
            self._comeback = None
            self._move(Event.SUSTAIN)

    def _watch_floor(self, now: float, hint: Hint | None) -> None:
        if hint is not None or self._pace is None or not self._pace.at_floor:
            self._floor_since = None
        elif self._floor_since is None:
            self._floor_since = now

    def _is_dark(self, now: float) -> bool:
        since, limit = self._floor_since, self._settings.open_after
        return since is not None and 0 < limit <= now - since

    # The queue.

    @property
    def opens_at(self) -> float:
        """When the gate opens; a past time where it is open."""
        return self._not_before

    @property
    def queued(self) -> int:
        """Calls that are held."""
        return len(self._queue)

    @property
    def next_deadline(self) -> float | None:
        """When the call that has waited longest is shed; None where nobody waits."""
        return next(iter(self._queue)).deadline if self._queue else None

    @property
    def rate(self) -> float:
        """Calls a second that pass where the gate is open; infinite where nothing holds them."""
        if self._pace is not None:
            return self._pace.rate
        return inf if self._comeback is None else self._comeback.rate

    def serve(self, now: float) -> Ticket | None:
        """Whose turn it is; None if the gate is closed or nobody waits."""
        self.tick(now)
        if now < self._not_before or not self._queue:
            return None
        self._come_back(now, crowded=len(self._queue) > 1)
        if self.spare:
            self.spare = False
        else:
            self._slot_at = now
            self._pass(now)
        return self._queue.popitem(last=False)[0]

    def give_back(self) -> None:
        """The slot that was given last was not used: it is the next one's."""
        self.spare = True
        self._changed()

    def take(self) -> Ticket | None:
        """The next one whatever its turn; None if nobody waits."""
        return self._queue.popitem(last=False)[0] if self._queue else None

    def hopeless(self, now: float, most: int) -> list[tuple[Ticket, Shed]]:
        """Those whose turn does not come in time, taken out of the queue: at most so many."""
        self.tick(now)
        found: list[tuple[Ticket, Shed]] = []
        # Idle, everybody's turn has come.
        while self._queue and self.state is not IDLE and len(found) < most:
            ticket = next(iter(self._queue))
            if now < ticket.deadline and self._not_before <= ticket.deadline:
                break
            del self._queue[ticket]
            found.append((ticket, self._refuse(now, self._expected(now))))
        return found

    # What time and people do.

    def tick(self, now: float) -> None:
        """Let happen what was due by `now`."""
        if self.state is IDLE or now < self._not_before:
            return
        if self._pace is not None:
            self._pace.tick(self._demand.accepted(now), now)
            if now - max(self._throttled_at, self._not_before) >= CLEAN_MINUTE:
                self._forget()
                self._move(Event.CLEAN)
        elif self._comeback is not None:
            self._comeback.tick(now)
            awaited = self._queue or self._promises.are_due(now)
            if self._comeback.is_over(now) and not awaited:
                self._hint = None
                self._comeback = None
                self._move(Event.ELAPSE)

    def reset(self, now: float) -> None:
        """Open it, and forget what was throttled."""
        self._forget()
        self._demand.clear()
        self._throttled_at = now
        self._move(Event.RESET)
        self._changed()

    def named_wait(self, now: float) -> tuple[float, Hint] | None:
        """The time before which the upstream itself asked not to call; a guess of ours is none."""
        self.tick(now)
        if self._hint is None or now >= self._not_before:
            return None
        return self._not_before, self._hint

    def resume(self, until: float, hint: Hint, now: float) -> bool:
        """Take up a wait that an earlier process was asked for; False if it is over."""
        until = min(until, now + self._settings.retry_after_max)
        if until <= now:
            return False
        self._close(until, hint, now)
        self._changed()
        return True

    def configure(self, settings: GateSettings, now: float) -> None:
        """Take other settings; what is closed stays closed, and held calls keep their deadlines."""
        self._demand.configure(settings, now)
        self._settings = settings
        if self._pace is not None:
            self._pace.configure(settings.min_rate)
        self._changed()

    def is_disposable(self, now: float) -> bool:
        """Would forgetting it change nothing that is decided, held, or still counted?"""
        self.tick(now)
        remembered = max(self._settings.sustained_window, LONGEST_WAIT)
        quiet = now - self._throttled_at >= remembered
        return self.state is IDLE and not self._queue and quiet

    def is_idle(self, now: float) -> bool:
        """Does it neither hold nor shed anything?"""
        self.tick(now)
        return self.state is IDLE and not self._queue

    def is_closed(self, now: float) -> bool:
        """Are calls refused or paced, as people would say that a provider sheds?"""
        self.tick(now)
        return self.state is SHEDDING or now < self._not_before

    def snapshot(self, now: float) -> GateSnapshot:
        """Everything that is shown of it, as of `now`."""
        self.tick(now)
        return GateSnapshot(
            key=self.key,
            state=self.state,
            not_before=self._not_before if now < self._not_before else None,
            rate=None if self._pace is None else self._pace.rate,
            queued=len(self._queue),
            shed=self._shed,
            hint=None if self._hint is None else self._hint.seconds,
            hint_source=None if self._hint is None else self._hint.source,
        )

    def _move(self, event: Event) -> None:
        self.state = TABLE[self.state].get(event, self.state)

    def _changed(self) -> None:
        if self.server is not None:
            self.server.changed()
