"""What SDKs write into their texts: for a report that has nothing else.

Strictly: the fixed forms in which a few SDKs print status, code and body. Loosely: a status beside
a word that says that it is one, and only after everything else has said nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import structs

from sidecar.envelope.decode import decode_wrapped
from sidecar.envelope.raised import Raised

_READ = 8192

# botocore: `An error occurred (Throttling) when calling the X operation: …`
_BOTOCORE = re.compile(r"An error occurred \(([A-Za-z0-9_.:#-]{1,80})\)")
# OpenAI's and its kin: `Error code: 429 - {…}`
_GENERATED = re.compile(r"^Error code: ([1-5]\d\d)(?: - |$)")
# google-genai: `429 RESOURCE_EXHAUSTED. {…}`; google-api-core and PyGithub: `503 …`
_LEADING = re.compile(r"^([45]\d\d)(?: ([A-Z][A-Z_]{2,30})\.)?(?:[ ,]|$)")
# httpx and what is built on it: `Server error '500 Internal Server Error' for url …`
_HTTPX = re.compile(r"^(?:Client|Server) error '([45]\d\d) ")
# grpc: `<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE …`
_GRPC = re.compile(r"status = StatusCode\.([A-Z_]{2,20})")
_GRPC_DETAILS = re.compile(r'details = "([^"\n]{0,500})')
# elasticsearch: `ApiError(429, 'es_rejected_execution_exception', …)`
_ELASTIC = re.compile(r"^[A-Za-z]{3,40}\(([45]\d\d), '([a-z_]{3,80})'")

_LOOSE = re.compile(
    r"(?i)(?:\bstatus(?:[ _]?code)?\b|\bHTTP(?:/\d(?:\.\d)?)?\b|\berror code\b|\bresponse\b)"
    r"[^0-9A-Za-z]{0,4}(?:was |is |of )?([45]\d\d)\b"
    r"|(?<![\d.])([45]\d\d) (?:client|server) error\b"
)


def strictly(raised: Raised) -> Raised:
    """The exception with what its text repeats in a fixed form, if it has no field for it."""
    if raised.status is not None or raised.code is not None or raised.body is not None:
        return raised
    text = raised.message[:_READ]
    if not text:
        return raised
    if (found := _BOTOCORE.search(text)) is not None:
        return structs.replace(raised, code=found.group(1))
    if (found := _GENERATED.match(text)) is not None:
        return _with(raised, int(found.group(1)), None, text)
    if (found := _GRPC.search(text)) is not None:
        told = _GRPC_DETAILS.search(text)
        message = told.group(1) if told else raised.message
        return structs.replace(raised, code=found.group(1), message=message)
    if (found := _ELASTIC.match(text)) is not None:
        return _with(raised, int(found.group(1)), found.group(2), "")
    if (found := _HTTPX.match(text)) is not None:
        return _with(raised, int(found.group(1)), None, "")
    if (found := _LEADING.match(text)) is not None:
        return _with(raised, int(found.group(1)), found.group(2), text)
    return raised


def _with(raised: Raised, status: int, code: str | None, text: str) -> Raised:
    body = decode_wrapped(text) if "{" in text else None
    return structs.replace(
        raised, status=status, code=code, body=body if isinstance(body, Mapping) else None
    )


def loosely(raised: Raised) -> Raised | None:
    """The exception with the status that its text mentions as one, or None."""
    if raised.status is not None or not raised.message:
        return None
    found = _LOOSE.search(raised.message[:_READ])
    if found is None:
        return None
    return structs.replace(raised, status=int(found.group(1) or found.group(2)))
