"""Judges a stream by its events: has it content, has it ended well, did it fail on the way.

A status was sent long before a stream is over, so the verdict comes at the end: a terminator or a
finish reason is a success, an error event is classified like a body, and an end without either is
a cut. Opening frames, pings and comments are signs of life, not content.

Four vocabularies are read here (chat chunks, OpenAI's response events, Anthropic's messages,
Ollama's lines) and more in `model_events.py`; they do not collide, so a stream is read by what it
turns out to speak. A stream that speaks none of them ends well if it ends cleanly.

Bodies of frames (gRPC-Web, Connect) are streams too: their last frame says how the call went.

Bytes are never kept beyond one event, and after the first content an event is decoded only if one
of a few markers stands in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from sidecar.envelope import compose, http
from sidecar.envelope.compose import Decision
from sidecar.envelope.credentials import Secrets
from sidecar.envelope.decode import decode
from sidecar.envelope.dialects.base import Dialect, Heard
from sidecar.envelope.dialects.grpc_web import end_flag, is_text
from sidecar.envelope.event_stream import FrameParser
from sidecar.envelope.events import Event, LinesParser, SseParser
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import status_like
from sidecar.envelope.frames import FramesParser
from sidecar.envelope.json_array import JsonArrayParser
from sidecar.envelope.locate import Found, find_error, is_truthy_error, stands_alone
from sidecar.envelope.model import Classified, ErrorClass, Seen, Verdict
from sidecar.envelope.model_events import (
    Meaning,
    ends_invocation,
    meaning_of,
    meaning_of_frame,
    payload_of_chunk,
)
from sidecar.envelope.refrain import Refrain
from sidecar.envelope.rules import OperatorRule
from sidecar.envelope.vocabulary import (
    ERROR_EVENTS,
    HARMLESS_AS,
    MARKER,
    OPENING,
    OTHER_TERMINALS,
    PLAIN_STARTS,
    SIGNIFICANT,
    TERMINAL_RESPONSES,
)

SNIFFED = 4096
"""Bytes at the beginning of a body that tell whether it is a stream."""

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"[\r\n]\s*")
# Fields of events: those that make one, and those (or a comment) that may stand in front of it.
_MAKING, _LEADING = (b"data:", b"event:"), (b"id:", b"retry:", b":")
# How nearly every other answer begins.
_NO_EVENT = (b"{", b"[")

MAX_EVENT = 1 << 20

_GOOD = Classified(
    envelope=None, verdict=Verdict.SUCCESS, rule="success: the stream ended as it should"
)
_GOOD_UNKNOWN = Classified(
    envelope=None, verdict=Verdict.SUCCESS, rule="success: the stream ended cleanly"
)

FRAMES_TYPE = "application/vnd.amazon.eventstream"
LINE_TYPES = ("ndjson", "jsonl", "json-seq", "jsonlines", "json-lines", "stream+json")


def is_stream(content_type: str | None, first_bytes: bytes) -> bool:
    """Whether a body is a stream of events: by its media type, else by how it begins.

    Args:
        content_type: as the upstream sent it, or None.
        first_bytes: the beginning of the body; may be empty.
    """
    by_type = told_by_type(content_type)
    return begins_events(first_bytes) is True if by_type is None else by_type


def begins_lines(text: bytes) -> bool | None:
    """Whether a body begins as lines of JSON do, one object behind another.

    Returns:
        None where it is too short to tell.
    """
    short = len(text) < SNIFFED
    line, end, rest = text[:SNIFFED].removeprefix(_BOM).lstrip().partition(b"\n")
    if not line.startswith(b"{"):
        return None if short and not line else False
    rest = rest.lstrip()
    if not (end and rest):
        return None if short else False
    return rest.startswith(b"{") and isinstance(decode(line), dict)


def begins_events(text: bytes) -> bool | None:
    """Whether a body begins as events do; None where it is too short to tell."""
    if text.startswith(_NO_EVENT):
        return False
    if len(text) < len(_BOM) and _BOM.startswith(text):
        return None
    short = len(text) < SNIFFED
    text = text[:SNIFFED].removeprefix(_BOM).lstrip()
    while text.startswith(_LEADING):
        end = _LINE_END.search(text)
        if end is None:
            return None if short else False
        text = text[end.end() :]
    if text.startswith(_MAKING):
        return True
    told = short and any(field.startswith(text) for field in _MAKING + _LEADING)
    return None if told else False


@lru_cache(maxsize=64)
def told_by_type(content_type: str | None) -> bool | None:
    """Whether the media type alone says that a body is a stream; None where it leaves that open."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind in {"text/event-stream", FRAMES_TYPE} or any(name in kind for name in LINE_TYPES):
        return True
    if end_flag(kind) is not None:
        return True
    # Servers mislabel streams; neither JSON nor prose of an answer begins like an event.
    if kind in {"", "text/plain", "application/octet-stream"} or "json" in kind:
        return None
    return False


