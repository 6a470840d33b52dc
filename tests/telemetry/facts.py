"""Facts to feed listeners with."""

from typing import Any

from sidecar.breaker.model import State, Transition
from sidecar.envelope.model import Envelope, ErrorClass, Source, Verdict
from sidecar.telemetry.observer import CallFinished, DependencyCalled


def envelope(code: str = "503", **changes: Any) -> Envelope:
    fields: dict[str, Any] = {
        "class_": ErrorClass.TRANSIENT,
        "source": Source.HTTP,
        "code": code,
        "message": "it failed",
        "retryable": False,
        "correlation_id": "c-1",
    }
    return Envelope(**(fields | changes))


def call(**changes: Any) -> CallFinished:
    fields: dict[str, Any] = {
        "at": 1_000.0,
        "provider": "openai",
        "key": "openai/gpt-x",
        "model": "gpt-x",
        "method": "POST",
        "path": "/v1/chat/completions",
        "decision": "forwarded",
        "status": 200,
        "upstream_status": 200,
        "verdict": Verdict.SUCCESS,
        "correlation_id": "c-1",
        "duration": 0.5,
    }
    return CallFinished(**(fields | changes))


def failed(code: str = "503", **changes: Any) -> CallFinished:
    fields: dict[str, Any] = {
        "status": 503,
        "upstream_status": 503,
        "envelope": envelope(code),
        "verdict": Verdict.FAILURE,
        "rule": "status 503",
    }
    return call(**(fields | changes))


def refused(decision: str = "breaker_open", **changes: Any) -> CallFinished:
    fields: dict[str, Any] = {
        "status": 503,
        "upstream_status": None,
        "decision": decision,
        "envelope": envelope(decision, source=Source.SIDECAR, retryable=True, retry_after=3.0),
        "verdict": None,
    }
    return call(**(fields | changes))


def cancelled(**changes: Any) -> CallFinished:
    fields: dict[str, Any] = {
        "status": 0,
        "upstream_status": None,
        "verdict": Verdict.NEUTRAL,
    }
    return call(**(fields | changes))


def reported(code: str = "40001", **changes: Any) -> DependencyCalled:
    fields: dict[str, Any] = {
        "at": 1_000.0,
        "dependency": "orders-db",
        "decision": "reported",
        "correlation_id": "c-1",
        "duration": 0.25,
        "envelope": envelope(code, source=Source.DATABASE, retryable=True, retry_after=0.0),
        "verdict": Verdict.ALIVE,
        "rule": "sqlstate 40001",
    }
    return DependencyCalled(**(fields | changes))


def transition(old: State = State.CLOSED, new: State = State.OPEN, **changes: Any) -> Transition:
    fields: dict[str, Any] = {
        "key": "openai/gpt-x",
        "provider": "openai",
        "old": old,
        "new": new,
        "reason": "5 consecutive failures",
        "at": 12.0,
        "enforced": True,
        "retry_after": 30.0,
    }
    return Transition(**(fields | changes))
