"""Which call gets which fault, and what became of it.

Off by default: without a rule nothing is asked of a call. A rule names the calls (provider, model,
path, method; or a dependency), the steps (the nth of them, every nth, a share) and the fault. The
share is drawn from a seed, so that a run can be repeated to the call. Each injection leaves a
record with the envelope that the agent got, so that a test can assert on what the agent was told
and not only on what it did.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import quote

import msgspec

from sidecar.config.fault_rules import concerns_dependencies
from sidecar.config.schema import FaultSection, FaultsSection
from sidecar.envelope.model import Envelope
from sidecar.faults import failures
from sidecar.faults.failures import same_system
from sidecar.telemetry.observer import FaultInjected

RECORDED: Final = 1000
"""Injections that are remembered."""


LATE: Final = frozenset({"delay", "dribble", "cut", "error_event"})
"""The kinds that need the provider's own answer."""

OWN: Final[Mapping[str | None, str]] = {
    "validation": "bad_request",
    "authentication": "missing_credentials",
    "rate_limit": "shed",
    "transient": "breaker_open",
    "permanent": "quota",
}
"""The daemon's own decision for a class."""

_WAITS: Final = {"breaker_open": 30.0, "shed": 2.0, "local_network": 4.5}
"""Seconds that the daemon's own answers ask for where the rule does not say."""


class Injected(msgspec.Struct, kw_only=True):
    """One injection, and what became of the call.

    Attributes:
        number: of the injection since the daemon started, from 1.
        rule: the rule's name.
        call: how many calls the rule had matched by then, this one included.
        at: when it was injected, seconds since the epoch.
        correlation_id: of the call.
        source: whose failure it was.
        provider: of the call; None for a dependency's.
        dependency: that the call was for; None for a provider's.
        model: of the call, if it named one.
        method: of the call; None for a dependency's.
        path: of the call, secrets redacted; None for a dependency's.
        fault: the class or kind that was injected, or the decision of the daemon's own.
        breakers: the real breakers heard of it.
        status: what the agent was sent; None while the call runs, 0 if nothing was: it left before,
            or the daemon repeated the call.
        decision: `forwarded`, or how the daemon told of it; `repeated` where it sent the request
            again and the agent saw nothing.
        verdict: what it would have meant for a breaker; None for an attempt that was repeated.
        envelope: what the adapter made of it, told to the agent unless the call was repeated; None
            if nothing failed.
        first_seen_after: seconds from the injection until the first byte was written to the agent
            that tells of it: the head of an error, the event or the cut that ends a stream; None
            if there never was one.
        seen_after: seconds from the injection until the agent had all of the evidence.
    """

    number: int
    rule: str
    call: int
    at: float
    correlation_id: str
    fault: str
    source: str = "http"
    provider: str | None = None
    dependency: str | None = None
    model: str | None = None
    method: str | None = None
    path: str | None = None
    breakers: bool = False
    status: int | None = None
    decision: str | None = None
    verdict: str | None = None
    envelope: Envelope | None = None
    first_seen_after: float | None = None
    seen_after: float | None = None


