"""Retries by class, for functions and coroutines alike.

    @retry(idempotent=True, timeout=30)
    async def ask(prompt): ...

The failure is classified (`judged.py`), what may follow is decided (`policy.py`), and here it is
done: repaired, refreshed, waited for, called again. What comes out in the end is the last failure
with its envelope, and `gave_up` says why it was the last. A cancellation passes at once.
"""

from __future__ import annotations

import functools
import inspect
import random as _random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from sidecar.client.attempt import (
    ATTEMPT,
    Arguments,
    Attempt,
    named_parameters,
    new_key,
    signature_of,
)
from sidecar.client.budget import Budget
from sidecar.client.course import Course
from sidecar.client.errors import CONTROL_FLOW
from sidecar.client.functions import is_async, is_generator, is_stream
from sidecar.client.policy import Action, Policy, Step
from sidecar.client.workflow import workflow

if TYPE_CHECKING:
    from sidecar.envelope.model import Envelope

__all__ = ["Attempt", "Budget", "Policy", "Retry", "retry"]

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_TIMEOUT = 45.0
"""Seconds for a call with all its attempts, as in stamina."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Repeats failed calls, each class by its policy.

    Attributes:
        policy: how often and after how long.
        idempotent: the call may be repeated whatever became of it. Without it only those are that
            certainly were not done, or whose function has a parameter `idempotency_key`.
        timeout: seconds for a call with all its attempts; None for no limit. It ends no attempt
            that runs: an attempt that asks for it is told what is left.
        repair: on `validation`, called once with the envelope and the call's arguments; gives the
            arguments to change, by name, or None if it cannot help.
        refresh: on `token_expired`, called once with the envelope; renews the credential.
        budget: of repeats; one for all the functions that call the same service is best.
        source: `database` or `sdk`; None to tell by the exception.
        vendor: the database (`postgresql`, …), where its exceptions do not tell.
        sdk: the SDK (`stripe`, …), where its exceptions do not tell.
        sleep: waits so many seconds; for coroutines it may be awaitable. None for `time.sleep`
            and `asyncio.sleep`.
        clock: monotonic seconds.
        random: draws from 0 to 1.
        make_key: makes an idempotency key.
    """

    policy: Policy = field(default_factory=Policy)
    idempotent: bool = False
    timeout: float | None = DEFAULT_TIMEOUT
    repair: Callable[..., Any] | None = None
    refresh: Callable[[Envelope], Any] | None = None
    budget: Budget = field(default_factory=Budget)
    source: str | None = None
    vendor: str | None = None
    sdk: str | None = None
    sleep: Callable[[float], Any] | None = None
    clock: Callable[[], float] = time.monotonic
    random: Callable[[], float] = _random.random
    make_key: Callable[[], str] = new_key

    def __post_init__(self) -> None:
        """Refuse what can mean nothing.

        Raises:
            ValueError: if an option can be none.
        """
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError("timeout is a number of seconds above 0, or None")
        if self.source not in {None, "database", "sdk"}:
            raise ValueError("source is database or sdk")

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """As a decorator: every call of the function is retried.

        Raises:
            TypeError: if it is a generator, whose first results cannot be taken back.
        """
        _check(function)
        if is_async(function):

            @functools.wraps(function)
            async def retried_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                coroutine = cast("Callable[P, Awaitable[Any]]", function)
                return await self.call_async(coroutine, *args, **kwargs)

            return cast("Callable[P, R]", _shown_as(function, retried_async))

        @functools.wraps(function)
        def retried(*args: P.args, **kwargs: P.kwargs) -> R:
            return self.call(function, *args, **kwargs)

        return _shown_as(function, retried)

    def call(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function, and again as its failures allow.

        Args:
            function: that is called.
            *args: its arguments.
            **kwargs: its arguments; `attempt` and `idempotency_key` are added if it takes them.

        Raises:
            SidecarError: the last failure, of its own class too.
        """
        with workflow() as id_:
            course = Course(self, Arguments(function, args, kwargs, self.make_key), id_)
            while True:
                try:
                    result = function(*course.arguments.args, **course.begin())
                except CONTROL_FLOW:
                    raise
                except Exception as error:  # noqa: BLE001 - its class decides, whatever it is
                    if not self._go_on(course, course.failed(error)):
                        course.end(error)
                else:
                    step = course.returned(result)
                    if step is None or not self._go_on(course, step):
                        return result
                    _let_go(result)

    async def call_async(
        self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Await a function, and again as its failures allow; as `call` otherwise."""
        with workflow() as id_:
            course = Course(self, Arguments(function, args, kwargs, self.make_key), id_)
            while True:
                try:
                    result = await function(*course.arguments.args, **course.begin())
                except CONTROL_FLOW:
                    raise
                except Exception as error:  # noqa: BLE001 - as above
                    if not await self._go_on_async(course, course.failed(error)):
                        course.end(error)
                else:
                    step = course.returned(result)
                    if step is None or not await self._go_on_async(course, step):
                        return result
                    await _let_go_async(result)

    def _go_on(self, course: Course, step: Step) -> bool:
        """Do what has to come before the next attempt; False where there is none."""
        if step.action is Action.STOP:
            return False
        if step.action is not Action.REPEAT:
            try:
                mended = course.mend(step)
            except Exception as error:  # noqa: BLE001 - the caller's function; the failure escalates
                return course.not_mended(step, error)
            if not course.mended(step, mended):
                return False
        if step.wait > 0:
            (self.sleep or time.sleep)(step.wait)
        return course.in_time()

    async def _go_on_async(self, course: Course, step: Step) -> bool:
        if step.action is Action.STOP:
            return False
        if step.action is not Action.REPEAT:
            try:
                mended = await _awaited(course.mend(step))
            except Exception as error:  # noqa: BLE001 - as above
                return course.not_mended(step, error)
            if not course.mended(step, mended):
                return False
        if step.wait > 0:
            await _awaited((self.sleep or _sleep_async)(step.wait))
        return course.in_time()


@overload
def retry(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def retry(
    *,
    policy: Policy | None = None,
    idempotent: bool = False,
    timeout: float | None = DEFAULT_TIMEOUT,
    repair: Callable[..., Any] | None = None,
    refresh: Callable[[Envelope], Any] | None = None,
    budget: Budget | None = None,
    source: str | None = None,
    vendor: str | None = None,
    sdk: str | None = None,
    sleep: Callable[[float], Any] | None = None,
    clock: Callable[[], float] = time.monotonic,
    random: Callable[[], float] = _random.random,
    make_key: Callable[[], str] = new_key,
) -> Retry: ...
def retry(function: Callable[P, R] | None = None, /, **options: Any) -> Callable[P, R] | Retry:
    """Retry calls of a function, by the class of its failures.

    As a decorator with or without arguments; without a function it gives a `Retry`, which is one
    too, and has `call` and `call_async`. The options are the attributes of `Retry`.

    Args:
        function: to be decorated.
        **options: see `Retry`.

    Raises:
        TypeError: if the function is a generator.
        ValueError: if an option can be none.
    """
    given = {name: value for name, value in options.items() if value is not None}
    given["timeout"] = options.get("timeout", DEFAULT_TIMEOUT)
    given.setdefault("budget", Budget(clock=options.get("clock", time.monotonic)))
    made = Retry(**given)
    return made if function is None else made(function)


def _check(function: Callable[..., Any]) -> None:
    if is_generator(function) or is_stream(function):
        raise TypeError("a generator is not retried: what it has yielded cannot be taken back")


def _shown_as(function: Callable[P, R], wrapper: Callable[P, R]) -> Callable[P, R]:
    """Hide `attempt`: what reads the signature, as frameworks for tools do, must not ask for it."""
    signature = signature_of(function)
    if signature is not None and ATTEMPT in named_parameters(signature):
        shown = [held for name, held in signature.parameters.items() if name != ATTEMPT]
        wrapper.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return wrapper


def _let_go(answer: Any) -> None:
    """Give back the connection of an answer that is not used."""
    close = getattr(answer, "close", None)
    if callable(close) and not is_async(close):
        close()


async def _let_go_async(answer: Any) -> None:
    for name in ("aclose", "close"):
        close = getattr(answer, name, None)
        if callable(close):
            await _awaited(close())
            return


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _sleep_async(seconds: float) -> None:
    from asyncio import sleep  # noqa: PLC0415 - who has no loop need not load it

    await sleep(seconds)
