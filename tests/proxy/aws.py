"""A receiver of AWS signatures, written from AWS's specification and nothing else.

It recomputes each signature from the bytes that arrived (request line, headers, body), and refuses
what AWS refuses: headers that must be signed and are not, a body that is another, an old date,
a key that it does not know, a token that is missing or has ended.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from .upstreams import Received, Script, Visit, answer

UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, "
    r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})"
)
SKEW = 300.0
"""Seconds by which a request's date may be wrong."""


class Wrong(Exception):
    """Why a request is not accepted: AWS's name for it, and its sentence."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message


def encoded(raw: bytes) -> bytes:
    """Every byte but the unreserved characters as %XY."""
    return b"".join(bytes([c]) if c in UNRESERVED else b"%%%02X" % c for c in raw)


def decoded(raw: bytes) -> bytes:
    return re.sub(rb"%([0-9A-Fa-f]{2})", lambda m: bytes.fromhex(m[1].decode()), raw)


def path_as_signed(path: bytes) -> bytes:
    segments: list[bytes] = []
    for segment in path.split(b"/"):
        if segment == b"..":
            segments = segments[:-1]
        elif segment not in (b"", b"."):
            segments.append(encoded(segment))
    tail = b"/" if segments and path.endswith(b"/") else b""
    return b"/" + b"/".join(segments) + tail


def query_as_signed(query: bytes) -> bytes:
    pairs = (part.partition(b"=")[::2] for part in query.split(b"&") if part)
    written = sorted((encoded(decoded(name)), encoded(decoded(value))) for name, value in pairs)
    return b"&".join(name + b"=" + value for name, value in written)


def forget_this_machine(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Leaves botocore no credentials: the shared files are `config` and `credentials` in a folder."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


_PROCESS = """
import json, sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

count = Path({folder!r}) / "count"
number = int(count.read_text()) if count.exists() else 0
count.write_text(str(number + 1))
left = {left}[min(number, len({left}) - 1)]
end = datetime.now(timezone.utc) + timedelta(seconds=left)
print(json.dumps({{
    "Version": 1, "AccessKeyId": f"ASIA{{number}}", "SecretAccessKey": "secret",
    "SessionToken": f"token-{{number}}", "Expiration": end.isoformat(),
}}))
"""


def sessions(folder: Path, left: list[float]) -> None:
    """A `credential_process` whose sessions last so many seconds, one after the other."""
    script = folder / "process.py"
    script.write_text(_PROCESS.format(folder=str(folder), left=left))
    (folder / "config").write_text(
        f"[default]\ncredential_process = {sys.executable} {script}\nregion = eu-west-1\n"
    )


def sends(raw: bytes) -> Script:
    """A script that answers these bytes to a request whose body has been read."""

    async def script(visit: Visit) -> None:
        await visit.send(raw)

    return script


@dataclass
class Account:
    """A key that the receiver knows."""

    secret: str
    token: str | None = None
    ended: bool = False


@dataclass
class Aws:
    """A service of AWS: a script for an `Upstream` that answers whoever signed well.

    Attributes:
        accounts: by access key id.
        good: what it does for a request that is signed well; the body has been read.
        signed_by: the access key ids of those, in order.
        refused: the names of the refusals, in order.
    """

    accounts: dict[str, Account]
    good: Script
    service: str = "bedrock"
    region: str = "us-east-1"
    signed_by: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    async def __call__(self, visit: Visit) -> None:
        await visit.read_body()
        try:
            self.signed_by.append(self.check(visit.request))
        except Wrong as wrong:
            self.refused.append(wrong.kind)
            body = json.dumps({"message": wrong.message}).encode()
            await visit.send(answer(403, body, (b"x-amzn-ErrorType", wrong.kind.encode())))
            return
        await self.good(visit)

    def check(self, request: Received) -> str:
        """The access key id that signed a request."""
        given = [value for name, value in request.headers if name.lower() == b"authorization"]
        if len(given) != 1 or b"X-Amz-Signature" in request.target:
            raise Wrong("IncompleteSignatureException", f"{len(given)} signatures")
        match = AUTHORIZATION.fullmatch(given[0].decode())
        if match is None:
            raise Wrong("IncompleteSignatureException", "Authorization cannot be read")
        name, date, region, service, listed, signature = match.groups()
        if (region, service) != (self.region, self.service):
            raise Wrong("InvalidSignatureException", f"Credential is scoped to {region}/{service}")
        account = self.accounts.get(name)
        if account is None:
            kind = "UnrecognizedClientException"
            raise Wrong(kind, "The security token included in the request is invalid.")
        headers = self._signed(request, listed.split(";"))
        self._check_date(headers, date)
        self._check_token(headers, account)
        digest = hashlib.sha256(request.body).hexdigest()
        if headers[b"x-amz-content-sha256"] != digest.encode():
            raise Wrong("InvalidSignatureException", "The body is another one")
        path, _, query = request.target.partition(b"?")
        lines = [
            request.line.split(b" ")[0],
            path_as_signed(path),
            query_as_signed(query),
            *(key + b":" + value for key, value in headers.items()),
            b"",
            listed.encode(),
            digest.encode(),
        ]
        canonical = b"\n".join(lines)
        text = "\n".join(
            (
                "AWS4-HMAC-SHA256",
                headers[b"x-amz-date"].decode(),
                f"{date}/{region}/{service}/aws4_request",
                hashlib.sha256(canonical).hexdigest(),
            )
        )
        key = ("AWS4" + account.secret).encode()
        for part in (date, region, service, "aws4_request", text):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        if key.hex() != signature:
            raise Wrong(
                "InvalidSignatureException",
                "The request signature we calculated does not match the signature you provided. "
                "The Canonical String for this request should have been\n'" + canonical.decode(),
            )
        return name

    def _signed(self, request: Received, listed: list[str]) -> dict[bytes, bytes]:
        """The values of the signed headers; whatever has to be signed is."""
        must = {b"host", b"x-amz-date", b"x-amz-content-sha256"}
        found: dict[bytes, list[bytes]] = {}
        for name, value in request.headers:
            lower = name.lower()
            if lower == b"content-type" or lower.startswith(b"x-amz-"):
                must.add(lower)
            found.setdefault(lower, []).append(re.sub(rb" +", b" ", value.strip()))
        names = [name.encode() for name in listed]
        if names != sorted(names) or not must <= set(names) <= set(found):
            raise Wrong("InvalidSignatureException", f"{listed} are signed")
        return {name: b",".join(found[name]) for name in names}

    def _check_date(self, headers: dict[bytes, bytes], date: str) -> None:
        written = headers[b"x-amz-date"].decode()
        sent = datetime.strptime(written, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if not written.startswith(date) or abs(sent.timestamp() - time.time()) > SKEW:
            raise Wrong("InvalidSignatureException", f"Signature expired: {written}")

    def _check_token(self, headers: dict[bytes, bytes], account: Account) -> None:
        given = headers.get(b"x-amz-security-token")
        if (given.decode() if given is not None else None) != account.token:
            kind = "UnrecognizedClientException"
            raise Wrong(kind, "The security token included in the request is invalid.")
        if account.ended:
            raise Wrong(
                "ExpiredTokenException", "The security token included in the request is expired"
            )
