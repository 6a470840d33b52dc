"""What a driver or an SDK raised, as plain data: the one form in which exceptions are judged.

It comes from a live exception (`describe.py`), from a report of the agent's process or from a
recorded case. The names of classes, attributes and causes are kept, the objects are not: no driver
and no SDK is ever imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

import msgspec

from sidecar.envelope.headers import Headers

#: Causes behind causes that are looked at; SQLAlchemy over a pool over a driver is four.
DEEPEST = 10
#: Members of an exception group that are looked at.
_MOST_MEMBERS = 64
_MOST_NAMES = 64


class Raised(msgspec.Struct, frozen=True, kw_only=True):
    """One exception.

    Attributes:
        type: its dotted class name; a builtin has no dots.
        mro: the dotted names of its bases, the nearest first, the builtin roots left out.
        code: what its own code attribute holds, whatever that means there.
        sqlstate: five characters, where a driver gives them.
        status: an HTTP status, where it carries one.
        headers: of the answer it was raised for.
        body: of that answer: decoded JSON, or text.
        args: its arguments.
        message: its text.
        attrs: further attributes that tell something, by their dotted names (`diag.severity`).
        errno: the operating system's number.
        phase: `connect` or `commit`, where the call was one.
        cause: what it was raised from, or wraps.
        exceptions: the members of a group.
    """

    type: str
    mro: tuple[str, ...] = ()
    code: str | int | float | None = None
    sqlstate: str | None = None
    status: int | None = None
    headers: Headers = Headers()
    body: Any = None
    args: tuple[Any, ...] = ()
    message: str = ""
    attrs: Mapping[str, Any] = {}
    errno: int | None = None
    phase: str | None = None
    cause: Raised | None = None
    exceptions: tuple[Raised, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Its dotted class name and those of its bases, the most special first."""
        return (self.type, *self.mro)

    @property
    def name(self) -> str:
        """Its class name without the module."""
        return self.type.rpartition(".")[2]

    @property
    def family(self) -> str:
        """The top-level package of its class; empty for a builtin."""
        return self.type.partition(".")[0] if "." in self.type else ""

    def is_a(self, *dotted: str) -> bool:
        """Whether it is of one of these classes, by their dotted names."""
        return any(name in dotted for name in self.names)

    def chain(self) -> Iterator[Raised]:
        """Itself, then what it was raised from, outermost first."""
        here: Raised | None = self
        for _ in range(DEEPEST):
            if here is None:
                return
            yield here
            here = here.cause


def recorded(error: Mapping[str, Any]) -> Raised:
    """Read an exception out of JSON, as a report or a recorded case holds it.

    Every member is optional, and one of a wrong type is left out: a report about a failure must
    not fail itself.
    """
    return _recorded(error, DEEPEST)


def _recorded(error: Mapping[str, Any], deep: int) -> Raised:
    code = error.get("code")
    attrs = error.get("attrs")
    cause = error.get("cause")
    members = error.get("exceptions")
    args = error.get("args")
    return Raised(
        type=_text(error.get("type")) or "Exception",
        mro=_names(error.get("mro")),
        code=code if _is_code(code) else None,
        sqlstate=_text(error.get("sqlstate")) or _text(error.get("pgcode")),
        status=_number(error.get("status")),
        headers=_headers(error.get("headers")),
        body=error.get("body"),
        args=tuple(args) if isinstance(args, list | tuple) else (),
        message=_text(error.get("message")) or "",
        attrs=attrs if isinstance(attrs, Mapping) else {},
        errno=_number(error.get("errno")),
        phase=_text(error.get("phase")),
        cause=_recorded(cause, deep - 1) if isinstance(cause, Mapping) and deep > 1 else None,
        exceptions=_members(members, deep),
    )


def _members(members: Any, deep: int) -> tuple[Raised, ...]:
    if not isinstance(members, list | tuple) or deep <= 1:
        return ()
    held = (member for member in members[:_MOST_MEMBERS] if isinstance(member, Mapping))
    return tuple(_recorded(member, deep - 1) for member in held)


def _is_code(value: Any) -> bool:
    # JSON as Python reads it has numbers that are none.
    finite = not isinstance(value, float) or isfinite(value)
    return isinstance(value, str | int | float) and not isinstance(value, bool) and finite


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)  # JSON has one kind of number, and some writers write 404.0
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        return int(value)
    return None


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        return ()
    return tuple(name for name in value[:_MOST_NAMES] if isinstance(name, str))


def _headers(value: Any) -> Headers:
    if isinstance(value, Mapping):
        value = list(value.items())
    if not isinstance(value, list | tuple):
        return Headers()
    pairs: list[tuple[str, str]] = []
    for pair in value:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            continue
        name, held = pair
        several = held if isinstance(held, list | tuple) else (held,)
        pairs += [(str(name), str(one)) for one in several]
    return Headers(pairs)
