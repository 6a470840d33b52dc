"""The answer's way back: the bytes untouched, a bounded copy for the classification.

An answer that can carry an error is held until it is whole, `classify_body` is reached or
`timeouts.hold` has passed, so that an error becomes a real status. For the same reason a stream of
events is held until its first meaningful one; then it passes event by event and gets its verdict
at its end. What fails after its first byte never ends cleanly.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sidecar.breaker.model import Kind
from sidecar.envelope.model import Envelope
from sidecar.proxy.clocks import Clock
from sidecar.proxy.events import EventTail, FrameTail, Scanner
from sidecar.proxy.exchange import Answer, Exchange
from sidecar.proxy.failures import UpstreamFailed
from sidecar.proxy.judge import Judge, can_carry_error
from sidecar.proxy.outgoing import Framing

if TYPE_CHECKING:
    from sidecar.proxy.call import Call
    from sidecar.proxy.runtime import Runtime

TERMINATED_GRACE = 1.0
"""Seconds for the end of a stream after its terminator, before the connection is dropped."""

HELD_EVENTS = 64
"""Opening frames and pings for which the head of a stream waits at most."""

HELD_BYTES = 256 * 1024
"""Bytes of a stream for which its head waits at most."""

TAIL_WAIT = 0.01
"""Seconds for which the beginning of an event waits for its rest: a cut rarely keeps it longer, and
half an event before ours would spoil both; nobody notices a hundredth of a second."""


class Relay:
    """Passes one answer back.

    Args:
        call: whose answer it is.
        runtime: the provider.
        exchange: where the body comes from.
        clock: of the upstream's silence.
        answer: the head, and the body's reader.

    Attributes:
        only_listens: a stream to which the caller listens: silence is nobody's failure.
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
        self._scanner: Scanner | None = None
        self._tail: EventTail | FrameTail | None = None
        self._content = False
        self.only_listens = call.only_listens and self._judge.streams(b"") is True
        self._over = False
        self._start: bytes | None = b""
        self._held_until = call.plane.loop.time() + runtime.config.timeouts.hold

    async def run(self) -> None:
        """Relays head and body, and settles the call."""
        judge = self._judge
        if judge.framing is Framing.NONE:
            self._clock.stop()
            judge.ended_well = True
            judge.conclude(judge.classify())
            judge.start(b"")
            return
        if self._exchange.complete:
            self._clock.stop()
            self._here = True
        else:
            self._wait_for_content()
        failed = judge.status >= 400 or judge.told_in_head
        streams = False if failed else judge.streams(b"")
        if streams:
            self._begin_stream(b"")
            await self._hold_stream([])
            return
        told = failed or can_carry_error(judge.content_type)
        # Of what can tell nothing a copy is needless, unless it turns out to be a stream.
        self._copies = told or judge.off
        if judge.off or not (told or streams is None):
            await self._pass(b"")
        else:
            await self._hold()

    # -- clocks -----------------------------------------------------------------------------

    def _wait_for_content(self) -> None:
        self._arm("first_content", self._runtime.config.timeouts.first_content)

    def _arm(self, name: str, seconds: float) -> None:
        if self.only_listens:
            self._clock.stop()
        else:
            self._clock.arm(name, seconds)

    def _heard(self, chunk: bytes) -> None:
        """Bytes arrived: moves the clock, feeds the scanner and the copy."""
        self._call.heard()
        scanner = self._scanner
        if scanner is not None:
            scanner.feed(chunk)
            self._content = self._content or scanner.content
            if self._call.first_content_at is None and scanner.begun:
                self._call.first_content_at = self._call.heard_at
            if scanner.over or scanner.failed is not None:
                self._last_word(scanner, chunk)
                return
        else:
            self._content = True
            if self._copies:
                self._judge.copy.add(chunk)
        if self._content and not self._here:
            self._arm("idle", self._runtime.config.timeouts.idle)

    def _last_word(self, scanner: Scanner, chunk: bytes) -> None:
        """The verdict is known now; what may follow it is not waited for as content is.

        Events that go on after an error keep the stream alive, but where a model answers.
        """
        if scanner.terminated or self._call.out.started:
            self._judge.conclude(scanner.finish(clean=True))
        if scanner.begun and not scanner.over:
            self._arm("idle", self._runtime.config.timeouts.idle)
        elif not (self._over and chunk.startswith(b":")):
            self._over = True
            self._clock.arm("idle", TERMINATED_GRACE)

    # -- holding ----------------------------------------------------------------------------

    async def _hold(self) -> None:
        """Collects the answer for a while, then sends it with the status it deserves."""
        judge = self._judge
        parts: list[bytes] = []
        try:
            done = self._exchange.complete or await self._collect(parts)
        except UpstreamFailed as failure:
            await self._failed_while_held(b"".join(parts), failure)
            return
        if done:
            # What is left of a whole body needs no wait.
            self._take(parts, self._exchange.there())
        if self._scanner is not None:
            await self._hold_stream(parts, whole=done)
            return
        judge.ended_well = done
        if done or (parts and judge.status >= 400):
            judge.conclude(judge.classify())
        elif judge.status >= 400 or judge.copy.cut:
            # Nothing of the error was said yet, or of the answer not all: the end may tell better.
            judge.suppose(judge.classify())
        body = judge.copy.data() if self._copies and not judge.copy.cut else b"".join(parts)
        if not judge.start(body, whole=done):
            await self._continue()

    async def _collect(self, parts: list[bytes]) -> bool:
        """Gathers chunks; True if the body is whole."""
        exchange = self._exchange
        try:
            async with asyncio.timeout_at(self._held_until):
                while not self._judge.copy.cut and self._scanner is None and self._waits:
                    chunk = await exchange.part()
                    if not chunk:
                        return True
                    self._take(parts, chunk)
        except TimeoutError:
            pass
        return False

    @property
    def _waits(self) -> bool:
        """May what is held turn out to be an error, or a stream?"""
        return self._copies or self._start is not None

    def _take(self, parts: list[bytes], chunk: bytes) -> None:
        if not chunk:
            return
        if self._start is not None and self._judge.status < 400:
            self._sniff(self._start, chunk)
        parts.append(chunk)
        self._heard(chunk)

    def _sniff(self, before: bytes, chunk: bytes) -> None:
        """Looks whether the body turns out to be a stream, however its beginning is cut."""
        judge, start = self._judge, before + chunk
        streams = judge.streams(start)
        if streams:
            self._begin_stream(start)
            if before and self._scanner is not None:
                self._scanner.feed(before)
        self._start = start if streams is None else None

    async def _failed_while_held(self, body: bytes, failure: UpstreamFailed) -> None:
        """The body broke off before anything was sent."""
        judge = self._judge
        if judge.status < 400:
            if failure.decision != "timeout":
                failure = UpstreamFailed(
                    "upstream_error",
                    "invalid_upstream_response",
                    "the upstream's answer broke off",
                    sent=True,
                )
            raise failure
        judge.conclude(judge.classify(complete=False))
        if not judge.start(body):
            self._call.out.cut()

    async def _hold_stream(self, parts: list[bytes], *, whole: bool = False) -> None:
        """Keeps the head of a stream until something meaningful has come, or for a while.

        An error in the place of the first word becomes a real status, as if there were no stream;
        what fails after a word was said keeps the status that the upstream gave it.
        """
        judge, scanner = self._judge, self._scanner
        if scanner is None:
            await self._pass(b"".join(parts))
            return
        try:
            whole = whole or await self._collect_events(parts, scanner)
        except UpstreamFailed as failure:
            if scanner.failed is None and not scanner.terminated:
                await self._failed_while_held(b"".join(parts), failure)
                return
            # It has said all it had to say, and left its connection open or broke it.
            whole = True
        body = b"".join(parts)
        if scanner.begun or not (whole or scanner.failed):
            if whole and judge.framing is Framing.LENGTH and self._is_short(scanner):
                judge.unsize()
            self._start_stream(body, scanner)
            if whole:
                self._ended()
            else:
                await self._continue()
            return
        judge.ended_well = whole
        judge.conclude(scanner.failed or scanner.finish(clean=True))
        if not judge.start(body, whole=whole, instead=scanner.error_body):
            await self._continue()

    def _is_short(self, scanner: Scanner) -> bool:
        """Is a body that is whole no whole answer, though nothing in it says so?"""
        return scanner.finish(clean=True).brief is not None and scanner.failed is None

    def _start_stream(self, body: bytes, scanner: Scanner) -> None:
        tail = self._tail
        self._judge.start(body if tail is None else tail.whole(body, self._call.plane.loop.time()))
        if scanner.failed is not None:
            self._judge.conclude(scanner.failed)

    async def _collect_events(self, parts: list[bytes], scanner: Scanner) -> bool:
        """Gathers what comes before the first word; True if the body is whole."""
        exchange = self._exchange
        self._keep(parts, exchange.there())
        if exchange.complete or self._content:
            return exchange.complete
        held = sum(map(len, parts))
        try:
            async with asyncio.timeout_at(self._held_until):
                while not scanner.content and scanner.events < HELD_EVENTS and held < HELD_BYTES:
                    chunk = await exchange.part()
                    if not chunk:
                        return True
                    self._keep(parts, chunk)
                    held += len(chunk)
        except TimeoutError:
            pass
        return False

    def _keep(self, parts: list[bytes], chunk: bytes) -> None:
        if chunk:
            parts.append(chunk)
            self._heard(chunk)

    # -- passing on -------------------------------------------------------------------------

    def _begin_stream(self, first_bytes: bytes) -> None:
        self._scanner = self._judge.scanner()
        if self._scanner is not None and self._scanner.plain and not self._scanner.framed:
            self._tail = self._judge.tail(first_bytes)

    async def _pass(self, body: bytes) -> None:
        """Sends the head at once, then the body as it comes."""
        if not self._judge.start(body):
            await self._continue()

    async def _continue(self) -> None:
        tail, connection = self._tail, self._call.connection
        try:
            while True:
                if connection.paused:
                    await self._wait_for_caller()
                chunk = await self._next()
                if chunk is None:
                    assert tail is not None
                    self._call.out.write(tail.give_up())
                elif not chunk:
                    break
                elif self._pass_on(chunk):
                    await self._exchange.follow(self._pass_on)
        except UpstreamFailed as failure:
            self._failed_late(failure)
            return
        self._ended()

    def _pass_on(self, chunk: bytes) -> bool:
        """Sends a part; False if the caller or the rest of an event has to be waited for."""
        call, tail = self._call, self._tail
        call.out.write(chunk if tail is None else tail.whole(chunk, call.plane.loop.time()))
        self._heard(chunk)
        return not call.connection.paused and (tail is None or tail.since is None)

    async def _next(self) -> bytes | None:
        """The next bytes; empty at the end; None if the rest of an event keeps us waiting."""
        if self._tail is None or self._tail.since is None:
            return await self._exchange.part()
        try:
            async with asyncio.timeout_at(self._tail.since + TAIL_WAIT):
                return await self._exchange.part()
        except TimeoutError:
            return None

    async def _wait_for_caller(self) -> None:
        """The caller reads slowly: that is not the upstream's silence."""
        self._clock.stop()
        await self._call.connection.drained()
        if self._over:
            self._clock.arm("idle", TERMINATED_GRACE)
        elif self._content:
            self._arm("idle", self._runtime.config.timeouts.idle)
        else:
            self._wait_for_content()

    # -- ends -------------------------------------------------------------------------------

    def _ended(self) -> None:
        """The body's framing says that it is whole; a stream has its own word."""
        judge, scanner = self._judge, self._scanner
        judge.ended_well = True
        if scanner is None:
            judge.conclude(judge.supposed_or_classified())
            self._end()
            return
        verdict = scanner.finish(clean=True)
        judge.conclude(verdict)
        if verdict.brief is None or scanner.failed is not None:
            self._end()
        else:
            self._cut(verdict.brief)

    def _failed_late(self, failure: UpstreamFailed) -> None:
        """The upstream fell silent or broke off after the head had been sent."""
        judge, scanner = self._judge, self._scanner
        if scanner is not None and scanner.terminated:
            # Everything was said; only the connection was left open.
            self._end()
        elif judge.status >= 400:
            judge.conclude(judge.classify(complete=False))
            self._cut(None)
        elif scanner is not None and scanner.failed is not None:
            judge.conclude(scanner.failed)
            self._cut(None)
        else:
            classified, kind = judge.of_failure(failure), failure.kind
            if scanner is not None:
                found = scanner.finish(clean=False)
                said = scanner.terminated or scanner.failed is not None
                if said or failure.decision != "timeout":
                    classified, kind = found, Kind.ANSWER
            judge.conclude(classified, kind=kind)
            if scanner is not None and scanner.terminated:
                # Only the line end behind its last word was missing.
                self._end()
            else:
                self._cut(classified.brief)

    def left(self) -> None:
        """The caller has gone: what the answer had said by then counts all the same."""
        scanner = self._scanner
        if scanner is not None and (scanner.done or scanner.failed is not None):
            # Clients of some protocols hang up as soon as their reply is there.
            self._judge.conclude(scanner.finish(clean=True))
        self._judge.conclude_supposed()

    def stop(self, envelope: Envelope) -> None:
        """The daemon stops: the answer ends here, and says so."""
        if self._scanner is not None and (self._scanner.terminated or self._scanner.failed):
            self._cut(None)
        else:
            self._cut(envelope)

    def _end(self) -> None:
        if self._tail is not None:
            self._call.out.write(self._tail.give_up())
        self._call.out.end()

    def _cut(self, envelope: Envelope | None) -> None:
        """Ends badly; a stream whose own words are known gets an event that says why."""
        out, tail, scanner = self._call.out, self._tail, self._scanner
        if envelope is None or scanner is None or self._judge.off or not out.takes_more:
            out.cut()
            return
        if tail is None:
            kind = self._judge.content_type or ""
            whole = scanner.plain and scanner.between_frames
            out.cut(self._judge.dialect.frame_error(envelope, kind) if whole else b"")
            return
        out.cut(tail.last(self._judge.last_event(envelope, tail)))
