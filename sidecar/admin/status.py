"""`GET /status`: one reading of the whole daemon, in the shape of the contract and in that only.

Everything is read at one moment, between two awaits, so the figures of one document belong
together. Inside, times are monotonic; here, at the edge, they become UTC for people. What an
upstream wrote is not shown: its words belong to the caller who got them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from sidecar import __version__
from sidecar.breaker.gates import Gates
from sidecar.breaker.gating import GateSnapshot, QuotaSnapshot
from sidecar.breaker.model import LastError, Snapshot, UpstreamVerdict, WindowFigures
from sidecar.compiled import compiled
from sidecar.config.addresses import without_user_info
from sidecar.config.resolved import Config
from sidecar.telemetry.tally import Tally

SCHEMA = 1
"""Grows when a key of the document changes its meaning or goes; new keys do not count."""


class SnapshotSource(Protocol):
    """The part of the breaker registry that is read here."""

    def snapshots(self, provider: str, now: float) -> Sequence[Snapshot]:
        """All breakers of a provider, its own among them."""

    def provider_verdict(self, provider: str, now: float) -> UpstreamVerdict:
        """How a provider is, for people."""

    def gates(self, provider: str) -> Gates:
        """The rate limits and spent budgets of a provider."""


class PermitSource(Protocol):
    """The part of the dependencies that is read here."""

    def in_flight(self, name: str) -> int:
        """Permits that wait for their reports."""


class StatusSource(Protocol):
    """What the document is made of."""

    @property
    def config(self) -> Config:
        """The configuration in force."""

    @property
    def registry(self) -> SnapshotSource:
        """The breakers."""

    @property
    def dependencies(self) -> PermitSource:
        """What the agent calls by itself."""

    @property
    def network_down(self) -> bool:
        """Has this machine no way out?"""

    @property
    def tally(self) -> Tally:
        """The counters."""

    @property
    def started_at(self) -> float:
        """When the daemon started, seconds since the epoch."""

    @property
    def generation(self) -> int:
        """How many configurations have been in force, from 1."""

    @property
    def config_error(self) -> str | None:
        """Why the last reload was refused; None if it was taken."""

    def in_flight(self, provider: str) -> int:
        """Calls of a provider that have begun and not ended."""


class Times:
    """Turns monotonic times into text by one reading of both clocks.

    Args:
        now: the monotonic clock, seconds.
        wall: the wall clock at the same moment, seconds since the epoch.
    """

    def __init__(self, now: float, wall: float) -> None:
        self.now = now
        self._offset = wall - now

    def text(self, at: float | None) -> str | None:
        """A monotonic time as RFC 3339 in UTC with milliseconds; None stays None."""
        return None if at is None else rfc3339(at + self._offset)


def rfc3339(seconds: float) -> str:
    """Seconds since the epoch as `2026-01-31T12:00:00.000Z`."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def status(source: StatusSource, now: float, wall: float) -> dict[str, Any]:
    """The document of `GET /status`.

    Args:
        source: the daemon.
        now: the monotonic clock, seconds.
        wall: the wall clock at the same moment, seconds since the epoch.
    """
    config = source.config
    times = Times(now, wall)
    return {
        "schema": SCHEMA,
        "version": __version__,
        "compiled": compiled(),
        "started_at": rfc3339(source.started_at),
        "config": {
            "generation": source.generation,
            "hash": config.hash,
            "error": source.config_error,
            "disabled": dict(config.disabled),
        },
        "network": "down" if source.network_down else "up",
        "providers": {name: provider_entry(source, name, times) for name in config.providers},
        "dependencies": {
            name: dependency_entry(source, source.registry.snapshots(name, now)[0], times)
            for name in config.dependencies
        },
        "totals": msgspec.to_builtins(source.tally.totals),
    }


def provider_entry(source: StatusSource, name: str, times: Times) -> dict[str, Any]:
    """One provider's part of the document."""
    provider = source.config.providers[name]
    snapshots = source.registry.snapshots(name, times.now)
    gates = source.registry.gates(name)
    tally = source.tally.named(name)
    return {
        "verdict": source.registry.provider_verdict(name, times.now).value,
        "upstream": shown_upstream(provider.upstream),
        "dialect": provider.dialect,
        "mode": str(provider.mode),
        "in_flight": source.in_flight(name),
        "breakers": {snapshot.key: breaker_entry(snapshot, times) for snapshot in snapshots},
        "shedding": [gate_entry(gate, times) for gate in gates.gate_snapshots(times.now)],
        "quota": [quota_entry(quota, times) for quota in gates.quota_snapshots()],
        "errors": tally.errors(),
        "reclassified": tally.reclassifications(),
    }


def dependency_entry(source: StatusSource, snapshot: Snapshot, times: Times) -> dict[str, Any]:
    """One dependency's part: its breaker's, and what only a dependency has."""
    name = snapshot.key
    dependency = source.config.dependencies[name]
    return {
        **breaker_entry(snapshot, times),
        "source": dependency.source,
        "system": dependency.system,
        "in_flight": source.dependencies.in_flight(name),
        "errors": source.tally.named(name).errors(),
    }


def breaker_entry(snapshot: Snapshot, times: Times) -> dict[str, Any]:
    """One breaker's part of the document."""
    return {
        "state": snapshot.state.value,
        "mode": snapshot.mode.value,
        "reason": snapshot.reason,
        "since": times.text(snapshot.since),
        "opens": snapshot.opens,
        "consecutive_failures": snapshot.consecutive_failures,
        "deduplicated": snapshot.deduplicated,
        "window": _window(snapshot.window),
        "opened_at": times.text(snapshot.opened_at),
        "half_open_at": times.text(snapshot.half_open_at),
        "retry_after": _seconds_left(snapshot.retry_after),
        "probes_in_flight": snapshot.probes_in_flight,
        "hint": snapshot.hint,
        "last_error": _last_error(snapshot.last_error, times),
    }


def gate_entry(gate: GateSnapshot, times: Times) -> dict[str, Any]:
    """One throttle gate's part of the document."""
    return {
        "key": gate.key,
        "state": gate.state.value,
        "not_before": times.text(gate.not_before),
        "rate": None if gate.rate is None else round(gate.rate, 3),
        "queued": gate.queued,
        "shed": gate.shed,
        "hint": gate.hint,
        "hint_source": gate.hint_source,
    }


def quota_entry(quota: QuotaSnapshot, times: Times) -> dict[str, Any]:
    """One spent budget's part of the document."""
    return {
        "key": quota.key,
        "until": times.text(quota.until),
        "code": quota.code,
        "next_check": times.text(quota.next_check),
    }


def _seconds_left(seconds: float | None) -> float | None:
    return None if seconds is None else max(0.0, round(seconds, 3))


def _window(window: WindowFigures) -> dict[str, Any]:
    ratio = window.failure_ratio
    return {
        "seconds": int(window.seconds) if window.seconds == int(window.seconds) else window.seconds,
        "success": window.success,
        "failure": window.failure,
        "alive": window.alive,
        "throttle": window.throttle,
        "neutral": window.neutral,
        "failure_ratio": None if ratio is None else round(ratio, 4),
    }


def _last_error(error: LastError | None, times: Times) -> dict[str, Any] | None:
    if error is None:
        return None
    return {
        "kind": error.kind.value,
        "code": error.code,
        "status": error.status,
        "at": times.text(error.at),
    }


def shown_upstream(upstream: str) -> str:
    """An upstream's address without anything that could be a secret: user-info, query, fragment."""
    return without_user_info(upstream.partition("?")[0].partition("#")[0])
