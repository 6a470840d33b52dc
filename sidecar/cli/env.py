"""`env`: the lines that lead a shell's programs to a daemon that runs on its own."""

from __future__ import annotations

import argparse
import json
import os
import shlex

from sidecar.cli import arguments as shared
from sidecar.cli.admin_client import Address, parse_address
from sidecar.cli.errors import CommandError, Exit, say
from sidecar.cli.settings import load
from sidecar.cli.variables import straight, without_proxy
from sidecar.config.addresses import Listen


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    shared.add_config(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--shell",
        choices=("sh", "fish"),
        default="sh",
        help="whose syntax to use; sh is understood by bash, zsh, dash and ksh too (default: sh)",
    )
    form.add_argument("--json", action="store_true", help="one JSON object instead of shell lines")
    parser.epilog = (
        'Use it as:  eval "$(breaker-sidecar env)"\n'
        "in fish:    breaker-sidecar env --shell fish | source"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Prints the variables of every provider that is enabled."""
    loaded = load(arguments, os.environ)
    providers = {name: loaded.variables[name] for name in loaded.enabled}
    plan = straight(providers, _base(loaded.config.listen), os.environ)
    for notice in plan.notices:
        say(notice)
    variables = {**plan.variables, **without_proxy(os.environ)}
    if arguments.json:
        print(json.dumps(variables, indent=2))
        return Exit.FINE
    for name, value in variables.items():
        print(_line(arguments.shell, name, value))
    return Exit.FINE


def _line(shell: str, name: str, value: str) -> str:
    if shell == "fish":
        quoted = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"set -gx {name} '{quoted}'"
    return f"export {name}={shlex.quote(value)}"


def _base(listeners: tuple[Listen, ...]) -> str:
    """The URL of the first listener that a program's variable can name, a plain one if possible."""
    usable = [listen for listen in listeners if listen.kind == "tcp" and listen.port]
    if not usable:
        raise CommandError(
            "no listener has a host and a fixed port, so no variable can lead to one;"
            " `breaker-sidecar run` chooses a port itself"
        )
    listen = min(usable, key=lambda listen: listen.tls is not None)
    address = parse_address(str(listen))
    if address.host == "localhost":
        # A client may take `localhost` for either loopback address, or send it to a proxy.
        address = Address("127.0.0.1", listen.port)
    return f"{'https' if listen.tls else 'http'}://{address}"
