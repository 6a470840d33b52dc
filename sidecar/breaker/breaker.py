"""The state machine of one breaker.

A call asks for a permit, runs, and settles the permit with its outcome: two steps, so that a
stream of minutes is judged by its end. Between them the world may have changed; therefore every
permit carries the *epoch* in which it was given, every change of state begins a new one, and a
verdict from an earlier epoch is shown in the figures and decides nothing.

Closed, every call passes. Two rules look at the outcomes: failures in a row, which sees an outage
at once, and the share of failures in a window, which sees a partial one. `alive`, `throttle` and
`neutral` are no evidence for either.

Open, no call passes until `half_open_at`. That time is fixed when the breaker opens, and nothing
that arrives later moves it. It passes on every read, called or not: time alone leads out of every
state.

Half-open, a few calls pass as probes, each on a lease that expires by itself, so that one that is
lost costs time and not the upstream. An expired lease only makes room for the next probe; its
outcome still decides, for a hanging upstream answers each probe later than any lease lasts.

An operator may hold a breaker open or closed for a time. In `observe` the machine runs all the
same, and calls that it would have refused pass on shadow permits, which decide nothing. In `off`
nothing is counted, and what had been is forgotten: it would be stale when the breaker comes back.

pybreaker's object holds the state and tells its listeners, this class first among them. It never
wraps a call (it counts a coroutine before that has run), and its clock is never asked (wall time
steps).

This file is longer than others: table, prose and moves of one machine belong under one pair of
eyes. What the outcomes amount to is in `evidence`.
"""

from __future__ import annotations

import random as random_numbers
from collections.abc import Callable
from enum import Enum, auto
from math import inf
from typing import Final

from sidecar.breaker.cell import CircuitBreaker, CircuitBreakerListener, CircuitBreakerState
from sidecar.breaker.evidence import Evidence, words
from sidecar.breaker.model import (
    Cause,
    Kind,
    Mode,
    Outcome,
    Override,
    Refusal,
    Settings,
    Snapshot,
    State,
    Transition,
)
from sidecar.breaker.saved import FAR, Hold, SavedBreaker, SetMode, Wait
from sidecar.envelope.model import Verdict

CLOSED: Final = State.CLOSED
OPEN: Final = State.OPEN
HALF_OPEN: Final = State.HALF_OPEN


class Event(Enum):
    """What moves a breaker."""

    TRIP = auto()  # a rule is met
    ELAPSE = auto()  # the open time is over
    RECOVER = auto()  # enough probes succeeded, or an answer disproved that nothing answers
    RELAPSE = auto()  # a probe failed
    HOLD = auto()  # an operator holds it open
    CLOSE = (
        auto()
    )  # an operator closes, resets or switches it off; or its failures were not its own


TABLE: Final[dict[State, dict[Event, State]]] = {
    CLOSED: {Event.TRIP: OPEN, Event.HOLD: OPEN},
    OPEN: {Event.ELAPSE: HALF_OPEN, Event.CLOSE: CLOSED},
    HALF_OPEN: {
        Event.RECOVER: CLOSED,
        Event.RELAPSE: OPEN,
        Event.HOLD: OPEN,
        Event.CLOSE: CLOSED,
    },
}
"""Every move there is; an event that a state does not list leaves it where it is."""

CAUSES: Final = {
    Event.ELAPSE: Cause.OPEN_TIME_OVER,
    Event.RECOVER: Cause.PROBE_SUCCEEDED,
    Event.RELAPSE: Cause.PROBE_FAILED,
    Event.HOLD: Cause.BY_HAND,
    Event.CLOSE: Cause.BY_HAND,
}
"""What each event is called outside; a rule that is met says which it is."""

DECIDED: Final = (Verdict.SUCCESS, Verdict.FAILURE)

NO_EPOCH: Final = -1
"""The epoch of permits that decide nothing."""

SHORTEST_LEASE: Final = 60.0
"""Seconds a probe's lease lasts at least, however short `first_byte` is."""

PROBE_HINT: Final = 1.0
"""Seconds after which to ask again while all probes are under way; nobody knows when one ends."""


