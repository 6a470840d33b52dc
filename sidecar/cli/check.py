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
    disabled, dependencies = len(config.disabled), len(config.dependencies)
    parts = [_count(len(config.providers), "provider", "providers")]
    if disabled:
        parts.append(f"{disabled} disabled")
    if dependencies:
        parts.append(_count(dependencies, "dependency", "dependencies"))
    print(f"{config.path}: fine, {', '.join(parts)}")
    return Exit.FINE


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
