"""The upstream side: the connections of one provider.

aiohttp's connector opens and resolves (DNS, TLS, proxies, Unix sockets); its parser reads. What
goes wrong until there is a connection becomes `UpstreamFailed` in this file. Idle connections are
kept here: there is one address, so that the next call finds one without a search or a wait.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
from collections import deque
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import unquote, urlsplit
from urllib.request import (  # type: ignore[attr-defined]
    getproxies_environment,
    proxy_bypass_environment,
)

import aiohttp
from aiohttp import ClientTimeout, TCPConnector, UnixConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import BaseConnector, Connection
from multidict import CIMultiDict
from yarl import URL

from sidecar.breaker.model import Kind
from sidecar.breaker.network import host_of
from sidecar.config.addresses import is_loopback
from sidecar.config.resolved import Provider
from sidecar.envelope.model import Verdict
from sidecar.proxy import clocks
from sidecar.proxy.failures import UpstreamFailed
from sidecar.proxy.resolver import Resolver
from sidecar.proxy.upstream_protocol import UpstreamProtocol

DNS_TTL = 10
"""Seconds an address is cached: a service that moved is found again within one of these."""


OWN_SHORTAGE = frozenset(
    {
        errno.EAGAIN,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOBUFS,
        errno.EADDRNOTAVAIL,
    }
)
"""Out of threads, descriptors, memory or local ports: no upstream's fault."""


NO_WAY_OUT = frozenset({errno.ENETUNREACH, errno.ENETDOWN, errno.EPERM, errno.EACCES})
"""No route, no network, or a firewall of this machine's own: no other host is to blame for it."""


UNKNOWN_ISSUER = frozenset({2, 19, 20, 21})
"""OpenSSL's verify codes of a chain that ends in nobody the bundle knows (X509_V_ERR_…)."""

_TRIED = re.compile(r"\[Errno (\d{1,5})\]")
"""What aiohappyeyeballs writes of each address, where they failed for different reasons."""


