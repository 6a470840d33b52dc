"""What stands above the file: variables of the environment, and flags above these.

They exist for containers and for one run, where editing a file is in the way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from sidecar.config.document import Scalar, Sequence
from sidecar.config.kinds import READERS
from sidecar.config.problems import Problem
from sidecar.config.reader import NOTHING, Reader, Values
from sidecar.config.schema import Root
from sidecar.config.suggest import nearest, struct_class, struct_fields

PREFIX: Final = "BREAKER_SIDECAR_"

VARIABLES: Final = {
    "LISTEN": "listen",
    "ADMIN": "admin.listen",
    "PROBE": "probe.listen",
    "ALLOWED_HOSTS": "allowed_hosts",
    "LOG_LEVEL": "log.level",
    "LOG_FORMAT": "log.format",
}
"""Which key a variable replaces, by its name behind BREAKER_SIDECAR_."""

# What an agent's process beside the daemon reads (`sidecar.client`), often of one environment.
_OF_CLIENTS = frozenset({"TOKEN", "TOKEN_FILE"})

# Kubernetes adds these for a Service that is called breaker-sidecar.
_OF_A_SERVICE = re.compile(r"(SERVICE_(HOST|PORT.*)|PORT(_\d+_.*)?)")


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """What stands above file and environment: the flags of a command.

    Attributes:
        listen: as BREAKER_SIDECAR_LISTEN: one address, or several with commas; likewise `admin`,
            `probe` and `allowed_hosts`.
        log_level: a level.
        log_format: a format.
        observe: every provider in mode `enforce` only observes.
        upstreams: another upstream for a provider, by its name.
    """

    listen: str | None = None
    admin: str | None = None
    probe: str | None = None
    allowed_hosts: str | None = None
    log_level: str | None = None
    log_format: str | None = None
    observe: bool = False
    upstreams: Mapping[str, str] = msgspec.field(default_factory=dict)


def apply_environment(reader: Reader, values: Values) -> None:
    """Put the variables of the reader's environment in place; an empty one counts as unset."""
    for variable, value in reader.environ.items():
        name = variable.removeprefix(PREFIX)
        if not variable.startswith(PREFIX) or name == "CONFIG" or not value:
            continue
        if name in _OF_CLIENTS:
            continue
        if key := VARIABLES.get(name):
            # Inside `run` the admin address is given as the URL that clients use.
            text = value.removeprefix("http://").rstrip("/") if name == "ADMIN" else value
            _put(reader, values, variable, key, text)
        elif not _OF_A_SERVICE.fullmatch(name):
            near = nearest(name, (*VARIABLES, "CONFIG"))
            hint = f'did you mean "{PREFIX}{near}"?' if near else ""
            reader.warnings.append(Problem(variable, None, "", "has no meaning", hint))


def apply_flags(reader: Reader, values: Values, flags: Overrides) -> None:
    """Put the flags in place; an empty one is wrong."""
    for flag, key, value in (
        ("--listen", "listen", flags.listen),
        ("--admin", "admin.listen", flags.admin),
        ("--probe", "probe.listen", flags.probe),
        ("--allowed-hosts", "allowed_hosts", flags.allowed_hosts),
        ("--log-level", "log.level", flags.log_level),
        ("--log-format", "log.format", flags.log_format),
    ):
        if value is not None:
            _put(reader, values, flag, key, value)


def _put(reader: Reader, values: Values, source: str, key: str, text: str) -> None:
    section, _, leaf = key.rpartition(".")
    owner = struct_class(struct_fields(Root)[section].type) if section else Root
    node: Scalar | Sequence = Scalar(text, 0, plain=True)
    if leaf == "allowed_hosts" or (leaf == "listen" and "," in text):
        node = Sequence(0)
        parts = [part.strip() for part in text.split(",")]
        node.items = [Scalar(part, 0, plain=True) for part in parts if part]
    own = Reader(source, {}, READERS)
    value = own.read(node, struct_fields(owner)[leaf].type, "")
    if own.problems or value is None or value is NOTHING:
        reader.problems += own.problems or [Problem(source, None, "", "is empty")]
        return
    target = values.setdefault(section, {}) if section else values
    if leaf == "listen" and any(listen.tls for listen in target.get("listen") or ()):
        message = f"replaces {key} of the file, and the TLS that stands there"
        reader.warnings.append(Problem(source, None, "", message))
    target[leaf] = value
