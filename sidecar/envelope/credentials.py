"""The credentials of one request, and their removal from whatever an upstream says about it.

A key without a known prefix looks like any other word. But the request that carried it is at hand,
so what an upstream echoes of it is found literally. All of this is done only where an error is
composed: an answer that is good pays nothing.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from urllib.parse import quote, unquote, unquote_plus

from sidecar.envelope.key_shapes import HIDDEN
from sidecar.envelope.redact import (
    SHORTEST,
    SecretPaths,
    is_secret_header,
    is_secret_parameter,
    looks_secret,
    path_segments,
    redact_headers,
    redact_text,
    secrets_of_path,
)

Secrets = Callable[[], Sequence[str]]
"""Tells the credentials of a request when they are needed; `tuple` where there is none."""

_MOST = 32
"""Credentials that are looked for: each costs a search through the whole body."""

_MOST_BEGINNINGS = 64
"""Places that are tried: of a text made for it, every character could be one."""

_NAMED_KEY = re.compile(r"(?:^|[-_])(?:key|token)$")
_NO_SECRETS = frozenset(
    {"idempotency-key", "x-idempotency-key", "sec-websocket-key", "surrogate-key"}
)
_PARAMETER = re.compile(r"(?:^|[&;])([^=&;]{1,64})=([^&;]{8,})")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31} +(?=\S)")
_LONG_PIECE = re.compile(r"[^\s,;:&=\"']{16,}")
_FORM = re.compile(rb"(?:^|&)([^=&\s\"]{1,64})=([^&\s\"]{8,4096})")
_MEMBER = re.compile(
    rb'"([A-Za-z0-9_.-]{1,64})"\s{0,8}:\s{0,8}"((?:[^"\\]|\\.){8,4096}+)"', re.DOTALL
)
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----([A-Za-z0-9+/=\s\\]*+)")
_MOST_OF_A_BODY = 16_384
"""Bytes of a request's body that are read: who sends a credential in it sends little beside."""
_MEMBERS_OF_ITS_MATTER = frozenset(
    {
        "key",
        "code",
        "session",
        "sessionid",
        "session_id",
        "ticket",
        "appid",
        "app_id",
        "sign",
        "pin",
    }
)
"""Names that are a secret's in a query, and mostly something else's in a document."""
_FOR_PAGES = "+&<>'`"
_UPPER_ESCAPES = str.maketrans({char: f"\\u{ord(char):04X}" for char in _FOR_PAGES})
_LOWER_ESCAPES = str.maketrans({char: f"\\u{ord(char):04x}" for char in _FOR_PAGES})


_RawHeaders = Iterable[tuple[bytes, bytes]]


def request_secrets(
    pairs: _RawHeaders,
    target: str,
    configured: _RawHeaders = (),
    secret_paths: SecretPaths = (),
    body: bytes = b"",
) -> tuple[str, ...]:
    """The credentials that one request carries, as an answer may echo them.

    Args:
        pairs: its header lines.
        target: its target, path and query, as it came.
        configured: header lines that the configuration puts in: secrets whatever their names.
        secret_paths: routes of the provider that carry a credential.
        body: the beginning of its body: a form or a document may name secrets.

    Returns:
        Values of at least eight characters, raw and with percent-escapes undone, longest first; at
        most 32, those of the configuration first and cookies last.
    """
    found: dict[str, None] = {}
    for secret in _all_secrets(pairs, target, configured, secret_paths, body):
        if len(secret) >= SHORTEST:
            found[secret] = None
            if len(found) == _MOST:
                break
    return tuple(sorted(found, key=len, reverse=True))


def _all_secrets(
    pairs: _RawHeaders,
    target: str,
    configured: _RawHeaders,
    secret_paths: SecretPaths,
    body: bytes,
) -> Iterator[str]:
    cookies: list[bytes] = []
    for _, value in configured:
        yield from _in_header(value)
    for name, value in pairs:
        lower = name.lower()
        if lower == b"cookie":
            cookies.append(value)
        elif lower == b"sec-websocket-protocol":
            yield from _in_protocols(value)
        elif carries_credential(lower.decode("latin-1")):
            yield from _in_header(value)
    for secret in secrets_of_path(target.partition("?")[0], secret_paths):
        yield from (secret, unquote(secret))
    yield from _in_target(target)
    yield from _in_body(body[:_MOST_OF_A_BODY])
    # Last, for there may be more of them than are looked for.
    for value in cookies:
        for pair in value.split(b";"):
            cookie = pair.partition(b"=")[2].strip().strip(b'"')
            for text in _read(cookie):
                yield from (text, unquote(text))


def _in_target(target: str) -> Iterator[str]:
    path, _, query = target.partition("?")
    for match in _PARAMETER.finditer(query):
        value = match[2]
        plain = unquote_plus(value)
        if is_secret_parameter(match[1]) or looks_secret(plain):
            yield from (value, unquote(value), plain)
    for segment, secret in path_segments(path):
        if secret:
            plain = unquote(segment)
            # `bot123:token`: a bot is also told by what follows the word, and the colon.
            yield from (segment, plain, plain.removeprefix("bot"), plain.rpartition(":")[2])


