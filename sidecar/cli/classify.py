"""`classify`: what one recorded error is, by the same code that the daemon runs.

For the failure that a log kept and nobody understood, and to try a rule before it is needed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import msgspec

from sidecar import clock
from sidecar.cli.errors import CommandError, Exit, printable
from sidecar.envelope.recorded import RecordedError, classify, read


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "file",
        nargs="?",
        default="-",
        metavar="FILE",
        help="one error as JSON: the body of a /v1/classify call or a line of the recorded cases;"
        " - or nothing reads standard input",
    )
    parser.add_argument(
        "--dialect",
        metavar="NAME",
        help="how the upstream speaks of errors; stands above what the record says",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Prints envelope, verdict and rule as JSON."""
    try:
        recorded = read(_content(arguments.file), clock.wall())
        found = classify(recorded, dialect=arguments.dialect)
    except RecordedError as error:
        name = "standard input" if arguments.file == "-" else arguments.file
        raise CommandError(f"{name}: {printable(str(error))}", Exit.USAGE) from None
    answer = {"envelope": found.envelope, "verdict": found.verdict, "rule": found.rule}
    sys.stdout.write(_indented(msgspec.to_builtins(answer)) + "\n")
    return Exit.FINE


def _indented(document: object) -> str:
    try:
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    except UnicodeEncodeError:
        # Half of a surrogate pair, as a cut text may end with: it stays escaped.
        return json.dumps(document, indent=2)


def _content(file: str) -> bytes:
    try:
        if file == "-":
            return sys.stdin.buffer.read()
        return Path(file).read_bytes()
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", Exit.USAGE) from None
