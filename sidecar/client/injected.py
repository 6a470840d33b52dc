"""A failure that the daemon was asked to make: the exception that a driver would have raised.

The driver is not imported for it. Who catches its exceptions has imported it already: the classes
that the daemon names are looked for among the modules that are loaded, and the first that is there
is raised, with the attributes that drivers give theirs. Where none is, `SidecarError` alone is: the
envelope says all the same.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sidecar.client.errors import SidecarError, enveloped

if TYPE_CHECKING:
    from sidecar.envelope.model import Envelope

_MOST_CLASSES = 16
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "sqlstate": ("sqlstate", "pgcode"),
    "code": ("code", "errno", "error_code"),
    "status": ("status", "status_code", "http_status"),
    "body": ("body", "json_body", "data", "details", "response"),
    "headers": ("headers",),
    "message": ("message", "msg", "pgerror", "user_message"),
}
"""What drivers and SDKs call what a report holds."""


def failure(envelope: Envelope, fault: Mapping[str, Any]) -> SidecarError:
    """What a guard raises in place of the call. Never raises itself.

    Args:
        envelope: of the failure.
        fault: what the daemon said of it: `rule`, `error` as in a report, `raises`.
    """
    try:
        raised = _made(fault)
        error = SidecarError(envelope) if raised is None else enveloped(raised, envelope)
    except Exception:  # noqa: BLE001 - classes of any library; the plain one says as much
        error = SidecarError(envelope)
    error.add_note(f"an injected fault: {fault.get('rule')}")
    return error


def _made(fault: Mapping[str, Any]) -> Exception | None:
    told, names = fault.get("error"), fault.get("raises")
    if not isinstance(told, dict) or not isinstance(names, list):
        return None
    for name in names[:_MOST_CLASSES]:
        kind = _loaded(name)
        if kind is not None:
            return _instance(kind, told)
    return None


def _loaded(name: object) -> type[Exception] | None:
    """The class of a dotted name, if its module is loaded."""
    if not isinstance(name, str):
        return None
    module, _, attribute = name.rpartition(".")
    found = getattr(sys.modules.get(module), attribute, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _instance(kind: type[Exception], told: Mapping[str, Any]) -> Exception:
    """An exception of a class, by its constructor if that takes words alone."""
    message = str(told.get("message", ""))
    if issubclass(kind, OSError) and isinstance(told.get("errno"), int):
        return kind(told["errno"], message.partition("] ")[2] or message)
    attributes = _attributes(kind, told)

    def body(namespace: dict[str, Any]) -> None:
        namespace.update(attributes)
        namespace["__module__"] = kind.__module__
        namespace["__qualname__"] = kind.__qualname__
        namespace["__str__"] = lambda _self: message

    args = told.get("args")
    made: Any = types.new_class(kind.__name__, (kind,), exec_body=body)
    error = _constructed(made, message)
    # What the constructor has set to nothing stands in front of what the class says.
    vars(error).update((name, attributes[name]) for name in vars(error).keys() & attributes.keys())
    error.args = tuple(args) if isinstance(args, list) else (message,)
    try:
        repr(error)
    except Exception:  # noqa: BLE001 - it misses what only its constructor knows
        made.__repr__ = lambda _self: f"{kind.__name__}({message!r})"
    return error


def _constructed(made: Any, message: str) -> Exception:
    """With what its other methods and properties need, where its constructor may be called."""
    try:
        error: Exception = made(message)
    except Exception:  # noqa: BLE001 - it asks for an answer, a request or anything
        error = made.__new__(made)
    return error


def _attributes(kind: type[Exception], told: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, aliases in _ALIASES.items():
        value = told.get(name)
        if name == "headers" and isinstance(value, list):
            value = dict(value)
        if value is not None:
            found |= dict.fromkeys(aliases, value)
    attrs = told.get("attrs")
    if isinstance(attrs, dict):
        found |= {name: value for name, value in attrs.items() if name.isidentifier()}
    grpc = sys.modules.get("grpc")
    if grpc is not None and issubclass(kind, grpc.RpcError):
        # Here code and words are what methods give.
        code, message = getattr(grpc.StatusCode, str(told.get("code"))), told.get("message")
        return {"code": lambda _self: code, "details": lambda _self: message}
    # A method is no place for a value.
    return {name: value for name, value in found.items() if not callable(getattr(kind, name, None))}
