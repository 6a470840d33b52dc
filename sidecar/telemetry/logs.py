"""The log: one line for each change of a breaker and for each failed call, none for a refusal.

An open breaker may refuse thousands of calls a second, so refusals are summed up every ten seconds
instead. Everything else that ends badly leaves a line of its own, a caller that hung up included:
that one is neither an error nor a success, and is no 4xx; in a storm of equal ones ten a minute,
and a count. Event names are the messages, facts are the fields; docs/logs.md lists them.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, TextIO

from sidecar.breaker.model import State
from sidecar.envelope.model import Verdict
from sidecar.telemetry import call_lines, storms
from sidecar.telemetry.lines import FACTS, JsonFormatter, LineHandler, TextFormatter
from sidecar.telemetry.observer import (
    EXPIRED,
    FORWARDED,
    LOCAL_REFUSALS,
    CallFinished,
    ConfigReloaded,
    Controlled,
    DependencyCalled,
    Ending,
    Fact,
    Fault,
    FaultInjected,
    NetworkChange,
    Transition,
    ending_of,
)

SUMMARY_SECONDS = 10.0
_MOST_KEYS = 20
_MOST_FAULTS = 100
_log = logging.getLogger("sidecar")
_TRANSITION_EVENTS = {
    State.OPEN: ("breaker.opened", logging.WARNING),
    State.HALF_OPEN: ("breaker.half_open", logging.INFO),
    State.CLOSED: ("breaker.closed", logging.INFO),
}


def setup(level: str = "info", format: str = "auto", stream: TextIO | None = None) -> LineHandler:  # noqa: A002 - the key's name
    """Send every log record of the process to a stream; replaces what an earlier call set up.

    Args:
        level: debug, info, warning or error, for the daemon's own lines; libraries are heard from
            warning up.
        format: text, json, or auto: text if the stream is a terminal.
        stream: standard error by default.

    Returns:
        The handler; close it to write what is left (the interpreter does so at its exit).
    """
    stream = sys.stderr if stream is None else stream
    handler = LineHandler(stream)
    text = format == "text" or (format == "auto" and stream.isatty())
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    root = logging.getLogger()
    for old in [known for known in root.handlers if isinstance(known, LineHandler)]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    set_level(level)
    return handler


def dropped() -> int:
    """Lines that were lost because nobody read them."""
    handlers = logging.getLogger().handlers
    return sum(known.dropped for known in handlers if isinstance(known, LineHandler))


def set_level(level: str) -> None:
    """Change the level of the daemon's own lines; an unknown word means info."""
    _log.setLevel(logging.getLevelNamesMapping().get(level.upper(), logging.INFO))


def event(
    name: str, *, level: int = logging.INFO, error: BaseException | None = None, **facts: Any
) -> None:
    """Log one event with its facts. Never raises."""
    _log.log(level, name, extra={FACTS: facts}, exc_info=error)


