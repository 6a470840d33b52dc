"""The throttle gate of one key: who goes on, who waits, who is shed.

Idle, every call goes on. A throttle closes the gate until the upstream's own hint has passed, or,
where it gives none, for one second that doubles with each further throttle, to sixty. While it
waits, a call is held if its turn comes within `max_wait`, and shed at once if not: told how long,
it can do better than to queue. When the wait is over those who waited come back one after another,
faster and faster, for all of them at one instant would be the next throttle.

Where throttles keep coming the gate sheds: calls pass at the rate that `Pace` finds, which takes
the place of those doubling waits and not of the upstream's own, until a minute has brought no
throttle. A call that is shed stands for the refusal it was spared; else a gate that does its work
well would look like an upstream that is well.

A gate never trips a breaker, with one exception: at the slowest rate, without one success and
without a hint for `open_after`, a throttle is no limit any more but an outage that calls itself so.

The queue is a fact in here and a matter of futures elsewhere: whoever owns the loop asks `serve`
for the next one each time the throttler lets a call pass, and is told by `changed` when it should
look again.
"""

from __future__ import annotations

import random as random_numbers
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, auto
from math import exp2, inf
from typing import Final, Protocol

from sidecar.breaker.gating import GateSettings, GateSnapshot, GateState, Hint, Shed
from sidecar.breaker.pace import Pace
from sidecar.breaker.window import Window
from sidecar.envelope.model import Verdict

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

RETURN_RATE: Final = 16.0
"""Calls a second that come back first after a wait; more if more were accepted before it."""

RETURN_DOUBLES: Final = 0.25
"""Seconds in which that rate doubles: long enough for a throttle to be heard of."""

RETURN_SECONDS: Final = 1.0
"""Seconds after the first one in which all are back."""

RETURN_WITHIN: Final = 10.0
"""Seconds for which the first one is awaited: waits are told in whole seconds, and spread out."""

LATELY: Final = 3.0
"""Seconds over which the accepted calls are counted."""

SPREAD_CLOSED: Final = 1.0
"""Seconds by which the waits that are told differ at most while the gate is closed."""

