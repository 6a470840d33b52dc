"""What an agent says of a call that it made itself, and what that means for the breaker.

Read leniently where leniency loses nothing: a report of a failure that fails itself would leave the
breaker blind. Only what makes the report ambiguous is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

import msgspec

from sidecar import correlation
from sidecar.breaker.model import Kind, Outcome
from sidecar.envelope import transport
from sidecar.envelope.model import Classified, Verdict
from sidecar.envelope.raised import Raised, recorded

_LONGEST_PERMIT = 128

_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(
        (
            "connect_timeout",
            "connection_closed",
            "connection_error",
            "connection_refused",
            "connection_reset",
            "dns_failure",
            "tls_failure",
        ),
        Kind.CONNECTION,
    ),
    **dict.fromkeys(("query_timeout", "read_timeout", "timeout"), Kind.TIMEOUT),
}


class ReportError(ValueError):
    """What was sent is no report; the message says what to change.

    Attributes:
        malformed: it is no JSON object at all.
    """

    def __init__(self, message: str, *, malformed: bool = False) -> None:
        super().__init__(message)
        self.malformed = malformed


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One report.

    Attributes:
        permit: the id that was given.
        error: what was raised; None for a call that went well.
        driver: which driver raised it, where the report says so.
        correlation_id: of the agent's workflow, where the report says so.
        duration: seconds that the call took, where the report says so.
        now: when it was raised, seconds since the epoch, where the report says so.
    """

    permit: str
    error: Raised | None = None
    driver: str | None = None
    correlation_id: str | None = None
    duration: float | None = None
    now: float | None = None


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; an empty body is an empty one.

    Raises:
        ReportError: if it is none.
    """
    if not body.strip():
        return {}
    try:
        document = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise ReportError("the body is not JSON in UTF-8", malformed=True) from None
    if not isinstance(document, dict):
        raise ReportError("the body is a JSON object", malformed=True)
    return document


def read_report(body: bytes) -> Report:
    """Read `{"permit": id, "ok": true}` or `{"permit": id, "error": {…}}`.

    Raises:
        ReportError: if the permit is missing, or whether the call went well is not said.
    """
    document = read_object(body)
    permit, error = document.get("permit"), document.get("error")
    ok = document.get("ok")
    if not isinstance(permit, str) or not 0 < len(permit) <= _LONGEST_PERMIT:
        raise ReportError("permit is missing: the id that the call of …/permit gave")
    if error is not None and not isinstance(error, dict):
        raise ReportError("error is an object: type, message, code, sqlstate, status and so on")
    if (ok is True) == (error is not None) or ok not in (None, True, False):
        raise ReportError('exactly one is needed: "ok": true, or "error": {…}')
    driver = document.get("driver")
    try:
        raised = None if error is None else recorded(error)
    except RecursionError:
        raise ReportError("error is nested too deep") from None
    return Report(
        permit=permit,
        error=raised,
        driver=driver if isinstance(driver, str) else None,
        correlation_id=read_correlation_id(document),
        duration=_seconds(document.get("duration")),
        now=_seconds(document.get("now")),
    )


def read_correlation_id(document: Mapping[str, Any]) -> str | None:
    """The `correlation_id` of a body, in the letters that one may have; None without one."""
    given = document.get("correlation_id")
    return (correlation.sanitised(given) or None) if isinstance(given, str) else None


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e12 and isfinite(value) else None


def outcome_of(classified: Classified, raised: Raised | None) -> Outcome:
    """What the breaker is told of a reported call.

    Whether a database could not be reached, did not answer in time, or answered with a failure
    decides how its breaker closes again.
    """
    envelope = classified.envelope
    if envelope is None:
        return Outcome(classified.verdict)
    return Outcome(
        classified.verdict,
        kind=_kind(envelope.code, raised) if classified.verdict is Verdict.FAILURE else Kind.ANSWER,
        retry_after=envelope.retry_after,
        code=envelope.code,
        status=None if raised is None else raised.status,
    )


def _kind(code: str, raised: Raised | None) -> Kind:
    phase = None if raised is None else raised.phase
    # The SQL standard's class 08 is the connection's.
    if phase == "connect" or (code.startswith("08") and len(code) == 5):
        return Kind.CONNECTION
    if code not in _KINDS and raised is not None and raised.status is None:
        # A driver's own number hides what the operating system said below it.
        signal = transport.of_chain(raised)
        code = code if signal is None or signal.meaning.code is None else signal.meaning.code
    return _KINDS.get(code, Kind.ANSWER)
