"""The way of one call: route, read the subject, ask for admission, forward, relay, settle.

Whatever happens on the way, `run` settles the permit exactly once, frees the upstream connection
and states one fact. That is why every exit goes through it.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from typing import TYPE_CHECKING

from aiohttp import HttpVersion11, StreamReader
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from sidecar import clock as clocks_of_machine
from sidecar.admin.guard import host_allowed, origin_allowed
from sidecar.breaker.model import Kind, Outcome, Refusal
from sidecar.envelope.model import Classified, Envelope, Verdict
from sidecar.envelope.model_name import ModelScan, model_in_multipart
from sidecar.envelope.policy import should_retry
from sidecar.envelope.redact import redact_target
from sidecar.proxy import headers, replies, target
from sidecar.proxy.clocks import Clock, timeout
from sidecar.proxy.connection import Connection
from sidecar.proxy.failures import CallerGone, Refused, UpstreamFailed
from sidecar.proxy.outgoing import Framing, Outgoing
from sidecar.proxy.relay import Relay
from sidecar.proxy.upstream import Answer, Exchange
from sidecar.telemetry.observer import CallFinished, Ending, Fault

if TYPE_CHECKING:
    from sidecar.breaker.admission import Admission
    from sidecar.envelope.dialects.base import Dialect
    from sidecar.proxy.plane import DataPlane
    from sidecar.proxy.runtime import Runtime

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Sent once more when a reused connection turns out to be dead; nothing else ever is."""

SAMPLE = 64 * 1024
"""Bytes of the body that tell one request from another."""


