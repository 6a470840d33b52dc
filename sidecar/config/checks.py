"""What only shows when values stand beside each other.

Each check leaves alone what already has a problem of its own, so that one slip is one message.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from sidecar.config import addresses, aws, files
from sidecar.config.addresses import AddressError, Listen
from sidecar.config.fault_rules import concerns_dependencies
from sidecar.config.reader import Reader
from sidecar.config.resolved import Dependency, Provider
from sidecar.config.schema import FaultSection, SetHeader
from sidecar.config.suggest import nearest

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_WILDCARDS: Final = {"0.0.0.0": ".", "::": ":"}  # noqa: S104 - recognised, not bound
_FRAMING: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_SIGNATURE: Final = frozenset(
    {"authorization", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"}
)
_SIGN_HINTS: Final = {"service": "such as bedrock", "region": "such as us-east-1"}

Plane = tuple[str, tuple[Listen, ...]]
"""The path of a `listen` key, and what it came to."""


class Reporter:
    """Where a value stands, of a provider or a dependency, and whether it needs a second look."""

    def __init__(self, reader: Reader, name: str, section: str = "providers") -> None:
        self.reader = reader
        self.own = f"{section}.{name}"

    def place(self, *keys: str) -> str:
        """The path of the value that decides: its own, else that of `defaults`."""
        for owner in (self.own, "defaults"):
            for key in keys:
                if f"{owner}.{key}" in self.reader.lines:
                    return f"{owner}.{key}"
        return self.own

    def sound(self, *keys: str) -> bool:
        """True if none of these keys has a problem yet."""
        starts = tuple(f"{owner}.{key}" for owner in (self.own, "defaults") for key in keys)
        return not any(problem.path.startswith(starts) for problem in self.reader.problems)

    def problem(self, path: str, message: str, hint: str = "") -> None:
        """Report once, however many providers share the value."""
        line = self.reader.lines.get(path)
        seen = {(problem.path, problem.message) for problem in self.reader.problems}
        if (path, message) not in seen:
            self.reader.problem(line, path, message, hint)

    def warn(self, path: str, message: str, hint: str = "") -> None:
        """Likewise for what is legal."""
        self.reader.warn(self.reader.lines.get(path), path, message, hint)


def check_name(reader: Reader, name: str, section: str = "providers") -> bool:
    """True if a provider, or what else the section holds, may be called this."""
    if _NAME.fullmatch(name):
        return True
    path = f"{section}.{name}"
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63]
    hint = f'such as "{plain}"' if plain else ""
    line = reader.lines.get(path)
    reader.problem(line, path, "a name matches [a-z0-9][a-z0-9-]*, up to 63 characters", hint)
    return False


def check_provider(reader: Reader, provider: Provider) -> None:
    """Everything about one provider that takes more than one key, or a file."""
    report = Reporter(reader, provider.name)
    _check_breaker(report, provider)
    _check_tls(report, provider)
    _check_proxy(report, provider)
    _check_env(report, provider)
    _check_sign(report, provider)


def check_dependency(reader: Reader, dependency: Dependency) -> None:
    """Everything about one dependency that takes more than one key."""
    report = Reporter(reader, dependency.name, "dependencies")
    _check_breaker(report, dependency)
    if not report.sound("source"):
        return
    _check_vendor(report, dependency)
    others = {"database": ("sdk",), "sdk": ("vendor", "driver")}
    for key in others[dependency.source]:
        if getattr(dependency, key) is not None:
            message = f"has no effect: the source is {dependency.source}"
            report.problem(report.place(key), message)


def check_faults(
    reader: Reader,
    rules: Iterable[FaultSection],
    providers: Collection[str],
    dependencies: Collection[Dependency],
) -> None:
    """Rules that name calls which there cannot be."""
    if any(problem.path.startswith("faults") for problem in reader.problems):
        return
    for index, rule in enumerate(rules):
        place = f"faults.rules[{index}]"
        if rule.provider is not None and rule.provider not in providers:
            message = f"no provider is called {rule.provider}: nothing is injected"
            reader.warn(reader.lines.get(place), f"{place}.provider", message)
        if concerns_dependencies(rule):
            from sidecar.faults.failures import misses  # noqa: PLC0415 - only who has one needs it

            told = misses(rule, dependencies)
            if told:
                reader.problem(reader.lines.get(place), place, told)


def _check_vendor(report: Reporter, dependency: Dependency) -> None:
    from sidecar.envelope.databases import READERS  # noqa: PLC0415 - only who names one needs it
    from sidecar.envelope.databases.vendors import vendor_named  # noqa: PLC0415

    if dependency.vendor is None or vendor_named(dependency.vendor) is not None:
        return
    near = nearest(dependency.vendor, READERS)
    hint = f'did you mean "{near}"?' if near else f"known are {', '.join(sorted(READERS))}"
    message = "no such database is known: its errors are told by the driver's classes alone"
    report.warn(report.place("vendor"), message, hint)


def _check_breaker(report: Reporter, provider: Provider | Dependency) -> None:
    breaker = provider.breaker
    both = ("breaker.consecutive_failures", "breaker.failure_ratio")
    off = breaker.consecutive_failures == 0 and breaker.failure_ratio == 0
    if off and provider.mode == "enforce" and report.sound(*both, "mode"):
        message = "both rules are off, so the breaker could never open"
        report.problem(report.place(*both), message, 'to turn it off on purpose, write "mode: off"')
    times = ("breaker.open_max", "breaker.open_for")
    if breaker.open_max < breaker.open_for and report.sound(*times):
        message = "open_max must not be less than open_for"
        report.problem(report.place(*times), message)


def _check_tls(report: Reporter, provider: Provider) -> None:
    tls = provider.tls
    path = report.place("tls")
    if not report.sound("tls", "upstream"):
        return
    given = [part for part in (tls.ca, tls.cert, tls.key, tls.server_name) if part is not None]
    if given and not provider.upstream.startswith("https://"):
        report.problem(path, "has no effect: the upstream is not https")
        return
    if tls.key is not None and tls.cert is None:
        report.problem(f"{path}.key", "a key needs its certificate", 'add "cert"')
    try:
        if tls.cert is not None:
            files.check_certificate(tls.cert, tls.key)
    except AddressError as error:
        report.problem(f"{path}.cert", str(error))
    try:
        if tls.ca is not None:
            files.check_ca(tls.ca)
    except AddressError as error:
        report.problem(f"{path}.ca", str(error))
    try:
        if tls.server_name is not None:
            addresses.parse_host_name(tls.server_name)
    except AddressError as error:
        report.problem(f"{path}.server_name", str(error), error.hint)


def _check_proxy(report: Reporter, provider: Provider) -> None:
    if provider.proxy in (None, "env") or not report.sound("upstream"):
        return
    target = addresses.upstream_port(provider.upstream)
    if target is None or addresses.is_loopback(target[0]):
        report.warn(report.place("proxy"), "has no effect: the upstream is on this machine")


def _check_env(report: Reporter, provider: Provider) -> None:
    for variable, path in provider.env.items():
        if (
            path.strip("/")
            and report.sound("upstream")
            and provider.upstream.endswith(path.rstrip("/"))
        ):
            where = report.place("upstream")
            message = f"ends with {path}, which {variable} adds too: calls would carry it twice"
            report.warn(where, message, "leave it out here")


def _check_sign(report: Reporter, provider: Provider) -> None:
    sign = provider.sign.aws
    if sign is None or not report.sound("sign"):
        return
    path = report.place("sign.aws", "sign")
    if not aws.is_installed():
        report.problem(path, "signing for AWS needs botocore, which is not installed", aws.INSTALL)
        return
    for header in provider.set_headers:
        if header.lower() in _SIGNATURE:
            where = f"providers.{provider.name}.set_headers.{header}"
            report.problem(where, "the signature (sign.aws) sets this header")
    endpoint = aws.endpoint_of(provider.upstream)
    if report.sound("upstream"):
        for key, value in (("service", sign.service), ("region", sign.region)):
            if value is None:
                message = f'"{key}" is needed: the upstream\'s host does not tell it'
                report.problem(path, message, _SIGN_HINTS[key])
        if endpoint.region is not None and sign.region != endpoint.region:
            message = f"the upstream's host says {endpoint.region}, which takes no other signature"
            report.warn(f"{path}.region", message)
    if sign.service is not None and sign.service.startswith("s3"):
        report.problem(f"{path}.service", "S3 signs in a way of its own, which is not spoken here")
    if sign.profile is not None:
        try:
            aws.check_profile(sign.profile)
        except AddressError as error:
            report.problem(f"{path}.profile", str(error))


def check_state_file(reader: Reader, path: str | None) -> None:
    """The state file replaces what stands in its place, so that must be nobody else's."""
    if path is None:
        return
    line = reader.lines.get("state_file")
    file = Path(path)
    try:
        taken = file.is_dir() or (file.exists() and file.samefile(reader.source))
    except (OSError, ValueError):
        taken = False
    if taken:
        message = "is a folder, or this very configuration: name a file of its own"
        reader.problem(line, "state_file", message, "such as /var/lib/breaker-sidecar/state.json")
    elif not file.parent.is_dir():
        message = f"the folder {file.parent} does not exist, so nothing survives a restart"
        reader.warn(line, "state_file", message, "make it, and let the daemon write there")


