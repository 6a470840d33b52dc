"""Sends the requests of an audit the way the daemon would: same connections, TLS, proxy, headers.

What differs is the key: an audit sends none, or a wrong one, where that is what it asks about, and
then nothing that the configuration sets may put the right one back.
"""

from __future__ import annotations

import asyncio
import hashlib

import msgspec
from aiohttp.connector import Connection

from sidecar import __version__, clock
from sidecar.audit.plans import Key
from sidecar.audit.questions import Identity, Question
from sidecar.config.resolved import Provider
from sidecar.envelope.credentials import carries_credential, request_secrets
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.inflate import inflate
from sidecar.envelope.model import Classified, Seen
from sidecar.envelope.stream import classify_stream, is_stream
from sidecar.proxy import headers, replies
from sidecar.proxy.exchange import Exchange
from sidecar.proxy.failures import UpstreamFailed
from sidecar.proxy.runtime import Secret, dialect_of
from sidecar.proxy.signing import Signer, Signing
from sidecar.proxy.sigv4 import REPLACED
from sidecar.proxy.sigv4 import Key as SigningKey
from sidecar.proxy.upstream import Upstream

_AGENT = f"breaker-sidecar-audit/{__version__}"
_WRONG_SIGNER = SigningKey("AKIAAUDITWRONGKEY000", "breaker-sidecar-audit-wrong-secret", None)

Line = tuple[bytes, bytes]


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What came back.

    Attributes:
        classified: what the daemon makes of it.
        status: of the answer; None if there was none.
        headers: of the answer.
        at: when it came, seconds since the epoch.
        refused: no connection could be made at all.
    """

    classified: Classified
    status: int | None
    headers: Headers = Headers()
    at: float = 0.0
    refused: bool = False


class Asker:
    """Asks one provider.

    Args:
        provider: its resolved configuration.
        key: where its dialect puts the key.
        own: a key to send where the configuration sets none; None for none.
        timeout: seconds for each request.
    """

    def __init__(self, provider: Provider, key: Key, own: str | None, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        self._provider = provider
        self._key = key
        self._own = own
        self._timeout = timeout
        self._dialect = dialect_of(provider)
        self._upstream = Upstream(provider, loop)
        self._set = [Secret(name, one).line for name, one in provider.set_headers.items()]
        self._signer = None if provider.sign.aws is None else Signer(provider, loop)

    async def close(self) -> None:
        """Closes its connections."""
        await self._upstream.close()

    async def ask(self, question: Question) -> Answered:
        """The answer to one request, or what became of it.

        Raises:
            Refused: `missing_credentials`, where requests are signed.
        """
        lines, replaced = self._lines(question), self._replaced(question.identity)
        signing = await self._signing(question)
        target = self._upstream.prefix + question.path
        if signing is not None:
            stopped = frozenset(REPLACED)
            authority = self._upstream.authority
            signed = signing.lines(question.method, target, authority, lines, stopped, replaced)
            replaced = list(signed)
        head = b"".join(
            (
                f"{question.method} {self._upstream.absolute}{target} HTTP/1.1\r\n".encode(),
                *headers.request_lines(lines, self._upstream.authority, replaced),
                self._upstream.proxy_lines,
                b"\r\n",
            )
        )
        secrets = request_secrets([*lines, *replaced], target, self._set)
        try:
            return await self._exchange(question, head, secrets)
        except TimeoutError:
            detail = f"no answer within {self._timeout:g} s"
            return self._failed(UpstreamFailed("timeout", "first_byte_timeout", detail))
        except UpstreamFailed as failure:
            return self._failed(failure)

    # -- what is sent -----------------------------------------------------------------------

    def _lines(self, question: Question) -> list[Line]:
        fields = {"user-agent": _AGENT, **question.headers}
        lines = [(name.encode(), value.encode()) for name, value in fields.items()]
        if question.body or question.method not in ("GET", "HEAD"):
            lines.append((b"content-length", str(len(question.body)).encode()))
        key = {Identity.OWN: self._own, Identity.WRONG: self._key.wrong, Identity.NONE: None}
        value = key[question.identity]
        if value is not None and self._signer is None:
            lines.append(
                (self._key.header.encode(), f"{self._key.prefix}{value}".encode("latin-1"))
            )
        return lines

    def _replaced(self, identity: Identity) -> list[Line]:
        """The headers that the configuration sets; without its keys where another is asked for."""
        if identity is Identity.OWN:
            return list(self._set)
        place = self._key.header
        return [
            (name, value)
            for name, value in self._set
            if name.decode().lower() != place and not carries_credential(name.decode().lower())
        ]

    async def _signing(self, question: Question) -> Signing | None:
        if self._signer is None or question.identity is Identity.NONE:
            return None
        signing = await self._signer.ready()
        if question.identity is Identity.WRONG:
            signing = signing.by(_WRONG_SIGNER)
        signing.payload = hashlib.sha256(question.body).hexdigest()
        return signing

    # -- what comes back --------------------------------------------------------------------

    async def _exchange(
        self, question: Question, head: bytes, secrets: tuple[str, ...]
    ) -> Answered:
        # A connection of its own: what one request leaves behind is no part of the next answer.
        async with asyncio.timeout(self._timeout):
            connection = await self._upstream.connect()
        exchange = Exchange(
            connection, asyncio.get_running_loop(), Connection.close, head_only=False
        )
        try:
            try:
                exchange.write(head + question.body)
            except ConnectionResetError as error:
                raise exchange.failure(error) from error
            async with asyncio.timeout(self._timeout):
                answer = await exchange.head()
            seen = await self._seen(
                question,
                exchange,
                answer.message.code,
                Headers.from_raw(answer.message.raw_headers),
            )
        finally:
            exchange.close()
        rules = self._provider.rules
        judge = (
            classify_stream if is_stream(seen.headers.get("content-type"), seen.body) else classify
        )
        classified = judge(seen, self._dialect, rules=rules, secrets=lambda: secrets)
        return Answered(
            classified=classified, status=seen.status, headers=seen.headers, at=seen.now
        )

    async def _seen(
        self, question: Question, exchange: Exchange, status: int, told: Headers
    ) -> Seen:
        limit = self._provider.limits.classify_body
        body, complete, cut = bytearray(), True, False
        try:
            async with asyncio.timeout(self._timeout):
                while part := await exchange.part():
                    body += part
                    if len(body) > limit:
                        cut = True
                        break
        except (UpstreamFailed, TimeoutError):
            complete = False
        content: bytes | None = bytes(body[:limit])
        coding = told.get("content-encoding")
        if coding and content:
            content = inflate(content, coding, limit)
        return Seen(
            status=status,
            headers=told,
            body=content or b"",
            truncated=cut or not complete,
            complete=complete,
            method=question.method,
            path=(self._upstream.prefix + question.path).partition("?")[0],
            now=clock.wall(),
        )

    def _failed(self, failure: UpstreamFailed) -> Answered:
        envelope = replies.envelope_of(
            failure.decision, f"{self._provider.name}: {failure.detail}", "", code=failure.code
        )
        classified = Classified(
            envelope=envelope, verdict=failure.verdict, rule=f"transport: {failure.code}"
        )
        refused = failure.decision == "connect_error"
        return Answered(classified=classified, status=None, at=clock.wall(), refused=refused)
