"""Everything that is measured, as one table: `/metrics`, OTLP and docs/metrics.md follow from it.

Names are OpenTelemetry's: dots, no unit, no `total`; Prometheus's follow from them by the rules of
both projects. Labels are `provider` (the name of a provider or dependency, from the configuration),
`model` (what a caller named, or the route with `~` in front: bounded, see `bounds`) and words of
closed lists. There are no names of our own where OpenTelemetry has one for the same thing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import get_args

import msgspec

from sidecar.breaker.model import Cause, State, UpstreamVerdict
from sidecar.config.schema import FaultDecision, FaultKind
from sidecar.envelope.model import ErrorClass, Source, Verdict
from sidecar.telemetry.observer import LOCAL_REFUSALS, Ending

NAMESPACE = "breaker_sidecar"

STATES = tuple(state.value for state in State)
VERDICTS = tuple(verdict.value for verdict in Verdict)
CLASSES = tuple(class_.value for class_ in ErrorClass)
SOURCES = tuple(source.value for source in Source)
CAUSES = tuple(cause.value for cause in Cause)
REFUSALS = tuple(sorted(LOCAL_REFUSALS))
ENDINGS = tuple(ending.value for ending in Ending)
HEALTH = tuple(verdict.value for verdict in UpstreamVerdict)
RELOADS = ("taken", "refused")
FAULTS = ("admin", "breaker", "classify", "loop", "proxy", "telemetry", "other")
INJECTED = (*CLASSES, *get_args(FaultKind), *get_args(FaultDecision))
SIGNALS = ("traces", "metrics", "logs")
PACING = ("idle", "waiting", "shedding")
YES_NO = ("true", "false")

SHORT = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Seconds; what the daemon itself takes is a matter of tenths of milliseconds."""

LONG = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0,
    600.0,
)  # fmt: skip
"""Seconds; OpenTelemetry's advice for HTTP up to ten, then on to what a model may take."""

LABELS = {
    "provider": "name of a provider or dependency; empty where a call named none",
    "model": "a model, or `~` and a route; empty: the provider's own breaker; `other`: the rest",
    "state": "state of a breaker; of pacing in `shedding.state`",
    "verdict": "what the breaker heard; how a provider is as a whole in `provider.verdict`",
    "from": "the state that was left",
    "to": "the state that was entered",
    "reason": "why a breaker moved",
    "enforced": "whether the mode lets the breaker refuse",
    "decision": "why the daemon answered itself",
    "ending": "how a call ended, seen from outside; `reported` by the agent that made it itself",
    "class": "class of the envelope",
    "source": "source of the envelope",
    "code": "code of the envelope: the project's own words, statuses, codes that the dialects know,"
    " the class of a SQLSTATE as `40xxx`; `other` for what only an upstream knows",
    "result": "whether a reload was taken",
    "fault": "what was done to a call: a class of error, a kind of fault, the daemon's own answer",
    "where": "the part of the daemon that failed",
    "signal": "what is exported",
    "version": "of the daemon",
    "hash": "of the configuration in force",
}


class Kind(StrEnum):
    """What a figure is, in the words that both formats know."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Instrument(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is measured.

    Attributes:
        name: OpenTelemetry's.
        kind: counters only grow.
        unit: as UCUM writes it; `{call}` and the like name what is counted.
        meaning: one sentence.
        labels: in the order in which samples give their values.
        bounds: upper bounds of a histogram's buckets.
        known_as: the name that every Prometheus dashboard knows it by, where that is another one.
    """

    name: str
    kind: Kind
    meaning: str
    unit: str = "1"
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    known_as: str = ""

    @property
    def prometheus(self) -> str:
        """The name in Prometheus, without `_total`, `_bucket` and the like."""
        if self.known_as:
            return self.known_as
        name = self.name.replace(".", "_")
        suffix = {"s": "seconds", "By": "bytes"}.get(self.unit, "")
        return f"{name}_{suffix}" if suffix and not name.endswith(suffix) else name

    @property
    def shown(self) -> str:
        """The name under which a query finds it."""
        return self.prometheus + ("_total" if self.kind is Kind.COUNTER else "")


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_BREAKER = ("provider", "model")


def _own(
    name: str,
    kind: Kind,
    unit: str,
    labels: tuple[str, ...],
    meaning: str,
    bounds: tuple[float, ...] = (),
) -> Instrument:
    return Instrument(
        name=f"{NAMESPACE}.{name}",
        kind=kind,
        unit=unit,
        labels=labels,
        meaning=meaning,
        bounds=bounds,
    )


