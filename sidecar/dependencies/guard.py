"""The breakers of what the agent calls by itself: admission, then the report that settles it.

The same machine guards a database and an API. What differs is who makes the call: here the daemon
sees neither bytes nor clocks, only what it is told. A dependency has one breaker, under its name.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sidecar import clock, correlation
from sidecar.breaker.admission import Admission
from sidecar.breaker.model import (
    NEUTRAL,
    SUCCESS,
    Mode,
    Outcome,
    ProviderSettings,
    Refusal,
    Scope,
    Settings,
    Snapshot,
)
from sidecar.breaker.network import Network
from sidecar.breaker.registry import Registry
from sidecar.config.resolved import Dependency
from sidecar.config.schema import FaultSection
from sidecar.dependencies.permits import Lease, Permits, Trouble
from sidecar.dependencies.reports import Report, outcome_of
from sidecar.envelope import database, sdk
from sidecar.envelope.model import Classified, Envelope, ErrorClass, Source, Verdict
from sidecar.envelope.raised import Raised
from sidecar.faults import failures
from sidecar.faults.failures import Injection
from sidecar.faults.injector import Fault as InjectedFault
from sidecar.faults.injector import Faults, Target, injection
from sidecar.telemetry.observer import DependencyCalled, Fault, Observer

_WENT_WELL = Classified(envelope=None, verdict=Verdict.SUCCESS, rule="reported: it went well")


class UnknownDependencyError(KeyError):
    """No dependency has this name."""


class Refused(msgspec.Struct, frozen=True):
    """A call that a dependency's breaker does not let through.

    Attributes:
        envelope: what the agent is told.
        fault: why it is to fail all the same, where that was asked for.
        injection: what it is to raise; None for a refusal.
    """

    envelope: Envelope
    fault: InjectedFault | None = None
    injection: Injection | None = None


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a report.

    Attributes:
        classified: what was reported, judged.
        trouble: why it settled nothing; None if it did.
        correlation_id: under which it is told.
        snapshot: the breaker afterwards; None if a reload took the dependency away meanwhile.
    """

    classified: Classified
    trouble: Trouble | None
    correlation_id: str
    snapshot: Snapshot | None


