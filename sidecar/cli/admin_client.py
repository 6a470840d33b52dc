"""Talks to the admin plane of a daemon, and to nothing in between.

A plain connection on purpose: a proxy from the environment must never see a call to loopback, nor
the token that it may carry.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from sidecar.cli.errors import CommandError, Exit, printable
from sidecar.config.addresses import is_loopback

DEFAULT_PORT = 7601
_LONGEST_ANSWER = 64 * 1024 * 1024
# The Server header of every answer of an admin plane.
_OURS = "breaker-sidecar"
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - an address to reach, none to bind


@dataclass(frozen=True, slots=True)
class Address:
    """Where an admin plane is.

    Attributes:
        host: without brackets; empty for a Unix socket.
        port: 0 for a Unix socket.
        path: of the Unix socket, else empty.
        tls: speak TLS.
        certificate: the daemon's own certificate, trusted instead of the system's authorities.
    """

    host: str = ""
    port: int = 0
    path: str = ""
    tls: bool = False
    certificate: str | None = None

    @property
    def local(self) -> bool:
        """Does it stay on this machine?"""
        return bool(self.path) or is_loopback(self.host)

    @property
    def url(self) -> str:
        """As clients use it: a URL, or `unix:/path`."""
        return str(self) if self.path or self.tls else f"http://{self}"

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https://' if self.tls else ''}{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Reads `host:port`, `host`, `http(s)://host:port` or `unix:/path`.

    An address that means "every interface" is reached over loopback.

    Raises:
        CommandError: with the code for usage, if it is none of these.
    """
    text = text.strip()
    if text.startswith("unix:/"):
        return Address(path=text.removeprefix("unix:"))
    url = text if re.match(r"https?://", text, re.IGNORECASE) else f"http://{text}"
    try:
        split = urlsplit(url)
        host, port = split.hostname, split.port
    except ValueError:
        host = port = None
    if not host or split.username is not None or split.path.strip("/") or split.query:
        raise CommandError(f"{text!r} is no address: host:port or unix:/path", Exit.USAGE)
    return Address(
        host=_WILDCARDS.get(host, host), port=port or DEFAULT_PORT, tls=split.scheme == "https"
    )


class UnreachableError(CommandError):
    """No daemon answers at the address; the exit code is 1."""

    def __init__(self, address: Address, reason: object) -> None:
        super().__init__(f"no daemon answers at {address}: {reason}")


class NoAdminPlaneError(CommandError):
    """Something else answers at the address; the exit code is 1."""

    def __init__(self, address: Address, status: int, *, calls: bool) -> None:
        what = "is where callers connect, not" if calls else f"answered {status} and is not"
        super().__init__(
            f"{address} {what} the admin plane of a breaker-sidecar; --admin names its address,"
            " which is admin.listen of the configuration"
        )


class AdminClient:
    """Calls of one admin plane, a connection each."""

    def __init__(self, address: Address, *, token: str | None = None, timeout: float = 5.0) -> None:
        self.address = address
        self._token = token
        self._timeout = timeout

    def get(self, path: str) -> tuple[int, Any]:
        """Status and document of a GET; the document is text where it is no JSON.

        Raises:
            UnreachableError: if nothing answers in time, or what answers speaks no HTTP.
            NoAdminPlaneError: if something else answers with an error.
        """
        return self._call("GET", path)

    def control(self, key: str, verb: str, orders: Mapping[str, Any]) -> tuple[int, Any]:
        """Status and document of a control call for one breaker.

        Raises:
            UnreachableError, NoAdminPlaneError: as for `get`.
        """
        path = f"/breakers/{quote(key, safe='')}/{verb}"
        return self._call("POST", path, json.dumps(orders).encode())

    def _call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        headers = {"accept": "application/json", "x-sidecar-admin": "1", "connection": "close"}
        if body is not None:
            headers["content-type"] = "application/json"
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        connection = _connection(self.address, self._timeout)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read(_LONGEST_ANSWER)
        except TimeoutError:
            raise UnreachableError(self.address, f"nothing within {self._timeout:g} s") from None
        except http.client.HTTPException as error:
            raise UnreachableError(self.address, f"no HTTP ({type(error).__name__})") from None
        except OSError as error:
            raise UnreachableError(self.address, error.strerror or error) from None
        finally:
            connection.close()
        if response.status >= 400 and response.headers.get("server") != _OURS:
            calls = "x-sidecar-decision" in response.headers
            raise NoAdminPlaneError(self.address, response.status, calls=calls)
        try:
            return response.status, json.loads(content)
        except ValueError:
            return response.status, content.decode("utf-8", "replace")


def explain(status: int, document: Any) -> str:
    """What an answer that is an error says, as one line."""
    message: Any = document
    if isinstance(document, dict):
        nested = document.get("error")
        nested = nested.get("message") if isinstance(nested, dict) else nested
        envelope = document.get("envelope")
        enveloped = envelope.get("message") if isinstance(envelope, dict) else None
        message = document.get("message") or enveloped or nested or document.get("detail")
    text = " ".join(str(message or "").split())
    return printable(text[:500]) or f"status {status}"


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _connection(address: Address, timeout: float) -> http.client.HTTPConnection:
    if address.path:
        return _UnixConnection(address.path, timeout)
    if not address.tls:
        return http.client.HTTPConnection(address.host, address.port, timeout=timeout)
    context = ssl.create_default_context(cafile=address.certificate)
    if address.certificate is not None:
        # Exactly this certificate is trusted, so the name that it was made for does not matter.
        context.check_hostname = False
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return http.client.HTTPSConnection(address.host, address.port, timeout=timeout, context=context)
