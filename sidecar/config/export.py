"""The schema in other people's words: JSON Schema for editors and charts, a page for readers.

`python -m sidecar.config.export` prints docs/configuration.md; a test holds the two together.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect

from sidecar.config import schema, units
from sidecar.config.kinds import dialect_names, write
from sidecar.config.overrides import PREFIX, VARIABLES
from sidecar.config.suggest import struct_fields, unwrap

_SECTIONS: Final = (
    schema.Root,
    schema.ListenSection,
    schema.RuleSection,
    schema.FaultSection,
)
_VARIABLE: Final = {"type": "string", "pattern": r"\$\{"}
_TEXT: Final = {"type": "string"}
_LISTEN: Final = {"anyOf": [_TEXT, {"$ref": "#/$defs/ListenSection"}]}
_OWN_GRAMMAR: Final[dict[str, dict[str, Any]]] = {
    "duration": {"type": ["number", "string"], "pattern": rf"{units.DURATION_PATTERN}|\$\{{"},
    "size": {"type": ["integer", "string"], "pattern": rf"{units.SIZE_PATTERN}|\$\{{"},
    "listen": {"anyOf": [*_LISTEN["anyOf"], {"type": "array", "minItems": 1, "items": _LISTEN}]},
    "hosts": {"type": "array", "items": _TEXT},
    "methods": {"type": "array", "items": {"type": "string", "pattern": "^[A-Z]{1,32}$"}},
    "dialect": {"enum": sorted(dialect_names())},
    "upstream": {"type": "string", "pattern": r"^(https?://|unix:/)|\$\{"},
    "env": {
        "type": "object",
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "additionalProperties": {"type": ["string", "null"], "pattern": r"^(/.*)?$|\$\{"},
    },
    "rules": {"type": "array", "items": {"$ref": "#/$defs/RuleSection"}},
    "faults": {"type": "array", "items": {"$ref": "#/$defs/FaultSection"}},
    "when": {"type": "object", "minProperties": 1},
}


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `breakers.yaml`.

    It knows types, bounds, choices and names; what takes more than one key to see stays with
    `breaker-sidecar check`. Every key may be null, and a value may come from a variable.
    """
    parts: dict[str, Any]
    _, parts = msgspec.json.schema_components(_SECTIONS, ref_template="#/$defs/{name}")
    for cls in _structs():
        part = parts[cls.__name__]
        part["patternProperties"] = {"^x-": {}}
        required = part.get("required", [])
        for name, field in struct_fields(cls).items():
            given = part["properties"][name]
            shown = _property(given, nullable=name not in required)
            if field.default is not msgspec.NODEFAULT:
                shown["default"] = write(field.default, field.type)
            part["properties"][name] = shown
    names: dict[str, Any] = {"pattern": "^[a-z0-9][a-z0-9-]*$", "maxLength": 63}
    for section in ("providers", "dependencies"):
        _mapping(parts["Root"]["properties"][section])["propertyNames"] = names
    used = {cls.__name__ for cls in _structs()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "breakers.yaml of breaker-sidecar",
        **{key: value for key, value in parts["Root"].items() if key != "title"},
        "$defs": {name: parts[name] for name in sorted(used - {"Root"})},
    }


