"""`healthcheck`: for a container's HEALTHCHECK or an exec probe; 0 if the daemon is alive, else 1.

It asks from inside, so that no listener has to be opened for a probe, and it says nothing of
upstreams: their outage must not take the agent out of service.
"""

from __future__ import annotations

import argparse
from urllib.parse import urlsplit

from sidecar.cli import arguments as shared
from sidecar.cli.admin_client import AdminClient, explain, parse_address
from sidecar.cli.errors import CommandError, Exit
from sidecar.cli.settings import client


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    shared.add_client(parser)
    parser.add_argument(
        "--url",
        metavar="URL",
        help="ask this instead, such as http://127.0.0.1:7602/readyz of a probe listener",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Asks once."""
    path = "/healthz"
    if arguments.url is None:
        admin = client(arguments, with_token=False)
    else:
        split = urlsplit(arguments.url)
        path = split.path.rstrip("/") or path
        address = parse_address(f"{split.scheme}://{split.netloc}")
        admin = AdminClient(address, timeout=arguments.timeout)
    status, document = admin.get(path)
    if status != 200:
        raise CommandError(f"{admin.address}{path}: {explain(status, document)}")
    return Exit.FINE
