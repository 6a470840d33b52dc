"""Signature Version 4 of AWS: what of a request is signed, how it is written, the signature.

A signature covers method, path, query, Host and body, so it has to be made where the request that
really leaves is known. Nothing is changed for it but the headers that carry it: everything else is
written down as the receiver will see it. Pure: the time is an argument, the credentials are given.

S3 is left out: it signs paths as they are and may leave bodies out.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, unquote_to_bytes

RawHeader = tuple[bytes, bytes]

ALGORITHM: Final = "AWS4-HMAC-SHA256"

REPLACED: Final = frozenset(
    {
        b"authorization",
        b"x-amz-content-sha256",
        b"x-amz-date",
        b"x-amz-region-set",
        b"x-amz-security-token",
    }
)
"""What a signature puts into a head, in lower case: a caller's own never leaves beside ours."""

_PRESIGNED: Final = frozenset(
    {
        "x-amz-algorithm",
        "x-amz-content-sha256",
        "x-amz-credential",
        "x-amz-date",
        "x-amz-expires",
        "x-amz-region-set",
        "x-amz-security-token",
        "x-amz-signature",
        "x-amz-signedheaders",
    }
)
"""The parameters of a presigned query, in lower case."""


class Key(NamedTuple):
    """One set of credentials.

    Attributes:
        name: the access key's id.
        secret: its secret part.
        token: the session token; None for a key without one.
    """

    name: str
    secret: str
    token: str | None

    def __repr__(self) -> str:
        return "Key([redacted])"


class Scope(NamedTuple):
    """What a signature is good for."""

    region: str
    service: str


class Signature(NamedTuple):
    """The header lines that sign a request.

    Attributes:
        lines: to be sent, in place of those of the same names.
        secrets: the values in them that no error may quote, with their names.
    """

    lines: tuple[RawHeader, ...]
    secrets: tuple[RawHeader, ...]


def sign(
    key: Key,
    scope: Scope,
    *,
    method: str,
    path: str,
    query: str,
    headers: Iterable[RawHeader],
    payload: str,
    now: float,
) -> Signature:
    """Signs one request.

    Args:
        key: whose signature it is.
        scope: what it is good for.
        method: as it will be sent.
        path: likewise, up to the query.
        query: likewise, without its question mark.
        headers: likewise, `Host` included; those in `REPLACED` are passed over.
        payload: the SHA-256 of the body, in hexadecimal digits.
        now: seconds since the epoch.
    """
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ").encode()
    lines = [(b"X-Amz-Date", stamp), (b"X-Amz-Content-Sha256", payload.encode())]
    secrets = []
    if key.token is not None:
        lines.append((b"X-Amz-Security-Token", key.token.encode()))
        secrets.append(lines[-1])
    signed = signed_headers([*headers, *lines])
    names = b";".join(signed)
    request = canonical_request(method, path, query, signed, payload)
    date = stamp[:8].decode()
    within = f"{date}/{scope.region}/{scope.service}/aws4_request"
    text = b"%b\n%b\n%b\n%b" % (
        ALGORITHM.encode(),
        stamp,
        within.encode(),
        hashlib.sha256(request).hexdigest().encode(),
    )
    signature = hmac.digest(signing_key(key.secret, date, scope), text, "sha256").hex()
    value = (
        f"{ALGORITHM} Credential={key.name}/{within}, "
        f"SignedHeaders={names.decode()}, Signature={signature}"
    )
    secrets.append((b"Signature", signature.encode()))
    lines.append((b"Authorization", value.encode()))
    return Signature(tuple(lines), tuple(secrets))


def signing_key(secret: str, date: str, scope: Scope) -> bytes:
    """The key of one day, region and service; `date` is written `YYYYMMDD`."""
    key = f"AWS4{secret}".encode()
    for part in (date, scope.region, scope.service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def canonical_request(
    method: str, path: str, query: str, signed: dict[bytes, bytes], payload: str
) -> bytes:
    """The request as both sides write it down before they hash it."""
    return b"\n".join(
        (
            method.encode(),
            canonical_path(path).encode(),
            canonical_query(query).encode(),
            *(b"%b:%b" % pair for pair in signed.items()),
            b"",
            b";".join(signed),
            payload.encode(),
        )
    )


def signed_headers(headers: Iterable[RawHeader]) -> dict[bytes, bytes]:
    """The headers that a signature has to cover, by lower-case name in order.

    These are Host, Content-Type and AWS's own. No others: whatever stands between here and there
    may touch them, and the signature would break for nothing.
    """
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        lower = name.lower()
        if lower in (b"host", b"content-type") or lower.startswith(b"x-amz-"):
            found.setdefault(lower, []).append(b" ".join(value.split()))
    return {name: b",".join(found[name]) for name in sorted(found)}


def canonical_path(path: str) -> str:
    """A path without empty and dot segments, and escaped once more than it is sent.

    So `%2F` becomes `%252F`, and a plain colon `%3A`: the receiver escapes what it received.
    """
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    end = "/" if kept and segments[-1] in ("", ".", "..") else ""
    return quote("/" + "/".join(kept) + end, safe="/", errors="surrogateescape")


def canonical_query(query: str) -> str:
    """The parameters in order, each escaped in the one way that both sides agree on."""
    pairs = []
    for part in query.split("&"):
        if part:
            name, _, value = part.partition("=")
            pairs.append((_escaped(name), _escaped(value)))
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


def _escaped(text: str) -> str:
    return quote(unquote_to_bytes(text.encode("utf-8", "surrogateescape")), safe="")


def without_presigning(query: str) -> str:
    """A query, its question mark included, without the parameters that presign it."""
    parts = query[1:].split("&")
    kept = [
        part
        for part in parts
        if unquote(part.partition("=")[0], errors="replace").lower() not in _PRESIGNED
    ]
    if len(kept) == len(parts):
        return query
    return "?" + "&".join(kept) if kept else ""
