"""`status`: what the daemon knows about its upstreams, for people; the JSON is for programs."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any, NoReturn

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from sidecar import clock
from sidecar.cli import arguments as shared
from sidecar.cli.admin_client import AdminClient, UnreachableError, explain
from sidecar.cli.errors import CommandError, Exit, printable, say
from sidecar.cli.settings import client
from sidecar.cli.status_lines import plain
from sidecar.cli.status_picture import render
from sidecar.cli.status_words import Document, Known, clock_time

_FRAME = 0.5
"""Seconds between two drawings of `--watch`: what counts down is seen to."""


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
        if arguments.json:
            document = _fetch(admin)
            print(json.dumps(document, indent=2))
            return exit_code(document)
        known = _ask(admin)
        console = _console()
        if console.is_terminal:
            console.print(render(known, clock.wall()))
        else:
            _print_plain(known)
        return exit_code(known.status)
    try:
        if arguments.json:
            _watch_json(admin, arguments.interval)
        console = _console()
        if console.is_terminal:
            _watch(console, admin, arguments.interval)
        _watch_plain(admin, arguments.interval)
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


def _fetch(admin: AdminClient) -> dict[str, Any]:
    status, document = admin.get("/status")
    if status != 200 or not isinstance(document, dict):
        raise CommandError(f"{admin.address}: {explain(status, document)}")
    return document


def _ask(admin: AdminClient) -> Known:
    """Everything that is shown; only `/status` has to be there."""
    return Known(
        status=_fetch(admin),
        config=_optional(admin, "/config"),
        errors=tuple(_optional(admin, "/v1/failures?by=class,code&minutes").get("groups", ())),
        failures=tuple(_optional(admin, "/v1/failures?after=0").get("failures", ())),
        faults=tuple(_optional(admin, "/faults?rules").get("rules", ())),
    )


def _optional(admin: AdminClient, path: str) -> dict[str, Any]:
    status, document = admin.get(path)
    return document if status == 200 and isinstance(document, dict) else {}


def _console() -> Console:
    return Console(highlight=False)


def _print_plain(known: Known) -> None:
    for line in plain(known, clock.wall()):
        print(line, flush=True)


def _watch(console: Console, admin: AdminClient, interval: float) -> NoReturn:
    """Draws until Ctrl+C: asks each interval, counts down in between."""
    known: Known | None = None
    trouble: Text | None = None
    asked = clock.monotonic() - interval
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            if clock.monotonic() - asked >= interval:
                asked = clock.monotonic()
                try:
                    known, trouble = _ask(admin), None
                except UnreachableError as error:
                    trouble = trouble or _trouble(error)
            live.update(_frame(known, trouble), refresh=True)
            time.sleep(min(_FRAME, interval))


def _trouble(error: UnreachableError) -> Text:
    since = clock_time(clock.wall())
    return Text(printable(f"{error}; since {since}, what follows is older"), style="bold red")


def _frame(known: Known | None, trouble: Text | None) -> Group:
    parts: list[RenderableType] = [] if trouble is None else [trouble]
    if known is not None:
        parts.append(render(known, clock.wall()))
    return Group(*parts)


def _watch_plain(admin: AdminClient, interval: float) -> NoReturn:
    while True:
        try:
            _print_plain(_ask(admin))
        except UnreachableError as error:
            say(str(error))
        time.sleep(interval)


def _watch_json(admin: AdminClient, interval: float) -> NoReturn:
    while True:
        try:
            print(json.dumps(_fetch(admin), separators=(",", ":")), flush=True)
        except UnreachableError as error:
            say(str(error))
        time.sleep(interval)
