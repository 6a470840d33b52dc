"""What kind of function is wrapped: one that is awaited, one that yields, or a plain one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine: also for partials and objects with `__call__`."""
    return _is(function, inspect.iscoroutinefunction)


def is_stream(function: Callable[..., Any]) -> bool:
    """Whether calling it gives an asynchronous generator."""
    return _is(function, inspect.isasyncgenfunction)


def is_generator(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a generator."""
    return _is(function, inspect.isgeneratorfunction)


def _is(function: Callable[..., Any], kind: Callable[[Any], bool]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return kind(function) or (
        not inspect.isroutine(function)
        and not inspect.isclass(function)
        and kind(getattr(function, "__call__", None))  # noqa: B004 - its own, to be looked at
    )
