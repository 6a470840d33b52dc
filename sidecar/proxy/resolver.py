"""Names to addresses, each lookup in a thread of its own.

The system's resolver blocks, for many seconds where its servers are silent. In a pool that all
share, as loops have one, a few such lookups keep everybody else's waiting, and upstreams that are
well would be blamed for it. Here a lookup starts at once or says that this machine has no thread
left for it. The threads are daemonic, so that a silent server holds up no exit.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

LOOKUPS = 64
"""Lookups under way at a time, of all providers; each provider has one for each of its names."""

_threads = threading.Semaphore(LOOKUPS)

Found = Sequence[tuple[socket.AddressFamily, Any, int, Any, tuple[Any, ...]]]


class Resolver(AbstractResolver):
    """What a connector asks."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host.

        Raises:
            socket.gaierror: it has none, or nobody tells.
            OSError: with EAGAIN: no thread is left to ask.
        """
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Found] = loop.create_future()
        threads = _threads
        if not threads.acquire(blocking=False):
            raise _none_left()
        try:
            ask = partial(_ask, loop, told, threads, host, port, family)
            threading.Thread(target=ask, name="resolver", daemon=True).start()
        except RuntimeError:
            threads.release()
            raise _none_left() from None
        return [_address(host, one) for one in await told]

    async def close(self) -> None:
        """Nothing is kept."""


def _none_left() -> OSError:
    return OSError(errno.EAGAIN, "no thread is left for a lookup")


def _ask(
    loop: asyncio.AbstractEventLoop,
    told: asyncio.Future[Found],
    threads: threading.Semaphore,
    host: str,
    port: int,
    family: socket.AddressFamily,
) -> None:
    found: Any
    try:
        found = socket.getaddrinfo(
            host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
    except Exception as error:  # noqa: BLE001 - it is raised where it was asked
        found = error
    finally:
        threads.release()
    # The loop may be gone by now: then nobody waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_tell, told, found)


def _tell(told: asyncio.Future[Found], found: Any) -> None:
    if told.done():
        return
    if isinstance(found, Exception):
        told.set_exception(found)
    else:
        told.set_result(found)


def _address(host: str, found: tuple[Any, ...]) -> ResolveResult:
    family, _, proto, _, address = found
    number = address[0]
    if family == socket.AF_INET6 and len(address) > 3 and address[3]:
        # A link-local address means something on its interface only.
        number = f"{number.partition('%')[0]}%{address[3]}"
    return ResolveResult(
        hostname=host,
        host=number,
        port=address[1],
        family=family,
        proto=proto,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )
