"""Reads the one error that speaks XML: that of object stores and of older services of clouds.

S3 and what copies it, Azure's and Google's stores, and AWS' query services put a `<Code>` and a
`<Message>` into an `<Error>`. One pattern and no parser: the body may be hostile.
"""

from __future__ import annotations

import re
from html import unescape

from sidecar.envelope.locate import Found
from sidecar.envelope.model import Seen

_MEMBER = re.compile(r"<(Code|Message|RequestId)>([^<]{0,4096})</", re.IGNORECASE)
_MOST_READ = 65536


def error_in_xml(seen: Seen) -> Found | None:
    """The error, with `code` and `message` as its members; None where the body is none of these."""
    start = seen.body[:512].lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start.startswith(b"<") or b"<Error" not in start:
        return None
    text = seen.body[:_MOST_READ].decode("utf-8", "replace")
    told: dict[str, str] = {}
    for member, value in _MEMBER.findall(text):
        told.setdefault(member.lower(), unescape(value).strip())
    if not told.get("code"):
        return None
    error = {
        "code": told["code"],
        "message": told.get("message", ""),
        "requestId": told.get("requestid"),
    }
    return Found(error, error)
