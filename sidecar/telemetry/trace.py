"""One call's place in a trace: whose child it is, its own ids, and what happened on its way.

W3C Trace Context, level 1. A caller's valid `traceparent` is continued under the same trace id; one
that is invalid, or there twice, begins a new trace without its `tracestate`. While tracing is off
nobody comes here, and the headers pass as they came. Baggage is never read.

No OpenTelemetry in here: it is loaded only where something is exported.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any, Final

_TRACEPARENT: Final = re.compile(
    rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
_HEX_ID: Final = re.compile(r"[0-9a-f]{32}")
_SAMPLED: Final = 1
_LONGEST: Final = 512  # characters of a tracestate, by the specification
_MOST_EVENTS: Final = 32
_ids = random.Random(os.urandom(16))  # noqa: S311 - ids tell spans apart, they guard nothing

RawHeaders = Sequence[tuple[bytes, bytes]]
Sampling = Callable[[str, bool | None], bool]
"""From the trace id, and whether the caller's span is sampled (None without one)."""


class Attempt:
    """One request to the upstream, which is a span of its own.

    Attributes:
        span_id: of its span.
        begun: when a connection was asked for, monotonic seconds.
        sent: when the request had left; None before.
        ended: when it was given up for another one; None for the last.
        status: of the answer; None without one.
        error: the code of its failure; None if it went well, or failed with the call.
    """

    __slots__ = ("begun", "ended", "error", "sent", "span_id", "status")

    def __init__(self, begun: float) -> None:
        self.span_id = new_span_id()
        self.begun = begun
        self.sent: float | None = None
        self.ended: float | None = None
        self.status: int | None = None
        self.error: str | None = None


class CallTrace:
    """The spans of one call while it is under way.

    Attributes:
        trace_id: 32 hexadecimal digits.
        parent_id: the caller's span; empty without one.
        span_id: of the server's span.
        flags: as the caller sent them, or ours.
        state: the caller's `tracestate`; empty without one.
        events: name, monotonic seconds and attributes of what happened.
        attempts: the requests to the upstream.
    """

    __slots__ = ("attempts", "events", "flags", "parent_id", "span_id", "state", "trace_id")

    def __init__(self, trace_id: str, parent_id: str, flags: int, state: str) -> None:
        self.trace_id = trace_id
        self.parent_id = parent_id
        self.span_id = new_span_id()
        self.flags = flags
        self.state = state
        self.events: list[tuple[str, float, dict[str, Any]]] = []
        self.attempts: list[Attempt] = []

    def event(self, name: str, at: float, **attributes: Any) -> None:
        """Something happened; a call that goes on for hours does not remember all of it."""
        if len(self.events) < _MOST_EVENTS:
            self.events.append((name, at, attributes))

    def attempt(self, at: float) -> Attempt:
        """A request to the upstream begins."""
        one = Attempt(at)
        self.attempts.append(one)
        return one

    def stops(self, present: Container[bytes], named: Collection[bytes]) -> Collection[bytes]:
        """Which headers of the caller do not pass: its own place in the trace, if it has one here.

        Args:
            present: the names of the caller's headers, in lower case.
            named: those that do not pass in any case.
        """
        if b"traceparent" in present:
            named = {*named, b"traceparent"}
        if not self.state and b"tracestate" in present:
            named = {*named, b"tracestate"}
        return named

    def header(self, attempt: Attempt) -> bytes:
        """The `traceparent` for the upstream."""
        return f"00-{self.trace_id}-{attempt.span_id}-{self.flags:02x}".encode()


def new_span_id() -> str:
    """Sixteen hexadecimal digits, not all of them zero."""
    return f"{_ids.getrandbits(64) or 1:016x}"


class Tracing:
    """Gives calls their places in traces.

    Args:
        sampling: decides which calls have one; None: tracing is off.

    Attributes:
        current: the call of which the breakers are told at this moment, so that what they announce
            meanwhile is known to be its doing.
    """

    __slots__ = ("current", "sampling")

    def __init__(self, sampling: Sampling | None = None) -> None:
        self.sampling = sampling
        self.current: CallTrace | None = None

    def begin(
        self, raw: RawHeaders, named: Mapping[bytes, bytes], correlation_id: str
    ) -> CallTrace | None:
        """See `begin`; None while tracing is off."""
        return None if self.sampling is None else begin(raw, named, correlation_id, self.sampling)


def begin(
    raw: RawHeaders, named: Mapping[bytes, bytes], correlation_id: str, sampling: Sampling
) -> CallTrace | None:
    """The place of a call in a trace; None if it is not sampled: then its headers pass untouched.

    Args:
        raw: the header lines of the request.
        named: the first of each, by its lower-case name.
        correlation_id: becomes the trace id where the call has none and it can be one, so that
            both can be searched for.
        sampling: decides.
    """
    own = _HEX_ID.fullmatch(correlation_id) and correlation_id.strip("0")
    if b"traceparent" in named:
        found = _only(raw, b"traceparent")
        if found is not None and _is_valid(found):
            trace_id, parent_id = found[2].decode(), found[3].decode()
            flags = int(found[4], 16) & 0x03
            if not sampling(trace_id, bool(flags & _SAMPLED)):
                return None
            return CallTrace(trace_id, parent_id, flags | _SAMPLED, _state(raw))
        # The correlation id may have been taken from that very header.
        own = None
    trace_id = correlation_id if own else f"{_ids.getrandbits(128) or 1:032x}"
    return CallTrace(trace_id, "", _SAMPLED, "") if sampling(trace_id, None) else None


def _only(raw: RawHeaders, wanted: bytes) -> re.Match[bytes] | None:
    """The one header of a name, read; None if there are several, or it cannot be read."""
    values = [value for name, value in raw if name.lower() == wanted]
    return _TRACEPARENT.fullmatch(values[0].strip()) if len(values) == 1 else None


def _state(raw: RawHeaders) -> str:
    values = [value for name, value in raw if name.lower() == b"tracestate"]
    state = b",".join(values).decode("latin-1")
    return state if len(state) <= _LONGEST else ""


def _is_valid(found: re.Match[bytes]) -> bool:
    version, trace, parent, more = found[1], found[2], found[3], found[5]
    if version == b"ff" or (version == b"00" and more is not None):
        return False
    return trace.strip(b"0") != b"" and parent.strip(b"0") != b""
