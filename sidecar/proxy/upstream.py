"""The upstream side: connections of one provider, and one exchange over one of them.

aiohttp's connector opens, pools and resolves (DNS, TLS, proxies, Unix sockets); its parser reads.
The head and the body are written here, raw, since every higher layer rewrites them. The library's
exceptions become `UpstreamFailed` in this file and nowhere else.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast
from urllib.parse import unquote, urlsplit
from urllib.request import (  # type: ignore[attr-defined]
    getproxies_environment,
    proxy_bypass_environment,
)

import aiohttp
from aiohttp import ClientTimeout, StreamReader, TCPConnector, UnixConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import BaseConnector, Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import EMPTY_PAYLOAD
from multidict import CIMultiDict
from yarl import URL

from sidecar.breaker.model import Kind
from sidecar.config.resolved import Provider
from sidecar.envelope.model import Verdict
from sidecar.proxy.failures import CallerGone, Refused, UpstreamFailed
from sidecar.proxy.limits import MAX_HEADERS, MAX_LINE, READ_SIZE

DNS_TTL = 10
"""Seconds an address is cached: a service that moved is found again within one of these."""


class UpstreamProtocol(ResponseHandler):
    """A connection to the upstream that knows how often it was used and refuses a folded head.

    Attributes:
        calls: exchanges begun on this connection.
        received: bytes of the current exchange.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.calls = 0
        self.received = 0
        self._head: bytes | None = None
        self._resumed: asyncio.Future[None] | None = None

    def begin(self, *, head_only: bool) -> None:
        """Prepares for the answer to one request."""
        self.calls += 1
        self.received = 0
        self._head = b""
        self.set_response_params(
            skip_payload=head_only,
            read_until_eof=True,
            auto_decompress=False,
            read_timeout=None,
            read_bufsize=READ_SIZE,
            max_line_size=MAX_LINE,
            max_field_size=MAX_LINE,
            max_headers=MAX_HEADERS,
        )

    def data_received(self, data: bytes) -> None:
        """Counts, and looks at the bytes of the head before the parser forgives them."""
        if data:
            self.received += len(data)
            if self._head is not None and not self._well_formed(data):
                self.set_exception(HttpProcessingError(code=502, message="folded header"))
                if self.transport is not None:
                    self.transport.close()
                return
        super().data_received(data)

    def _well_formed(self, data: bytes) -> bool:
        """False if a header line of the head is folded: two readers may disagree about it."""
        head = (self._head or b"") + data if self._head else data
        while True:
            end = head.find(b"\r\n\r\n")
            if end < 0:
                self._head = head[-(MAX_LINE * 2) :]
                return b"\n " not in head and b"\n\t" not in head
            if b"\n " in head[:end] or b"\n\t" in head[:end]:
                return False
            if head[9:10] != b"1":
                self._head = None
                return True
            head = head[end + 4 :]
            if not head:
                self._head = b""
                return True

    def pause_writing(self) -> None:
        """The upstream does not read: the upload waits."""
        super().pause_writing()
        self._resumed = self._loop.create_future()

    def resume_writing(self) -> None:
        """The upstream reads again."""
        super().resume_writing()
        self._release_writer()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Wakes whoever waits to write."""
        self._release_writer()
        super().connection_lost(exc)

    def _release_writer(self) -> None:
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)
        self._resumed = None

    async def drained(self) -> None:
        """Waits until the upstream takes more bytes, or is gone."""
        while self._resumed is not None:
            await asyncio.shield(self._resumed)


class Answer(NamedTuple):
    """The head of an upstream's answer, and its body as a reader."""

    message: RawResponseMessage
    payload: StreamReader


