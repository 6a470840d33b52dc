"""Turns the figures of all rounds into medians, ratios, bars and tables."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

Rounds = dict[str, list[float]]
Scenario = dict[str, Rounds]

YARDSTICK = "forwarder"
"""Whose rate is 1."""


@dataclass(frozen=True)
class Bar:
    """A promise of the project and what was measured.

    Attributes:
        name: what is promised, with its limit.
        value: what was seen; None if it was not measured.
        met: whether it was kept; None if it was not measured.
    """

    name: str
    value: float | None
    met: bool | None


def median(values: list[float] | None) -> float | None:
    return statistics.median(values) if values else None


def paired(scenario: Scenario, peer: str, other: str, key: str, how: str) -> float | None:
    """The median over the rounds of a ratio to, or a difference from, another peer."""
    mine, theirs = scenario.get(peer, {}).get(key), scenario.get(other, {}).get(key)
    if not mine or not theirs:
        return None
    pairs = list(zip(mine, theirs, strict=False))
    if how == "ratio":
        return statistics.median(a / b for a, b in pairs if b) if any(b for _, b in pairs) else None
    return statistics.median(a - b for a, b in pairs)


def summary(results: dict[str, Scenario]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Medians of every figure, and beside them ratios and added times."""
    shown: dict[str, dict[str, dict[str, float | None]]] = {}
    for name, scenario in results.items():
        shown[name] = {}
        for peer, rounds in scenario.items():
            row = {key: median(values) for key, values in rounds.items()}
            if "errors" in rounds:
                row["errors"] = sum(rounds["errors"])
            if "rate" in rounds:
                row["to_forwarder"] = paired(scenario, peer, YARDSTICK, "rate", "ratio")
                row["to_direct"] = paired(scenario, peer, "direct", "rate", "ratio")
            if "off" in scenario and "rate" in rounds:
                row["to_off"] = paired(scenario, peer, "off", "rate", "ratio")
                row["cpu_to_off"] = paired(scenario, "off", peer, "cpu_us", "ratio")
            if "cpu_us" in rounds and "rate" in rounds:
                row["cpu_to_forwarder"] = paired(scenario, YARDSTICK, peer, "cpu_us", "ratio")
            for key in ("alone_p50", "alone_p99", "first", "event_p50", "event_p99"):
                if key in rounds and peer != "direct" and "direct" in scenario:
                    row[f"added_{key}"] = paired(scenario, peer, "direct", key, "difference")
            shown[name][peer] = row
    return shown


