"""`status`: what the daemon knows about its upstreams, for people; the JSON is for programs."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sidecar import clock
from sidecar.cli import arguments as shared
from sidecar.cli.admin_client import AdminClient, UnreachableError, explain
from sidecar.cli.errors import CommandError, Exit, printable, say
from sidecar.cli.settings import client

_COLOURS = {
    "up": "green",
    "closed": "green",
    "degraded": "yellow",
    "half_open": "yellow",
    "down": "red",
    "open": "red",
}
_QUIET_BREAKERS = 8
"""How many closed breakers of one provider are listed; the others are only counted."""

_PLAIN_WIDTH = 160
"""Columns where there is no terminal that could say how many it has."""

Document = Mapping[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    shared.add_client(parser)
    parser.add_argument("--json", action="store_true", help="print the document of GET /status")
    parser.add_argument(
        "--watch", action="store_true", help="show it again and again, until Ctrl+C"
    )
    parser.add_argument(
        "--interval",
        type=shared.positive_seconds,
        default=2.0,
        metavar="SECONDS",
        help="pause of --watch (default: 2)",
    )
    parser.epilog = (
        "Exit code 0: everything is up; 3: something is degraded or open; 1: no daemon answers."
    )


def execute(arguments: argparse.Namespace) -> int:
    """Shows it once or for as long as it is watched."""
    admin = client(arguments)
    if not arguments.watch:
        document = _fetch(admin)
        if arguments.json:
            print(json.dumps(document, indent=2))
        else:
            _console().print(render(document, clock.wall()))
        return exit_code(document)
    try:
        return _watch_lines(admin, arguments) if arguments.json else _watch(admin, arguments)
    except KeyboardInterrupt:
        return Exit.FINE


def exit_code(document: Document) -> int:
    """0 if every provider is up and every breaker closed, else 3."""
    providers = document.get("providers", {}).values()
    entries = [entry for provider in providers for entry in provider.get("breakers", {}).values()]
    entries += document.get("dependencies", {}).values()
    if any(provider.get("verdict") != "up" for provider in providers):
        return Exit.DEGRADED
    return Exit.DEGRADED if any(e.get("state") != "closed" for e in entries) else Exit.FINE


def render(document: Document, now: float) -> Group:
    """The whole picture.

    Args:
        document: the document of `GET /status`.
        now: seconds since the epoch, for "since" and "in".
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("", "state", "in flight", "failures", "window", "since", "upstream or reason"):
        right = title in ("in flight", "failures")
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    for name, provider in document.get("providers", {}).items():
        _add_provider(table, name, provider, now)
    for name, entry in document.get("dependencies", {}).items():
        _add_breaker(table, name, entry, now)
    return Group(_headline(document, now), Text(), table, *_notes(document))


def _fetch(admin: AdminClient) -> dict[str, Any]:
    status, document = admin.get("/status")
    if status != 200 or not isinstance(document, dict):
        raise CommandError(f"{admin.address}: {explain(status, document)}")
    return document


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


def _watch(admin: AdminClient, arguments: argparse.Namespace) -> int:
    console = _console()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            try:
                picture: Group | Text = render(_fetch(admin), clock.wall())
            except UnreachableError as error:
                picture = Text(str(error), style="red")
            if console.is_terminal:
                live.update(picture, refresh=True)
            else:
                console.print(picture)
            time.sleep(arguments.interval)


def _watch_lines(admin: AdminClient, arguments: argparse.Namespace) -> int:
    while True:
        try:
            print(json.dumps(_fetch(admin), separators=(",", ":")), flush=True)
        except UnreachableError as error:
            say(str(error))
        time.sleep(arguments.interval)


def _headline(document: Document, now: float) -> Text:
    config, totals = document.get("config", {}), document.get("totals", {})
    parts = [
        f"breaker-sidecar {document.get('version', '?')}",
        f"up {_ago(document.get('started_at'), now)}",
        f"configuration {config.get('generation', '?')} ({config.get('hash', '?')})",
        f"{totals.get('requests', 0):,} requests, {totals.get('answered_here', 0):,} answered here",
    ]
    if document.get("network", "up") != "up":
        parts.append(f"network {document['network']}")
    return _text(" · ".join(parts))


