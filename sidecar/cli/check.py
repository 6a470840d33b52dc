"""`check`: says everything that is wrong with a configuration, before anything depends on it."""

from __future__ import annotations

import argparse
import os

import msgspec

from sidecar.cli import arguments as shared
from sidecar.cli.errors import CommandError, Exit, printable, say
from sidecar.cli.settings import load
from sidecar.config.resolved import Config


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    shared.add_config(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--explain",
        metavar="NAME",
        help="say in plain words what will happen to the calls of one provider or dependency",
    )
    what.add_argument(
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
    if arguments.explain is not None:
        print(_explained(config, arguments.explain), end="")
        return Exit.FINE
    disabled, dependencies = len(config.disabled), len(config.dependencies)
    parts = [_count(len(config.providers), "provider", "providers")]
    if disabled:
        parts.append(f"{disabled} disabled")
    if dependencies:
        parts.append(_count(dependencies, "dependency", "dependencies"))
    print(f"{config.path}: fine, {', '.join(parts)}")
    return Exit.FINE


def _explained(config: Config, name: str) -> str:
    # What it says is seldom needed, and the proxy it speaks of takes time to load.
    from sidecar.cli.explain import explain  # noqa: PLC0415

    told = explain(config, name)
    if told is None:
        known = ", ".join(sorted([*config.providers, *config.dependencies]))
        raise CommandError(
            f"no provider or dependency is called {printable(name)}; there are: {known}", Exit.USAGE
        )
    return told


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
