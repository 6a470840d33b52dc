"""The configuration as the program uses it: complete, checked and immutable.

The sections are those of the schema, filled with every default; what is added here is what a file
cannot say of itself: names, secrets that were read, and where it all came from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import inspect

from sidecar.config.addresses import Listen
from sidecar.config.kinds import write
from sidecar.config.schema import (
    AdminSection,
    DependencySection,
    Drain,
    FaultsSection,
    Log,
    ProbeSection,
    ProviderSection,
    Root,
)


class Admin(AdminSection, frozen=True, kw_only=True):
    """The admin plane; `token` is what `token_file` holds."""

    token: str | None = None

    def __repr__(self) -> str:
        return f"Admin(listen={self.listen}, token={'set' if self.token else None})"


class Provider(ProviderSection, frozen=True, kw_only=True):
    """One upstream with everything that holds for it.

    Attributes:
        name: its name in the file, and the first segment of the paths that lead to it.
        header_values: what `set_headers` comes to, name (lower case) to value; secrets.
    """

    name: str
    header_values: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def retry_after_max(self) -> float:
        """Seconds up to which a hint of the upstream is followed."""
        return self.shedding.retry_after_max

    @property
    def sdk_wait_max(self) -> float:
        """Seconds up to which a wait is left to the sleep of an SDK."""
        return self.shedding.sdk_wait_max

    def __repr__(self) -> str:
        return f"Provider(name={self.name!r}, upstream={self.upstream!r})"


class Dependency(DependencySection, frozen=True, kw_only=True):
    """What the agent calls by itself, with everything that holds for it.

    Attributes:
        name: its name in the file, and its breaker's key.
        retry_after_max: seconds up to which a hint is followed; that of `defaults`.
    """

    name: str
    retry_after_max: float = 3600.0

    @property
    def system(self) -> str | None:
        """The vendor of a database, or the SDK; None where the file names none."""
        return self.vendor if self.source == "database" else self.sdk


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """A whole configuration. Never encode it as it stands: `redacted` is for showing.

    Attributes:
        path: the file that it came from.
        hash: names this effective configuration: the same for the same meaning, however written.
        listen: the addresses of the data plane.
        allowed_hosts: in lower case, without a dot at the end.
        admin: the admin plane.
        probe_listen: the addresses of the probe listener; empty for none.
        log: level and format.
        drain: seconds.
        faults: what is injected into calls.
        state_file: where what must survive a restart is kept; None for nowhere.
        providers: by name, in the order of the file; without those that are disabled.
        dependencies: by name, in the order of the file.
        disabled: why a provider is disabled, by its name.
        warnings: what is legal and probably not meant, one line each.
    """

    path: str
    listen: tuple[Listen, ...]
    allowed_hosts: tuple[str, ...]
    admin: Admin
    probe_listen: tuple[Listen, ...]
    log: Log
    drain: Drain
    providers: Mapping[str, Provider]
    dependencies: Mapping[str, Dependency]
    disabled: Mapping[str, str]
    warnings: tuple[str, ...]
    hash: str = ""
    state_file: str | None = None
    faults: FaultsSection = FaultsSection()

    def fingerprint(self) -> str:
        """What `hash` holds.

        Secrets have no part in it, so that it can be shown without helping to guess them.
        """
        encoded = msgspec.json.encode(self.redacted(), order="deterministic")
        return hashlib.sha256(encoded).hexdigest()[:16]

    def redacted(self) -> dict[str, Any]:
        """The effective configuration in the shape of the file, in plain types, without secrets.

        It can be written as YAML and loaded again. `x-disabled` tells what is left out.
        """
        root = {field.name: field.type for field in _fields(Root)}
        provider = inspect.type_info(ProviderSection)
        dependency = inspect.type_info(DependencySection)
        shown: dict[str, Any] = {
            "listen": write(self.listen, root["listen"]),
            "allowed_hosts": list(self.allowed_hosts),
            "admin": write(self.admin, inspect.type_info(AdminSection)),
            "probe": write(
                ProbeSection(listen=self.probe_listen or None), inspect.type_info(ProbeSection)
            ),
            "log": write(self.log, root["log"]),
            "drain": write(self.drain, root["drain"]),
            "state_file": self.state_file,
            "faults": write(self.faults, root["faults"]),
            "providers": {name: write(one, provider) for name, one in self.providers.items()},
            "dependencies": {
                name: write(one, dependency) for name, one in self.dependencies.items()
            },
        }
        if self.disabled:
            shown["x-disabled"] = dict(self.disabled)
        escaped: dict[str, Any] = _escaped(shown)
        return escaped


def _fields(kind: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(kind)
    return info.fields if isinstance(info, inspect.StructType) else ()


def _escaped(value: Any) -> Any:
    """With `${` written so that reading it again gives the same text."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return value