def _notes(document: Document) -> list[Text]:
    notes = []
    error = document.get("config", {}).get("error")
    if error:
        notes.append(_text(f"the last reload was refused: {_line(error)}", "red"))
    for name, provider in document.get("providers", {}).items():
        reclassified = provider.get("reclassified") or {}
        last = reclassified.get("last")
        if last:
            notes.append(
                _text(
                    f"{name}: {reclassified.get('total', 0):,} answers wore a status that is not"
                    f" their own; the last: {last.get('status')} for"
                    f" {last.get('class')} {last.get('code')}"
                )
            )
    disabled = document.get("config", {}).get("disabled") or {}
    if disabled:
        notes.append(_text(f"disabled: {', '.join(disabled)}", "dim"))
    return [Text(), *notes] if notes else []


def _add_provider(table: Table, name: str, provider: Document, now: float) -> None:
    verdict = str(provider.get("verdict", "?"))
    shown = f"{verdict}{_mode(provider)}"
    table.add_row(
        _text(name, "bold"),
        _text(shown, _COLOURS.get(verdict, "")),
        _text(str(provider.get("in_flight", 0))),
        Text(),
        Text(),
        Text(),
        _text(str(provider.get("upstream", "")), "dim"),
    )
    breakers = provider.get("breakers", {})
    loud = {key: entry for key, entry in breakers.items() if entry.get("state") != "closed"}
    quiet = {key: entry for key, entry in breakers.items() if key not in loud}
    listed = dict(list(quiet.items())[:_QUIET_BREAKERS])
    for key, entry in (loud | listed).items():
        shown = "(connection)" if key == name else key.removeprefix(f"{name}/")
        _add_breaker(table, f"  {shown}", entry, now)
    if len(quiet) > len(listed):
        table.add_row(_text(f"  and {len(quiet) - len(listed)} more, closed", "dim"))


def _add_breaker(table: Table, label: str, entry: Document, now: float) -> None:
    state, window = str(entry.get("state", "?")), entry.get("window") or {}
    counts = ", ".join(
        f"{window[name]} {name}"
        for name in ("success", "failure", "alive", "throttle", "neutral")
        if window.get(name)
    )
    table.add_row(
        _text(label),
        _text(f"{state}{_mode(entry)}", _COLOURS.get(state, "")),
        Text(),
        _text(str(entry.get("consecutive_failures", 0))),
        _text(counts),
        _text(_ago(entry.get("since"), now)),
        _text(_why(entry, now)),
    )


def _why(entry: Document, now: float) -> str:
    parts = [_line(entry["reason"])] if entry.get("reason") else []
    if entry.get("state") == "open":
        wait = _seconds_until(entry.get("half_open_at"), now)
        if wait is not None:
            parts.append(f"asks again in {_span(wait)}")
    error = entry.get("last_error")
    if error and entry.get("state") != "closed":
        if isinstance(error, dict):
            error = error.get("code") or error.get("message")
        parts.append(f"last: {_line(error)}")
    return "; ".join(parts)


def _mode(entry: Document) -> str:
    mode = entry.get("mode", "enforce")
    return "" if mode == "enforce" else f" ({mode})"


def _line(value: object) -> str:
    if isinstance(value, list):
        value = "; ".join(str(part) for part in value)
    return " ".join(str(value).split())[:200]


def _text(value: str, style: str = "") -> Text:
    return Text(printable(value), style=style)


def _epoch(value: object) -> float | None:
    """Seconds since the epoch from an RFC 3339 time or a number."""
    if isinstance(value, int | float):
        return float(value)
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return None


def _seconds_until(value: object, now: float) -> float | None:
    at = _epoch(value) if value else None
    return None if at is None else max(0.0, at - now)


def _ago(value: object, now: float) -> str:
    at = _epoch(value) if value else None
    return "" if at is None else _span(max(0.0, now - at))


def _span(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
