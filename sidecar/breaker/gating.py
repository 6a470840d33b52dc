"""The words of the gates: settings in, what a call is told, facts out.

Frozen records without behaviour, as in `model`. A gate stands before the calls of one key: one
credential at one model of one provider. Times are monotonic seconds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec


class GateState(StrEnum):
    """Where the throttle gate of one key stands."""

    IDLE = "idle"
    WAITING = "waiting"
    SHEDDING = "shedding"


class QuotaMode(StrEnum):
    """How far a spent budget reaches: further calls refused, only shown, or not even that."""

    GATE = "gate"
    OBSERVE = "observe"
    OFF = "off"


class GateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`shedding` of `breakers.yaml` as plain numbers; the defaults are its own.

    Attributes:
        sustained_count: throttles within the window from which calls are paced.
        sustained_window: seconds of that window.
        sustained_ratio: share of the calls that must have been throttled, or shed instead.
        max_wait: seconds that a call is held at most.
        max_queue: calls of one key that are held at a time.
        min_rate: calls a second that pacing never goes below.
        quota_mode: what a spent budget does.
        recheck: seconds after which one call asks again whether a budget is still spent.
        open_after: seconds at the floor without a success or a hint, from which a throttle counts
            as a failure; 0 = never.
        retry_after_max: seconds that a gate stays closed at most for one hint.
    """

    sustained_count: int = 5
    sustained_window: float = 30.0
    sustained_ratio: float = 0.5
    max_wait: float = 2.0
    max_queue: int = 16
    min_rate: float = 1.0
    quota_mode: QuotaMode = QuotaMode.GATE
    recheck: float = 60.0
    open_after: float = 600.0
    retry_after_max: float = 3600.0


class LimitKey(NamedTuple):
    """Whose limit it is: limits are kept by credential and model, never for a provider as a whole.

    Attributes:
        credential: a keyed hash, never shown.
        subject: the model, or `~` and the route of a call without one.
    """

    credential: bytes
    subject: str


class Hint(NamedTuple):
    """How long an upstream asked to wait.

    Attributes:
        seconds: as given, finite and >= 0.
        source: the header's name, `body`, or `rule` for a documented constant.
    """

    seconds: float
    source: str


class Shed(msgspec.Struct, frozen=True):
    """A call that a gate does not let through, and would not within its patience.

    Attributes:
        wait: seconds until a slot, > 0.
        reason: one line for the caller.
    """

    wait: float
    reason: str


class Spent(msgspec.Struct, frozen=True):
    """A call whose budget is known to be spent.

    Attributes:
        code: the budget word that the upstream's answer got.
        reason: one line for the caller.
    """

    code: str
    reason: str


class GateSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What `/status` shows of one throttle gate.

    Attributes:
        key: provider and subject; a number tells credentials apart.
        not_before: when the gate opens again; None where it is open.
        rate: calls a second that pass while it sheds; None otherwise.
        queued: calls that are held.
        shed: calls that were shed since the gate was made.
        hint: seconds that the upstream asked for, as given; None where it gave none.
        hint_source: where it said so.
    """

    key: str
    state: GateState
    not_before: float | None
    rate: float | None
    queued: int
    shed: int
    hint: float | None
    hint_source: str | None


class QuotaSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What `/status` shows of one spent budget.

    Attributes:
        key: as of `GateSnapshot`.
        until: when the source says that it reopens; None where it does not say.
        code: the budget word.
        next_check: when the next call may ask again.
    """

    key: str
    until: float | None
    code: str
    next_check: float
