"""How long a source asks to wait, out of every form in which sources say it.

Servers write waits as integers, decimals, milliseconds, HTTP dates, RFC 3339, Go durations, epoch
seconds or milliseconds, and as three generations of RateLimit fields. Each form is read here once.
A value that is negative, not finite or not readable is no hint at all: the next source is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite

from sidecar.envelope.headers import Headers

# RFC 9110 names no bound; a number of 30 days or more in a wait is an epoch that lost its way.
_LONGEST_DELTA = 30 * 86400.0
_EPOCH_SECONDS = 1e9
_LONGEST = 1e9
_EPOCH_MILLISECONDS = 1e11

_UNITS = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0,
    "h": 3600.0, "d": 86400.0,
}  # fmt: skip
_GO_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ns|us|µs|μs|ms|s|m|h|d))+")
_GO_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|μs|ms|s|m|h|d)")
_ISO_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
_NUMBER = re.compile(r"\+?\d+(?:\.\d*)?|\.\d+", re.ASCII)
_DAYS_CLOCK = re.compile(r"(?<!\d)(?:(\d{1,6})\.)?(\d{1,2}):(\d\d):(\d\d)")
_PROSE = re.compile(
    r"(?i)\b(?:(?:try(?:ing)? again|retry(?:ing)?|resets?|available)\s+(?:in|after|for|about)"
    r"|wait(?:\s+(?:for|about|at least))?)\s+"
    r"(?:about\s+|approximately\s+|~\s*)?"
    r"(\d+(?:\.\d+)?)\s*(milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)"
    r"(?![a-z])((?:\s*\d+(?:\.\d+)?(?:ms|s|m|h)(?![a-z]))*)"
)
_PROSE_GO = re.compile(
    r"(?i)\b(?:try again|retry)\s+(?:in|after)\s+((?:\d+(?:\.\d+)?(?:h|ms|m|s)){2,})(?![a-z0-9])"
)
# Characters of a long text that are read for a sentence about a wait, at either end.
_PROSE_END = 2048
_FIELDS = re.compile(
    r"(?:^|[,;\s])(remaining|reset)s?\s*=\s*(\d{1,15}(?:\.\d{1,9})?)(?![\d.])", re.IGNORECASE
)
_DRAFT9_PARAMETER = re.compile(r";\s*([rt])\s*=\s*(\d{1,15})(?!\d)")


IN_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after")
IN_SECONDS = "retry-after"
"""The headers that ask for a wait outright."""


def wait(seconds: float | None) -> float | None:
    """What may stand in an envelope as a wait; None for what nobody can have meant.

    Args:
        seconds: as they were told: below zero, no number, or beyond some thirty years too.
    """
    return seconds if seconds is not None and 0 <= seconds <= _LONGEST else None


def seconds_of(text: str, now: float, scale: float = 1.0) -> float | None:
    """A wait in seconds out of a number, a Go duration, a moment or an HTTP date.

    Args:
        text: the value as it was written.
        now: the moment it counts from, epoch seconds; 0 where nobody knows.
        scale: seconds of a bare number's unit; 0.001 for a field of milliseconds.

    Returns:
        Seconds, finite and >= 0 (a moment in the past is 0), or None if it is not readable.
    """
    text = text.strip().strip('"')
    if not text or len(text) > 64:
        return None
    if _NUMBER.fullmatch(text):
        return number_to_seconds(float(text) * scale, now)
    if _GO_DURATION.fullmatch(text):
        return sum(float(count) * _UNITS[unit] for count, unit in _GO_PART.findall(text))
    moment = _moment(text)
    if moment is None or not now:
        return None
    return max(0.0, moment - now)


def number_to_seconds(number: float, now: float) -> float | None:
    """A bare number: a delta below 30 days, else an epoch in seconds or milliseconds."""
    if not isfinite(number) or number < 0:
        return None
    if number < _LONGEST_DELTA or number < _EPOCH_SECONDS:
        return number
    if not now:
        return None
    epoch = number / 1000 if number >= _EPOCH_MILLISECONDS else number
    return max(0.0, epoch - now)


def _moment(text: str) -> float | None:
    try:
        if _ISO_MOMENT.match(text):
            moment = datetime.fromisoformat(text)
        elif text[:1].isalpha() and "(" not in text and "+" not in text.partition("GMT")[2]:
            moment = parsedate_to_datetime(text)
        else:
            return None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def answered_at(headers: Headers, now: float) -> float:
    """The moment a wait counts from: the answer's own `Date`, else `now`; the clocks may differ."""
    date = headers.get("date")
    moment = _moment(date.strip()) if date else None
    return now if moment is None else moment


