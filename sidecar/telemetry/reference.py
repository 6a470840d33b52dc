"""docs/metrics.md, written from the table of instruments; a test keeps the two the same."""

from __future__ import annotations

from sidecar.telemetry import instruments as of
from sidecar.telemetry.bounds import CODES, MODELS
from sidecar.telemetry.instruments import INSTRUMENTS, LABELS, Instrument

_VALUES = {
    "state": "`closed`, `open`, `half_open`; pacing: `idle`, `waiting`, `shedding`",
    "verdict": "`success`, `failure`, `alive`, `throttle`, `neutral`; a provider: `up`,"
    " `degraded`, `down`",
    "from": "`closed`, `open`, `half_open`",
    "to": "`closed`, `open`, `half_open`",
    "reason": ", ".join(f"`{word}`" for word in of.CAUSES),
    "enforced": "`true`, `false`",
    "decision": ", ".join(f"`{word}`" for word in of.REFUSALS),
    "ending": ", ".join(f"`{word}`" for word in of.ENDINGS),
    "class": ", ".join(f"`{word}`" for word in of.CLASSES),
    "source": ", ".join(f"`{word}`" for word in of.SOURCES),
    "fault": ", ".join(f"`{word}`" for word in of.INJECTED),
    "result": ", ".join(f"`{word}`" for word in of.RELOADS),
    "where": ", ".join(f"`{word}`" for word in of.FAULTS),
    "signal": ", ".join(f"`{word}`" for word in of.SIGNALS),
}

_TOP = f"""\
# Metrics

`GET /metrics` on the admin listener, and on the probe listener if there is one, serves Prometheus's
text, or OpenMetrics to who prefers it in `Accept`. The same figures leave over OTLP where
OpenTelemetry's variables name an endpoint ([telemetry.md](telemetry.md)); there the names are those
of the second table, the labels are attributes. This page is written from the table in
`sidecar/telemetry/instruments.py` by `python -m sidecar.telemetry.reference`.

Every series is there from the start, with nothing, and goes when a reload takes its provider away.
Values of labels come from the configuration and from closed lists. Names that callers choose are
bounded: the first {MODELS} models and routes of a provider of which a call told something about the
upstream (`success`, `failure`, `throttle`) have series of their own, all others are `other`; of
codes at most {CODES} a provider. With `scope: provider` there is only the empty `model`.

A short open time that no scrape saw is proven by `{of.BREAKER_TRANSITIONS.shown}`. The share of
time that a breaker was open is `rate({of.BREAKER_OPEN_TIME.shown}[1h])`. The share of failures is

    sum by (provider) (rate({of.CALLS.shown}{{verdict="failure"}}[5m]))
      / sum by (provider) (rate({of.CALLS.shown}{{verdict=~"success|failure"}}[5m]))

Percentiles are taken over buckets that reach 600 s:

    histogram_quantile(0.99, sum by (le, provider) (rate({of.FIRST_BYTE.shown}_bucket[5m])))

"""


def page() -> str:
    """The whole page."""
    lines = [
        _TOP + "## The series",
        "",
        "| name | type | labels | meaning |",
        "|---|---|---|---|",
        *(_row(one) for one in INSTRUMENTS),
        "",
        "## The labels",
        "",
        "| label | values | meaning |",
        "|---|---|---|",
        *(f"| `{name}` | {_VALUES.get(name, '')} | {told} |" for name, told in LABELS.items()),
        "",
        "## Names over OTLP",
        "",
        "| Prometheus | OpenTelemetry | unit |",
        "|---|---|---|",
        *(f"| `{one.shown}` | `{one.name}` | `{one.unit}` |" for one in INSTRUMENTS),
        "",
        "## Buckets",
        "",
        *(
            f"- `{one.shown}`: {', '.join(f'{bound:g}' for bound in one.bounds)}"
            for one in INSTRUMENTS
            if one.bounds
        ),
    ]
    return "\n".join(lines) + "\n"


def _row(one: Instrument) -> str:
    labels = " ".join(f"`{label}`" for label in one.labels)
    return f"| `{one.shown}` | {one.kind.value} | {labels} | {one.meaning} |"


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