class Fault:
    """A fault on its way into one call.

    Attributes:
        rule: what to do.
        name: of the rule, as it is shown.
        injected: the record.
        said: the event that tells of it has been put into the provider's stream.
    """

    __slots__ = ("_at", "_over", "injected", "name", "rule", "said")

    def __init__(self, rule: FaultSection, name: str, injected: Injected, now: float) -> None:
        self.rule = rule
        self.name = name
        self.injected = injected
        self.said = False
        self._at = now
        self._over = False

    @property
    def mark(self) -> tuple[str, str]:
        """The header of every answer that a fault had a part in."""
        return "x-sidecar-fault", quote(f"{self.name}; {self.injected.fault}", safe=" ;=-_.~/:")

    @property
    def counts(self) -> bool:
        """Do the real breakers hear of it?"""
        return self.rule.breakers

    @property
    def is_played(self) -> bool:
        """Does nothing of the call reach the provider?"""
        return self.rule.kind not in LATE

    @property
    def decision(self) -> str | None:
        """The daemon's own decision that it is; None where it is the provider's failure."""
        return decision_of(self.rule)

    @property
    def wait(self) -> float:
        """Seconds that an answer of the daemon's own asks for."""
        wait = self.rule.retry_after
        return _WAITS.get(self.decision or "", 0.0) if wait is None else wait

    def seen(self, now: float) -> None:
        """Something of it was written to the agent; the first time counts."""
        if self.injected.first_seen_after is None and not self._over:
            self.injected.first_seen_after = round(now - self._at, 6)

    def finished(
        self,
        now: float,
        *,
        status: int,
        decision: str,
        verdict: str | None,
        envelope: Envelope | None,
    ) -> None:
        """The call, or the attempt, is over; the first time counts."""
        if self._over:
            return
        self._over = True
        told = self.injected
        told.status, told.decision = status, decision
        told.verdict, told.envelope = verdict, envelope
        told.seen_after = round(now - self._at, 6)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a rule may name.

    Attributes:
        name: of the provider or dependency.
        source: `http`, `database` or `sdk`.
        correlation_id: of the call.
        model: that the request named, if any.
        method: of the request.
        path: at the provider.
        shown_path: the same without its secrets, for the record.
        system: the vendor of a database, or the SDK, where that is known.
    """

    name: str
    source: str
    correlation_id: str
    model: str | None = None
    method: str | None = None
    path: str = ""
    shown_path: Callable[[], str] | None = None
    system: str | None = None

    @property
    def is_dependency(self) -> bool:
        """Does the agent make the call by itself?"""
        return self.source != "http"


def fault_of(rule: FaultSection) -> str:
    """What a rule injects, as one word of a closed list: a class, a kind, or a decision."""
    return decision_of(rule) or rule.class_ or rule.kind or "transient"


def decision_of(rule: FaultSection) -> str | None:
    """The daemon's own decision that a rule injects; None where it injects none."""
    if rule.source != "sidecar":
        return None
    return rule.decision or OWN[rule.class_]


class _Plan:
    """One rule with what it has counted."""

    def __init__(self, rule: FaultSection, index: int, seed: int) -> None:
        self.rule = rule
        self.index = index
        self.name = rule.name or f"rule {index + 1}"
        self.matched = 0
        self.injected = 0
        self._random = random.Random(f"{seed}/{index}")  # noqa: S311 - repeatable, not secret

    def wants(self, target: Target) -> bool:
        """Is this call one of its steps?"""
        rule = self.rule
        names = _names_dependency if target.is_dependency else _names_request
        if not names(rule, target):
            return False
        self.matched += 1
        if rule.times is not None and self.injected >= rule.times:
            return False
        if rule.nth is not None:
            return self.matched == rule.nth
        if rule.every is not None:
            return self.matched % rule.every == 0
        return rule.share is None or self._random.random() < rule.share


def _names_request(rule: FaultSection, target: Target) -> bool:
    return (
        not concerns_dependencies(rule)
        and (rule.provider is None or rule.provider == target.name)
        and (rule.model is None or fnmatchcase(target.model or "", rule.model))
        and (rule.method is None or rule.method == target.method)
        and (rule.path is None or fnmatchcase(target.path, rule.path))
    )


def _names_dependency(rule: FaultSection, target: Target) -> bool:
    return (
        concerns_dependencies(rule)
        and (rule.dependency is None or rule.dependency == target.name)
        and (rule.vendor is None or same_system(rule.vendor, target.system))
        and rule.source in (None, "sidecar", target.source)
        and (rule.source == "sidecar" or failures.has(rule, target.source, target.system))
    )


