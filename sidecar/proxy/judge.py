"""What an answer means, and the head it therefore gets.

The relay moves bytes; it asks here what it has seen. The classification itself is pure and lives in
`sidecar/envelope`; this file hands it what it needs and does to the call what it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from sidecar import clock as machine
from sidecar.breaker.gating import Hint
from sidecar.breaker.model import SUCCESS, Kind, Mode, Outcome
from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.rule import BUDGET_WORDS
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.inflate import StreamInflater, inflate
from sidecar.envelope.model import Classified, Envelope, Seen, Verdict
from sidecar.envelope.policy import ENVELOPE_TYPE, is_reclassified, should_retry, status_for
from sidecar.envelope.stream import (
    FRAMES_TYPE,
    LINE_TYPES,
    StreamReader,
    begins_events,
    begins_lines,
    told_by_type,
)
from sidecar.proxy import headers, replies
from sidecar.proxy.events import EventTail, FrameTail, Scanner
from sidecar.proxy.exchange import Answer
from sidecar.proxy.failures import UpstreamFailed
from sidecar.proxy.hints import hint_of
from sidecar.proxy.outgoing import Framing, framing_of
from sidecar.telemetry.observer import Fault

if TYPE_CHECKING:
    from sidecar.proxy.call import Call
    from sidecar.proxy.runtime import Runtime

WORDS = re.compile(r"text/|.*(?:json|xml|html|javascript)|application/x-www-form-urlencoded|$")
"""Media types (or none) of bodies that can say something: those are held, others never."""

REPLACED_BODY = frozenset(
    {b"content-length", b"content-type", b"content-encoding", b"content-range", b"etag"}
)
"""What described the upstream's body, where the envelope takes its place."""


_LENGTH = frozenset({b"content-length"})


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


