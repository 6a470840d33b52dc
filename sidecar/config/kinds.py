"""Values that are written in a grammar of their own: how each is read, and written back.

One function a kind for reading; `write` turns values back into what the file would say, so that
the effective configuration can be shown, compared and loaded again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPMethod
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import inspect

from sidecar.config import addresses, units
from sidecar.config.addresses import AddressError, Listen
from sidecar.config.document import Mapping, Node, Scalar, Sequence
from sidecar.config.fault_rules import read_faults, write_fault
from sidecar.config.operator_rules import read_rules, read_when, write_rule
from sidecar.config.reader import NOTHING, KindReader, Reader, is_null
from sidecar.config.schema import ListenSection
from sidecar.config.suggest import nearest, unwrap

REDACTED: Final = "[redacted]"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_METHOD = re.compile(r"[A-Z]{1,32}")
# Those of HTTP, and of WebDAV those that are nearly spelt like one of them.
_METHODS: Final = (*(method.value for method in HTTPMethod), "PROPPATCH", "REPORT")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_PATH = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?")
_RESERVED = re.compile(
    r"BREAKER_SIDECAR_.*|(?:HTTPS?|ALL|NO)_PROXY|PATH|HOME|LD_.*|PYTHON.*", re.IGNORECASE
)


def dialect_names() -> frozenset[str]:
    """Every legal dialect."""
    from sidecar.envelope import dialects  # noqa: PLC0415 - only a file that names one needs it

    return dialects.NAMES | {"auto"}


def _with_unit(
    what: str,
    parse: Callable[[str], float | None],
    hint: str,
    write: Callable[[Any], object],
) -> KindReader:
    """A number that is written with its unit: read, bounded and written back."""

    def read(reader: Reader, node: Node, path: str, kind: inspect.Type) -> Any:
        text = reader.text(node, path, what=what)
        if text is NOTHING or not isinstance(node, Scalar):
            return NOTHING
        value = parse(text)
        if value is None:
            return reader.number(node, unwrap(kind), path, what=what, hint=hint, write=write)
        return reader.bounded(value, node, unwrap(kind), path, write)

    return read


def _listen(reader: Reader, node: Node, path: str, _: inspect.Type) -> Any:
    if not isinstance(node, Sequence):
        one = _one_listener(reader, node, path)
        return NOTHING if one is NOTHING else (one,)
    if not node.items:
        return reader.problem(node.line, path, "the list is empty")
    found = [
        _one_listener(reader, item, f"{path}[{index}]") for index, item in enumerate(node.items)
    ]
    return NOTHING if any(one is NOTHING for one in found) else tuple(found)


def _one_listener(reader: Reader, node: Node, path: str) -> Any:
    reader.lines[path] = node.line
    if isinstance(node, Scalar):
        return _parsed(reader, node, path, addresses.parse_listen)
    if not isinstance(node, Mapping):
        return reader.problem(node.line, path, "an address is needed, not a list")
    problems = len(reader.problems)
    values = reader.read_struct(node, ListenSection, path)
    if values is NOTHING or len(reader.problems) > problems:
        return NOTHING
    if "address" not in values:
        return reader.problem(node.line, path, "the address is missing", 'add "address"')
    tls = values.get("tls")
    if tls is not None:
        for name in ("cert", "key"):
            if name not in tls:
                return reader.problem(node.line, f"{path}.tls", f'"{name}" is missing')
    try:
        return addresses.parse_listen(values["address"], (tls["cert"], tls["key"]) if tls else None)
    except AddressError as error:
        return reader.problem(node.line, f"{path}.address", str(error))


def _parsed(reader: Reader, node: Node, path: str, parse: Any) -> Any:
    text = reader.text(node, path, what="an address")
    if text is NOTHING:
        return NOTHING
    try:
        return parse(text)
    except AddressError as error:
        # A hint may quote the address, and this one came from the environment.
        hint = "" if isinstance(node, Scalar) and "${" in node.text else error.hint
        return reader.problem(node.line, path, str(error), hint)


def _upstream(reader: Reader, node: Node, path: str, _: inspect.Type) -> Any:
    return _parsed(reader, node, path, addresses.parse_upstream)


def _proxy(reader: Reader, node: Node, path: str, _: inspect.Type) -> Any:
    if isinstance(node, Scalar) and node.text == "env":
        return "env"
    if isinstance(node, Scalar) and node.text in ("none", "off", "direct", "false", "no"):
        return reader.problem(node.line, path, "must be env, null or a URL", "write null")
    return _parsed(reader, node, path, addresses.parse_proxy)


def _hosts(reader: Reader, node: Node, path: str, _: inspect.Type) -> Any:
    if not isinstance(node, Sequence):
        return reader.problem(node.line, path, "a list of host names is needed", "write [NAME]")
    found = []
    for index, item in enumerate(node.items):
        text = reader.text(item, f"{path}[{index}]", what="a host name")
        if text is NOTHING:
            continue
        try:
            found.append(addresses.parse_host_name(text))
        except AddressError as error:
            hint = error.hint or "a name alone: no scheme, no port, no wildcard"
            reader.problem(item.line, f"{path}[{index}]", str(error), hint)
    return tuple(dict.fromkeys(found))


def _methods(reader: Reader, node: Node, path: str, _: inspect.Type) -> Any:
    if not isinstance(node, Sequence):
        return reader.problem(node.line, path, "a list of methods is needed", "[GET, PUT]")
    found = []
    for index, item in enumerate(node.items):
        text = reader.text(item, f"{path}[{index}]", what="a method")
        if text is NOTHING:
            continue
        near = None if text in _METHODS else nearest(text, _METHODS)
        if near is not None and text.isupper():
            message = f'there is no method "{text}"'
            reader.problem(item.line, f"{path}[{index}]", message, f'did you mean "{near}"?')
        elif _METHOD.fullmatch(text):
            found.append(text)
        else:
            hint = f"write {text.upper()}" if text.isalpha() and text.isascii() else ""
            reader.problem(item.line, f"{path}[{index}]", "methods are capital letters", hint)
    return tuple(dict.fromkeys(found))


def _dialect(reader: Reader, node: Node, path: str, _: inspect.Type) -> Any:
    text = reader.text(node, path, what="a dialect")
    names = dialect_names()
    if text is NOTHING or text in names:
        return text
    near = nearest(text, names)
    hint = f'did you mean "{near}"?' if near else "auto and generic fit any upstream"
    return reader.problem(node.line, path, "no such dialect", hint)


def _env(reader: Reader, node: Node, path: str, _: inspect.Type) -> Any:
    if not isinstance(node, Mapping):
        return reader.problem(
            node.line, path, "a mapping of variables to paths is needed", "{OPENAI_BASE_URL: /v1}"
        )
    values = {}
    for key, child in reader.entries(node, path):
        here = f"{path}.{key.text}"
        reader.lines[here] = child.line
        if not _VARIABLE.fullmatch(key.text):
            reader.problem(key.line, here, "not the name of a variable")
            continue
        if _RESERVED.fullmatch(key.text):
            reader.problem(key.line, here, "this variable has another meaning and cannot be set")
            continue
        value = "" if is_null(child) else reader.text(child, here, what="a path")
        if value is NOTHING:
            continue
        if not _PATH.fullmatch(value):
            reader.problem(child.line, here, 'a path starts with "/", or is empty', "such as /v1")
            continue
        values[key.text] = value
    return values


def _file(reader: Reader, node: Node, path: str, _: inspect.Type) -> Any:
    text = reader.text(node, path, what="a path")
    if text is NOTHING:
        return NOTHING
    if not text:
        return reader.problem(node.line, path, "the path is empty", "write null for none")
    return str(reader.folder / text)


def _secret(reader: Reader, node: Node, path: str, _: inspect.Type) -> Any:
    return reader.text(node, path)


def _name(reader: Reader, node: Node, path: str, _: inspect.Type) -> Any:
    text = reader.text(node, path, what="a name")
    if text is NOTHING or _PLAIN_NAME.fullmatch(text):
        return text
    hint = "letters, digits and . _ + -, up to 64 of them"
    return reader.problem(node.line, path, "not a name", hint)


def _rules(reader: Reader, node: Node, path: str, _: inspect.Type) -> Any:
    return read_rules(reader, node, path)


def _when(reader: Reader, node: Node, path: str, _: inspect.Type) -> Any:
    return read_when(reader, node, path)


READERS: Final[dict[str, KindReader]] = {
    "duration": _with_unit(
        "a duration", units.parse_duration, units.DURATION_HINT, units.format_duration
    ),
    "size": _with_unit("a size", units.parse_size, units.SIZE_HINT, units.format_size),
    "listen": _listen,
    "upstream": _upstream,
    "proxy": _proxy,
    "hosts": _hosts,
    "methods": _methods,
    "dialect": _dialect,
    "env": _env,
    "name": _name,
    "vendor": _name,
    "secret": _secret,
    "file": _file,
    "rules": _rules,
    "faults": read_faults,
    "when": _when,
}


def write(value: Any, kind: inspect.Type) -> Any:
    """A value as the file would say it, without secrets, in plain types."""
    if isinstance(kind, inspect.Metadata):
        name = (kind.extra or {}).get("kind")
        return write(value, kind.type) if name is None else _written(value, name)
    if value is None:
        return None
    if isinstance(kind, inspect.UnionType):
        return write(value, next(part for part in kind.types if not _is_none(part)))
    if isinstance(kind, inspect.StructType):
        return {
            field.encode_name: write(getattr(value, field.name), field.type)
            for field in kind.fields
        }
    if isinstance(kind, inspect.DictType):
        return {name: write(item, kind.value_type) for name, item in value.items()}
    return value


def _is_none(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.NoneType)


def _written(value: Any, kind: str) -> Any:
    if value is None:
        return None
    match kind:
        case "duration":
            return units.format_duration(value)
        case "size":
            return units.format_size(value)
        case "listen":
            written = [_written_listener(listen) for listen in value]
            return written[0] if len(written) == 1 else written
        case "rules":
            return [write_rule(rule) for rule in value]
        case "faults":
            return [write_fault(rule) for rule in value]
        case "secret":
            return REDACTED
        case "proxy":
            return _written_proxy(value)
        case "hosts" | "methods":
            return list(value)
        case "env":
            return dict(value)
        case _:
            return value


def _written_listener(listen: Listen) -> Any:
    if listen.tls is None:
        return str(listen)
    return {"address": str(listen), "tls": {"cert": listen.tls[0], "key": listen.tls[1]}}


def _written_proxy(value: str) -> str:
    if value == "env" or not urlsplit(value).username:
        return value
    return addresses.without_user_info(value)
