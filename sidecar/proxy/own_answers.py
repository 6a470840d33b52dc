"""Answers of the daemon's own: refusals, failures to get an answer, faults, a stop.

One row of `replies.DECISIONS` for each; here it is said to one call, in its provider's dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar import clock as machine
from sidecar.breaker.model import Outcome
from sidecar.envelope.model import Classified, Envelope, Verdict
from sidecar.envelope.policy import should_retry
from sidecar.proxy import headers, replies
from sidecar.proxy.failures import Refused, UpstreamFailed
from sidecar.proxy.outgoing import Framing
from sidecar.telemetry.observer import Ending, Fault

if TYPE_CHECKING:
    from sidecar.envelope.dialects.base import Dialect
    from sidecar.proxy.call import Call


def answer_refusal(call: Call, refused: Refused) -> None:
    """The daemon refuses the call."""
    call.decision = refused.decision
    call.ending = Ending.REFUSED
    if refused.close:
        call.out.keep = False
    call.settle(Outcome(Verdict.NEUTRAL))
    envelope = replies.envelope_of(
        refused.decision,
        refused.detail,
        call.correlation_id,
        code=refused.code,
        retry_after=refused.retry_after,
    )
    if call.repeats is not None:
        envelope = call.repeats.told(envelope)
    _answer(call, envelope, None, f"local: {refused.decision}", sent=False)


def answer_failure(call: Call, failure: UpstreamFailed) -> None:
    """No usable answer came: says so, in the caller's dialect."""
    if call.runtime is not None and call.is_evidence:
        failure = call.plane.watch.judge(call.runtime, failure)
    call.decision = failure.decision
    call.settle(
        Outcome(failure.verdict, kind=failure.kind, code=failure.code, status=call.upstream_status)
    )
    here = failure.decision == "local_network"
    envelope = envelope_of(call, failure)
    if call.repeats is not None:
        envelope = call.repeats.told(envelope)
    _answer(
        call,
        envelope,
        None if here else failure.verdict,
        f"transport: {failure.code}",
        sent=failure.sent,
    )


def envelope_of(call: Call, failure: UpstreamFailed) -> Envelope:
    """What is told of a failure to get an answer."""
    return replies.envelope_of(
        failure.decision,
        f"{call.runtime.name if call.runtime else 'upstream'}: {failure.detail}",
        call.correlation_id,
        code=failure.code,
        retry_after=call.plane.watch.wait() if failure.decision == "local_network" else None,
        sent=failure.sent,
    )


def answer_fault(call: Call, error: Exception) -> None:
    """Something in the daemon itself went wrong."""
    call.decision = "internal_error"
    call.plane.observer.emit(
        Fault(at=machine.wall(), where="proxy", error=error, correlation_id=call.correlation_id)
    )
    call.settle(Outcome(Verdict.NEUTRAL))
    call.out.keep = False
    envelope = replies.envelope_of(
        "internal_error", "a fault in the daemon; its log has more", call.correlation_id
    )
    # The fault may lie in a dialect: this answer asks none.
    generic = call.plane.generic
    _answer(call, envelope, Verdict.NEUTRAL, "local: internal_error", sent=False, spoken=generic)


def _answer(
    call: Call,
    envelope: Envelope,
    verdict: Verdict | None,
    rule: str,
    *,
    sent: bool,
    spoken: Dialect | None = None,
) -> None:
    """Writes an answer of the daemon's own; one that comes too late only ends badly."""
    call.classified = Classified(envelope=envelope, verdict=verdict or Verdict.NEUTRAL, rule=rule)
    incoming = call.incoming
    if call.out.started:
        call.out.keep = False
        call.connection.abort()
        return
    status = replies.DECISIONS[call.decision].status
    dialect = spoken or (call.runtime.dialect if call.runtime else call.plane.generic)
    media_type, body = replies.body_of(
        envelope, status, dialect, call.path, plain=incoming.wants_envelope()
    )
    own = [
        *call.marks(),
        *replies.error_headers(
            envelope,
            verdict,
            _advice(call, envelope, sent=sent),
            dialect.should_retry_headers,
        ),
        *dialect.error_headers(envelope, call.path),
        ("cache-control", "no-store"),
        ("content-type", media_type),
        ("content-length", str(len(body))),
    ]
    if incoming.awaits_permission:
        # The caller was never told to go on: whether a body follows is not known.
        call.out.keep = False
        call.connection.finish_after_answer = True
    framing = Framing.NONE if incoming.method == "HEAD" else Framing.LENGTH
    reason = replies.REASONS.get(status, "")
    call.out.start(status, reason, [headers.lines(own)], framing, body)


def _advice(call: Call, envelope: Envelope, *, sent: bool) -> str | None:
    runtime, incoming = call.runtime, call.incoming
    return should_retry(
        envelope,
        terminal=False,
        # A request that had left when the daemon stopped is like one whose answer broke off.
        decision="upstream_error" if sent and call.decision == "draining" else call.decision,
        fail_fast=runtime is not None and runtime.config.breaker.fail_fast,
        sdk_wait_max=runtime.config.sdk_wait_max if runtime else replies.SDK_WAIT_MAX,
        method=incoming.method,
        idempotency_key=incoming.header(b"idempotency-key") is not None,
        repeatable=runtime is not None and runtime.dialect.repeatable(incoming.method, call.path),
        sent=sent,
    )


def answer_stopped(call: Call) -> None:
    """The daemon stops before anything was said."""
    call.decision = "draining"
    call.out.keep = False
    _answer(call, stopped_envelope(call), None, "local: draining", sent=call.is_sent)


def stopped_envelope(call: Call) -> Envelope:
    """What is told of a call that the daemon's stop has ended."""
    return replies.envelope_of(
        "draining",
        "the daemon stopped before the answer was whole"
        + ("; the request may have been executed" if call.is_sent else ""),
        call.correlation_id,
        sent=call.is_sent,
    )
