"""YAML as a tree whose every node knows its line, and nothing more than a tree.

The file is read event by event, without recursion and with bounds, so that no file can take the
process down: not a large one, not a deep one, not one whose aliases multiply. Tags are refused,
so that nothing is ever constructed. Scalars stay text here: whether `off` is a word or a boolean
depends on the key, and only the schema knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from sidecar.config.problems import ConfigError, Problem

MOST_BYTES = 1024 * 1024
"""A file over this size is refused: a thousand providers, written out in full, need less."""

_MOST_NODES = 100_000
_MOST_DEPTH = 32
_TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")
_NULLS = ("", "~", "null", "Null", "NULL")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Scalar:
    """A leaf: its text, and whether it stood without quotes."""

    __slots__ = ("line", "plain", "text")

    def __init__(self, text: str, line: int, *, plain: bool) -> None:
        self.text = text
        self.line = line
        self.plain = plain

    @property
    def is_null(self) -> bool:
        """True for nothing at all, `~` and `null`, unless quoted."""
        return self.plain and self.text in _NULLS

    @property
    def is_text(self) -> bool:
        """True if it can only be text: quoted, and without a variable.

        Inside `{…}` YAML wants quotes around a `${VAR}`, so they say nothing about its type.
        """
        return not self.plain and "${" not in self.text


class Sequence:
    """A list of nodes."""

    __slots__ = ("items", "line")

    def __init__(self, line: int) -> None:
        self.line = line
        self.items: list[Node] = []


class Mapping:
    """Keys with their lines, and their nodes, in the order of the file; keys may repeat."""

    __slots__ = ("entries", "line")

    def __init__(self, line: int) -> None:
        self.line = line
        self.entries: list[tuple[Scalar, Node]] = []


Node = Scalar | Sequence | Mapping


def parse(content: bytes, source: str) -> Node | None:
    """The tree of a file, or None if the file holds no document.

    Args:
        content: the bytes of the file.
        source: what to call it in problems.

    Raises:
        ConfigError: if it is no YAML, or more than a plain tree of one document.
    """
    if len(content) > MOST_BYTES:
        raise _refused(source, None, f"the file is larger than {MOST_BYTES // 1024} KiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _refused(source, line, "the file is not UTF-8") from None
    try:
        return _Builder(source).build(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        at = mark.line + 1 if mark else None
        raise _refused(source, at, f"no valid YAML: {what}") from None
    except yaml.YAMLError:
        raise _refused(source, None, "no valid YAML: a character that YAML forbids") from None


def _refused(source: str, line: int | None, message: str, hint: str = "") -> ConfigError:
    return ConfigError([Problem(source, line, "", message, hint)])


class _Builder:
    """Puts events together; an alias becomes the very node that it names."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.anchors: dict[str, tuple[Node, int]] = {}
        self.open_anchors: list[str | None] = []
        self.stack: list[Sequence | Mapping] = []
        self.keys: list[Scalar | None] = []
        self.weights: list[int] = []
        self.root: Node | None = None

    def build(self, events: Iterator[Any]) -> Node | None:
        documents = 0
        for event in events:
            line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _refused(self.source, line, "a second document", "remove the line ---")
            elif isinstance(event, yaml.AliasEvent):
                self.add_alias(str(event.anchor), line)
            elif isinstance(event, yaml.ScalarEvent):
                self.check_tag(event.tag, line)
                plain = event.style in (None, "") and event.tag is None
                self.add(Scalar(event.value, line, plain=plain), 1, event.anchor)
            elif isinstance(event, yaml.CollectionStartEvent):
                self.start(event, line)
            elif isinstance(event, yaml.CollectionEndEvent):
                self.end(line)
        return self.root

    def start(self, event: Any, line: int) -> None:
        if event.tag not in (None, "!"):
            self.check_tag(event.tag, line, text_too=False)
        if len(self.stack) >= _MOST_DEPTH:
            raise _refused(self.source, line, f"more than {_MOST_DEPTH} levels")
        mapping = isinstance(event, yaml.MappingStartEvent)
        self.stack.append(Mapping(line) if mapping else Sequence(line))
        self.keys.append(None)
        self.weights.append(1)
        self.open_anchors.append(event.anchor)

    def end(self, line: int) -> None:
        node = self.stack.pop()
        self.keys.pop()
        if isinstance(node, Mapping):
            _merge(node, self.source)
        self.add(node, self.weights.pop(), self.open_anchors.pop(), line)

    def add_alias(self, anchor: str, line: int) -> None:
        if anchor not in self.anchors:
            inside = anchor in self.open_anchors
            what = "contains itself" if inside else "is not defined"
            raise _refused(self.source, line, f"the anchor of *{anchor} {what}")
        node, weight = self.anchors[anchor]
        self.add(node, weight, None, line)

    def add(self, node: Node, weight: int, anchor: str | None, line: int | None = None) -> None:
        """Put a node where it belongs; its weight counts what its aliases stand for."""
        line = line or node.line
        if anchor is not None:
            self.anchors[anchor] = (node, weight)
        if not self.stack:
            self.root = node
            return
        self.weights[-1] += weight
        if self.weights[-1] > _MOST_NODES:
            raise _refused(self.source, line, f"more than {_MOST_NODES} values, aliases included")
        parent = self.stack[-1]
        if isinstance(parent, Sequence):
            parent.items.append(node)
        elif self.keys[-1] is None:
            if not isinstance(node, Scalar):
                raise _refused(self.source, line, "a key must be a word")
            self.keys[-1] = Scalar(node.text, line, plain=node.plain)
        else:
            parent.entries.append((self.keys[-1], node))
            self.keys[-1] = None

    def check_tag(self, tag: str | None, line: int, *, text_too: bool = True) -> None:
        if not text_too or tag not in _TEXT_TAGS:
            raise _refused(self.source, line, "tags (!!…) are not allowed", "write the plain value")


def _merge(node: Mapping, source: str) -> None:
    """Resolve `<<`: what stands in the mapping itself wins, then the first of several sources."""
    own = [entry for entry in node.entries if not _is_merge(entry[0])]
    if len(own) == len(node.entries):
        return
    taken = {key.text for key, _ in own}
    for key, value in node.entries:
        if not _is_merge(key):
            continue
        for merged in value.items if isinstance(value, Sequence) else [value]:
            if not isinstance(merged, Mapping):
                raise _refused(source, key.line, "<< takes a mapping or a list of mappings")
            own.extend(entry for entry in merged.entries if entry[0].text not in taken)
            taken.update(key.text for key, _ in merged.entries)
    node.entries = own


def _is_merge(key: Scalar) -> bool:
    return key.plain and key.text == "<<"
