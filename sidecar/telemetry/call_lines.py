"""The lines of single calls: one shape for every source, so that one query finds all failures."""

from __future__ import annotations

import logging
from typing import Any

from sidecar.envelope.model import Envelope, Verdict
from sidecar.telemetry.observer import CallFinished, DependencyCalled, Ending, FaultInjected

Line = tuple[str, int, dict[str, Any]]
"""The event, its level and its facts."""


def finished(call: CallFinished, ending: Ending) -> Line:
    """The line of a call that went through the daemon and did not end well."""
    envelope = call.envelope
    name, level = "call.failed", logging.INFO
    if ending is Ending.CLIENT_LEFT and call.verdict in (None, Verdict.NEUTRAL):
        name = "call.cancelled"
    elif call.decision == "internal_error":
        level = logging.ERROR
    elif call.verdict is Verdict.FAILURE:
        level = logging.WARNING
    facts: dict[str, Any] = {
        "correlation_id": call.correlation_id,
        "provider": call.provider,
        "model": call.model,
        "status": call.status or None,
        "class": None if envelope is None else envelope.class_,
        "code": None if envelope is None else envelope.code,
        "verdict": call.verdict,
        "rule": call.rule or None,
        "ending": ending,
        "decision": call.decision,
        "key": call.key,
        "method": call.method,
        "path": call.path,
        "upstream_status": call.upstream_status,
        "duration": call.duration,
        "first_byte": call.first_byte,
    }
    if envelope is not None:
        facts |= _told(envelope, call.upstream_request_id)
    if call.reclassified:
        facts["reclassified"] = True
    if call.would_refuse:
        facts["would_refuse"] = True
    if call.fault is not None:
        facts["fault"] = call.fault
    if call.trace is not None:
        facts |= {
            "trace_id": call.trace.trace_id,
            "span_id": call.trace.span_id,
            "trace_flags": f"{call.trace.flags:02x}",
        }
    return name, level, facts


def reported(call: DependencyCalled, envelope: Envelope) -> Line:
    """The line of a call that the agent made itself: the same event, so one query finds all."""
    facts: dict[str, Any] = {
        "correlation_id": call.correlation_id,
        "provider": None,
        "dependency": call.dependency,
        "model": None,
        "status": None,
        "class": envelope.class_,
        "code": envelope.code,
        "verdict": call.verdict,
        "rule": call.rule or None,
        "ending": Ending.REPORTED,
        "decision": call.decision,
        "key": call.dependency,
        "method": None,
        "path": None,
        "upstream_status": None,
        "duration": call.duration,
        "first_byte": None,
        **_told(envelope),
    }
    if call.would_refuse:
        facts["would_refuse"] = True
    if call.fault is not None:
        facts["fault"] = call.fault
    level = logging.WARNING if call.verdict is Verdict.FAILURE else logging.INFO
    return "call.failed", level, facts


def injected(fault: FaultInjected) -> Line:
    """The line of a fault, whatever becomes of its call: also one that nobody notices."""
    facts: dict[str, Any] = {
        "correlation_id": fault.correlation_id,
        "dependency" if fault.of_dependency else "provider": fault.name,
        "model": fault.model,
        "fault": fault.rule,
        "injected": fault.fault,
        "call": fault.call,
        "breakers": fault.counts,
    }
    return "fault.injected", logging.INFO, facts


def _told(envelope: Envelope, request_id: str | None = None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "source": envelope.source,
        "retryable": envelope.retryable,
        "retry_after": envelope.retry_after,
        "message": envelope.message,
    }
    told = envelope.raw.get("upstream_request_id") if envelope.raw is not None else None
    if request_id or told:
        facts["upstream_request_id"] = request_id or told
    return facts
