"""Which header lines cross the daemon, and how they are written.

Order, repeats, the case of names and the bytes of values survive, because lines are copied and
never looked up and rebuilt. What stops here is what HTTP calls hop-by-hop, what the caller's
`Connection` names, and the daemon's own headers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

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

_ID_FORBIDDEN = re.compile(r"[^A-Za-z0-9._:/-]+")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
CORRELATION_LIMIT = 128


def first(raw: RawHeaders, name: bytes) -> bytes | None:
    """The first value of a header, by its lower-case name."""
    for key, value in raw:
        if len(key) == len(name) and key.lower() == name:
            return value
    return None


def connection_names(raw: RawHeaders) -> Collection[bytes]:
    """The header names that this message's `Connection` keeps to this hop."""
    named: set[bytes] = set()
    for key, value in raw:
        if len(key) == 10 and key.lower() == b"connection":
            named.update(token.strip().lower() for token in value.split(b","))
    return named - NEVER_NAMED if named else ()


def request_lines(
    raw: RawHeaders, host: bytes, replaced: Sequence[tuple[bytes, bytes]] = ()
) -> list[bytes]:
    """The header lines of a request for the upstream, without the end of the head.

    Args:
        raw: the caller's headers.
        host: the upstream's authority; takes the place of the caller's `Host`.
        replaced: headers set by the configuration, in place of the caller's of the same names.
    """
    named = connection_names(raw)
    overridden = {name.lower() for name, _ in replaced}
    lines: list[bytes] = []
    placed = False
    for name, value in raw:
        lower = name.lower()
        if lower == b"host":
            lines.append(b"%b: %b\r\n" % (name, host))
            placed = True
        elif lower == b"transfer-encoding":
            # The only coding that passes the checks is `chunked`: the framing is kept.
            lines.append(b"%b: chunked\r\n" % name)
        elif (
            lower in HOP_BY_HOP
            or lower in named
            or lower in overridden
            or lower.startswith(OWN_REQUEST_PREFIX)
            or lower == b"expect"
        ):
            continue
        else:
            lines.append(b"%b: %b\r\n" % (name, value))
    if not placed:
        lines.insert(0, b"Host: %b\r\n" % host)
    lines.extend(b"%b: %b\r\n" % pair for pair in replaced)
    return lines


def response_lines(raw: RawHeaders, dropped: Collection[bytes], *, keep_own: bool) -> list[bytes]:
    """The header lines of the upstream's answer that reach the caller.

    Args:
        raw: the upstream's headers.
        dropped: further names (lower case) that the daemon writes itself.
        keep_own: True for another sidecar in front, whose own headers are passed on.
    """
    named = connection_names(raw)
    lines: list[bytes] = []
    for name, value in raw:
        lower = name.lower()
        if lower in HOP_BY_HOP or lower in named or lower in dropped:
            continue
        if not keep_own and (lower in OWN_RESPONSE or lower.startswith(OWN_REQUEST_PREFIX)):
            continue
        lines.append(b"%b: %b\r\n" % (name, value))
    return lines


def lines(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Header lines of the daemon's own; values are ASCII by construction."""
    return "".join(f"{name}: {value}\r\n" for name, value in pairs).encode("latin-1")


def sanitised_id(value: str) -> str:
    """A correlation id of at most 128 characters of `[A-Za-z0-9._:/-]`."""
    return _ID_FORBIDDEN.sub("_", value.strip())[:CORRELATION_LIMIT]


def correlation_id(raw: RawHeaders) -> str | None:
    """The caller's own id: `x-correlation-id`, `x-request-id`, or the trace id; None if absent."""
    found: dict[bytes, bytes] = {}
    for key, value in raw:
        if len(key) in (11, 12, 16):
            found.setdefault(key.lower(), value)
    for name in (b"x-correlation-id", b"x-request-id"):
        given = sanitised_id(found[name].decode("latin-1")) if name in found else ""
        if given:
            return given
    trace = _TRACEPARENT.fullmatch(found.get(b"traceparent", b"").decode("latin-1").strip())
    return trace[1] if trace else None
