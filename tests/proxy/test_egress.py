"""Through an egress proxy: a tunnel for https, credentials for the proxy alone."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

import pytest
import trustme

from .callers import call, chat
from .upstreams import Upstream, answer, says


class Tunnels:
    """A proxy that knows CONNECT and leads every tunnel to one port."""

    def __init__(self, port: int, refusal: bytes | None = None) -> None:
        self.heads: list[bytes] = []
        self._port = port
        self._refusal = refusal
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        other = None
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            if self._refusal is not None:
                writer.write(self._refusal)
                return
            far, other = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(self._pipe(reader, other), self._pipe(far, writer))
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(task)
            for end in (writer, other):
                if end is not None:
                    end.close()
                    with suppress(ConnectionError):
                        await end.wait_closed()

    @staticmethod
    async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while part := await reader.read(65536):
                writer.write(part)
                await writer.drain()
            writer.close()
        except ConnectionError:
            writer.close()


@pytest.fixture
async def secure(tmp_path):
    """An upstream that only speaks TLS under a name that no resolver knows."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("api.example.test").configure_cert(context)
    upstream = Upstream(says(answer()))
    await upstream.start(tls=context)
    yield upstream, {"ca": str(tmp_path / "ca.pem")}
    await upstream.stop()


async def test_https_through_a_tunnel(start, secure) -> None:
    upstream, tls = secure
    proxy = Tunnels(upstream.port)
    port = await proxy.start()
    section = {
        "upstream": "https://api.example.test",
        "tls": tls,
        "proxy": f"http://user:p%40ss@127.0.0.1:{port}",
    }
    running = await start({"up": section})
    for _ in range(3):
        found = await call(running.port, "/up/v1/chat/completions?x=1", "POST", chat())
        assert found.status == 200
    assert len(proxy.heads) == 1
    assert proxy.heads[0].startswith(b"CONNECT api.example.test:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjpwQHNz\r\n" in proxy.heads[0]
    seen = upstream.requests[0]
    assert seen.target == b"/v1/chat/completions?x=1"
    assert seen.get(b"host") == b"api.example.test"
    assert seen.get(b"proxy-authorization") is None
    await proxy.stop()


async def test_the_variables_are_honoured_for_upstreams(start, secure, monkeypatch) -> None:
    upstream, tls = secure
    proxy = Tunnels(upstream.port)
    port = await proxy.start()
    for name in ("HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
    running = await start({"up": {"upstream": "https://api.example.test", "tls": tls}})
    assert (await call(running.port)).status == 200
    assert proxy.heads
    monkeypatch.setenv("NO_PROXY", "example.test")
    spared = await start({"up": {"upstream": "https://api.example.test", "tls": tls}})
    found = await call(spared.port)
    assert (found.status, found.envelope["code"]) == (502, "dns_failure")
    await proxy.stop()


async def test_a_proxy_that_refuses(start, secure) -> None:
    upstream, tls = secure
    proxy = Tunnels(upstream.port, b"HTTP/1.1 407 Auth\r\nContent-Length: 0\r\n\r\n")
    port = await proxy.start()
    section = {
        "upstream": "https://api.example.test",
        "tls": tls,
        "proxy": f"http://127.0.0.1:{port}",
    }
    running = await start({"up": section})
    found = await call(running.port)
    assert (found.status, found.get("x-sidecar-decision")) == (503, "local_network")
    assert found.envelope["code"] == "local_network_down"
    assert "407" in found.envelope["message"]
    assert running.breaker("up").window.failure == 0, "the upstream has no part in it"
    await proxy.stop()
