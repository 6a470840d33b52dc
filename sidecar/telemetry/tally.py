"""The counters that /status shows: how many calls, which errors, how many in a false dress.

A listener of finished calls. The figures only grow, so that two readings can be subtracted; a
provider or dependency that a reload removed is forgotten.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sidecar.envelope.model import Envelope, ErrorClass
from sidecar.telemetry.observer import (
    FORWARDED,
    CallFinished,
    ConfigReloaded,
    DependencyCalled,
    Fact,
)

_MOST_CODES = 100
"""Distinct codes kept a provider: an upstream that makes them up must not fill the memory."""
_OTHER = "other"


class Totals(msgspec.Struct):
    """Calls since the start: `requests` is always `forwarded` plus `answered_here`."""

    requests: int = 0
    forwarded: int = 0
    answered_here: int = 0


class Reclassified(msgspec.Struct, frozen=True, rename={"class_": "class"}):
    """The last answer whose status was not one of its class's own.

    Attributes:
        status: the status in which it came.
        class_: the class that it has; `class` on the wire.
        code: the code that it has.
        correlation_id: of that call.
    """

    status: int
    class_: str
    code: str
    correlation_id: str


class CallTally:
    """The figures of one provider or dependency."""

    __slots__ = ("by_class", "by_code", "last", "reclassified")

    def __init__(self) -> None:
        self.by_class: dict[str, int] = {class_.value: 0 for class_ in ErrorClass}
        self.by_code: dict[str, int] = {}
        self.reclassified = 0
        self.last: Reclassified | None = None

    def count(self, envelope: Envelope) -> None:
        """Add one call that failed."""
        self.by_class[envelope.class_] += 1
        code = envelope.code
        if code not in self.by_code and len(self.by_code) >= _MOST_CODES:
            code = _OTHER
        self.by_code[code] = self.by_code.get(code, 0) + 1

    def reclassify(self, call: CallFinished, envelope: Envelope) -> None:
        """Add one answer whose status was not one of its class's own."""
        self.reclassified += 1
        self.last = Reclassified(
            status=call.status if call.upstream_status is None else call.upstream_status,
            class_=envelope.class_.value,
            code=envelope.code,
            correlation_id=envelope.correlation_id or call.correlation_id,
        )

    def errors(self) -> dict[str, Any]:
        """`errors` of /status: by class, every class named, and by code."""
        return {"by_class": dict(self.by_class), "by_code": dict(self.by_code)}

    def reclassifications(self) -> dict[str, Any]:
        """`reclassified` of /status: how many, and the last one or None."""
        last = None if self.last is None else msgspec.to_builtins(self.last)
        return {"total": self.reclassified, "last": last}


class Tally:
    """Counts every finished call; give it to an `Observer` as a listener.

    The errors of a provider or a dependency are all envelopes that its callers got, the daemon's
    own answers included: `by_code` tells them apart. `totals` are calls through the daemon alone.
    """

    def __init__(self) -> None:
        self.totals = Totals()
        self._named: dict[str, CallTally] = {}

    def __call__(self, fact: Fact) -> None:
        """Hear a fact."""
        if isinstance(fact, CallFinished):
            self._call(fact)
        elif isinstance(fact, DependencyCalled):
            if fact.envelope is not None:
                self._of(fact.dependency).count(fact.envelope)
        elif isinstance(fact, ConfigReloaded):
            for name in fact.removed:
                self._named.pop(name, None)

    def _call(self, call: CallFinished) -> None:
        totals = self.totals
        totals.requests += 1
        if call.decision == FORWARDED:
            totals.forwarded += 1
        else:
            totals.answered_here += 1
        if call.envelope is None or call.provider is None:
            return
        tally = self._of(call.provider)
        tally.count(call.envelope)
        if call.reclassified:
            tally.reclassify(call, call.envelope)

    def _of(self, name: str) -> CallTally:
        tally = self._named.get(name)
        if tally is None:
            tally = self._named[name] = CallTally()
        return tally

    def named(self, name: str) -> CallTally:
        """The figures of a provider or dependency, all zero if it has not been called."""
        return self._named.get(name) or CallTally()