_HARMLESS = tuple(
    (word, tuple(word + end for end in ends), re.compile(f"{word}(?!{'|'.join(ends)})"))
    for word, ends in HARMLESS_AS
)
"""A word, the phrases in which it says nothing, and what finds it outside of them."""


def plain_length(chunk: bytes) -> int:
    """How many bytes of a chunk are whole events of mere content, that nobody need look into.

    It has to begin where an event begins. What it says in doubt is none.
    """
    if not chunk.startswith(PLAIN_STARTS):
        return 0
    text = str(chunk, "latin-1")
    if chunk.endswith(b"\n\n") and _is_plain(text):
        return len(chunk)
    end = text.rfind("\n\n") + 2
    for word in SIGNIFICANT:
        at = text.find(word, 0, end)
        if at >= 0:
            end = text.rfind("\n\n", 0, at) + 2
    for _, _, telling in _HARMLESS:
        found = telling.search(text, 0, end)
        if found is not None:
            end = text.rfind("\n\n", 0, found.start()) + 2
    return end if end > 1 else 0


def _is_plain(text: str) -> bool:
    for word in SIGNIFICANT:
        if word in text:
            return False
    for word, phrases, _ in _HARMLESS:
        if word in text and text.count(word) != sum(map(text.count, phrases)):
            return False
    return True


