"""What others make of an answer: a breaker that reads statuses, and the two big SDKs.

The rules are those of the official Python clients (openai 3.57, anthropic 2.14: `_should_retry`,
`_calculate_retry_timeout` and their tables of exceptions); a test asks the clients themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz
from typing import Final

import msgspec

from sidecar.envelope.headers import Headers

REQUESTS = 3
"""Requests that both SDKs make of one call at most: the first, and `max_retries`, 2."""

_REPEATED = frozenset({408, 409, 429})
_LONGEST = 120.0
"""Seconds of Retry-After beyond which OpenAI's client raises at once."""
_LONGEST_SLEEP = 4_294_967.0
"""Seconds that Anthropic's client sleeps at most: it obeys whatever it is told."""
_INFINITE = frozenset({"inf", "+inf", "infinity", "+infinity"})

_OPENAI: Final[Mapping[int, str]] = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
}
_ANTHROPIC: Final[Mapping[int, str]] = {
    **_OPENAI,
    402: "PaymentRequiredError",
    408: "RequestTimeoutError",
    412: "PreconditionFailedError",
    413: "ContentTooLargeError",
    431: "RequestHeaderFieldsTooLargeError",
    499: "ClientClosedRequestError",
    501: "HTTPNotImplementedError",
    503: "ServiceUnavailableError",
    504: "GatewayTimeoutError",
    529: "OverloadedError",
}


class Conduct(msgspec.Struct, frozen=True, kw_only=True):
    """What a client does with an answer.

    Attributes:
        requests: how many it sends until it gives up, if every answer is like this one.
        wait: seconds that the answer makes it sleep before each further one; None for its own
            half a second, doubled.
        error: the exception that its user gets in the end; None if it takes it for an answer.
    """

    requests: int
    wait: float | None
    error: str | None


def breaker(status: int | None) -> str:
    """What a breaker that reads statuses only does: `failure`, `success` or `ignored`.

    Args:
        status: of the answer; None if there was none.
    """
    if status is None or status >= 500:
        return "failure"
    return "success" if status < 400 else "ignored"


def openai(status: int | None, headers: Headers, now: float) -> Conduct:
    """What OpenAI's client does.

    Args:
        status: of the answer; None if there was none.
        headers: of the answer.
        now: seconds since the epoch.
    """
    if status is None:
        return Conduct(requests=REQUESTS, wait=None, error="APIConnectionError")
    told = _retry_after(headers, now)
    if told == math.inf and not _is_word(headers):
        # A number beyond all numbers is a long wait, and the word is none.
        told = _LONGEST + 1
    again = _again(status, headers) and not (told is not None and _LONGEST < told < math.inf)
    wait = told if told is not None and 0 < told < math.inf else None
    return _conduct(status, _OPENAI, wait if again else None, again=again)


def anthropic(status: int | None, headers: Headers, now: float) -> Conduct:
    """What Anthropic's client does, which sleeps as long as it is told; as for `openai`."""
    if status is None:
        return Conduct(requests=REQUESTS, wait=None, error="APIConnectionError")
    told = _retry_after(headers, now)
    again = _again(status, headers)
    wait = min(told, _LONGEST_SLEEP) if told is not None and told > 0 else None
    return _conduct(status, _ANTHROPIC, wait if again else None, again=again)


def _conduct(status: int, names: Mapping[int, str], wait: float | None, *, again: bool) -> Conduct:
    if status < 400:
        return Conduct(requests=1, wait=None, error=None)
    error = names.get(status) or ("InternalServerError" if status >= 500 else "APIStatusError")
    return Conduct(requests=REQUESTS if again else 1, wait=wait, error=error)


def _is_word(headers: Headers) -> bool:
    names = ("retry-after-ms", "retry-after")
    return any((headers.get(name) or "").strip().lower() in _INFINITE for name in names)


def _again(status: int, headers: Headers) -> bool:
    told = headers.get("x-should-retry")
    if told in ("true", "false"):
        return told == "true"
    return status in _REPEATED or status >= 500


def _retry_after(headers: Headers, now: float) -> float | None:
    """Seconds, as both clients read them: finite or not, and negative where they are."""
    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name)
        try:
            told = float(text or "")
        except ValueError:
            continue
        return told / divisor
    try:
        date = parsedate_tz(headers.get("retry-after") or "")
        return None if date is None else mktime_tz(date) - now
    except (TypeError, ValueError, OverflowError, OSError):
        return None