def header_values(reader: Reader, name: str, headers: Mapping[str, SetHeader]) -> dict[str, str]:
    """What `set_headers` of a provider comes to; whatever is wrong with it is reported."""
    report = Reporter(reader, name)
    values: dict[str, str] = {}
    for header, given in headers.items():
        path = f"providers.{name}.set_headers.{header}"
        if not _HEADER.fullmatch(header):
            report.problem(report.place("set_headers"), "not the name of a header")
        elif header.lower() in _FRAMING or header.lower().startswith("x-sidecar-"):
            report.problem(path, "the daemon sets or removes this header itself")
        elif header.lower() in values:
            report.problem(path, "the header stands twice: case makes no difference")
        elif not report.sound(f"set_headers.{header}"):
            continue
        elif (given.file is None) == (given.value is None):
            report.problem(path, "exactly one of file and value is needed")
        else:
            try:
                values[header.lower()] = _header_value(given)
            except AddressError as error:
                report.problem(path, str(error))
    return values


def _header_value(given: SetHeader) -> str:
    if given.value is not None:
        files.check_header_value(given.value, "the value")
        value = given.value
    else:
        value = files.read_secret(given.file or "")
    files.check_header_value(given.prefix + value, "the value")
    return given.prefix + value


def check_together(reader: Reader, providers: Iterable[Provider], planes: list[Plane]) -> None:
    """What concerns several providers, or a provider and the listeners."""
    owners: dict[str, str] = {}
    for provider in providers:
        report = Reporter(reader, provider.name)
        for variable in provider.env:
            owner = owners.setdefault(variable, provider.name)
            if owner != provider.name:
                path = f"providers.{provider.name}.env.{variable}"
                report.problem(path, f'the provider "{owner}" has this variable too')
        target = addresses.upstream_port(provider.upstream)
        if target and any(_reaches(target, listen) for _, plane in planes for listen in plane):
            report.problem(report.place("upstream"), "the upstream is this daemon itself")


