"""Plain HTTP clients, and what wraps the calls of others.

A client of anything says nothing about the provider: the host, or a report, names it, else the
shape of the answer does. `tenacity` and the like say nothing at all but what they wrap.
"""

from __future__ import annotations

import re

from sidecar.envelope.fields import as_word
from sidecar.envelope.raised import Raised
from sidecar.envelope.sdks.family import (
    CONFLICT,
    FINAL,
    INVALID,
    OUTAGE,
    REFUSED,
    Facts,
    Family,
    because,
    changed,
    named,
    worded,
)

# `… (Caused by ResponseError('too many 503 error responses'))`
_TOO_MANY = re.compile(r"too many ([45]\d\d) error responses")


def _requests(raised: Raised, facts: Facts) -> Facts:
    """An adapter that gave up repeating keeps the status in its text."""
    found = _TOO_MANY.search(raised.message[:8192]) if facts.status is None else None
    return facts if found is None else changed(facts, status=int(found.group(1)))


REQUESTS = Family(
    name="requests",
    packages=("requests", "urllib3"),
    sdks=("requests", "urllib3"),
    plain=True,
    read=_requests,
)
HTTPX = Family(
    name="httpx",
    packages=("httpx", "httpx2", "httpcore", "httpcore2", "h11"),
    sdks=("httpx", "httpx2"),
    plain=True,
)
AIOHTTP = Family(name="aiohttp", packages=("aiohttp",), sdks=("aiohttp",), plain=True)
URLLIB = Family(
    name="urllib",
    packages=("urllib", "http"),
    sdks=("urllib",),
    plain=True,
    # It wraps what fails until the request is out: a bare timeout came while it was reading.
    words={"TimeoutError": "read_timeout"},
    says=(("unknown url type", worded(INVALID, "invalid_url")),),
    by_status=dict.fromkeys(
        (301, 302, 303, 307, 308),
        because(
            worded(FINAL, "too_many_redirects"),
            "it follows redirects itself, and raises one where they lead in a circle",
        ),
    ),
)
STANDARD = Family(
    name="the standard library",
    packages=("asyncio", "concurrent", "socket", "ssl", "json"),
    sdks=("stdlib", "asyncio"),
    plain=True,
)
TENACITY = Family(
    name="tenacity", packages=("tenacity", "backoff", "stamina"), sdks=("tenacity",), plain=True
)

# `received 1008 (policy violation) …`: how a closed WebSocket prints what the other side said.
_RECEIVED = re.compile(r"\breceived ([1-4]\d{3}) \(")
_OTHER_CLOSE = "close"


def _websockets(raised: Raised, facts: Facts) -> Facts:
    """The code with which the other side closed; without one the connection was lost."""
    found = _RECEIVED.search(raised.message[:1024])
    code = facts.code or as_word(raised.attrs.get("close_code")) or (found[1] if found else None)
    if code == "1006":
        # What stands for the code where there was none.
        return changed(facts, code=None)
    if code is None or len(code) != 4 or not code.isdecimal():
        return facts
    return changed(facts, code=code, codes=(code, _OTHER_CLOSE))


WEBSOCKETS = Family(
    name="websockets",
    packages=("websockets",),
    sdks=("websockets",),
    plain=True,
    # As proxy/websocket.py holds them: but for these three, no code is a sign of a sick server.
    codes=named(
        ("the server says that it is at fault", OUTAGE, "1011 1012 1013"),
        ("the other side was done, or went away in good order", CONFLICT, "1000 1001 1005"),
        ("something behind the server, or its patience", CONFLICT, "1014 3008"),
        ("what was sent is at fault", INVALID, "1002 1003 1007 1009 1010"),
        ("the caller is not who he says, or may not", REFUSED, "3000 3003"),
        (
            "closed for a reason of the server's own: a policy, mostly",
            FINAL,
            f"1008 {_OTHER_CLOSE}",
        ),
    ),
    read=_websockets,
)

CLIENTS = (WEBSOCKETS, REQUESTS, HTTPX, AIOHTTP, URLLIB, STANDARD, TENACITY)