def _in_body(body: bytes) -> Iterator[str]:
    if b"-----BEGIN " in body:
        for match in _PRIVATE_KEY.finditer(body):
            lines = re.split(r"\s+|\\[nr]", match[1].decode("latin-1"))
            yield from (line for line in lines if len(line) >= 2 * SHORTEST)
    start = body[:1]
    if start in b"{[" and start:
        for match in _MEMBER.finditer(body):
            name = match[1].decode("latin-1")
            if name.lower() not in _MEMBERS_OF_ITS_MATTER and is_secret_parameter(name):
                with suppress(ValueError):
                    yield json.loads(b'"' + match[2] + b'"')
    elif b"=" in body:
        for match in _FORM.finditer(body):
            if is_secret_parameter(match[1].decode("latin-1")):
                value = match[2].decode("latin-1")
                yield from (value, unquote_plus(value))


def _in_protocols(raw: bytes) -> Iterator[str]:
    """Browsers can set no header of a WebSocket but this one, and so put their keys there."""
    for piece in raw.decode("latin-1").split(","):
        word = piece.strip()
        if any(char.isdigit() for char in word) and len(word) >= 2 * SHORTEST:
            yield word


def carries_credential(name: str) -> bool:
    """Whether a header of this name (in lower case) says who is asking."""
    return is_secret_header(name) or (
        _NAMED_KEY.search(name) is not None and name not in _NO_SECRETS
    )


def _read(raw: bytes) -> tuple[str, ...]:
    text = raw.decode("latin-1").strip()
    return (text,) if raw.isascii() else (text, raw.decode("utf-8", "replace").strip())


def _in_header(raw: bytes) -> Iterator[str]:
    for value in _read(raw):
        yield from _in_value(value)


def _in_value(value: str) -> Iterator[str]:
    scheme = _SCHEME.match(value)
    if scheme is None:
        yield value
        # `key=…`, `Bearer:…`: some put their own word in front.
        yield from _LONG_PIECE.findall(value)
        return
    rest = value[scheme.end() :]
    yield rest
    if scheme[0].rstrip().lower() == "basic":
        yield from _user_and_password(rest)
    else:
        # `Token token="…"`, `Digest response="…"`: the values by themselves.
        yield from _LONG_PIECE.findall(rest)


def _user_and_password(encoded: str) -> Iterator[str]:
    try:
        both = base64.b64decode(encoded, validate=True).decode("utf-8", "replace")
    except ValueError:
        return
    user, _, password = both.partition(":")
    # Some send their key as the name, with an empty password.
    yield from (both, user, password)


class Redactor:
    """Hides given secrets, however they are escaped, and everything else that looks like one.

    Args:
        secrets: literal values, longest first.
    """

    __slots__ = ("_clean", "_spellings")

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._spellings = _spellings(secrets) if secrets else ()
        self._clean = ""

    def literally(self, text: str) -> str:
        """Hides the given secrets only: quick enough for a text of any length."""
        for spelling in self._spellings:
            text = text.replace(spelling, HIDDEN)
        return text

    def text(self, text: str) -> str:
        """Hides the given secrets, then what `redact_text` knows."""
        if text in self._clean:
            return text
        return redact_text(self.literally(text))

    def whole(self, body: str) -> str:
        """`text` of a whole body; of a clean one every part is clean, and is not searched again."""
        shown = redact_text(self.literally(body))
        if shown == body:
            self._clean = body
        return shown

    def cut_text(self, text: str) -> str:
        """`text` of the beginning of a longer text: its end may be the beginning of a secret."""
        text = self.literally(text)
        for spelling in self._spellings:
            text = _without_beginning(text, spelling)
        return redact_text(text)

    def headers(self, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
        """`redact_headers`, without the given secrets."""
        return redact_headers(pairs, self.text)


def _without_beginning(text: str, secret: str) -> str:
    head = secret[:SHORTEST]
    at = text.find(head, max(0, len(text) - len(secret)))
    for _ in range(_MOST_BEGINNINGS):
        if at < 0:
            return text
        if secret.startswith(text[at:]):
            return text[:at] + HIDDEN
        at = text.find(head, at + 1)
    return text


PATTERNS_ONLY = Redactor()
"""Where the request is not known."""


def _spellings(secrets: Sequence[str]) -> tuple[str, ...]:
    """Each secret as it is, and as JSON, HTML and percent-encoding write it; longest first."""
    found: dict[str, None] = {}
    for secret in secrets:
        as_json = json.dumps(secret)[1:-1]
        found |= dict.fromkeys(
            (
                secret,
                as_json,
                as_json.replace("/", "\\/"),
                # Writers of JSON that may stand in a page escape more than they must.
                as_json.translate(_UPPER_ESCAPES),
                as_json.translate(_LOWER_ESCAPES),
                html.escape(secret),
                quote(secret, safe="", errors="replace"),
            )
        )
    return tuple(sorted(found, key=len, reverse=True))
