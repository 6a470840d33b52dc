"""The answer's way back: the bytes untouched, a bounded copy for the classification.

An answer that can carry an error is held until it is whole, `classify_body` is reached or
`timeouts.hold` has passed, so that an error becomes a real status; a stream of events passes event
by event and gets its verdict at its end. What fails after its first byte never ends cleanly.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sidecar import clock as machine
from sidecar.breaker.model import Kind
from sidecar.envelope.model import Envelope
from sidecar.envelope.stream import StreamReader, is_stream
from sidecar.proxy.clocks import Clock
from sidecar.proxy.exchange import Answer, Exchange
from sidecar.proxy.failures import UpstreamFailed
from sidecar.proxy.judge import Judge, can_carry_error
from sidecar.proxy.outgoing import Framing

if TYPE_CHECKING:
    from sidecar.proxy.call import Call
    from sidecar.proxy.runtime import Runtime

TERMINATED_GRACE = 1.0
"""Seconds for the end of a stream after its terminator, before the connection is dropped."""


class Relay:
    """Passes one answer back.

    Args:
        call: whose answer it is.
        runtime: the provider.
        exchange: where the body comes from.
        clock: of the upstream's silence.
        answer: the head, and the body's reader.
    """

    def __init__(
        self, call: Call, runtime: Runtime, exchange: Exchange, clock: Clock, answer: Answer
    ) -> None:
        self._call = call
        self._runtime = runtime
        self._exchange = exchange
        self._clock = clock
        self._judge = Judge(call, runtime, answer)
        self._copies = True
        self._here = False
        self._reader: StreamReader | None = None
        self._content = False

    async def run(self) -> None:
        """Relays head and body, and settles the call."""
        if self._judge.framing is Framing.NONE:
            self._clock.stop()
            self._judge.ended_well = True
            self._judge.conclude(self._judge.classify())
            self._judge.start(b"")
            return
        if self._exchange.complete:
            self._clock.stop()
            self._here = True
        else:
            self._wait_for_content()
        kind = self._judge.content_type
        if is_stream(kind, b""):
            self._begin_stream()
            await self._pass(b"")
        elif self._judge.off or not can_carry_error(kind):
            self._copies = self._judge.off
            await self._pass(b"")
        else:
            await self._hold()

    # -- clocks -----------------------------------------------------------------------------

    def _wait_for_content(self) -> None:
        timeouts = self._runtime.config.timeouts
        self._clock.arm("first_content", timeouts.first_content)

    def _heard(self, chunk: bytes) -> None:
        """Bytes arrived: moves the clock, feeds the reader and the copy."""
        now = machine.monotonic()
        call = self._call
        call.heard_at = now
        if call.key is not None:
            self._runtime.heard[call.key] = now
        reader = self._reader
        if reader is not None:
            if not reader.terminated:
                reader.feed(chunk)
            self._content = reader.content or reader.failed is not None
            if reader.terminated:
                self._judge.conclude(reader.finish(clean=True))
                self._clock.arm("idle", TERMINATED_GRACE)
                return
        else:
            self._content = True
            if self._copies:
                self._judge.copy.add(chunk)
        if self._content and not self._here:
            self._clock.arm("idle", self._runtime.config.timeouts.idle)

    # -- holding ----------------------------------------------------------------------------

    async def _hold(self) -> None:
        """Collects the answer for a while, then sends it with the status it deserves."""
        parts: list[bytes] = []
        failure: UpstreamFailed | None = None
        if self._exchange.complete:
            body = self._exchange.rest()
            if is_stream(self._judge.content_type, body):
                self._begin_stream()
                self._take(parts, body)
                await self._pass(body)
                return
            self._take(parts, body)
            done = True
        else:
            try:
                done = await self._collect(parts)
            except UpstreamFailed as error:
                done, failure = True, error
        body = b"".join(parts) if self._judge.copy.cut or self._reader else self._judge.copy.data()
        if failure is not None:
            await self._failed_while_held(body, failure)
            return
        if not done and self._reader is not None:
            await self._pass(body)
            return
        self._judge.ended_well = done
        if done or self._judge.status >= 400 or self._judge.copy.cut:
            self._judge.conclude(self._judge.classify())
        if self._judge.start(body):
            return
        if done:
            self._call.out.end()
            return
        await self._continue()

    def _take(self, parts: list[bytes], chunk: bytes) -> None:
        if chunk:
            parts.append(chunk)
            self._heard(chunk)

    async def _collect(self, parts: list[bytes]) -> bool:
        """Gathers chunks; True if the body is whole."""
        kind = self._judge.content_type
        try:
            async with asyncio.timeout(self._runtime.config.timeouts.hold):
                while not self._judge.copy.cut:
                    chunk = await self._exchange.part()
                    if not chunk:
                        return True
                    if not parts and is_stream(kind, chunk):
                        self._begin_stream()
                        self._take(parts, chunk)
                        return False
                    self._take(parts, chunk)
        except TimeoutError:
            pass
        return False

    async def _failed_while_held(self, body: bytes, failure: UpstreamFailed) -> None:
        """The body broke off before anything was sent."""
        if self._judge.status < 400:
            if failure.decision != "timeout":
                failure = UpstreamFailed(
                    "upstream_error",
                    "invalid_upstream_response",
                    "the upstream's answer broke off",
                    sent=True,
                )
            raise failure
        self._judge.conclude(self._judge.classify(complete=False))
        if not self._judge.start(body):
            await self._call.out.cut()

    # -- passing on -------------------------------------------------------------------------

    def _begin_stream(self) -> None:
        self._reader = self._judge.reader()

    async def _pass(self, body: bytes) -> None:
        """Sends the head at once, then the body as it comes."""
        if self._judge.status >= 400:
            self._judge.conclude(self._judge.classify())
        if not self._judge.start(body):
            await self._continue()

    async def _continue(self) -> None:
        call, exchange, out = self._call, self._exchange, self._call.out
        connection = call.connection
        try:
            while True:
                if connection.paused:
                    self._clock.stop()
                    await connection.drained()
                    if self._content:
                        self._clock.arm("idle", self._runtime.config.timeouts.idle)
                    else:
                        self._wait_for_content()
                chunk = await exchange.part()
                if not chunk:
                    break
                out.write(chunk)
                self._heard(chunk)
        except UpstreamFailed as failure:
            await self._failed_late(failure)
            return
        await self._ended()

    async def _ended(self) -> None:
        """The body's framing says that it is whole; a stream has its own word."""
        if self._call.settled:
            self._call.out.end()
            return
        self._judge.ended_well = True
        if self._reader is None:
            self._judge.conclude(self._judge.classify())
            self._call.out.end()
            return
        verdict = self._reader.finish(clean=True)
        self._judge.conclude(verdict)
        if verdict.envelope is None or self._reader.failed is not None:
            self._call.out.end()
        else:
            await self._end_with_event(verdict.envelope)

    async def _failed_late(self, failure: UpstreamFailed) -> None:
        """The upstream fell silent or broke off after the head had been sent."""
        reader = self._reader
        if reader is not None and reader.terminated:
            # Everything was said; only the connection was left open.
            self._call.out.end()
            return
        if self._call.settled:
            await self._call.out.cut()
            return
        timed_out = failure.decision == "timeout"
        if reader is not None and reader.failed is not None:
            self._judge.conclude(reader.failed)
            await self._call.out.cut()
            return
        if timed_out:
            classified = self._judge.of_failure(failure)
        elif reader is not None:
            classified = reader.finish(clean=False)
        else:
            classified = self._judge.of_failure(failure)
        self._judge.conclude(classified, kind=failure.kind if timed_out else Kind.ANSWER)
        if reader is not None and classified.envelope is not None:
            await self._end_with_event(classified.envelope)
        else:
            await self._call.out.cut()

    async def _end_with_event(self, envelope: Envelope) -> None:
        if self._judge.off:
            await self._call.out.cut()
            return
        await self._call.out.cut(self._runtime.dialect.stream_error(envelope, self._call.path))
