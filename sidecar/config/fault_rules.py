"""The grammar of `faults.rules`, whoever writes them: the file, `POST /faults`, a call's header.

A rule that could do nothing, or two things at once, is refused: a test that passes because nothing
was injected is worse than none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import inspect

from sidecar.config import units
from sidecar.config.document import Mapping as MappingNode
from sidecar.config.document import Node, Sequence, parse
from sidecar.config.problems import ConfigError
from sidecar.config.reader import NOTHING, Reader
from sidecar.config.schema import FaultOrder, FaultSection

TELLS_CLASS: Final = frozenset({None, "error_event", "fake_200", "wrong_length"})
"""The kinds that an answer or an event of a class goes with."""

COUNTS_EVENTS: Final = frozenset({"cut", "error_event"})
STEPS: Final = ("nth", "every", "share")
_OF_AN_ANSWER: Final = ("status", "code", "message", "retry_after")


def read_faults(reader: Reader, node: Node, path: str, _: inspect.Type | None = None) -> Any:
    """The rules of a list; those that are wrong are reported and left out."""
    if not isinstance(node, Sequence):
        return reader.problem(node.line, path, "a list of rules is needed", "write [{class: …}]")
    read = [read_fault(reader, item, f"{path}[{index}]") for index, item in enumerate(node.items)]
    return tuple(rule for rule in read if rule is not NOTHING)


def read_fault(reader: Reader, node: Node, path: str) -> Any:
    """One rule, or NOTHING."""
    problems = len(reader.problems)
    values = reader.read_struct(node, FaultSection, path)
    if values is NOTHING or len(reader.problems) > problems:
        return NOTHING
    problem = _conflict(values, given=_given(node))
    if problem:
        return reader.problem(node.line, path, problem)
    return FaultSection(**values)


def _given(node: Node) -> frozenset[str]:
    entries = node.entries if isinstance(node, MappingNode) else ()
    return frozenset(key.text for key, _ in entries)


def _conflict(values: Mapping[str, Any], given: frozenset[str]) -> str:
    kind, class_ = values.get("kind"), values.get("class_")
    if kind is None and class_ is None:
        return 'it injects nothing: name a "class" or a "kind"'
    if class_ is not None and kind not in TELLS_CLASS:
        return f"{kind} tells no class: leave one of both out"
    steps = [name for name in STEPS if values.get(name) is not None]
    if len(steps) > 1:
        return f"{' and '.join(steps)} are two ways to choose a step: leave one out"
    if "events" in given and kind not in COUNTS_EVENTS:
        return '"events" has an effect with cut and error_event only'
    if kind == "delay" and values.get("after") is None:
        return 'how long? add "after"'
    if kind not in TELLS_CLASS:
        idle = [name for name in _OF_AN_ANSWER if values.get(name) is not None]
        if idle:
            return f'"{idle[0]}" has no effect: {kind} sends no answer of its own'
    return ""


def write_fault(rule: FaultSection) -> dict[str, Any]:
    """A rule as the file would say it."""
    written = {}
    for field in inspect.type_info(FaultSection).fields:  # type: ignore[attr-defined] # a struct
        value = getattr(rule, field.name)
        if value is not None and value != field.default:
            duration = field.encode_name in ("after", "retry_after")
            written[field.encode_name] = units.format_duration(value) if duration else value
    return written


def header_document(text: str) -> bytes:
    """What a header asks for (`class=rate_limit; retry_after=2`) as a document to be read."""
    asked: dict[str, Any] = {}
    for part in text.split(";"):
        name, _, value = part.strip().partition("=")
        if name:
            asked[name.strip()] = _scalar(value.strip())
    return json.dumps(asked).encode()


def read_fault_document(content: bytes) -> FaultSection:
    """One rule from a document of its own.

    Raises:
        ConfigError: what is wrong with it.
    """
    reader, node = _reader_of(content)
    rule: Any = NOTHING if node is None else read_fault(reader, node, "")
    if rule is NOTHING:
        raise ConfigError(reader.problems)
    fault: FaultSection = rule
    return fault


def read_order(content: bytes) -> FaultOrder:
    """The body of `POST /faults`.

    Raises:
        ConfigError: what is wrong with it.
    """
    reader, node = _reader_of(content)
    values: Any = NOTHING if node is None else reader.read_struct(node, FaultOrder, "")
    if reader.problems or values is NOTHING:
        raise ConfigError(reader.problems)
    return FaultOrder(**values)


def _reader_of(content: bytes) -> tuple[Reader, Node | None]:
    from sidecar.config.kinds import READERS  # noqa: PLC0415 - it lists the readers of this file

    reader = Reader("faults", {}, READERS)
    node = parse(content, "faults")
    if node is None:
        reader.problem(None, "", "it is empty")
    return reader, node


def _scalar(text: str) -> Any:
    try:
        found = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError):
        return text
    return found if isinstance(found, int | float | bool) else text
