"""One logical call of `retry`: its attempts, its one idempotency key, and its arguments.

The key is made once and goes with every attempt, so that the other side can tell a repeat from a
second order. A function gets it by having a parameter `idempotency_key`; one that has a parameter
`attempt` gets the whole record.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

KEY, ATTEMPT = "idempotency_key", "attempt"
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt.

    Attributes:
        number: 1 for the first.
        idempotency_key: the same for every attempt of one call.
        correlation_id: of the call, or of the workflow that it is a step of.
        left: seconds to the deadline when the attempt began; None without one.
    """

    number: int
    idempotency_key: str
    correlation_id: str
    left: float | None

    @property
    def headers(self) -> dict[str, str]:
        """Both ids as HTTP headers, for an `extra_headers` or the like."""
        return {"idempotency-key": self.idempotency_key, "x-correlation-id": self.correlation_id}


def new_key() -> str:
    """A new idempotency key: a random UUID, as the services that read them recommend."""
    return str(uuid.uuid4())


class Arguments:
    """The arguments of a call, which a repair may change, and what is added to each attempt.

    Args:
        function: that is called.
        args: positional arguments.
        kwargs: arguments by name.
        make_key: makes the idempotency key.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        make_key: Callable[[], str] = new_key,
    ) -> None:
        self.args, self.kwargs = args, kwargs
        self._signature = signature_of(function)
        named = named_parameters(self._signature)
        self._wants_attempt = ATTEMPT in named
        given = self._given(KEY) if KEY in named else None
        self.has_key = KEY in named
        """Whether the function sends the key, and so may be repeated."""
        self._adds_key = self.has_key and given is None
        self.key = given if isinstance(given, str) and given else make_key()

    def for_attempt(self, attempt: Attempt) -> dict[str, Any]:
        """The arguments by name of one attempt."""
        added: dict[str, Any] = {}
        if self._wants_attempt:
            added[ATTEMPT] = attempt
        if self._adds_key:
            added[KEY] = self.key
        return {**self.kwargs, **added} if added else self.kwargs

    def change(self, changes: Mapping[str, Any]) -> None:
        """Take other values for some parameters.

        Raises:
            TypeError: if the function has no such parameter.
        """
        if self._signature is None:
            self.kwargs = {**self.kwargs, **changes}
            return
        bound = self._signature.bind_partial(*self.args, **self.kwargs)
        rest = next(
            (p.name for p in self._signature.parameters.values() if p.kind is p.VAR_KEYWORD), None
        )
        for name, value in changes.items():
            if name in self._signature.parameters and name != rest:
                bound.arguments[name] = value
            elif rest is not None:
                bound.arguments[rest] = {**bound.arguments.get(rest, {}), name: value}
            else:
                raise TypeError(f"a repair changed {name!r}, which the function does not take")
        order = list(self._signature.parameters)
        bound.arguments = dict(
            sorted(bound.arguments.items(), key=lambda item: order.index(item[0]))
        )
        self.args, self.kwargs = bound.args, bound.kwargs

    def _given(self, name: str) -> Any:
        if self._signature is None:
            return None
        try:
            return self._signature.bind_partial(*self.args, **self.kwargs).arguments.get(name)
        except TypeError:
            return None  # the call itself will say what is wrong with it


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of a function; None where it has none that could be read."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def named_parameters(signature: inspect.Signature | None) -> frozenset[str]:
    """The parameters that can be given by name."""
    if signature is None:
        return frozenset()
    held = signature.parameters.values()
    return frozenset(parameter.name for parameter in held if parameter.kind in _NAMED)
