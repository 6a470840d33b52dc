"""The breaker's words: settings in, outcomes in, facts out.

Frozen records without behaviour, so that the machine, the proxy, the admin plane and telemetry can
share them without sharing anything else. Times are monotonic seconds; whoever shows them to people
converts them.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from sidecar.breaker.gating import GateSettings
from sidecar.envelope.model import Verdict


class State(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Mode(StrEnum):
    """How far a breaker's decisions reach: refused, only computed and shown, or not even that."""

    ENFORCE = "enforce"
    OBSERVE = "observe"
    OFF = "off"


class Scope(StrEnum):
    """Whether a provider has a breaker per model beside its own, or one for everything."""

    MODEL = "model"
    PROVIDER = "provider"


class UpstreamVerdict(StrEnum):
    """How a provider is as a whole, derived from its breakers."""

    UP = "up"
    DEGRADED = "degraded"
    DOWN = "down"


class Verb(StrEnum):
    """What an operator can do to one breaker."""

    OPEN = "open"
    CLOSE = "close"
    RESET = "reset"
    ENFORCE = "enforce"
    OBSERVE = "observe"
    OFF = "off"


class Kind(StrEnum):
    """How a call failed: never connected, never finished in time, or answered and failed."""

    CONNECTION = "connection"
    TIMEOUT = "timeout"
    ANSWER = "answer"


class Cause(StrEnum):
    """Why a breaker moved, as one word of a closed list: what metrics count by."""

    CONSECUTIVE_FAILURES = "consecutive_failures"
    FAILURE_RATIO = "failure_ratio"
    OPEN_TIME_OVER = "open_time_over"
    PROBE_SUCCEEDED = "probe_succeeded"
    PROBE_FAILED = "probe_failed"
    BY_HAND = "by_hand"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker's thresholds as plain numbers; the defaults are those of `breakers.yaml`.

    Attributes:
        mode: enforce, observe or off.
        consecutive_failures: failures in a row that open it; 0 = rule off.
        window: seconds over which the ratio is taken.
        minimum_calls: decided calls (success + failure) in the window before the ratio counts.
        failure_ratio: share of failures among them that opens it; 0 = rule off.
        repeat_window: seconds in which one request's 5xx answers count once for the run; 0 = off.
        open_for: seconds of the first open time; doubles with each failed probe.
        open_max: seconds that the doubling stops at.
        jitter: share by which an open time is lengthened at random, 0.2 = 100 to 120 %.
        probes: calls let through at a time when half-open.
        successes: probes that must succeed to close it.
        retry_after_max: seconds at which an upstream's hint is capped.
        first_byte: seconds a call may wait for its first byte; lease and run decay follow from it.
    """

    mode: Mode = Mode.ENFORCE
    consecutive_failures: int = 5
    window: float = 60.0
    minimum_calls: int = 10
    failure_ratio: float = 0.5
    repeat_window: float = 30.0
    open_for: float = 30.0
    open_max: float = 300.0
    jitter: float = 0.2
    probes: int = 1
    successes: int = 2
    retry_after_max: float = 3600.0
    first_byte: float = 590.0


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the registry needs to know of one provider.

    Attributes:
        upstream: where its calls go; with the name and the scope it is the provider's identity,
            and state is kept over a reload only while that stays the same.
        scope: one breaker a model, or one for everything.
        settings: the thresholds of all its breakers.
        shedding: what its rate limits and budgets do.
    """

    upstream: str
    scope: Scope = Scope.MODEL
    settings: Settings = Settings()
    shedding: GateSettings = GateSettings()


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How one call ended.

    Attributes:
        verdict: what it says about the upstream.
        kind: how it failed; read for failures only.
        retry_after: seconds that the upstream asked to wait, as it gave them.
        hint_source: where it said so; of throttles only.
        resets_in: seconds until a spent budget reopens, as the upstream said.
        code: the envelope's code, for people; of a spent budget its word.
        status: the upstream's status, for people.
        fingerprint: tells one request from another; None where that is not known.
    """

    verdict: Verdict
    kind: Kind = Kind.ANSWER
    retry_after: float | None = None
    code: str | None = None
    status: int | None = None
    fingerprint: bytes | None = None
    hint_source: str | None = None
    resets_in: float | None = None


SUCCESS = Outcome(Verdict.SUCCESS)
NEUTRAL = Outcome(Verdict.NEUTRAL)


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker changed its state.

    Attributes:
        key: `PROVIDER`, `PROVIDER/MODEL` or `PROVIDER/~ROUTE`.
        provider: the provider's name.
        old: the state it left.
        new: the state it entered.
        reason: why, in words.
        at: when; a change that time brought about carries the time at which it was due.
        enforced: False where the mode lets every call through all the same.
        retry_after: seconds until it turns half-open; None unless it opened for a known time.
        cause: why, as one word.
    """

    key: str
    provider: str
    old: State
    new: State
    reason: str
    at: float
    enforced: bool
    retry_after: float | None = None
    cause: Cause = Cause.BY_HAND


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a breaker does not let through.

    Attributes:
        key: the breaker that refuses.
        state: its state, open or half-open.
        mode: its mode.
        retry_after: seconds after which asking again makes sense, > 0.
        reason: the last counted failure and how long ago it was, in words.
    """

    key: str
    state: State
    mode: Mode
    retry_after: float
    reason: str


class WindowFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts of the last `seconds`; `failure_ratio` is None without a decided call."""

    seconds: float
    success: int = 0
    failure: int = 0
    alive: int = 0
    throttle: int = 0
    neutral: int = 0
    failure_ratio: float | None = None


