"""A live exception as plain data: where each driver and SDK keeps what it knows.

Works on attributes and class names alone, and imports no driver and no SDK. It runs in the agent's
process, on an exception that is about to be raised: it must be quick, must not raise, and must not
wake properties that ask a server.
"""

from __future__ import annotations

from msgspec import structs

from sidecar.envelope.databases import described as databases
from sidecar.envelope.raised import DEEPEST, Raised
from sidecar.envelope.sdks import described as sdks


def describe(error: BaseException, *, phase: str | None = None) -> Raised:
    """What a live exception tells.

    Args:
        error: as it was caught.
        phase: `commit` where the call was a COMMIT, `connect` where it opened a connection.
    """
    return _described(error, phase, DEEPEST)


def _described(error: BaseException, phase: str | None, deep: int) -> Raised:
    cause = error.__cause__
    kind = dotted(type(error))
    names = (kind, *bases(type(error)))
    raised = Raised(
        type=kind,
        mro=names[1:],
        args=tuple(error.args),
        message=_message(error),
        phase=phase,
        cause=_described(cause, None, deep - 1) if cause is not None and deep > 1 else None,
    )
    told = databases.fields(error, names) or sdks.fields(error, names)
    return structs.replace(raised, **told) if told else raised


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a driver's __str__ may do anything
        return ""


_ROOTS = {"Exception", "BaseException", "object"}


def dotted(kind: type) -> str:
    """The dotted name of a class; a builtin has none but its own."""
    module = getattr(kind, "__module__", "") or ""
    name = getattr(kind, "__qualname__", "") or kind.__name__
    return name if module in {"", "builtins"} else f"{module}.{name}"


def bases(kind: type) -> tuple[str, ...]:
    """The dotted names of its bases, the nearest first, without the roots of all exceptions."""
    return tuple(name for base in kind.__mro__[1:] if (name := dotted(base)) not in _ROOTS)
