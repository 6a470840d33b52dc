"""What guards and retries raise: the caller's own exceptions, with an envelope on them.

The exception that comes out is raised from the original and is of its class too, so that an
`except psycopg.errors.DeadlockDetected` that stood there before the guard still catches it. It is
made without running any constructor, and reads and writes everything but the envelope and what the
interpreter keeps on a raised exception (cause, traceback, notes) through to the original: what a
driver keeps in C, behind properties or in slots is then the original's own, not an empty copy.

Where no such class can be made (a class that forbids subclasses, as pydantic's `ValidationError`
does), a plain `SidecarError` is raised from the original.
"""

from __future__ import annotations

import pickle
import types
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from sidecar.envelope.model import Envelope

__all__ = ["CONTROL_FLOW", "BreakerOpen", "SidecarError", "enveloped", "original_of"]

CONTROL_FLOW = (StopIteration, StopAsyncIteration)
"""How iterators end: no failures, though Python calls them exceptions."""

_KINDS = 256
"""Classes of exceptions whose twin is kept; a program meets a few dozen."""

_ENVELOPE, _ORIGINAL, _GAVE_UP = "envelope", "original", "gave_up"
_OWN = frozenset(
    {
        _ENVELOPE,
        _GAVE_UP,
        "__class__",
        "__cause__",
        "__context__",
        "__notes__",
        "__suppress_context__",
        "__traceback__",
        "__reduce__",
        "__reduce_ex__",
        "add_note",
        "with_traceback",
    }
)
"""What is the raised exception's own; everything else is the original's."""


class SidecarError(Exception):
    """A failure with its envelope.

    Attributes:
        envelope: what failed, in the eight fields.
        gave_up: why `retry` did not repeat the call; None where none was asked.
    """

    envelope: Envelope
    gave_up: str | None = None

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope)
        self.envelope = envelope

    def __init_subclass__(cls, **_more: Any) -> None:
        """Stop here: a twin is no new class to the registries that libraries keep of theirs."""

    def __str__(self) -> str:
        return f"{self.envelope.code}: {self.envelope.message}"


class BreakerOpen(SidecarError):
    """The call was not made: the breaker of its dependency is open.

    `envelope.retry_after` says for how many seconds.
    """


def enveloped(original: Exception, envelope: Envelope) -> SidecarError:
    """The exception to raise from the original. Never raises.

    Args:
        original: as it was caught.
        envelope: what it means.

    Returns:
        An exception of the original's class and of `SidecarError`; a plain `SidecarError` where
        the class allows no subclass.
    """
    try:
        twin: SidecarError = _bare(_twin_of(cast("Any", type(original))), original)
        own = object.__getattribute__(twin, "__dict__")
        own[_ENVELOPE], own[_ORIGINAL] = envelope, original
    except Exception:  # noqa: BLE001 - metaclasses and hooks of any library; the plain one says as much
        return SidecarError(envelope)
    return twin


def original_of(error: BaseException) -> BaseException:
    """What was raised before a guard or a retry put its envelope on it; itself otherwise."""
    if isinstance(error, _Twin):
        original: BaseException = object.__getattribute__(error, "__dict__")[_ORIGINAL]
        return original
    return error


class _Twin(SidecarError):
    """The part of a twin that is not the original's."""

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__(self, "__dict__")
        if name not in _OWN:
            return getattr(own[_ORIGINAL], name)
        # Asked first, for the original's class may have a property of this name.
        return own[name] if name in own else super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = object.__getattribute__(self, "__dict__")
        if name in {_ENVELOPE, _GAVE_UP}:
            own[name] = value
        elif name in _OWN:
            BaseException.__setattr__(self, name, value)
        else:
            setattr(own[_ORIGINAL], name, value)

    def __delattr__(self, name: str) -> None:
        if name in _OWN:
            BaseException.__delattr__(self, name)
        else:
            delattr(object.__getattribute__(self, "__dict__")[_ORIGINAL], name)

    def __str__(self) -> str:
        return str(original_of(self))

    def __repr__(self) -> str:
        return repr(original_of(self))

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return _restored, (_pickled(original_of(self)), self.envelope, self.gave_up)

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(2)


@lru_cache(maxsize=_KINDS)
def _twin_of(kind: Any) -> Any:
    """The class that is both; it keeps the name, by which logs and monitors group."""

    def body(namespace: dict[str, Any]) -> None:
        namespace["__module__"] = kind.__module__
        namespace["__qualname__"] = kind.__qualname__
        namespace["__doc__"] = kind.__doc__

    return types.new_class(kind.__name__, (_Twin, kind), exec_body=body)


def _bare(twin: Any, original: Exception) -> Any:
    """An instance that no constructor has seen: those of libraries ask for what they like."""
    if isinstance(original, ExceptionGroup):
        # Split and matched by the interpreter itself, which looks past attributes.
        return BaseExceptionGroup.__new__(twin, original.message, original.exceptions)
    for base in twin.__mro__:
        new = vars(base).get("__new__")
        if isinstance(new, types.BuiltinFunctionType):
            try:
                return new(twin)
            except TypeError:
                # Of several bases written in C only one knows the layout of them all.
                continue
    raise TypeError(f"no way to make a {twin.__qualname__}")


def _pickled(original: BaseException) -> bytes | None:
    try:
        return pickle.dumps(original)
    except Exception:  # noqa: BLE001 - what an exception holds on to may be anything
        return None


def _restored(pickled: bytes | None, envelope: Envelope, gave_up: str | None) -> SidecarError:
    """Read back; an original that cannot be costs its class, not the pool that carries it."""
    original: Any = None
    if pickled is not None:
        try:
            original = pickle.loads(pickled)  # noqa: S301 - inside a pickle that is being read already
        except Exception:  # noqa: BLE001 - constructors that ask for more than they told
            original = None
    error = enveloped(original, envelope) if isinstance(original, Exception) else None
    error = error or SidecarError(envelope)
    error.gave_up = gave_up
    return error
