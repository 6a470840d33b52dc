"""The fault matrix: every class, said in every dialect, judged by the code that the daemon runs.

It shows that an injected fault is what it claims to be, before an agent is tested with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.model import Classified, ErrorClass, Seen
from sidecar.envelope.stream import FRAMES_TYPE, StreamReader
from sidecar.faults import answers, failing_events

PATHS = {
    "anthropic": "/v1/messages",
    "bedrock": "/model/m/converse-stream",
    "cohere": "/v2/chat",
    "gemini": "/v1beta/models/m:generateContent",
    "google-apis": "/v1/things",
    "vertex": "/v1/projects/p/locations/l/publishers/google/models/m:generateContent",
    "slack": "/api/chat.postMessage",
    "graphql": "/graphql",
    "mcp": "/mcp",
    "ollama": "/api/chat",
}
"""A route of each dialect whose answers are shaped otherwise elsewhere."""

_CHAT = "/v1/chat/completions"
STREAMS = {"bedrock": FRAMES_TYPE, "ollama": "application/x-ndjson"}
"""The media types of streams that are no server-sent events."""

_NOW = 1_800_000_000.0


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of the matrix.

    Attributes:
        dialect: in which it was said.
        as_: `answer`, or `event` in a stream.
        expected: the class that was injected.
        actual: the class that was found; None if no error was.
        status: that the answer wore.
        code: of the envelope.
        retryable: of the envelope.
        retry_after: of the envelope.
        verdict: what the breaker would hear.
        rule: which rule decided.
    """

    dialect: str
    as_: str = msgspec.field(name="as")
    expected: str
    actual: str | None
    status: int
    code: str | None
    retryable: bool | None
    retry_after: float | None
    verdict: str
    rule: str

    @property
    def right(self) -> bool:
        """Was found what was injected?"""
        return self.expected == self.actual


def rows(dialect: Dialect) -> Iterator[Row]:
    """Every class as an answer, and those that its streams can fail with as an event."""
    path = PATHS.get(dialect.name, _CHAT)
    for class_ in ErrorClass:
        told = answers.answer(dialect, class_, path, now=_NOW)
        seen = Seen(
            status=told.status, headers=Headers(told.headers), body=told.body, path=path, now=_NOW
        )
        yield _row(dialect, "answer", class_, told.status, classify(seen, dialect))
    for class_ in ErrorClass:
        if class_ in failing_events.said_in_streams(dialect):
            yield _row(dialect, "event", class_, 200, _streamed(dialect, class_, path))


def _streamed(dialect: Dialect, class_: ErrorClass, path: str) -> Classified:
    kind = STREAMS.get(dialect.name, "text/event-stream")
    headers = Headers([("content-type", kind)])
    reader = StreamReader(dialect, Seen(status=200, headers=headers, path=path))
    reader.feed(failing_events.stream_event(dialect, class_, path))
    return reader.failed or reader.finish(clean=True)


def _row(dialect: Dialect, as_: str, class_: ErrorClass, status: int, found: Classified) -> Row:
    envelope = found.envelope
    return Row(
        dialect=dialect.name,
        as_=as_,
        expected=class_.value,
        actual=None if envelope is None else envelope.class_.value,
        status=status,
        code=None if envelope is None else envelope.code,
        retryable=None if envelope is None else envelope.retryable,
        retry_after=None if envelope is None else envelope.retry_after,
        verdict=found.verdict.value,
        rule=found.rule,
    )
