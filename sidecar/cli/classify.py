"""`classify`: what one recorded error is, by the same code that the daemon runs.

For the answer that a log kept and nobody understood, and to try a rule before it is needed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from sidecar import clock
from sidecar.cli.errors import CommandError, Exit, printable
from sidecar.cli.recorded import Recorded, RecordedError, read
from sidecar.config.suggest import nearest
from sidecar.envelope import dialects
from sidecar.envelope.http import classify
from sidecar.envelope.model import Classified
from sidecar.envelope.stream import classify_stream, is_stream


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
    except RecordedError as error:
        name = "standard input" if arguments.file == "-" else arguments.file
        raise CommandError(f"{name}: {error}", Exit.USAGE) from None
    name = arguments.dialect or recorded.dialect or "auto"
    if name not in dialects.NAMES:
        raise CommandError(_no_dialect(name), Exit.USAGE)
    found = _classify(recorded, name)
    answer = {"envelope": found.envelope, "verdict": found.verdict, "rule": found.rule}
    text = msgspec.json.format(msgspec.json.encode(answer), indent=2)
    sys.stdout.write(text.decode() + "\n")
    return Exit.FINE


def _classify(recorded: Recorded, name: str) -> Classified:
    seen, dialect = recorded.seen, dialects.get(name)
    stream = recorded.stream
    if stream is None:
        stream = is_stream(seen.headers.get("content-type"), seen.body[:512])
    if not stream or seen.status >= 400:
        return classify(seen, dialect)
    return classify_stream(seen, dialect)


def _content(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.read()
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", Exit.USAGE) from None
    except UnicodeDecodeError:
        raise RecordedError("no UTF-8 text") from None


def _no_dialect(name: str) -> str:
    names = sorted(dialects.NAMES)
    near = nearest(name, names)
    hint = f"did you mean {near}? " if near else ""
    return f"there is no dialect {printable(name[:80])!r}: {hint}It is one of {', '.join(names)}"
