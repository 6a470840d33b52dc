"""Addresses: where the daemon listens, where an upstream is, which proxy leads there.

They are read by exact rules and never by what a string contains, because an address decides who
receives a caller's keys.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_LOOKS_NUMERIC = re.compile(r"(?:^|\.)(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?$")
_PREFIX = re.compile(r"(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)*")
_DOTS = re.compile(r"/(?:\.|%2[Ee]){1,2}(?=/|$)")
_MOST_OF_A_HOST_NAME = 253
_MOST_OF_A_SOCKET_PATH = 103


class AddressError(ValueError):
    """An address that cannot be used: what is wrong, and what would be right."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Listen(msgspec.Struct, frozen=True, kw_only=True):
    """One address to listen on.

    Attributes:
        kind: `tcp` or `unix`.
        host: a name or an IP literal without brackets; `localhost` stands for both loopbacks.
        port: 0 lets the kernel choose.
        path: of the Unix socket.
        tls: paths of certificate chain and key; None for plain HTTP.
        descriptor: of a socket that listens there already, handed over by a service manager.
    """

    kind: Literal["tcp", "unix"] = "tcp"
    host: str = ""
    port: int = 0
    path: str = ""
    tls: tuple[str, str] | None = None
    descriptor: int | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts to bind: for `localhost` both loopback addresses, whichever exists."""
        return ("127.0.0.1", "::1") if self.host == "localhost" else (self.host,)

    @property
    def loopback(self) -> bool:
        """True if only this machine can connect; a Unix socket counts as such."""
        if self.kind == "unix" or self.host == "localhost":
            return True
        return is_loopback(self.host)

    def __str__(self) -> str:
        if self.kind == "unix":
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def written(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """An address as the system itself writes it, whichever Python runs.

    An IPv4 address inside IPv6 is `::ffff:127.0.0.1`; before Python 3.13 it was `::ffff:7f00:1`,
    and two names of one address never met.
    """
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped is None:
        return str(address)
    zone = f"%{address.scope_id}" if address.scope_id else ""
    return f"::ffff:{address.ipv4_mapped}{zone}"


def is_loopback(host: str) -> bool:
    """True for `localhost`, names under it, and loopback IP literals (without brackets)."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def parse_listen(text: str, tls: tuple[str, str] | None = None) -> Listen:
    """Read `host:port`, `[::1]:port` or `unix:/path`.

    Raises:
        AddressError: if it is none of these.
    """
    if text.startswith("unix:"):
        return Listen(kind="unix", path=_socket_path(text[5:]), tls=tls)
    if "://" in text:
        raise AddressError("an address to listen on has no scheme", 'write "localhost:7600"')
    host, colon, port = text.rpartition(":")
    if not colon:
        hint = f'write "localhost:{text}"' if text.isdecimal() else f'write "{text}:7600"'
        raise AddressError("an address to listen on is host:port or unix:/path", hint)
    if not host:
        raise AddressError(
            "the host is missing",
            f'write "localhost:{port}", or "0.0.0.0:{port}" for every IPv4 address',
        )
    return Listen(host=_plain_host(host), port=_port(port, lowest=0), tls=tls)


def parse_upstream(text: str) -> str:
    """Read `http(s)://host[:port][/prefix]` or `unix:/path`; give it back in its plain form.

    The scheme and the host become lower case and slashes at the end go; nothing else changes.

    Raises:
        AddressError: if it is neither, or carries user-info, a query or a fragment. The message
            never quotes the address, which may hold a secret.
    """
    if text.startswith("unix:"):
        return f"unix:{_socket_path(text[5:])}"
    scheme, host, port, path = _split_url(text, ("http", "https"))
    prefix = path.rstrip("/")
    if not _PREFIX.fullmatch(prefix) or _DOTS.search(prefix):
        raise AddressError("the path must be plain: no empty, dot or unescaped segments")
    return f"{scheme}://{_authority(host, port)}{prefix}"


