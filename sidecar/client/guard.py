"""Guards a call that the agent makes itself: a permit before it, an envelope and a report after it.

    with guard("orders-db"):
        connection.execute(...)

The daemon keeps the breaker; this process makes the call and judges its failures. Nothing here
makes a call wait or fail that would not have: where the daemon is away, slow or wrong, it runs.

What is no failure of the dependency (a cancelled task, a generator that is closed, Ctrl-C) passes
as it is and counts as neutral; so does what a guard nearer to the failure has reported already.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from sidecar.client.address import given_address, given_token
from sidecar.client.daemon import BUDGET, Daemon, daemon_at
from sidecar.client.errors import CONTROL_FLOW, BreakerOpen, SidecarError, enveloped
from sidecar.client.functions import is_async, is_generator, is_stream
from sidecar.client.given import Given, Injection, Permit, Refusal
from sidecar.client.reports import neutral
from sidecar.client.running import Running, owner_here, task_here
from sidecar.client.workflow import current_or_made

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_PHASES = (None, "connect", "commit")
_SOURCES = (None, "database", "sdk")
_log = logging.getLogger("sidecar.client")


@dataclass(frozen=True, slots=True)
class Entry:
    """What `with guard(…) as entry` gives.

    Attributes:
        correlation_id: under which the daemon logs the call; to be sent along with it.
        guarded: whether the daemon gave a permit; False where it is away.
    """

    correlation_id: str
    guarded: bool


_misled: set[str] = set()


def guard(
    name: str,
    *,
    phase: str | None = None,
    source: str | None = None,
    vendor: str | None = None,
    sdk: str | None = None,
    timeout: float = BUDGET,
    admin: str | None = None,
    token: str | None = None,
) -> Guard:
    """Guard calls of one dependency, as a context manager or a decorator, sync or async.

    Args:
        name: of the dependency, as in `dependencies` of `breakers.yaml`.
        phase: `commit` for a COMMIT: where its outcome is unknown it is not retryable. `connect`
            for opening a connection.
        source: `database` or `sdk`; None to tell by the exception.
        vendor: the database (`postgresql`, …), where its exceptions do not tell.
        sdk: the SDK (`stripe`, …), where its exceptions do not tell.
        timeout: seconds that a call waits for its permit at most.
        admin: `http://host:port` or `unix:/path`; None for `BREAKER_SIDECAR_ADMIN`, else
            `http://localhost:7601`.
        token: of the admin plane; None for `BREAKER_SIDECAR_TOKEN`, else the file that
            `BREAKER_SIDECAR_TOKEN_FILE` names, else none.

    Raises:
        ValueError: if an argument can be none.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a dependency: lower-case letters, digits, dashes")
    if phase not in _PHASES or source not in _SOURCES:
        raise ValueError("phase is connect or commit, source is database or sdk")
    if admin is not None:
        daemon_at(admin, token)
    return Guard(name, phase, (source, vendor, sdk), timeout, admin, token)


