"""Facts about what happened, and the one hub that hands them out.

The data plane and the daemon state facts; logs, counters, event streams and metrics are listeners
that know nothing of each other. Whatever a listener does wrong costs no call: its exception is
counted, reported once, and the next listener hears the fact all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum

import msgspec

from sidecar.breaker.model import Transition
from sidecar.breaker.network import NetworkChange
from sidecar.envelope.model import Envelope, RawMaker, Verdict
from sidecar.telemetry.trace import CallTrace

__all__ = [
    "LOCAL_REFUSALS",
    "AttemptFinished",
    "CallFinished",
    "ConfigReloaded",
    "Controlled",
    "DependencyCalled",
    "Ending",
    "Fact",
    "Fault",
    "Listener",
    "NetworkChange",
    "Observer",
    "Transition",
]

FORWARDED = "forwarded"
REPORTED = "reported"
EXPIRED = "expired"

LOCAL_REFUSALS = frozenset(
    {
        "bad_request",
        "bulkhead",
        "breaker_open",
        "draining",
        "forbidden_host",
        "local_network",
        "missing_credentials",
        "not_allowed",
        "quota",
        "shed",
        "sigv4_unsupported",
        "too_large",
        "unknown_provider",
    }
)
"""The decisions by which a call never reached an upstream: counted, not logged one by one."""


class Ending(StrEnum):
    """How a call ended, seen from outside: every call has exactly one.

    `reported` is that of calls that the agent made itself: it alone saw them end.
    """

    ANSWERED = "answered"
    CLIENT_LEFT = "client_left"
    UPSTREAM_CUT = "upstream_cut"
    TIMED_OUT = "timed_out"
    SHUTDOWN = "shutdown"
    REFUSED = "refused"
    REPORTED = "reported"


class CallFinished(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call of the data plane is over, however it ended.

    Attributes:
        at: when, seconds since the epoch.
        provider: the provider's name; None where none was found.
        key: the breaker's key that the call was counted on or refused by; None without one.
        model: the model that the request named, if any.
        method: the method of the request.
        path: the path at the upstream, secrets redacted, without the query.
        decision: `forwarded`, or why the daemon answered itself.
        status: what the caller was sent; 0 if it left before a status was sent.
        upstream_status: what the upstream sent; None if nothing came.
        envelope: None if the call is no error.
        verdict: what the breaker heard; None if it was not asked.
        rule: which rule of the classification decided.
        correlation_id: the one on the answer and in the envelope.
        duration: seconds from the request's head to the end.
        first_byte: seconds from the request's head to the upstream's first byte; None without one.
        reclassified: the upstream's status was not one of its class's own.
        would_refuse: the breaker would have refused, had it been enforced.
        ending: how it ended; None leaves it to `ending_of`, which cannot see a shutdown.
        upstream_request_id: the upstream's own id of the call, where an error gave one.
        look: makes the `raw` that the envelope leaves out.
        fault: the rule of the fault that was injected; None for a call as it came.
        attempts: requests that were sent to the upstream, or for which a connection was sought.
        first_content: seconds from the request's head to the first meaningful event of a stream;
            None without one.
        overhead: seconds that the daemon itself took before the request left; None where it never
            did.
        waited: seconds for which the call was held for its slot or place; None if it was not.
        trace: its span and what happened on its way; None while tracing is off.
    """

    at: float
    method: str
    path: str
    decision: str
    status: int
    correlation_id: str
    duration: float
    provider: str | None = None
    key: str | None = None
    model: str | None = None
    upstream_status: int | None = None
    envelope: Envelope | None = None
    verdict: Verdict | None = None
    rule: str = ""
    first_byte: float | None = None
    reclassified: bool = False
    would_refuse: bool = False
    ending: Ending | None = None
    upstream_request_id: str | None = None
    look: RawMaker | None = None
    fault: str | None = None
    attempts: int = 0
    first_content: float | None = None
    overhead: float | None = None
    waited: float | None = None
    trace: CallTrace | None = None


