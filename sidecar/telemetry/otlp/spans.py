"""The spans of a call: the server's, and one for each request to the upstream.

Written by the stable conventions of OpenTelemetry for HTTP, with the envelope and the verdict
beside them. What a caller or an upstream wrote is shown redacted, as in the log; queries and
headers are not shown at all. What many spans have in common is encoded once, see `wire`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from sidecar import clock
from sidecar.admin.status import shown_upstream
from sidecar.breaker.model import Transition
from sidecar.envelope.model import Envelope, Verdict
from sidecar.telemetry.bounds import code_label
from sidecar.telemetry.instruments import NAMESPACE
from sidecar.telemetry.lines import clean
from sidecar.telemetry.observer import CallFinished, Ending, Fact, ending_of
from sidecar.telemetry.otlp.values import SCOPE, fresh, kept, pairs, resource, text
from sidecar.telemetry.otlp.wire import field, ids
from sidecar.telemetry.trace import CallTrace, Tracing

METHODS: Final = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"}
)
"""Methods that the conventions know; any other is `_OTHER`, so that nobody makes names up."""

_WORDS: Final = {verdict: verdict.value for verdict in Verdict}
"""A cache takes a plain word faster than a member of an enumeration."""

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
        self, tracing: Tracing, upstream_of: Upstreams, put: Callable[[bytes], None]
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
        # Times on the way are monotonic; one reading of both clocks turns them into dates. The end
        # of the call is no such reading: the log may have been written since.
        ahead = clock.wall() - clock.monotonic()
        end = _nanoseconds(call.at)
        error = _error_of(call)
        trace_id, span_id = bytes.fromhex(trace.trace_id), bytes.fromhex(trace.span_id)
        state = b"" if not trace.state else _state(text(trace.state))
        if trace.attempts:
            upstream = self._upstream_of(call.provider or "") or ""
            for number, attempt in enumerate(trace.attempts):
                problem = attempt.error if attempt.ended else error
                constant = _client(
                    upstream, call.method, call.path, attempt.status, number, problem
                )
                last = _nanoseconds(attempt.ended + ahead) if attempt.ended else end
                start = _nanoseconds(attempt.begun + ahead)
                own = bytes.fromhex(attempt.span_id)
                flags = _LOCAL_PARENT | trace.flags
                self._put(constant + ids(trace_id, own, span_id, start, last, flags) + state)
        constant = _server(
            call.method,
            call.provider,
            call.path,
            call.key,
            call.model,
            call.status,
            call.decision,
            None if call.verdict is None else _WORDS[call.verdict],
            error,
            # Only what went well is told from its ending without asking, and is most of all.
            None if error is None and call.verdict is Verdict.SUCCESS else ending_of(call).value,
            call.would_refuse,
        )
        flags = trace.flags | (_REMOTE_PARENT if trace.parent_id else _LOCAL_PARENT)
        start = end - _nanoseconds(call.duration)
        parent = bytes.fromhex(trace.parent_id)
        span = (
            constant
            + ids(trace_id, span_id, parent, start, end, flags)
            + state
            + _correlated(call.correlation_id)
        )
        events = _events(call, trace, ahead)
        attributes = [] if call.envelope is None else _envelope(call, call.envelope)
        if call.fault is not None:
            attributes.append(fresh(f"{NAMESPACE}.fault", clean(call.fault)))
        if events or attributes:
            span += Span(events=events, attributes=attributes).SerializeToString()
        self._put(span)


def request(spans: Sequence[bytes], who: Mapping[str, str]) -> bytes:
    """One request for the collector: the spans in their scope, the scope in its resource."""
    scope = field(1, SCOPE.SerializeToString()) + b"".join(field(2, span) for span in spans)
    return field(1, field(1, resource(who).SerializeToString()) + field(2, scope))


@lru_cache(maxsize=256)
def _state(state: str) -> bytes:
    return bytes(Span(trace_state=state).SerializeToString())


def _correlated(correlation_id: str) -> bytes:
    """The one attribute that is different in each span; it is ASCII by construction."""
    if _HEX_ID.fullmatch(correlation_id) is None:
        # A caller's own: who puts a key there by mistake finds it nowhere.
        correlation_id = clean(correlation_id)
    return field(9, _CORRELATION + field(2, field(1, correlation_id.encode())))


_HEX_ID: Final = re.compile(r"[0-9a-f]{32}")
_CORRELATION: Final = field(1, f"{NAMESPACE}.correlation_id".encode())


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def _error_of(call: CallFinished) -> str | None:
    """`error.type`: the envelope's code as metrics have it, or how a call was cut; else None."""
    if call.envelope is not None:
        return code_label(call.envelope.code)
    ending = ending_of(call)
    return None if ending in (Ending.ANSWERED, Ending.REPORTED) else ending.value


