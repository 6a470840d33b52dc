"""The spans of a call: the server's, and one for each request to the upstream.

Written by the stable conventions of OpenTelemetry for HTTP, with the envelope and the verdict
beside them. What a caller or an upstream wrote is shown redacted, as in the log; queries and
headers are not shown at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from sidecar import clock
from sidecar.admin.status import shown_upstream
from sidecar.breaker.model import Transition
from sidecar.envelope.model import Envelope, Verdict
from sidecar.telemetry.bounds import code_label
from sidecar.telemetry.instruments import NAMESPACE
from sidecar.telemetry.lines import clean
from sidecar.telemetry.observer import CallFinished, Ending, Fact, ending_of
from sidecar.telemetry.otlp.values import SCOPE, fresh, kept, resource, text
from sidecar.telemetry.trace import Attempt, CallTrace, Tracing

METHODS: Final = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"}
)
"""Methods that the conventions know; any other is `_OTHER`, so that nobody makes names up."""

_SERVER, _CLIENT = Span.SpanKind.SPAN_KIND_SERVER, Span.SpanKind.SPAN_KIND_CLIENT
_ERROR: Final = Status(code=Status.StatusCode.STATUS_CODE_ERROR)
_LOCAL_PARENT, _REMOTE_PARENT = 0x100, 0x300
"""SpanFlags: whether the parent is remote is known, and whether it is."""

Upstreams = Callable[[str], str | None]
"""The upstream of a provider; None if there is no such provider any more."""


class Spans:
    """Makes spans of finished calls; give it to an `Observer` as a listener.

    Args:
        tracing: knows the call whose doing a transition is.
        upstream_of: tells where a provider's calls go.
        put: takes the spans.
    """

    def __init__(
        self, tracing: Tracing, upstream_of: Upstreams, put: Callable[[Span], None]
    ) -> None:
        self._tracing = tracing
        self._upstream_of = upstream_of
        self._put = put

    def __call__(self, fact: Fact) -> None:
        """Hear a fact."""
        if isinstance(fact, CallFinished):
            if fact.trace is not None:
                self._call(fact, fact.trace)
        elif isinstance(fact, Transition):
            current = self._tracing.current
            if current is not None:
                current.event(
                    f"{NAMESPACE}.transition",
                    clock.monotonic(),
                    **{
                        f"{NAMESPACE}.key": fact.key,
                        f"{NAMESPACE}.from": fact.old.value,
                        f"{NAMESPACE}.to": fact.new.value,
                        f"{NAMESPACE}.reason": fact.cause.value,
                        f"{NAMESPACE}.enforced": fact.enforced,
                    },
                )

    def _call(self, call: CallFinished, trace: CallTrace) -> None:
        # Times on the way are monotonic; one reading of both clocks turns them into dates.
        ahead = call.at - clock.monotonic()
        end = _nanoseconds(call.at)
        error = _error_of(call)
        trace_id = bytes.fromhex(trace.trace_id)
        span_id = bytes.fromhex(trace.span_id)
        state = text(trace.state)
        for number, attempt in enumerate(trace.attempts):
            self._put(
                self._client(call, attempt, number, trace_id, span_id, state, ahead, end, error)
            )
        method = call.method if call.method in METHODS else "HTTP"
        route = f"/{call.provider}" if call.provider else ""
        failed = call.status >= 500 or call.verdict is Verdict.FAILURE
        self._put(
            Span(
                trace_id=trace_id,
                span_id=span_id,
                trace_state=state,
                parent_span_id=bytes.fromhex(trace.parent_id),
                flags=_REMOTE_PARENT | trace.flags if trace.parent_id else trace.flags | 0x100,
                name=f"{method} {route}" if route else method,
                kind=_SERVER,
                start_time_unix_nano=end - _nanoseconds(call.duration),
                end_time_unix_nano=end,
                attributes=_server(call, route, error),
                events=_events(call, trace, ahead),
                status=_ERROR if failed else None,
            )
        )

    def _client(
        self,
        call: CallFinished,
        attempt: Attempt,
        number: int,
        trace_id: bytes,
        parent_id: bytes,
        state: str,
        ahead: float,
        end: int,
        error: str | None,
    ) -> Span:
        last = attempt.ended is None
        attributes = list(_to(self._upstream_of(call.provider or "") or ""))
        attributes += (_method(call.method), kept("network.protocol.version", "1.1"))
        base = shown_upstream(self._upstream_of(call.provider or "") or "")
        attributes.append(kept("url.full", base.rstrip("/") + call.path))
        if attempt.status is not None:
            attributes.append(kept("http.response.status_code", attempt.status))
        if number:
            attributes.append(kept("http.request.resend_count", number))
        problem = attempt.error if attempt.error is not None else error if last else None
        if problem is not None:
            attributes.append(kept("error.type", problem))
        return Span(
            trace_id=trace_id,
            span_id=bytes.fromhex(attempt.span_id),
            trace_state=state,
            parent_span_id=parent_id,
            flags=_LOCAL_PARENT | 1,
            name=call.method if call.method in METHODS else "HTTP",
            kind=_CLIENT,
            start_time_unix_nano=_nanoseconds(attempt.begun + ahead),
            end_time_unix_nano=end
            if attempt.ended is None
            else _nanoseconds(attempt.ended + ahead),
            attributes=attributes,
            status=_ERROR if problem is not None else None,
        )


def request(spans: Sequence[Span], who: Mapping[str, str]) -> bytes:
    """One request for the collector."""
    scope = ScopeSpans(scope=SCOPE, spans=spans)
    found = ResourceSpans(resource=resource(who), scope_spans=[scope])
    return bytes(ExportTraceServiceRequest(resource_spans=[found]).SerializeToString())


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def _error_of(call: CallFinished) -> str | None:
    """`error.type`: the envelope's code as metrics have it, or how a call was cut; else None."""
    if call.envelope is not None:
        return code_label(call.envelope.code)
    ending = ending_of(call)
    return None if ending in (Ending.ANSWERED, Ending.REPORTED) else ending.value


