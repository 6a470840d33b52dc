"""The model that a request asks for, read from the body while it passes.

A breaker guards one model, and the permit must be asked for before the request is forwarded. The
name stands in the body, often behind megabytes of messages and images: some clients write the
keys in alphabetical order. So an upload is scanned as it arrives, at most up to a limit, for the
member `model` of the outermost object alone, without building what stands around it; a body that
was cut, or that is no JSON at all, is no error but a request without a model.

A small body usually comes in one piece, and then msgspec reads it some fifty times faster. If the
key occurs twice the first one counts, however the body was cut: the permit cannot wait for more.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Any
from urllib.parse import unquote, unquote_plus

import msgspec

# The longest names in use are paths and ARNs of some 150 characters.
_MAX_NAME = 200
# A character takes at most twelve bytes in JSON: two escapes of a surrogate pair.
_MAX_RAW = _MAX_NAME * 12
_KEY = b"model"
# `"model"` with each of its letters escaped.
_MAX_RAW_KEY = len(_KEY) * 6
_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_ENDS = (b"}", b"}\n", b"} ", b"}\r\n")
_QUOTE, _BACKSLASH = b'"\\'

_SPACES = re.compile(rb"[ \t\r\n]*+")
# The rest of a string up to its closing quote or a backslash cut off from what it escapes.
_STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_SCALAR_REST = re.compile(rb'[^,"{}\[\]]*+')
# Whole strings, and brackets up to three deep, leave as one match what else takes a step each.
_FLAT = rb'[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_ONE_DEEP = rb"[{\[](?:" + _FLAT + rb")*+[}\]]"
_TWO_DEEP = rb"[{\[](?:" + _FLAT + rb"|" + _ONE_DEEP + rb")*+[}\]]"
_THREE_DEEP = rb"[{\[](?:" + _FLAT + rb"|" + _TWO_DEEP + rb")*+[}\]]"
_NESTED_REST = re.compile(rb"(?:" + _FLAT + rb"|" + _THREE_DEEP + rb")*+", re.DOTALL)


class _Expect(Enum):
    START = auto()
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    COMMA = auto()


class _Request(msgspec.Struct, gc=False):
    model: Any = None


_DECODER = msgspec.json.Decoder(_Request)


class ModelScan:
    """Looks for the top-level `model` of a JSON object that arrives in pieces.

    Attributes:
        name: the model, once found; None if there is none or it is no name.
        done: True as soon as more bytes cannot change `name`.
    """

    __slots__ = (
        "_collected",
        "_depth",
        "_escaped",
        "_expect",
        "_in_string",
        "_is_model",
        "_lead",
        "_left",
        "_overlong",
        "done",
        "name",
    )

    def __init__(self, limit: int = 1 << 20) -> None:
        """Prepare for one body.

        Args:
            limit: bytes to look at; behind them the body counts as one without a model.
        """
        self.name: str | None = None
        self.done = limit <= 0
        self._left = limit
        self._lead = b""
        self._expect = _Expect.START
        self._depth = 1
        self._in_string = False
        self._escaped = False
        self._is_model = False
        self._collected = bytearray()
        self._overlong = False

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the body. Never raises, whatever they are."""
        if self.done:
            return
        if len(chunk) > self._left:
            chunk = chunk[: self._left]
        self._left -= len(chunk)
        at = 0
        if self._expect is _Expect.START:
            request = None if self._lead else _decoded(chunk)
            if request:
                self.name, self.done = _checked(request.model), True
                return
            chunk = self._open(chunk)
        while at < len(chunk) and not self.done:
            if self._in_string:
                at = self._string(chunk, at)
            elif self._depth > 1:
                at = self._nested(chunk, at)
            else:
                at = self._member(chunk, at)
        if not self._left:
            self.done = True

    def _open(self, chunk: bytes) -> bytes:
        """What follows the opening brace, or nothing."""
        lead = (self._lead + chunk).lstrip(_SPACE)
        if len(lead) < len(_BOM) and _BOM.startswith(lead):
            self._lead = lead
            return b""
        marked = lead.startswith(_BOM)
        lead = lead.removeprefix(_BOM).lstrip(_SPACE)
        # A mark that was seen is kept: a second one is no beginning of JSON.
        self._lead = _BOM if marked and not lead else b""
        if not lead:
            return b""
        self._expect = _Expect.KEY
        self.done = not lead.startswith(b"{")
        return lead[1:]

    def _member(self, data: bytes, at: int) -> int:
        """One step between the braces of the outermost object."""
        if self._expect is _Expect.COMMA:
            match = _SCALAR_REST.match(data, at)
        else:
            match = _SPACES.match(data, at)
        at = match.end() if match else at
        token = data[at : at + 1]
        if not token:
            return at
        if self._expect is _Expect.KEY and token == b'"':
            self._begin_string()
        elif self._expect is _Expect.COLON and token == b":":
            self._expect = _Expect.VALUE
        elif self._expect is _Expect.COMMA and token == b",":
            self._expect = _Expect.KEY
        elif self._expect is _Expect.VALUE:
            return self._value(token, at)
        else:
            self.done = True  # the end of the object, or no JSON
        return at + 1

    def _value(self, token: bytes, at: int) -> int:
        self._expect = _Expect.COMMA
        if token == b'"':
            self._begin_string()
        elif self._is_model:
            self.done = True  # null, a number, a list: no name
        elif token in (b"{", b"["):
            self._depth = 2
        else:
            return at
        return at + 1

    def _begin_string(self) -> None:
        self._in_string = True
        self._escaped = False
        self._overlong = False
        self._collected.clear()

    def _string(self, data: bytes, at: int) -> int:
        """Skip to the closing quote; collect what may be the key or the name."""
        start = at
        if self._escaped:
            self._escaped = False
            at += 1
        end = data.find(b'"', at)
        if end > at and data[end - 1] == _BACKSLASH:
            match = _STRING_REST.match(data, at)
            end = match.end() if match else -1
            if data[end : end + 1] != b'"':
                end = -1
        found = end >= 0
        if not found:
            end = len(data)
            backslashes = end - at - len(data[at:].rstrip(b"\\")) if data.endswith(b"\\") else 0
            self._escaped = backslashes % 2 == 1
        self._collect(data, start, end)
        if found:
            self._in_string = False
            self._end_string()
        return end + 1

    def _collect(self, data: bytes, start: int, end: int) -> None:
        if self._depth > 1 or self._overlong:
            return
        is_key = self._expect is _Expect.KEY
        if not is_key and not self._is_model:
            return
        size = len(self._collected) + end - start
        if size > (_MAX_RAW_KEY if is_key else _MAX_RAW):
            self._overlong = True
            self.done = not is_key
        else:
            self._collected += data[start:end]

    def _end_string(self) -> None:
        if self._depth > 1:
            return
        if self._expect is _Expect.KEY:
            self._expect = _Expect.COLON
            raw = bytes(self._collected)
            plain = raw == _KEY or (b"\\" in raw and _unescape(raw) == _KEY.decode())
            self._is_model = plain and not self._overlong
        elif self._is_model and not self.done:
            self.name = _checked(_unescape(bytes(self._collected)))
            self.done = True

    def _nested(self, data: bytes, at: int) -> int:
        """Skip nested values: to their end, or into a string that the chunk cuts."""
        depth, size = self._depth, len(data)
        while depth > 1 and at < size:
            match = _NESTED_REST.match(data, at)
            at = match.end() + 1 if match else size
            token = data[at - 1 : at]
            if token in (b"}", b"]"):
                depth -= 1
            elif token == b'"':
                self._begin_string()
                break
            elif token:
                depth += 1
        self._depth = depth
        return at


