"""aiohttp's server behind the admin and probe planes: one for each address, each with its rules.

The low-level server is used, without an application: routing would decode the path first. What
does not parse is answered in the plane's own words, since the parser's quote what they could not
read.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from sidecar.admin.answers import AdminError
from sidecar.admin.sockets import address_of, open_sockets, server_tls
from sidecar.config.addresses import Listen

_STOP_SECONDS = 2.0
_OPTIONS: dict[str, Any] = {
    "access_log": None,
    "auto_decompress": False,
    "keepalive_timeout": 30.0,
    "lingering_time": 1.0,
}


@dataclass(frozen=True, slots=True)
class Door:
    """What holds for the calls that come in by one address.

    Attributes:
        web: a browser could reach it, so Host and Origin are checked.
        exposed: other machines could reach it, so the token is needed for nearly everything.
    """

    web: bool
    exposed: bool

    @classmethod
    def of(cls, listen: Listen) -> Door:
        """The rules that follow from an address."""
        return cls(web=listen.kind != "unix", exposed=not listen.loopback)


Handler = Callable[[Door, web.BaseRequest], Awaitable[web.StreamResponse]]


class _Connection(web.RequestHandler):
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,  # noqa: ARG002 - the parser's words are not repeated
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        """Answer what could not be parsed, and what no handler caught."""
        if request.writer.output_size > 0:
            raise ConnectionError("the head of the answer was already sent")
        if status == 500:
            failure = AdminError(500, "internal_error", "a fault of the daemon's own; see its log")
        else:
            failure = AdminError(status, "bad_request", "the request is not valid HTTP/1.1")
        response = failure.answer()
        response.force_close()
        return response


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=asyncio.get_running_loop(), **_OPTIONS)


class Listeners:
    """The open addresses of one plane.

    Args:
        handler: answers a call; it gets the rules of the address that the call came in by.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._runners: list[web.ServerRunner] = []
        self._paths: list[Path] = []

    async def start(self, listens: Sequence[Listen]) -> tuple[str, ...]:
        """Listen on all addresses, or on none.

        Returns:
            Where it listens, ports filled in, as `listen` would be written.

        Raises:
            OSError: if an address cannot be bound or a certificate cannot be read.
        """
        addresses: list[str] = []
        try:
            for listen in listens:
                addresses += await self._open(listen)
        except BaseException:
            await self.stop()
            raise
        return tuple(addresses)

    async def _open(self, listen: Listen) -> list[str]:
        tls = server_tls(listen)
        sockets = open_sockets(listen)
        try:
            # The handler is cancelled when its caller leaves: an event stream ends at once.
            handler = functools.partial(self._handler, Door.of(listen))
            runner = web.ServerRunner(
                _Server(handler, handler_cancellation=True), shutdown_timeout=_STOP_SECONDS
            )
            self._runners.append(runner)
            await runner.setup()
            for sock in sockets:
                await web.SockSite(runner, sock, ssl_context=tls).start()
        except BaseException:
            for sock in sockets:
                sock.close()
            raise
        if listen.descriptor is None:
            self._paths += [
                Path(sock.getsockname()) for sock in sockets if sock.family == socket.AF_UNIX
            ]
        return [address_of(sock) for sock in sockets]

    async def stop(self) -> None:
        """Close all addresses; calls that run may end within two seconds."""
        runners, self._runners = self._runners, []
        paths, self._paths = self._paths, []
        await asyncio.gather(*(runner.cleanup() for runner in runners))
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink()