class StreamReader:
    """Reads one stream as it passes.

    Attributes:
        answers: a model is asked on this route.
        content: a meaningful event was seen.
        done: a terminator or a finish reason was seen: the answer is whole.
        terminated: the explicit terminator of the vocabulary was seen.
        failed: the error event, classified, as soon as it was seen.
        error_data: the data of that event as it came, or its error as a body would have it; empty
            where it has none.
        events: how many events were looked at, opening frames included; whole chunks of plain
            content are not.
    """

    def __init__(
        self,
        dialect: Dialect,
        seen: Seen,
        *,
        rules: Sequence[OperatorRule] = (),
        correlation_id: str = "",
        secrets: Secrets = tuple,
    ) -> None:
        """Prepare for one stream.

        Args:
            dialect: how this provider words its errors.
            seen: status, headers, method and path of the answer; its body is not looked at.
            rules: the operator's own, tried on error events.
            correlation_id: goes into envelopes.
            secrets: as for `classify`.
        """
        self.content = False
        self.done = False
        self.terminated = False
        self.failed: Classified | None = None
        self.error_data = ""
        self.events = 0
        self._seen = seen
        self._dialect = dialect.for_answer(seen)
        self._rules = rules
        self._correlation_id = correlation_id
        self._secrets = secrets
        self._parser: SseParser | LinesParser | JsonArrayParser | FrameParser | None = None
        self._sse: SseParser | None = None
        self._refrain = Refrain()
        self._start = b""
        self._frames: FramesParser | None = None
        self._signs = tuple(sign.decode() for sign in self._dialect.signs)
        flag = end_flag(seen.headers.get("content-type"))
        if flag is not None:
            self._frames = FramesParser(flag, text=is_text(seen.headers.get("content-type")))
        self.answers = self._dialect.is_model_route(seen.method, seen.path)
        self._known = self._dialect.ends_by_word(seen.method, seen.path)
        self._whole = False

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the body."""
        try:
            self._feed(chunk)
        except Exception as error:  # noqa: BLE001 - a fault in here must not cost a stream
            self._fault(error)

    @property
    def framed(self) -> bool:
        """Is the body a sequence of frames, and not of events?"""
        return self._frames is not None

    @property
    def between_frames(self) -> bool:
        """Could a frame of our own follow what was read of a body of frames?"""
        return self._frames is not None and self._frames.between_frames

    def finish(self, clean: bool) -> Classified:  # noqa: FBT001 - the one thing the end knows
        """Take the end of the body.

        Args:
            clean: the framing ended as it should; False if the connection was cut.

        Returns:
            The classification of the whole stream.
        """
        try:
            if self._frames is not None:
                self._end_of_frames()
            elif self._parser is None and self._start:
                self._choose(b"", final=True)
            if self._parser is not None:
                for event in self._parser.close():
                    self._event(event)
            return self._verdict(clean=clean)
        except Exception as error:  # noqa: BLE001 - a fault in here must not cost a stream
            self._fault(error)
            return self._verdict(clean=clean)

    def _fault(self, error: Exception) -> None:
        if self.failed is None:
            self.failed = Classified(
                envelope=None,
                verdict=Verdict.NEUTRAL,
                rule=f"fault in classification: {type(error).__name__}",
            )

    def _feed(self, chunk: bytes) -> None:
        if self._frames is not None:
            self._read_frames(self._frames, chunk)
            return
        if self._parser is None:
            chunk = self._choose(chunk, final=False)
        if self._sse is not None:
            chunk = self._past_content(self._sse, chunk)
        if self._parser is None or not chunk:
            return
        for event in self._parser.feed(chunk):
            self._event(event)
        if isinstance(self._parser, FrameParser) and self._parser.broken:
            # What cannot be read is not waited for.
            self.content = True

    def _past_content(self, parser: SseParser, chunk: bytes) -> bytes:
        """Reads on until there is content, and passes over more of it; returns what is left."""
        begin = 0
        while not self.content and self.failed is None:
            end = chunk.find(b"\n\n", begin) + 2
            if end < 2:
                return chunk[begin:]
            for event in parser.feed(chunk[begin:end]):
                self._event(event)
            begin = end
        chunk = chunk[begin:]
        if not (self._known and parser.between_events):
            # Where the words of a stream are not known yet, mere content tells them.
            return chunk
        for sign in self._dialect.signs:
            if chunk.find(sign) >= 0:
                return chunk
        if self._refrain.repeats(chunk):
            return b""
        plain = plain_length(chunk)
        if plain == len(chunk):
            self._refrain.learn(chunk)
        return chunk[plain:]

    def _choose(self, chunk: bytes, *, final: bool) -> bytes:
        """Choose the parser by media type, else by the first bytes; return the bytes to parse."""
        kind = (self._seen.headers.get("content-type") or "").lower()
        self._start += chunk
        if any(name in kind for name in LINE_TYPES):
            self._parser = LinesParser(MAX_EVENT)
        elif kind.startswith(FRAMES_TYPE):
            self._parser = FrameParser(MAX_EVENT)
        elif "event-stream" in kind:
            self._parser = SseParser(MAX_EVENT)
        else:
            begin = self._start.lstrip(b"\xef\xbb\xbf \t\r\n")
            if not begin and not final:
                # Half a byte order mark needs its rest.
                self._start = self._start if _BOM.startswith(self._start) else b""
                return b""
            # However it is cut, what stands before the first word is dropped.
            self._start = begin
            if begin.startswith(b"["):
                self._parser = JsonArrayParser(MAX_EVENT)
            else:
                lines = begin.startswith(b"{")
                self._parser = LinesParser(MAX_EVENT) if lines else SseParser(MAX_EVENT)
        self._sse = self._parser if isinstance(self._parser, SseParser) else None
        start, self._start = self._start, b""
        if final:
            for event in self._parser.feed(start):
                self._event(event)
        return start

    def _read_frames(self, frames: FramesParser, chunk: bytes) -> None:
        for frame in frames.feed(chunk):
            self.events += 1
            self._take(self._dialect.hear_frame(frame, self._seen), None)
        self.content = self.content or frames.begun

    def _end_of_frames(self) -> None:
        """Without a last frame the headers may have said it all; else the body was cut."""
        self._known = True
        if self.terminated or self.failed is not None or "grpc-status" not in self._seen.headers:
            return
        evidence = self._dialect.outside(self._seen)
        self._take(Heard(evidence=evidence, done=True, terminated=True), None)

    # --- events ---------------------------------------------------------------------------

    def _event(self, event: Event) -> None:
        self.events += 1
        if self.failed is not None or self.terminated:
            # What follows the last word is not read: whether it comes along is up to the network.
            return
        if event.field_error is not None:
            self._fail(decode(event.field_error.encode()), event.field_error)
            return
        data = event.data
        if data.startswith("[DONE]"):
            self.done = self.terminated = True
            return
        if event.name == "error":
            self._fail(decode(data.encode()), data, status_like(event.status or ""))
            return
        if (
            self.content
            and event.name is None
            and not MARKER.search(data)
            and not (self._signs and any(sign in data for sign in self._signs))
        ):
            return
        value = decode(data.encode())
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(self._parser, FrameParser):
            self._frame(event.name or "", value if isinstance(value, dict) else {}, data)
        elif isinstance(value, dict):
            self._read(event.name, value, data)
        elif data.strip():
            self.content = True

    def _read(self, name: str | None, value: dict[str, Any], data: str) -> None:
        heard = self._dialect.hear(name, value)
        if heard is not None:
            self._known = self._known or heard.done
            self._take(heard, data)
            return
        kind = value.get("type") or value.get("event_type")
        kind = kind if isinstance(kind, str) else (name or value.get("event") or "")
        if self._is_error(kind, value):
            self._fail(value, data)
            return
        choices = value.get("choices")
        if isinstance(choices, list):
            self._known = True
            self._chat(choices, data)
        elif kind.startswith("response."):
            self._known = True
            # What failed was asked for: only whoever asks for a stored answer gets here with it.
            if kind in TERMINAL_RESPONSES or kind == "response.failed":
                self.done = self.terminated = True
            if kind not in OPENING:
                self.content = True
        elif kind == "message_stop":
            self.done = self.terminated = self._known = True
        elif kind.startswith(("message_", "content_block_")) or kind == "ping":
            self._known = True
            self.content = self.content or kind not in OPENING
        elif isinstance(value.get("done"), bool):
            self._known = self.content = True
            if value["done"]:
                self.done = self.terminated = True
        elif (meaning := meaning_of(kind, value, self._dialect.failing_reasons)) is not None:
            self._mean(meaning, data)
        else:
            self.content = self.content or kind not in OPENING
            if kind in OTHER_TERMINALS:
                self.done = self.terminated = True

    def _take(self, heard: Heard, data: str | None) -> None:
        """What an event says in its dialect's own words."""
        self.content = self.content or heard.content
        self.done = self.done or heard.done
        self.terminated = self.terminated or heard.terminated
        if heard.evidence is not None:
            self._fail_by(heard.evidence)
        elif heard.error is not None:
            seen = msgspec.structs.replace(self._seen, body=(data or "").encode(), truncated=False)
            self._fail_by(self._dialect.read(heard.error, seen, stream=True))

    def _frame(self, kind: str, value: dict[str, Any], data: str) -> None:
        """An event of a binary stream: a word of Converse's, or a piece of what a model wrote."""
        meaning = meaning_of_frame(kind)
        if meaning is not None:
            self._mean(meaning, data)
            return
        payload = payload_of_chunk(value) if kind == "chunk" else None
        if payload is None:
            self.content = True
            return
        self._read(None, payload, msgspec.json.encode(payload).decode())
        if ends_invocation(payload):
            self.done = self.terminated = True

    def _mean(self, meaning: Meaning, data: str) -> None:
        """Take what an event means in one of the other vocabularies."""
        self._known = True
        if meaning.error is not None:
            self._fail(meaning.error, data)
            # A refusal in words that only a stream has: no client looks for them in a body.
            self.error_data = ""
            return
        self.content = self.content or meaning.content
        self.done = self.done or meaning.done
        self.terminated = self.terminated or meaning.terminated
        self._whole = self._whole or meaning.whole

    def _is_error(self, kind: str, value: dict[str, Any]) -> bool:
        if self._seen.method == "GET" and not stands_alone(value):
            # The state of what was asked for: a failure that is merely told is a good answer.
            return False
        # The flat form of Mistral and of older servers has no `error`, as in their bodies.
        return (
            is_truthy_error(value.get("error"))
            or kind in ERROR_EVENTS
            or value.get("object") == "error"
        )

    def _chat(self, choices: list[Any], data: str) -> None:
        for choice in choices:
            if not isinstance(choice, dict):
                continue
            error = choice.get("error")
            reason = choice.get("finish_reason")
            if isinstance(error, dict) and is_truthy_error(error):
                self._fail({"error": error}, data)
                self.error_data = msgspec.json.encode({"error": error}).decode()
                return
            code = self._dialect.failing_reasons.get(reason) if isinstance(reason, str) else None
            if code is not None:
                message = f"the stream ended with the finish reason {reason}"
                self._fail({"error": {"code": code, "message": message}}, data)
                self.error_data = ""
                return
            if isinstance(reason, str) and reason:
                self.done = True
            delta = choice.get("delta")
            if not isinstance(delta, dict) or any(
                member for name, member in delta.items() if name != "role"
            ):
                self.content = True

    # --- failing --------------------------------------------------------------------------

    def _fail(self, value: Any, data: str, status: int | None = None) -> None:
        """Classify an error event like a body, with the data of the event as what was seen."""
        self.error_data = data
        seen = msgspec.structs.replace(self._seen, body=data.encode(), truncated=False)
        found = _locate(value, self._dialect, seen)
        if found is None:
            text = data if value is None else ""
            evidence = Evidence(
                status=seen.status, seen=seen, message=text, headers=seen.headers, stream=True
            )
        else:
            evidence = self._dialect.read(found, seen, stream=True)
        if status is not None and status >= 400 > evidence.status:
            evidence = msgspec.structs.replace(evidence, status=status)
        self._fail_by(evidence)

    def _fail_by(self, evidence: Evidence) -> None:
        if self._rules:
            decided = http.by_operator(
                evidence.seen, self._dialect, self._rules, self._correlation_id, self._secrets
            )
            if decided is not None:
                self.failed = decided
                return
        evidence, decision = http.decide(evidence, self._dialect)
        self.failed = compose.classified(
            evidence, decision, self._dialect, self._correlation_id, self._secrets
        )

    def _verdict(self, *, clean: bool) -> Classified:
        if self.failed is not None:
            return self.failed
        if self.terminated or self._whole or (self.done and clean):
            # A finish reason is enough where the body then ends as it should: not every server
            # sends a terminator.
            return _GOOD
        cut_inside = isinstance(self._parser, FrameParser | JsonArrayParser) and (
            self._parser.pending
        )
        silent = self.answers and not self.events
        if clean and not (self._known or cut_inside or silent):
            return _GOOD_UNKNOWN
        if clean and not self.events and self._frames is None:
            code, message = (
                "invalid_upstream_response",
                "the upstream answered with an empty stream",
            )
        else:
            code, message = "stream_truncated", "the stream ended before the answer was whole"
        decision = Decision(
            class_=ErrorClass.TRANSIENT,
            code=code,
            retryable=True,
            verdict=Verdict.FAILURE,
            rule=f"transport: {message}",
        )
        seen = msgspec.structs.replace(self._seen, body=b"")
        evidence = Evidence(
            status=seen.status, seen=seen, message=message, headers=seen.headers, stream=True
        )
        return compose.classified(
            evidence, decision, self._dialect, self._correlation_id, self._secrets
        )


