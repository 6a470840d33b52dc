"""How a fault gets onto the wire: the daemon's own parser, clocks and judgement meet it as real.

Most faults are played by a connection that leads nowhere: bytes of an answer come out of it, or
nothing, or its end. What concerns a stream that is under way (a cut, an error event, a trickle) is
done to the provider's own answer, as its body is read. Either way nothing behind this point knows
that the fault was made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NoReturn, cast

from sidecar import clock
from sidecar.breaker.model import Kind
from sidecar.envelope.model import ErrorClass
from sidecar.faults import answers
from sidecar.faults.on_the_way import FaultyExchange, LateExchange
from sidecar.faults.played import Played, Step
from sidecar.proxy.exchange import Exchange
from sidecar.proxy.failures import UpstreamFailed

if TYPE_CHECKING:
    from aiohttp.connector import Connection

    from sidecar.envelope.dialects.base import Dialect
    from sidecar.faults.injector import Fault

MISSING: Final = 16
"""Bytes by which an answer of the wrong length is shorter than it says."""


_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}


async def open_exchange(
    fault: Fault,
    dialect: Dialect,
    path: str,
    connect: Callable[[], Awaitable[Connection]],
    keep: Callable[[Connection], None],
    *,
    method: str,
    head_only: bool,
    upgrades: bool,
    connect_timeout: float | None = None,
) -> Exchange:
    """The exchange of a call that gets a fault.

    Args:
        fault: which.
        dialect: of the provider.
        path: of the call at the provider.
        connect: leads to the provider, for the faults that need its own answer.
        keep: takes such a connection back.
        method: of the request.
        head_only: the request is a HEAD.
        upgrades: the request asks for another protocol.
        connect_timeout: seconds that a connection may take.

    Raises:
        UpstreamFailed: the connection is refused, or takes too long, by the fault or in earnest.
    """
    rule = fault.rule
    if rule.kind == "refuse":
        await _refuse(rule.after or 0.0, connect_timeout)
    loop = asyncio.get_running_loop()
    if not fault.is_played:
        connection = await connect()
        if rule.kind == "delay":
            return LateExchange(
                connection, loop, keep, rule.after, head_only=head_only, upgrades=upgrades
            )
        return FaultyExchange(
            connection, loop, keep, fault, dialect, path, method=method, head_only=head_only
        )
    steps = _steps(fault, dialect, path)
    played = cast("Connection", Played(loop, steps, rule.after or 0.0))
    return Exchange(played, loop, _drop, head_only=head_only, upgrades=upgrades)


async def _refuse(after: float, limit: float | None) -> NoReturn:
    code, detail = "connection_refused", "connection refused"
    if limit is not None and after > limit:
        after, code, detail = limit, "connect_timeout", "no connection within timeouts.connect"
    await asyncio.sleep(after)
    detail += " (an injected fault)"
    raise UpstreamFailed("connect_error", code, detail, kind=Kind.CONNECTION)


def _drop(played: Connection) -> None:
    """Nothing can follow on a connection that leads nowhere."""
    played.close()


def _steps(fault: Fault, dialect: Dialect, path: str) -> list[Step]:
    rule = fault.rule
    if rule.kind == "reset":
        return [ConnectionResetError("an injected fault")]
    if rule.kind == "hang":
        return []
    class_ = ErrorClass(rule.class_ or "transient")
    told = answers.answer(
        dialect, class_, path,
        wait=rule.retry_after, status=rule.status, code=rule.code, message=rule.message,
        now=clock.wall(),
    )  # fmt: skip
    if rule.kind == "fake_200":
        # The body stays what it was: only the status lies.
        told = told._replace(status=200)
    if rule.kind == "wrong_length":
        return [_written(told, len(told.body) + MISSING), None]
    return [_written(told, len(told.body))]


def _written(told: answers.Answer, length: int) -> bytes:
    lines = [f"HTTP/1.1 {told.status} {_REASONS.get(told.status, '')}"]
    lines += [f"{name}: {value}" for name, value in told.headers]
    lines.append(f"content-length: {length}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + told.body