class Dependencies:
    """All dependencies of the daemon. Times are monotonic seconds.

    Args:
        dependencies: those of the configuration, by name.
        registry: the breakers; configured by its owner.
        observer: hears of every call.
        network: whether this machine has a way out; without it none is asked.
        faults: what is injected into calls; without it nothing is.
    """

    def __init__(
        self,
        dependencies: Mapping[str, Dependency],
        registry: Registry,
        observer: Observer,
        network: Network | None = None,
        faults: Faults | None = None,
    ) -> None:
        self._faults = faults
        self._network = network
        self._dependencies = dependencies
        self._registry = registry
        self._observer = observer
        self._permits = Permits(self._expired)

    def configure(self, dependencies: Mapping[str, Dependency], now: float) -> None:
        """Take other dependencies; permits that were given stay good."""
        self._dependencies = dependencies
        self._permits.configure(dependencies, now)

    def in_flight(self, name: str) -> int:
        """Permits that wait for their reports."""
        return self._permits.open(name)

    def tick(self, now: float) -> None:
        """End the permits whose time is over."""
        self._permits.tick(now)

    def permit(
        self,
        name: str,
        correlation_id: str,
        now: float,
        *,
        phase: str | None = None,
        asked: FaultSection | None = None,
    ) -> Lease | Refused:
        """Let a call through, or say why not.

        Args:
            name: of the dependency.
            correlation_id: of the call.
            now: monotonic seconds.
            phase: `commit` or `connect`, where the call is one.
            asked: a fault that the call asks for itself.

        Raises:
            UnknownDependencyError: if there is none of that name.
        """
        dependency = self._known(name)
        admitted = self._registry.admit(name, None, now)
        if not isinstance(admitted, Refusal):
            fault = self._chosen_fault(dependency, correlation_id, asked, now)
            if fault is not None:
                return self._failed(dependency, admitted, fault, phase, now)
            return self._permits.give(dependency, admitted, correlation_id, now)
        return self._refuse(dependency, admitted.reason, admitted.retry_after, correlation_id)

    def _refuse(
        self,
        dependency: Dependency,
        reason: str,
        wait: float,
        correlation_id: str,
        fault: InjectedFault | None = None,
    ) -> Refused:
        envelope = Envelope(
            class_=ErrorClass.TRANSIENT,
            source=Source.SIDECAR,
            code="breaker_open",
            message=f"{dependency.name}: {reason}"[:500],
            retryable=True,
            retry_after=wait,
            correlation_id=correlation_id,
        )
        self._tell(
            dependency,
            "breaker_open",
            Classified(envelope=envelope, verdict=Verdict.NEUTRAL, rule="local: breaker_open"),
            correlation_id,
            duration=0.0,
            fault=None if fault is None else fault.name,
        )
        return Refused(envelope, fault)

    # -- faults -----------------------------------------------------------------------------

    def _chosen_fault(
        self, dependency: Dependency, correlation_id: str, asked: FaultSection | None, now: float
    ) -> InjectedFault | None:
        faults = self._faults
        if faults is None or (asked is None and not faults.active):
            return None
        target = Target(
            name=dependency.name,
            source=dependency.source,
            correlation_id=correlation_id,
            system=dependency.system,
        )
        return faults.choose(target, asked, now, clock.wall())

    def _failed(
        self,
        dependency: Dependency,
        admission: Admission,
        fault: InjectedFault,
        phase: str | None,
        now: float,
    ) -> Refused:
        """The call fails before it was made: told, and settled, as if it had been reported."""
        id_ = fault.injected.correlation_id
        self._observer.emit(injection(fault))
        if fault.decision is not None:
            admission.settle(NEUTRAL, now)
            refused = self._refuse(dependency, "an injected fault", fault.wait, id_, fault)
            _over(fault, "breaker_open", Verdict.NEUTRAL, refused.envelope, now)
            return refused
        made = failures.injection(
            fault.rule,
            dependency.source,
            dependency.system,
            dependency.driver,
            phase=phase,
            correlation_id=id_,
            now=clock.wall(),
        )
        outcome = outcome_of(made.classified, made.raised)
        if self._network is not None:
            outcome = self._network.judged(outcome, None)
        admission.settle(outcome if fault.counts else NEUTRAL, now)
        self._tell(
            dependency,
            "reported",
            made.classified
            if fault.counts
            else made.classified.judged(Verdict.NEUTRAL, made.classified.rule),
            id_,
            duration=0.0,
            would_refuse=admission.would_refuse is not None,
            fault=fault.name,
        )
        envelope = made.classified.envelope
        assert envelope is not None, "an exception is an error"
        _over(fault, "reported", made.classified.verdict, envelope, now)
        return Refused(envelope, fault, made)

    def report(self, name: str, report: Report, correlation_id: str | None, now: float) -> Reported:
        """Settle a permit by what became of its call. A failure is judged in any case.

        Args:
            name: of the dependency.
            report: what the agent says.
            correlation_id: of the request that reports; what the report says stands above it.
            now: monotonic seconds.

        Raises:
            UnknownDependencyError: if there is none of that name, and the permit is of none.
        """
        found = self._permits.take(report.permit, name, now)
        lease = found if isinstance(found, Lease) else None
        dependency = self._known(name) if lease is None else lease.dependency
        own = report.correlation_id or correlation_id
        id_ = own or (lease.correlation_id if lease is not None else correlation.made())
        classified, outcome = self._judge(dependency, report, id_)
        if lease is not None:
            if self._network is not None:
                outcome = self._network.judged(outcome, None)
            lease.admission.settle(outcome, now)
        if found not in (Trouble.REPORTED, Trouble.FOREIGN):
            # A second report is no second failure; a foreign permit's own is still to come.
            duration = report.duration
            if duration is None:
                duration = 0.0 if lease is None else now - lease.given_at
            would_refuse = lease is not None and lease.admission.would_refuse is not None
            self._tell(
                dependency,
                "reported",
                classified,
                id_,
                duration=duration,
                would_refuse=would_refuse,
            )
        return Reported(
            classified=classified,
            trouble=found if isinstance(found, Trouble) else None,
            correlation_id=id_,
            snapshot=self.snapshot(name, now),
        )

    def snapshot(self, name: str, now: float) -> Snapshot | None:
        """What is shown of a dependency's breaker; None if there is none of that name."""
        if name not in self._dependencies:
            return None
        return self._registry.snapshots(name, now)[0]

    def _known(self, name: str) -> Dependency:
        try:
            return self._dependencies[name]
        except KeyError:
            raise UnknownDependencyError(name) from None

    def _judge(
        self, dependency: Dependency, report: Report, correlation_id: str
    ) -> tuple[Classified, Outcome]:
        """What was reported, for the agent and for the breaker; a fault in here settles too."""
        if report.error is None:
            return _WENT_WELL, SUCCESS
        try:
            classified = _classified(dependency, report, report.error, correlation_id)
            return classified, outcome_of(classified, report.error)
        except Exception as error:  # noqa: BLE001 - the permit ends whatever happens here
            self._observer.emit(
                Fault(at=clock.wall(), where="classify", error=error, correlation_id=correlation_id)
            )
            rule = f"fault: {type(error).__name__}"
            return Classified(envelope=None, verdict=Verdict.NEUTRAL, rule=rule), NEUTRAL

    # -- facts ------------------------------------------------------------------------------

    def _expired(self, lease: Lease, now: float) -> None:
        nothing = Classified(envelope=None, verdict=Verdict.NEUTRAL, rule="local: expired")
        duration = now - lease.given_at
        self._tell(lease.dependency, "expired", nothing, lease.correlation_id, duration=duration)

    def _tell(
        self,
        dependency: Dependency,
        decision: str,
        classified: Classified,
        correlation_id: str,
        *,
        duration: float,
        would_refuse: bool = False,
        fault: str | None = None,
    ) -> None:
        self._observer.emit(
            DependencyCalled(
                at=clock.wall(),
                dependency=dependency.name,
                decision=decision,
                envelope=classified.envelope,
                verdict=None if decision == "breaker_open" else classified.verdict,
                rule=classified.rule,
                correlation_id=correlation_id,
                duration=duration,
                would_refuse=would_refuse,
                fault=fault,
            )
        )


