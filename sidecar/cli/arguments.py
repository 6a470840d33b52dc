"""Options that several commands share, defined once so that they read and mean the same."""

from __future__ import annotations

import argparse
from pathlib import Path

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("auto", "text", "json")


def add_config(parser: argparse.ArgumentParser) -> None:
    """`--config` and how strictly it is read."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration file; else BREAKER_SIDECAR_CONFIG,"
        " /etc/breaker-sidecar/breakers.yaml, or the one inside the package",
    )
    parser.add_argument(
        "--unknown-keys",
        choices=("error", "warn"),
        default="error",
        help="what an unknown key is (default: error)",
    )


def add_daemon(parser: argparse.ArgumentParser) -> None:
    """What stands above the file when a daemon is started."""
    parser.add_argument(
        "--listen",
        metavar="ADDRESS",
        help="where callers connect: host:port or unix:/path",
    )
    parser.add_argument(
        "--admin",
        metavar="ADDRESS",
        help="where health, status and control are served",
    )
    parser.add_argument("--log-level", choices=LEVELS, help="least severe lines that are logged")
    parser.add_argument(
        "--log-format",
        choices=FORMATS,
        help="auto is text on a terminal and JSON lines elsewhere",
    )
    parser.add_argument(
        "--observe",
        action="store_true",
        help="no breaker refuses anything; what it would have refused is counted and logged",
    )


def add_client(parser: argparse.ArgumentParser) -> None:
    """How a command finds a daemon that is running."""
    parser.add_argument(
        "--admin",
        metavar="ADDRESS",
        help="the daemon's admin address: host:port, a URL or unix:/path;"
        " else BREAKER_SIDECAR_ADMIN, else what the configuration says",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration file to read the admin address and the token from",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file with the admin token; else the configuration's admin.token_file",
    )
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=5.0,
        metavar="SECONDS",
        help="longest wait for an answer (default: 5)",
    )


def positive_seconds(text: str) -> float:
    """A finite number of seconds above zero."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above zero")
    return seconds
