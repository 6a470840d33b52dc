"""`open`, `close`, `reset`, `enforce`, `observe`, `off`: steer one breaker of a running daemon."""

from __future__ import annotations

import argparse
import json
from typing import Any

from sidecar.cli import arguments as shared
from sidecar.cli.admin_client import explain
from sidecar.cli.errors import CommandError, Exit, printable
from sidecar.cli.settings import client
from sidecar.config.units import DURATION_HINT, parse_duration, parse_number


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "key",
        metavar="KEY",
        help="the breaker: PROVIDER, PROVIDER/MODEL, PROVIDER/~ROUTE or DEPENDENCY, as in `status`",
    )
    parser.add_argument(
        "--for",
        dest="duration",
        type=_duration,
        metavar="TIME",
        help="how long, such as 10m; else until changed again (not for reset, which holds nothing)",
    )
    parser.add_argument("--reason", metavar="TEXT", help="shown in `status` and in the log")
    parser.add_argument("--json", action="store_true", help="print the breaker's entry of /status")
    shared.add_client(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Sends the order; prints what the breaker is now."""
    if arguments.command == "reset" and arguments.duration is not None:
        raise CommandError("reset takes no --for: it holds nothing", Exit.USAGE)
    orders: dict[str, Any] = {}
    if arguments.duration is not None:
        orders["for"] = arguments.duration
    if arguments.reason is not None:
        orders["reason"] = arguments.reason
    admin = client(arguments)
    status, entry = admin.control(arguments.key, arguments.command, orders)
    if status != 200 or not isinstance(entry, dict):
        raise CommandError(f"{arguments.key}: {explain(status, entry)}")
    if arguments.json:
        print(json.dumps(entry, indent=2))
    else:
        print(_sentence(arguments.key, entry, arguments.duration))
    return Exit.FINE


def _sentence(key: str, entry: dict[str, Any], duration: str | float | None) -> str:
    parts = [f"{key} is {entry.get('state')}", f"mode {entry.get('mode')}"]
    if duration is not None:
        parts.append(f"for {duration if isinstance(duration, str) else f'{duration:g}s'}")
    if entry.get("reason"):
        parts.append(str(entry["reason"]))
    return printable(", ".join(parts))


def _duration(text: str) -> str | float:
    number = parse_number(text)
    seconds = parse_duration(text) if number is None else number
    if seconds is None or seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: {DURATION_HINT}")
    return text if number is None else number
