"""The grammar of `faults.rules`, whoever writes them: the file, `POST /faults`, a call's header.

A rule that could do nothing, or two things at once, is refused: a test that passes because nothing
was injected is worse than none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import inspect

from sidecar.config import units
from sidecar.config.document import Mapping as MappingNode
from sidecar.config.document import Node, Sequence, parse
from sidecar.config.problems import ConfigError, Problem
from sidecar.config.reader import NOTHING, Reader
from sidecar.config.schema import FaultOrder, FaultSection

TELLS_CLASS: Final = frozenset({None, "error_event", "fake_200", "wrong_length"})
"""The kinds that an answer or an event of a class goes with."""

COUNTS_EVENTS: Final = frozenset({"cut", "error_event"})
STEPS: Final = ("nth", "every", "share")
_CHOOSING: Final = ("provider", "vendor", "model", "method", "path", *STEPS, "times")
_BODYLESS: Final = frozenset({204, 205, 304})
_OF_AN_ANSWER: Final = ("status", "code", "message", "retry_after")
_OF_A_REQUEST: Final = (
    "provider", "model", "method", "path", "events", "status", "after",
)  # fmt: skip
_OWN_WAITS: Final = frozenset({"breaker_open", "shed", "local_network", "transient", "rate_limit"})

OF_DEPENDENCIES: Final = frozenset({"refuse", "reset"})
"""The kinds that can be done to a call which the agent makes by itself."""

OWN_CODES: Final[Mapping[str, tuple[str, ...]]] = {
    "connect_error": (
        "connection_refused",
        "connection_reset",
        "connect_timeout",
        "dns_failure",
        "tls_failure",
    ),
    "timeout": ("first_byte_timeout", "first_content_timeout", "idle_timeout", "total_timeout"),
    "upstream_error": ("connection_reset", "connection_closed", "invalid_upstream_response"),
    "quota": (
        "quota_exhausted",
        "credits_exhausted",
        "plan_window_exhausted",
        "spend_limit_reached",
    ),
}
"""The codes of a decision that has several; the first is that of a rule that says none."""


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
    rule = FaultSection(**values)
    kind, class_ = rule.kind, rule.class_
    steps = [name for name in STEPS if getattr(rule, name) is not None]
    if len(steps) > 1:
        return f"{' and '.join(steps)} are two ways to choose a step: leave one out"
    if concerns_dependencies(rule):
        return _dependency_conflict(rule, given)
    if rule.source == "sidecar":
        return _own_conflict(rule, given)
    if rule.decision is not None:
        return '"decision" is the daemon\'s own: add source: sidecar'
    if kind is None and class_ is None:
        return 'it injects nothing: name a "class" or a "kind"'
    if class_ is not None and kind not in TELLS_CLASS:
        return f"{kind} tells no class: leave one of both out"
    if "events" in given and kind not in COUNTS_EVENTS:
        return '"events" has an effect with cut and error_event only'
    if kind == "delay" and rule.after is None:
        return 'how long? add "after"'
    if kind in ("fake_200", "error_event") and rule.status is not None:
        return f'"status" has no effect: {kind} has its own'
    if rule.status in _BODYLESS:
        return f"an answer with status {rule.status} has no body: it can say nothing"
    if kind == "hang" and rule.after is not None:
        return '"after" has no effect: hang sends nothing, however long it takes'
    if kind not in TELLS_CLASS:
        idle = [name for name in _OF_AN_ANSWER if getattr(rule, name) is not None]
        if idle:
            return f'"{idle[0]}" has no effect: {kind} sends no answer of its own'
    return ""


def _own_conflict(rule: FaultSection, given: frozenset[str]) -> str:
    """What is wrong with a rule that lets the daemon speak for itself."""
    if rule.kind is not None:
        return f"{rule.kind} is done to the provider's answer: sidecar has a class or a decision"
    if (rule.class_ is None) == (rule.decision is None):
        return 'which of its own answers? name a "decision", or a "class", and not both'
    idle = [name for name in ("events", "status") if name in given]
    if idle:
        return f'"{idle[0]}" has no effect: the daemon\'s own answers have theirs'
    if rule.code is not None:
        known = OWN_CODES.get(rule.decision or "", ())
        if rule.code not in known:
            told = f"has {', '.join(known)}" if known else "has one code, which is its own"
            return f'"code": {rule.decision or "the answer of a class"} {told}'
    if rule.retry_after is not None and (rule.decision or rule.class_) not in _OWN_WAITS:
        return '"retry_after" has no effect: this answer asks for no wait of its own'
    return ""


def _dependency_conflict(rule: FaultSection, given: frozenset[str]) -> str:
    """What is wrong with a rule about what the agent calls by itself."""
    if rule.source == "http":
        return "http is the source of providers, not of a dependency"
    idle = [name for name in _OF_A_REQUEST if name in given]
    if idle:
        return f'"{idle[0]}" has no effect: the agent calls a dependency by itself'
    if rule.source == "sidecar":
        if (rule.decision or "breaker_open") != "breaker_open" or rule.class_ not in (
            None,
            "transient",
        ):
            return "breaker_open is all that the daemon itself says of a dependency"
        if (rule.class_ is None) == (rule.decision is None):
            return 'name a "decision", or a "class", and not both'
        return _own_conflict(rule, given)
    if rule.decision is not None:
        return '"decision" is the daemon\'s own: add source: sidecar'
    if rule.kind is not None and rule.kind not in OF_DEPENDENCIES:
        return f"{rule.kind} cannot be done to a call that the agent makes by itself"
    if rule.kind is not None and rule.class_ is not None:
        return f"{rule.kind} tells no class: leave one of both out"
    if rule.retry_after is not None and (rule.class_ != "rate_limit" or rule.source == "database"):
        return '"retry_after" has an effect on the rate limit of an SDK only'
    if rule.kind is None and rule.class_ is None and rule.code is None:
        return 'it injects nothing: name a "class", a "code", or the "kind" refuse or reset'
    if rule.code is not None and (rule.kind is not None or rule.class_ is not None):
        return '"code" tells the class: leave one of both out'
    return ""


def concerns_dependencies(rule: FaultSection) -> bool:
    """Is a rule about what the agent calls by itself, and not about a provider?"""
    return (
        rule.dependency is not None or rule.vendor is not None or rule.source in ("database", "sdk")
    )


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
    members = []
    for part in _parts(text):
        name, _, value = part.strip().partition("=")
        if name:
            # Whatever is said twice stays in it twice, and is refused by whoever reads it.
            members.append(f"{json.dumps(name.strip())}: {json.dumps(_scalar(value.strip()))}")
    return f"{{{', '.join(members)}}}".encode()


def _parts(text: str) -> Iterator[str]:
    """What stands between semicolons, but for those between quotes."""
    part, quotes = "", 0
    for piece in text.split(";"):
        part, quotes = f"{part};{piece}" if quotes % 2 else piece, quotes + piece.count('"')
        if quotes % 2 == 0:
            yield part
    if quotes % 2:
        yield part


def read_fault_header(text: str, dependency: str | None = None) -> FaultSection:
    """What the header of a call asks for.

    Args:
        text: of the header.
        dependency: that the call is for; None for a provider's.

    Raises:
        ConfigError: what is wrong with it.
    """
    if dependency is not None:
        text = f"{text}; dependency={json.dumps(dependency)}"
    rule = read_fault_document(header_document(text))
    for name in _CHOOSING:
        if getattr(rule, name) is not None:
            message = f'"{name}" has no effect: it chooses calls, and this one asks for itself'
            raise ConfigError([Problem("faults", None, "", message)])
    return rule


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
    if text[:1] in {"[", "{"}:
        # It is none, and one that is nested deeply cannot even be read.
        return text
    try:
        found = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError):
        return text
    return found if isinstance(found, int | float | bool | str) else text
