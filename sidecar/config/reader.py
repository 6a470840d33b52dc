"""From the tree to values: every node against its place in the schema, every problem collected.

The schema says what a key takes, so a word is only read as what is meant there: `off` is a mode
under `mode`, and no boolean anywhere; a quoted number is text. What cannot be read is reported
and left out, and reading goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect

from sidecar.config import units
from sidecar.config.document import Mapping as MappingNode
from sidecar.config.document import Node, Scalar, Sequence
from sidecar.config.problems import Problem
from sidecar.config.suggest import hint_for, nearest, struct_fields
from sidecar.config.variables import UnsetVariableError, expand

NOTHING: Final = object()
"""What a node gives that is null, unset or wrong: the default holds."""

_MOST_HINTS = 20
"""Unknown keys of one reading that are compared with the right ones."""

Values = dict[str, Any]
KindReader = Callable[["Reader", Node, str, inspect.Type], Any]


def _plain(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


class Unset(msgspec.Struct, frozen=True):
    """A value whose variable is not set."""

    path: str
    line: int
    variable: str


class Reader:
    """Reads nodes and remembers what was wrong with them.

    Attributes:
        folder: what relative paths in the file are relative to.
        problems: what forbids the configuration.
        warnings: what does not.
        unset: the values whose variables are not set; the caller decides what follows.
        lines: the line of every value that was read, by its path.
    """

    def __init__(
        self,
        source: str,
        environ: Mapping[str, str],
        kinds: Mapping[str, KindReader],
        *,
        folder: Path = Path("/"),
        unknown_keys: str = "error",
    ) -> None:
        self.source = source
        self.folder = folder
        self.environ = environ
        self.kinds = kinds
        self.unknown_keys = unknown_keys
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.unset: list[Unset] = []
        self.lines: dict[str, int] = {}
        self._hints = 0

    def problem(self, line: int | None, path: str, message: str, hint: str = "") -> Any:
        """Note a problem; gives NOTHING, so that a reader can return it."""
        self.problems.append(Problem(self.source, line or None, path, message, hint))
        return NOTHING

    def warn(self, line: int | None, path: str, message: str, hint: str = "") -> None:
        """Note something that is legal and probably not meant."""
        self.warnings.append(Problem(self.source, line or None, path, message, hint))

    def read(self, node: Node, kind: inspect.Type, path: str) -> Any:
        """The value of a node, or NOTHING.

        Structs become dicts of what was given, without defaults, so that they can be merged.
        """
        self.lines[path] = node.line
        if isinstance(kind, inspect.Metadata):
            name = (kind.extra or {}).get("kind")
            if name is not None:
                return NOTHING if is_null(node) else self.kinds[name](self, node, path, kind)
            return self.read(node, kind.type, path)
        if isinstance(kind, inspect.UnionType):
            if is_null(node):
                return None
            return self.read(node, next(part for part in kind.types if not _is_none(part)), path)
        if is_null(node):
            return NOTHING
        if isinstance(kind, inspect.StructType):
            return self.read_struct(node, kind.cls, path)
        if isinstance(kind, inspect.DictType):
            return self.read_names(node, kind.value_type, path)
        return self._read_leaf(node, kind, path)

    def read_struct(self, node: Node, cls: type[msgspec.Struct], path: str) -> Any:
        """The given keys of a section; unknown and repeated ones are reported."""
        if not isinstance(node, MappingNode):
            return self.problem(node.line, path, f"a mapping is needed, not {_kind(node)}")
        fields = struct_fields(cls)
        values: Values = {}
        for key, child in self.entries(node, path):
            if key.text.startswith("x-"):
                continue
            field = fields.get(key.text)
            if field is None:
                self._unknown(key, fields, path)
                continue
            value = self.read(child, field.type, _join(path, key.text))
            if value is not NOTHING:
                values[field.name] = value
        return values

    def read_names(self, node: Node, value_type: inspect.Type, path: str) -> Any:
        """A mapping whose keys are free names."""
        if not isinstance(node, MappingNode):
            return self.problem(node.line, path, f"a mapping is needed, not {_kind(node)}")
        values: Values = {}
        for key, child in self.entries(node, path):
            value = self.read(child, value_type, _join(path, key.text))
            values[key.text] = value
        return values

    def entries(self, node: MappingNode, path: str) -> list[tuple[Scalar, Node]]:
        """The entries of a mapping, each key once; a repeated one is reported."""
        first: dict[str, int] = {}
        kept = []
        for key, child in node.entries:
            if key.text in first:
                where = f"the key stands twice, first in line {first[key.text]}"
                self.problem(key.line, _join(path, key.text), where)
            else:
                first[key.text] = key.line
                kept.append((key, child))
        return kept

    def text(self, node: Node, path: str, *, what: str = "text") -> Any:
        """The text of a scalar with its variables expanded, or NOTHING."""
        if not isinstance(node, Scalar):
            return self.problem(node.line, path, f"{what} is needed, not {_what(node)}")
        try:
            text = expand(node.text, self.environ)
            text.encode()
        except UnsetVariableError as error:
            self.unset.append(Unset(path, node.line, error.name))
            return NOTHING
        except UnicodeEncodeError:
            return self.problem(node.line, path, "the value is no valid text")
        except ValueError as error:
            return self.problem(node.line, path, str(error), "write $${ for a plain ${")
        if any(character < " " or character == "\x7f" for character in text):
            return self.problem(node.line, path, "the value has control characters")
        return text

    def number(
        self,
        node: Node,
        kind: inspect.Type,
        path: str,
        *,
        what: str = "",
        hint: str = "",
        write: Callable[[Any], Any] = _plain,
    ) -> Any:
        """A number within the bounds of its type, or NOTHING; `what` names it in problems."""
        whole = isinstance(kind, inspect.IntType)
        what = what or ("a whole number" if whole else "a finite number")
        text = self.text(node, path, what=what)
        if text is NOTHING or not isinstance(node, Scalar):
            return NOTHING
        value = units.parse_integer(text) if whole else units.parse_number(text)
        if value is None or node.is_text:
            return self.problem(node.line, path, f"{what} is needed, not {_quote(node)}", hint)
        return self.bounded(value, node, kind, path, write)

    def bounded(
        self,
        value: float,
        node: Node,
        kind: inspect.Type,
        path: str,
        write: Callable[[Any], Any] = _plain,
    ) -> Any:
        """The value if it lies within the bounds of its type, else NOTHING."""
        if isinstance(kind, inspect.IntType | inspect.FloatType):
            if kind.ge is not None and value < kind.ge:
                message = f"must be at least {write(kind.ge)}, is {_quote(node)}"
                return self.problem(node.line, path, message)
            if kind.le is not None and value > kind.le:
                message = f"must be at most {write(kind.le)}, is {_quote(node)}"
                return self.problem(node.line, path, message)
        return value

    def choice(self, node: Node, choices: tuple[str, ...], path: str) -> Any:
        """One of some words, or NOTHING."""
        listed = ", ".join(choices)
        text = self.text(node, path, what=f"one of {listed}")
        if text is NOTHING or text in choices:
            return text
        near = nearest(text, choices)
        hint = f'did you mean "{near}"?' if near else ""
        return self.problem(node.line, path, f"must be one of {listed}; is {_quote(node)}", hint)

    def _read_leaf(self, node: Node, kind: inspect.Type, path: str) -> Any:
        if isinstance(kind, inspect.LiteralType):
            return self.choice(node, tuple(str(value) for value in kind.values), path)
        if isinstance(kind, inspect.BoolType):
            return self._boolean(node, path)
        if isinstance(kind, inspect.IntType | inspect.FloatType):
            return self.number(node, kind, path)
        if isinstance(kind, inspect.StrType):
            text = self.text(node, path)
            if text is not NOTHING and kind.pattern and not _matches(text, kind.pattern):
                return self.problem(node.line, path, f"must match {kind.pattern}")
            return text
        raise TypeError(kind)

    def _boolean(self, node: Node, path: str) -> Any:
        text = self.text(node, path, what="true or false")
        if text is NOTHING or not isinstance(node, Scalar):
            return NOTHING
        if not node.is_text and text in ("true", "True", "TRUE", "false", "False", "FALSE"):
            return text.lower() == "true"
        return self.problem(node.line, path, f"true or false is needed, not {_quote(node)}")

    def _unknown(self, key: Scalar, fields: Mapping[str, Any], path: str) -> None:
        # A hint takes milliseconds, and what has this many misspelt keys is something else.
        hint = hint_for(key.text, fields, path) if self._hints < _MOST_HINTS else ""
        self._hints += 1
        note = self.warn if self.unknown_keys == "warn" else self.problem
        note(key.line, _join(path, key.text), "unknown key", hint)


def is_null(node: Node) -> bool:
    """True for a node that says nothing."""
    return isinstance(node, Scalar) and node.is_null


def _is_none(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.NoneType)


def _matches(text: str, pattern: str) -> bool:
    return re.search(pattern, text) is not None


def _join(path: str, key: str) -> str:
    shown = key if len(key) <= 80 and key.isprintable() else ascii(key[:80])[1:-1]
    return f"{path}.{shown}" if path else shown


def _quote(node: Node) -> str:
    """As it stands in the file: a value from the environment may be a secret."""
    if not isinstance(node, Scalar):
        return _what(node)
    text = node.text if len(node.text) <= 40 else f"{node.text[:40]}…"
    return ascii(text) if not node.plain or not text.isprintable() else text


def _kind(node: Node) -> str:
    """What stands in the place of a section, unquoted: a key was often meant to stand below it."""
    return "a single value" if isinstance(node, Scalar) else _what(node)


def _what(node: Node) -> str:
    if isinstance(node, Sequence):
        return "a list"
    return "a mapping" if isinstance(node, MappingNode) else _quote(node)