def _server(call: CallFinished, route: str, error: str | None) -> list[KeyValue]:
    attributes = [
        _method(call.method),
        kept("url.scheme", "http"),
        kept("url.path", route + call.path),
        kept("network.protocol.version", "1.1"),
        kept(f"{NAMESPACE}.decision", call.decision),
        fresh(f"{NAMESPACE}.correlation_id", call.correlation_id),
        kept(f"{NAMESPACE}.ending", ending_of(call).value),
    ]
    if call.method not in METHODS:
        attributes.append(kept("http.request.method_original", clean(call.method[:64])))
    if route:
        attributes += (kept("http.route", route), kept(f"{NAMESPACE}.provider", call.provider))
    if call.status:
        attributes.append(kept("http.response.status_code", call.status))
    if call.key is not None:
        attributes.append(kept(f"{NAMESPACE}.key", call.key))
    if call.model is not None:
        attributes.append(kept(f"{NAMESPACE}.model", call.model))
    if call.verdict is not None:
        attributes.append(kept(f"{NAMESPACE}.verdict", call.verdict.value))
    if error is not None:
        attributes.append(kept("error.type", error))
    if call.would_refuse:
        attributes.append(kept(f"{NAMESPACE}.would_refuse", True))  # noqa: FBT003 - a value
    if call.envelope is not None:
        attributes += _envelope(call, call.envelope)
    return attributes


def _envelope(call: CallFinished, envelope: Envelope) -> list[KeyValue]:
    attributes = [
        kept(f"{NAMESPACE}.envelope.class", envelope.class_.value),
        kept(f"{NAMESPACE}.envelope.source", envelope.source.value),
        kept(f"{NAMESPACE}.envelope.code", envelope.code),
        kept(f"{NAMESPACE}.envelope.retryable", envelope.retryable),
        fresh(f"{NAMESPACE}.envelope.message", clean(envelope.message)),
        kept(f"{NAMESPACE}.rule", clean(call.rule)),
        kept(f"{NAMESPACE}.reclassified", call.reclassified),
    ]
    if envelope.retry_after is not None:
        attributes.append(fresh(f"{NAMESPACE}.envelope.retry_after", envelope.retry_after))
    if call.upstream_status is not None:
        attributes.append(kept(f"{NAMESPACE}.upstream_status", call.upstream_status))
    return attributes


def _events(call: CallFinished, trace: CallTrace, ahead: float) -> list[Span.Event]:
    events = [
        Span.Event(
            name=name,
            time_unix_nano=_nanoseconds(at + ahead),
            attributes=[kept(key, value) for key, value in attributes.items()],
        )
        for name, at, attributes in trace.events
    ]
    begun = call.at - call.duration
    if call.decision in ("shed", "quota", "bulkhead", "breaker_open"):
        wait = call.envelope.retry_after if call.envelope is not None else None
        events.append(
            Span.Event(
                name=f"{NAMESPACE}.{call.decision}",
                time_unix_nano=_nanoseconds(call.at),
                attributes=[] if wait is None else [fresh(f"{NAMESPACE}.retry_after", wait)],
            )
        )
    if call.waited is not None:
        events.append(
            Span.Event(
                name=f"{NAMESPACE}.hold",
                time_unix_nano=_nanoseconds(begun),
                attributes=[fresh(f"{NAMESPACE}.seconds", call.waited)],
            )
        )
    if len(trace.attempts) > 1:
        events += [
            Span.Event(
                name=f"{NAMESPACE}.attempt",
                time_unix_nano=_nanoseconds(attempt.begun + ahead),
                attributes=[kept("http.request.resend_count", number)],
            )
            for number, attempt in enumerate(trace.attempts)
        ]
    if call.first_content is not None:
        at = _nanoseconds(begun + call.first_content)
        events.append(Span.Event(name=f"{NAMESPACE}.first_content", time_unix_nano=at))
    return events


def _method(method: str) -> KeyValue:
    return kept("http.request.method", method if method in METHODS else "_OTHER")


@lru_cache(maxsize=1024)
def _to(upstream: str) -> tuple[KeyValue, ...]:
    """The address of an upstream, as attributes."""
    if upstream.startswith("unix:"):
        return (kept("server.address", upstream.removeprefix("unix:")),)
    parts = urlsplit(upstream)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        port = 0
    return (
        kept("server.address", parts.hostname or ""),
        kept("server.port", port),
        kept("url.scheme", parts.scheme or "http"),
    )
