"""One reading of everything that is measured: counters, breakers, the process, at one moment.

Read in the event loop, between two awaits, so that the figures belong together; `/metrics` and OTLP
both show such a reading. A series is there from the start, with nothing, so that "no data" never
looks like "all is well".
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from sidecar import __version__
from sidecar.breaker.breaker import CAUSES, TABLE, Event
from sidecar.breaker.model import Cause, Mode, Snapshot, State, UpstreamVerdict
from sidecar.telemetry import instruments as of
from sidecar.telemetry.bounds import OTHER
from sidecar.telemetry.figures import Figures, Histogram, ProviderFigures, Subject
from sidecar.telemetry.instruments import Instrument

Value = float | Histogram
Sample = tuple[tuple[str, ...], Value]
"""The values of the labels, in the instrument's order, and the figure."""

Family = tuple[Instrument, list[Sample]]
Reading = list[Family]

_TRIPS: Final = (Cause.CONSECUTIVE_FAILURES, Cause.FAILURE_RATIO)

MOVES: Final = tuple(
    (old.value, new.value, cause.value)
    for old, events in TABLE.items()
    for event, new in events.items()
    for cause in (_TRIPS if event is Event.TRIP else (CAUSES[event],))
)
"""Every move there is, with every reason for it."""


class Pacing(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider's calls are paced at this moment.

    Attributes:
        state: of its most restricted key: idle, waiting or shedding.
        rate: calls per second of that key; 0 while nothing paces.
        queued: calls that wait for their slot.
        quota_spent: keys whose budget is spent.
    """

    state: str = "idle"
    rate: float = 0.0
    queued: int = 0
    quota_spent: int = 0


class PacingSource(Protocol):
    """Who knows what is paced, and whether the network is up."""

    def pacing(self, provider: str) -> Pacing:
        """How a provider's calls are paced."""

    @property
    def network_up(self) -> bool:
        """Is this machine's own network up?"""


class NoPacing:
    """Nothing is paced, and the network is up."""

    network_up = True

    def pacing(self, provider: str) -> Pacing:  # noqa: ARG002 - the protocol's
        """Nothing."""
        return _IDLE


_IDLE = Pacing()


class Breakers(Protocol):
    """The part of the registry that is read."""

    def snapshots(self, provider: str, now: float) -> Sequence[Snapshot]:
        """All breakers of a provider, its own first."""

    def provider_verdict(self, provider: str, now: float) -> UpstreamVerdict:
        """How a provider is, for people."""


class Permits(Protocol):
    """The part of the dependencies that is read."""

    def in_flight(self, name: str) -> int:
        """Permits that wait for their reports."""


class Exports(Protocol):
    """What became of what was to be exported, by signal."""

    @property
    def exported(self) -> Mapping[str, int]:
        """What a collector took."""

    @property
    def dropped(self) -> Mapping[str, int]:
        """What was lost."""


class Source(Protocol):
    """What a reading is made of."""

    @property
    def figures(self) -> Figures:
        """The counters."""

    @property
    def registry(self) -> Breakers:
        """The breakers."""

    @property
    def dependencies(self) -> Permits:
        """What the agent calls by itself."""

    @property
    def pacing(self) -> PacingSource:
        """What is paced."""

    @property
    def config(self) -> Any:
        """The configuration in force."""

    @property
    def generation(self) -> int:
        """How many configurations have been in force, from 1."""

    @property
    def started_at(self) -> float:
        """When the daemon started, seconds since the epoch."""

    @property
    def exports(self) -> Exports:
        """What became of what was to be exported."""

    def in_flight(self, provider: str) -> int:
        """Calls of a provider that have begun and not ended."""

    def telemetry_failures(self) -> int:
        """How often a part of the telemetry failed."""

    def log_losses(self) -> tuple[int, int]:
        """Lines of the log that were dropped, and that were summed up."""


def read(source: Source, now: float) -> Reading:
    """Everything, at one moment.

    Args:
        source: the daemon.
        now: monotonic seconds.
    """
    samples: dict[str, list[Sample]] = {one.name: [] for one in of.INSTRUMENTS}
    figures = source.figures
    _of_provider(samples, "", figures.named[""])
    for name in (*source.config.providers, *source.config.dependencies):
        own = figures.named.get(name)
        if own is None:
            continue
        _of_provider(samples, name, own)
        _of_breakers(samples, name, own, source.registry.snapshots(name, now))
        verdict = source.registry.provider_verdict(name, now).value
        samples[of.PROVIDER_VERDICT.name] += _one_of((name,), of.HEALTH, verdict)
        pacing = source.pacing.pacing(name)
        samples[of.SHEDDING_STATE.name] += _one_of((name,), of.PACING, pacing.state)
        calls = source.in_flight(name) + source.dependencies.in_flight(name)
        for instrument, value in (
            (of.SHEDDING_RATE, pacing.rate),
            (of.SHEDDING_QUEUE, pacing.queued),
            (of.QUOTA, pacing.quota_spent),
            (of.IN_FLIGHT, calls),
        ):
            samples[instrument.name].append(((name,), value))
    _of_daemon(samples, source)
    _of_process(samples)
    return [(one, samples[one.name]) for one in of.INSTRUMENTS]


def _one_of(labels: tuple[str, ...], words: Iterable[str], which: str) -> list[Sample]:
    return [((*labels, word), 1 if word == which else 0) for word in words]


def _of_provider(samples: dict[str, list[Sample]], name: str, own: ProviderFigures) -> None:
    calls = samples[of.CALLS.name]
    for label, subject in own.subjects.items():
        for verdict, count in zip(of.VERDICTS, subject.verdicts, strict=True):
            calls.append(((name, label, verdict), count))
    for instrument, counts in (
        (of.ENDED, own.endings),
        (of.REFUSED, own.refused),
        (of.RECLASSIFIED, own.reclassified),
        (of.INJECTIONS, own.injected),
    ):
        samples[instrument.name] += [((name, word), count) for word, count in counts.items()]
    samples[of.ENVELOPES.name] += [((name, *key), count) for key, count in own.envelopes.items()]
    samples[of.CODES.name] += [((name, *key), count) for key, count in own.codes.items()]
    for instrument, value in (
        (of.WOULD_REFUSE, own.would_refuse),
        (of.ATTEMPTS, own.attempts),
        (of.PERMITS_EXPIRED, own.permits_expired),
        (of.FIRST_BYTE, own.first_byte.copy()),
        (of.FIRST_CONTENT, own.first_content.copy()),
        (of.DURATION, own.duration.copy()),
        (of.OVERHEAD, own.overhead.copy()),
        (of.SHEDDING_WAIT, own.wait.copy()),
    ):
        samples[instrument.name].append(((name,), value))


class _Rest:
    """Breakers without series of their own, added up; a state holds if one of them is in it."""

    def __init__(self) -> None:
        self.states: set[str] = set()
        self.enforced = False
        self.window: Counter[str] = Counter()
        self.run = 0
        self.probes = 0
        self.open_longer = 0.0
        self.retry_after = 0.0

    def add(self, shot: Snapshot, open_longer: float) -> None:
        self.states.add(shot.state.value)
        self.enforced = self.enforced or shot.mode is Mode.ENFORCE
        for verdict in of.VERDICTS:
            self.window[verdict] += getattr(shot.window, verdict)
        self.run = max(self.run, shot.consecutive_failures)
        self.probes += shot.probes_in_flight
        self.open_longer = max(self.open_longer, open_longer)
        self.retry_after = max(self.retry_after, shot.retry_after or 0.0)


def _of_breakers(
    samples: dict[str, list[Sample]], name: str, own: ProviderFigures, shots: Sequence[Snapshot]
) -> None:
    rest = _Rest()
    seen = set[str]()
    longer = own.open_times((shot.key, shot.open_seconds) for shot in shots)
    for shot in shots:
        label = own.label(shot.key[len(name) + 1 :])
        if label == OTHER:
            rest.add(shot, longer[shot.key])
            continue
        seen.add(label)
        alone = _Rest()
        alone.add(shot, longer[shot.key])
        _of_breaker(samples, (name, label), alone, own.subjects[label])
    enforced = bool(shots) and shots[0].mode is Mode.ENFORCE
    for label, subject in own.subjects.items():
        if label in seen:
            continue
        # Nothing is left over, or a model has not been called for so long that its breaker is gone.
        shown = rest if label == OTHER else _Rest()
        if not shown.states:
            shown.states.add(State.CLOSED.value)
            shown.enforced = enforced
        _of_breaker(samples, (name, label), shown, subject)


def _of_breaker(
    samples: dict[str, list[Sample]],
    labels: tuple[str, str],
    shown: _Rest,
    subject: Subject,
) -> None:
    subject.open_seconds += shown.open_longer
    state = samples[of.BREAKER_STATE.name]
    state += [((*labels, word), 1 if word in shown.states else 0) for word in of.STATES]
    window = samples[of.BREAKER_WINDOW.name]
    window += [((*labels, word), shown.window[word]) for word in of.VERDICTS]
    enforced = of.YES_NO[0] if shown.enforced else of.YES_NO[1]
    counted = {(*move, enforced): 0 for move in MOVES} | subject.moves
    samples[of.BREAKER_TRANSITIONS.name] += [
        ((*labels, *move), count) for move, count in counted.items()
    ]
    for instrument, value in (
        (of.BREAKER_ENFORCED, int(shown.enforced)),
        (of.BREAKER_OPEN_TIME, round(subject.open_seconds, 6)),
        (of.BREAKER_RETRY_AFTER, max(round(shown.retry_after, 3), 0.0)),
        (of.BREAKER_RUN, shown.run),
        (of.BREAKER_PROBES, shown.probes),
    ):
        samples[instrument.name].append((labels, value))


def _of_daemon(samples: dict[str, list[Sample]], source: Source) -> None:
    figures, config = source.figures, source.config
    dropped, held = source.log_losses()
    for instrument, labels, value in (
        (of.NETWORK, (), int(source.pacing.network_up)),
        (of.RELOAD_GOOD, (), int(figures.reload_good)),
        (of.CONFIG, (config.hash,), 1),
        (of.GENERATION, (), source.generation),
        (of.STARTED, (), source.started_at),
        (of.BUILD, (__version__,), 1),
        (of.LISTENER_FAILURES, (), source.telemetry_failures()),
        (of.LINES_DROPPED, (), dropped),
        (of.LINES_HELD, (), held),
        (of.LOOP_DELAY, (), figures.loop_delay.copy()),
    ):
        samples[instrument.name].append((labels, value))
    for instrument, counts in (
        (of.RELOADS_DONE, figures.reloads),
        (of.FAULTS_SEEN, figures.faults),
    ):
        samples[instrument.name] += [((word,), count) for word, count in counts.items()]
    exports = source.exports
    for signal in of.SIGNALS:
        samples[of.EXPORTED.name].append(((signal,), exports.exported.get(signal, 0)))
        samples[of.DROPPED.name].append(((signal,), exports.dropped.get(signal, 0)))


_PAGE = resource.getpagesize()


def _of_process(samples: dict[str, list[Sample]]) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    values: list[tuple[Instrument, float | None]] = [
        (of.CPU, used.ru_utime + used.ru_stime),
        (of.MEMORY, _resident()),
        (of.DESCRIPTORS, _descriptors()),
        (of.DESCRIPTORS_MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ]
    for instrument, value in values:
        if value is not None:
            samples[instrument.name].append(((), value))


def _resident() -> float | None:
    """Bytes, as far as the system says; another one than Linux tells of the most there ever was."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - read on every scrape
            return int(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None


def _descriptors() -> float | None:
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208 - the listing itself holds one
    except OSError:
        return None
