"""Which call gets which fault, and what became of it.

Off by default: without a rule nothing is asked of a call. A rule names the calls (provider, model,
path, method), the steps (the nth of them, every nth, a share) and the fault. The share is drawn
from a seed, so that a run can be repeated to the call. Each injection leaves a record with the
envelope that the agent got, so that a test can assert on what the agent was told and not only on
what it did.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import quote

import msgspec

from sidecar.config.schema import FaultSection, FaultsSection
from sidecar.envelope.model import Envelope

RECORDED: Final = 1000
"""Injections that are remembered."""


class Injected(msgspec.Struct, kw_only=True):
    """One injection, and what became of the call.

    Attributes:
        number: of the injection since the daemon started, from 1.
        rule: the rule's name.
        call: how many calls the rule had matched by then, this one included.
        at: when it was injected, seconds since the epoch.
        correlation_id: of the call.
        provider: of the call.
        model: of the call, if it named one.
        method: of the call.
        path: of the call, secrets redacted.
        fault: the class or kind that was injected.
        status: what the agent was sent; None while the call runs, 0 if it left before.
        decision: `forwarded`, or how the daemon told of it.
        verdict: what it would have meant for a breaker.
        envelope: what the agent was told; None if nothing failed in its eyes.
        seen_after: seconds from the injection until the agent had all of the evidence.
    """

    number: int
    rule: str
    call: int
    at: float
    correlation_id: str
    provider: str
    model: str | None
    method: str
    path: str
    fault: str
    status: int | None = None
    decision: str | None = None
    verdict: str | None = None
    envelope: Envelope | None = None
    seen_after: float | None = None


class Fault:
    """A fault on its way into one call.

    Attributes:
        rule: what to do.
        name: of the rule, as it is shown.
        injected: the record.
    """

    __slots__ = ("_at", "injected", "name", "rule")

    def __init__(self, rule: FaultSection, name: str, injected: Injected, now: float) -> None:
        self.rule = rule
        self.name = name
        self.injected = injected
        self._at = now

    @property
    def mark(self) -> tuple[str, str]:
        """The header of every answer that a fault had a part in."""
        return "x-sidecar-fault", quote(f"{self.name}; {self.injected.fault}", safe=" ;=-_.~/:")

    @property
    def counts(self) -> bool:
        """Do the real breakers hear of it?"""
        return self.rule.breakers

    def finished(
        self,
        now: float,
        *,
        status: int,
        decision: str,
        verdict: str | None,
        envelope: Envelope | None,
    ) -> None:
        """The call is over."""
        told = self.injected
        told.status, told.decision = status, decision
        told.verdict, told.envelope = verdict, envelope
        told.seen_after = round(now - self._at, 6)


class _Plan:
    """One rule with what it has counted."""

    def __init__(self, rule: FaultSection, index: int, seed: int) -> None:
        self.rule = rule
        self.name = rule.name or f"rule {index + 1}"
        self.matched = 0
        self.injected = 0
        self._random = random.Random(f"{seed}/{index}")  # noqa: S311 - repeatable, not secret

    def wants(self, provider: str, model: str | None, method: str, path: str) -> bool:
        """Is this call one of its steps?"""
        rule = self.rule
        if not _names(rule, provider, model, method, path):
            return False
        if rule.times is not None and self.injected >= rule.times:
            return False
        self.matched += 1
        if rule.nth is not None:
            return self.matched == rule.nth
        if rule.every is not None:
            return self.matched % rule.every == 0
        return rule.share is None or self._random.random() < rule.share


def _names(rule: FaultSection, provider: str, model: str | None, method: str, path: str) -> bool:
    return (
        (rule.provider is None or rule.provider == provider)
        and (rule.model is None or fnmatchcase(model or "", rule.model))
        and (rule.method is None or rule.method == method)
        and (rule.path is None or fnmatchcase(path, rule.path))
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
        self._section = section
        self._plans = _plans(section.rules, section.seed)
        if not section.allowed:
            self._added = []

    def add(self, rules: Sequence[FaultSection], seed: int, until: float) -> None:
        """Take these rules beside the configured ones until a time; they replace earlier ones."""
        self._added = _plans(rules, seed)
        self._until = until

    def choose(
        self,
        *,
        provider: str,
        model: str | None,
        method: str,
        path: str,
        shown_path: Callable[[], str],
        correlation_id: str,
        asked: FaultSection | None,
        now: float,
        wall: float,
    ) -> Fault | None:
        """The fault of a call: what it asks for itself, else that of the first rule that wants it.

        Args:
            provider: of the call.
            model: of the call, if it named one.
            method: of the call.
            path: at the provider.
            shown_path: the same without its secrets.
            correlation_id: of the call.
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
                if one.wants(provider, model, method, path) and plan is None:
                    plan = one
        if plan is None:
            return None
        plan.injected += 1
        self._total += 1
        told = Injected(
            number=self._total,
            rule=plan.name,
            call=plan.matched,
            at=wall,
            correlation_id=correlation_id,
            provider=provider,
            model=model,
            method=method,
            path=shown_path(),
            fault=plan.rule.class_ or plan.rule.kind or "",
        )
        self.record.append(told)
        return Fault(plan.rule, plan.name, told, now)

    def document(self, now: float) -> dict[str, Any]:
        """What `GET /faults` shows."""
        added = self._added if now < self._until else []
        return {
            "allowed": self.allowed,
            "seed": self._section.seed,
            "ends_in": round(self._until - now, 3) if added else None,
            "rules": [
                {
                    "rule": plan.name,
                    "fault": plan.rule.class_ or plan.rule.kind,
                    "added": plan in added,
                    "matched": plan.matched,
                    "injected": plan.injected,
                }
                for plan in (*added, *self._plans)
            ],
            "injected": self._total,
            "record": msgspec.to_builtins(list(self.record)),
        }


def _plans(rules: Sequence[FaultSection], seed: int) -> list[_Plan]:
    return [_Plan(rule, index, seed) for index, rule in enumerate(rules)]
