"""Says what `/status` holds in words, for the picture and for the plain lines.

Read leniently: the daemon may be older or newer than this command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from sidecar.admin.words import in_words

Document = Mapping[str, Any]

VERDICTS: Mapping[str, str] = {
    "success": "good",
    "failure": "failed",
    "alive": "alive",
    "throttle": "throttled",
    "neutral": "neutral",
}
"""What the verdicts of a window are called."""


class Known(NamedTuple):
    """Everything that was asked for, at one moment.

    Attributes:
        status: the document of `GET /status`.
        config: that of `GET /config`; empty if it was refused.
        errors: the groups of the last hour's failures.
        failures: the last failures, the last one first.
        faults: the rules by which faults are injected on purpose.
    """

    status: Document
    config: Document = MappingProxyType({})
    errors: tuple[Document, ...] = ()
    failures: tuple[Document, ...] = ()
    faults: tuple[Document, ...] = ()

    def settings(self, name: str) -> Document:
        """The breaker's settings of a provider or dependency."""
        for section in ("providers", "dependencies"):
            found = self.config.get(section, {}).get(name)
            if found:
                breaker: Document = found.get("breaker") or {}
                return breaker
        return {}


class Row(NamedTuple):
    """A breaker with what belongs to it.

    Attributes:
        key: its key.
        label: its name below its provider.
        entry: its part of the document.
        settings: its breaker's settings, as far as they are known.
    """

    key: str
    label: str
    entry: Document
    settings: Document


def rows_of(known: Known, name: str, provider: Document) -> list[Row]:
    """The breakers of a provider, those that are not closed first."""
    settings = known.settings(name)
    rows = [
        Row(key, "(connections)" if key == name else key.removeprefix(f"{name}/"), entry, settings)
        for key, entry in provider.get("breakers", {}).items()
    ]
    return sorted(rows, key=lambda row: row.entry.get("state") == "closed")


def dependency_rows(known: Known) -> list[Row]:
    """The breakers of the dependencies."""
    entries = known.status.get("dependencies", {}).items()
    return [Row(name, name, entry, known.settings(name)) for name, entry in entries]


def state(entry: Document) -> str:
    """The state, and the mode where it is not the usual one."""
    word = str(entry.get("state", "?")).replace("_", "-")
    return word + mode(entry)


def mode(entry: Document) -> str:
    """The mode in brackets, unless it is the usual one."""
    word = entry.get("mode", "enforce")
    return "" if word == "enforce" else f" ({word})"


def what_next(row: Row, now: float) -> str:
    """What the breaker does next, and when; empty if nothing is to be expected.

    Args:
        row: the breaker.
        now: seconds since the epoch.
    """
    entry = row.entry
    match entry.get("state"):
        case "open":
            left = until(entry.get("half_open_at"), now)
            if left is None:
                return "stays open until someone closes or resets it"
            return f"lets a probe through {left}"
        case "half_open":
            probes = entry.get("probes_in_flight") or 0
            return f"{plural(probes, 'probe')} under way" if probes else "the next call probes it"
    run, limit = entry.get("consecutive_failures"), row.settings.get("consecutive_failures")
    if isinstance(run, int) and isinstance(limit, int) and run and limit:
        return f"opens after {plural(max(1, limit - run), 'more failure')} in a row"
    return ""


def why(entry: Document) -> str:
    """Why it is not closed, with the last error where the reason does not name it."""
    if entry.get("state") == "closed":
        return ""
    reason = line(entry.get("reason") or "")
    error = entry.get("last_error") or {}
    code = str(error.get("code") or "")
    if not code or code in reason:
        return reason
    return "; ".join(part for part in (reason, f"last: {line(code)}") if part)


def window(entry: Document) -> str:
    """The verdicts of the window, those that there are."""
    figures = entry.get("window") or {}
    parts = [f"{figures[name]} {word}" for name, word in VERDICTS.items() if figures.get(name)]
    return ", ".join(parts)


def restrictions(status: Document, now: float) -> Iterator[tuple[str, str, str]]:
    """Keys that are shed or spent: the key, the state, and the facts as one line."""
    for provider in status.get("providers", {}).values():
        for entry in provider.get("shedding") or ():
            if entry.get("state") != "idle":
                yield str(entry.get("key")), str(entry.get("state")), _shedding(entry, now)
        for entry in provider.get("quota") or ():
            yield str(entry.get("key")), "spent", _quota(entry, now)


