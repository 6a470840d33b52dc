"""Plain HTTP clients, and what wraps the calls of others.

A client of anything says nothing about the provider: the host, or a report, names it, else the
shape of the answer does. `tenacity` and the like say nothing at all but what they wrap.
"""

from __future__ import annotations

import re

from sidecar.envelope.raised import Raised
from sidecar.envelope.sdks.family import FINAL, INVALID, Facts, Family, because, changed, worded

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

CLIENTS = (REQUESTS, HTTPX, AIOHTTP, URLLIB, STANDARD, TENACITY)