class Judge:
    """Judges one answer for one call.

    Args:
        call: whose answer it is.
        runtime: the provider.
        answer: the head that came.

    Attributes:
        status: of the upstream.
        headers: of the upstream.
        content_type: of the upstream; None if it gave none.
        off: the breaker's mode is `off`: nothing is held, judged for the caller, or added.
        framing: of the answer's body.
        copy: the beginning of the body.
        ended_well: the body is whole, as its framing says.
    """

    __slots__ = (
        "_call",
        "_message",
        "_runtime",
        "_streams",
        "_supposed",
        "_unsized",
        "content_type",
        "copy",
        "ended_well",
        "framing",
        "headers",
        "off",
        "status",
    )

    def __init__(self, call: Call, runtime: Runtime, answer: Answer) -> None:
        self._call = call
        self._runtime = runtime
        self._message = message = answer.message
        self.status = message.code
        self.headers = Headers.from_raw(message.raw_headers)
        self.content_type = self.headers.get("content-type")
        admission = call.entry.admission if call.entry else None
        self.off = admission is not None and admission.mode is Mode.OFF
        self.framing = framing_of(message, head_only=call.incoming.method == "HEAD")
        self.copy = BoundedCopy(runtime.config.limits.classify_body)
        self.ended_well = False
        self._streams = False
        self._supposed: Classified | None = None
        self._unsized = False

    @property
    def told_in_head(self) -> bool:
        """Do the headers say how the call went, so that no stream follows?"""
        return "grpc-status" in self.headers

    @property
    def dialect(self) -> Dialect:
        """The dialect of this answer, also where the provider's is chosen for each."""
        return self._runtime.dialect.for_answer(self._seen(complete=True))

    # -- what it means ----------------------------------------------------------------------

    def scanner(self) -> Scanner | None:
        """What judges a stream as it passes; None where nothing does."""
        if self.off:
            return None
        self._streams = True
        coding = (self.headers.get("content-encoding") or "identity").strip().lower()
        reader = StreamReader(
            self._runtime.dialect,
            self._seen(complete=True),
            rules=self._runtime.config.rules,
            correlation_id=self._call.correlation_id,
            secrets=self._call.secrets,
        )
        return Scanner(reader, None if coding == "identity" else StreamInflater(coding))

    def streams(self, first_bytes: bytes) -> bool | None:
        """Is the answer judged by its events: by its media type, its first bytes or its route?

        Args:
            first_bytes: all that is there of the body; may be empty.

        Returns:
            None where more of the body is needed to tell.
        """
        by_type = told_by_type(self.content_type)
        if by_type is not None:
            return by_type
        if not first_bytes:
            return None
        if self._is_json_stream():
            return True
        events = begins_events(first_bytes)
        if events:
            return True
        # Lines of JSON are a model's answer; elsewhere they are data, whatever they say.
        method, path = self._call.incoming.method, self._call.path
        lines = self._runtime.dialect.is_model_route(method, path) and begins_lines(first_bytes)
        return lines or (None if events is None or lines is None else False)

    def _is_json_stream(self) -> bool:
        if "json" not in (self.content_type or "").lower():
            return False
        return self._runtime.dialect.streams_json(self._call.incoming.method, self._call.path)

    def tail(self, first_bytes: bytes) -> EventTail | FrameTail | None:
        """What tells where an event of the stream ends; None where one of ours cannot follow.

        Args:
            first_bytes: what made it a stream; empty if its type did.
        """
        kind = (self.content_type or "").lower()
        if kind.startswith(FRAMES_TYPE):
            return FrameTail()
        if self._is_json_stream():
            return None
        by_type = any(name in kind for name in LINE_TYPES)
        return EventTail(lines=by_type or begins_lines(first_bytes) is True)

    def last_event(self, envelope: Envelope, tail: EventTail | FrameTail) -> bytes:
        """An event that ends the stream with an error, in the form that its events have."""
        dialect, path = self._runtime.dialect, self._call.path
        event = dialect.stream_error(envelope, path)
        if isinstance(tail, EventTail) and tail.lines and not event.startswith(b"{"):
            return dialect.error_body(envelope, 200, path) + b"\n"
        return event

    def _seen(self, *, complete: bool) -> Seen:
        body: bytes | None = self.copy.data()
        coding = self.headers.get("content-encoding")
        if coding and body:
            body = inflate(body, coding, self.copy.limit)
        return Seen(
            status=self.status,
            headers=self.headers,
            body=body or b"",
            truncated=self.copy.cut or not self.ended_well,
            complete=complete,
            method=self._call.incoming.method,
            path=self._runtime.upstream.prefix + self._call.path,
            now=machine.wall(),
        )

    def classify(self, *, complete: bool = True) -> Classified:
        """What the answer means; a fault in here costs the call nothing but its verdict.

        Args:
            complete: False if the body broke off.
        """
        try:
            return classify(
                self._seen(complete=complete),
                self._runtime.dialect,
                rules=self._runtime.config.rules,
                correlation_id=self._call.correlation_id,
                secrets=self._call.secrets,
            )
        except Exception as error:  # noqa: BLE001 - the bytes pass whatever happens here
            rule = f"fault: {type(error).__name__}"
            return Classified(envelope=None, verdict=Verdict.NEUTRAL, rule=rule)

    def conclude(self, classified: Classified, kind: Kind = Kind.ANSWER) -> None:
        """The call's verdict is known."""
        call = self._call
        if call.settled:
            return
        if classified.rule.startswith("fault"):
            self._report_fault(classified.rule)
        if call.repeats is not None:
            classified = call.repeats.reconsider(classified)
        if classified.verdict is Verdict.SUCCESS and classified.brief is None:
            call.classified = classified
            call.settle(SUCCESS)
            return
        envelope = classified.brief
        call.classified = classified
        call.reclassified = is_reclassified(classified, self.status)
        fingerprint = None
        # What opens a conversation says nothing of its content: two are never the same request.
        repeatable = kind is Kind.ANSWER and self.status != 101
        if classified.verdict is Verdict.FAILURE and repeatable:
            fingerprint = call.incoming.fingerprint()
        hint = self._hint(classified)
        counted = call.settle(
            Outcome(
                classified.verdict,
                kind=kind,
                retry_after=hint.seconds if hint else envelope.retry_after if envelope else None,
                code=envelope.code if envelope else None,
                status=self.status,
                fingerprint=fingerprint,
                hint_source=hint.source if hint else None,
                resets_in=_resets_in(classified),
            )
        )
        if classified.verdict in {Verdict.ALIVE, Verdict.FAILURE}:
            call.foresee(self.headers)
        if counted is not classified.verdict:
            rule = f"{classified.rule}; counted as a failure: shedding.open_after"
            call.classified = classified.judged(counted, rule)

    def _hint(self, classified: Classified) -> Hint | None:
        """The wait that a throttle asked for; a fault in here costs no more than the hint."""
        if classified.verdict is not Verdict.THROTTLE or classified.envelope is None:
            return None
        try:
            return hint_of(classified.envelope, self.headers, machine.wall())
        except Exception as error:  # noqa: BLE001 - the bytes pass whatever happens here
            self._report_fault(f"fault: {type(error).__name__}")
            return None

    def suppose(self, classified: Classified) -> None:
        """What the answer seems to mean, for its head; the rest of the body may tell better."""
        self._supposed = classified
        if not self._call.settled:
            self._call.classified = classified

    def supposed_or_classified(self) -> Classified:
        """The meaning of a body that is whole: what its copy says, if that holds all of it."""
        if self.copy.cut and self._supposed is not None:
            return self._supposed
        return self.classify()

    def conclude_supposed(self) -> None:
        """Nothing more will come: an error that the head told of stands."""
        if self._supposed is not None and self._supposed.brief is not None:
            self.conclude(self._supposed)

    def _report_fault(self, rule: str) -> None:
        self._call.plane.observer.emit(
            Fault(
                at=machine.wall(),
                where="classify",
                error=RuntimeError(rule),
                correlation_id=self._call.correlation_id,
            )
        )

    def of_failure(self, failure: UpstreamFailed) -> Classified:
        """What it means that the answer broke off, or a clock ran out."""
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

    # -- the head that it gets --------------------------------------------------------------

    def unsize(self) -> None:
        """The body will not have the length that was told: something is to be put behind it."""
        self._unsized = True
        self.framing = Framing.CHUNKED

    def _size(self, *, whole: bool) -> int | None:
        """The size of a body whose end would be taken for a good one before that is known."""
        if whole or not self._streams or self.framing is not Framing.LENGTH:
            return None
        return int(self._message.headers["Content-Length"])

    def start(
        self,
        body: bytes,
        *,
        whole: bool = False,
        instead: Callable[[], bytes] | None = None,
    ) -> bool:
        """Writes the head, and the body so far.

        Args:
            body: what is there of it.
            whole: that is all of it.
            instead: of a stream that is nothing but an error, the error object: clients read one
                where the status tells of an error, and no events.

        Returns:
            True if the answer is thereby complete, also where something took the body's place.
        """
        call, message = self._call, self._message
        classified = call.classified
        envelope = classified.brief if classified is not None else None
        keep_own = self._runtime.keeps_own
        if envelope is None or self.off or classified is None:
            call.accepted(self.headers)
            # A 204 has no body whose length could be told (RFC 9110, 8.6).
            dropped = _LENGTH if message.code == 204 or self._unsized else frozenset()
            lines = headers.response_lines(message.raw_headers, dropped, keep_own=keep_own)
            lines.append(
                headers.lines(self._missing(call.marks())) if keep_own else call.mark_lines()
            )
            call.out.start(
                message.code,
                message.reason,
                lines,
                self.framing,
                body,
                whole=whole,
                size=self._size(whole=whole),
            )
            return whole
        status = message.code
        if self._runtime.config.on_reclassified == "correct" and not (
            status < 400 and self.dialect.reads_errors_in_2xx
        ):
            status = status_for(classified, status)
        reason = message.reason if status == message.code else _phrase(status)
        own = call.marks()
        if status != message.code:
            own.append(("x-sidecar-upstream-status", str(message.code)))
        verdict = classified.verdict if call.settled else None
        names = self._runtime.dialect.should_retry_headers
        own.extend(replies.error_headers(envelope, verdict, self._advice(classified), names))
        dropped = headers.HINTS.union(name.encode() for name in names)
        framing = self.framing
        replaced = call.incoming.wants_envelope() and framing is not Framing.NONE
        media_type = ENVELOPE_TYPE
        if replaced:
            body = msgspec.json.encode(classified.envelope)
        elif instead is not None and status >= 400:
            replaced = True
            media_type, spoken = replies.body_of(
                envelope, status, self._runtime.dialect, call.path, plain=False
            )
            body = instead() or spoken
            own.extend(self._runtime.dialect.error_headers(envelope, call.path))
        if replaced:
            dropped = dropped | REPLACED_BODY
            own.append(("content-type", media_type))
            own.append(("content-length", str(len(body))))
            framing = Framing.LENGTH
        lines = headers.response_lines(message.raw_headers, dropped, keep_own=keep_own)
        lines.append(headers.lines(self._missing(own) if keep_own else own))
        size = self._size(whole=replaced or whole)
        call.out.start(status, reason, lines, framing, body, whole=whole, size=size)
        return replaced or whole

    def _missing(self, own: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Without those of our headers that another sidecar in front has written already."""
        return [
            (name, value)
            for name, value in own
            if not (headers.is_own(name) and name in self.headers)
        ]

    def _advice(self, classified: Classified) -> str | None:
        assert classified.brief is not None
        return should_retry(
            classified.brief,
            decision="forwarded",
            terminal=classified.terminal,
            sdk_wait_max=self._runtime.config.sdk_wait_max,
            upstream=self._runtime.dialect.should_retry(self.headers),
        )


def _resets_in(classified: Classified) -> float | None:
    """Seconds until a spent window reopens, where the answer says so."""
    brief = classified.brief
    if brief is None or brief.code not in BUDGET_WORDS:
        return None
    envelope = classified.envelope
    told = envelope.raw.get("resets_in") if envelope is not None and envelope.raw else None
    return float(told) if isinstance(told, int | float) else None


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