def _locate(value: Any, dialect: Dialect, seen: Seen) -> Found | None:
    """The error object of an event: its own, that of the response it reports, or the event."""
    if not isinstance(value, dict):
        return dialect.locate(value, msgspec.structs.replace(seen, status=500))
    around = value
    response = value.get("response")
    error = value.get("error") or value.get("last_error")
    if isinstance(response, dict) and is_truthy_error(response.get("error")):
        error = response["error"]
    if isinstance(error, dict) and is_truthy_error(error):
        for name in ("error_type", "status_code"):
            if name in around and name not in error:
                error = {**error, name: around[name]}
        return Found(error, around)
    if is_truthy_error(value.get("error")):
        return find_error(value, failed=True, answers=True)
    bare = {name: member for name, member in value.items() if name not in {"type", "event_type"}}
    kind = value.get("type")
    named = kind if isinstance(kind, str) and kind not in ERROR_EVENTS else None
    return Found({**bare, "type": named}, around)


def classify_stream(
    seen: Seen,
    dialect: Dialect,
    *,
    rules: Sequence[OperatorRule] = (),
    correlation_id: str = "",
    secrets: Secrets = tuple,
) -> Classified:
    """Classify a whole stream that was recorded: `seen.body` holds all of it."""
    reader = StreamReader(
        dialect, seen, rules=rules, correlation_id=correlation_id, secrets=secrets
    )
    reader.feed(seen.body)
    return reader.finish(seen.complete)
