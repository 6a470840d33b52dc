"""Sending a request to the upstream: connection, head, upload, and the wait for an answer.

Two things run at once during an upload: the caller's bytes go out, and the upstream may answer
before it has them all. Whoever of the two ends first wakes the other.
"""

from __future__ import annotations

import asyncio

from aiohttp.connector import Connection

from sidecar import clock as machine
from sidecar.faults.injector import Fault
from sidecar.proxy import headers
from sidecar.proxy.clocks import Clock, timeout
from sidecar.proxy.exchange import Answer, Exchange
from sidecar.proxy.failures import CallerGone, Refused, UpstreamFailed
from sidecar.proxy.incoming import Incoming
from sidecar.proxy.runtime import Runtime
from sidecar.proxy.signing import Signing
from sidecar.proxy.sigv4 import REPLACED
from sidecar.telemetry.trace import CallTrace

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Sent once more when a reused connection turns out to be dead; nothing else ever is."""


class Forwarding:
    """One request on its way to one provider.

    Args:
        runtime: the provider.
        incoming: the request.
        rest: path and query at the provider, as they came.
        clock: of the upstream's silence.
        loop: the running loop.
        started: when the call began, monotonic seconds.
        signing: signs the request; None where nothing does.
        trace: the call's place in a trace; None while it has none.
        fault: what is done to the call on purpose; None to nearly all of them.

    Attributes:
        attempts: requests for which a connection was sought.
        exchange: the connection in use; None before there is one.
        overhead: seconds of the daemon's own before the request first left, with what `Call` waited
            for before; None before.
        sent_at: when the request had left, monotonic seconds; None before.
    """

    __slots__ = (
        "_fault",
        "_incoming",
        "_loop",
        "_rest",
        "_runtime",
        "_signing",
        "_started",
        "_total",
        "_trace",
        "_upload",
        "_waiting",
        "attempts",
        "clock",
        "exchange",
        "overhead",
        "sent_at",
    )

    def __init__(
        self,
        runtime: Runtime,
        incoming: Incoming,
        rest: str,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        started: float,
        signing: Signing | None,
        trace: CallTrace | None = None,
        fault: Fault | None = None,
    ) -> None:
        self._fault = fault
        self._runtime = runtime
        self._incoming = incoming
        self._rest = rest
        self._loop = loop
        self._signing = signing
        self._started = started
        self._total: asyncio.TimerHandle | None = None
        self._trace = trace
        self._upload: asyncio.Task[None] | None = None
        self._waiting = 0.0
        self.attempts = 0
        self.overhead: float | None = None
        self.exchange: Exchange | None = None
        self.clock = clock
        clock.begin(self._interrupt)
        self.sent_at: float | None = None

    async def answer(self) -> Answer:
        """Sends the request and waits for the head of the answer.

        Raises:
            UpstreamFailed: there is none.
            CallerGone: the caller left during its upload.
            Refused: the upload broke a rule.
        """
        incoming = self._incoming
        if self._signing is not None:
            begun = machine.monotonic()
            self._signing.payload = await incoming.hold()
            self._waiting += machine.monotonic() - begun
        again = incoming.method in SAFE_METHODS and incoming.whole
        exchange = await self._open(fresh=False)
        try:
            return await self._ask(exchange)
        except UpstreamFailed as failure:
            if failure.code != "connection_closed":
                raise
            # One idle connection was dead: its siblings are as old.
            self._runtime.upstream.drop_idle()
            if not again:
                raise
            if self._trace is not None:
                last = self._trace.attempts[-1]
                last.ended, last.error = machine.monotonic(), failure.code
        exchange.close()
        return await self._ask(await self._open(fresh=True))

    async def _open(self, *, fresh: bool) -> Exchange:
        upstream = self._runtime.upstream
        self.attempts += 1
        if self._trace is not None:
            self._trace.attempt(machine.monotonic())
        if self._fault is not None:
            begun = machine.monotonic()
            try:
                return await self._open_faulty(self._fault, fresh=fresh)
            finally:
                self._waiting += machine.monotonic() - begun
        connection = None if fresh else upstream.reusable()
        if connection is None:
            begun = machine.monotonic()
            try:
                connection = await upstream.connect()
            finally:
                self._waiting += machine.monotonic() - begun
        self.exchange = Exchange(
            connection,
            self._loop,
            upstream.keep,
            head_only=self._incoming.method == "HEAD",
            upgrades=self._incoming.upgrades,
        )
        return self.exchange

    async def _open_faulty(self, fault: Fault, *, fresh: bool) -> Exchange:
        from sidecar.faults.wire import open_exchange  # noqa: PLC0415 - only tests need it

        upstream = self._runtime.upstream

        async def connect() -> Connection:
            return (None if fresh else upstream.reusable()) or await upstream.connect()

        self.exchange = await open_exchange(
            fault,
            self._runtime.dialect,
            self._rest.partition("?")[0],
            connect,
            upstream.keep,
            method=self._incoming.method,
            head_only=self._incoming.method == "HEAD",
            upgrades=self._incoming.upgrades,
            connect_timeout=self._runtime.config.timeouts.connect,
        )
        return self.exchange

    async def _ask(self, exchange: Exchange) -> Answer:
        timeouts = self._runtime.config.timeouts
        if timeouts.total is not None and self._total is None:
            left = timeouts.total - (machine.monotonic() - self._started)
            failure = timeout("total", timeouts.total)
            self._total = self._loop.call_later(max(left, 0), self._interrupt, failure)
        incoming = self._incoming
        self.sent_at = machine.monotonic()
        if self.overhead is None:
            self.overhead = self.sent_at - self._started - self._waiting
        if self._trace is not None:
            self._trace.attempts[-1].sent = self.sent_at
        try:
            exchange.write(self._head() + incoming.framed(incoming.body, last=incoming.whole))
        except ConnectionResetError as error:
            raise exchange.failure(error) from error
        if incoming.whole:
            self.clock.arm("first_byte", timeouts.first_byte)
        else:
            self._upload = self._loop.create_task(self._send_rest(exchange))
        answer = await exchange.head()
        if self._upload is not None and answer.message.code >= 400:
            # The upstream has made up its mind before it read everything.
            self._upload.cancel()
        return answer

    def _head(self) -> bytes:
        upstream, incoming = self._runtime.upstream, self._incoming
        line = f"{incoming.method} {upstream.absolute}{upstream.prefix}{self._rest} HTTP/1.1\r\n"
        named = headers.connection_names(incoming.raw) if b"connection" in incoming.named else ()
        replaced = self._runtime.set_headers
        if self._signing is not None:
            target = upstream.prefix + self._rest
            replaced = self._signing.lines(
                incoming.method, target, upstream.authority, incoming.raw, named, replaced
            )
            named = {*named, *REPLACED}
        trace = self._trace
        if trace is not None:
            # Ours in place of the caller's, however often and however spelt: there are never two.
            named = trace.stops(incoming.named, named)
        lines = headers.request_lines(incoming.raw, upstream.authority, replaced, named)
        if trace is not None:
            lines.append(b"traceparent: %b\r\n" % trace.header(trace.attempts[-1]))
        if incoming.upgrades:
            lines.append(headers.UPGRADE)
        return b"".join(
            (line.encode("utf-8", "surrogateescape"), *lines, upstream.proxy_lines, b"\r\n")
        )

    async def _send_rest(self, exchange: Exchange) -> None:
        """Streams the rest of an upload; whatever stops it wakes whoever waits for the answer."""
        incoming = self._incoming
        first_byte = self._runtime.config.timeouts.first_byte
        try:
            while not incoming.at_end:
                chunk = await incoming.part()
                exchange.write(incoming.framed(chunk))
                if exchange.paused:
                    if not exchange.heard:
                        self.clock.arm("first_byte", first_byte)
                    await exchange.drained()
                    if not exchange.heard:
                        self.clock.stop()
            exchange.write(incoming.framed(b"", last=True))
            incoming.whole = True
            self.sent_at = machine.monotonic()
            if not exchange.heard:
                self.clock.arm("first_byte", first_byte)
        except (CallerGone, Refused) as error:
            exchange.interrupt(error)
        except ConnectionResetError:
            # The upstream closed its reading side: it may still have answered.
            return

    def _interrupt(self, error: Exception) -> None:
        if self.exchange is not None:
            self.exchange.interrupt(error)

    def close(self) -> None:
        """The call is over: the connection is kept if both sides are done with it."""
        if self._upload is not None:
            self._upload.cancel()
        self.clock.end()
        if self._total is not None:
            self._total.cancel()
        if self.exchange is not None:
            self.exchange.end(reusable=self._incoming.whole)

    async def closed(self) -> None:
        """Waits until nobody reads the caller's body any more."""
        if self._upload is not None:
            await asyncio.wait({self._upload})
