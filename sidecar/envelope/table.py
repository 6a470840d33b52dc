"""What a bare status means: the HTTP table, the last word when nothing better was said.

Sources: RFC 9110 and 6585 for the registered statuses; 499 is nginx's, 520 to 527 and 530 are
Cloudflare's, 529 is Anthropic's and others', 597 to 599 are old proxies' words for timeouts.
"""

from __future__ import annotations

from http import HTTPStatus

from sidecar.envelope.model import ErrorClass, Verdict

_PHRASES = {
    498: "Invalid Token or No Capacity",
    499: "Client Closed Request",
    520: "Web Server Returned an Unknown Error",
    521: "Web Server Is Down",
    522: "Connection Timed Out",
    523: "Origin Is Unreachable",
    524: "A Timeout Occurred",
    525: "TLS Handshake Failed",
    526: "Invalid TLS Certificate",
    529: "Overloaded",
    530: "Origin Error",
    598: "Network Read Timeout",
    599: "Network Connect Timeout",
}

# A loop, a bad certificate at the origin, a captive portal: broken, and no repetition mends it.
_NOT_WORTH_REPEATING = frozenset({508, 511, 526})
_PERMANENT_5XX = frozenset({501, 505, 507})
# The server is well: the caller left, or may simply come again.
_PASSING_4XX = frozenset({425, 499})


def class_of(status: int) -> ErrorClass:
    """The class of an error that has nothing but its status."""
    if status in {400, 422}:
        return ErrorClass.VALIDATION
    if status in {401, 403}:
        return ErrorClass.AUTHENTICATION
    if status == 429:
        return ErrorClass.RATE_LIMIT
    if status == 408 or status in _PASSING_4XX:
        return ErrorClass.TRANSIENT
    if status >= 500 and status not in _PERMANENT_5XX:
        return ErrorClass.TRANSIENT
    return ErrorClass.PERMANENT


def retryable(class_: ErrorClass, status: int) -> bool:
    """Whether an error of this class may be repeated, as far as class and status say."""
    if class_ is ErrorClass.RATE_LIMIT:
        return True
    return class_ is ErrorClass.TRANSIENT and status not in _NOT_WORTH_REPEATING


def verdict(class_: ErrorClass, status: int) -> Verdict:
    """What the breaker hears of an error of this class that wore this status.

    A passing error under a client's status is no sign of a sick server, but for a timeout (408).
    """
    if class_ is ErrorClass.RATE_LIMIT:
        return Verdict.THROTTLE
    if class_ is not ErrorClass.TRANSIENT:
        return Verdict.ALIVE
    return Verdict.ALIVE if 400 <= status < 500 and status != 408 else Verdict.FAILURE


def phrase(status: int) -> str:
    """The status in words, for an answer that says nothing else."""
    try:
        words = HTTPStatus(status).phrase
    except ValueError:
        words = _PHRASES.get(status, "")
    return f"HTTP {status} {words}".rstrip()
