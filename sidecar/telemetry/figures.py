"""The counters behind the metrics: a listener that adds numbers, and nothing else on a call's way.

Plain integers in plain lists, so that a call costs a few additions whether anybody reads them or
not; both formats read the same ones. They only grow. What a reload removes is forgotten, and with
it its series.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Final

from sidecar.breaker.model import Transition
from sidecar.envelope.model import Envelope, Verdict
from sidecar.telemetry import instruments
from sidecar.telemetry.bounds import CODES, MODELS, OTHER, code_label
from sidecar.telemetry.observer import (
    EXPIRED,
    CallFinished,
    ConfigReloaded,
    DependencyCalled,
    Ending,
    Fact,
    Fault,
    FaultInjected,
    ending_of,
)

_VERDICT: Final = {verdict: place for place, verdict in enumerate(Verdict)}
_TELLING: Final = (Verdict.SUCCESS, Verdict.FAILURE, Verdict.THROTTLE)
_FAULTS: Final = frozenset(instruments.FAULTS)

Move = tuple[str, str, str, str]
"""From, to, reason and whether enforced, as labels."""


class Histogram:
    """Counts by bucket.

    Attributes:
        bounds: upper bounds, the last bucket has none.
        counts: of each bucket, not added up.
        total: the sum of everything.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one value; a bound belongs to the bucket below it."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> Histogram:
        """What it holds now."""
        other = Histogram(self.bounds)
        other.counts = list(self.counts)
        other.total = self.total
        return other


class Subject:
    """Figures of one model or route.

    Attributes:
        verdicts: how many of each, in the order of `Verdict`.
        moves: how often its breaker moved, and how.
        open_seconds: how long it was open in all, as of the last reading. It only grows, whatever
            becomes of the breaker; of several it counts while one of them is open.
    """

    __slots__ = ("moves", "open_seconds", "verdicts")

    def __init__(self) -> None:
        self.verdicts = [0] * len(_VERDICT)
        self.moves: dict[Move, int] = {}
        self.open_seconds = 0.0


class ProviderFigures:
    """Figures of one provider or dependency."""

    __slots__ = (
        "attempts",
        "codes",
        "duration",
        "endings",
        "envelopes",
        "first_byte",
        "first_content",
        "injected",
        "opened",
        "overhead",
        "permits_expired",
        "reclassified",
        "refused",
        "subjects",
        "wait",
        "would_refuse",
    )

    def __init__(self) -> None:
        self.subjects: dict[str, Subject] = {"": Subject(), OTHER: Subject()}
        self.envelopes: dict[tuple[str, str], int] = {
            (class_, source): 0 for class_ in instruments.CLASSES for source in instruments.SOURCES
        }
        self.codes: dict[tuple[str, str, str], int] = {}
        self.opened: dict[str, float] = {}
        self.reclassified = dict.fromkeys(instruments.CLASSES, 0)
        self.endings = dict.fromkeys(instruments.ENDINGS, 0)
        self.refused = dict.fromkeys(instruments.REFUSALS, 0)
        self.injected: dict[str, int] = dict.fromkeys(instruments.CLASSES, 0)
        self.would_refuse = 0
        self.attempts = 0
        self.permits_expired = 0
        self.first_byte = Histogram(instruments.FIRST_BYTE.bounds)
        self.first_content = Histogram(instruments.FIRST_CONTENT.bounds)
        self.duration = Histogram(instruments.DURATION.bounds)
        self.overhead = Histogram(instruments.OVERHEAD.bounds)
        self.wait = Histogram(instruments.SHEDDING_WAIT.bounds)

    def label(self, subject: str) -> str:
        """Under which name a subject's series stand."""
        return subject if subject in self.subjects else OTHER

    def subject(self, name: str, *, telling: bool) -> Subject:
        """The figures of a subject; a place of its own is given for what tells something."""
        found = self.subjects.get(name)
        if found is None:
            if not telling or len(self.subjects) >= MODELS + 2:
                return self.subjects[OTHER]
            found = self.subjects[name] = Subject()
        return found

    def open_times(self, now: Iterable[tuple[str, float]]) -> dict[str, float]:
        """By how much each breaker's open time has grown since the last reading.

        Args:
            now: each breaker's key, and how long it has been open in all. One that begins anew
                begins at nothing; one that is gone is forgotten.
        """
        before, self.opened = self.opened, dict(now)
        grown = {}
        for key, seconds in self.opened.items():
            known = before.get(key, 0.0)
            grown[key] = seconds - known if seconds >= known else seconds
        return grown

    def count_envelope(self, envelope: Envelope) -> None:
        """Add an envelope."""
        class_, source = envelope.class_.value, envelope.source.value
        self.envelopes[class_, source] += 1
        coded = (class_, source, code_label(envelope.code))
        if coded not in self.codes and len(self.codes) >= CODES:
            coded = (class_, source, OTHER)
        self.codes[coded] = self.codes.get(coded, 0) + 1