def bars(results: dict[str, Scenario]) -> list[Bar]:
    """What the project promises of these figures."""
    shown = summary(results)

    def value(scenario: str, key: str) -> float | None:
        return shown.get(scenario, {}).get("sidecar", {}).get(key)

    def at_most(name: str, seen: float | None, limit: float) -> Bar:
        return Bar(name, seen, None if seen is None else seen <= limit)

    ratio = value("post", "cpu_to_forwarder") or value("post", "to_forwarder")
    # Other work on the machine makes a round slower and never faster: the best one is the daemon's.
    refused = results.get("breaker_open", {}).get("sidecar", {})
    slowest = min(refused["busy_p99"]) if refused.get("busy_p99") else None
    crowd = results.get("at_once", {}).get("sidecar", {})
    quiet = results.get("open_streams", {}).get("sidecar", {})
    errors = [
        row["errors"]
        for scenario in shown.values()
        for name, row in scenario.items()
        if name == "sidecar" and row.get("errors") is not None
    ]
    return [
        Bar(
            "calls per second of CPU time, at least 0.9 of the plain forwarder's",
            ratio,
            None if ratio is None else ratio >= 0.9,
        ),
        at_most("breaker_open, p99 of the best round below 5 ms", slowest, 5.0),
        at_most("breaker_open, calls that reached the upstream: 0", _worst(
            refused.get("upstream_hits")), 0.0),
        at_most("ready after the command, below 1000 ms", value("idle", "ready_ms"), 1000.0),
        at_most("idle memory, below 60 MiB", value("idle", "rss"), 60.0),
        at_most("a thousand at once: growth of memory after the third round, below 5 %", growth(
            crowd.get("rss")), 5.0),
        at_most("a thousand at once: growth of descriptors after the third round: 0", _more(
            crowd.get("descriptors")), 0.0),
        at_most("a thousand at once: descriptors left over: 0", _left(crowd), 0.0),
        at_most("paced streams: added delay of an event at the median below 1 ms", value(
            "paced_streams", "added_event_p50"), 1.0),
        at_most("streams: CPU per event, at most 1.5 of Envoy's", _to_envoy(shown), 1.5),
        at_most("open streams: at most 48 KiB each", _worst(quiet.get("kib_each")), 48.0),
        at_most("open streams: growth of memory after the first round, below 5 %", _since_first(
            quiet.get("rss")), 5.0),
        at_most("open streams: descriptors left over: 0", _left_open(quiet), 0.0),
        at_most("200,000 streams: growth of memory after the first tenth, below 5 %", _since_first(
            results.get("many_streams", {}).get("sidecar", {}).get("rss")), 5.0),
        at_most("classification of an error of 1 KiB, below 30 µs", _classified(
            shown, "error 1 KiB"), 30.0),
        at_most("classification of a good answer of 2 KiB, below 5 µs", _classified(
            shown, "good 2 KiB"), 5.0),
        _at_least("shedding: goodput with hints, at least 0.95", _limited(
            results, "whole seconds", "goodput"), 0.95),
        _at_least("shedding: goodput without hints, at least 0.85", _limited(
            results, "no hint", "goodput"), 0.85),
        *(at_most(f"shedding, {hint}: refused by the upstream, below 5 %", _limited(
            results, hint, "refused"), 0.05) for hint in ("whole seconds", "no hint")),
        *(at_most(f"shedding, {hint}: longest call, below max_wait (2 s) and a tenth", _limited(
            results, hint, "longest_ms"), 2100.0) for hint in ("whole seconds", "no hint")),
        *(at_most(f"shedding, {hint}: follows a doubled bucket within 20 s", _limited(
            results, hint, "follows_s"), 20.0) for hint in ("whole seconds", "no hint")),
        at_most("shedding: latest /healthz while a crowd waits, below 50 ms", _limited(
            results, "crowd", "late_ms"), 50.0),
        _at_least("metrics alone: calls per second of CPU time, at least 0.95 of telemetry off's",
            _of_off(shown, "metrics"), 0.95),
        _at_least("full telemetry: calls per second of CPU time, at least 0.75 of telemetry off's",
            _of_off(shown, "full"), 0.75),
        at_most("errors in all scenarios: 0", sum(errors) if errors else None, 0.0),
    ]  # fmt: skip


def _at_least(name: str, seen: float | None, limit: float) -> Bar:
    return Bar(name, seen, None if seen is None else seen >= limit)


def _of_off(shown: dict[str, dict[str, dict[str, float | None]]], peer: str) -> float | None:
    row = shown.get("telemetry", {}).get(peer, {})
    return row.get("cpu_to_off") or row.get("to_off")


def growth(values: list[float] | None) -> float | None:
    """By how many percent the last rounds are above the third."""
    if not values or len(values) < 4:
        return None
    settled = values[2]
    return max((statistics.median(values[-3:]) / settled - 1) * 100, 0.0)


def _more(values: list[float] | None) -> float | None:
    if not values or len(values) < 4:
        return None
    return max(statistics.median(values[-3:]) - max(values[1:3]), 0.0)


def _left(crowd: Rounds) -> float | None:
    before, after = crowd.get("descriptors_before"), crowd.get("descriptors_after")
    if not before or not after or len(crowd.get("rss", ())) < 4:
        return None
    # The warm-up's own connection to the upstream was idle then and has been closed since.
    return max(after[0] - before[0], 0.0)


def _since_first(values: list[float] | None) -> float | None:
    if not values or len(values) < 10:
        return None
    return max((values[-1] / values[0] - 1) * 100, 0.0)


def _left_open(quiet: Rounds) -> float | None:
    before, after = quiet.get("descriptors_before"), quiet.get("descriptors_after")
    if not before or not after or len(quiet.get("rss", ())) < 10:
        return None
    return max(after[0] - before[0], 0.0)


def _to_envoy(shown: dict[str, dict[str, dict[str, float | None]]]) -> float | None:
    rows = shown.get("stream", {})
    mine, theirs = (rows.get(peer, {}).get("cpu_us") for peer in ("sidecar", "envoy"))
    return mine / theirs if mine and theirs else None


def _classified(shown: dict[str, dict[str, dict[str, float | None]]], kind: str) -> float | None:
    return shown.get("classify", {}).get(kind, {}).get("us")