class Permit:
    """One call's leave to go on, to be settled or released exactly once; more is harmless."""

    __slots__ = ("_breaker", "epoch", "expires_at", "would_refuse")

    def __init__(
        self,
        breaker: Breaker,
        epoch: int,
        expires_at: float = inf,
        would_refuse: Refusal | None = None,
    ) -> None:
        self._breaker: Breaker | None = breaker
        self.epoch = epoch
        self.expires_at = expires_at
        self.would_refuse = would_refuse

    def settle(self, outcome: Outcome, now: float) -> None:
        """Tell how the call ended."""
        breaker = self._breaker
        if breaker is not None:
            self._breaker = None
            breaker._settle(self, outcome, now)  # noqa: SLF001  # the two halves of one step

    def release(self, now: float) -> None:
        """Give the permit back without evidence."""
        breaker = self._breaker
        if breaker is not None:
            self._breaker = None
            breaker._leave(self, now)  # noqa: SLF001  # the two halves of one step


class Breaker(CircuitBreakerListener):
    """The breaker of one key; see the module for how it moves.

    Times are monotonic seconds and never read from a clock. Nothing here raises on any outcome.
    """

    __slots__ = (
        "_cause",
        "_due",
        "_epoch",
        "_evidence",
        "_failed_probes",
        "_forced",
        "_half_open_at",
        "_idle_since",
        "_leases",
        "_mode",
        "_mode_override",
        "_on_transition",
        "_open_seconds",
        "_open_until",
        "_opened_at",
        "_opens",
        "_random",
        "_reason",
        "_settings",
        "_since",
        "_state",
        "_successes",
        "_tripped_by",
        "cell",
        "in_flight",
        "key",
        "last_used",
        "provider",
    )

    def __init__(
        self,
        key: str,
        settings: Settings,
        on_transition: Callable[[Transition], None],
        *,
        now: float = 0.0,
        random: Callable[[], float] = random_numbers.random,
    ) -> None:
        """Start closed.

        Args:
            key: `PROVIDER`, `PROVIDER/MODEL` or `PROVIDER/~ROUTE`.
            settings: the thresholds.
            on_transition: hears of each change of state, after it is whole.
            now: when the breaker came to be.
            random: yields numbers in [0, 1) for the jitter.
        """
        self.key = key
        self.provider = key.partition("/")[0]
        self.in_flight = 0
        self.last_used = now
        self.cell = CircuitBreaker(name=key, listeners=[self])
        self._settings = settings
        self._on_transition = on_transition
        self._random = random
        self._state = CLOSED
        self._mode = settings.mode
        self._since = self._idle_since = now
        self._epoch = 0
        self._due = inf
        self._evidence = Evidence(settings)
        self._leases: list[Permit] = []
        self._forced: Override | None = None
        self._mode_override: Override | None = None
        self._cause = Cause.CONSECUTIVE_FAILURES
        self._open_seconds = 0.0
        self._reason: str | None = None
        self._opens = 0
        self._opened_at: float | None = None
        self._tripped_by: Kind | None = None
        self._forget()

    # What a call does.

    def admit(self, now: float) -> Permit | Refusal:
        """Let a call through, or say why not and for how long."""
        self.last_used = now
        if now >= self._due:
            self.tick(now)
        if self._state is CLOSED:
            if not self.in_flight:
                self._evidence.decay(self._idle_since, now)
            self.in_flight += 1
            return Permit(self, self._epoch)
        return self._admit_guarded(now)

    def _admit_guarded(self, now: float) -> Permit | Refusal:
        permit: Permit
        if self._mode is Mode.OFF:
            permit = Permit(self, NO_EPOCH)
        elif self._state is HALF_OPEN and self._probes_in_flight(now) < self._settings.probes:
            lease = max(self._settings.first_byte, SHORTEST_LEASE)
            permit = Permit(self, self._epoch, now + lease)
            self._leases.append(permit)
        else:
            refusal = self._refuse(now)
            if self._mode is Mode.ENFORCE:
                return refusal
            permit = Permit(self, NO_EPOCH, would_refuse=refusal)
        self.in_flight += 1
        return permit

    def _refuse(self, now: float) -> Refusal:
        reason = self._why() or ""
        counted = self._evidence.last_counted
        if counted is not None and self._forced is None:
            reason += f" {max(now - counted[1], 0.0):.1f} s ago"
        if self._state is HALF_OPEN:
            reason = f"half-open, {len(self._leases)} under way to probe it; {reason}"
            retry_after = PROBE_HINT
        elif self._half_open_at < inf:
            retry_after = self._half_open_at - now
        else:
            retry_after = self._settings.open_max
        return Refusal(
            key=self.key,
            state=self._state,
            mode=self._mode,
            retry_after=retry_after,
            reason=reason,
        )

    def _leave(self, permit: Permit, now: float) -> None:
        self.in_flight -= 1
        if not self.in_flight:
            self._idle_since = now
        if self._leases and permit in self._leases:
            self._leases.remove(permit)

    def _settle(self, permit: Permit, outcome: Outcome, now: float) -> None:
        self._leave(permit, now)
        if now >= self._due:
            self.tick(now)
        if self._mode is Mode.OFF:
            return
        late = permit.epoch != self._epoch
        self._evidence.record(outcome, now, late=late)
        if late:
            return
        if self._state is HALF_OPEN:
            self._judge_probe(outcome, now)
        elif self._forced is None and outcome.verdict in DECIDED:
            met = self._evidence.rule_met(now)
            if met is not None:
                self._cause, reason = met
                self._open(Event.TRIP, reason, now)

    def _judge_probe(self, outcome: Outcome, now: float) -> None:
        answered = self._tripped_by is Kind.ANSWER
        if outcome.verdict is Verdict.SUCCESS:
            self._successes += 1
            if self._successes >= (self._settings.successes if answered else 1):
                self._start_over(Event.RECOVER, f"probes succeeded: {self._successes}", now)
        elif outcome.verdict is Verdict.ALIVE:
            # Any answer disproves that nobody answers; it says nothing of what answered and failed.
            if not answered:
                self._start_over(Event.RECOVER, f"it answers again: {words(outcome)}", now)
        elif outcome.verdict is Verdict.FAILURE:
            self._failed_probes += 1
            self._open(Event.RELAPSE, f"a probe failed, last: {words(outcome)}", now)

    # How it moves.

    def _open(self, event: Event, reason: str, now: float) -> None:
        settings = self._settings
        doubled = settings.open_for * 2.0 ** min(self._failed_probes, 63)
        guess = min(doubled, settings.open_max) * (1 + settings.jitter * self._random())
        # The upstream's own wait is a floor: it knows better when it is back, but not all of it.
        self._open_until = max(now + guess, self._evidence.run.floor(now))
        self._tripped_by = self._evidence.last_kind
        self._move(event, reason, now)

    def _start_over(self, event: Event, reason: str, now: float) -> None:
        self._epoch += 1
        self._forget()
        self._move(event, reason, now)

    def _forget(self) -> None:
        self._evidence.clear()
        self._failed_probes = 0
        self._successes = 0
        self._tripped_by = None
        self._open_until = self._half_open_at = -inf

    def _move(self, event: Event, reason: str, at: float) -> None:
        old, new = self._state, TABLE[self._state].get(event)
        if new is not None:
            self._epoch += 1
            self._leases.clear()
            if old is OPEN:
                self._open_seconds += max(at - self._since, 0.0)
            self._since = at
            if new is HALF_OPEN:
                self._successes = 0
                self.cell.half_open()
            elif new is OPEN:
                if event is not Event.HOLD or old is CLOSED:
                    self._reason = reason
                self._opened_at = at
                self._opens += 1
                self.cell.open()
            else:
                self._reason, self._opened_at = reason, None
                self.cell.close()
        self._schedule()
        if new is not None:
            self._announce(old, CAUSES.get(event, self._cause), reason, at)

    def state_change(
        self,
        cb: CircuitBreaker,  # noqa: ARG002  # pybreaker's signature
        old_state: CircuitBreakerState | None,  # noqa: ARG002
        new_state: CircuitBreakerState,
    ) -> None:
        """Follow the state that pybreaker holds; it alone writes ours."""
        self._state = State(new_state.name.replace("-", "_"))

    def _announce(self, old: State, cause: Cause, reason: str, at: float) -> None:
        known = self._state is OPEN and self._half_open_at < inf
        self._on_transition(
            Transition(
                key=self.key,
                provider=self.provider,
                old=old,
                new=self._state,
                reason=reason,
                at=at,
                enforced=self._mode is Mode.ENFORCE,
                retry_after=self._half_open_at - at if known else None,
                cause=cause,
            )
        )

    # What time does.

    def tick(self, now: float) -> None:
        """Let happen what was due by `now`. Every read does so; anyone may, at any time."""
        if now < self._due:
            return
        if self._state is OPEN and self._half_open_at <= now:
            self._release_hold(now)
            self._move(Event.ELAPSE, "the open time is over", self._half_open_at)
        self._release_hold(now)
        if self._mode_override is not None and _over(self._mode_override, now):
            self._mode_override = None
        self._apply_mode(now)
        self._schedule()

    def next_change(self, now: float) -> float | None:
        """When time alone changes this breaker next; None if never."""
        self.tick(now)
        return self._due if self._due < inf else None

    def _schedule(self) -> None:
        due = inf
        if self._state is OPEN:
            hold = self._forced
            held_until = -inf if hold is None else inf if hold.until is None else hold.until
            due = self._half_open_at = max(self._open_until, held_until)
        for override in (self._forced, self._mode_override):
            if override is not None and override.until is not None:
                due = min(due, override.until)
        self._due = due

    def _release_hold(self, now: float) -> None:
        if self._forced is not None and _over(self._forced, now):
            self._forced = None

    def _probes_in_flight(self, now: float) -> int:
        if self._leases:
            self._leases = [permit for permit in self._leases if permit.expires_at > now]
        return len(self._leases)

    # What people do.

    def force(
        self, state: State, now: float, until: float | None = None, reason: str | None = None
    ) -> None:
        """Hold it open until a time (None: until reset), or close it and hold it closed until one.

        A hold never shortens an open time that runs. Closing without a time holds nothing.

        Raises:
            ValueError: if asked for half-open, which only time leads to.
        """
        self.tick(now)
        if state is OPEN:
            self._forced = Override(value=OPEN, until=until, reason=reason)
            text = _because("forced open", reason)
            if self._state is CLOSED:
                # What failed before is not why it opens, and is not to be named as such.
                self._evidence.last_counted = None
            if self._state is not OPEN:
                self._open_until = now
            self._move(Event.HOLD, text, now)
        elif state is CLOSED:
            held = until is not None
            self._forced = Override(value=CLOSED, until=until, reason=reason) if held else None
            self._start_over(Event.CLOSE, _because("forced closed", reason), now)
        else:
            raise ValueError("a breaker cannot be forced half-open")
        self.tick(now)

    def set_mode(
        self, mode: Mode, now: float, until: float | None = None, reason: str | None = None
    ) -> None:
        """Override the configured mode until a time; None: until reset."""
        self.tick(now)
        self._mode_override = Override(value=mode, until=until, reason=reason)
        self._apply_mode(now)
        self._schedule()

    def reset(self, now: float, reason: str | None = None) -> None:
        """Close it, forget window, run and doubling, and take back everything set by hand."""
        self._forced = self._mode_override = None
        self._start_over(Event.CLOSE, _because("reset", reason), now)
        # Also of one that was closed, whose last order no longer holds.
        self._reason = _because("reset", reason)
        self._apply_mode(now)

    def pardon(self, since: float, now: float, reason: str) -> None:
        """Take back what connection failures did since a time: they were not the upstream's.

        Nothing that an operator set is touched, and nothing that an answer or a timeout did.
        """
        self.tick(now)
        counted = self._evidence.last_counted
        if self._forced is not None or counted is None:
            return
        outcome, at = counted
        if outcome.kind is not Kind.CONNECTION or at < since:
            return
        if self._state is CLOSED:
            self._evidence.clear()
        elif self._tripped_by is Kind.CONNECTION and (self._opened_at or now) >= since:
            self._start_over(Event.CLOSE, reason, now)

    def configure(self, settings: Settings, now: float) -> None:
        """Take other thresholds; they apply from the next outcome, what was decided stands."""
        self.tick(now)
        self._settings = settings
        self._evidence.configure(settings, now)
        self._apply_mode(now)

    def _apply_mode(self, now: float) -> None:
        override = self._mode_override
        mode = self._settings.mode if override is None else Mode(override.value)
        switched_off = mode is Mode.OFF and self._mode is not Mode.OFF
        self._mode = mode
        stands_open = mode is Mode.OFF and self._state is not CLOSED
        if self._forced is None and (switched_off or stands_open):
            reason = None if override is None else override.reason
            self._start_over(Event.CLOSE, _because("switched off", reason), now)

    # What outlives the process.

    def saved(self, now: float, subject: str | None) -> SavedBreaker | None:
        """What must outlive the process; None if nothing must."""
        self.tick(now)
        run, forced, override = self._evidence.run, self._forced, self._mode_override
        wait = hold = mode = None
        if self._state is OPEN and now < run.wait_until <= self._open_until:
            hint = None if run.hint is None else min(run.hint, FAR)
            wait = Wait(until=run.wait_until, hint=hint, kind=self._tripped_by, reason=self._reason)
        if forced is not None:
            hold = Hold(state=State(forced.value), until=forced.until, reason=forced.reason)
        if override is not None:
            mode = SetMode(mode=Mode(override.value), until=override.until, reason=override.reason)
        if wait is None and hold is None and mode is None:
            return None
        return SavedBreaker(since=self._since, subject=subject, hold=hold, mode=mode, wait=wait)

    def restore(self, saved: SavedBreaker, now: float) -> bool:
        """Take up what an earlier process knew, as far as it still holds.

        Returns:
            Whether anything of it did.
        """
        wait, hold, mode = saved.wait, saved.hold, saved.mode
        taken = False
        if wait is not None and wait.until > now and self._mode is not Mode.OFF:
            self._resume_wait(wait, now)
            taken = True
        if hold is not None and hold.state is not HALF_OPEN and _still(hold.until, now):
            self.force(hold.state, now, hold.until, hold.reason)
            taken = True
        if taken:
            self._since = min(saved.since, now)
            if self._state is OPEN:
                self._opened_at = self._since
        if mode is not None and _still(mode.until, now):
            self.set_mode(mode.mode, now, mode.until, mode.reason)
            taken = True
        return taken

    def _resume_wait(self, wait: Wait, now: float) -> None:
        until = min(wait.until, now + self._settings.retry_after_max)
        self._evidence.run.remember(until, wait.hint)
        self._open_until = until
        self._tripped_by = wait.kind
        self._move(Event.TRIP, wait.reason or "the upstream asked to wait", now)

    # What is shown.

    @property
    def state(self) -> State:
        """The state as of the last call or tick."""
        return self._state

    @property
    def mode(self) -> Mode:
        """The mode that is in force: an operator's, else the configured one."""
        return self._mode

    @property
    def disposable(self) -> bool:
        """Whether forgetting it loses nothing that is decided, running, or set by hand."""
        return (
            self._state is CLOSED
            and not self.in_flight
            and self._forced is None
            and self._mode_override is None
        )

    def accepted_lately(self, now: float) -> float:
        """Calls a second that went well in the last seconds; what a throttle gate begins with."""
        return self._evidence.window.lately(now, now - self._since)

    def snapshot(self, now: float) -> Snapshot:
        """Everything that is shown of it, as of `now`."""
        self.tick(now)
        evidence = self._evidence
        if not self.in_flight and self._state is CLOSED:
            evidence.decay(self._idle_since, now)
        known = self._state is not CLOSED and self._half_open_at < inf
        return Snapshot(
            key=self.key,
            provider=self.provider,
            state=self._state,
            mode=self._mode,
            reason=self._why(),
            since=self._since,
            opens=self._opens,
            consecutive_failures=evidence.run.failures,
            deduplicated=evidence.run.deduplicated,
            window=evidence.window.figures(now),
            opened_at=self._opened_at,
            half_open_at=self._half_open_at if known else None,
            retry_after=self._half_open_at - now if known and self._state is OPEN else None,
            probes_in_flight=self._probes_in_flight(now),
            hint=evidence.run.hint if self._state is OPEN else None,
            last_error=evidence.last_error,
            in_flight=self.in_flight,
            forced=self._forced,
            mode_override=self._mode_override,
            open_seconds=self._open_seconds + (now - self._since if self._state is OPEN else 0.0),
        )

    def _why(self) -> str | None:
        if self._forced is not None:
            return _because(f"forced {self._forced.value}", self._forced.reason)
        return self._reason


def _over(override: Override, now: float) -> bool:
    return override.until is not None and override.until <= now


def _still(until: float | None, now: float) -> bool:
    return until is None or until > now


def _because(what: str, reason: str | None) -> str:
    return f"{what}: {reason}" if reason else what