BREAKER_STATE = _own(
    "breaker.state", _G, "1", (*_BREAKER, "state"),
    "1 for the state that a breaker is in, 0 for the others",
)  # fmt: skip
BREAKER_ENFORCED = _own(
    "breaker.enforced", _G, "1", _BREAKER, "1 where the breaker refuses calls when it is open"
)
BREAKER_TRANSITIONS = _own(
    "breaker.transitions", _C, "{transition}", (*_BREAKER, "from", "to", "reason", "enforced"),
    "Changes of state; they prove an open time that no scrape saw",
)  # fmt: skip
BREAKER_OPEN_TIME = _own(
    "breaker.open.time", _C, "s", _BREAKER,
    "Seconds that a breaker has been open in all, the current time included; of those under `other`"
    " while one of them was",
)  # fmt: skip
BREAKER_RETRY_AFTER = _own(
    "breaker.retry_after", _G, "s", _BREAKER, "Seconds until an open breaker lets a probe through"
)
BREAKER_WINDOW = _own(
    "breaker.window.calls", _G, "{call}", (*_BREAKER, "verdict"),
    "Verdicts within the breaker's window, which the ratio rule looks at",
)  # fmt: skip
BREAKER_RUN = _own(
    "breaker.consecutive_failures", _G, "{failure}", _BREAKER, "Failures in a row, as the rule sees"
)
BREAKER_PROBES = _own(
    "breaker.probes", _G, "{probe}", _BREAKER, "Probes of a half-open breaker under way"
)
PROVIDER_VERDICT = _own(
    "provider.verdict", _G, "1", ("provider", "verdict"),
    "1 for how a provider is as a whole, 0 for the others; for people, refuses nothing",
)  # fmt: skip
CALLS = _own(
    "calls", _C, "{call}", (*_BREAKER, "verdict"),
    "Calls that are over and that a breaker heard of; reports of dependencies too",
)  # fmt: skip
ENDED = _own(
    "calls.ended", _C, "{call}", ("provider", "ending"),
    "Calls by how they ended; one that its caller left is neither an error nor a success",
)  # fmt: skip
IN_FLIGHT = _own(
    "calls.in_flight", _G, "{call}", ("provider",), "Calls that have begun and not ended"
)
REFUSED = _own(
    "refusals", _C, "{call}", ("provider", "decision"),
    "Calls that the daemon answered itself without asking the upstream",
)  # fmt: skip
WOULD_REFUSE = _own(
    "refusals.observed", _C, "{call}", ("provider",),
    "Calls that a breaker would have refused, had its mode been enforce",
)  # fmt: skip
ENVELOPES = _own(
    "envelopes", _C, "{envelope}", ("provider", "class", "source"),
    "Calls that ended with an envelope",
)  # fmt: skip
CODES = _own(
    "envelopes.coded", _C, "{envelope}", ("provider", "class", "source", "code"),
    "The same by code; a series begins with the first envelope of its code",
)  # fmt: skip
INJECTIONS = _own(
    "faults.injected", _C, "{fault}", ("provider", "fault"),
    "Faults that were injected into calls on purpose; what is no class begins with its first",
)  # fmt: skip
RECLASSIFIED = _own(
    "reclassified", _C, "{answer}", ("provider", "class"),
    "Answers whose status was not one of their class's own: a typo dressed as an outage",
)  # fmt: skip
ATTEMPTS = _own(
    "upstream.attempts", _C, "{request}", ("provider",),
    "Requests sent to the upstream, those sent again included",
)  # fmt: skip
FIRST_BYTE = _own(
    "upstream.first_byte.duration", _H, "s", ("provider",),
    "Seconds from the head of the request to the upstream's first byte", LONG,
)  # fmt: skip
FIRST_CONTENT = _own(
    "upstream.first_content.duration", _H, "s", ("provider",),
    "Seconds from the head of the request to the first meaningful event of a stream;"
    " comments, opening frames and errors are none", LONG,
)  # fmt: skip
DURATION = _own(
    "upstream.duration", _H, "s", ("provider",),
    "Seconds from the head of the request to the end of a call that was sent to the upstream", LONG,
)  # fmt: skip
OVERHEAD = _own(
    "overhead.duration", _H, "s", ("provider",),
    "Seconds that the daemon itself took before the request left, waiting for the caller's body and"
    " for a connection left out", SHORT,
)  # fmt: skip
SHEDDING_STATE = _own(
    "shedding.state", _G, "1", ("provider", "state"),
    "1 for the state of the provider's most restricted key, 0 for the others",
)  # fmt: skip
SHEDDING_RATE = _own(
    "shedding.rate", _G, "{call}/s", ("provider",),
    "Calls per second that pacing lets through, of the most restricted key; 0 while nothing paces",
)  # fmt: skip
SHEDDING_QUEUE = _own(
    "shedding.queue", _G, "{call}", ("provider",), "Calls that wait for their slot"
)
SHEDDING_WAIT = _own(
    "shedding.wait.duration", _H, "s", ("provider",),
    "Seconds that calls waited for their slot, shed or not", LONG[:10],
)  # fmt: skip
QUOTA = _own(
    "quota.spent", _G, "{key}", ("provider",),
    "Keys (credential and model) that are answered `quota` because their budget is spent",
)  # fmt: skip
PERMITS_EXPIRED = _own(
    "permits.expired", _C, "{permit}", ("provider",),
    "Permits of a dependency that no report came for",
)  # fmt: skip
NETWORK = _own("network.up", _G, "1", (), "0 while this machine's own network is down")
RELOADS_DONE = _own("config.reloads", _C, "{reload}", ("result",), "Reloads that were tried")
RELOAD_GOOD = _own(
    "config.last_reload_successful", _G, "1", (),
    "0 while the last reload was refused and an older configuration is in force",
)  # fmt: skip
CONFIG = _own("config.info", _G, "1", ("hash",), "1; the label tells the configuration in force")
GENERATION = _own(
    "config.generation", _G, "1", (), "How many configurations have been in force, from 1"
)
BUILD = _own("build.info", _G, "1", ("version",), "1; the label tells the version")
FAULTS_SEEN = _own(
    "faults",
    _C,
    "{fault}",
    ("where",),
    "Failures of the daemon's own code; none of them cost a call",
)
LISTENER_FAILURES = _own(
    "telemetry.failures", _C, "{failure}", (), "Failures of a part of the telemetry"
)
EXPORTED = _own(
    "telemetry.exported", _C, "{item}", ("signal",), "Spans, points and log lines a collector took"
)
DROPPED = _own(
    "telemetry.dropped", _C, "{item}", ("signal",),
    "Spans, points and log lines that were lost because no collector took them in time",
)  # fmt: skip
LINES_DROPPED = _own(
    "log.dropped", _C, "{line}", (), "Lines of the log lost because nobody read them"
)
LINES_HELD = _own(
    "log.suppressed", _C, "{line}", (), "Lines of a storm that were summed up instead of written"
)
LOOP_DELAY = _own(
    "loop.delay", _H, "s", (), "Seconds by which the event loop woke up late, looked at twice a"
    " second", SHORT,
)  # fmt: skip
MEMORY = Instrument(
    name="process.memory.usage",
    known_as="process_resident_memory_bytes",
    kind=_G,
    unit="By",
    meaning="Resident memory of the process",
)
DESCRIPTORS = Instrument(
    name="process.open_file_descriptor.count",
    known_as="process_open_fds",
    kind=_G,
    unit="{file_descriptor}",
    meaning="Open descriptors of the process",
)
DESCRIPTORS_MOST = Instrument(
    name="process.open_file_descriptor.limit",
    known_as="process_max_fds",
    kind=_G,
    unit="{file_descriptor}",
    meaning="Descriptors that the process may have",
)
CPU = Instrument(
    name="process.cpu.time",
    known_as="process_cpu_seconds",
    kind=_C,
    unit="s",
    meaning="Seconds of CPU that the process took",
)
STARTED = Instrument(
    name="process.start_time",
    kind=_G,
    unit="s",
    meaning="When the process started, seconds since the epoch",
)

INSTRUMENTS: tuple[Instrument, ...] = (
    BREAKER_STATE, BREAKER_ENFORCED, BREAKER_TRANSITIONS, BREAKER_OPEN_TIME, BREAKER_RETRY_AFTER,
    BREAKER_WINDOW, BREAKER_RUN, BREAKER_PROBES, PROVIDER_VERDICT, CALLS, ENDED, IN_FLIGHT, REFUSED,
    WOULD_REFUSE, ENVELOPES, CODES, RECLASSIFIED, INJECTIONS, ATTEMPTS, FIRST_BYTE, FIRST_CONTENT,
    DURATION, OVERHEAD, SHEDDING_STATE, SHEDDING_RATE, SHEDDING_QUEUE, SHEDDING_WAIT, QUOTA,
    PERMITS_EXPIRED, NETWORK, RELOADS_DONE, RELOAD_GOOD, CONFIG, GENERATION, BUILD, FAULTS_SEEN,
    LISTENER_FAILURES, EXPORTED, DROPPED, LINES_DROPPED, LINES_HELD, LOOP_DELAY, MEMORY,
    DESCRIPTORS, DESCRIPTORS_MOST, CPU, STARTED,
)  # fmt: skip
"""In the order of the page."""