class LastError(msgspec.Struct, frozen=True, kw_only=True):
    """The last failure that a breaker heard of, late ones included."""

    at: float
    kind: Kind
    code: str | None
    status: int | None


class UnknownKeyError(KeyError):
    """No breaker has this key, and none can be made for it.

    Attributes:
        why: what is wrong with the key, as one line for a person.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class NoRoomError(Exception):
    """A provider has as many breakers as it may have, and all of them are needed."""


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator set by hand.

    Attributes:
        value: the forced state, or the mode.
        until: when it ends; None = until reset.
        reason: the operator's own words, if any.
    """

    value: State | Mode
    until: float | None
    reason: str | None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `/status` shows of one breaker. Times are monotonic seconds.

    Attributes:
        reason: why it is not closed, else why it closed last; None if it never moved.
        since: when it entered its state.
        opens: how often it opened, re-openings by a failed probe included.
        consecutive_failures: the run as the rule sees it.
        deduplicated: repeats of one request that the run did not count.
        opened_at: when it opened; None while closed.
        half_open_at: when it turns, or turned, half-open; None while closed or held for ever.
        retry_after: seconds left of the open time; None unless open for a known time.
        probes_in_flight: leases given out and neither settled nor expired.
        hint: seconds that the upstream asked for before it opened, as given.
        in_flight: calls admitted and not yet settled.
        forced: the state an operator holds it in.
        mode_override: the mode an operator set.
        open_seconds: how long it has been open in all, this time included.
    """

    key: str
    provider: str
    state: State
    mode: Mode
    reason: str | None
    since: float
    opens: int
    consecutive_failures: int
    deduplicated: int
    window: WindowFigures
    opened_at: float | None
    half_open_at: float | None
    retry_after: float | None
    probes_in_flight: int
    hint: float | None
    last_error: LastError | None
    in_flight: int
    forced: Override | None
    mode_override: Override | None
    open_seconds: float = 0.0


class Reconfigured(msgspec.Struct, frozen=True, kw_only=True):
    """What a reload did, by provider name.

    Attributes:
        kept: nothing changed.
        changed: new thresholds, state kept.
        replaced: another upstream or scope, started fresh.
        added: new.
        removed: gone; its running calls end without a trace.
    """

    kept: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