def parse_proxy(text: str) -> str:
    """Read the URL of an HTTP proxy, with user-info allowed.

    Raises:
        AddressError: if it is none; the message never quotes it.
    """
    split = _checked(text)
    user_info, at, rest = split.netloc.rpartition("@")
    scheme, host, port, path = _split_url(f"{split.scheme}://{rest}{split.path}", ("http", "https"))
    if path.rstrip("/") or split.query or split.fragment:
        raise AddressError("a proxy's URL ends after its port", 'write "http://proxy.example:3128"')
    return f"{scheme}://{user_info}{at}{_authority(host, port)}"


def parse_host_name(text: str) -> str:
    """Read a host name or an IP literal without a port; in lower case, without the last dot.

    Raises:
        AddressError: if it is none.
    """
    return _plain_host(text).rstrip(".")


def upstream_port(upstream: str) -> tuple[str, int] | None:
    """Host (without brackets) and port of an upstream that was read before; None for a socket."""
    if upstream.startswith("unix:"):
        return None
    split = urlsplit(upstream)
    return split.hostname or "", split.port or (443 if split.scheme == "https" else 80)


def without_user_info(url: str) -> str:
    """A URL that may be shown: what stands before the host is gone."""
    head, separator, rest = url.partition("://")
    return f"{head}{separator}{rest.rpartition('@')[2]}" if separator else url


def _checked(text: str) -> SplitResult:
    if any(ord(character) <= 0x20 or ord(character) == 0x7F for character in text):
        raise AddressError("a URL has no spaces or control characters")
    if "\\" in text:
        raise AddressError("a URL has no backslashes")
    try:
        split = urlsplit(text)
        _ = split.port, split.hostname
    except ValueError:
        raise AddressError("this is no URL") from None
    return split


def _split_url(text: str, schemes: tuple[str, ...]) -> tuple[str, str, int | None, str]:
    split = _checked(text)
    if "://" not in text or split.scheme not in schemes:
        choices = " or ".join(f"{scheme}://" for scheme in schemes)
        raise AddressError(f"a URL that starts with {choices} is needed")
    if "@" in split.netloc:
        raise AddressError(
            "user-info does not belong in an address",
            "callers send their own keys; set_headers can add one from a file",
        )
    if "?" in text or "#" in text:
        raise AddressError("an upstream has no query and no fragment")
    host, port = _netloc(split.netloc)
    return split.scheme, host, port, split.path


def _netloc(netloc: str) -> tuple[str, int | None]:
    host, colon, port = netloc.rpartition(":")
    if not colon or netloc.endswith("]"):
        host, port = netloc, ""
    elif not port:
        raise AddressError("the port is missing")
    return _plain_host(host), _port(port, lowest=1) if port else None


def _plain_host(text: str) -> str:
    """The host in lower case and without brackets."""
    if text.startswith("[") and text.endswith("]"):
        try:
            address = ipaddress.IPv6Address(text[1:-1])
            if address.scope_id is None:
                return written(address)
            raise AddressError("an IPv6 address with a zone cannot be used")
        except ipaddress.AddressValueError:
            raise AddressError("there is no IPv6 address between the brackets") from None
    if ":" in text:
        raise AddressError("an IPv6 address stands in brackets", f'write "[{text}]"')
    if not text.isascii():
        raise AddressError("a host name is ASCII", "write the name in its xn-- form")
    if not text or len(text) > _MOST_OF_A_HOST_NAME or not _HOST_NAME.fullmatch(text):
        raise AddressError("this is no host name")
    if _LOOKS_NUMERIC.search(text):
        # Resolvers read 127.1 and 0x7f.1 as addresses, so such names would hide where they lead.
        try:
            return str(ipaddress.IPv4Address(text))
        except ValueError:
            raise AddressError("this is no IPv4 address") from None
    return text.lower()


def _authority(host: str, port: int | None) -> str:
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def _port(text: str, *, lowest: int) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not lowest <= int(text) <= 65535:
        raise AddressError(f"a port is a number from {lowest} to 65535")
    return int(text)


def _socket_path(path: str) -> str:
    if not path.startswith("/") or "\x00" in path:
        raise AddressError("a Unix socket has an absolute path", 'write "unix:/run/name.sock"')
    if len(path.encode(errors="replace")) > _MOST_OF_A_SOCKET_PATH:
        raise AddressError(f"a socket's path has at most {_MOST_OF_A_SOCKET_PATH} bytes")
    return path
