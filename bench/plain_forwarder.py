"""The peer to beat: a forwarder on aiohttp's server and ClientSession, and nothing else.

It is given every advantage that costs no code: uvloop, the low-level server without a router, no
access log, no cookies, no decompression, a pool without a limit. It passes bodies on as they come
and keeps connections on both sides.

    python -m bench.plain_forwarder PORT PREFIX=UPSTREAM …
"""

from __future__ import annotations

import asyncio
import signal
import sys

import aiohttp
from aiohttp import web
from yarl import URL

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


class Forwarder:
    """Sends `/PREFIX/rest` to `UPSTREAM/rest`."""

    def __init__(self, session: aiohttp.ClientSession, upstreams: dict[str, str]) -> None:
        self._session = session
        self._upstreams = upstreams

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        prefix, _, rest = request.raw_path[1:].partition("/")
        upstream = self._upstreams.get(prefix)
        if upstream is None:
            return web.Response(status=404)
        headers = [
            (name, value)
            for name, value in request.headers.items()
            if name.lower() not in HOP_BY_HOP and name.lower() != "host"
        ]
        async with self._session.request(
            request.method,
            URL(f"{upstream}/{rest}", encoded=True),
            headers=headers,
            data=request.content if request.body_exists else None,
            allow_redirects=False,
        ) as answer:
            response = web.StreamResponse(status=answer.status, reason=answer.reason)
            for name, value in answer.headers.items():
                if name.lower() not in HOP_BY_HOP:
                    response.headers.add(name, value)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response


async def serve(port: int, upstreams: dict[str, str]) -> None:
    """Serves until it is told to stop."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_read=600),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
    ) as session:
        server = web.Server(Forwarder(session, upstreams).handle, access_log=None)
        runner = web.ServerRunner(server)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
        await stop.wait()
        await runner.cleanup()


def main() -> None:
    try:
        import uvloop  # noqa: PLC0415

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    upstreams = dict(pair.split("=", 1) for pair in sys.argv[2:])
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(int(sys.argv[1]), upstreams))


if __name__ == "__main__":
    main()
