"""The permits that were given out and not yet reported on.

A permit is a lease: an agent that dies takes none with it for ever. Each one ends exactly once, by
its report or by the end of its time, and the breaker hears of it exactly once, whatever is reported
how often and in whatever order. What ended lately is remembered, so that a report that comes twice
or too late is told so.

Pure: times are monotonic seconds and never read from a clock.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from sidecar.breaker.admission import Admission
from sidecar.breaker.model import NEUTRAL
from sidecar.config.resolved import Dependency

MOST_OPEN: Final = 4096
"""Permits of one dependency that wait for their reports; beyond it the oldest is over."""

REMEMBERED: Final = 1024
"""Permits that ended and are still known."""


class Trouble(StrEnum):
    """Why a report settles nothing."""

    UNKNOWN = "unknown_permit"
    EXPIRED = "expired_permit"
    REPORTED = "already_reported"
    FOREIGN = "foreign_permit"


class Lease(msgspec.Struct, eq=False):
    """One permit on its way.

    Attributes:
        id: what the agent reports with.
        dependency: what it was given for, as it was configured then.
        admission: the breaker's side of it.
        correlation_id: of the call that asked for it.
        given_at: when.
        expires_at: when it is over by itself.
    """

    id: str
    dependency: Dependency
    admission: Admission
    correlation_id: str
    given_at: float
    expires_at: float


class Permits:
    """All permits of all dependencies.

    Args:
        on_expired: hears of each lease that ended without a report, and when it was noticed.
    """

    def __init__(self, on_expired: Callable[[Lease, float], None]) -> None:
        self._on_expired = on_expired
        self._open: dict[str, OrderedDict[str, Lease]] = {}
        self._ended: OrderedDict[str, Trouble] = OrderedDict()

    def give(
        self, dependency: Dependency, admission: Admission, correlation_id: str, now: float
    ) -> Lease:
        """A new permit for a call that was let through."""
        self._expire(dependency.name, now)
        leases = self._open.get(dependency.name)
        if leases is None:
            leases = self._open[dependency.name] = OrderedDict()
        if len(leases) >= MOST_OPEN:
            self._over(leases, now)
        lease = Lease(
            id=f"{dependency.name}.{secrets.token_hex(12)}",
            dependency=dependency,
            admission=admission,
            correlation_id=correlation_id,
            given_at=now,
            expires_at=now + dependency.lease,
        )
        leases[lease.id] = lease
        return lease

    def take(self, permit: str, name: str, now: float) -> Lease | Trouble:
        """The lease that a report ends, to be settled by the caller, or why it ends none.

        Args:
            permit: the id that the report names.
            name: the dependency that it was sent to.
            now: monotonic seconds.
        """
        owner = permit.partition(".")[0]
        self._expire(owner, now)
        leases = self._open.get(owner)
        if leases is None or permit not in leases:
            return self._ended.get(permit, Trouble.UNKNOWN)
        if owner != name:
            return Trouble.FOREIGN
        self._remember(permit, Trouble.REPORTED)
        return leases.pop(permit)

    def open(self, name: str) -> int:
        """How many permits of a dependency wait for their reports."""
        return len(self._open.get(name, ()))

    def tick(self, now: float) -> None:
        """End what is over; anyone may, at any time."""
        for name in tuple(self._open):
            self._expire(name, now)
            if not self._open[name]:
                del self._open[name]

    def configure(self, dependencies: Mapping[str, Dependency], now: float) -> None:
        """Take other dependencies: a shorter lease holds for running permits too.

        Permits of a dependency that has gone end as they would have.
        """
        for name, leases in self._open.items():
            dependency = dependencies.get(name)
            if dependency is not None:
                for lease in leases.values():
                    lease.expires_at = min(lease.expires_at, now + dependency.lease)

    def _expire(self, name: str, now: float) -> None:
        leases = self._open.get(name)
        # In the order in which they were given, which is that in which they end.
        while leases and next(iter(leases.values())).expires_at <= now:
            self._over(leases, now)

    def _over(self, leases: OrderedDict[str, Lease], now: float) -> None:
        permit, lease = leases.popitem(last=False)
        self._remember(permit, Trouble.EXPIRED)
        lease.admission.settle(NEUTRAL, now)
        self._on_expired(lease, now)

    def _remember(self, permit: str, how: Trouble) -> None:
        self._ended[permit] = how
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)
