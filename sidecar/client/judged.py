"""What a live failure means, told in this process: no daemon has to answer for it.

An envelope that is there already is believed: one that a guard put on, or one that the daemon sent
along with the answer that an SDK raised for. Else the exception is described and classified, as a
database's or as an SDK's by the family of its class, by what it wraps, or by whose code it came
through: a driver that lets a bare `ConnectionRefusedError` out is still a driver.

Loaded when something has failed, and not before: classifying needs msgspec.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from sidecar.client.errors import SidecarError
from sidecar.client.marks import ENVELOPE, SHOULD_RETRY, header_of
from sidecar.client.reports import error_of
from sidecar.envelope import database, sdk
from sidecar.envelope.compose import within_bounds
from sidecar.envelope.databases import odbc, vendors, wrappers
from sidecar.envelope.describe import describe, wrapped
from sidecar.envelope.model import Envelope, Source
from sidecar.envelope.peek import woken
from sidecar.envelope.raised import DEEPEST, Raised
from sidecar.envelope.sdks import family_of

_MOST_FRAMES = 256
_MOST_MEMBERS = 64


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose failure it is, where the caller knows better than the exception.

    Attributes:
        source: `database` or `sdk`; None to tell by what follows, else by the exception.
        vendor: the database: `postgresql`, …
        sdk: the SDK: `stripe`, `boto3-s3`, …
    """

    source: str | None = None
    vendor: str | None = None
    sdk: str | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """What a failure means for whoever called.

    Attributes:
        envelope: in eight fields.
        raised: the exception as plain data; None where the envelope was there before.
        should_retry: `x-should-retry` of the answer, where it had one.
        gave_up: why a retry inside gave up, where there was one.
    """

    envelope: Envelope
    raised: Raised | None = None
    should_retry: bool | None = None
    gave_up: str | None = None


def judge(
    error: Exception,
    origin: Origin | None = None,
    *,
    phase: str | None = None,
    correlation_id: str = "",
) -> Judged:
    """What an exception means.

    Args:
        error: as it was caught.
        origin: whose failure it is; None to tell by the exception.
        phase: `commit` where the call was a COMMIT, `connect` where it opened a connection.
        correlation_id: of the call; an envelope that is there already keeps its own.
    """
    if isinstance(error, SidecarError):
        should_retry = _told(error)[1]
        return Judged(error.envelope, should_retry=should_retry, gave_up=error.gave_up)
    members = list(_leaves(error))
    if any(isinstance(member, SidecarError) for member in members):
        # Of several that were judged apart, the one that says most against going on.
        each = (judge(one, origin, correlation_id=correlation_id) for one in members)
        return max(each, key=_against)
    told, should_retry = _told(error)
    if told is not None:
        return Judged(told, should_retry=should_retry)
    raised = describe(error, phase=phase)
    envelope = _classified(error, raised, origin or Origin(), correlation_id)
    return Judged(envelope, raised=raised, should_retry=should_retry)


def told_of(judged: Judged, error: Exception, phase: str | None) -> dict[str, Any]:
    """What the daemon is told of a failure: the exception as JSON, bounded."""
    return error_of(judged.raised or describe(error, phase=phase))


def judge_answer(answer: object) -> Judged | None:
    """What a returned HTTP answer says, if the daemon marked it as an error; None if not."""
    envelope, should_retry = _of_headers(woken(answer, "headers"))
    return None if envelope is None else Judged(envelope, should_retry=should_retry)


def _against(judged: Judged) -> tuple[bool, float]:
    envelope = judged.envelope
    return not envelope.retryable, envelope.retry_after or 0.0


def _leaves(error: BaseException) -> Iterator[Exception]:
    """The members of a group and of the groups in it; nothing for an exception alone."""
    held = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for member in held[:_MOST_MEMBERS]:
        if isinstance(member, BaseExceptionGroup):
            yield from _leaves(member)
        elif isinstance(member, Exception):
            yield member


# --- what the daemon said of the answer -----------------------------------------------------


def _told(error: BaseException) -> tuple[Envelope | None, bool | None]:
    """Envelope and advice in the headers of the answer that an exception was raised for."""
    link: BaseException | None = error
    for _ in range(DEEPEST):
        if link is None:
            break
        response = woken(link, "response")
        for held in (woken(response, "headers"), woken(link, "headers"), _botocore(response)):
            envelope, should_retry = _of_headers(held)
            if envelope is not None or should_retry is not None:
                return envelope, should_retry
        link = wrapped(link)
    return None, None


def _botocore(response: object) -> object:
    about = response.get("ResponseMetadata") if isinstance(response, dict) else None
    return about.get("HTTPHeaders") if isinstance(about, dict) else None


def _of_headers(headers: object) -> tuple[Envelope | None, bool | None]:
    told = header_of(headers, ENVELOPE)
    return _envelope(told), _truth(header_of(headers, SHOULD_RETRY))


def _truth(value: str | None) -> bool | None:
    return {"true": True, "false": False}.get(value.strip().lower()) if value else None


def _envelope(text: str | None) -> Envelope | None:
    if not text:
        return None
    try:
        return within_bounds(msgspec.convert(json.loads(text), Envelope))
    except (ValueError, RecursionError):
        return None


# --- whose it is ----------------------------------------------------------------------------


def _classified(error: Exception, raised: Raised, origin: Origin, correlation_id: str) -> Envelope:
    if not (origin.source or origin.vendor or origin.sdk):
        origin = _origin_of(error, raised)
    now = time.time()
    if origin.vendor or origin.source == Source.DATABASE.value:
        found = database.classify(
            raised, vendor=origin.vendor, correlation_id=correlation_id, now=now
        )
    else:
        found = sdk.classify(raised, sdk=origin.sdk, correlation_id=correlation_id, now=now)
    assert found.envelope is not None, "an exception is an error"
    return found.envelope


def _origin_of(error: Exception, raised: Raised) -> Origin:
    for link in _links(raised):
        if vendors.vendor_of_class(link) or wrappers.is_wrapper(link) or odbc.is_odbc(link):
            return Origin(source="database")
        family = family_of(link)
        if family is not None and not family.plain:
            return Origin(source="sdk")
    return _by_frames(error) or Origin(source="sdk")


def _links(raised: Raised) -> Iterator[Raised]:
    """The links of a chain, and of the chains of a group's members."""
    for link in raised.chain():
        yield link
        for member in link.exceptions:
            yield from member.chain()


def _by_frames(error: BaseException) -> Origin | None:
    """The driver or SDK whose code the exception came through, the innermost."""
    found = None
    for module in islice(_modules(error), _MOST_FRAMES):
        name = Raised(type=f"{module}.frame")
        vendor = vendors.vendor_of_class(name)
        family = family_of(name)
        if vendor is not None:
            found = Origin(source="database", vendor=vendor)
        elif family is not None and not family.plain:
            found = Origin(source="sdk", sdk=next(iter(family.sdks), None))
    return found


def _modules(error: BaseException) -> Iterator[str]:
    trace = error.__traceback__
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__")
        if isinstance(module, str):
            yield module
        trace = trace.tb_next