class Faults:
    """The faults of one daemon. Times are monotonic seconds unless they say otherwise.

    Args:
        section: `faults` of the configuration.

    Attributes:
        allowed: calls and the admin plane may ask for more.
        record: the last injections, oldest first.
    """

    def __init__(self, section: FaultsSection) -> None:
        self.record: deque[Injected] = deque(maxlen=RECORDED)
        self._total = 0
        self._section = section
        self._plans = _plans(section.rules, section.seed)
        self._added: list[_Plan] = []
        self._until = 0.0

    @property
    def allowed(self) -> bool:
        """May calls and the admin plane ask for more?"""
        return self._section.allowed

    @property
    def active(self) -> bool:
        """Is there a rule at all?"""
        return bool(self._plans or self._added)

    def configure(self, section: FaultsSection) -> None:
        """Take another configuration; rules that are still the same go on counting."""
        if section == self._section:
            return
        plans = _plans(section.rules, section.seed)
        if section.seed == self._section.seed:
            kept = {(plan.index, plan.rule): plan for plan in self._plans}
            plans = [kept.get((plan.index, plan.rule), plan) for plan in plans]
        self._section, self._plans = section, plans
        if not section.allowed:
            self._added = []

    def add(self, rules: Sequence[FaultSection], seed: int, until: float) -> None:
        """Take these rules beside the configured ones until a time; they replace earlier ones."""
        self._added = _plans(rules, seed)
        self._until = until

    def choose(
        self, target: Target, asked: FaultSection | None, now: float, wall: float
    ) -> Fault | None:
        """The fault of a call: what it asks for itself, else that of the first rule that wants it.

        Args:
            target: the call.
            asked: what the call's own header asks for.
            now: monotonic seconds.
            wall: seconds since the epoch.
        """
        if self._added and now >= self._until:
            self._added = []
        plan: _Plan | None = None
        if asked is not None:
            plan = _Plan(asked, 0, 0)
            plan.name = asked.name or "header"
            plan.matched = 1
        else:
            for one in (*self._added, *self._plans):
                # Every rule counts the calls it names, whichever of them acts.
                if one.wants(target) and plan is None:
                    plan = one
        if plan is None:
            return None
        plan.injected += 1
        self._total += 1
        told = _record(plan, target, self._total, wall)
        self.record.append(told)
        return Fault(plan.rule, plan.name, told, now)

    def document(self, now: float, *, record: bool = True) -> dict[str, Any]:
        """What `GET /faults` shows.

        Args:
            now: monotonic seconds.
            record: with the last injections, not the rules alone.
        """
        added = self._added if now < self._until else []
        return {
            "allowed": self.allowed,
            "seed": self._section.seed,
            "ends_in": round(self._until - now, 3) if added else None,
            "rules": [
                {
                    "rule": plan.name,
                    "fault": fault_of(plan.rule),
                    "added": plan in added,
                    "matched": plan.matched,
                    "injected": plan.injected,
                }
                for plan in (*added, *self._plans)
            ],
            "injected": self._total,
            "record": msgspec.to_builtins(list(self.record)) if record else [],
        }


def _plans(rules: Sequence[FaultSection], seed: int) -> list[_Plan]:
    return [_Plan(rule, index, seed) for index, rule in enumerate(rules)]


def injection(fault: Fault) -> FaultInjected:
    """The fact that a fault was injected."""
    told = fault.injected
    return FaultInjected(
        at=told.at,
        name=told.dependency or told.provider or "",
        fault=told.fault,
        rule=told.rule,
        call=told.call,
        correlation_id=told.correlation_id,
        model=told.model,
        counts=told.breakers,
        of_dependency=told.dependency is not None,
    )


def _record(plan: _Plan, target: Target, number: int, wall: float) -> Injected:
    rule = plan.rule
    of_dependency = target.is_dependency
    return Injected(
        number=number,
        rule=plan.name,
        call=plan.matched,
        at=wall,
        correlation_id=target.correlation_id,
        source="sidecar" if rule.source == "sidecar" else target.source,
        provider=None if of_dependency else target.name,
        dependency=target.name if of_dependency else None,
        model=target.model,
        method=target.method,
        path=None if target.shown_path is None else target.shown_path(),
        fault=fault_of(rule),
        breakers=rule.breakers,
    )