class Upstream:
    """Everything needed to open a connection to one provider, computed once.

    Args:
        provider: its resolved configuration.
        loop: the running loop.

    Attributes:
        authority: the `Host` that the upstream sees.
        host: the host that is connected to, the egress proxy's if there is one, as the network
            detector names it; None for a Unix socket.
        prefix: the path of the upstream's URL, without a slash at its end.
        absolute: what stands before the target where an egress proxy wants its absolute form.
        proxy_lines: header lines for that proxy.
    """

    def __init__(self, provider: Provider, loop: asyncio.AbstractEventLoop) -> None:
        if provider.upstream.startswith("unix:"):
            url = URL("http://localhost/")
            self.authority, self.prefix = b"localhost", ""
            connector: BaseConnector = UnixConnector(
                provider.upstream.removeprefix("unix:"), force_close=True, limit=0
            )
        else:
            parts = urlsplit(provider.upstream)
            self.authority = _authority(parts.scheme, parts.netloc)
            self.prefix = parts.path.rstrip("/")
            url = URL.build(scheme=parts.scheme, host=parts.hostname or "", port=parts.port)
            connector = TCPConnector(
                force_close=True, limit=0, ttl_dns_cache=DNS_TTL, resolver=Resolver()
            )
        # The connector has no public seam for its protocol; a subclass keeps its own counts.
        connector._factory = cast(  # noqa: SLF001
            "partial[ResponseHandler]", partial(UpstreamProtocol, loop=loop)
        )
        self._connector = connector
        self._idle: deque[tuple[Connection, float]] = deque()
        self._keep_alive = provider.timeouts.keep_alive
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        proxy = proxy_for(provider, url)
        self._request = ClientRequest(
            "GET",
            url,
            loop=loop,
            ssl=tls_context(provider) if url.scheme == "https" else True,
            server_hostname=provider.tls.server_name,
            proxy=proxy.url if proxy else None,
            proxy_headers=proxy.headers(self.authority.decode()) if proxy else None,
        )
        self._loop = loop
        self._trusts_nobody = url.scheme == "https" and trusts_nobody(tls_context(provider))
        self._timeout = ClientTimeout(
            connect=provider.timeouts.connect,
            sock_connect=provider.timeouts.connect,
            ceil_threshold=1e9,
        )
        self.host = (
            None
            if provider.upstream.startswith("unix:")
            else host_of((proxy.url if proxy else url).host or "")
        )
        self.absolute = (
            f"http://{self.authority.decode()}" if proxy and url.scheme == "http" else ""
        )
        self.proxy_lines = (
            f"Proxy-Authorization: {proxy.auth}\r\n".encode()
            if proxy and proxy.auth and self.absolute
            else b""
        )

    def reusable(self) -> Connection | None:
        """The connection that became idle last, if one still stands."""
        oldest = self._loop.time() - self._keep_alive
        while self._idle:
            connection, since = self._idle.pop()
            if since >= oldest and not connection.closed:
                return connection
            connection.close()
        return None

    def keep(self, connection: Connection) -> None:
        """Takes back a connection on which nothing is under way."""
        if self._closed:
            connection.close()
            return
        self._idle.append((connection, self._loop.time()))
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._keep_alive, self._close_expired)

    def _close_expired(self) -> None:
        now = self._loop.time()
        while self._idle and (
            now >= self._idle[0][1] + self._keep_alive or self._idle[0][0].closed
        ):
            self._idle.popleft()[0].close()
        self._sweep = None
        if self._idle:
            left = self._idle[0][1] + self._keep_alive - now
            self._sweep = self._loop.call_later(left, self._close_expired)

    async def connect(self) -> Connection:
        """A new connection.

        Raises:
            UpstreamFailed: `connect_error`, with the code that tells why.
        """
        began = self._loop.time()
        try:
            return await self._connector.connect(self._request, [], self._timeout)
        except Exception as error:  # the boundary: the library's families become ours
            failure = _connect_failure(error, self.authority.decode())
            late = self._loop.time() - began - (self._timeout.connect or 0)
            if failure.code == "connect_timeout" and late >= clocks.STALLED:
                failure = _stalled(late)
            elif failure.unknown_issuer and self._trusts_nobody:
                failure.names_this_machine = True
            raise failure from error

    def drop_idle(self) -> None:
        """Closes the idle connections: one of them was found dead, its siblings are suspect."""
        while self._idle:
            self._idle.pop()[0].close()

    async def close(self) -> None:
        """Closes every connection, the busy ones too."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        self.drop_idle()
        await self._connector.close()


class Proxy(NamedTuple):
    """An egress proxy: its address, and the value of `Proxy-Authorization` for it."""

    url: URL
    auth: str | None

    def headers(self, host: str) -> CIMultiDict[str]:
        """What the proxy is told beside the address of a tunnel."""
        # aiohttp adds Host on first use, which would change the key of its pool under us.
        headers = CIMultiDict({"Host": host})
        if self.auth:
            headers["Proxy-Authorization"] = self.auth
        return headers


def proxy_for(provider: Provider, url: URL) -> Proxy | None:
    """The egress proxy of a provider, None for a direct connection.

    A loopback upstream never goes through one. netrc is never read.
    """
    host = url.host or ""
    if provider.proxy in ("none", None) or is_loopback(host):
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
    """The TLS settings of a provider; providers with the same ones share them.

    Raises:
        OSError: a file cannot be read.
        ssl.SSLError: a file is no certificate or key.
    """
    tls = provider.tls
    return _tls_context(tls.ca, tls.cert, tls.key, tls_stamps(provider))


def tls_stamps(provider: Provider) -> tuple[int, ...]:
    """When the provider's certificate files changed last: they are rotated under their names."""
    files = (provider.tls.ca, provider.tls.cert, provider.tls.key)
    return tuple(Path(file).stat().st_mtime_ns for file in files if file is not None)


