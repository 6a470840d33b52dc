"""One request to a collector, over HTTP or over gRPC; what it came to is told, never raised.

Names are resolved in a thread that nobody waits for: the loop's own pool of threads is waited for
when the process ends, and a dead name server would hold it up.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from sidecar import __version__
from sidecar.telemetry.otlp.settings import Endpoint

AGENT: Final = f"breaker-sidecar/{__version__}"
_PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses after which OTLP asks for another try."""

_LONGEST_REASON: Final = 200  # characters

_PASSING_CODES: Final = frozenset(
    {"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS",
     "RESOURCE_EXHAUSTED"}
)  # fmt: skip


class Sent(msgspec.Struct, frozen=True):
    """What one request came to.

    Attributes:
        problem: why it failed, in a few words; empty if it was taken.
        again: it may be sent once more.
        wait: seconds that the collector asks to wait.
        rejected: how many things of a request that was taken the collector did not want.
        reason: why not, in its own words.
    """

    problem: str = ""
    again: bool = False
    wait: float = 0.0
    rejected: int = 0
    reason: str = ""


TAKEN: Final = Sent()


class Sender(Protocol):
    """Sends requests."""

    async def send(self, body: bytes) -> Sent:
        """Send one; never raises but when cancelled."""

    async def close(self) -> None:
        """Close its connections."""


def sender(endpoint: Endpoint) -> Sender:
    """The sender for an endpoint.

    Raises:
        OSError: a file of its TLS settings cannot be read, or is none.
    """
    return Grpc(endpoint) if endpoint.grpc else Http(endpoint)


class Http:
    """Protobuf over HTTP."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._ssl: ssl.SSLContext | bool = True
        if urlsplit(endpoint.url).scheme == "https":
            self._ssl = _context(endpoint)
        self._session: aiohttp.ClientSession | None = None

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=_Resolver(), limit=2, ssl=self._ssl),
                timeout=aiohttp.ClientTimeout(total=self._endpoint.timeout),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": AGENT, **dict(self._endpoint.headers)},
            )
        return self._session

    async def send(self, body: bytes) -> Sent:
        """Send one request."""
        headers = {"Content-Type": "application/x-protobuf"}
        if self._endpoint.gzip:
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        try:
            async with self._connected().post(
                self._endpoint.url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                # Read to its end the connection is of use again; a long answer is not worth that.
                said = await answer.content.read(64 * 1024)
                if 200 <= answer.status < 300:
                    return _taken(said)
                return Sent(
                    f"status {answer.status}",
                    again=answer.status in _PASSING,
                    wait=_seconds(answer.headers.get("Retry-After")),
                )
        except TimeoutError:
            return Sent("no answer in time", again=True)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Sent(type(error).__name__, again=True)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


class Grpc:
    """The same over gRPC; its library works in threads of its own and is only told and heard."""

    def __init__(self, endpoint: Endpoint) -> None:
        # What its library would write to standard error is no line of the log.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        import grpc  # noqa: PLC0415 - eight megabytes for who asks for them

        parts = urlsplit(endpoint.url)
        target = parts.netloc.rpartition("@")[2]
        options = [("grpc.primary_user_agent", AGENT)]
        compression = grpc.Compression.Gzip if endpoint.gzip else grpc.Compression.NoCompression
        self._channel: Any
        if endpoint.insecure:
            self._channel = grpc.insecure_channel(target, options, compression)
        else:
            credentials = grpc.ssl_channel_credentials(
                _content(endpoint.certificate),
                _content(endpoint.client_key),
                _content(endpoint.client_certificate),
            )
            self._channel = grpc.secure_channel(target, credentials, options, compression)
        self._timeout = endpoint.timeout
        self._headers = endpoint.headers
        self._export = self._channel.unary_unary(endpoint.method)

    async def send(self, body: bytes) -> Sent:
        """Send one request."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def told(call: Any) -> None:
            with suppress(RuntimeError):  # the loop may be gone by now
                loop.call_soon_threadsafe(_resolve, done, call)

        try:
            call = self._export.future(body, timeout=self._timeout, metadata=self._headers)
        except ValueError as error:
            return Sent(str(error)[:100])
        call.add_done_callback(told)
        try:
            await done
        except asyncio.CancelledError:
            call.cancel()
            raise
        code = call.code().name
        if code == "OK":
            return _taken(call.result())
        return Sent(code.lower(), again=code in _PASSING_CODES)

    async def close(self) -> None:
        """Close the channel."""
        self._channel.close()


def _taken(said: bytes) -> Sent:
    """A request that was taken, as a whole or in part; the three signals' answers are alike."""
    if not said:
        return TAKEN
    try:
        partial = ExportTraceServiceResponse.FromString(said).partial_success
    except DecodeError:
        return TAKEN
    if partial.rejected_spans <= 0:
        return TAKEN
    return Sent(rejected=partial.rejected_spans, reason=partial.error_message[:_LONGEST_REASON])


def _resolve(done: asyncio.Future[Any], value: Any) -> None:
    if not done.done():
        done.set_result(value)


def _context(endpoint: Endpoint) -> ssl.SSLContext:
    """Whom to trust, and who we are. The errors of `ssl` do not say which file they are about."""
    file = endpoint.certificate
    try:
        context = ssl.create_default_context(cafile=file)
        if endpoint.client_certificate:
            file = endpoint.client_certificate
            context.load_cert_chain(file, endpoint.client_key)
    except OSError as error:
        raise OSError(f"{file}: {error.strerror or error}") from error
    return context


def _content(file: str | None) -> bytes | None:
    if file is None:
        return None
    with open(file, "rb") as opened:  # noqa: PTH123 - read once, at the start
        return opened.read()


def _seconds(text: str | None) -> float:
    """`Retry-After` in whole seconds; a date, or anything else, is no wait."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else 0.0


class _Resolver(AbstractResolver):
    """Resolves names in threads that end with the process."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host.

        Raises:
            OSError: there are none.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def look() -> None:
            answer: Any
            try:
                answer = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
            except OSError as error:
                answer = error
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, done, answer)

        threading.Thread(target=look, name="otlp-resolver", daemon=True).start()
        found = await done
        if isinstance(found, OSError):
            raise found
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        """Nothing to close."""


Opened = Callable[[Endpoint], Sender]
