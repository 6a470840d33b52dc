"""Decodes bodies that may be anything: JSON under any media type, cut JSON, pages, bytes.

Nothing in here raises, whatever the bytes are.
"""

from __future__ import annotations

import json
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
# An escaped pair of surrogates, or one that has lost the other.
_SURROGATES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    r"|\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_HALF_A_PAIR = re.compile(r"[\ud800-\udfff]")
_WHOLE_PAIR = 12
# How Python prints what it decoded: gateways put that into messages.
_PRINTED = re.compile(
    r"""'([^'\\]*+(?:\\.[^'\\]*+)*+)'?|"[^"\\]*+(?:\\.[^"\\]*+)*+"?|\b(None|True|False)\b""",
    re.DOTALL,
)
_PRINTED_WORDS = {"None": "null", "True": "true", "False": "false"}
_PRINTED_LIMIT = 8192
_ESCAPED = re.compile(r"\\(?:[nrt]|([\"']))")


def decode(body: bytes) -> Any:
    """The JSON value of a body, whatever its media type claims; None if it is none.

    Tolerates a byte order mark, blank lines in front, broken UTF-8, half a surrogate pair and the
    numbers that only Python and JavaScript write (`NaN`). Never raises.
    """
    body = body.removeprefix(b"\xef\xbb\xbf").strip()
    if not body or body[:1] not in b'{["':
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        pass
    text = _SURROGATES.sub(_mend_pair, body.decode("utf-8", "replace"))
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _mend_pair(match: re.Match[str]) -> str:
    return match.group() if len(match.group()) == _WHOLE_PAIR else "\\ufffd"


def well_formed(text: str) -> str:
    """The text, halves of surrogate pairs replaced: no UTF-8 can hold them.

    JSON that escapes them brings them, and names of files that are no UTF-8.
    """
    return text if text.isascii() else _HALF_A_PAIR.sub("\ufffd", text)


def decode_wrapped(text: str) -> Any:
    """The object that a gateway wrapped into a text, in JSON or as Python prints it, or None."""
    start, end = text.find("{"), text.rfind("}")
    if not 0 <= start < end:
        return None
    inner = text[start : end + 1]
    value = decode(inner.encode("utf-8", "replace"))
    if value is None and len(inner) <= _PRINTED_LIMIT:
        value = decode(_PRINTED.sub(_as_json, inner).encode("utf-8", "replace"))
    if value is None and "\\" in inner:
        # Quoted once more on the way, as in the `b'…'` of Python.
        value = decode(
            _ESCAPED.sub(lambda found: found.group(1) or " ", inner).encode("utf-8", "replace")
        )
    return value if isinstance(value, dict) else None


def _as_json(match: re.Match[str]) -> str:
    quoted, word = match.groups()
    if word is not None:
        return _PRINTED_WORDS[word]
    return match.group() if quoted is None else json.dumps(quoted.replace("\\'", "'"))


def decode_cut(body: bytes) -> Any:
    """The JSON value of the beginning of a body: open strings and brackets are closed.

    Of what was cut in its middle only prose is kept: half a code or half a number is another one.
    Returns None where even that gives no JSON.
    """
    text = body[:_CUT_LIMIT].decode("utf-8", "ignore").lstrip("\ufeff \t\r\n")
    if text[:1] not in _OPENERS:
        return None
    closers: list[str] = []
    safe, tail, end = (0, ""), "", 0
    for token in _TOKEN.finditer(text):
        end = token.end()
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
    attempts = [text[: safe[0]] + safe[1]]
    if (" " in mark) if tail else not text[end:].strip():
        attempts.insert(0, text + tail + "".join(reversed(closers)))
    for attempt in attempts:
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
