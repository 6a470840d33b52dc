"""`GET /v1/failures`: the last hour in groups, and the failures of one correlation id.

The groups name kinds and ids and quote nobody. What was seen with a failure is for those who may
steer the daemon; the seven fields are for everybody who may read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sidecar.admin.answers import AdminError
from sidecar.admin.status import rfc3339
from sidecar.telemetry.failures import FIELDS, SECONDS, Failure, Failures, Sighting
from sidecar.telemetry.observer import CallFinished

_USUAL = ("class", "source", "code")
_LONGEST_NUMBER = 18


def read_fields(given: Sequence[str] | None) -> tuple[str, ...]:
    """What to group by, each field once, in the order in which they were named.

    Args:
        given: the values of `by`, each a list with commas; None if there is none.

    Raises:
        AdminError: 400 for a field that there is not.
    """
    if given is None:
        return _USUAL
    fields = [field.strip() for value in given for field in value.split(",")]
    if not all(field in FIELDS for field in fields):
        raise AdminError(400, "bad_request", f"by is one or more of {', '.join(FIELDS)}")
    return tuple(dict.fromkeys(fields))


def group_document(
    failures: Failures, fields: Sequence[str], wall: float, *, minutes: bool
) -> dict[str, Any]:
    """The failures of the last hour, the most frequent kinds first.

    Args:
        failures: what is grouped.
        fields: what by; see `read_fields`.
        wall: seconds since the epoch.
        minutes: with each group's counts by the minute, the present one last.
    """
    groups = failures.groups(fields)
    return {
        "since": rfc3339(wall - SECONDS),
        "seconds": int(SECONDS),
        "by": list(fields),
        "total": sum(group.count for group in groups),
        "groups": [
            {
                **dict(zip(fields, group.values, strict=True)),
                "count": group.count,
                "first": _sighting(group.first),
                "last": _sighting(group.last),
                **({"minutes": group.minutes} if minutes else {}),
            }
            for group in groups
        ],
    }


def latest_document(failures: Failures, after: int, *, refusals: bool) -> dict[str, Any]:
    """The last failures without what was seen with them, the last one first.

    Args:
        failures: what is listed.
        after: only those with a higher number.
        refusals: what the daemon refused itself too.
    """
    found = failures.latest(after, refusals=refusals)
    return {
        "after": found[0].number if found else after,
        "failures": [{"number": failure.number, **_entry(failure, raw=False)} for failure in found],
    }


def read_number(given: Sequence[str] | None) -> int:
    """The number of `after`; 0 if there is none.

    Raises:
        AdminError: 400 for what is no number.
    """
    text = given[-1] if given else "0"
    if not (text.isascii() and text.isdecimal()) or len(text) > _LONGEST_NUMBER:
        raise AdminError(400, "bad_request", "after is a number of a failure")
    return int(text)


def failure_entries(failures: Sequence[Failure], *, raw: bool) -> list[dict[str, Any]]:
    """Kept failures as JSON values.

    Args:
        failures: in the order in which they came.
        raw: with what was seen.
    """
    return [_entry(failure, raw=raw) for failure in failures]


def _sighting(sighting: Sighting) -> dict[str, Any]:
    return {"at": rfc3339(sighting.at), "correlation_id": sighting.correlation_id}


def _entry(failure: Failure, *, raw: bool) -> dict[str, Any]:
    call, envelope = failure.call, failure.envelope
    through = call if isinstance(call, CallFinished) else None
    return {
        "at": rfc3339(call.at),
        "provider": None if through is None else through.provider,
        "dependency": call.dependency if not isinstance(call, CallFinished) else None,
        "key": call.key if isinstance(call, CallFinished) else call.dependency,
        "decision": call.decision,
        "status": None if through is None else through.status or None,
        "upstream_status": None if through is None else through.upstream_status,
        "duration": round(call.duration, 6),
        "verdict": None if call.verdict is None else call.verdict.value,
        "rule": call.rule or None,
        "fault": call.fault,
        "envelope": msgspec.to_builtins(envelope) if raw else {**envelope.for_model(), "raw": None},
    }