SPREAD_PACED: Final = 5.0
"""Seconds likewise while calls are let through one by one: each is told a turn of its own."""


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
        was_closed: a throttle was heard of since it was made.
    """

    __slots__ = (
        "_accepted",
        "_back_at",
        "_closed_at",
        "_figures",
        "_floor_since",
        "_hint",
        "_made_at",
        "_not_before",
        "_pace",
        "_promised",
        "_queue",
        "_random",
        "_seed",
        "_settings",
        "_shed",
        "_slot_at",
        "_throttled_at",
        "_unhinted",
        "key",
        "server",
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
        self._random = random
        self._queue: OrderedDict[Ticket, None] = OrderedDict()
        self._figures = Window(settings.sustained_window)
        self._accepted = Window(LATELY)
        self._made_at = now
        self._seed = accepted
        self._shed = 0
        self._throttled_at = now
        self._forget()

    def _forget(self) -> None:
        self._pace: Pace | None = None
        self._hint: Hint | None = None
        self._not_before = -inf
        self._back_at: float | None = None
        self._closed_at = -inf
        self._slot_at = -inf
        self._promised = -inf
        self._floor_since: float | None = None
        self._unhinted = 0

    # What a call does.

    def enter(self, now: float) -> Ticket | Shed | None:
        """Let a call on (None), give it a place in the queue, or shed it."""
        self.tick(now)
        if self.state is IDLE:
            return None
        self._come_back(now)
        wait = self._expected(now)
        turn_now = wait <= 0 and not self._queue
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
        if self.state is IDLE:
            return None
        self._come_back(now)
        wait = self._expected(now)
        if wait <= self._settings.max_wait:
            self._slot_at = now + wait
            return None
        return self._refuse(now, wait)

    def _come_back(self, now: float) -> None:
        if self._back_at is None and now >= self._not_before:
            self._back_at = now

    def leave(self, ticket: Ticket) -> bool:
        """Give up a place in the queue; False if it was served, shed or left already."""
        if ticket not in self._queue:
            return False
        del self._queue[ticket]
        return True

    def _expected(self, now: float) -> float:
        """Seconds until a call that comes now would have its slot."""
        interval = 1 / self.rate(max(now, self._not_before))
        return self.next_turn(now) - now + len(self._queue) * interval

    def next_turn(self, now: float) -> float:
        """When the next slot is, if the rate stays as it is; not before `now`."""
        interval = 1 / self.rate(max(now, self._not_before))
        return max(now, self._not_before, self._slot_at + interval)

    def _refuse(self, now: float, wait: float) -> Shed:
        self._shed += 1
        self._figures.record(Verdict.NEUTRAL, now)  # the column of what was decided here
        told = self._turn(now, wait)
        if now < self._not_before:
            why = (
                f"the upstream throttles this key; its wait ends in {self._not_before - now:.1f} s"
            )
        elif self._pace is not None:
            why = f"the upstream throttles this key, which is paced at {self._pace.rate:.3g}/s"
        else:
            why = "those who waited for the upstream come back one by one"
        return Shed(wait=told, reason=f"{why}; a slot is free in {told:.1f} s")

    def _turn(self, now: float, wait: float) -> float:
        """The wait that is told: never less than the true one, and another for each call."""
        spread = SPREAD_CLOSED if now < self._not_before else SPREAD_PACED
        interval = (0.5 + self._random()) / self.rate(max(now, self._not_before))
        soonest = now + wait
        self._promised = max(self._promised, soonest) + interval
        if self._promised > soonest + spread:
            self._promised = soonest + spread * self._random()
        return self._promised - now

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
        self._figures.record(Verdict.THROTTLE, now)
        self._throttled_at = now
        news = admitted_at > self._closed_at
        if news:
            self._closed_at = now
        if hint is not None:
            self._close(now + min(hint.seconds, settings.retry_after_max), hint)
            self._unhinted = 0
        elif news and self._pace is None:
            wait = min(FIRST_WAIT * 2.0 ** min(self._unhinted, 63), LONGEST_WAIT)
            self._close(now + min(wait, settings.retry_after_max), None)
            self._unhinted += 1
        self._adapt(now, news=news)
        self._watch_floor(now, hint)
        self._changed()
        return self._is_dark(now)

    def exhausted(self, now: float, hint: Hint) -> None:
        """A good answer said that nothing remains until a reset."""
        self.tick(now)
        self._close(now + min(hint.seconds, self._settings.retry_after_max), hint)
        self._changed()

    def answered(self, now: float, admitted_at: float, *, accepted: bool) -> None:
        """The upstream answered without a throttle.

        Args:
            now: monotonic seconds.
            admitted_at: when the call went on.
            accepted: the answer is a good one; another still counts among the calls.
        """
        self.tick(now)
        self._figures.record(Verdict.SUCCESS, now)
        if not accepted:
            return
        self._accepted.record(Verdict.SUCCESS, now)
        self._floor_since = None
        if admitted_at > self._closed_at:
            self._unhinted = 0
            if self._pace is not None:
                self._pace.accepted()
                self._pace.tick(self._accepted_lately(now), now)

    def _close(self, until: float, hint: Hint | None) -> None:
        """Wait until then; a wait that runs is never shortened by a later, shorter hint."""
        self.was_closed = True
        if until > self._not_before:
            self._not_before = until
            self._back_at = None
            self._hint = hint
        self._move(Event.CLOSE)

    def _adapt(self, now: float, *, news: bool) -> None:
        opens_at = max(now, self._not_before)
        if self._pace is not None:
            if news:
                self._pace.refused(self._accepted_lately(now), opens_at)
        elif self._is_sustained(now):
            self._pace = Pace(self._accepted_lately(now), self._settings.min_rate, opens_at)
            self._move(Event.SUSTAIN)

    def _is_sustained(self, now: float) -> bool:
        figures, settings = self._figures.figures(now), self._settings
        if figures.throttle < settings.sustained_count:
            return False
        refused = figures.throttle + figures.neutral
        return refused >= settings.sustained_ratio * (refused + figures.success)

    def _accepted_lately(self, now: float) -> float:
        """Calls a second."""
        age = now - self._made_at
        known = self._accepted.deciding(now)[1] / min(max(age, 0.5), LATELY)
        return max(known, self._seed) if age < LATELY else known

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

    def rate(self, now: float) -> float:
        """Calls a second that pass at this time; infinite where nothing holds them."""
        if self._pace is not None:
            return self._pace.rate
        if self.state is IDLE:
            return inf
        first = max(RETURN_RATE, self._accepted_lately(now))
        returned = 0.0 if self._back_at is None else max(now - self._back_at, 0.0)
        return first * exp2(min(returned / RETURN_DOUBLES, 63.0))

    def serve(self, now: float) -> Ticket | None:
        """Whose turn it is; None if the gate is closed or nobody waits."""
        self.tick(now)
        if now < self._not_before or not self._queue:
            return None
        self._come_back(now)
        self._slot_at = now
        return self._queue.popitem(last=False)[0]

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
            self._pace.tick(self._accepted_lately(now), now)
            if now - max(self._throttled_at, self._not_before) >= CLEAN_MINUTE:
                self._forget()
                self._move(Event.CLEAN)
        elif now >= self._back_by():
            self._hint = None
            self._move(Event.ELAPSE)

    def _back_by(self) -> float:
        if self._back_at is None:
            return self._not_before + RETURN_WITHIN
        return self._back_at + RETURN_SECONDS

    def reset(self, now: float) -> None:
        """Open it, and forget what was throttled."""
        self._forget()
        self._figures.clear()
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
        self._close(until, hint)
        self._changed()
        return True

    def configure(self, settings: GateSettings, now: float) -> None:
        """Take other settings; what is closed stays closed, and held calls keep their deadlines."""
        if settings.sustained_window != self._settings.sustained_window:
            self._figures = self._figures.resized(settings.sustained_window, now)
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
