"""Draws the facts of `/status` for a terminal: what is wrong first, since screens end.

Nothing depends on colour: states are words, bars have letters of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sidecar.cli import status_words as say
from sidecar.cli.errors import printable
from sidecar.cli.status_words import Document, Known, Row

_COLOURS = {
    "up": "green",
    "closed": "green",
    "degraded": "yellow",
    "half_open": "yellow",
    "waiting": "yellow",
    "down": "red",
    "open": "red",
    "shedding": "red",
    "spent": "red",
}
_QUIET_BREAKERS = 8
"""How many closed breakers of one provider are listed; the others are only counted."""
_ERRORS = 8
_FAILURES = 8
_BAR = 10
_BAR_SIGNS = {"failure": "█", "throttle": "▓", "alive": "▒", "success": "─", "neutral": "·"}
_BAR_COLOURS = {"failure": "red", "throttle": "yellow", "alive": "blue", "success": "green"}
_HEIGHTS = " ▁▂▃▄▅▆▇█"
_MINUTES_A_BAR = 3


def render(known: Known, now: float) -> Group:
    """The whole picture.

    Args:
        known: what was asked for.
        now: seconds since the epoch, for "since" and "in".
    """
    status = known.status
    parts: list[RenderableType] = [_text(say.headline(status, now))]
    parts += [_text(notice, "bold red") for notice in say.notices(known)]
    parts += [Text(), _breakers(known, now)]
    for title, drawn in (
        ("Shed and spent", _restrictions(status, now)),
        ("Answers in a false dress", _reclassified(status)),
        ("Errors of the last hour", _errors(known, now)),
        ("Last failures", _failures(known)),
    ):
        if drawn is not None:
            parts += [Text(), _text(title, "bold"), drawn]
    disabled = status.get("config", {}).get("disabled") or {}
    if disabled:
        parts += [Text(), _text(f"disabled: {', '.join(disabled)}", "dim")]
    return Group(*parts)


def _breakers(known: Known, now: float) -> Table:
    table = _table("", "state", "in flight", "last window", "since", "next, and why")
    for name, provider in known.status.get("providers", {}).items():
        verdict = str(provider.get("verdict", "?"))
        table.add_row(
            _text(name, "bold"),
            _text(f"{verdict}{say.mode(provider)}", _COLOURS.get(verdict, "")),
            _text(str(provider.get("in_flight", 0))),
            Text(),
            Text(),
            _text(str(provider.get("upstream", "")), "dim"),
        )
        _add_rows(table, say.rows_of(known, name, provider), now)
    for row in say.dependency_rows(known):
        _add_row(table, row, row.label, now)
    return table


def _add_rows(table: Table, rows: Sequence[Row], now: float) -> None:
    loud = [row for row in rows if row.entry.get("state") != "closed"]
    quiet = rows[len(loud) :]
    for row in (*loud, *quiet[:_QUIET_BREAKERS]):
        _add_row(table, row, f"  {row.label}", now)
    if len(quiet) > _QUIET_BREAKERS:
        table.add_row(_text(f"  and {len(quiet) - _QUIET_BREAKERS} more, closed", "dim"))


def _add_row(table: Table, row: Row, label: str, now: float) -> None:
    entry = row.entry
    told = (say.what_next(row, now), say.why(entry))
    table.add_row(
        _text(label),
        _text(say.state(entry), _COLOURS.get(str(entry.get("state")), "")),
        _text(str(entry["in_flight"]) if "in_flight" in entry else ""),
        _bar(entry.get("window") or {}, say.window(entry)),
        _text(say.ago(entry.get("since"), now)),
        _text("; ".join(part for part in told if part)),
    )


def _bar(figures: Document, words: str) -> Text:
    """The shares of the verdicts, each with a sign of its own, and the figures."""
    counts = {name: int(figures.get(name) or 0) for name in _BAR_SIGNS}
    total = sum(counts.values())
    text = Text()
    if not total:
        return text
    seen = drawn = 0
    for name, sign in _BAR_SIGNS.items():
        seen += counts[name]
        # Whatever there was is seen, however small its share.
        cells = max(round(_BAR * seen / total) - drawn, 1 if counts[name] else 0)
        text.append(sign * cells, _BAR_COLOURS.get(name, ""))
        drawn += cells
    text.append(f" {words}")
    return text


def _restrictions(status: Document, now: float) -> Table | None:
    rows = list(say.restrictions(status, now))
    table = _table("key", "state", "")
    for key, state, facts in rows:
        table.add_row(_text(key), _text(state, _COLOURS.get(state, "")), _text(facts))
    return table if rows else None


def _reclassified(status: Document) -> Table | None:
    rows = list(say.reclassified(status))
    table = _table("", "")
    table.show_header = False
    for name, told in rows:
        table.add_row(_text(name), _text(told))
    return table if rows else None


def _errors(known: Known, now: float) -> Table | None:
    table = _table("class", "code", "count", "by the minute", "last")
    for group in known.errors[:_ERRORS]:
        last = say.ago((group.get("last") or {}).get("at"), now)
        table.add_row(
            _text(str(group.get("class"))),
            _text(str(group.get("code"))),
            _text(f"{group.get('count', 0):,}"),
            Text(_strip(group.get("minutes") or ())),
            _text(f"{last} ago" if last else ""),
        )
    return table if known.errors else None


def _strip(minutes: Sequence[int]) -> str:
    """An hour as a strip of bars, the present on the right."""
    places = range(0, len(minutes), _MINUTES_A_BAR)
    sums = [sum(minutes[place : place + _MINUTES_A_BAR]) for place in places]
    most = max(sums, default=0) or 1
    # The lowest bar is for one failure, an empty place for none.
    return "".join(_HEIGHTS[-(-count * (len(_HEIGHTS) - 1) // most)] for count in sums)


def _failures(known: Known) -> Table | None:
    table = _table("when", "where", "what", "message", "correlation id")
    for entry in known.failures[:_FAILURES]:
        table.add_row(*(_text(cell) for cell in say.failure(entry)))
    return table if known.failures else None


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in titles:
        right = title in ("in flight", "count")
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    return table


def _text(value: str, style: str = "") -> Text:
    return Text(printable(value), style=style)