class Guard:
    """Guards calls of one dependency; made by `guard`. May be entered often, and at once."""

    def __init__(
        self,
        name: str,
        phase: str | None,
        origin: tuple[str | None, str | None, str | None],
        timeout: float,
        admin: str | None,
        token: str | None,
    ) -> None:
        self.name = name
        self._phase = phase
        self._origin = origin
        self._timeout = timeout
        self._admin = admin
        self._token = token
        self._running: list[Running] = []

    def __repr__(self) -> str:
        return f"guard({self.name!r})"

    # -- as a context manager ---------------------------------------------------------------

    def __enter__(self) -> Entry:
        id_, daemon = current_or_made(), self._daemon()
        given: Given = None
        if daemon is not None:
            given = daemon.permit(self.name, id_, self._timeout, self._phase)
        return self._entered(given, daemon, id_)

    async def __aenter__(self) -> Entry:
        id_, daemon = current_or_made(), self._daemon()
        given: Given = None
        if daemon is not None and task_here() is not None:
            given = await daemon.permit_async(self.name, id_, self._timeout, self._phase)
        elif daemon is not None:
            # Another kind of loop, which is held for as long as loopback takes.
            given = daemon.permit(self.name, id_, self._timeout, self._phase)
        return self._entered(given, daemon, id_)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        call = self._left()
        if error is None:
            call.report(self.name, {"ok": True})
        elif not isinstance(error, Exception) or _passes(error):
            call.report(self.name, {"error": neutral(error)})
        else:
            self._fail(call, error)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Nothing is awaited: a task that is being cancelled reports like any other.
        self.__exit__(kind, error, trace)

    def _entered(self, given: Given, daemon: Daemon | None, correlation_id: str) -> Entry:
        if isinstance(given, Refusal) and (envelope := given.read()) is not None:
            if isinstance(given, Injection):
                from sidecar.client.injected import failure  # noqa: PLC0415 - only tests need it

                raise failure(envelope, given.fault)
            raise BreakerOpen(envelope)
        permit = given.id if isinstance(given, Permit) else None
        self._running.append(
            Running(permit, daemon, correlation_id, time.monotonic(), os.getpid(), owner_here())
        )
        return Entry(correlation_id, guarded=permit is not None)

    def _left(self) -> Running:
        """The call that ends here: the one that this task or thread entered last, else the last.

        Where a generator is driven by one thread after another, nothing better can be told; the
        permits of one dependency are alike.
        """
        owner = owner_here()
        while self._running:
            open_ = self._running[::-1]
            call = next((one for one in open_ if one.owner == owner), open_[0])
            try:
                self._running.remove(call)
            except ValueError:
                continue  # another thread took it meanwhile
            return call
        return Running(None, None, current_or_made(), time.monotonic(), 0, owner)

    def _fail(self, call: Running, error: Exception) -> None:
        """Judge, report, and raise with the envelope."""
        try:
            # First now something has failed: until here nothing of a third party was needed.
            from sidecar.client.judged import Origin, judge, told_of  # noqa: PLC0415

            judged = judge(
                error,
                Origin(*self._origin),
                phase=self._phase,
                correlation_id=call.correlation_id,
            )
            told = told_of(judged, error, self._phase)
        except Exception:  # noqa: BLE001 - a fault of our own must not take the place of the caller's
            _log.exception("a failure could not be judged, and passes as it is")
            call.report(self.name, {"error": neutral(error)})
            return
        call.report(self.name, {"error": told})
        raise enveloped(error, judged.envelope) from error

    # -- as a decorator ---------------------------------------------------------------------

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Guard every call of a function; of a generator, as long as it runs."""
        if is_stream(function):
            return cast("Callable[P, R]", self._guarded_stream(function))
        if is_generator(function):
            return cast("Callable[P, R]", self._guarded_generator(function))
        if is_async(function):
            return cast("Callable[P, R]", self._guarded_async(function))

        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._again():
                return function(*args, **kwargs)

        return guarded

    def _again(self) -> Guard:
        """A guard for one call, so that calls at the same time are told apart."""
        return Guard(self.name, self._phase, self._origin, self._timeout, self._admin, self._token)

    def _guarded_async(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            async with self._again():
                return await function(*args, **kwargs)

        return guarded

    def _guarded_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with self._again():
                return (yield from function(*args, **kwargs))

        return guarded

    def _guarded_stream(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def guarded(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            async with self._again(), aclosing(function(*args, **kwargs)) as items:
                async for item in items:
                    yield item

        return guarded

    # -- what is told to whom ---------------------------------------------------------------

    def _daemon(self) -> Daemon | None:
        """The daemon, or None where the environment names none that can be asked."""
        if self._admin is not None:
            return daemon_at(self._admin, self._token)
        address = given_address()
        try:
            return daemon_at(address, self._token or given_token())
        except (OSError, ValueError) as error:
            if address not in _misled:
                _misled.add(address)
                _log.warning("calls run unguarded: %s", error)
            return None


def _passes(error: Exception) -> bool:
    """No failure of this dependency: an iterator that ran out, or what was reported already."""
    if isinstance(error, ExceptionGroup):
        return all(isinstance(one, Exception) and _passes(one) for one in error.exceptions)
    return isinstance(error, (SidecarError, *CONTROL_FLOW))
