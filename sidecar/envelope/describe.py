"""A live exception as plain data: where each driver and SDK keeps what it knows.

Works on attributes and class names alone, and imports no driver and no SDK. It runs in the agent's
process, on an exception that is about to be raised: it must be quick, must not raise, and must not
wake properties that ask a server.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from sidecar.envelope.databases import described as databases
from sidecar.envelope.peek import member, plain, text_of
from sidecar.envelope.raised import DEEPEST, Raised
from sidecar.envelope.sdks import described as sdks

# Exceptions of one tree that are looked at: groups hold groups.
_MOST = 128
_MOST_ARGUMENTS = 32
# Where libraries keep what they wrap, beside `__cause__`.
_WRAPPING = (
    "orig", "cause", "_cause", "reason", "inner_exception", "error", "exception", "last_exception",
    "source", "api_error", "os_error", "_os_error",
)  # fmt: skip


def describe(error: BaseException, *, phase: str | None = None) -> Raised:
    """What a live exception tells. Never raises.

    Args:
        error: as it was caught.
        phase: `commit` where the call was a COMMIT, `connect` where it opened a connection.
    """
    return _Walk().described(error, phase, DEEPEST)


class _Walk:
    """One walk over an exception and what hangs on it; each is looked at once.

    A reader of a library may say what its exception wraps: the members `cause` and `exceptions` of
    what it tells are live exceptions, which are described here.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def described(self, error: BaseException, phase: str | None, deep: int) -> Raised:
        self._seen.add(id(error))
        try:
            return self._described(error, phase, deep)
        except Exception:  # noqa: BLE001 - an exception that shadows what all exceptions have
            return Raised(type=dotted(type(error)), message=text_of(error), phase=phase)

    def _described(self, error: BaseException, phase: str | None, deep: int) -> Raised:
        kind = type(error)
        names = (dotted(kind), *bases(kind))
        told = _told(error, names)
        cause = told.pop("cause", None)
        members = told.pop("exceptions", None)
        raised = Raised(
            type=names[0],
            mro=names[1:],
            args=_arguments(error),
            message=text_of(error),
            errno=_errno(error),
            phase=phase,
        )
        if told:
            raised = structs.replace(raised, **told)
        if deep <= 1:
            return raised
        if not isinstance(cause, BaseException):
            cause = wrapped(error)
        return structs.replace(
            raised,
            cause=self._new(cause, deep),
            exceptions=self._members(members or member_errors(error), deep),
        )

    def _new(self, error: BaseException | None, deep: int) -> Raised | None:
        if error is None or id(error) in self._seen or len(self._seen) >= _MOST:
            return None
        return self.described(error, None, deep - 1)

    def _members(self, errors: Iterable[BaseException], deep: int) -> tuple[Raised, ...]:
        found = (self._new(error, deep) for error in errors)
        return tuple(raised for raised in found if raised is not None)


def _told(error: BaseException, names: tuple[str, ...]) -> dict[str, Any]:
    try:
        return dict(databases.fields(error, names) or sdks.fields(error, names))
    except Exception:  # noqa: BLE001 - a reader met what its library never made; the rest still tells
        return {}


def wrapped(error: BaseException) -> BaseException | None:
    """What an exception was raised from, or wraps; None if it stands alone.

    Raised from, first; then what libraries keep under a name of theirs or as the first argument;
    last what was being handled, unless it was suppressed.
    """
    if error.__cause__ is not None:
        return error.__cause__
    for name in _WRAPPING:
        held = member(error, name)
        if isinstance(held, BaseException):
            return held
    first = error.args[0] if error.args else None
    if isinstance(first, BaseException):
        return first
    return None if error.__suppress_context__ else error.__context__


def member_errors(error: BaseException) -> list[BaseException]:
    """The members of a group, of the built-in kind or of its backport."""
    held: Any = ()
    if isinstance(error, BaseExceptionGroup):
        held = error.exceptions
    elif type(error).__name__.endswith("ExceptionGroup"):
        held = member(error, "_exceptions") or ()
    if not isinstance(held, list | tuple):
        return []
    return [one for one in held[:_MOST] if isinstance(one, BaseException)]


def _arguments(error: BaseException) -> tuple[Any, ...]:
    return tuple(plain(one) for one in error.args[:_MOST_ARGUMENTS])


def _errno(error: BaseException) -> int | None:
    number = error.errno if isinstance(error, OSError) else member(error, "errno")
    return number if type(number) is int else None


_ROOTS = {"Exception", "BaseException", "object"}


def dotted(kind: type) -> str:
    """The dotted name of a class; a builtin has none but its own."""
    module, name = kind.__module__, kind.__qualname__
    return name if module in {"", "builtins"} else f"{module}.{name}"


def bases(kind: type) -> tuple[str, ...]:
    """The dotted names of its bases, the nearest first, without the roots of all exceptions."""
    return tuple(name for base in kind.__mro__[1:] if (name := dotted(base)) not in _ROOTS)
