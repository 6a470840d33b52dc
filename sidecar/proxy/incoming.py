"""A caller's request: what its head says, whether it may pass, and its body on the way.

The body is read only as far as the model's name needs it; the rest streams through later.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Collection

from aiohttp import HttpVersion11, StreamReader
from aiohttp.streams import EMPTY_PAYLOAD

from sidecar import correlation
from sidecar.admin.guard import host_allowed, origin_allowed
from sidecar.breaker.gating import LimitKey
from sidecar.config.resolved import Config, Provider
from sidecar.envelope.credentials import request_secrets
from sidecar.envelope.model_name import ModelScan, model_in_multipart
from sidecar.envelope.policy import wants_envelope
from sidecar.envelope.redact import SecretPaths
from sidecar.proxy import headers, target
from sidecar.proxy.connection import Connection
from sidecar.proxy.failures import Refused
from sidecar.proxy.heads import NO_REQUEST, RequestHead
from sidecar.proxy.limit_key import limit_key
from sidecar.proxy.signing import MOST_BODY

SAMPLE = 64 * 1024
"""Bytes of the body that tell one request from another."""

SIGV4_REMEDY = (
    "an AWS SigV4 signature covers Host and path and cannot survive forwarding; let the daemon "
    "sign (sign.aws under the provider), or use an API key (AWS_BEARER_TOKEN_BEDROCK) for Bedrock "
    "instead; boto3 sends one over https only, so give `listen` a certificate"
)

SIGNED_BODY = (
    "the body is signed or framed in parts (X-Amz-Content-Sha256: STREAMING-...), which cannot be "
    "signed anew; send it in one piece"
)


class Incoming:
    """One request of a caller.

    Attributes:
        method: as it came.
        raw: the header lines, as they came.
        correlation_id: the caller's own, or one made here.
        http10: the caller speaks HTTP/1.0.
        body: what was read of the body so far and not yet sent on.
        whole: the body is complete.
        chunked: the body comes in chunks.
        upgrades: the caller wants a WebSocket.
    """

    __slots__ = (
        "_connection",
        "_expects",
        "_held",
        "_kept",
        "_kept_most",
        "_length",
        "_limit",
        "_limit_name",
        "_message",
        "_payload",
        "_sample",
        "body",
        "chunked",
        "correlation_id",
        "http10",
        "method",
        "named",
        "raw",
        "upgrades",
        "whole",
    )

    def __init__(self, connection: Connection, message: RequestHead, payload: StreamReader) -> None:
        self._connection = connection
        self._message = message
        self._payload = payload
        self._expects = False
        self._held: deque[bytes] | tuple[()] = ()
        self._kept: list[bytes] | None = None
        self._kept_most = 0
        self._length = 0
        self._limit: int | None = None
        self._limit_name = "limits.request_body"
        self._sample = b""
        self.method = message.method
        self.raw = message.raw_headers
        self.named = headers.by_name(self.raw)
        self.correlation_id = correlation.given(self.named) or correlation.made()
        self.http10 = message.version < HttpVersion11
        self.body = b""
        self.whole = payload.is_eof()
        self.chunked = message.chunked
        self.upgrades = message.upgrade and self._wants_websocket()

    @classmethod
    def nothing(cls, connection: Connection) -> Incoming:
        """Stands in where the parser found no request."""
        return cls(connection, NO_REQUEST, EMPTY_PAYLOAD)

    @property
    def ends_connection(self) -> bool:
        """Does the caller expect no further answer on this connection?"""
        return self._message.should_close or self.http10

    @property
    def awaits_permission(self) -> bool:
        """Has the caller not been told yet to send the body it announced?"""
        return self._expects

    @property
    def asked_path(self) -> str:
        """The path of the target as it came, the provider's name in it, without the query."""
        return self._message.path.partition("?")[0]

    def _wants_websocket(self) -> bool:
        wanted = self.named.get(b"upgrade", b"").strip().lower() == b"websocket"
        return wanted and self.method == "GET" and self.whole and not self.http10

    def header(self, name: bytes) -> str | None:
        """The first value of a header, by its lower-case name."""
        value = self.named.get(name)
        return None if value is None else value.decode("latin-1")

    def headers_of(self, name: bytes) -> str | None:
        """All values of a header that lists parts behind semicolons, as one."""
        if name not in self.named:
            return None
        values = [value for key, value in self.raw if key.lower() == name]
        return b"; ".join(values).decode("latin-1")

    def wants_envelope(self) -> bool:
        """Does the caller ask for the envelope as the body of errors?"""
        return wants_envelope(self.header(b"accept"))

    def secrets(
        self, configured: headers.RawHeaders = (), secret_paths: SecretPaths = ()
    ) -> tuple[str, ...]:
        """The credentials that the request carries, as an answer may echo them.

        Args:
            configured: header lines that the configuration puts in.
            secret_paths: routes of the provider that carry a credential.
        """
        return request_secrets(self.raw, self._message.path, configured, secret_paths, self._sample)

    def limit_key(
        self, subject: str, configured: Collection[bytes], secret_paths: SecretPaths
    ) -> LimitKey:
        """Whose limits the call counts against; see `limit_key` for the arguments."""
        return limit_key(subject, self.raw, self._message.path, configured, secret_paths)

    # -- may it pass? -----------------------------------------------------------------------

    def check(self, config: Config, *, is_own: bool | None) -> target.Target:
        """Everything that can be refused before a provider is known.

        Args:
            config: the configuration in force.
            is_own: whether the authority of an absolute-form target is this daemon's; None in
                origin form.

        Raises:
            Refused: with the contract's decision.
        """
        self._check_framing()
        if not self._connection.trusted and self.method not in target.NOT_ALLOWED:
            self._check_caller(config, absolute=is_own is not None)
        return target.parse(self.method, self._message.path, own=is_own)

    def absolute_form(self) -> target.AbsoluteForm | None:
        """The scheme and authority of a target in absolute form."""
        return target.absolute_form(self._message.path)

    def _check_framing(self) -> None:
        if self._message.version[0] != 1:
            raise Refused("bad_request", "only HTTP/1.1 and HTTP/1.0 are spoken here", close=True)
        if b"transfer-encoding" not in self.named:
            return
        for name, value in self.raw:
            if len(name) != 17 or name.lower() != b"transfer-encoding":
                continue
            if self.http10 or value.strip().lower() != b"chunked":
                raise Refused(
                    "bad_request", "the only transfer encoding is chunked alone", close=True
                )

    def _check_caller(self, config: Config, *, absolute: bool) -> None:
        host = self.header(b"host")
        if not absolute and not host_allowed(host, config.allowed_hosts):
            raise Refused(
                "forbidden_host",
                "the Host is neither a loopback name, an address, nor one of allowed_hosts",
            )
        if not origin_allowed(self.header(b"origin"), self.header(b"sec-fetch-site"), host):
            raise Refused("forbidden_host", "a foreign web page may not call through this daemon")

    def check_for(
        self, provider: Provider, found: target.Target, *, has_prefix: bool, is_signed: bool
    ) -> None:
        """What can be refused once the provider is known.

        Args:
            provider: its configuration.
            found: the routed target.
            has_prefix: the upstream's URL has a path.
            is_signed: the daemon signs the request, so that a caller's own signature is no matter.

        Raises:
            Refused: `bad_request`, `sigv4_unsupported` or `too_large`.
        """
        if has_prefix and target.climbs(found.path):
            raise Refused("bad_request", "the path leaves the provider's configured prefix")
        self._limit = provider.limits.request_body
        if not is_signed:
            authorization = self.named.get(b"authorization")
            signed = authorization is not None and authorization.startswith(b"AWS4-")
            if signed or "X-Amz-Signature=" in found.query:
                raise Refused("sigv4_unsupported", SIGV4_REMEDY)
        else:
            if self.named.get(b"x-amz-content-sha256", b"").startswith(b"STREAMING-"):
                raise Refused("sigv4_unsupported", SIGNED_BODY)
            if self._limit is None:
                self._limit = MOST_BODY
                self._limit_name = "what is held to be signed, unless limits.request_body is set"
        length = self.named.get(b"content-length")
        self._length = int(length) if length is not None else 0
        self._check_length()
        expect = self.named.get(b"expect")
        self._expects = (
            expect is not None
            and not (self.whole or self.http10)
            and expect.strip().lower() == b"100-continue"
        )

    def _check_length(self) -> None:
        if self._limit is not None and self._length > self._limit:
            raise Refused(
                "too_large", f"the request's body is over {self._limit_name} ({self._limit} bytes)"
            )

    # -- the body ---------------------------------------------------------------------------

    async def read_model(self, limit: int) -> str | None:
        """Reads as much of the body as it takes to find the model it names.

        Args:
            limit: bytes after which the search ends.
        """
        kind = (self.header(b"content-type") or "").lower()
        if kind.startswith("multipart/form-data"):
            if not self.whole:
                await self._read_until(limit, None)
            return model_in_multipart(self.body[:limit], self.header(b"content-type") or "")
        if kind and "json" not in kind:
            return None
        scan = ModelScan(limit)
        if self.body:
            scan.feed(self.body)
        if not self.whole:
            await self._read_until(limit, scan)
        return scan.name

    def begin_body(self) -> None:
        """Takes what is there of the body, and lets a caller go on that waits for leave."""
        if self.whole:
            self.body = self._payload.read_nowait(-1)
            self._count(self.body)
        elif self._expects:
            self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._expects = False

    async def _read_until(self, limit: int, scan: ModelScan | None) -> None:
        parts = [self.body] if self.body else []
        size = len(self.body)
        while not self._payload.at_eof() and size < limit and not (scan and scan.done):
            chunk = await self.part()
            size += len(chunk)
            parts.append(chunk)
            if scan is not None:
                scan.feed(chunk)
        self.body = b"".join(parts)
        self.whole = self._payload.at_eof()

    async def hold(self) -> str:
        """Reads the body to its end and keeps it for `part`.

        Returns:
            Its SHA-256 in hexadecimal digits.

        Raises:
            CallerGone: the caller sends nothing any more.
            Refused: the body is too large, or its framing is broken.
        """
        digest = hashlib.sha256(self.body)
        held: deque[bytes] = deque()
        while not self.at_end:
            chunk = await self.part()
            if chunk:
                digest.update(chunk)
                held.append(chunk)
        self._held = held
        self.whole = not held
        return digest.hexdigest()

    async def part(self) -> bytes:
        """The next bytes of the body; empty at its end.

        Raises:
            CallerGone: the caller sends nothing any more.
            Refused: the body is too large, or its framing is broken.
        """
        if self._held:
            return self._held.popleft()
        chunk = await self._connection.received(self._payload)
        self._count(chunk)
        if self._kept is not None:
            self._keep(chunk)
        return chunk

    def keep(self, most: int) -> None:
        """Keeps what was read of the body, and what will be, so that it can be sent again.

        Args:
            most: bytes that are kept; of a larger body nothing is.
        """
        self._kept, self._kept_most = [], most
        self._keep(self.body)

    def _keep(self, chunk: bytes) -> None:
        assert self._kept is not None
        self._kept_most -= len(chunk)
        if self._kept_most < 0:
            self._kept = None
        elif chunk:
            self._kept.append(chunk)

    @property
    def kept(self) -> bool:
        """Is everything that was read of the body still here?"""
        return self._kept is not None

    def rewind(self) -> None:
        """Begins the body anew; only what is `kept` can be."""
        assert self._kept is not None
        self.body = b"".join(self._kept)
        self._kept = [self.body]
        self._held = ()
        self.whole = self._payload.at_eof()

    @property
    def at_end(self) -> bool:
        """Has the body been read to its end?"""
        return not self._held and self._payload.at_eof()

    def _count(self, chunk: bytes) -> None:
        if len(self._sample) < SAMPLE:
            self._sample += chunk[: SAMPLE - len(self._sample)]
        if self.chunked:
            self._length += len(chunk)
            self._check_length()

    def framed(self, data: bytes, *, last: bool = False) -> bytes:
        """Bytes of the body in the framing in which it came."""
        if not self.chunked:
            return data
        end = b"0\r\n\r\n" if last else b""
        return b"%x\r\n%b\r\n%b" % (len(data), data, end) if data else end

    def fingerprint(self) -> bytes:
        """Tells this request from others: method, target, length and the first 64 KiB."""
        mark = hashlib.blake2b(digest_size=16)
        line = f"{self.method} {self._message.path} {self._length}\n"
        mark.update(line.encode("utf-8", "surrogateescape"))
        mark.update(self._sample)
        return mark.digest()
