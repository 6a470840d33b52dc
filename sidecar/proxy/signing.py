"""Requests that are signed here: what a call asks of its provider's signer, and what it sends then.

A provider without `sign` has no signer, and its calls find `None` and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from sidecar import clock as machine
from sidecar.config.resolved import Provider
from sidecar.proxy import sigv4
from sidecar.proxy.aws_credentials import CredentialSource
from sidecar.proxy.headers import RawHeaders

MOST_BODY = 32 * 1024 * 1024
"""Bytes of a body that is held to be signed where `limits.request_body` says nothing; Bedrock
itself takes 25,000,000 (botocore's model of InvokeModel)."""


class Signer:
    """Signs the requests of one provider.

    Args:
        provider: its resolved configuration, with `sign.aws`.
        loop: the running loop.
    """

    def __init__(self, provider: Provider, loop: asyncio.AbstractEventLoop) -> None:
        aws = provider.sign.aws
        assert aws is not None
        assert aws.region is not None
        assert aws.service is not None
        self._scope = sigv4.Scope(aws.region, aws.service)
        self._credentials = CredentialSource(provider.name, aws.profile, aws.region, loop)
        # The first call need not be the one that waits.
        self._credentials.begin()

    async def ready(self) -> Signing:
        """What signs one call.

        Raises:
            Refused: `missing_credentials`.
        """
        return Signing(self._credentials, self._scope, await self._credentials.key())


class Signing:
    """The signature of one call, made when its head is written.

    Args:
        credentials: where the key came from.
        scope: what the signature is good for.
        key: whose it is.

    Attributes:
        payload: the SHA-256 of the body in hexadecimal digits, once the body is whole.
        secrets: what of it no error may quote, once it is made.
    """

    __slots__ = ("_credentials", "_key", "_scope", "payload", "secrets")

    def __init__(self, credentials: CredentialSource, scope: sigv4.Scope, key: sigv4.Key) -> None:
        self._credentials = credentials
        self._scope = scope
        self._key = key
        self.payload = ""
        self.secrets: RawHeaders = ()

    def lines(
        self,
        method: str,
        target: str,
        host: bytes,
        raw: RawHeaders,
        stopped: Collection[bytes],
        configured: RawHeaders,
    ) -> RawHeaders:
        """The header lines to send in place of those of the same names.

        Args:
            method: of the request.
            target: path and query at the upstream.
            host: the upstream's authority.
            raw: the caller's headers.
            stopped: names (lower case) of those that do not leave.
            configured: header lines that the configuration puts in.
        """
        stays = {*stopped, *(name.lower() for name, _ in configured), *sigv4.REPLACED, b"host"}
        path, _, query = target.partition("?")
        signature = sigv4.sign(
            self._key,
            self._scope,
            method=method,
            path=path,
            query=query,
            headers=[
                (b"host", host),
                *((name, value) for name, value in raw if name.lower() not in stays),
                *configured,
            ],
            payload=self.payload,
            now=machine.wall(),
        )
        self.secrets = signature.secrets
        return (*configured, *signature.lines)

    def expired(self) -> None:
        """The upstream says that the credentials have ended."""
        self._credentials.distrust(self._key)
