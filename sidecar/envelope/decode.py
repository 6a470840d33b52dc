"""Decodes bodies that may be anything: JSON under any media type, cut JSON, pages, bytes.

Nothing in here raises, whatever the bytes are.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_HTML_START = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)?<(?:!doctype\s+html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)


ERROR_IN_EARNEST = re.compile(rb'"error"(?!\s*:\s*(?:null|\{\s*\}|"\s*"|\[\s*\]|false))')
"""An `error` in a body that is neither null nor empty; a cheap sieve before decoding."""

# The beginning of an error says enough; more would cost the event loop.
_CUT_LIMIT = 65536
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)|[{}\[\],]', re.DOTALL)
_EVENT_START = re.compile(rb"\s*(?:data|event|id):")
_DATA_LINE = re.compile(rb"^data: ?(\{.*)$", re.MULTILINE)
_OPENERS = {"{": "}", "[": "]"}


def decode(body: bytes) -> Any:
    """The JSON value of a body, whatever its media type claims; None if it is none.

    Tolerates a byte order mark, blank lines in front and broken UTF-8. Never raises.
    """
    body = body.removeprefix(b"\xef\xbb\xbf").strip()
    if not body or body[:1] not in b'{["':
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        pass
    try:
        return msgspec.json.decode(body.decode("utf-8", "replace").encode())
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def decode_cut(body: bytes) -> Any:
    """The JSON value of the beginning of a body: open strings and brackets are closed.

    Returns None where even that gives no JSON.
    """
    text = body[:_CUT_LIMIT].decode("utf-8", "ignore").lstrip("\ufeff \t\r\n")
    if text[:1] not in _OPENERS:
        return None
    closers: list[str] = []
    safe, tail = (0, ""), ""
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark in _OPENERS:
            closers.append(_OPENERS[mark])
        elif mark in {"}", "]"}:
            del closers[-1:]
            safe = (token.end(), "".join(reversed(closers)))
        elif mark == ",":
            safe = (token.start(), "".join(reversed(closers)))
        elif not token.group(1):
            # A lone backslash at the end escapes nothing that is there.
            text, tail = text[: token.end()], '"'
    for attempt in (text + tail + "".join(reversed(closers)), text[: safe[0]] + safe[1]):
        value = decode(attempt.encode())
        if value is not None:
            return value
    return None


def looks_like_html(body: bytes) -> bool:
    """Whether a body begins like a web page."""
    return _HTML_START.match(body[:1024].decode("latin-1")) is not None


def first_data(body: bytes) -> bytes:
    """The first data line of a body that is an event stream under an error status, else nothing."""
    found = _EVENT_START.match(body[:256]) and _DATA_LINE.search(body[:65536])
    return found.group(1) if found else b""
