"""The race as tables, plots and `docs/benchmarks.md`."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Any

from bench import plot, report
from bench.growth import DIALECTS

SPEED = [
    ("calls per core-second", "per_core", ",.0f"),
    ("vs Envoy", "to_envoy", ".2f"),
    ("vs forwarder", "to_forwarder", ".2f"),
    ("+p50 ms at 1", "added_alone_p50", ".2f"),
    ("+p99", "added_alone_p99", ".2f"),
    ("+p99.9", "added_alone_p999", ".2f"),
    ("+p50 ms at 64", "added_busy_p50", ".1f"),
    ("+p99", "added_busy_p99", ".1f"),
    ("+p99.9", "added_busy_p999", ".1f"),
    ("errors", "errors", ".0f"),
]
STREAMS = [
    ("CPU µs/event, flat out", "flat_us", ".1f"),
    ("vs Envoy", "flat_to_envoy", ".2f"),
    ("CPU µs/event, 50 a second", "paced_us", ".1f"),
    ("vs Envoy", "paced_to_envoy", ".2f"),
    ("+event p50 ms", "added_event_p50", ".2f"),
    ("+event p99 ms", "added_event_p99", ".2f"),
    ("streams that failed", "failed", ".0f"),
    ("KiB per open stream", "kib_each", ".1f"),
    ("idle MiB", "idle_mib", ".0f"),
    ("ready ms", "ready_ms", ",.0f"),
]
TYPO = [
    ("upstream requests for the typo", "typo_upstream", ".0f"),
    ("valid calls", "typo_valid", ".0f"),
    ("of them refused", "typo_refused", ".0f"),
    ("valid calls refused for, s", "typo_refused_for", ".1f"),
]
OUTAGE = [
    ("calls in the outage", "outage_asked", ".0f"),
    ("that reached the upstream", "outage_upstream", ".0f"),
    ("opened after, s", "outage_opened", ".2f"),
    ("recovered after, s", "outage_recovered", ".2f"),
    ("valid calls refused after the end", "outage_refused_after", ".0f"),
]


def derived(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The results with their ratios."""
    rows: dict[str, dict[str, float]] = {name: dict(row) for name, row in found["results"].items()}
    for row in rows.values():
        row["failed"] = row.get("flat_errors", 0) + row.get("paced_errors", 0)
        if row.get("cpu_us"):
            row["per_core"] = 1e6 / row["cpu_us"]
    for name, key, other in (
        ("to_envoy", "per_core", "envoy"),
        ("to_forwarder", "per_core", "forwarder"),
        ("flat_to_envoy", "flat_us", "envoy"),
        ("paced_to_envoy", "paced_us", "envoy"),
    ):
        base = rows.get(other, {}).get(key)
        for row in rows.values():
            if base and row.get(key):
                row[name] = row[key] / base
    return rows


def race(found: dict[str, Any]) -> str:
    """All tables, for a terminal and for Markdown at once."""
    rows = derived(found)
    proxies = {name: row for name, row in rows.items() if name != "direct"}
    parts = [
        ("Plain calls", SPEED, proxies),
        ("Streams and weight", STREAMS, proxies),
        ("A typo that looks like an outage", TYPO, rows),
        ("A real outage", OUTAGE, rows),
    ]
    text = [
        f"### {title}\n\n{report.table(columns, shown)}" for title, columns, shown in parts if shown
    ]
    peers = ["| peer | version | against a failing upstream |", "|---|---|---|"]
    for name, about in found["peers"].items():
        peers.append(f"| {name} | {about['version'] or '-'} | {about['guard']} |")
    for name, why in found["missing"].items():
        peers.append(f"| {name} | **missing** | {why} |")
    text.insert(0, "### Who took part\n\n" + "\n".join(peers))
    return "\n\n".join(text)


def growth(curves: dict[str, list[tuple[float, float]]]) -> str:
    """The curves as one table."""
    lines = ["| of what | how many: CPU µs of a call |", "|---|---|"]
    lines += [
        f"| {name} | " + " · ".join(f"{x:,.0f}: {y:.0f}" for x, y in curve) + " |"
        for name, curve in curves.items()
    ]
    return "\n".join(lines)


def write(document: Path, found: dict[str, Any], figures: dict[str, Any] | None) -> None:
    """Writes the document and its plots; without the other figures, says how to get them."""
    images = document.parent / "images"
    rows = derived(found)
    bars = {name: row["per_core"] for name, row in rows.items() if row.get("per_core")}
    events = {name: row["paced_us"] for name, row in rows.items() if row.get("paced_us")}
    (images / "race.svg").write_text(
        plot.bars(
            [
                ("Plain calls per second of CPU time (more is better)", bars, "{:,.0f}"),
                ("CPU of a streamed event, µs (less is better)", events, "{:,.1f}"),
            ],
            marked="sidecar",
        )
    )
    if found["growth"]:
        (images / "growth.svg").write_text(
            plot.curves("CPU µs of a call, by how many there are", found["growth"])
        )
    about = found["machine"]
    text = Template((Path(__file__).parent / "benchmarks.md.template").read_text()).substitute(
        machine=f"{about['system']}, {about['cores']} cores, Python {about['python']}, "
        f"load before {about['load_before']}",
        how=f"{found['rounds']} rounds of {found['seconds']:g} s, load by {found['load']}",
        race=race(found),
        growth=growth(found["growth"]),
        dialects=", ".join(DIALECTS),
        remains=(Path(__file__).parent / "remains.md").read_text().strip(),
        figures="" if figures is None else report.tables(figures["rounds"]),
        promises=""
        if figures is None
        else report.bar_lines([report.Bar(**bar) for bar in figures["bars"]]),
        versions=""
        if figures is None
        else "; ".join(f"{name}: {version}" for name, version in figures["versions"].items()),
    )
    document.write_text(text)