def order_schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schemas of `FaultOrder` and `FaultSection`, as the body of a call holds them.

    Their references are those of an OpenAPI description; no variables are read there.
    """
    classes = (schema.FaultOrder, schema.FaultSection)
    _, parts = msgspec.json.schema_components(classes, ref_template="#/components/schemas/{name}")
    found = {}
    for cls in classes:
        part = parts[cls.__name__]
        part["properties"] = {
            name: _without_variables(_property(given, nullable=True))
            for name, given in part["properties"].items()
        }
        found[cls.__name__] = part
    return found


def _without_variables(shown: Any) -> Any:
    if isinstance(shown, list):
        return [_without_variables(one) for one in shown if one != _VARIABLE]
    if not isinstance(shown, dict):
        return shown
    kept = {key: _without_variables(value) for key, value in shown.items()}
    if "pattern" in kept:
        kept["pattern"] = kept["pattern"].removesuffix(r"|\$\{")
    if "$ref" in kept:
        kept["$ref"] = kept["$ref"].replace("#/$defs/", "#/components/schemas/")
    return kept


def _mapping(shown: dict[str, Any]) -> dict[str, Any]:
    """The part of a property that describes its mapping, where null is allowed beside it."""
    options: list[dict[str, Any]] = shown.get("anyOf", [shown])
    return next(option for option in options if option.get("type") == "object")


def _structs() -> Iterator[type[msgspec.Struct]]:
    """Every section of the file, once."""
    seen: set[type] = set()

    def visit(kind: inspect.Type) -> Iterator[type[msgspec.Struct]]:
        kind = unwrap(kind)
        if isinstance(kind, inspect.DictType):
            yield from visit(kind.value_type)
        if isinstance(kind, inspect.StructType) and issubclass(kind.cls, schema.Section):
            if kind.cls in seen:
                return
            seen.add(kind.cls)
            yield kind.cls
            for field in kind.fields:
                yield from visit(field.type)

    for cls in _SECTIONS:
        yield from visit(inspect.type_info(cls))


def _property(given: dict[str, Any], *, nullable: bool) -> dict[str, Any]:
    """What msgspec says of a field, as the file may write it."""
    kind = given.get("x-kind")
    options = [option for option in given.get("anyOf", ()) if option.get("type") != "null"]
    nullable = nullable or len(options) < len(given.get("anyOf", ()))
    if kind is None and len(options) == 1:
        return _property({**options[0], "description": given["description"]}, nullable=nullable)
    about = {key: given[key] for key in ("description",) if key in given}
    bare = {
        key: value
        for key, value in given.items()
        if key not in ("description", "default", "x-kind", "items", "anyOf")
    }
    shape: dict[str, Any] = bare
    if kind in _OWN_GRAMMAR:
        bounds = {key: bare[key] for key in ("minimum", "maximum") if key in bare}
        shape = dict(_OWN_GRAMMAR[kind], **bounds)
    choices = [shape]
    if "enum" in shape or shape.get("type") in ("integer", "number", "boolean"):
        choices.append(_VARIABLE)
    if nullable:
        choices.append({"type": "null"})
    return {**about, **shape} if len(choices) == 1 else {**about, "anyOf": choices}


_HEAD: Final = """\
# Configuration

<!-- Written by `python -m sidecar.config.export`. Change the schema, not this page. -->

`breakers.yaml` is searched in this order: `--config`, the variable `BREAKER_SIDECAR_CONFIG`,
`/etc/breaker-sidecar/breakers.yaml`, and the file inside the package, which is the
[breakers.yaml](../breakers.yaml) of the repository. The current folder is never searched: a cloned
repository must not redirect anybody's keys.

The smallest file names one upstream; everything else has a default:

```yaml
providers:
  openai: {upstream: https://api.openai.com}
```

`breaker-sidecar check` tries a file and prints every problem at once, each with its line and key.
A file with a problem is never applied: a start ends with exit code 78, a reload keeps the old
configuration.

A reload (`SIGHUP`, or `POST /reload`) takes every other key for the next call and keeps what the
breakers know; these count only after a restart, and a reload that finds them changed says so:
`listen`, `admin.listen`, `probe.listen`, `log.format`, `state_file`: restart.

A file that is a symbolic link, as in a mounted ConfigMap or Secret, is reloaded by itself when the
link is swapped, and so is the configuration when a secret that it names is; with `serve --watch` a
plain file is too.

## How values are written

* **Durations** are numbers of seconds (`30`, `0.25`) or a number with one unit: `250ms`, `30s`,
  `5m`, `1h`. There are no compounds (`1m30s` is `90s`) and no spaces, and a number in quotes is
  text, not a number.
* **Sizes** are bytes (`65536`), or `256KiB`, `1MiB`, `1GiB`.
* **`true` and `false`** are the only booleans; `yes`, `on` and `off` are words, so `mode: off`
  means the mode of that name.
* **`null`**, or nothing at all, is the default, for whole sections too. Where the tables say that
  a key takes `null`, it means what they say.
* **0** turns something off only where the tables say so. Numbers that are negative, not finite or
  out of bounds are refused.
* **Variables**: `${VAR}` and `${VAR:-default}` are expanded in values after the file was parsed,
  so no value can add a key. One that is set to nothing counts as unset. A provider with an unset
  variable is disabled, with a warning and a line in `/status`; elsewhere an unset variable is an
  error. `$${` is a plain `${`.
* **Files** are named by their paths; a relative one starts at the folder of `breakers.yaml`.
* **Keys** that are unknown are errors, and so are keys that stand twice. Keys that start with `x-`
  are ignored wherever a section has fixed keys (names of providers, headers and variables are
  free), so that anchors have a place; aliases and `<<` work, tags do not. With
  `--unknown-keys warn` unknown keys are warnings, for the day of a roll-back.

