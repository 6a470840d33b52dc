"""A reading as text for Prometheus: its own format, or OpenMetrics for who asks for that.

Eighty lines of ours in place of a library: the exporter of OpenTelemetry for Prometheus is a beta
that brings a registry and a client of its own along, and would load the SDK in a process that
exports nothing. Both formats are checked against the parsers of Prometheus itself in the tests.
"""

from __future__ import annotations

from math import inf, isinf, isnan

from sidecar.telemetry.figures import Histogram
from sidecar.telemetry.instruments import Instrument
from sidecar.telemetry.readings import Reading

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def wants_openmetrics(accept: str | None) -> bool:
    """Does an `Accept` prefer OpenMetrics to text, with a weight above nothing?"""
    best, chosen = 0.0, False
    for part in (accept or "").split(",")[:32]:
        kind, *parameters = [word.strip().lower() for word in part.split(";")]
        weight = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                try:
                    weight = float(value)
                except ValueError:
                    weight = 0.0
        if weight > best and kind in ("application/openmetrics-text", "text/plain", "*/*"):
            best, chosen = weight, kind == "application/openmetrics-text"
    return chosen


def render(reading: Reading, *, openmetrics: bool) -> bytes:
    """The text of a reading.

    Args:
        reading: what is shown.
        openmetrics: the one format, else Prometheus's own.
    """
    lines: list[str] = []
    for instrument, samples in reading:
        if not samples:
            continue
        _head(lines, instrument, openmetrics=openmetrics)
        name = instrument.shown
        for labels, value in samples:
            pairs = ",".join(
                f'{label}="{escaped(text)}"'
                for label, text in zip(instrument.labels, labels, strict=True)
            )
            if isinstance(value, Histogram):
                _histogram(lines, instrument.prometheus, pairs, value)
            else:
                lines.append(f"{name}{{{pairs}}} {number(value)}" if pairs else
                             f"{name} {number(value)}")  # fmt: skip
    if openmetrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")


def _head(lines: list[str], instrument: Instrument, *, openmetrics: bool) -> None:
    # OpenMetrics names a family of counters without `_total`, Prometheus with it.
    name = instrument.prometheus if openmetrics else instrument.shown
    lines.append(f"# HELP {name} {escaped_help(instrument.meaning, quotes=openmetrics)}")
    lines.append(f"# TYPE {name} {instrument.kind.value}")
    unit = {"s": "seconds", "By": "bytes"}.get(instrument.unit)
    if openmetrics and unit and name.endswith(unit):
        lines.append(f"# UNIT {name} {unit}")


def _histogram(lines: list[str], name: str, pairs: str, value: Histogram) -> None:
    before = f"{pairs}," if pairs else ""
    braces = f"{{{pairs}}}" if pairs else ""
    below = 0
    for bound, count in zip((*value.bounds, inf), value.counts, strict=True):
        below += count
        lines.append(f'{name}_bucket{{{before}le="{number(float(bound))}"}} {below}')
    lines.append(f"{name}_sum{braces} {number(value.total)}")
    lines.append(f"{name}_count{braces} {below}")


def number(value: float) -> str:
    """A number as both formats write it."""
    if isinstance(value, int):
        return str(value)
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def escaped(text: str) -> str:
    """A label's value between its quotes."""
    if "\\" in text or '"' in text or "\n" in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


def escaped_help(text: str, *, quotes: bool) -> str:
    """The text behind HELP."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text
