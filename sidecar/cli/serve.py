"""`serve`: the daemon in the foreground.

`run` starts the same command and hands it, over an inherited pipe, what belongs to that run alone.
The pipe's end tells the daemon that nobody is left to stop it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import threading

from sidecar import daemon
from sidecar.cli import arguments as shared
from sidecar.cli.errors import CommandError
from sidecar.cli.settings import overrides_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    shared.add_config(parser)
    shared.add_daemon(parser)
    parser.add_argument(
        "--watch",
        action="store_true",
        help="reload by itself when the configuration file changed; without it only a file that"
        " is a symbolic link is watched, as ConfigMaps are",
    )
    parser.add_argument("--supervised", type=int, metavar="FD", help=argparse.SUPPRESS)


def execute(arguments: argparse.Namespace) -> int:
    """Runs until it is told to stop."""
    handover: dict[str, object] = {}
    if arguments.supervised is not None:
        handover = _receive(arguments.supervised)
        # `run` has read the same file and said what its user can act on.
        logging.getLogger("sidecar").addFilter(_is_no_config_warning)
    options = daemon.Options(
        config=arguments.config,
        overrides=overrides_of(arguments, handover),
        unknown_keys=arguments.unknown_keys,
        watch=arguments.watch,
    )
    return daemon.serve(options)


def _is_no_config_warning(record: logging.LogRecord) -> bool:
    return record.msg != "config.warning"


def _receive(descriptor: int) -> dict[str, object]:
    """Reads one line from the pipe, then watches for its end in the background."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(descriptor, 65536)
        if not part:
            raise CommandError("the pipe of --supervised ended before its first line")
        line += part
    handover: dict[str, object] = json.loads(line)

    def outlive() -> None:
        # No buffered reader: a thread that waits inside one cannot be left behind at the end.
        while os.read(descriptor, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=outlive, name="supervisor", daemon=True).start()
    return handover
