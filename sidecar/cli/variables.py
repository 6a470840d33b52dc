"""Which environment variables lead a program to the daemon, and what becomes of those already set.

A variable that a user set is a decision of theirs: the program's calls must still arrive at exactly
what it says. So its server becomes the provider's upstream, and whatever else it says (a path,
a query, user-info) stays in the variable. What cannot be kept that way is left alone, and said.

Pure: no environment is read or changed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sidecar.config.addresses import AddressError, parse_upstream

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""What must never go through a proxy."""

_URL = re.compile(
    r"(?P<scheme>https?)://(?:(?P<user>[^/?#@]*)@)?(?P<authority>[^/?#@\\\s]+)"
    r"(?P<path>/[^?#\s]*?)??(?P<tail>/*(?:[?#]\S*)?)",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Plan:
    """What to set for a program.

    Attributes:
        variables: name and value of every variable that leads to the daemon.
        upstreams: provider and URL, where a variable that was set says where its calls go.
        notices: one line for each variable that was set, for people.
    """

    variables: dict[str, str] = field(default_factory=dict)
    upstreams: dict[str, str] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Set:
    """A variable that was set, taken apart.

    Attributes:
        name: of the variable.
        suffix: the path that the configuration puts behind the provider for it.
        origin: scheme, host and port.
        user: user-info with its `@`, or nothing.
        path: without slashes at the end.
        tail: those slashes, query and fragment.
    """

    name: str
    suffix: str
    origin: str
    user: str
    path: str
    tail: str

    @property
    def prefix(self) -> str:
        """What stands before the suffix: what the upstream's own path would be."""
        return self.path.removesuffix(self.suffix.rstrip("/"))

    @property
    def plain(self) -> bool:
        """Can the prefix be part of an upstream as it stands?"""
        try:
            return parse_upstream(self.origin + self.prefix).endswith(self.prefix)
        except AddressError:
            return False


def adopt(
    providers: Mapping[str, Mapping[str, str]],
    enabled: Iterable[str],
    base: str,
    environ: Mapping[str, str],
) -> Plan:
    """Plans the variables for one program.

    Args:
        providers: each provider's variables with the path behind it, disabled providers included:
            a variable that is set enables one whose upstream it names.
        enabled: the providers that have an upstream anyway.
        base: where the daemon listens, `http://127.0.0.1:PORT`.
        environ: the environment so far.
    """
    plan = Plan()
    for provider, suffixes in providers.items():
        found = _found(plan, suffixes, base, environ)
        paths: dict[str, str] = {}
        if found:
            paths = _adopt_one(plan, provider, found, base)
        if provider not in enabled and provider not in plan.upstreams:
            continue
        for name, suffix in suffixes.items():
            if _is_free(name, base, environ):
                plan.variables[name] = f"{base}/{provider}{paths.get(suffix, suffix)}"
    return plan


def straight(
    providers: Mapping[str, Mapping[str, str]], base: str, environ: Mapping[str, str]
) -> Plan:
    """Plans the variables for a shell, in which those already set are replaced (and said)."""
    plan = Plan()
    for provider, suffixes in providers.items():
        for name, suffix in suffixes.items():
            if not _is_free(name, base, environ):
                plan.notices.append(
                    f"{name} is set already; to keep that server, make it the upstream of"
                    f" {provider} in the configuration"
                )
            plan.variables[name] = f"{base}/{provider}{suffix}"
    return plan


def without_proxy(environ: Mapping[str, str]) -> dict[str, str]:
    """`NO_PROXY` and `no_proxy` with the loopback names added to what is there.

    Programs read either spelling and some prefer the lower one, so a spelling that was not set
    takes over what the other said.
    """
    result = {}
    for name, other in (("NO_PROXY", "no_proxy"), ("no_proxy", "NO_PROXY")):
        known = [part.strip() for part in (environ.get(name) or environ.get(other, "")).split(",")]
        known = [part for part in known if part]
        if "*" not in known:
            lower = {part.lower() for part in known}
            known += [part for part in LOOPBACK if part not in lower]
        result[name] = ",".join(known)
    return result


def _is_free(name: str, base: str, environ: Mapping[str, str]) -> bool:
    """Not set, or set to this very daemon already: its own address is no upstream."""
    value = environ.get(name, "").strip()
    for loopback in ("localhost", "[::1]"):
        value = value.replace(f"://{loopback}:", "://127.0.0.1:", 1)
    return not value or value == base or value.startswith(f"{base}/")


def _found(
    plan: Plan, suffixes: Mapping[str, str], base: str, environ: Mapping[str, str]
) -> list[_Set]:
    found = []
    for name, suffix in suffixes.items():
        if _is_free(name, base, environ):
            continue
        match = _URL.fullmatch(environ[name].strip())
        origin = f"{match['scheme']}://{match['authority']}" if match else ""
        try:
            origin = parse_upstream(origin)
        except AddressError:
            plan.notices.append(f"{name} is no http(s) URL and is left as it is")
            continue
        assert match is not None
        user = f"{match['user']}@" if match["user"] is not None else ""
        found.append(_Set(name, suffix, origin, user, match["path"] or "", match["tail"]))
    return found


def _adopt_one(plan: Plan, provider: str, found: list[_Set], base: str) -> dict[str, str]:
    """Takes over one provider's variables; returns the path of each suffix from now on."""
    origin = found[0].origin
    kept = [variable for variable in found if variable.origin == origin]
    for other in found:
        if other.origin != origin:
            plan.notices.append(
                f"{other.name} names another server than {found[0].name} and is left as it is:"
                " its calls do not pass the daemon"
            )
    prefix = kept[0].prefix
    if not kept[0].plain or any(variable.prefix != prefix for variable in kept):
        prefix = ""
    plan.upstreams[provider] = origin + prefix
    paths: dict[str, str] = {}
    host, port = base.split("://", 1)
    for variable in kept:
        path = variable.path[len(prefix) :]
        if path != variable.suffix.rstrip("/"):
            paths.setdefault(variable.suffix, path)
        plan.variables[variable.name] = (
            f"{host}://{variable.user}{port}/{provider}{path}{variable.tail}"
        )
        plan.notices.append(
            f"{variable.name} was set already: {provider} is {origin}{variable.path} for this run"
        )
    return paths