class LogListener:
    """Turns facts into lines; give it to an `Observer`, and close it at the end.

    Inside a running event loop it sets itself timers for its summaries; outside of one they are
    written with the first fact that comes late enough.

    Attributes:
        suppressed: lines of storms that were summed up instead of written.
    """

    def __init__(self) -> None:
        self.suppressed = 0
        self._storms = storms.Storms()
        self._storm_timer: asyncio.TimerHandle | None = None
        self._storm_since: float | None = None
        self._since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._decisions: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._would_refuse: Counter[str] = Counter()
        self._expired: Counter[str] = Counter()
        self._known_faults: set[tuple[str, type[BaseException]]] = set()
        self._faults: Counter[str] = Counter()

    def __call__(self, fact: Fact) -> None:
        """Hear a fact."""
        if isinstance(fact, CallFinished):
            self._call(fact)
        elif isinstance(fact, DependencyCalled):
            self._dependency(fact)
        elif isinstance(fact, Transition):
            _transition(fact)
        elif isinstance(fact, NetworkChange):
            _network(fact)
        elif isinstance(fact, ConfigReloaded):
            _reloaded(fact)
        elif isinstance(fact, Controlled):
            event(
                "breaker.controlled",
                level=logging.WARNING,
                key=fact.key,
                verb=fact.verb,
                seconds=fact.duration,
                reason=fact.reason,
            )
        elif isinstance(fact, FaultInjected):
            name, level, facts = call_lines.injected(fact)
            event(name, level=level, **facts)
        elif isinstance(fact, Fault):
            self._fault(fact)

    def flush(self) -> None:
        """Write the summaries of what was held back, if anything was."""
        self._flush_storms()
        self._flush_refusals()

    close = flush

    def _flush_storms(self) -> None:
        if self._storm_timer is not None:
            self._storm_timer.cancel()
            self._storm_timer = None
        self._storm_since = None
        for (provider, model, class_, code), count in self._storms.take().items():
            facts: dict[str, Any] = {
                "seconds": storms.SECONDS,
                "count": count,
                "provider": provider,
                "model": model,
                "class": class_,
                "code": code,
            }
            event("calls.repeated", level=logging.WARNING, **facts)

    def _flush_refusals(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._since = None
        facts: dict[str, Any] = {"seconds": SUMMARY_SECONDS}
        if self._decisions:
            event(
                "calls.refused",
                level=logging.WARNING,
                **facts,
                count=self._decisions.total(),
                by_decision=dict(self._decisions),
                by_key=_most(self._refused),
            )
        if self._would_refuse:
            event(
                "calls.would_refuse",
                **facts,
                count=self._would_refuse.total(),
                by_key=_most(self._would_refuse),
            )
        if self._expired:
            event(
                "permits.expired",
                level=logging.WARNING,
                **facts,
                count=self._expired.total(),
                by_key=_most(self._expired),
            )
        if self._faults:
            event(
                "faults.repeated",
                level=logging.ERROR,
                **facts,
                count=self._faults.total(),
                where=dict(self._faults),
            )
        for counter in (
            self._decisions,
            self._refused,
            self._would_refuse,
            self._expired,
            self._faults,
        ):
            counter.clear()

    def _call(self, call: CallFinished) -> None:
        if self._since is not None:
            self._sum_up(call.at)
        if call.would_refuse:
            self._count(self._would_refuse, call.key or call.provider or "-", call.at)
        if call.envelope is None and call.decision == FORWARDED and call.verdict is Verdict.SUCCESS:
            return  # by far the most calls
        ending = ending_of(call)
        if ending is Ending.REFUSED:
            self._decisions[call.decision] += 1
            self._count(self._refused, call.key or call.provider or "-", call.at)
            return
        if call.envelope is not None or call.decision != FORWARDED or ending is not Ending.ANSWERED:
            envelope = call.envelope
            self._write(
                (
                    call.provider,
                    call.model,
                    None if envelope is None else envelope.class_.value,
                    ending.value if envelope is None else envelope.code,
                ),
                call.at,
                lambda: call_lines.finished(call, ending),
            )

    def _dependency(self, call: DependencyCalled) -> None:
        self._sum_up(call.at)
        if call.would_refuse:
            self._count(self._would_refuse, call.dependency, call.at)
        if call.decision in LOCAL_REFUSALS:
            self._decisions[call.decision] += 1
            self._count(self._refused, call.dependency, call.at)
        elif call.decision == EXPIRED:
            self._count(self._expired, call.dependency, call.at)
        elif call.envelope is not None:
            envelope = call.envelope
            self._write(
                (call.dependency, None, envelope.class_.value, envelope.code),
                call.at,
                lambda: call_lines.reported(call, envelope),
            )

    def _write(self, kind: storms.Kind, at: float, line: Callable[[], call_lines.Line]) -> None:
        """Write a line, unless there were enough of its kind."""
        if self._storm_since is not None and at - self._storm_since >= storms.SECONDS:
            self._flush_storms()
        if self._storms.admit(kind, at):
            name, level, facts = line()
            event(name, level=level, **facts)
            return
        self.suppressed += 1
        if self._storm_since is None:
            self._storm_since = at
            self._storm_timer = _later(storms.SECONDS, self._flush_storms)

    def _sum_up(self, at: float) -> None:
        if self._since is not None and at - self._since >= SUMMARY_SECONDS:
            self._flush_refusals()

    def _count(self, counter: Counter[str], key: str, at: float) -> None:
        # The keys of callers' own invention are bounded by the registry, not by a short window.
        counter[key if key in counter or len(counter) < 1_000 else "other"] += 1
        self._hold(at)

    def _fault(self, fault: Fault) -> None:
        mark = (fault.where, type(fault.error))
        if mark in self._known_faults or len(self._known_faults) >= _MOST_FAULTS:
            self._faults[fault.where] += 1
            self._hold(fault.at)
            return
        self._known_faults.add(mark)
        event(
            "fault",
            level=logging.ERROR,
            error=fault.error,
            where=fault.where,
            correlation_id=fault.correlation_id or None,
        )

    def _hold(self, at: float) -> None:
        if self._since is not None:
            return
        self._since = at
        self._timer = _later(SUMMARY_SECONDS, self._flush_refusals)


def _later(seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle | None:
    """A timer of the running loop; None without one."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    return loop.call_later(seconds, then)


def _most(counter: Counter[str]) -> dict[str, int]:
    most = dict(counter.most_common(_MOST_KEYS))
    rest = counter.total() - sum(most.values())
    if rest:
        most["other"] = most.get("other", 0) + rest
    return most


def _transition(fact: Transition) -> None:
    name, level = _TRANSITION_EVENTS[fact.new]
    event(
        name,
        level=level,
        key=fact.key,
        provider=fact.provider,
        old=fact.old,
        new=fact.new,
        reason=fact.reason,
        enforced=fact.enforced,
        retry_after=fact.retry_after,
    )


def _network(fact: NetworkChange) -> None:
    if fact.down:
        hosts = sorted(fact.hosts)
        event("network.down", level=logging.WARNING, reason=fact.reason, hosts=hosts)
    else:
        event("network.up", reason=fact.reason, down_for=fact.at - fact.since)


def _reloaded(fact: ConfigReloaded) -> None:
    if fact.problems:
        event(
            "config.refused",
            level=logging.ERROR,
            generation=fact.generation,
            hash=fact.hash,
            problems=fact.problems,
        )
        return
    event(
        "config.reloaded",
        generation=fact.generation,
        hash=fact.hash,
        added=fact.added,
        removed=fact.removed,
        changed=fact.changed,
        restart_needed=fact.restart_needed,
        warnings=fact.warnings,
    )
