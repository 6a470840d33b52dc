"""From what a file says to what holds: overrides, defaults, secrets, and checks over all of it.

Everything is tried before anything is given back: a configuration is complete, or it is not.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import inspect

from sidecar.config import aws, checks, files
from sidecar.config.addresses import AddressError, Listen, parse_upstream
from sidecar.config.overrides import Overrides, apply_environment, apply_flags
from sidecar.config.problems import ConfigError, Problem
from sidecar.config.reader import NOTHING, Reader, Values
from sidecar.config.resolved import Admin, Config, Dependency, Provider
from sidecar.config.schema import Root, SetHeader
from sidecar.config.suggest import struct_class, struct_fields, unwrap


class Resolver:
    """One load, from the values of the file to the configuration."""

    def __init__(self, reader: Reader, values: Values, overrides: Overrides) -> None:
        self.reader = reader
        self.values = values
        self.overrides = overrides
        self.disabled: dict[str, str] = {}

    def resolve(self) -> Config:
        """The configuration.

        Raises:
            ConfigError: with every problem, those of reading included.
        """
        apply_environment(self.reader, self.values)
        apply_flags(self.reader, self.values, self.overrides)
        providers = self._providers()
        dependencies = self._dependencies()
        self._report_unset()
        admin = self._admin()
        probe = self.values.get("probe", {}).get("listen") or ()
        listen = self.values.get("listen") or struct_fields(Root)["listen"].default
        planes = [("listen", listen), ("admin.listen", admin.listen), ("probe.listen", probe)]
        checks.check_listeners(self.reader, planes)
        checks.check_together(self.reader, providers.values(), planes)
        self._check_reach(listen, admin)
        rules = self.values.get("faults", {}).get("rules", ())
        named = self.values.get("providers", {})
        checks.check_faults(self.reader, rules, named, dependencies.values())
        state_file = self.values.get("state_file")
        checks.check_state_file(self.reader, state_file)
        if self.reader.problems:
            raise ConfigError(self.reader.problems)
        config = Config(
            path=self.reader.source,
            listen=listen,
            allowed_hosts=self.values.get("allowed_hosts", ()),
            admin=admin,
            probe_listen=probe,
            log=self._section("log"),
            drain=self._section("drain"),
            state_file=state_file,
            faults=self._section("faults"),
            providers=MappingProxyType(providers),
            dependencies=MappingProxyType(dependencies),
            disabled=MappingProxyType(self.disabled),
            warnings=tuple(str(warning) for warning in self.reader.warnings),
        )
        return msgspec.structs.replace(config, hash=config.fingerprint())

    def _section(self, name: str) -> Any:
        return build(struct_fields(Root)[name].type, self.values.get(name, {}))

    def _providers(self) -> dict[str, Provider]:
        given: Values = self.values.get("providers", {})
        reader = self.reader
        broken = any(problem.path == "providers" for problem in reader.problems)
        if not given and not broken:
            line = reader.lines.get("providers")
            reader.problem(line, "providers", "at least one provider is needed")
        for name in self.overrides.upstreams.keys() - given.keys():
            message = f'there is no provider "{name}" to give another upstream'
            reader.problems.append(Problem("--upstream", None, "", message))
        providers = {}
        for name, own in given.items():
            provider = self._provider(name, own)
            if provider is not None:
                providers[name] = provider
        return providers

    def _provider(self, name: str, own: Any) -> Provider | None:
        path = f"providers.{name}"
        reader = self.reader
        if not checks.check_name(reader, name):
            return None
        if own is NOTHING:
            if not any(problem.path == path for problem in reader.problems):
                own = {}
            else:
                return None
        own = dict(own)
        self._replace_upstream(name, own)
        unset = [gap for gap in reader.unset if gap.path.startswith(f"{path}.")]
        if unset:
            names = list(dict.fromkeys(gap.variable for gap in unset))
            reason = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not set"
            self.disabled[name] = reason
            message = f"{reason}, so this provider is disabled"
            reader.warn(unset[0].line, unset[0].path, message)
            reader.unset = [gap for gap in reader.unset if gap not in unset]
            return None
        if "upstream" in own:
            return self._complete(name, own)
        if not any(problem.path == f"{path}.upstream" for problem in reader.problems):
            reader.problem(reader.lines.get(path), f"{path}.upstream", "is missing")
        # The rest of the provider is still worth checking.
        self._complete(name, {**own, "upstream": "https://missing.invalid"})
        return None

    def _complete(self, name: str, own: Values) -> Provider:
        values = merge(self.values.get("defaults", {}), own)
        if self.overrides.observe and values.get("mode", "enforce") == "enforce":
            values["mode"] = "observe"
        values["name"] = name
        headers: Values = values.get("set_headers", {})
        values["set_headers"] = MappingProxyType(
            {
                header: build(inspect.type_info(SetHeader), {} if given is NOTHING else given)
                for header, given in headers.items()
            }
        )
        values["env"] = MappingProxyType(values.get("env", {}))
        values["sign"] = _with_endpoint(values.get("sign", {}), values["upstream"])
        values["header_values"] = MappingProxyType(
            checks.header_values(self.reader, name, values["set_headers"])
        )
        provider: Provider = build(inspect.type_info(Provider), values)
        checks.check_provider(self.reader, provider)
        return provider

    def _dependencies(self) -> dict[str, Dependency]:
        given: Values = self.values.get("dependencies", {})
        dependencies = {}
        for name, own in given.items():
            dependency = self._dependency(name, own)
            if dependency is not None:
                dependencies[name] = dependency
        return dependencies

    def _dependency(self, name: str, own: Any) -> Dependency | None:
        path = f"dependencies.{name}"
        reader = self.reader
        if not checks.check_name(reader, name, "dependencies"):
            return None
        if name in self.values.get("providers", {}):
            message = f"the name is taken, by providers.{name}"
            reader.problem(reader.lines.get(path), path, message)
            return None
        if own is NOTHING:
            if any(problem.path == path for problem in reader.problems):
                return None
            own = {}
        known = any(problem.path == f"{path}.source" for problem in reader.problems)
        unset = any(gap.path == f"{path}.source" for gap in reader.unset)
        if "source" not in own and not known and not unset:
            hint = "database or sdk"
            reader.problem(reader.lines.get(path), f"{path}.source", "is missing", hint)
            known = True
        defaults = self.values.get("defaults", {})
        shared = {key: defaults[key] for key in ("mode", "breaker") if key in defaults}
        values = merge(shared, own)
        if self.overrides.observe and values.get("mode", "enforce") == "enforce":
            values["mode"] = "observe"
        shedding = defaults.get("shedding", {})
        if "retry_after_max" in shedding:
            values["retry_after_max"] = shedding["retry_after_max"]
        values["name"] = name
        values.setdefault("source", "database")
        dependency: Dependency = build(inspect.type_info(Dependency), values)
        checks.check_dependency(reader, dependency)
        return None if known or unset else dependency

    def _replace_upstream(self, name: str, own: Values) -> None:
        replacement = self.overrides.upstreams.get(name)
        if replacement is None:
            return
        path = f"providers.{name}.upstream"
        self.reader.unset = [gap for gap in self.reader.unset if gap.path != path]
        self.reader.problems = [one for one in self.reader.problems if one.path != path]
        try:
            upstream = parse_upstream(replacement)
        except AddressError as error:
            problem = Problem("--upstream", None, path, str(error), error.hint)
            self.reader.problems.append(problem)
            return
        configured = own.get("upstream")
        if (
            isinstance(configured, str)
            and urlsplit(configured).hostname != urlsplit(upstream).hostname
        ):
            # A gateway need not word its errors as the one does whose place it takes.
            own["dialect"] = "auto"
        own["upstream"] = upstream

    def _report_unset(self) -> None:
        for gap in self.reader.unset:
            message = f"{gap.variable} is not set"
            hint = f"give a default: ${{{gap.variable}:-…}}"
            self.reader.problem(gap.line, gap.path, message, hint)

    def _admin(self) -> Admin:
        values = dict(self.values.get("admin", {}))
        token_file = values.get("token_file")
        if token_file is not None:
            try:
                values["token"] = files.read_token(token_file)
            except AddressError as error:
                path = "admin.token_file"
                self.reader.problem(self.reader.lines.get(path), path, str(error))
        admin: Admin = build(inspect.type_info(Admin), values)
        return admin

    def _check_reach(self, listen: tuple[Listen, ...], admin: Admin) -> None:
        line = self.reader.lines.get
        if admin.token_file is None and not all(one.loopback for one in admin.listen):
            message = "another address than loopback needs a token"
            self.reader.problem(
                line("admin.listen"), "admin.listen", message, 'set "admin.token_file"'
            )
        for one in listen:
            if not one.loopback:
                message = f"{one} lets other machines call through this daemon"
                self.reader.warn(line("listen"), "listen", message)


def _with_endpoint(sign: Values, upstream: str) -> Values:
    """What is signed with, and for what: the file's words, else those of the upstream's host."""
    given = sign.get("aws")
    if given is None:
        return sign
    said = {key: value for key, value in given.items() if value is not None}
    return {**sign, "aws": {**aws.endpoint_of(upstream)._asdict(), **said}}


def merge(base: Values, own: Values) -> Values:
    """Both, section by section; `own` wins."""
    merged = dict(base)
    for key, value in own.items():
        below = merged.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            merged[key] = merge(below, value)
        else:
            merged[key] = value
    return merged


def build(kind: inspect.Type, values: Values) -> Any:
    """A struct of what was given, with defaults for the rest, section by section."""
    cls = struct_class(kind)
    given = {}
    for field in struct_fields(cls).values():
        if field.name not in values:
            continue
        value = values[field.name]
        section = isinstance(unwrap(field.type), inspect.StructType) and isinstance(value, dict)
        given[field.name] = build(field.type, value) if section else value
    return cls(**given)