class Upstream:
    """Everything needed to open a connection to one provider, computed once.

    Args:
        provider: its resolved configuration.
        loop: the running loop.
        environ: where `HTTP_PROXY` and the like are looked up, once.

    Attributes:
        authority: the `Host` that the upstream sees.
        prefix: the path of the upstream's URL, without a slash at its end.
    """

    def __init__(self, provider: Provider, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        if provider.upstream.startswith("unix:"):
            url = URL("http://localhost/")
            self.authority, self.prefix = b"localhost", ""
            connector: BaseConnector = UnixConnector(
                provider.upstream.removeprefix("unix:"),
                keepalive_timeout=provider.timeouts.keep_alive,
                limit=0,
            )
        else:
            parts = urlsplit(provider.upstream)
            self.authority, self.prefix = _authority(parts.scheme, parts.netloc), ""
            self.prefix = parts.path.rstrip("/")
            url = URL.build(scheme=parts.scheme, host=parts.hostname or "", port=parts.port)
            connector = TCPConnector(
                keepalive_timeout=provider.timeouts.keep_alive,
                limit=0,
                ttl_dns_cache=DNS_TTL,
            )
        # The connector has no public seam for its protocol; a subclass keeps its own counts.
        connector._factory = cast(  # noqa: SLF001
            "partial[ResponseHandler]", partial(UpstreamProtocol, loop=loop)
        )
        self._connector = connector
        proxy = proxy_for(provider, url)
        self._proxy = proxy
        self._request = ClientRequest(
            "GET",
            url,
            loop=loop,
            ssl=tls_context(provider) if url.scheme == "https" else True,
            server_hostname=provider.tls.server_name,
            proxy=proxy.url if proxy else None,
            proxy_headers=CIMultiDict({"Proxy-Authorization": proxy.auth})
            if proxy and proxy.auth
            else None,
        )
        self._timeout = ClientTimeout(
            connect=provider.timeouts.connect,
            sock_connect=provider.timeouts.connect,
            ceil_threshold=1e9,
        )
        self.absolute = (
            f"http://{self.authority.decode()}" if proxy and url.scheme == "http" else ""
        )
        self.proxy_lines = (
            f"Proxy-Authorization: {proxy.auth}\r\n".encode()
            if proxy and proxy.auth and self.absolute
            else b""
        )

    async def connect(self, *, fresh: bool = False) -> Connection:
        """A connection, from the pool or new.

        Args:
            fresh: leave no idle connection standing and open a new one.

        Raises:
            UpstreamFailed: `connect_error`, with the code that tells why.
        """
        try:
            while True:
                connection = await self._connector.connect(self._request, [], self._timeout)
                protocol = connection.protocol
                assert isinstance(protocol, UpstreamProtocol)
                if not fresh or not protocol.calls:
                    return connection
                connection.close()
        except Exception as error:  # the boundary: the library's families become ours
            raise _connect_failure(error) from error

    async def drop_idle(self) -> None:
        """Closes the idle connections: one of them was found dead, its siblings are suspect."""
        idle, self._connector._conns = (  # noqa: SLF001 - the pool has no public way to do this
            self._connector._conns,  # noqa: SLF001
            type(self._connector._conns)(self._connector._conns.default_factory),  # noqa: SLF001
        )
        for connections in idle.values():
            for protocol, _ in connections:
                protocol.close()

    async def close(self) -> None:
        """Closes every connection, the busy ones too."""
        await self._connector.close()


class Exchange:
    """One request and its answer over one connection.

    It is always ended by `release` (the answer was read whole) or `close`.
    """

    __slots__ = ("_connection", "_payload", "_protocol", "reused")

    def __init__(self, connection: Connection, *, head_only: bool) -> None:
        protocol = connection.protocol
        assert isinstance(protocol, UpstreamProtocol)
        self._connection = connection
        self._protocol = protocol
        self._payload: StreamReader | None = None
        self.reused = protocol.calls > 0
        protocol.begin(head_only=head_only)

    @property
    def heard(self) -> bool:
        """Has the upstream sent any byte of an answer?"""
        return self._protocol.received > 0

    def write(self, data: bytes) -> None:
        """Sends bytes as they are.

        Raises:
            UpstreamFailed: the connection is gone.
        """
        transport = self._protocol.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError
        transport.write(data)

    async def drained(self) -> None:
        """Waits until the upstream takes more."""
        await self._protocol.drained()

    async def head(self) -> Answer:
        """The final head of the answer; interim answers are dropped.

        Raises:
            UpstreamFailed: no answer, or none that can be read.
        """
        while True:
            try:
                message, payload = await self._protocol.read()
            except (UpstreamFailed, CallerGone, Refused):
                raise
            except Exception as error:
                raise self.failure(error) from error
            if message.code >= 200 or message.code == 101:
                break
            if message.code < 100:
                raise _unreadable("its status is below 100")
        reason = _framing_fault(message)
        if reason:
            raise _unreadable(reason)
        self._payload = payload
        return Answer(message, payload)

    async def part(self) -> bytes:
        """The next bytes of the body; empty at its end.

        Raises:
            UpstreamFailed: the body breaks off, or a clock ran out.
        """
        assert self._payload is not None
        try:
            return await self._payload.readany()
        except (UpstreamFailed, CallerGone, Refused):
            raise
        except Exception as error:
            raise self.failure(error) from error

    @property
    def complete(self) -> bool:
        """Is the whole body here, so that reading it does not wait?"""
        return self._payload is not None and self._payload.is_eof()

    def rest(self) -> bytes:
        """What is left of a body that is `complete`."""
        assert self._payload is not None
        return self._payload.read_nowait(-1)

    def interrupt(self, error: Exception) -> None:
        """Wakes whoever waits for this upstream with an error of ours (a clock ran out)."""
        self._protocol.set_exception(error)
        if self._payload is not None and self._payload is not EMPTY_PAYLOAD:
            self._payload.set_exception(error)

    def failure(self, error: Exception) -> UpstreamFailed:
        """What an exception while reading or writing means."""
        if isinstance(error, HttpProcessingError):
            return _unreadable("it is not HTTP that can be read")
        if self.reused and not self.heard:
            return UpstreamFailed(
                "upstream_error",
                "connection_closed",
                "a kept-alive connection was dead before any byte of the answer",
                kind=Kind.CONNECTION,
                verdict=Verdict.NEUTRAL,
                sent=True,
            )
        return UpstreamFailed(
            "upstream_error",
            "connection_reset",
            "the upstream closed the connection after the request had been sent; "
            "it may have been executed",
            kind=Kind.ANSWER if self.heard else Kind.CONNECTION,
            sent=True,
        )

    @property
    def paused(self) -> bool:
        """Does the upstream read more slowly than the caller sends?"""
        return self._protocol.writing_paused

    def end(self, *, reusable: bool) -> None:
        """Ends the exchange; more than once does no harm.

        Args:
            reusable: the request was sent whole. The connection is kept for the next call if the
                answer was read whole too, else it is closed at once: tokens cost money.
        """
        if self._connection.protocol is None:
            return
        if reusable and self.complete and not self._protocol.should_close:
            self._connection.release()
        else:
            self.close()

    def close(self) -> None:
        """Closes the connection at once."""
        transport = self._protocol.transport
        self._connection.close()
        if transport is not None:
            transport.abort()


class Proxy(NamedTuple):
    """An egress proxy: its address, and the value of `Proxy-Authorization` for it."""

    url: URL
    auth: str | None


def proxy_for(provider: Provider, url: URL) -> Proxy | None:
    """The egress proxy of a provider, None for a direct connection.

    A loopback upstream never goes through one. netrc is never read.
    """
    host = url.host or ""
    if provider.proxy in ("none", None) or _is_loopback(host):
        return None
    if provider.proxy != "env":
        return _proxy(provider.proxy)
    if proxy_bypass_environment(f"{host}:{url.port}"):
        return None
    found = getproxies_environment()
    address = found.get(url.scheme) or found.get("all")
    return _proxy(address) if address else None


def _proxy(address: str) -> Proxy:
    parts = urlsplit(address if "://" in address else f"http://{address}")
    auth = None
    if parts.username is not None:
        auth = aiohttp.encode_basic_auth(unquote(parts.username), unquote(parts.password or ""))
    return Proxy(URL.build(scheme=parts.scheme, host=parts.hostname or "", port=parts.port), auth)


def tls_context(provider: Provider) -> ssl.SSLContext:
    """The TLS settings of a provider.

    Raises:
        OSError: a file cannot be read.
        ssl.SSLError: a file is no certificate or key.
    """
    context = ssl.create_default_context(cafile=provider.tls.ca)
    context.set_alpn_protocols(["http/1.1"])
    if provider.tls.cert:
        context.load_cert_chain(provider.tls.cert, provider.tls.key)
    return context


def _authority(scheme: str, netloc: str) -> bytes:
    """The `Host` for an upstream: the port only where it is not the scheme's own."""
    default = {"http": ":80", "https": ":443"}[scheme]
    return netloc.removesuffix(default).encode("idna" if not netloc.isascii() else "ascii")


def _is_loopback(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith("127.")


def _framing_fault(message: RawResponseMessage) -> str | None:
    """Why the framing of an answer cannot be trusted; None if it can."""
    codings = [v for k, v in message.raw_headers if k.lower() == b"transfer-encoding"]
    if not codings:
        return None
    if message.version < (1, 1):
        return "it has a transfer encoding on HTTP/1.0"
    if [coding.strip().lower() for coding in codings] != [b"chunked"]:
        return "its transfer encoding is not chunked alone"
    return None


def _unreadable(reason: str) -> UpstreamFailed:
    return UpstreamFailed(
        "upstream_error",
        "invalid_upstream_response",
        f"the upstream's answer cannot be read: {reason}",
        sent=True,
    )


def _connect_failure(error: Exception) -> UpstreamFailed:
    """Which `connect_error` an exception of the connector is."""
    fail: Callable[..., UpstreamFailed] = partial(
        UpstreamFailed, "connect_error", kind=Kind.CONNECTION
    )
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return fail("dns_failure", "the upstream's name does not resolve")
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return fail("tls_failure", f"TLS with the upstream failed: {_tls_reason(error)}")
    if isinstance(error, TimeoutError):
        return fail("connect_timeout", "no connection within timeouts.connect")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return fail("connection_refused", f"the egress proxy answered {error.status}")
    cause: Any = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return fail("dns_failure", "the upstream's name does not resolve")
        if isinstance(cause, ConnectionRefusedError):
            return fail("connection_refused", "the upstream refuses connections")
        if isinstance(cause, TimeoutError):
            return fail("connect_timeout", "no connection within timeouts.connect")
        cause = getattr(cause, "os_error", None) or cause.__cause__
    if isinstance(error, FileNotFoundError) or "No such file" in str(error):
        return fail("connection_refused", "the upstream's socket does not exist")
    return fail("connection_reset", "the connection to the upstream could not be made")


def _tls_reason(error: Exception) -> str:
    cause: Any = error
    while cause is not None:
        # aiohttp's own errors inherit from ssl's without having their attributes.
        if message := getattr(cause, "verify_message", None):
            return f"certificate not accepted ({message})"
        if reason := getattr(cause, "reason", None):
            return str(reason).lower().replace("_", " ")
        cause = getattr(cause, "certificate_error", None) or getattr(cause, "os_error", None)
    return "handshake refused"
