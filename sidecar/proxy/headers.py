"""Which header lines cross the daemon, and how they are written.

Order, repeats, the case of names and the bytes of values survive, because lines are copied and
never looked up and rebuilt. What stops here is what HTTP calls hop-by-hop, what the caller's
`Connection` names, and the daemon's own headers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Enum, auto
from functools import lru_cache

RawHeaders = Sequence[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""RFC 9110 section 7.6.1, and the headers that older clients treat alike."""

NEVER_NAMED = frozenset({b"content-length", b"host", b"content-encoding", b"content-type"})
"""`Connection: content-length` would change the framing of the next hop; it is not obeyed."""

OWN_REQUEST_PREFIX = b"x-sidecar-"
OWN_RESPONSE = frozenset({b"x-error-envelope", b"x-correlation-id"})
HINTS = frozenset({b"retry-after", b"retry-after-ms", b"x-should-retry"})
"""What the daemon answers for itself on an error; the originals are kept in `raw`."""

UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
"""What asks for a WebSocket and what grants it, on each hop anew."""


def is_own(name: str) -> bool:
    """Is this (lower-case) name one that only a daemon like this writes into answers?"""
    return name.startswith("x-sidecar-") or name in ("x-error-envelope", "x-correlation-id")


def by_name(raw: RawHeaders) -> dict[bytes, bytes]:
    """The first value of each header, by lower-case name."""
    return {name.lower(): value for name, value in reversed(raw)}


def connection_names(raw: RawHeaders) -> Collection[bytes]:
    """The header names that this message's `Connection` keeps to this hop."""
    named: Collection[bytes] = ()
    for key, value in raw:
        if len(key) == 10 and key.lower() == b"connection":
            tokens = _tokens(value) if len(value) <= 64 else _tokens.__wrapped__(value)
            named = tokens.union(named) if named else tokens
    return named


@lru_cache(maxsize=256)
def _tokens(value: bytes) -> frozenset[bytes]:
    return frozenset(token.strip().lower() for token in value.split(b",")) - NEVER_NAMED


class Fate(Enum):
    """What becomes of a header line by its name, wherever it goes."""

    PASS = auto()
    HOST = auto()
    CODING = auto()
    EXPECT = auto()
    HOP = auto()
    OWN = auto()
    PREFIXED = auto()


_PASS, _HOP, _OWN, _PREFIXED = Fate.PASS, Fate.HOP, Fate.OWN, Fate.PREFIXED
_SPECIAL = {
    **dict.fromkeys(HOP_BY_HOP, Fate.HOP),
    **dict.fromkeys(OWN_RESPONSE, Fate.OWN),
    b"host": Fate.HOST,
    b"transfer-encoding": Fate.CODING,
    b"expect": Fate.EXPECT,
}
_KNOWN: dict[bytes, Fate] = {}
"""Names as they were spelt, to their fates: most calls bring the same ones again."""


def _fate(name: bytes) -> Fate:
    lower = name.lower()
    fate = _SPECIAL.get(lower, Fate.PASS)
    if fate is Fate.PASS and lower.startswith(OWN_REQUEST_PREFIX):
        fate = Fate.PREFIXED
    # Bounded: whoever makes names up fills no memory.
    if len(_KNOWN) < 1024 and len(name) <= 64:
        _KNOWN[name] = fate
    return fate


def request_lines(
    raw: RawHeaders,
    host: bytes,
    replaced: Sequence[tuple[bytes, bytes]] = (),
    named: Collection[bytes] = (),
) -> list[bytes]:
    """The header lines of a request for the upstream in pieces, without the end of the head.

    Args:
        raw: the caller's headers.
        host: the upstream's authority; takes the place of the caller's `Host`.
        replaced: headers set by the configuration, in place of the caller's of the same names.
        named: what the caller's `Connection` keeps to its hop.
    """
    stopped = {*named, *(name.lower() for name, _ in replaced)} if named or replaced else ()
    lines: list[bytes] = []
    placed = False
    for name, value in raw:
        fate = _KNOWN.get(name) or _fate(name)
        if fate is _PASS or fate is _OWN:
            if not stopped or name.lower() not in stopped:
                lines += (name, b": ", value, b"\r\n")
        elif fate is Fate.HOST:
            lines += (name, b": ", host, b"\r\n")
            placed = True
        elif fate is Fate.CODING:
            # The only coding that passes the checks is `chunked`: the framing is kept.
            lines += (name, b": chunked\r\n")
    if not placed:
        lines.insert(0, b"Host: %b\r\n" % host)
    lines.extend(b"%b: %b\r\n" % pair for pair in replaced)
    return lines


def response_lines(raw: RawHeaders, dropped: Collection[bytes], *, keep_own: bool) -> list[bytes]:
    """The header lines of the upstream's answer that reach the caller, in pieces.

    Args:
        raw: the upstream's headers.
        dropped: further names (lower case) that the daemon writes itself.
        keep_own: True for another sidecar in front, whose own headers are passed on.
    """
    named = connection_names(raw)
    stopped = {*named, *dropped} if named or dropped else ()
    lines: list[bytes] = []
    for name, value in raw:
        fate = _KNOWN.get(name) or _fate(name)
        if fate is _HOP or fate is Fate.CODING:
            continue
        if (fate is _OWN or fate is _PREFIXED) and not keep_own:
            continue
        if not stopped or name.lower() not in stopped:
            lines += (name, b": ", value, b"\r\n")
    return lines


def lines(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Header lines of the daemon's own; values are ASCII by construction."""
    return "".join(f"{name}: {value}\r\n" for name, value in pairs).encode("latin-1")