def _limited(results: dict[str, Scenario], name: str, key: str) -> float | None:
    return _worst(results.get("shedding", {}).get(name, {}).get(key))


def _worst(values: list[float] | None) -> float | None:
    return max(values) if values else None


# -- tables ---------------------------------------------------------------------------------

COLUMNS: dict[str, list[tuple[str, str, str]]] = {
    "telemetry": [
        ("req/s", "rate", ",.0f"),
        ("vs off", "to_off", ".3f"),
        ("CPU µs/call", "cpu_us", ".1f"),
        ("CPU vs off", "cpu_to_off", ".3f"),
        ("p50 ms at 32", "busy_p50", ".2f"),
        ("p99 ms at 32", "busy_p99", ".2f"),
        ("spans lost", "lost", ".1%"),
        ("RSS MiB", "rss", ".1f"),
        ("errors", "errors", ".0f"),
    ],
    "small": [
        ("req/s", "rate", ",.0f"),
        ("vs forwarder", "to_forwarder", ".2f"),
        ("vs direct", "to_direct", ".2f"),
        ("CPU µs/call", "cpu_us", ".0f"),
        ("CPU vs forwarder", "cpu_to_forwarder", ".2f"),
        ("core", "core", ".0%"),
        ("+p50 ms", "added_alone_p50", ".3f"),
        ("+p99 ms", "added_alone_p99", ".3f"),
        ("p50 ms at 32", "busy_p50", ".2f"),
        ("p99 ms at 32", "busy_p99", ".2f"),
        ("errors", "errors", ".0f"),
    ],
    "stream": [
        ("events/s", "rate", ",.0f"),
        ("vs forwarder", "to_forwarder", ".2f"),
        ("vs direct", "to_direct", ".2f"),
        ("CPU µs/event", "cpu_us", ".1f"),
        ("+first event ms", "added_first", ".3f"),
        ("+event p50 ms", "added_event_p50", ".3f"),
        ("+event p99 ms", "added_event_p99", ".3f"),
        ("errors", "errors", ".0f"),
    ],
    "paced_streams": [
        ("event p50 ms", "event_p50", ".3f"),
        ("event p99 ms", "event_p99", ".3f"),
        ("+event p50 ms", "added_event_p50", ".3f"),
        ("+event p99 ms", "added_event_p99", ".3f"),
        ("merged", "merged", ".0f"),
        ("CPU µs/event", "cpu_us", ".1f"),
        ("errors", "errors", ".0f"),
    ],
    "open_streams": [
        ("KiB each", "kib_each", ".1f"),
        ("RSS MiB", "rss", ".1f"),
        ("fd before", "descriptors_before", ".0f"),
        ("fd after", "descriptors_after", ".0f"),
        ("errors", "errors", ".0f"),
    ],
    "many_streams": [
        ("streams a tenth", "streams", ",.0f"),
        ("RSS MiB", "rss", ".1f"),
        ("errors", "errors", ".0f"),
    ],
    "classify": [
        ("µs", "us", ".1f"),
        ("json.loads µs", "json_us", ".1f"),
        ("vs json.loads", "to_json", ".1f"),
    ],
    "guard": [
        ("p50 µs", "guard_p50", ",.0f"),
        ("p99 µs", "guard_p99", ",.0f"),
        ("longest µs", "guard_max", ",.0f"),
    ],
    "bodies": [
        ("MiB/s", "rate", ",.0f"),
        ("vs forwarder", "to_forwarder", ".2f"),
        ("vs direct", "to_direct", ".2f"),
        ("CPU µs/MiB", "cpu_us", ",.0f"),
        ("errors", "errors", ".0f"),
    ],
    "breaker_open": [
        ("answers/s at 8", "busy_rate", ",.0f"),
        ("p50 ms alone", "alone_p50", ".3f"),
        ("p99 ms alone", "alone_p99", ".3f"),
        ("p50 ms at 8", "busy_p50", ".2f"),
        ("p99 ms at 8", "busy_p99", ".2f"),
        ("CPU µs", "cpu_us", ".0f"),
        ("upstream hits", "upstream_hits", ".0f"),
        ("errors", "errors", ".0f"),
    ],
    "idle": [
        ("ready ms", "ready_ms", ".0f"),
        ("python alone ms", "python_ms", ".0f"),
        ("RSS MiB", "rss", ".1f"),
        ("descriptors", "descriptors", ".0f"),
    ],
    "at_once": [
        ("calls", "calls", ".0f"),
        ("p99 ms", "p99", ",.0f"),
        ("errors", "errors", ".0f"),
        ("RSS MiB", "rss", ".1f"),
        ("RSS after", "rss_after", ".1f"),
        ("fd before", "descriptors_before", ".0f"),
        ("fd between", "descriptors", ".0f"),
        ("fd after", "descriptors_after", ".0f"),
    ],
    "weight": [("RSS MiB", "rss", ".1f")],
    "shedding": [
        ("goodput of what the bucket allows", "goodput", ".3f"),
        ("refused by the upstream", "refused", ".1%"),
        ("longest call ms", "longest_ms", ",.0f"),
        ("follows a doubling s", "follows_s", ".1f"),
        ("calls", "calls", ",.0f"),
        ("served", "forwarded", ",.0f"),
        ("shed", "shed", ",.0f"),
        ("left", "left", ",.0f"),
        ("latest /healthz ms", "late_ms", ".0f"),
        ("breaker moved", "errors", ".0f"),
    ],
}

