"""The nearest right key for a wrong one: misspelt on its own level, or at home on another.

People rarely invent keys. They slip on a letter, or they put the right word one level too high.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from functools import cache
from types import MappingProxyType

import msgspec
from msgspec import inspect

from sidecar.config.schema import ListenSection, Root, RuleSection

_NEAR = 0.8
_FAR = 0.6
ANY_NAME = "*"


def unwrap(kind: inspect.Type) -> inspect.Type:
    """The type behind its metadata and behind `| None`."""
    while True:
        if isinstance(kind, inspect.Metadata):
            kind = kind.type
        elif isinstance(kind, inspect.UnionType):
            kind = next(part for part in kind.types if not isinstance(part, inspect.NoneType))
        else:
            return kind


def _walk(kind: inspect.Type, path: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    kind = unwrap(kind)
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            here = (*path, field.encode_name)
            yield here
            if not _has_own_grammar(field.type):
                yield from _walk(field.type, here)
    elif isinstance(kind, inspect.DictType):
        yield from _walk(kind.value_type, (*path, ANY_NAME))


def _has_own_grammar(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.Metadata) and (
        bool(kind.extra and "kind" in kind.extra) or _has_own_grammar(kind.type)
    )


@cache
def all_paths() -> tuple[tuple[str, ...], ...]:
    """Every key of the file as a path; `*` stands for a name that is free."""
    root = tuple(_walk(inspect.type_info(Root), ()))
    listen = tuple(_walk(inspect.type_info(ListenSection), ("listen",)))
    rules = tuple(_walk(inspect.type_info(RuleSection), ("defaults", "rules[]")))
    return root + listen + rules


def nearest(word: str, choices: Iterable[str], cutoff: float = _FAR) -> str | None:
    """The most similar of the choices, if it is similar enough."""
    plain = _plain(word)
    scored = [(SequenceMatcher(None, plain, _plain(choice)).ratio(), choice) for choice in choices]
    best = max(scored, default=(0.0, ""), key=lambda pair: pair[0])
    return best[1] if best[0] >= cutoff else None


def hint_for(key: str, siblings: Iterable[str], path: str) -> str:
    """What to write instead of an unknown key; empty if nothing comes near.

    Args:
        key: the unknown key.
        siblings: the keys that are right on this level.
        path: where it stood, dotted, without the key itself.
    """
    siblings = tuple(siblings)
    word = key[:64]
    if near := nearest(word, siblings, _NEAR):
        return f'did you mean "{near}"?'
    if home := _home(word, path, 1.0):
        return f'it belongs under "{home}"'
    if near := nearest(word, siblings, _FAR):
        return f'did you mean "{near}"?'
    if home := _home(word, path, _NEAR):
        return f'did you mean "{home}"?'
    return ""


def _home(word: str, path: str, cutoff: float) -> str:
    """The closest place of the file that has such a key: its section, or its path if misspelt."""
    plain = _plain(word)
    here = path.split(".") if path else []
    found = [
        candidate
        for candidate in all_paths()
        if SequenceMatcher(None, plain, _plain(candidate[-1])).ratio() >= cutoff
    ]
    if not found:
        return ""
    best = max(found, key=lambda candidate: _shared(candidate, here))
    shown = _named(best, here)
    return ".".join(shown[:-1] if cutoff == 1.0 else shown) or "the top level"


def _shared(candidate: tuple[str, ...], here: list[str]) -> tuple[int, int]:
    same = 0
    for part, mine in zip(candidate, here, strict=False):
        if part not in (mine, ANY_NAME):
            break
        same += 1
    return same, -len(candidate)


def _named(candidate: tuple[str, ...], here: list[str]) -> list[str]:
    """With the free names filled in from where the reader stands."""
    return [
        here[index] if part == ANY_NAME and index < len(here) else part.replace(ANY_NAME, "NAME")
        for index, part in enumerate(candidate)
    ]


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")


@cache
def struct_fields(kind: type[msgspec.Struct]) -> Mapping[str, inspect.Field]:
    """The fields of a struct by the name they have in the file."""
    info = inspect.type_info(kind)
    if not isinstance(info, inspect.StructType):
        raise TypeError(kind)
    return MappingProxyType({field.encode_name: field for field in info.fields})


def struct_class(kind: inspect.Type) -> type[msgspec.Struct]:
    """The struct behind a type that is one."""
    struct = unwrap(kind)
    if not isinstance(struct, inspect.StructType):
        raise TypeError(kind)
    return struct.cls