def model_in_json(body: bytes) -> str | None:
    """The model of a whole JSON body; also of one that is cut or broken behind the name."""
    scan = ModelScan(len(body))
    scan.feed(body)
    return scan.name


def model_in_path(segment: str) -> str | None:
    """The model that a segment of a path names, its percent-escapes undone; None if it names none.

    Args:
        segment: as it came.
    """
    # An escape takes three characters, and one of the longest names may need it for each byte.
    return _checked(unquote(segment)) if len(segment) <= _MAX_RAW else None


def _decoded(body: bytes) -> _Request | None:
    """The fast way for a whole body; None if it is none, or not sure to be read as scanned."""
    if not body.endswith(_ENDS) or body.count(b'"model"') > 1:
        return None
    try:
        return _DECODER.decode(body)
    except (ValueError, RecursionError):
        return None


def _unescape(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(b'"' + raw + b'"')
    except ValueError:
        return None


def _checked(name: object) -> str | None:
    if isinstance(name, str) and 0 < len(name) <= _MAX_NAME and name.isprintable():
        return name
    return None


_IN_QUERY = re.compile(r"[?&]model=([^&#]{1,1024})")


def model_in_query(query: str) -> str | None:
    """The model that a query names (`?model=gpt-realtime`), or None.

    Args:
        query: as it came, with its question mark.
    """
    found = _IN_QUERY.search(query)
    return None if found is None else _checked(unquote_plus(found.group(1)))


_PARAMETER = re.compile(
    r';\s*+([^\s;="]++)\s*+=\s*+(?:"([^"\\]*+(?:\\.[^"\\]*+)*+)"|([^\s;"]*+))', re.DOTALL
)
# RFC 2046 allows 70; nothing needs more than this.
_MAX_BOUNDARY = 200
_MAX_PARTS = 1000


def model_in_multipart(prefix: bytes, content_type: str) -> str | None:
    """The value of the form field `model`, if it stands whole in the beginning of a form.

    Args:
        prefix: the first bytes of the body.
        content_type: the value of Content-Type, which names the boundary.
    """
    boundary = _parameters(content_type).get("boundary", "")
    is_form = content_type.lstrip().lower().startswith("multipart/")
    if not is_form or not 0 < len(boundary) <= _MAX_BOUNDARY:
        return None
    # Strict senders end lines by CRLF; some by LF alone.
    delimiter = b"\n--" + boundary.encode("utf-8", "replace")
    body = b"\n" + prefix
    at = body.find(delimiter)
    for _ in range(_MAX_PARTS):
        start = at + len(delimiter)
        end = body.find(delimiter, start)
        if at < 0 or end < 0 or body.startswith(b"--", start):
            return None
        head, content = _split_part(body, start, end)
        if _is_model_field(head):
            text = content.removesuffix(b"\r").decode("utf-8", "replace").strip()
            return None if "\ufffd" in text else _checked(text)
        at = end
    return None


def _split_part(body: bytes, start: int, end: int) -> tuple[str, bytes]:
    """Head and content of a part; files of megabytes are not copied."""
    found = [
        (at, at + len(mark))
        for mark in (b"\r\n\r\n", b"\n\n")
        if (at := body.find(mark, start, min(end, start + (1 << 14)))) >= 0
    ]
    if not found:
        return "", b""
    head_end, content_start = min(found)
    head = body[start:head_end].decode("latin-1")
    return head, body[content_start : min(end, content_start + _MAX_RAW)]


def _is_model_field(head: str) -> bool:
    for line in head.splitlines():
        header, _, value = line.partition(":")
        if header.strip().lower() == "content-disposition":
            parameters = _parameters(value)
            return parameters.get("name") == _KEY.decode() and "filename" not in parameters
    return False


def _parameters(value: str) -> dict[str, str]:
    """The parameters of a header value; of one given twice the first."""
    parameters: dict[str, str] = {}
    for name, quoted, token in _PARAMETER.findall(value):
        parameters.setdefault(name.lower(), quoted or token)
    return parameters