def from_headers(headers: Headers, now: float) -> tuple[float, str] | None:
    """The wait that the headers ask for outright, and the text it was read from.

    Milliseconds come first: both headers name one instant, and the finer one is right.
    """
    for name in IN_MILLISECONDS:
        text = headers.get(name)
        if text is not None and _NUMBER.fullmatch(text.strip()):
            seconds = seconds_of(text, answered_at(headers, now), 0.001)
            if seconds is not None:
                return seconds, text
    text = headers.get(IN_SECONDS)
    if text is not None:
        wait = seconds_of(text, answered_at(headers, now))
        if wait is not None:
            return wait, text
    return None


def from_reset(headers: Headers, now: float) -> tuple[float, str] | None:
    """The reset of the exhausted dimension; of several exhausted ones the latest.

    The reset of a dimension that still has something left says nothing about this answer.
    """
    waits = list(_exhausted(headers, now))
    if not waits and not any("remaining" in name.lower() for name, _ in headers):
        waits = list(_only_dimension(headers, now))
    return max(waits, default=None)


def from_exhausted(headers: Headers, now: float) -> tuple[float, str] | None:
    """The reset of what is exhausted, also of an answer that is good; of several the latest."""
    return max(_exhausted(headers, now), default=None)


def _only_dimension(headers: Headers, now: float) -> Iterator[tuple[float, str]]:
    """A reset that stands alone belongs to the one dimension there is."""
    for name in ("ratelimit-reset", "x-ratelimit-reset", "x-rate-limit-reset"):
        text = headers.get(name)
        wait = None if text is None else seconds_of(text, answered_at(headers, now))
        if text is not None and wait is not None:
            yield wait, text


def _exhausted(headers: Headers, now: float) -> Iterator[tuple[float, str]]:
    since = answered_at(headers, now)
    for name, value in headers:
        key = name.lower()
        if "ratelimit" not in key and "rate-limit" not in key:
            continue
        if "=" in value and not key.endswith("policy"):
            yield from _structured(value)
        if "remaining" not in key:
            continue
        for reset, scale in _reset_names(key):
            spent = _resets_of_spent(value, headers.get(reset) or "")
            found = ((seconds_of(text, since, scale), text) for text in spent)
            waits = [(wait, text) for wait, text in found if wait is not None]
            yield from waits
            if waits:
                break


def _reset_names(remaining: str) -> Iterator[tuple[str, float]]:
    """The headers that may say when a bucket is refilled, with the seconds of their unit."""
    yield remaining.replace("remaining", "reset-after"), 1.0
    yield remaining.replace("remaining", "reset"), 1.0
    # The length of a rolling window: what was spent in it is back after that at the latest.
    yield remaining.replace("remaining", "interval-milliseconds"), 0.001


def _resets_of_spent(remaining: str, resets: str) -> Iterator[str]:
    """The reset of what is spent; one header may list several windows, in the same order."""
    lefts, texts = remaining.split(","), resets.split(",")
    if len(lefts) == 1 or len(lefts) != len(texts):
        lefts, texts = lefts[:1], [resets]
    for left, text in zip(lefts, texts, strict=True):
        if _left(left) == 0:
            yield text


def _left(value: str) -> float | None:
    try:
        return float(value.strip())
    except ValueError:
        return None


def _structured(value: str) -> Iterator[tuple[float, str]]:
    fields = {name.lower(): float(number) for name, number in _FIELDS.findall(value)}
    if "reset" in fields and fields.get("remaining") == 0:
        yield fields["reset"], value
        return
    for item in value.split(","):
        parameters = {name: float(number) for name, number in _DRAFT9_PARAMETER.findall(item)}
        if parameters.get("r") == 0 and "t" in parameters:
            yield parameters["t"], value


def from_prose(text: str) -> tuple[float, str] | None:
    """The wait in a sentence such as `Please try again in 11.054s`.

    Only for a dialect whose provider says it nowhere else.
    """
    if len(text) > 2 * _PROSE_END:
        # A sentence about a wait opens a text or closes it.
        text = f"{text[:_PROSE_END]} … {text[-_PROSE_END:]}"
    said = text.lower()
    if not ("try" in said or "wait" in said or "reset" in said or "available" in said):
        return None
    composite = _PROSE_GO.search(text)
    if composite:
        parts = _GO_PART.findall(composite.group(1))
        return sum(float(count) * _UNITS[unit] for count, unit in parts), composite.group(0)
    found = _PROSE.search(text)
    if not found:
        return None
    count, unit, rest = found.groups()
    unit = unit.lower()
    scale = _UNITS["ms"] if unit.startswith(("ms", "milli")) else _UNITS[unit[0]]
    more = sum(float(number) * _UNITS[part] for number, part in _GO_PART.findall(rest or ""))
    return float(count) * scale + more, found.group(0)


def from_days_clock(text: str) -> float | None:
    """Seconds of a `days.hours:minutes:seconds` span, the form of .NET and of Azure's gateway."""
    found = _DAYS_CLOCK.search(text)
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)