@lru_cache(maxsize=64)
def _tls_context(
    ca: str | None, cert: str | None, key: str | None, stamps: tuple[int, ...]
) -> ssl.SSLContext:
    # A context holds the whole bundle of trusted certificates: about a megabyte each.
    del stamps
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["http/1.1"])
    if cert:
        context.load_cert_chain(cert, key)
    return context


def trusts_nobody(context: ssl.SSLContext) -> bool:
    """Is there no authority that a certificate could be issued by, as in an image without any?"""
    if context.cert_store_stats()["x509_ca"]:
        return False
    # Those of a folder are loaded when they are needed, and counted then.
    folder = ssl.get_default_verify_paths().capath
    try:
        return not folder or not any(Path(folder).iterdir())
    except OSError:
        return True


def _stalled(late: float) -> UpstreamFailed:
    return UpstreamFailed(
        "connect_error",
        "loop_stalled",
        f"this daemon did not run for {late:.1f} s while it was connecting",
        kind=Kind.CONNECTION,
        verdict=Verdict.NEUTRAL,
    )


def _authority(scheme: str, netloc: str) -> bytes:
    """The `Host` for an upstream: the port only where it is not the scheme's own."""
    default = {"http": ":80", "https": ":443"}[scheme]
    return netloc.removesuffix(default).encode("idna" if not netloc.isascii() else "ascii")


def _connect_failure(error: Exception, host: str) -> UpstreamFailed:
    """Which `connect_error` an exception of the connector is."""

    def fail(
        code: str, detail: str, *, here: bool = False, unknown_issuer: bool = False
    ) -> UpstreamFailed:
        return UpstreamFailed(
            "connect_error",
            code,
            f"{host}: {detail}",
            kind=Kind.CONNECTION,
            names_this_machine=here,
            unknown_issuer=unknown_issuer,
        )

    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        unknown = any(
            getattr(cause, "verify_code", 0) in UNKNOWN_ISSUER for cause in _causes(error)
        )
        detail = f"TLS failed: {_tls_reason(error)}"
        return fail("tls_failure", detail, unknown_issuer=unknown)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        # From 500 on it tried, and says that it could not reach the upstream.
        detail = f"the egress proxy answered {error.status}"
        return fail("connection_refused", detail, here=error.status < 500)
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return fail("connection_refused", "the egress proxy cannot be reached", here=True)
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror):
            if cause.errno == socket.EAI_AGAIN:
                return fail("dns_failure", "the resolver says to try again", here=True)
            return fail("dns_failure", "the name does not resolve")
        if isinstance(cause, TimeoutError):
            return fail("connect_timeout", "no connection within timeouts.connect")
        numbers = _numbers(cause)
        if errno.ECONNREFUSED in numbers:
            return fail("connection_refused", "connection refused")
        if shortage := numbers & OWN_SHORTAGE:
            return UpstreamFailed(
                "connect_error",
                "local_resource",
                f"this machine ran short: {os.strerror(min(shortage)).lower()}",
                kind=Kind.CONNECTION,
                verdict=Verdict.NEUTRAL,
            )
        if numbers and numbers <= NO_WAY_OUT:
            return fail("connection_reset", os.strerror(min(numbers)).lower(), here=True)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return fail("dns_failure", "the name does not resolve")
    if isinstance(error, FileNotFoundError) or "No such file" in str(error):
        return fail("connection_refused", "the socket does not exist")
    return fail("connection_reset", "no connection could be made")


def _causes(error: Exception) -> Iterator[BaseException]:
    cause: Any = error
    while cause is not None:
        yield cause
        for name in ("certificate_error", "os_error"):
            inner = getattr(cause, name, None)
            if inner is not None:
                break
        else:
            inner = cause.__cause__
        cause = None if inner is cause else inner


def _numbers(cause: BaseException) -> frozenset[int]:
    """The operating system's numbers in an error: of each address, where several were tried."""
    if not isinstance(cause, OSError):
        return frozenset()
    if cause.errno is not None:
        return frozenset({cause.errno})
    return frozenset(map(int, _TRIED.findall(str(cause)[:4096])))


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
