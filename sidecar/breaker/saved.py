"""What of a breaker must outlive its process, and nothing that it only guessed.

What is authoritative: a state that a person holds, a mode that a person set, the time before which
an upstream itself asked not to be called, a breaker's or a key's, and a budget that it said is
spent. Runs, windows, doubled open times, rates and probes are this process's own inference: the
next one sees for itself.

The bounds are for reading back: whatever stands in a file, what is restored is of bounded size.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from sidecar.breaker.model import Kind, Mode, State

FAR = 1e12
"""Seconds: beyond every time that a clock tells; a number that is not finite is beyond it too."""

Moment = Annotated[float, Meta(ge=-FAR, le=FAR)]
Reason = Annotated[str, Meta(max_length=512)]


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A state that a person holds.

    Attributes:
        state: open or closed.
        until: when it ends; None = until reset.
        reason: in that person's words.
    """

    state: State
    until: Moment | None = None
    reason: Reason | None = None


class SetMode(msgspec.Struct, frozen=True, kw_only=True):
    """A mode that a person set; `until` and `reason` as in a hold."""

    mode: Mode
    until: Moment | None = None
    reason: Reason | None = None


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """The time before which an upstream asked not to be called, while the breaker stands open.

    Attributes:
        until: when it is over.
        hint: the seconds that it asked for, as given.
        kind: how the call failed that opened the breaker: whether one probe is enough.
        reason: why it opened, in words.
    """

    until: Moment
    hint: Annotated[float, Meta(ge=0, le=FAR)] | None = None
    kind: Kind | None = None
    reason: Reason | None = None


Ending = TypeVar("Ending", Hold, SetMode, Wait)


class SavedBreaker(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of one breaker; its times are of whichever clock its holder says.

    Attributes:
        subject: the model or route; None for the provider's own breaker.
        since: when it entered the state that is kept.
    """

    since: Moment
    subject: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    hold: Hold | None = None
    mode: SetMode | None = None
    wait: Wait | None = None

    def moved(self, by: float) -> SavedBreaker:
        """The same by a clock that is ahead by so many seconds."""
        return SavedBreaker(
            since=_at(self.since, by),
            subject=self.subject,
            hold=_moved(self.hold, by),
            mode=_moved(self.mode, by),
            wait=_moved(self.wait, by),
        )


class KeyWait(msgspec.Struct, frozen=True, kw_only=True):
    """The time before which an upstream asked one key not to call.

    Attributes:
        until: when it is over.
        hint: the seconds that it asked for, as given.
        source: where it said so.
    """

    until: Moment
    hint: Annotated[float, Meta(ge=0, le=FAR)]
    source: Annotated[str, Meta(max_length=64)]


class SpentBudget(msgspec.Struct, frozen=True, kw_only=True):
    """The budget of one key, which an upstream said is spent.

    Attributes:
        code: the budget word.
        until: when it reopens, as the source said; None where it did not say.
        next_check: when a call may ask again.
    """

    code: Annotated[str, Meta(max_length=64)]
    next_check: Moment
    until: Moment | None = None


class SavedLimit(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of the limits of one key.

    Attributes:
        credential: whose they are, as a keyed hash in hexadecimal digits.
        subject: the model or route.
        wait: while the key is asked to wait.
        budget: while it is spent.
    """

    credential: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]
    subject: Annotated[str, Meta(max_length=256)]
    wait: KeyWait | None = None
    budget: SpentBudget | None = None

    def moved(self, by: float) -> SavedLimit:
        """The same by a clock that is ahead by so many seconds."""
        wait, budget = self.wait, self.budget
        if wait is not None:
            wait = msgspec.structs.replace(wait, until=_at(wait.until, by))
        if budget is not None:
            until = None if budget.until is None else _at(budget.until, by)
            budget = msgspec.structs.replace(
                budget, until=until, next_check=_at(budget.next_check, by)
            )
        return msgspec.structs.replace(self, wait=wait, budget=budget)


class SavedProvider(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of one provider.

    Attributes:
        identity: of its upstream and scope: another one's holds and waits are not its own.
        breakers: those with something to keep.
        limits: keys with something to keep.
    """

    identity: Annotated[str, Meta(max_length=64)]
    breakers: Annotated[tuple[SavedBreaker, ...], Meta(max_length=1024)] = ()
    limits: Annotated[tuple[SavedLimit, ...], Meta(max_length=1024)] = ()

    def moved(self, by: float) -> SavedProvider:
        """The same by a clock that is ahead by so many seconds."""
        return SavedProvider(
            identity=self.identity,
            breakers=tuple(one.moved(by) for one in self.breakers),
            limits=tuple(one.moved(by) for one in self.limits),
        )


def _moved(ending: Ending | None, by: float) -> Ending | None:
    if ending is None or ending.until is None:
        return ending
    return msgspec.structs.replace(ending, until=_at(ending.until, by))


def _at(moment: float, by: float) -> float:
    return min(max(moment + by, -FAR), FAR)
