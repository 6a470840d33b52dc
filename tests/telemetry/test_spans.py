"""What a span says of time, whatever happened between the end of its call and its making."""

from __future__ import annotations

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from sidecar import clock
from sidecar.envelope.model import Verdict
from sidecar.telemetry.observer import CallFinished
from sidecar.telemetry.otlp.spans import Spans
from sidecar.telemetry.trace import CallTrace, Tracing

LATE = 5.0
"""Seconds that others take with the fact first: a log that is written to a slow disk."""


def test_no_request_begins_before_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "monotonic", lambda: 100.0 + LATE)
    monkeypatch.setattr(clock, "wall", lambda: 1000.0 + LATE)
    trace = CallTrace("a" * 32, "", 1, "")
    first, second = trace.attempt(99.25), trace.attempt(99.75)
    first.ended = 99.5
    trace.event("happened", 99.875)
    call = CallFinished(
        at=1000.0,
        duration=1.0,
        method="POST",
        path="/v1/x",
        provider="up",
        decision="forwarded",
        status=200,
        verdict=Verdict.SUCCESS,
        correlation_id="a" * 32,
        attempts=2,
        trace=trace,
    )
    made: list[bytes] = []
    Spans(Tracing(), lambda _: "https://up.example", made.append)(call)
    spans = [Span.FromString(one) for one in made]

    def seconds(span: Span) -> tuple[float, float]:
        return span.start_time_unix_nano / 1e9, span.end_time_unix_nano / 1e9

    *clients, server = spans
    assert seconds(server) == (999.0, 1000.0)
    assert [seconds(one) for one in clients] == [(999.25, 999.5), (999.75, 1000.0)]
    assert [one.span_id.hex() for one in clients] == [first.span_id, second.span_id]
    at = {event.name: event.time_unix_nano / 1e9 for event in server.events}
    assert at == {"happened": 999.875, "breaker_sidecar.attempt": 999.75}
