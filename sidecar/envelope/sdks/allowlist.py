"""String codes that say the same whoever sends them: the last thing before the bare status.

An SDK that nobody has written down may still use the names of gRPC's statuses, the names of the
operating system's numbers, or one of a few plain words. Short on purpose: a code that is not here
means nothing until its SDK is known. What the dialects share is asked before.
"""

from __future__ import annotations

from collections.abc import Mapping

from sidecar.envelope.meaning import Meaning
from sidecar.envelope.sdks.family import (
    CONFLICT,
    FINAL,
    INVALID,
    OUTAGE,
    REFUSED,
    THROTTLE,
    named,
)
from sidecar.envelope.transport import MEANINGS

_OF_ERRNO = {
    "connection_refused": "ECONNREFUSED",
    "connection_reset": "ECONNRESET ECONNABORTED EPIPE ESHUTDOWN",
    "connect_timeout": "ETIMEDOUT ESOCKETTIMEDOUT",
    "connection_error": "EHOSTUNREACH EHOSTDOWN",
    "dns_failure": "ENOTFOUND EAI_AGAIN EAI_NONAME",
    "local_network_down": "ENETUNREACH ENETDOWN",
    "local_resource": "EMFILE ENFILE ENOSPC ENOMEM ENOBUFS EADDRNOTAVAIL",
}

ALLOWED: Mapping[str, Meaning] = {
    **named(
        (
            "a throttle by its name",
            THROTTLE,
            """
            THROTTLE THROTTLED THROTTLING RATE_LIMIT RATE_LIMITED RATE_LIMIT_EXCEEDED
            RATELIMITED TOO_MANY_REQUESTS SLOW_DOWN SLOWDOWN RESOURCE_EXHAUSTED
            """,
        ),
        (
            "an outage by its name",
            OUTAGE,
            """
            UNAVAILABLE SERVICE_UNAVAILABLE TEMPORARILY_UNAVAILABLE SERVER_ERROR SERVER_BUSY
            INTERNAL INTERNAL_ERROR INTERNAL_SERVER_ERROR BAD_GATEWAY GATEWAY_TIMEOUT TIMEOUT
            TIMED_OUT REQUEST_TIMEOUT DEADLINE_EXCEEDED OVERLOADED
            """,
        ),
        ("two calls met, by its name", CONFLICT, "ABORTED"),
        (
            "a refused credential by its name",
            REFUSED,
            "UNAUTHENTICATED UNAUTHORIZED PERMISSION_DENIED ACCESS_DENIED FORBIDDEN",
        ),
        (
            "a request at fault, by its name",
            INVALID,
            "INVALID_ARGUMENT INVALID_REQUEST BAD_REQUEST VALIDATION_ERROR",
        ),
        ("nothing there, by its name", FINAL, "NOT_FOUND ALREADY_EXISTS UNIMPLEMENTED"),
    ),
    **{name.lower(): MEANINGS[word] for word, names in _OF_ERRNO.items() for name in names.split()},
}
