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
# Stores send blanks while they work, before or behind the declaration.
_BEGINNINGS = (b"<", b" ", b"\r", b"\n", b"\t", b"\xef")
_ROOT = re.compile(rb"(?:\xef\xbb\xbf)?\s*+(?:<\?xml[^>]{0,256}>\s*+)?<Error[\s>]")


def is_stores_error(seen: Seen) -> bool:
    """Whether a 2xx is the error of an object store: a document that is an `<Error>` as a whole.

    What takes minutes, a copy or the end of an upload in parts, has its 200 before its outcome
    (docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject). What was stored is nobody's error.
    """
    return (
        seen.body.startswith(_BEGINNINGS)
        and _ROOT.match(seen.body, 0, _MOST_READ) is not None
        and not (seen.method == "GET" and "etag" in seen.headers)
    )


def error_in_xml(seen: Seen) -> Found | None:
    """The error, with `code` and `message` as its members; None where the body is none of these."""
    start = seen.body[:_MOST_READ].lstrip(b"\xef\xbb\xbf \t\r\n")[:512]
    if not start.startswith(b"<") or not (b"<Error" in start or _ROOT.match(seen.body)):
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