class Figures:
    """Counts what happens; give it to an `Observer` as a listener.

    Args:
        names: of the providers and dependencies.

    Attributes:
        named: figures of each; under "" those of calls that named no provider.
        reloads: how many were taken and refused.
        reload_good: the last one was taken.
        faults: of the daemon's own code, by the part that failed.
        loop_delay: by how much the event loop woke up late.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.named: dict[str, ProviderFigures] = {}
        self.reloads = dict.fromkeys(instruments.RELOADS, 0)
        self.reload_good = True
        self.faults: Counter[str] = Counter(dict.fromkeys(instruments.FAULTS, 0))
        self.loop_delay = Histogram(instruments.LOOP_DELAY.bounds)
        self.configure(names)

    def configure(self, names: Iterable[str]) -> None:
        """Take another configuration: series of what is new begin, those of what is gone end."""
        old = self.named
        self.named = {name: old.get(name) or ProviderFigures() for name in ("", *names)}

    def __call__(self, fact: Fact) -> None:
        """Hear a fact."""
        if isinstance(fact, CallFinished):
            self._call(fact)
        elif isinstance(fact, Transition):
            self._transition(fact)
        elif isinstance(fact, DependencyCalled):
            self._dependency(fact)
        elif isinstance(fact, ConfigReloaded):
            self.reload_good = not fact.problems
            self.reloads["refused" if fact.problems else "taken"] += 1
        elif isinstance(fact, Fault):
            self.faults[fact.where if fact.where in _FAULTS else OTHER] += 1
        elif isinstance(fact, FaultInjected):
            figures = self.named.get(fact.name)
            if figures is not None:
                figures.injected[fact.fault] = figures.injected.get(fact.fault, 0) + 1

    def _call(self, call: CallFinished) -> None:
        provider = call.provider or ""
        figures = self.named.get(provider)
        if figures is None:
            return  # a reload took it away meanwhile
        figures.endings[ending_of(call)] += 1
        verdict = call.verdict
        if verdict is None:
            decision = call.decision
            figures.refused[decision] = figures.refused.get(decision, 0) + 1
        else:
            subject = "" if call.key is None else call.key[len(provider) + 1 :]
            known = figures.subjects.get(subject)
            if known is None:
                known = figures.subject(subject, telling=verdict in _TELLING)
            known.verdicts[_VERDICT[verdict]] += 1
        if call.envelope is not None:
            figures.count_envelope(call.envelope)
            if call.reclassified:
                figures.reclassified[call.envelope.class_.value] += 1
        if call.would_refuse:
            figures.would_refuse += 1
        if call.waited is not None:
            figures.wait.add(call.waited)
        if call.attempts:
            self._forwarded(figures, call)

    def _forwarded(self, figures: ProviderFigures, call: CallFinished) -> None:
        figures.attempts += call.attempts
        figures.duration.add(call.duration)
        if call.first_byte is not None:
            figures.first_byte.add(call.first_byte)
        if call.first_content is not None:
            figures.first_content.add(call.first_content)
        if call.overhead is not None:
            figures.overhead.add(call.overhead)

    def _dependency(self, call: DependencyCalled) -> None:
        figures = self.named.get(call.dependency)
        if figures is None:
            return
        if call.decision == EXPIRED:
            figures.permits_expired += 1
        if call.verdict is None:
            figures.refused[call.decision] = figures.refused.get(call.decision, 0) + 1
        elif call.decision != EXPIRED:
            figures.endings[Ending.REPORTED] += 1
            figures.subjects[""].verdicts[_VERDICT[call.verdict]] += 1
            figures.duration.add(call.duration)
        if call.envelope is not None:
            figures.count_envelope(call.envelope)
        if call.would_refuse:
            figures.would_refuse += 1

    def _transition(self, move: Transition) -> None:
        figures = self.named.get(move.provider)
        if figures is None:
            return
        subject = figures.subject(move.key[len(move.provider) + 1 :], telling=True)
        key = (
            move.old.value,
            move.new.value,
            move.cause.value,
            "true" if move.enforced else "false",
        )
        subject.moves[key] = subject.moves.get(key, 0) + 1