class Call:
    """One request of a caller and all that becomes of it.

    Attributes:
        started: monotonic seconds at which its head was there.
        correlation_id: on the answer, the log line and in the envelope.
        runtime: the provider; None until it was found.
        path: the path at the provider, as it came, without the query.
        model: what the request names, if anything.
        key: the breaker's key, once admission was asked for.
        out: the answer on its way.
    """

    __slots__ = (
        "_body", "_chunked", "_clock", "_expects", "_exchange", "_finished", "_length", "_sample",
        "_sent_at", "_target", "_total", "_unreadable", "_upload", "_whole", "admission", "classified",
        "connection", "correlation_id", "decision", "ending", "first_byte_at", "heard_at", "key",
        "message", "model", "out", "path", "payload", "plane", "refusal", "reclassified",
        "runtime", "settled", "started", "upstream_status", "verdict",
    )  # fmt: skip

    def __init__(
        self,
        plane: DataPlane,
        connection: Connection,
        message: RawRequestMessage,
        payload: StreamReader,
    ) -> None:
        self.plane = plane
        self.connection = connection
        self.message = message
        self.payload = payload
        self.started = clocks_of_machine.monotonic()
        raw = message.raw_headers
        self.correlation_id = headers.correlation_id(raw) or secrets.token_hex(16)
        self.runtime: Runtime | None = None
        self.path = ""
        self.model: str | None = None
        self.key: str | None = None
        self.refusal: Refusal | None = None
        self.admission: Admission | None = None
        self.classified: Classified | None = None
        self.verdict: Verdict | None = None
        self.decision = "forwarded"
        self.ending: Ending | None = None
        self.upstream_status: int | None = None
        self.reclassified = False
        self.settled = False
        self.first_byte_at: float | None = None
        self.heard_at: float | None = None
        http10 = message.version < (1, 1)
        self.out = Outgoing(connection, http10=http10, keep=not (message.should_close or http10))
        self._target: target.Target | None = None
        self._exchange: Exchange | None = None
        self._clock: Clock | None = None
        self._total: asyncio.TimerHandle | None = None
        self._upload: asyncio.Task[None] | None = None
        self._body = b""
        self._sample = b""
        self._whole = payload.is_eof()
        self._length = 0
        self._chunked = message.chunked
        self._expects = False
        self._sent_at: float | None = None
        self._finished = False
        self._unreadable: Refused | None = None

    @classmethod
    def of_no_request(cls, plane: DataPlane, connection: Connection, refusal: Refused) -> Call:
        """A call for bytes that the parser refused: only its refusal is left to answer."""
        call = cls(plane, connection, NO_REQUEST, EMPTY_PAYLOAD)
        call._unreadable = refusal
        return call

    async def run(self) -> bool:
        """Answers the call.

        Returns:
            True if the connection can carry another request.
        """
        try:
            await self._attempt()
        except CallerGone:
            self._left()
            self.connection.abort()
            return False
        except asyncio.CancelledError:
            self._left()
            if self.plane.stopping:
                self._cut_for_shutdown()
            raise
        except Exception as error:  # noqa: BLE001 - the last boundary: a fault of our own
            self._answer_fault(error)
        finally:
            self._close()
        if self._upload is not None:
            # The reader of the body is free again only when its last user is gone.
            await asyncio.wait({self._upload})
        return self.out.keep

    async def _attempt(self) -> None:
        try:
            await self._forward()
        except Refused as refused:
            self._answer_refusal(refused)
        except UpstreamFailed as failure:
            self._answer_failure(failure)

    # -- before the call may leave ----------------------------------------------------------

    async def _forward(self) -> None:
        if self._unreadable is not None:
            raise self._unreadable
        self._find_provider()
        runtime = self.runtime
        assert runtime is not None
        self._check(runtime)
        await self._read_subject(runtime)
        if self.plane.draining:
            raise Refused("draining", "the daemon is stopping", close=True)
        self._admit(runtime)
        answer = await self._send(runtime)
        assert self._exchange is not None
        assert self._clock is not None
        await Relay(self, runtime, self._exchange, self._clock, answer).run()

    def _find_provider(self) -> None:
        raw = self.message.raw_headers
        method, path = self.message.method, self.message.path
        if self.message.version not in ((1, 0), (1, 1)):
            raise Refused("bad_request", "only HTTP/1.1 and HTTP/1.0 are spoken here", close=True)
        for name, value in raw:
            if len(name) == 17 and name.lower() == b"transfer-encoding":
                if self.message.version < (1, 1) or value.strip().lower() != b"chunked":
                    raise Refused(
                        "bad_request", "the only transfer encoding is chunked alone", close=True
                    )
        self._guard()
        named = target.authority(path)
        own = None if named is None else self.plane.is_own(named, self.connection)
        found = target.parse(method, path, own)
        runtime = self.plane.runtimes.get(found.provider)
        if runtime is None:
            raise Refused("unknown_provider", self.plane.unknown(found.provider))
        self.runtime = runtime
        runtime.entered()
        self._target = found
        self.path = found.path

    def _guard(self) -> None:
        if self.connection.trusted or self.message.method == "CONNECT":
            return
        raw = self.message.raw_headers
        host = _text(headers.first(raw, b"host"))
        if target.authority(self.message.path) is None and not host_allowed(
            host, self.plane.config.allowed_hosts
        ):
            raise Refused(
                "forbidden_host",
                "the Host is neither a loopback name, an address, nor one of allowed_hosts",
            )
        origin = _text(headers.first(raw, b"origin"))
        site = _text(headers.first(raw, b"sec-fetch-site"))
        if not origin_allowed(origin, site, host):
            raise Refused("forbidden_host", "a foreign web page may not call through this daemon")

    def _check(self, runtime: Runtime) -> None:
        raw = self.message.raw_headers
        assert self._target is not None
        if runtime.upstream.prefix and target.climbs(self._target.path):
            raise Refused("bad_request", "the path leaves the provider's configured prefix")
        authorization = headers.first(raw, b"authorization")
        if (
            authorization is not None and authorization.startswith(b"AWS4-")
        ) or "X-Amz-Signature=" in self._target.query:
            raise Refused("sigv4_unsupported", SIGV4_REMEDY)
        length = headers.first(raw, b"content-length")
        self._length = int(length) if length is not None else 0
        limit = runtime.config.limits.request_body
        if limit is not None and self._length > limit:
            raise Refused("too_large", f"the request's body is over limits.request_body ({limit})")
        expect = headers.first(raw, b"expect")
        self._expects = expect is not None and expect.strip().lower() == b"100-continue"

    # -- what the call is about -------------------------------------------------------------

    async def _read_subject(self, runtime: Runtime) -> None:
        """Finds the model: in the path, else in the first bytes of the body."""
        dialect = runtime.dialect
        self.model = dialect.model_of(self.path)
        if self._whole:
            self._body = self.payload.read_nowait(-1)
            self._count(self._body)
        elif self._expects:
            self.connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._expects = False
        if self.model is not None:
            self._sample = self._body[:SAMPLE]
            return
        content_type = _text(headers.first(self.message.raw_headers, b"content-type")) or ""
        multipart = content_type.lower().startswith("multipart/form-data")
        limit = runtime.config.limits.model_scan
        if multipart:
            await self._read_until(limit, None)
            self.model = model_in_multipart(self._body[:limit], content_type)
        elif "json" in content_type.lower() or not content_type:
            scan = ModelScan(limit)
            if self._body:
                scan.feed(self._body)
            await self._read_until(limit, scan)
            self.model = scan.name
        self._sample = self._body[:SAMPLE]

    async def _read_until(self, limit: int, scan: ModelScan | None) -> None:
        """Collects the body until the scan is done, the body is whole, or `limit` bytes."""
        parts = [self._body] if self._body else []
        size = len(self._body)
        while not self.payload.at_eof() and size < limit and not (scan and scan.done):
            chunk = await self._receive()
            size += len(chunk)
            parts.append(chunk)
            if scan is not None:
                scan.feed(chunk)
        self._body = b"".join(parts)
        self._whole = self.payload.at_eof()

    async def _receive(self) -> bytes:
        """The next part of the body."""
        chunk = await self.connection.received(self.payload.readany())
        self._count(chunk)
        return chunk

    def _count(self, chunk: bytes) -> None:
        """Checks the limit that a chunked body cannot announce."""
        if not self._chunked:
            return
        assert self.runtime is not None
        limit = self.runtime.config.limits.request_body
        self._length += len(chunk)
        if limit is not None and self._length > limit:
            raise Refused("too_large", f"the request's body is over limits.request_body ({limit})")

    def _admit(self, runtime: Runtime) -> None:
        subject = self.model if self.model is not None else target.route(self.path)
        admitted = self.plane.registry.admit(runtime.name, subject, clocks_of_machine.monotonic())
        if isinstance(admitted, Refusal):
            self.key = admitted.key
            self.refusal = admitted
            raise Refused("breaker_open", admitted.reason, retry_after=admitted.retry_after)
        self.admission = admitted
        self.key = admitted.key

    # -- to the upstream --------------------------------------------------------------------

    async def _send(self, runtime: Runtime) -> Answer:
        """Sends the request and waits for the head of the answer."""
        method = self.message.method
        again = method in SAFE_METHODS and self._whole
        exchange = await self._open(runtime, fresh=False)
        try:
            return await self._ask(runtime, exchange)
        except UpstreamFailed as failure:
            if failure.code != "connection_closed":
                raise
            # One idle connection was dead: its siblings are as old.
            await runtime.upstream.drop_idle()
            if not again:
                raise
        exchange.close()
        exchange = await self._open(runtime, fresh=True)
        return await self._ask(runtime, exchange)

    async def _open(self, runtime: Runtime, *, fresh: bool) -> Exchange:
        connection = await runtime.upstream.connect(fresh=fresh)
        exchange = Exchange(connection, head_only=self.message.method == "HEAD")
        self._exchange = exchange
        return exchange

    async def _ask(self, runtime: Runtime, exchange: Exchange) -> Answer:
        timeouts = runtime.config.timeouts
        loop = self.plane.loop
        if self._clock is not None:
            self._clock.close()
        self._clock = clock = Clock(loop, self._interrupt)
        if timeouts.total is not None and self._total is None:
            left = timeouts.total - (clocks_of_machine.monotonic() - self.started)
            self._total = loop.call_later(
                max(left, 0), self._interrupt, timeout("total", timeouts.total)
            )
        upstream = runtime.upstream
        assert self._target is not None
        line = (
            f"{self.message.method} {upstream.absolute}{upstream.prefix}{self._target.rest}"
            " HTTP/1.1\r\n"
        ).encode("utf-8", "surrogateescape")
        lines = headers.request_lines(
            self.message.raw_headers, upstream.authority, runtime.set_headers
        )
        body = self._framed(self._body)
        if self._whole and self._chunked:
            body += b"0\r\n\r\n"
        self._sent_at = clocks_of_machine.monotonic()
        try:
            exchange.write(b"".join((line, *lines, upstream.proxy_lines, b"\r\n", body)))
        except ConnectionResetError as error:
            raise exchange.failure(error) from error
        if self._whole:
            clock.arm("first_byte", timeouts.first_byte)
        else:
            self._upload = loop.create_task(self._send_rest(exchange, clock, timeouts.first_byte))
        answer = await exchange.head()
        self.first_byte_at = self.heard_at = clocks_of_machine.monotonic()
        if self.admission is not None:
            self.admission.first_byte(self.first_byte_at)
        self.upstream_status = answer.message.code
        if self._upload is not None and answer.message.code >= 400:
            # The upstream has made up its mind before it read everything.
            self._upload.cancel()
        return answer

    async def _send_rest(self, exchange: Exchange, clock: Clock, first_byte: float) -> None:
        """Streams the rest of an upload; whatever stops it wakes whoever waits for the answer."""
        try:
            while not self.payload.at_eof():
                chunk = await self._receive()
                if not chunk:
                    continue
                if len(self._sample) < SAMPLE:
                    self._sample += chunk[: SAMPLE - len(self._sample)]
                exchange.write(self._framed(chunk))
                if exchange.paused:
                    if not exchange.heard:
                        clock.arm("first_byte", first_byte)
                    await exchange.drained()
                    if not exchange.heard:
                        clock.stop()
            if self._chunked:
                exchange.write(b"0\r\n\r\n")
            self._whole = True
            self._sent_at = clocks_of_machine.monotonic()
            if not exchange.heard:
                clock.arm("first_byte", first_byte)
        except (CallerGone, Refused) as error:
            exchange.interrupt(error)
        except ConnectionResetError:
            # The upstream closed its reading side: it may still have answered.
            return

    def _framed(self, data: bytes) -> bytes:
        if self._chunked and data:
            return b"%x\r\n%b\r\n" % (len(data), data)
        return data

    def _interrupt(self, error: Exception) -> None:
        if self._exchange is not None:
            self._exchange.interrupt(error)

    # -- settling ---------------------------------------------------------------------------

    def settle(self, outcome: Outcome) -> None:
        """Tells the breaker how the call ended; the first time counts."""
        if self.settled:
            return
        self.settled = True
        self.verdict = outcome.verdict
        if self.admission is not None:
            self.admission.settle(outcome, clocks_of_machine.monotonic())

    def fingerprint(self) -> bytes:
        """Tells this request from others: method, target, length and the first 64 KiB."""
        mark = hashlib.blake2b(digest_size=16)
        mark.update(f"{self.message.method} {self.message.path} {self._length}\n".encode(
            "utf-8", "surrogateescape"
        ))
        mark.update(self._sample)
        return mark.digest()

    def wants_envelope(self) -> bool:
        """Does the caller ask for the envelope as the body of errors?"""
        return replies.wants_envelope(_text(headers.first(self.message.raw_headers, b"accept")))

    def marks(self) -> list[tuple[str, str]]:
        """The headers that every answer carries."""
        marks = []
        if self.runtime is not None:
            marks.append(("x-sidecar-provider", self.runtime.name))
        marks.append(("x-sidecar-decision", self.decision))
        if self.runtime is not None:
            marks.append(("x-sidecar-breaker", self.plane.breaker_mark(self)))
        marks.append(("x-correlation-id", self.correlation_id))
        return marks

    # -- answers of the daemon's own --------------------------------------------------------

    def _answer_refusal(self, refused: Refused) -> None:
        self.decision = refused.decision
        self.ending = Ending.REFUSED
        if refused.close:
            self.out.keep = False
        self.settle(Outcome(Verdict.NEUTRAL))
        if self.out.started:
            self.out.keep = False
            self.connection.abort()
            return
        envelope = replies.envelope_of(
            refused.decision,
            refused.detail,
            self.correlation_id,
            retry_after=refused.retry_after,
        )
        self._answer(envelope, None, f"local: {refused.decision}", sent=False)

    def _answer_failure(self, failure: UpstreamFailed) -> None:
        """No usable answer came: says so, in the caller's dialect."""
        if self._exchange is not None:
            self._exchange.close()
        self.decision = failure.decision
        self.settle(
            Outcome(
                failure.verdict, kind=failure.kind, code=failure.code, status=self.upstream_status
            )
        )
        envelope = replies.envelope_of(
            failure.decision,
            f"{self.runtime.name if self.runtime else 'upstream'}: {failure.detail}",
            self.correlation_id,
            code=failure.code,
            sent=failure.sent,
        )
        self._answer(envelope, failure.verdict, f"transport: {failure.code}", sent=failure.sent)

    def _answer_fault(self, error: Exception) -> None:
        self.decision = "internal_error"
        self.plane.observer.emit(
            Fault(
                at=clocks_of_machine.wall(),
                where="proxy",
                error=error,
                correlation_id=self.correlation_id,
            )
        )
        self.settle(Outcome(Verdict.NEUTRAL))
        self.out.keep = False
        if self.out.started:
            self.connection.abort()
            return
        envelope = replies.envelope_of(
            "internal_error", "a fault in the daemon; its log has more", self.correlation_id
        )
        # The fault may lie in a dialect: this answer asks none.
        self._answer(
            envelope, Verdict.NEUTRAL, "local: internal_error", sent=False, spoken=self.plane.generic
        )

    def _answer(
        self,
        envelope: Envelope,
        verdict: Verdict | None,
        rule: str,
        *,
        sent: bool,
        spoken: Dialect | None = None,
    ) -> None:
        self.classified = Classified(
            envelope=envelope, verdict=verdict or Verdict.NEUTRAL, rule=rule
        )
        status = replies.DECISIONS[self.decision].status
        dialect = spoken or (self.runtime.dialect if self.runtime else self.plane.generic)
        media_type, body = replies.body_of(
            envelope, status, dialect, self.path, plain=self.wants_envelope()
        )
        advice = should_retry(
            envelope,
            terminal=False,
            decision=self.decision,
            fail_fast=self.runtime is not None and self.runtime.config.breaker.fail_fast,
            sdk_wait_max=self.runtime.config.sdk_wait_max if self.runtime else 60.0,
            method=self.message.method,
            idempotency_key=headers.first(self.message.raw_headers, b"idempotency-key")
            is not None,
            repeatable=self.runtime is not None
            and self.runtime.dialect.repeatable(self.message.method, self.path),
            sent=sent,
        )
        own = [
            *self.marks(),
            *replies.error_headers(envelope, verdict, advice),
            ("cache-control", "no-store"),
            ("content-type", media_type),
            ("content-length", str(len(body))),
        ]
        if self._expects:
            # The caller was never told to go on: whether a body follows is not known.
            self.out.keep = False
            self.connection.finish_after_answer = True
        framing = Framing.NONE if self.message.method == "HEAD" else Framing.LENGTH
        self.out.start(
            status, replies.REASONS.get(status, ""), [headers.lines(own)], framing, body
        )

    def _left(self) -> None:
        """The caller is gone: nobody's fault, unless the upstream had been silent for long."""
        now = clocks_of_machine.monotonic()
        self.ending = Ending.SHUTDOWN if self.plane.stopping else Ending.CLIENT_LEFT
        if self.settled or self.runtime is None or self._exchange is None:
            self.settle(Outcome(Verdict.NEUTRAL))
            return
        since = self.heard_at or self._sent_at or now
        silence = now - since
        timeouts = self.runtime.config.timeouts
        if (
            not self.plane.stopping
            and self._whole
            and not self.connection.paused
            and silence >= timeouts.abandoned
            and self.runtime.heard.get(self.key or "", 0.0) <= since
        ):
            self.settle(Outcome(Verdict.FAILURE, kind=Kind.TIMEOUT, code="hang_abandoned"))
            self.classified = Classified(
                envelope=replies.envelope_of(
                    "timeout",
                    f"the caller left after {silence:.0f} s without a byte from the upstream",
                    self.correlation_id,
                    code="hang_abandoned",
                    sent=True,
                ),
                verdict=Verdict.FAILURE,
                rule="transport: hang_abandoned",
            )
            return
        self.settle(Outcome(Verdict.NEUTRAL))

    def _cut_for_shutdown(self) -> None:
        """The daemon stops before the call is done: says so if nothing was said yet."""
        if self.connection.transport is None:
            return
        if not self.out.started:
            self._answer_refusal(
                Refused("draining", "the daemon stopped before the answer came", close=True)
            )
        self.ending = Ending.SHUTDOWN
        self.connection.finish()

    def _close(self) -> None:
        """Frees everything; the call is over."""
        if self._finished:
            return
        self._finished = True
        if self._upload is not None and not self._upload.done():
            self._upload.cancel()
            self._whole = False
        if self._clock is not None:
            self._clock.close()
        if self._total is not None:
            self._total.cancel()
        if self._exchange is not None:
            self._exchange.end(reusable=self._whole)
        if self.runtime is not None:
            self.runtime.left()
        if not self.settled:
            self.settle(Outcome(Verdict.NEUTRAL))
        self._report()

    def _report(self) -> None:
        now = clocks_of_machine.monotonic()
        classified = self.classified
        self.plane.observer.emit(
            CallFinished(
                at=clocks_of_machine.wall(),
                provider=self.runtime.name if self.runtime else None,
                key=self.key,
                model=self.model,
                method=self.message.method,
                path=redact_target(self.path),
                decision=self.decision,
                status=self.out.status,
                upstream_status=self.upstream_status,
                envelope=classified.envelope if classified else None,
                verdict=self.verdict if self.decision not in replies.LOCAL else None,
                rule=classified.rule if classified else "",
                correlation_id=self.correlation_id,
                duration=now - self.started,
                first_byte=self.first_byte_at - self.started if self.first_byte_at else None,
                reclassified=self.reclassified,
                would_refuse=self.admission is not None
                and self.admission.would_refuse is not None,
                ending=self.ending,
            )
        )


NO_REQUEST = RawRequestMessage(
    "GET",
    "/",
    HttpVersion11,
    CIMultiDictProxy(CIMultiDict[str]()),
    (),
    should_close=True,
    compression=None,
    upgrade=False,
    chunked=False,
    url=URL("/"),
)
"""Stands in where the parser found no request."""

SIGV4_REMEDY = (
    "an AWS SigV4 signature covers Host and path and cannot survive forwarding; "
    "use an API key (AWS_BEARER_TOKEN_BEDROCK) for Bedrock instead"
)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
