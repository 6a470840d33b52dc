"""The answer's way back: the bytes untouched, a bounded copy for the classification.

An answer that can carry an error is held until it is whole, `classify_body` is reached or
`timeouts.hold` has passed, so that an error becomes a real status; a stream of events passes event
by event and gets its verdict at its end. What fails after its first byte never ends cleanly.
"""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from sidecar import clock as machine
from sidecar.breaker.model import Kind, Mode, Outcome
from sidecar.envelope.http import classify
from sidecar.envelope.inflate import inflate
from sidecar.envelope.model import Classified, Envelope, Headers, Seen, Verdict
from sidecar.envelope.policy import is_reclassified, should_retry, status_for
from sidecar.envelope.stream import StreamReader, is_stream
from sidecar.proxy import headers, replies
from sidecar.proxy.clocks import Clock
from sidecar.proxy.exchange import Answer, Exchange
from sidecar.proxy.failures import UpstreamFailed
from sidecar.proxy.outgoing import Framing, framing_of
from sidecar.telemetry.observer import Fault

if TYPE_CHECKING:
    from sidecar.proxy.call import Call
    from sidecar.proxy.runtime import Runtime

TERMINATED_GRACE = 1.0
"""Seconds for the end of a stream after its terminator, before the connection is dropped."""

WORDS = re.compile(r"text/|.*(?:json|xml|html|javascript)|application/x-www-form-urlencoded|$")
"""Media types (or none) of bodies that can say something: those are held, others never."""

REPLACED_BODY = frozenset(
    {b"content-length", b"content-type", b"content-encoding", b"content-range", b"etag"}
)
"""What described the upstream's body, where the envelope takes its place."""


