"""`faults`: what the daemon would inject, judged by the code that it runs.

`matrix` says every class in a provider's dialect and shows what was expected and what was found, so
that an agent is tested with faults that are what they claim to be. It asks nobody.
"""

from __future__ import annotations

import argparse
import json
import os

import msgspec

from sidecar.cli import arguments as shared
from sidecar.cli.errors import CommandError, Exit, printable
from sidecar.cli.settings import load
from sidecar.config.suggest import nearest
from sidecar.envelope import dialects
from sidecar.faults.matrix import Row, rows
from sidecar.proxy.runtime import dialect_of

EVERY = "all"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "what", metavar="matrix", choices=("matrix",), help="every class in every form"
    )
    parser.add_argument(
        "provider",
        metavar="PROVIDER",
        help="a provider of the configuration, the name of a dialect, or all",
    )
    shared.add_config(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def execute(arguments: argparse.Namespace) -> int:
    """Prints the matrix; 1 if anything was found that had not been injected."""
    found = [row for dialect in _dialects(arguments) for row in rows(dialect)]
    if arguments.json:
        for row in found:
            print(json.dumps({**msgspec.to_builtins(row), "right": row.right}))
    else:
        _draw(found)
    return Exit.FINE if all(row.right for row in found) else Exit.FAILED


def _dialects(arguments: argparse.Namespace) -> list[dialects.Dialect]:
    name = arguments.provider
    if name == EVERY:
        return [dialects.get(known) for known in sorted(dialects.NAMES)]
    configured = load(arguments, os.environ).config.providers
    if name in configured:
        return [dialect_of(configured[name])]
    if name in dialects.NAMES:
        return [dialects.get(name)]
    known = sorted({*configured, *dialects.NAMES})
    near = nearest(name, known)
    hint = f"did you mean {near}? Known are" if near else "known are"
    raise CommandError(f"there is no {printable(name)}; {hint} {', '.join(known)}", Exit.USAGE)


def _draw(found: list[Row]) -> None:
    head = ("dialect", "as", "expected", "actual", "status", "code", "retry", "verdict")
    lines = [head, *(_cells(row) for row in found)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )
    wrong = sum(not row.right for row in found)
    print(f"{len(found)} injected, {len(found) - wrong} as expected")


def _cells(row: Row) -> tuple[str, ...]:
    wait = "" if row.retry_after is None else f" {row.retry_after:g} s"
    retry = "no" if not row.retryable else f"yes{wait}"
    actual = row.actual or "nothing"
    marked = actual if row.right else f"{actual} (wrong)"
    return (
        row.dialect, row.as_, row.expected, marked, str(row.status), row.code or "", retry,
        row.verdict,
    )  # fmt: skip
