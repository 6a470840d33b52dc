"""The `details` of Google's errors: typed messages beside the sentence, as members that rules read.

The types are those of google/rpc/error_details.proto; the older APIs have a list `errors` instead.
"""

from __future__ import annotations

from typing import Any

from sidecar.envelope.fields import as_number_text


def with_details(error: dict[str, Any]) -> dict[str, Any]:
    """The error with what its `details` say as members of its own, where rules find them.

    Args:
        error: an error object; whatever stands in it is taken as it is.

    Returns:
        The same, and `errorInfo`, `quotaViolations`, `retryDelay` (seconds as text), `requestId`
        and `field`, as far as there are such details.
    """
    told: dict[str, Any] = {}
    for detail in error.get("details") or () if isinstance(error.get("details"), list) else ():
        if not isinstance(detail, dict):
            continue
        kind = str(detail.get("@type") or "").rpartition(".")[2]
        if kind == "ErrorInfo" or (not kind and "reason" in detail):
            told.setdefault("errorInfo", detail)
        elif kind == "QuotaFailure" and isinstance(detail.get("violations"), list):
            told.setdefault("quotaViolations", []).extend(detail["violations"])
        elif kind == "RetryInfo":
            told.setdefault("retryDelay", _duration(detail.get("retryDelay")))
        elif kind == "RequestInfo":
            told.setdefault("requestId", detail.get("requestId"))
        elif kind == "BadRequest":
            told.setdefault("field", _field(detail))
    legacy = error.get("errors")
    if isinstance(legacy, list) and legacy and isinstance(legacy[0], dict):
        told["legacyReason"] = legacy[0].get("reason")
    return {**error, **told} if told else error


def _duration(value: Any) -> str | None:
    """A duration as protocol buffers write it: `34.07s`, or seconds and nanoseconds apart."""
    if isinstance(value, dict):
        seconds, nanos = value.get("seconds"), value.get("nanos")
        try:
            return f"{float(seconds or 0) + float(nanos or 0) / 1e9:.9f}"
        except (TypeError, ValueError, OverflowError):
            return None
    return as_number_text(value)


def _field(detail: dict[str, Any]) -> Any:
    violations = detail.get("fieldViolations")
    first = violations[0] if isinstance(violations, list) and violations else None
    return first.get("field") if isinstance(first, dict) else None