def _reaches(target: tuple[str, int], listen: Listen) -> bool:
    if listen.kind == "unix" or listen.port != target[1]:
        return False
    host = target[0]
    if addresses.is_loopback(host):
        return listen.loopback or listen.host in _WILDCARDS
    return host in (*listen.hosts, *_WILDCARDS) and host == listen.host


def check_listeners(reader: Reader, planes: list[Plane]) -> None:
    """No address twice, on one plane or on two; certificates that load."""
    taken: list[tuple[str, Listen]] = []
    for path, plane in planes:
        for index, listen in enumerate(plane):
            here = f"{path}[{index}]" if f"{path}[{index}]" in reader.lines else path
            other = next((where for where, there in taken if _clash(listen, there)), None)
            if other is not None:
                line = reader.lines.get(here)
                reader.problem(line, here, f"{listen} is taken", f"by {other}")
            taken.append((here, listen))
            if listen.tls is not None:
                try:
                    files.check_certificate(*listen.tls)
                except AddressError as error:
                    reader.problem(reader.lines.get(here), f"{here}.tls", str(error))


def _clash(one: Listen, other: Listen) -> bool:
    if one.kind != other.kind:
        return False
    if one.kind == "unix":
        return one.path == other.path
    if one.port != other.port or one.port == 0:
        return False
    return any(_same_host(mine, theirs) for mine in one.hosts for theirs in other.hosts)


def _same_host(mine: str, theirs: str) -> bool:
    """Equal, or one of them every address of the other's family."""
    if mine == theirs:
        return True
    pairs: Iterator[tuple[str, str]] = iter(((mine, theirs), (theirs, mine)))
    return any(
        wild in _WILDCARDS and (":" in single) == (_WILDCARDS[wild] == ":")
        for wild, single in pairs
    )
