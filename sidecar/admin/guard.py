"""Who may speak to a daemon on loopback: the checks of Host and Origin, for both planes.

Loopback is no boundary: a web page can have its own name resolved to 127.0.0.1 and then read
whatever listens there. What it cannot do is change the name that its browser sends as `Host`, or
hide where it came from. So a Host passes only if no resolver had a say in it: a loopback name, an
address, or a name that the operator configured.

Pure functions. A listener on a Unix socket and the probe listener do not call them.
"""

from __future__ import annotations

import functools
import hmac
import ipaddress
import re
from collections.abc import Collection
from typing import NamedTuple

from sidecar.config.addresses import is_loopback, written

__all__ = [
    "Authority",
    "bearer_matches",
    "host_allowed",
    "is_loopback",
    "origin_allowed",
    "parse_authority",
]

_LONGEST = 320  # 253 octets of a name, brackets, a zone and a port, with some room
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")
_PORT = re.compile(r"[0-9]{0,5}")
_ORIGIN = re.compile(r"(https?)://([^/?#\\]+)", re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Authority(NamedTuple):
    """A parsed `host[:port]`.

    Attributes:
        host: in lower case, without brackets and without the trailing dot of a rooted name;
            an address in its canonical form.
        port: None if it was left out or empty.
        literal: True if the host is an IP address.
    """

    host: str
    port: int | None
    literal: bool


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> Authority | None:
    text = text.strip(" \t").lower()
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        port_text = rest[1:]
        if not bracket or (rest and not rest.startswith(":")) or ":" not in host:
            return None
        # A zone is written %25 in a URL, and some clients undo that for the header.
        host = host.replace("%25", "%", 1)
    else:
        host, _, port_text = text.partition(":")
    if not _PORT.fullmatch(port_text) or int(port_text or 0) > 65535:
        return None
    port = int(port_text) if port_text else None
    rooted = host.removesuffix(".")
    try:
        address = ipaddress.ip_address(rooted)
    except ValueError:
        if text.startswith("[") or len(rooted) > 253 or not _NAME.fullmatch(rooted):
            return None
        return Authority(rooted, port, literal=False)
    return Authority(written(address), port, literal=True)


def parse_authority(text: str | None) -> Authority | None:
    """A Host header or the authority of a URL, parsed; None if it is none.

    User information, white space within, paths, a port above 65535, an address in brackets that
    is none, and addresses in the old shorthand (`127.1`, `0x7f000001`) as anything but a name are
    not understood.
    """
    if not text or len(text) > _LONGEST:
        return None
    return _parse(text)


def host_allowed(host_header: str | None, allowed: Collection[str] = ()) -> bool:
    """Whether a call that carries this `Host` may be answered.

    Args:
        host_header: the value as it came; None where the request had none.
        allowed: the configured names (`allowed_hosts`), compared without case, port or final dot.

    Returns:
        True for loopback names, any IP literal (no resolver can point one elsewhere, so a page on
        it is that machine's own) and configured names; the port is never compared.
    """
    authority = parse_authority(host_header)
    if authority is None:
        return False
    host = authority.host
    # RFC 6761, 6.3: everything under .localhost is loopback, and no public zone can hold it.
    if authority.literal or host == "localhost" or host.endswith(".localhost"):
        return True
    for name in allowed:
        configured = parse_authority(name)
        if configured is not None and configured.host == host:
            return True
    return False


def origin_allowed(origin: str | None, sec_fetch_site: str | None, host_header: str | None) -> bool:
    """Whether a call with these headers comes from no foreign web page.

    Programs send neither header. A page of our own sends an `Origin` that equals the `Host` it
    speaks to; every other origin is foreign, the opaque `null` and another port of the same
    machine included.

    Args:
        origin: the value of `Origin`, None if absent.
        sec_fetch_site: the value of `Sec-Fetch-Site`, None if absent.
        host_header: the value of `Host` of the same call.
    """
    if sec_fetch_site is not None and sec_fetch_site.strip().lower() == "cross-site":
        return False
    if origin is None:
        return True
    match = _ORIGIN.fullmatch(origin.strip(" \t"))
    if match is None:
        return False
    scheme, authority_text = match.groups()
    theirs, ours = parse_authority(authority_text), parse_authority(host_header)
    if theirs is None or ours is None:
        return False
    default = _DEFAULT_PORTS[scheme.lower()]
    return theirs.host == ours.host and (theirs.port or default) == (ours.port or default)


def bearer_matches(authorization: str | None, token: str | None) -> bool:
    """Whether an `Authorization` header carries this bearer token; never if there is no token.

    The comparison takes the same time however much of the token is right.
    """
    if not token or authorization is None:
        return False
    scheme, _, given = authorization.strip().partition(" ")
    if scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(
        given.strip().encode("utf-8", "surrogateescape"), token.encode("utf-8", "surrogateescape")
    )
