"""`check`: says everything that is wrong with a configuration, before anything depends on it."""

from __future__ import annotations

import argparse
import os

import msgspec

from sidecar.cli import arguments as shared
from sidecar.cli.errors import Exit, say
from sidecar.cli.settings import load


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    shared.add_config(parser)
    parser.add_argument(
        "--print",
        action="store_true",
        dest="show",
        help="print the effective configuration (YAML, secrets redacted)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Loads the configuration; whatever is wrong with it has ended the command by then."""
    config = load(arguments, os.environ).config
    for warning in config.warnings:
        say(warning)
    if arguments.show:
        print(msgspec.yaml.encode(config.redacted()).decode(), end="")
        return Exit.FINE
    count, disabled = len(config.providers), len(config.disabled)
    left_out = f", {disabled} disabled" if disabled else ""
    print(f"{config.path}: fine, {count} provider{'' if count == 1 else 's'}{left_out}")
    return Exit.FINE