def _shedding(entry: Document, now: float) -> str:
    parts = []
    left = until(entry.get("not_before"), now)
    if left is not None:
        parts.append(f"its next call may go {left}")
    if entry.get("rate") is not None:
        parts.append(f"{entry['rate']:g} calls a second pass")
    parts += [f"{entry.get('queued', 0)} wait", f"{entry.get('shed', 0)} shed so far"]
    hint, source = entry.get("hint"), entry.get("hint_source")
    if isinstance(hint, int | float):
        parts.append(f"the upstream asked for {span(hint)}" + (f" ({source})" if source else ""))
    return ", ".join(parts)


def _quota(entry: Document, now: float) -> str:
    parts = [line(entry.get("code", "?"))]
    left = until(entry.get("next_check"), now)
    if left is not None:
        parts.append(f"one call asks again {left}")
    if entry.get("until"):
        parts.append(f"reopens {until(entry['until'], now)}")
    return ", ".join(parts)


def reclassified(status: Document) -> Iterator[tuple[str, str]]:
    """Providers whose answers wore a false status, with the last one in words."""
    for name, provider in status.get("providers", {}).items():
        told = provider.get("reclassified") or {}
        last = told.get("last")
        if last:
            class_, code = str(last.get("class")), str(last.get("code"))
            sentence = line(in_words(last.get("status") or 0, class_, code))
            total = plural(told.get("total", 1), "answer")
            yield name, f"{total} in a false dress, the last: {sentence}"


def notices(known: Known) -> Iterator[str]:
    """What everybody should know first."""
    status = known.status
    network = status.get("network", "up")
    if network != "up":
        yield f"the network of this machine is {network}: no upstream is blamed"
    error = status.get("config", {}).get("error")
    if error:
        yield f"the last reload was refused: {line(error)}"
    if known.faults:
        told = "; ".join(
            f"{rule.get('rule')} ({rule.get('fault')}), {plural(rule.get('injected'), 'time')}"
            for rule in known.faults
        )
        yield f"faults are injected into calls on purpose: {line(told)}"


def headline(status: Document, now: float) -> str:
    """Version, age, configuration and calls as one line."""
    config, totals = status.get("config", {}), status.get("totals", {})
    parts = (
        f"breaker-sidecar {status.get('version', '?')}",
        f"up {ago(status.get('started_at'), now)}",
        f"network {status.get('network', 'up')}",
        f"configuration {config.get('generation', '?')} ({config.get('hash', '?')})",
        f"{totals.get('requests', 0):,} requests, {totals.get('answered_here', 0):,} answered here",
    )
    return " · ".join(parts)


def failure(entry: Document) -> tuple[str, str, str, str, str]:
    """One failure: when, where, what, its message, its correlation id."""
    envelope = entry.get("envelope") or {}
    at = epoch(entry.get("at"))
    injected = " (injected)" if entry.get("fault") else ""
    return (
        "" if at is None else clock_time(at),
        line(entry.get("key") or entry.get("provider") or "-"),
        line(f"{envelope.get('class')} {envelope.get('code')}{injected}"),
        line(envelope.get("message") or ""),
        line(envelope.get("correlation_id") or ""),
    )


def clock_time(at: float) -> str:
    """The time of day here, of seconds since the epoch."""
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")


def line(value: object) -> str:
    """Anything as one line of bounded length."""
    if isinstance(value, list):
        value = "; ".join(str(part) for part in value)
    return " ".join(str(value).split())[:200]


def plural(count: object, one: str) -> str:
    """A number and what it counts."""
    number = count if isinstance(count, int | float) else 0
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one}s"


def epoch(value: object) -> float | None:
    """Seconds since the epoch from an RFC 3339 time or a number."""
    if isinstance(value, int | float):
        return float(value)
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return None


def until(value: object, now: float) -> str | None:
    """`in 30 s`; None without a time."""
    at = epoch(value) if value else None
    if at is None:
        return None
    return f"in {span(at - now)}" if at > now else "now"


def ago(value: object, now: float) -> str:
    """`2 min`; empty without a time."""
    at = epoch(value) if value else None
    return "" if at is None else span(max(0.0, now - at))


def span(seconds: float) -> str:
    """A length of time in its largest unit of which there are two."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