class BoundedCopy:
    """The beginning of a body, for the classification.

    Attributes:
        limit: bytes that are kept.
        cut: there was more.
    """

    __slots__ = ("_parts", "_size", "cut", "limit")

    def __init__(self, limit: int) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self.cut = False
        self.limit = limit

    def add(self, chunk: bytes) -> None:
        """Keeps what there is room for."""
        room = self.limit - self._size
        if len(chunk) > room:
            self.cut = True
            chunk = chunk[:room]
        if chunk:
            self._parts.append(chunk)
            self._size += len(chunk)

    def data(self) -> bytes:
        """What was kept, in one piece."""
        if len(self._parts) != 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0]


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
        self._message = answer.message
        self._headers = Headers.from_raw(answer.message.raw_headers)
        self._off = call.admission is not None and call.admission.mode is Mode.OFF
        self._framing = framing_of(
            answer.message.code,
            answer.message.raw_headers,
            chunked=answer.message.chunked,
            head_only=call.incoming.method == "HEAD",
        )
        self._copy = BoundedCopy(runtime.config.limits.classify_body)
        self._copies = True
        self._here = False
        self._ended_well = False
        self._reader: StreamReader | None = None
        self._content = False

    async def run(self) -> None:
        """Relays head and body, and settles the call."""
        if self._framing is Framing.NONE:
            self._clock.stop()
            self._ended_well = True
            self._conclude(self._classify(complete=True))
            self._start(b"")
            return
        if self._exchange.complete:
            self._clock.stop()
            self._here = True
        else:
            self._wait_for_content()
        kind = self._headers.get("content-type")
        if is_stream(kind, b""):
            self._begin_stream()
            await self._pass(b"")
        elif self._off or not can_carry_error(kind):
            self._copies = self._off
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
                self._conclude(reader.finish(clean=True))
                self._clock.arm("idle", TERMINATED_GRACE)
                return
        else:
            self._content = True
            if self._copies:
                self._copy.add(chunk)
        if self._content and not self._here:
            self._clock.arm("idle", self._runtime.config.timeouts.idle)

    # -- holding ----------------------------------------------------------------------------

    async def _hold(self) -> None:
        """Collects the answer for a while, then sends it with the status it deserves."""
        parts: list[bytes] = []
        failure: UpstreamFailed | None = None
        if self._exchange.complete:
            body = self._exchange.rest()
            if is_stream(self._headers.get("content-type"), body):
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
        body = b"".join(parts) if self._copy.cut or self._reader else self._copy.data()
        if failure is not None:
            await self._failed_while_held(body, failure)
            return
        if not done and self._reader is not None:
            await self._pass(body)
            return
        self._ended_well = done
        if done or self._message.code >= 400 or self._copy.cut:
            self._conclude(self._classify(complete=True))
        if self._start(body):
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
        kind = self._headers.get("content-type")
        try:
            async with asyncio.timeout(self._runtime.config.timeouts.hold):
                while not self._copy.cut:
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
        if self._message.code < 400:
            if failure.decision != "timeout":
                failure = UpstreamFailed(
                    "upstream_error",
                    "invalid_upstream_response",
                    "the upstream's answer broke off",
                    sent=True,
                )
            raise failure
        self._conclude(self._classify(complete=False))
        if not self._start(body):
            await self._call.out.cut()

    # -- passing on -------------------------------------------------------------------------

    def _begin_stream(self) -> None:
        coding = (self._headers.get("content-encoding") or "identity").strip().lower()
        if self._off or coding != "identity":
            return
        self._reader = StreamReader(
            self._runtime.dialect,
            self._seen(complete=True),
            rules=self._runtime.config.rules,
            correlation_id=self._call.correlation_id,
        )

    async def _pass(self, body: bytes) -> None:
        """Sends the head at once, then the body as it comes."""
        if self._message.code >= 400:
            self._conclude(self._classify(complete=True))
        if not self._start(body):
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
        self._ended_well = True
        if self._reader is None:
            self._conclude(self._classify(complete=True))
            self._call.out.end()
            return
        verdict = self._reader.finish(clean=True)
        self._conclude(verdict)
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
            self._conclude(reader.failed)
            await self._call.out.cut()
            return
        if timed_out:
            classified = self._of_failure(failure)
        elif reader is not None:
            classified = reader.finish(clean=False)
        else:
            classified = self._of_failure(failure)
        self._conclude(classified, kind=failure.kind if timed_out else Kind.ANSWER)
        if reader is not None and classified.envelope is not None:
            await self._end_with_event(classified.envelope)
        else:
            await self._call.out.cut()

    async def _end_with_event(self, envelope: Envelope) -> None:
        if self._off:
            await self._call.out.cut()
            return
        await self._call.out.cut(self._runtime.dialect.stream_error(envelope, self._call.path))

    def _of_failure(self, failure: UpstreamFailed) -> Classified:
        envelope = replies.envelope_of(
            failure.decision,
            f"{self._runtime.name}: {failure.detail}",
            self._call.correlation_id,
            code=failure.code,
            sent=True,
        )
        return Classified(
            envelope=envelope, verdict=failure.verdict, rule=f"transport: {failure.code}"
        )

    # -- classifying ------------------------------------------------------------------------

    def _seen(self, *, complete: bool) -> Seen:
        body: bytes | None = self._copy.data()
        coding = self._headers.get("content-encoding")
        if coding and body:
            body = inflate(body, coding, self._copy.limit)
        return Seen(
            status=self._message.code,
            headers=self._headers,
            body=body or b"",
            truncated=self._copy.cut or not self._ended_well,
            complete=complete,
            method=self._call.incoming.method,
            path=self._runtime.upstream.prefix + self._call.path,
            now=machine.wall(),
        )

    def _classify(self, *, complete: bool) -> Classified:
        """What the answer means; a fault in here costs the call nothing but its verdict."""
        try:
            return classify(
                self._seen(complete=complete),
                self._runtime.dialect,
                rules=self._runtime.config.rules,
                correlation_id=self._call.correlation_id,
            )
        except Exception as error:  # noqa: BLE001 - the bytes pass whatever happens here
            self._call.plane.observer.emit(
                Fault(
                    at=machine.wall(),
                    where="classify",
                    error=error,
                    correlation_id=self._call.correlation_id,
                )
            )
            return Classified(envelope=None, verdict=Verdict.NEUTRAL, rule="fault")

    def _conclude(self, classified: Classified, kind: Kind = Kind.ANSWER) -> None:
        """The call's verdict is known."""
        call = self._call
        if call.settled:
            return
        envelope = classified.envelope
        call.classified = classified
        call.reclassified = is_reclassified(classified, self._message.code)
        fingerprint = None
        if classified.verdict is Verdict.FAILURE and kind is Kind.ANSWER:
            fingerprint = call.incoming.fingerprint()
        call.settle(
            Outcome(
                classified.verdict,
                kind=kind,
                retry_after=envelope.retry_after if envelope else None,
                code=envelope.code if envelope else None,
                status=self._message.code,
                fingerprint=fingerprint,
            )
        )

    # -- the head ---------------------------------------------------------------------------

    def _start(self, body: bytes) -> bool:
        """Writes the head, and the body so far.

        Returns:
            True if the answer is thereby complete: the envelope took the place of the body.
        """
        call, message = self._call, self._message
        classified = call.classified
        envelope = classified.envelope if classified is not None else None
        keep_own = self._runtime.keeps_own
        if envelope is None or self._off or classified is None:
            lines = headers.response_lines(message.raw_headers, (), keep_own=keep_own)
            lines.append(
                headers.lines(self._missing(call.marks())) if keep_own else call.mark_lines()
            )
            call.out.start(message.code, message.reason, lines, self._framing, body)
            return False
        status = message.code
        if self._runtime.config.on_reclassified == "correct" and not (
            status < 400 and self._runtime.dialect.reads_errors_in_2xx
        ):
            status = status_for(classified, status)
        reason = message.reason if status == message.code else _phrase(status)
        own = call.marks()
        if status != message.code:
            own.append(("x-sidecar-upstream-status", str(message.code)))
        own.extend(replies.error_headers(envelope, classified.verdict, self._advice(classified)))
        dropped = headers.HINTS
        framing = self._framing
        replaced = call.incoming.wants_envelope() and framing is not Framing.NONE
        if replaced:
            body = msgspec.json.encode(envelope)
            dropped = dropped | REPLACED_BODY
            own.append(("content-type", replies.ENVELOPE_TYPE))
            own.append(("content-length", str(len(body))))
            framing = Framing.LENGTH
        lines = headers.response_lines(message.raw_headers, dropped, keep_own=keep_own)
        lines.append(headers.lines(self._missing(own) if keep_own else own))
        call.out.start(status, reason, lines, framing, body)
        return replaced

    def _missing(self, own: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Without those of our headers that another sidecar in front has written already."""
        return [
            (name, value)
            for name, value in own
            if not (headers.is_own(name) and name in self._headers)
        ]

    def _advice(self, classified: Classified) -> str | None:
        assert classified.envelope is not None
        return should_retry(
            classified.envelope,
            decision="forwarded",
            terminal=classified.terminal,
            sdk_wait_max=self._runtime.config.sdk_wait_max,
            upstream=self._headers.get("x-should-retry"),
        )


@lru_cache(maxsize=64)
def can_carry_error(content_type: str | None) -> bool:
    """Can a body of this media type hold an error that is worth waiting for?"""
    kind = (content_type or "").partition(";")[0].strip().lower()
    return WORDS.match(kind) is not None


def _phrase(status: int) -> str:
    try:
        return replies.REASONS.get(status) or HTTPStatus(status).phrase
    except ValueError:
        return ""
