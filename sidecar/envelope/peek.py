"""Reads attributes of foreign objects without waking them.

An exception of a library may hold a whole answer, an open socket or a lazy property that asks a
server. Only what already lies there is read: the object's own members, its slots, and plain values
of its class. A property runs only where its library is known to compute it from these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MemberDescriptorType
from typing import Any

#: As much of a text, or of a body, as is kept.
MOST_TEXT = 65536
_MOST_ARGUMENT = 4096
_MOST_MEMBERS = 64
_DEEPEST = 5

_NOTHING = object()


def member(owner: object, name: str) -> Any:
    """The value of an attribute that lies there, or None: absent, or it would have to be computed.

    Args:
        owner: any object.
        name: of the attribute.
    """
    try:
        own = object.__getattribute__(owner, "__dict__")
        if isinstance(own, dict) and name in own:
            return own[name]
    except Exception:  # noqa: BLE001, S110 - an object without a dictionary of its own, or a hostile one
        pass
    try:
        for kind in type(owner).__mro__:
            found = vars(kind).get(name, _NOTHING)
            if found is _NOTHING:
                continue
            if isinstance(found, MemberDescriptorType):
                return found.__get__(owner, type(owner))
            return None if hasattr(type(found), "__get__") else found
    except Exception:  # noqa: BLE001 - an empty slot, or a metaclass that does anything
        return None
    return None


def woken(owner: object, name: str) -> Any:
    """The value of a property that its library computes from members alone; None if it fails."""
    try:
        return getattr(owner, name, None)
    except Exception:  # noqa: BLE001 - what a library's property raises is not ours to know
        return None


def asked(call: Callable[[], Any]) -> Any:
    """What a method answers that is known to do no I/O; None if it fails."""
    try:
        return call()
    except Exception:  # noqa: BLE001 - as above
        return None


def members(owner: object) -> dict[str, Any]:
    """The object's own plain members that a person could use: texts, numbers, truths."""
    try:
        own = object.__getattribute__(owner, "__dict__")
        held = list(own.items())[: 2 * _MOST_MEMBERS] if isinstance(own, dict) else []
    except Exception:  # noqa: BLE001 - as above
        return {}
    return {
        name: value[:_MOST_ARGUMENT] if isinstance(value, str) else value
        for name, value in held
        if type(name) is str and not name.startswith("_") and type(value) in {str, int, float, bool}
    }


def text_of(error: BaseException) -> str:
    """Its text, at most 64 KiB; empty if it cannot be told."""
    try:
        return str(error)[:MOST_TEXT]
    except Exception:  # noqa: BLE001 - a library's __str__ may do anything
        return ""


def plain(value: Any, deep: int = _DEEPEST) -> Any:
    """A value as plain data: objects become their class, texts and lists are cut.

    Exceptions keep their repr, for it names a class and a number.
    """
    if value is None or type(value) in {bool, int, float}:
        return value
    if isinstance(value, str):
        return str.__str__(value)[:_MOST_ARGUMENT]
    if isinstance(value, bytes | bytearray):
        return bytes(value[:_MOST_ARGUMENT]).decode("utf-8", "replace")
    if isinstance(value, BaseException):
        return _repr(value)
    try:
        if deep and isinstance(value, Mapping):
            pairs = list(value.items())[:_MOST_MEMBERS]
            return {str(plain(name, 0)): plain(held, deep - 1) for name, held in pairs}
        if deep and isinstance(value, list | tuple | set | frozenset):
            return [plain(one, deep - 1) for one in list(value)[:_MOST_MEMBERS]]
    except Exception:  # noqa: BLE001 - a mapping of a library may do anything
        return f"<{type(value).__name__}>"
    return f"<{type(value).__module__}.{type(value).__qualname__} object>"


def _repr(error: BaseException) -> str:
    try:
        return repr(error)[:_MOST_ARGUMENT]
    except Exception:  # noqa: BLE001 - as above
        return type(error).__name__


def body_of(value: Any) -> Any:
    """A body as plain data: decoded JSON as it is, bytes as text; None for streams and the like."""
    if isinstance(value, bytes | bytearray):
        return bytes(value[:MOST_TEXT]).decode("utf-8", "replace")
    if isinstance(value, str):
        return str.__str__(value)[:MOST_TEXT]
    if isinstance(value, Mapping | list | tuple):
        return _json(value, 12)
    return None


def _json(value: Any, deep: int) -> Any:
    """As `plain`, with the depth and the length of a body."""
    if isinstance(value, str):
        return str.__str__(value)[:MOST_TEXT]
    try:
        if deep and isinstance(value, Mapping):
            return {str(name): _json(held, deep - 1) for name, held in list(value.items())[:512]}
        if deep and isinstance(value, list | tuple):
            return [_json(one, deep - 1) for one in value[:512]]
    except Exception:  # noqa: BLE001 - as above
        return None
    return plain(value, 2)


def headers_of(value: Any) -> list[tuple[str, str]]:
    """Headers of any library as pairs; none if they cannot be read.

    Mappings, multi-mappings, messages of the standard library and lists of pairs; names and values
    may be bytes.
    """
    try:
        items = _items(value)
        return [(_header(name), _header(held)) for name, held in list(items)[:256]]
    except Exception:  # noqa: BLE001 - the containers of five libraries
        return []


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    many = getattr(type(value), "multi_items", None)
    if many is not None:
        return list(value.multi_items())
    if isinstance(value, Mapping) or hasattr(type(value), "items"):
        return list(value.items())
    return [tuple(pair) for pair in value if isinstance(pair, list | tuple) and len(pair) == 2]


def _header(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")[:MOST_TEXT]
    return str(value)[:MOST_TEXT]
