"""What a command needs of the configuration: all of it, or only where the daemon is.

A daemon keeps running on its last good configuration while the file is being edited. A command
that only wants to reach it must not fail for a file that is broken just now.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from sidecar.cli.admin_client import Address, AdminClient, parse_address
from sidecar.cli.errors import CommandError, Exit
from sidecar.config import document, files
from sidecar.config.addresses import AddressError, Listen
from sidecar.config.load import find
from sidecar.config.load import load as load_config
from sidecar.config.overrides import Overrides
from sidecar.config.problems import ConfigError
from sidecar.config.resolved import Config
from sidecar.config.schema import AdminSection
from sidecar.config.variables import expand

# An address that cannot exist, to learn the variables of a provider whose own is not known.
_NOWHERE = "https://nowhere.invalid"


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration with what `run` and `env` ask of it.

    Attributes:
        config: the configuration.
        variables: by provider, each variable with the path behind it; disabled ones included.
        enabled: the providers that have an upstream.
    """

    config: Config
    variables: dict[str, dict[str, str]]
    enabled: tuple[str, ...]


def overrides_of(arguments: argparse.Namespace, handover: Mapping[str, Any]) -> Overrides:
    """The flags of a command, and what `run` hands to its daemon."""
    return Overrides(
        listen=getattr(arguments, "listen", None),
        admin=getattr(arguments, "admin", None),
        probe=handover.get("probe"),
        log_level=getattr(arguments, "log_level", None),
        log_format=getattr(arguments, "log_format", None),
        observe=getattr(arguments, "observe", False),
        upstreams=handover.get("upstreams", {}),
    )


def load(
    arguments: argparse.Namespace, environ: Mapping[str, str], overrides: Overrides | None = None
) -> Loaded:
    """Loads the configuration of a command.

    Raises:
        ConfigError: with everything that is wrong.
    """

    def read(upstreams: Mapping[str, str]) -> Config:
        return load_config(
            arguments.config,
            environ=environ,
            unknown_keys=arguments.unknown_keys,
            overrides=msgspec.structs.replace(overrides or Overrides(), upstreams=upstreams),
        )

    config = read({})
    known = dict(config.providers)
    if config.disabled:
        # What is wrong with a disabled provider concerns nobody yet.
        with contextlib.suppress(ConfigError):
            known |= read(dict.fromkeys(config.disabled, _NOWHERE)).providers
    return Loaded(
        config=config,
        variables={name: dict(provider.env) for name, provider in known.items()},
        enabled=tuple(config.providers),
    )


def client(arguments: argparse.Namespace, *, with_token: bool = True) -> AdminClient:
    """A client of the daemon that a command is meant for.

    Args:
        arguments: with the options of `add_client`.
        with_token: False where the call needs none, so that no secret is read for it.

    Raises:
        CommandError: if an address or the token's file is none.
    """
    config = _config(arguments)
    address = _address(arguments, config)
    token: str | None = None
    if arguments.token_file is not None:
        try:
            token = files.read_token(str(arguments.token_file))
        except AddressError as error:
            raise CommandError(f"{arguments.token_file}: {error}", Exit.USAGE) from None
    elif with_token and config is not None and address.local:
        # Never elsewhere: whoever can set a variable must not be sent the configured token.
        token = config.admin.token
    return AdminClient(address, token=token, timeout=arguments.timeout)


def _config(arguments: argparse.Namespace) -> Config | None:
    try:
        return load_config(arguments.config, environ=os.environ, unknown_keys="warn")
    except ConfigError:
        return None


def _address(arguments: argparse.Namespace, config: Config | None) -> Address:
    given = arguments.admin or os.environ.get("BREAKER_SIDECAR_ADMIN", "").partition(",")[0]
    if given:
        return parse_address(given)
    if config is not None:
        return _of_listener(config.admin.listen[0])
    return parse_address(_written(arguments) or str(AdminSection().listen[0]))


def _of_listener(listen: Listen) -> Address:
    address = parse_address(str(listen))
    if listen.tls is None:
        return address
    return Address(address.host, address.port, address.path, tls=True, certificate=listen.tls[0])


def _written(arguments: argparse.Namespace) -> str | None:
    """`admin.listen` of a file that is wrong elsewhere, if it can be made out."""
    path = find(arguments.config, os.environ)
    try:
        node = document.parse(path.read_bytes(), str(path))
        for key in ("admin", "listen"):
            if not isinstance(node, document.Mapping):
                return None
            node = next((value for name, value in node.entries if name.text == key), None)
        if isinstance(node, document.Sequence):
            node = next(iter(node.items), None)
        return expand(node.text, os.environ) if isinstance(node, document.Scalar) else None
    except (ConfigError, OSError, LookupError, ValueError):
        return None