@lru_cache(maxsize=4096)
def _server(
    method: str,
    provider: str | None,
    path: str,
    key: str | None,
    model: str | None,
    status: int,
    decision: str,
    verdict: str | None,
    error: str | None,
    ending: str | None,
    would_refuse: bool,  # noqa: FBT001 - a cache knows no keywords
) -> bytes:
    """Everything of a server's span that is the same for many calls."""
    route = f"/{provider}" if provider else ""
    known = method if method in METHODS else "HTTP"
    attributes = {
        "http.request.method": method if method in METHODS else "_OTHER",
        "http.request.method_original": None if method in METHODS else clean(method[:64]),
        "url.scheme": "http",
        "url.path": route + path,
        "network.protocol.version": "1.1",
        "http.route": route or None,
        "http.response.status_code": status or None,
        "error.type": error,
        f"{NAMESPACE}.provider": provider,
        f"{NAMESPACE}.decision": decision,
        f"{NAMESPACE}.ending": ending or Ending.ANSWERED.value,
        f"{NAMESPACE}.key": key,
        f"{NAMESPACE}.model": model,
        f"{NAMESPACE}.verdict": verdict,
        f"{NAMESPACE}.would_refuse": would_refuse or None,
    }
    span = Span(
        name=f"{known} {route}" if route else known,
        kind=Span.SpanKind.SPAN_KIND_SERVER,
        attributes=pairs(attributes),
        status=_ERROR if status >= 500 or verdict == Verdict.FAILURE.value else None,
    )
    return bytes(span.SerializeToString())


@lru_cache(maxsize=4096)
def _client(
    upstream: str,
    method: str,
    path: str,
    status: int | None,
    number: int,
    error: str | None,
) -> bytes:
    """Everything of a client's span that is the same for many calls."""
    known = method if method in METHODS else "HTTP"
    attributes = {
        "http.request.method": method if method in METHODS else "_OTHER",
        "http.request.method_original": None if method in METHODS else clean(method[:64]),
        **_address(upstream),
        "url.full": shown_upstream(upstream).rstrip("/") + path,
        "network.protocol.version": "1.1",
        "http.response.status_code": status,
        "http.request.resend_count": number or None,
        "error.type": error,
    }
    span = Span(
        name=known,
        kind=Span.SpanKind.SPAN_KIND_CLIENT,
        attributes=pairs(attributes),
        status=_ERROR if error is not None else None,
    )
    return bytes(span.SerializeToString())


def _envelope(call: CallFinished, envelope: Envelope) -> list[KeyValue]:
    attributes = [
        kept(f"{NAMESPACE}.envelope.class", envelope.class_.value),
        kept(f"{NAMESPACE}.envelope.source", envelope.source.value),
        kept(f"{NAMESPACE}.envelope.code", clean(envelope.code)),
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


def _address(upstream: str) -> dict[str, str | int | None]:
    """The address of an upstream, as attributes."""
    if upstream.startswith("unix:"):
        return {"server.address": upstream.removeprefix("unix:")}
    parts = urlsplit(upstream)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {
        "server.address": parts.hostname or "",
        "server.port": port,
        "url.scheme": parts.scheme or "http",
    }