A provider's own keys are laid over `defaults`, section by section and key by key; a list, such as
`rules`, replaces the whole list.
"""

_VARIABLES: Final = """\
## Variables above the file

They replace a key of the file; flags stand above them. `listen` and hosts take several values with
commas.

| variable | replaces |
|---|---|
"""

_LISTEN_NOTES: Final = """\
Addresses are `host:port`, `[::1]:port` or `unix:/path`, or the long form below, or a list of any
of these. `localhost` is both loopback addresses, whichever exists. Port 0 is any free one.
"""

_RULES_NOTES: Final = """\
The first rule whose conditions all hold decides, before the dialect is asked and for answers of
any status. What is left out follows from the class:

| class | retryable | verdict |
|---|---|---|
| validation, authentication, permanent | false | alive |
| rate_limit | true | throttle |
| transient | true | failure |

Only `transient` may be a failure, and only `rate_limit` a throttle. `validation` and `permanent`
are never retryable, and `authentication` only with the code `token_expired`.

```yaml
rules:
  - name: proxy says quota for a burst
    when: {status: 429, "body.error": "INSUFFICIENT QUOTA"}
    class: rate_limit
    code: burst
  - name: the gateway is being deployed
    when: {status: [502, 503], header.x-gateway: {missing: true}, body.detail: {contains: deploy}}
    class: transient
    verdict: neutral
```

A path in a body is dotted (`body.error.details[0].reason`). Values are compared as JSON writes
them, so that `1302` and `"1302"` are one code; `contains` looks for a part of the text; `empty`
holds for nothing, `null`, `""`, `[]` and `{}`, `missing` only where the path leads nowhere.
"""

_FAULTS_NOTES: Final = """\
For a test of how an agent recovers, without a change to the agent and without a provider that is
ill. Nothing is injected unless it is asked for; see [faults](faults.md).
"""

_FAULT_NOTES: Final = """\
A rule has a `class`, a `kind`, or both where the kind tells a class (`error_event`, `fake_200`,
`wrong_length`). Of `nth`, `every` and `share` it has one at most; without, every call that it names
has the fault.
"""

_DEPENDENCIES_NOTES: Final = """\
What the agent calls by itself, a database or a service with an SDK of its own, has a breaker too:
the agent asks for a permit (`POST /v1/dependencies/NAME/permit`), calls, and reports how it went
(`POST /v1/dependencies/NAME/report`).

```yaml
dependencies:
  orders-db: {source: database, vendor: postgresql}
  payments: {source: sdk, sdk: stripe, breaker: {consecutive_failures: 3}}
```

`breaker` has the keys of a provider's but for two that are about HTTP: `repeat_window` and
`fail_fast`.
"""

_SIGN_NOTES: Final = """\
It takes the extra `aws` (`pip install 'breaker-sidecar[aws]'`). Credentials are found as botocore
finds them, for the daemon and not for its callers: environment, shared files and their profiles
(roles, SSO, web identity, processes), container and instance roles. They are looked up beside the
calls, kept, and renewed before they end; shared files that change are read again. Where there are
none, a call is answered `missing_credentials` (401).

A caller may sign with any key, or not at all: `Authorization`, `X-Amz-Date`,
`X-Amz-Security-Token`, `X-Amz-Content-Sha256`, `X-Amz-Region-Set`, and what a presigned query has
of these, are replaced. Everything else passes as it came. The signature covers the body, so the
body is held until it is whole: up to `limits.request_body`, or 32 MiB where that is `null`; more is
`too_large` (413).

