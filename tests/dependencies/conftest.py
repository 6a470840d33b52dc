"""Dependencies with the real breakers behind them, and a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sidecar.breaker.network import Network
from sidecar.breaker.registry import Registry
from sidecar.config.resolved import Dependency
from sidecar.config.schema import BreakerRules
from sidecar.dependencies.guard import Dependencies, Refused, Reported, breaker_settings
from sidecar.dependencies.permits import Lease
from sidecar.dependencies.reports import Report
from sidecar.envelope.raised import Raised
from sidecar.telemetry.failures import Failures
from sidecar.telemetry.observer import DependencyCalled, Fact, Observer

REFUSED = Raised(type="ConnectionRefusedError", errno=111, message="Connection refused")


def dependency(name: str = "db", source: str = "database", **fields: Any) -> Dependency:
    breaker = {"consecutive_failures": 2, "open_for": 30.0, "jitter": 0.0}
    breaker |= fields.pop("breaker", {})
    return Dependency(name=name, source=source, breaker=BreakerRules(**breaker), **fields)


class Scene:
    """Some dependencies at t = 1000 s."""

    def __init__(self, *dependencies: Dependency) -> None:
        self.now = 1000.0
        self.facts: list[Fact] = []
        self.failures = Failures(lambda: self.now)
        self.observer = Observer(self.facts.append, self.failures)
        self.registry = Registry(self.observer.emit, random=lambda: 0.0)
        self.network = Network(self.observer.emit)
        self.dependencies = Dependencies({}, self.registry, self.observer, self.network)
        self.reload(*(dependencies or (dependency(),)))

    def reload(self, *dependencies: Dependency) -> None:
        configured = {one.name: one for one in dependencies}
        settings = {name: breaker_settings(one) for name, one in configured.items()}
        self.registry.configure(settings, self.now)
        self.dependencies.configure(configured, self.now)

    def ask(self, name: str = "db", correlation_id: str = "c-1") -> Lease | Refused:
        return self.dependencies.permit(name, correlation_id, self.now)

    def permit(self, name: str = "db", correlation_id: str = "c-1") -> str:
        given = self.ask(name, correlation_id)
        assert isinstance(given, Lease), given
        return given.id

    def report(
        self,
        permit: str,
        error: Raised | None = None,
        name: str = "db",
        correlation_id: str | None = None,
        **more: Any,
    ) -> Reported:
        report = Report(permit=permit, error=error, **more)
        return self.dependencies.report(name, report, correlation_id, self.now)

    def shown(self, name: str = "db") -> Any:
        return self.dependencies.snapshot(name, self.now)

    def told(self, decision: str | None = None) -> list[DependencyCalled]:
        calls = [fact for fact in self.facts if isinstance(fact, DependencyCalled)]
        return [call for call in calls if decision in (None, call.decision)]


def changed(one: Dependency, **fields: Any) -> Dependency:
    return msgspec.structs.replace(one, **fields)


@pytest.fixture
def scene() -> Callable[..., Scene]:
    return Scene
