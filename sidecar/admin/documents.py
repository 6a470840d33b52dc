"""What the admin plane answers and takes, as shapes: `/openapi.json` is drawn from them.

The documents themselves are made where their facts are; a test reads every one of them back through
its shape, which knows no other members, so neither can change without the other.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sidecar.breaker.gating import GateState
from sidecar.breaker.model import Kind, Mode, State, UpstreamVerdict
from sidecar.config.problems import Problem
from sidecar.envelope.model import Envelope, ErrorClass, Source, Verdict
from sidecar.faults.injector import Injected
from sidecar.telemetry.tally import Reclassified, Totals

Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A JSON object with these members and no others."""


class Anything(msgspec.Struct, frozen=True):
    """A JSON object that is described elsewhere."""


# -- refusals -----------------------------------------------------------------------------------


class Trouble(Shape, frozen=True, kw_only=True):
    """What is wrong: a word for a program and a line for a person."""

    code: str
    message: str


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was not carried out. Some have more members than this."""

    error: Trouble


# -- the daemon ---------------------------------------------------------------------------------


class Health(Shape, frozen=True, kw_only=True):
    """One word."""

    status: Literal["ok", "ready", "starting", "draining"]


class Window(Shape, frozen=True, kw_only=True):
    """The verdicts of the last seconds."""

    seconds: Seconds
    success: Count
    failure: Count
    alive: Count
    throttle: Count
    neutral: Count
    failure_ratio: Share | None


class Failed(Shape, frozen=True, kw_only=True):
    """The last bad evidence."""

    kind: Kind
    code: str | None
    status: int | None
    at: Moment


class Breaker(Shape, frozen=True, kw_only=True):
    """One breaker."""

    state: State
    mode: Mode
    reason: str | None
    since: Moment
    opens: Count
    consecutive_failures: Count
    deduplicated: Count
    window: Window
    opened_at: Moment | None
    half_open_at: Moment | None
    retry_after: Seconds | None
    probes_in_flight: Count
    hint: float | None
    last_error: Failed | None
    # A dependency's entry has these too.
    source: Literal["database", "sdk"] | msgspec.UnsetType = msgspec.UNSET
    system: str | msgspec.UnsetType | None = msgspec.UNSET
    in_flight: Count | msgspec.UnsetType = msgspec.UNSET
    errors: Errors | msgspec.UnsetType = msgspec.UNSET


class Gate(Shape, frozen=True, kw_only=True):
    """The rate limit of one key."""

    key: str
    state: GateState
    not_before: Moment | None
    rate: Seconds | None
    queued: Count
    shed: Count
    hint: float | None
    hint_source: str | None


class Budget(Shape, frozen=True, kw_only=True):
    """The spent budget of one key."""

    key: str
    until: Moment | None
    code: str
    next_check: Moment


class Errors(Shape, frozen=True, kw_only=True):
    """Envelopes that callers got."""

    by_class: dict[ErrorClass, Count]
    by_code: dict[str, Count]


class FalseDress(Shape, frozen=True, kw_only=True):
    """Answers whose status was not one of their class's own."""

    total: Count
    last: Reclassified | None


class Provider(Shape, frozen=True, kw_only=True):
    """One provider."""

    verdict: UpstreamVerdict
    upstream: str
    dialect: str
    mode: Mode
    in_flight: Count
    breakers: dict[str, Breaker]
    shedding: list[Gate]
    quota: list[Budget]
    errors: Errors
    reclassified: FalseDress


class Configured(Shape, frozen=True, kw_only=True):
    """The configuration in force."""

    generation: Annotated[int, Meta(ge=1)]
    hash: str
    error: str | None
    disabled: dict[str, str]


class Status(Shape, frozen=True, kw_only=True):
    """The whole daemon at one moment."""

    schema: Literal[1]
    version: str
    compiled: bool
    started_at: Moment
    config: Configured
    network: Literal["up", "down"]
    providers: dict[str, Provider]
    dependencies: dict[str, Breaker]
    totals: Totals


class Reloaded(Shape, frozen=True, kw_only=True):
    """What a reload changed."""

    generation: int
    hash: str
    added: list[str]
    removed: list[str]
    changed: list[str]
    restart_needed: list[str]
    warnings: list[str]


class NotReloaded(Shape, frozen=True, kw_only=True):
    """Why a configuration was refused."""

    error: Trouble
    generation: int
    hash: str
    problems: list[Problem]


# -- faults -------------------------------------------------------------------------------------


class FaultRule(Shape, frozen=True, kw_only=True):
    """A rule in force."""

    rule: str
    fault: str
    added: bool
    matched: Count
    injected: Count


class Faults(Shape, frozen=True, kw_only=True):
    """The faults that are injected."""

    allowed: bool
    seed: int
    ends_in: float | None
    rules: list[FaultRule]
    injected: Count
    record: list[Injected]


# -- what agents ask ----------------------------------------------------------------------------


class Classification(Shape, frozen=True, kw_only=True):
    """What an error is."""

    envelope: Envelope | None
    verdict: Verdict
    rule: str


class Permit(Shape, frozen=True, kw_only=True):
    """A lease."""

    permit: str


class NoPermit(Shape, frozen=True, kw_only=True):
    """An open breaker; the envelope alone for who accepts its media type."""

    error: Trouble
    envelope: Envelope


class Reported(Shape, frozen=True, kw_only=True):
    """What a reported call was, and what its breaker made of it."""

    envelope: Envelope | None
    verdict: Verdict
    rule: str
    breaker: Breaker | None


class Sighting(Shape, frozen=True, kw_only=True):
    """One failure of a group."""

    at: Moment
    correlation_id: str


class Group(Shape, frozen=True, kw_only=True):
    """Failures that have the named fields in common."""

    count: Count
    first: Sighting
    last: Sighting
    class_: ErrorClass | msgspec.UnsetType | None = msgspec.field(
        name="class", default=msgspec.UNSET
    )
    source: Source | msgspec.UnsetType | None = msgspec.UNSET
    code: str | msgspec.UnsetType | None = msgspec.UNSET
    provider: str | msgspec.UnsetType | None = msgspec.UNSET
    minutes: list[Count] | msgspec.UnsetType = msgspec.UNSET


class Entry(Shape, frozen=True, kw_only=True):
    """One failure."""

    at: Moment
    provider: str | None
    dependency: str | None
    key: str | None
    decision: str | None
    status: int | None
    upstream_status: int | None
    duration: Seconds
    verdict: Verdict | None
    rule: str | None
    fault: str | None
    envelope: Envelope
    number: Count | msgspec.UnsetType = msgspec.UNSET


class Failures(Shape, frozen=True, kw_only=True):
    """Groups, or the last failures: each answer has the members of one of both."""

    since: Moment | msgspec.UnsetType = msgspec.UNSET
    seconds: Count | msgspec.UnsetType = msgspec.UNSET
    by: list[str] | msgspec.UnsetType = msgspec.UNSET
    total: Count | msgspec.UnsetType = msgspec.UNSET
    groups: list[Group] | msgspec.UnsetType = msgspec.UNSET
    after: Count | msgspec.UnsetType = msgspec.UNSET
    failures: list[Entry] | msgspec.UnsetType = msgspec.UNSET


class OneWorkflow(Shape, frozen=True, kw_only=True):
    """The failures of one correlation id."""

    correlation_id: str
    failures: list[Entry]


class Moved(Shape, frozen=True, kw_only=True):
    """The data of one event of `/events`."""

    at: Moment
    key: str
    provider: str
    old: str
    new: str
    reason: str
    enforced: bool
    retry_after: Seconds | None