class AttemptFinished(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One of several attempts of a call that the daemon repeats is over.

    A call that was sent once states none: `CallFinished` says all there is to say.

    Attributes:
        at: when, seconds since the epoch.
        provider: the provider's name.
        correlation_id: of the call, the same for all its attempts.
        number: from 1.
        began: when the attempt began, seconds since the epoch.
        duration: seconds that it took.
        status: what the upstream sent; None if nothing came.
        code: of the failure; None if it was none.
    """

    at: float
    provider: str
    correlation_id: str
    number: int
    began: float
    duration: float
    status: int | None = None
    code: str | None = None


class DependencyCalled(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call that the agent made itself is over, or was not let through.

    Attributes:
        at: when, seconds since the epoch.
        dependency: its name, which is its breaker's key too.
        decision: `reported`, `expired` for a permit that no report came for, else why there was no
            permit.
        correlation_id: the one on the answer and in the envelope.
        duration: seconds, as reported, else from the permit to the report.
        envelope: None if the call is no error.
        verdict: what the breaker heard; None if it was not asked.
        rule: which rule of the classification decided.
        would_refuse: the breaker would have refused, had it been enforced.
        fault: the rule of the fault that was injected; None for a call as it was.
    """

    at: float
    dependency: str
    decision: str
    correlation_id: str
    duration: float
    envelope: Envelope | None = None
    verdict: Verdict | None = None
    rule: str = ""
    would_refuse: bool = False
    fault: str | None = None


class FaultInjected(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something was done to a call on purpose; what becomes of the call is told by its own fact.

    Attributes:
        at: when, seconds since the epoch.
        name: of the provider or dependency.
        fault: what: a class, a kind, or a decision of the daemon's own; a closed list.
        rule: the rule's name.
        call: how many calls the rule had matched by then.
        correlation_id: of the call.
        model: that the request named, if any.
        counts: the real breakers hear of it.
        of_dependency: the agent makes the call itself.
    """

    at: float
    name: str
    fault: str
    rule: str
    call: int
    correlation_id: str
    model: str | None = None
    counts: bool = False
    of_dependency: bool = False


class ConfigReloaded(msgspec.Struct, frozen=True, kw_only=True):
    """A reload was tried.

    Attributes:
        at: when, seconds since the epoch.
        generation: of the configuration that is in force now.
        hash: of the configuration that is in force now.
        added: providers and dependencies that are new.
        removed: those that are gone.
        changed: those whose settings changed.
        restart_needed: keys that changed but only count after a restart.
        warnings: what the loader warned of.
        problems: why the new one was refused; empty if it was taken.
    """

    at: float
    generation: int
    hash: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    restart_needed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Controlled(msgspec.Struct, frozen=True, kw_only=True):
    """A person or a program steered a breaker through the admin plane.

    Attributes:
        at: when, seconds since the epoch.
        key: the breaker's key.
        verb: open, close, reset, enforce, observe or off.
        duration: seconds until it ends by itself; None: until changed again.
        reason: what was given as reason.
    """

    at: float
    key: str
    verb: str
    duration: float | None = None
    reason: str | None = None


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Code of the daemon's own went wrong; the call went on, or got `internal_error`.

    Attributes:
        at: when, seconds since the epoch.
        where: the part that failed, one of a handful of words (`classify`, `breaker`, `proxy`).
        error: the exception.
        correlation_id: of the call at hand, if there was one.
    """

    at: float
    where: str
    error: BaseException
    correlation_id: str = ""


Fact = (
    CallFinished
    | AttemptFinished
    | DependencyCalled
    | Transition
    | NetworkChange
    | ConfigReloaded
    | Controlled
    | Fault
    | FaultInjected
)
Listener = Callable[[Fact], None]

_CUT_CODES = frozenset({"stream_truncated", "connection_reset", "connection_closed"})
_TIMEOUT_CODES = frozenset(
    {"first_byte_timeout", "first_content_timeout", "idle_timeout", "total_timeout"}
)


def ending_of(call: CallFinished) -> Ending:
    """How a call ended: as stated, else as its decision, code and verdict tell."""
    if call.ending is not None:
        return call.ending
    if call.decision in LOCAL_REFUSALS:
        return Ending.REFUSED
    if call.decision == "timeout":
        return Ending.TIMED_OUT
    envelope = call.envelope
    if envelope is None:
        left = call.verdict is Verdict.NEUTRAL and call.decision == FORWARDED
        return Ending.CLIENT_LEFT if left else Ending.ANSWERED
    if envelope.code in _TIMEOUT_CODES:
        return Ending.TIMED_OUT
    if envelope.code == "hang_abandoned":
        return Ending.CLIENT_LEFT
    if envelope.code in _CUT_CODES:
        return Ending.UPSTREAM_CUT
    return Ending.ANSWERED


class Observer:
    """Hands each fact to every listener, in order, and survives all of them.

    Attributes:
        failures: how many times a listener raised.
    """

    def __init__(self, *listeners: Listener) -> None:
        self._listeners: tuple[Listener, ...] = listeners
        self._reported: set[tuple[int, type[Exception]]] = set()
        self.failures = 0

    def add(self, listener: Listener) -> None:
        """Let one more listener hear what follows."""
        self._listeners = (*self._listeners, listener)

    def remove(self, listener: Listener) -> None:
        """Stop telling a listener; nothing happens if it is not one."""
        self._listeners = tuple(known for known in self._listeners if known != listener)

    def emit(self, fact: Fact) -> None:
        """State a fact. Never raises."""
        for listener in self._listeners:
            try:
                listener(fact)
            except Exception as error:  # noqa: BLE001 - whatever it is, the call goes on
                self._failed(listener, error)

    def _failed(self, listener: Listener, error: Exception) -> None:
        self.failures += 1
        mark = (id(listener), type(error))
        # A bound on what is remembered; a listener with a hundred ways to fail has been noticed.
        if mark in self._reported or len(self._reported) >= 100:
            return
        self._reported.add(mark)
        logging.getLogger("sidecar").error("listener.failed", exc_info=error)