def _over(
    fault: InjectedFault, decision: str, verdict: Verdict, envelope: Envelope, now: float
) -> None:
    """The answer that tells of it is all that the agent sees of it, and it leaves at once."""
    fault.seen(now)
    fault.finished(now, status=503, decision=decision, verdict=verdict.value, envelope=envelope)


def _classified(
    dependency: Dependency, report: Report, raised: Raised, correlation_id: str
) -> Classified:
    now = clock.wall() if report.now is None else report.now
    if dependency.source == "sdk":
        return sdk.classify(raised, sdk=dependency.sdk, correlation_id=correlation_id, now=now)
    return database.classify(
        raised,
        vendor=dependency.vendor,
        driver=report.driver or dependency.driver,
        correlation_id=correlation_id,
        now=now,
    )


def breaker_settings(dependency: Dependency) -> ProviderSettings:
    """What the registry needs to know of a dependency.

    No request is told from another here, so no repeat is left out of the run. A probe's lease
    follows from `first_byte` and is the shortest: the next one need not wait for a lost permit.
    """
    rules = dependency.breaker
    return ProviderSettings(
        upstream=f"{dependency.source} {dependency.system}",
        scope=Scope.PROVIDER,
        settings=Settings(
            mode=Mode(dependency.mode),
            consecutive_failures=rules.consecutive_failures,
            window=rules.window,
            minimum_calls=rules.minimum_calls,
            failure_ratio=rules.failure_ratio,
            repeat_window=0.0,
            open_for=rules.open_for,
            open_max=rules.open_max,
            jitter=rules.jitter,
            probes=rules.probes,
            successes=rules.successes,
            retry_after_max=dependency.retry_after_max,
            first_byte=0.0,
        ),
    )