```yaml
providers:
  bedrock:
    upstream: https://bedrock-runtime.us-east-1.amazonaws.com
    sign: {aws: {}}
```
"""

_PAGE: Final[tuple[tuple[str, type[msgspec.Struct], str], ...]] = (
    ("The file", schema.Root, ""),
    ("`listen` in its long form", schema.ListenSection, _LISTEN_NOTES),
    ("`tls` of a listener", schema.ListenTls, ""),
    ("`admin`", schema.AdminSection, ""),
    ("`probe`", schema.ProbeSection, ""),
    ("`log`", schema.Log, ""),
    ("`drain`", schema.Drain, ""),
    ("`faults`", schema.FaultsSection, _FAULTS_NOTES),
    ("`faults.rules`", schema.FaultSection, _FAULT_NOTES),
    ("`defaults`, and under every provider", schema.Settings, ""),
    ("`timeouts`", schema.Timeouts, ""),
    ("`breaker`", schema.BreakerConfig, ""),
    ("`shedding`", schema.Shedding, ""),
    ("`shedding.sustained`", schema.Sustained, ""),
    ("`shedding.quota`", schema.Quota, ""),
    ("`limits`", schema.Limits, ""),
    ("`retry`", schema.Retry, ""),
    ("`rules`", schema.RuleSection, _RULES_NOTES),
    ("`providers.NAME`", schema.ProviderSection, ""),
    ("`tls` of a provider", schema.ClientTls, ""),
    ("`set_headers.NAME`", schema.SetHeader, ""),
    ("`dependencies.NAME`", schema.DependencySection, _DEPENDENCIES_NOTES),
    ("`sign` of a provider", schema.Sign, ""),
    ("`sign.aws`", schema.AwsSign, _SIGN_NOTES),
)


def reference() -> str:
    """The page docs/configuration.md."""
    parts = [_HEAD]
    for title, cls, notes in _PAGE:
        parts.append(f"## {title}\n")
        if notes:
            parts.append(notes)
        parts.append(_table(cls))
    rows = "".join(f"| `{PREFIX}{name}` | `{key}` |\n" for name, key in VARIABLES.items())
    return "\n".join([*parts, _VARIABLES + rows])


def _table(cls: type[msgspec.Struct]) -> str:
    shared = set(struct_fields(schema.Settings)) if cls is schema.ProviderSection else set()
    rows = ["| key | takes | default | meaning |", "|---|---|---|---|"]
    for name, field in struct_fields(cls).items():
        if name in shared:
            continue
        meaning = _description(field.type)
        rows.append(f"| `{name}` | {_takes(field.type)} | {_default(field)} | {meaning} |")
    return "\n".join(rows) + "\n"


def _description(kind: inspect.Type) -> str:
    found = ""
    if isinstance(kind, inspect.Metadata):
        found = (kind.extra_json_schema or {}).get("description", "") or _description(kind.type)
    return found.replace("|", "\\|")


def _default(field: inspect.Field) -> str:
    if field.required:
        return "needed"
    if isinstance(unwrap(field.type), inspect.StructType) and field.default is not None:
        return ""
    value = None if field.default is msgspec.NODEFAULT else write(field.default, field.type)
    if isinstance(unwrap(field.type), inspect.DictType):
        return "`{}`"
    shown = msgspec.json.encode(value).decode()
    return f"`{shown[1:-1] if isinstance(value, str) and value else shown}`"


def _takes(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.UnionType):
        return f"{_takes(next(one for one in kind.types if not _is_null(one)))}, or `null`"
    if isinstance(kind, inspect.Metadata):
        name = (kind.extra or {}).get("kind")
        if name is None or name in ("duration", "size"):
            return _bounds(kind, name) or _takes(kind.type)
        return _NAMED[name]
    if isinstance(kind, inspect.LiteralType):
        return ", ".join(f"`{value}`" for value in kind.values)
    if isinstance(kind, inspect.BoolType):
        return "`true`, `false`"
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return _number(kind)
    if isinstance(kind, inspect.StructType):
        return "a section"
    return "sections by name" if isinstance(kind, inspect.DictType) else "text"


_NAMED: Final = {
    "listen": "addresses",
    "hosts": "a list of names",
    "methods": "a list of methods",
    "upstream": "an address",
    "proxy": "`env` or a URL",
    "dialect": "a name",
    "env": "paths by variable",
    "file": "a path",
    "name": "a name",
    "vendor": "a name",
    "secret": "text",
    "rules": "a list of rules",
    "faults": "a list of rules",
    "when": "conditions",
}


def _bounds(kind: inspect.Metadata, name: str | None) -> str:
    number = unwrap(kind)
    if not isinstance(number, inspect.IntType | inspect.FloatType) or _has_null(kind):
        return ""
    low, high = number.ge or 0, number.le or 0
    if name == "duration":
        return f"a duration, {units.format_duration(low)} to {units.format_duration(high)}"
    if name == "size":
        return f"a size, {units.format_size(int(low))} to {units.format_size(int(high))}"
    return _number(number)


def _number(number: inspect.IntType | inspect.FloatType) -> str:
    low, high = number.ge or 0, number.le or 0
    what = "a whole number" if isinstance(number, inspect.IntType) else "a number"
    return f"{what}, {low:g} to {high if isinstance(high, int) else f'{high:g}'}"


def _has_null(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.Metadata):
        return _has_null(kind.type)
    return isinstance(kind, inspect.UnionType)


def _is_null(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.NoneType)


if __name__ == "__main__":
    sys.stdout.write(reference())