TITLES = {
    "post": ("small", "POST, a chat completion: 32 connections; added latency with one"),
    "get": ("small", "GET, small: 32 connections; added latency with one"),
    "stream": ("stream", "Streams of 100 events: 16 at once; delays with one, an event each 2 ms"),
    "paced_streams": ("paced_streams", "200 streams of 50 events a second each"),
    "open_streams": ("open_streams", "2,000 open and silent streams: medians of the rounds"),
    "many_streams": ("many_streams", "200,000 streams in ten tenths: medians"),
    "classify": ("classify", "Classification alone, in this process"),
    "guard": ("guard", "What a guard adds to a call that does nothing: medians of the rounds"),
    "download": ("bodies", "1 MiB down, octets: 4 connections"),
    "download_json": ("bodies", "1 MiB down, JSON: 4 connections"),
    "upload": ("bodies", "1 MiB up, JSON: 4 connections"),
    "breaker_open": ("breaker_open", "Answers of an open breaker"),
    "idle": ("idle", "At rest, shipped configuration"),
    "at_once": ("at_once", "Calls at once: medians of the rounds"),
    "weight": ("weight", "Resident memory after all of it"),
    "shedding": ("shedding", "Three times what a token bucket of 10 a second allows"),
    "telemetry": ("telemetry", "What telemetry costs: POST over 32 connections"),
}


def tables(results: dict[str, Scenario]) -> str:
    """All of it, for a terminal and for Markdown at once."""
    shown = summary(results)
    parts = []
    for name, rows in shown.items():
        layout, title = TITLES[name]
        parts.append(f"### {title}\n\n{table(COLUMNS[layout], rows)}")
    crowd = results.get("at_once", {}).get("sidecar", {})
    if crowd.get("rss"):
        memory = ", ".join(f"{value:.1f}" for value in crowd["rss"])
        files = ", ".join(f"{value:.0f}" for value in crowd["descriptors"])
        parts.append(f"sidecar, round by round: RSS {memory} MiB; descriptors {files}")
    return "\n\n".join(parts)


def table(columns: list[tuple[str, str, str]], rows: dict[str, dict[str, Any]]) -> str:
    used = [
        column for column in columns if any(row.get(column[1]) is not None for row in rows.values())
    ]
    cells = [["peer", *(title for title, _, _ in used)]]
    for peer, row in rows.items():
        cells.append([peer, *(_cell(row.get(key), form) for _, key, form in used)])
    widths = [max(len(line[index]) for line in cells) for index in range(len(cells[0]))]
    lines = [
        "| "
        + " | ".join(_pad(c, w, i) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        + " |"
        for line in cells
    ]
    rule = (
        "|"
        + "|".join("-" * (w + 2) if not i else "-" * (w + 1) + ":" for i, w in enumerate(widths))
        + "|"
    )
    return "\n".join([lines[0], rule, *lines[1:]])


def _pad(cell: str, width: int, index: int) -> str:
    return cell.rjust(width) if index else cell.ljust(width)


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def bar_lines(found: list[Bar]) -> str:
    """One line a promise."""
    lines = []
    for bar in found:
        mark = {True: "kept  ", False: "MISSED", None: "-     "}[bar.met]
        seen = "not measured" if bar.value is None else f"{bar.value:.3g}"
        lines.append(f"{mark} {bar.name}: {seen}")
    return "\n".join(lines)
