"""An audit goes the way that the daemon's calls go: TLS, egress proxies, sockets, signatures."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from sidecar.audit.audit import Audit, AuditFailed, Report
from sidecar.audit.findings import Result
from sidecar.audit.providers import plan_of
from sidecar.proxy.failures import Refused
from sidecar.proxy.runtime import dialect_of

from .conftest import found, provider

Handler = Callable[[bytes, bytes], bytes]
NOT_FOUND = (
    b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n"
    b'{"error": "no"}'
)


class Listener:
    """Answers each request on a connection of its own, and keeps the heads."""

    def __init__(self, handler: Handler) -> None:
        self.heads: list[bytes] = []
        self._handler = handler

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            length = next(
                (
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length:")
                ),
                0,
            )
            body = await reader.readexactly(length)
            writer.write(self._handler(head, body))
            await writer.drain()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


def no(_head: bytes, _body: bytes) -> bytes:
    return NOT_FOUND


async def audit(folder: Path, upstream: str, **config: Any) -> Report:
    given = provider(folder, upstream, **config)
    plan = plan_of(dialect_of(given).name)

    async def sleep(_seconds: float) -> None:
        return

    return await Audit(given, plan, timeout=5, sleep=sleep).run()


async def test_a_private_authority(tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("llm.localhost").configure_cert(context)
    listener = Listener(no)
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    try:
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        tls = {"ca": str(tmp_path / "ca.pem"), "server_name": "llm.localhost"}
        report = await audit(tmp_path, f"https://127.0.0.1:{port}", dialect="generic", tls=tls)
        assert found(report, "unknown_path").result is Result.RIGHT
        with pytest.raises(AuditFailed, match="TLS failed"):
            await audit(tmp_path, f"https://127.0.0.1:{port}", dialect="generic")
    finally:
        server.close()
        await server.wait_closed()


async def test_a_unix_socket(tmp_path: Path) -> None:
    listener = Listener(no)
    server = await asyncio.start_unix_server(listener.serve, tmp_path / "s")
    try:
        report = await audit(tmp_path, f"unix:{tmp_path / 's'}", dialect="generic")
        assert found(report, "unknown_path").status == 404
        assert b"Host: localhost\r\n" in listener.heads[0]
    finally:
        server.close()
        await server.wait_closed()


async def test_an_egress_proxy(tmp_path: Path) -> None:
    listener = Listener(no)
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        report = await audit(
            tmp_path,
            "http://llm.example/api",
            dialect="generic",
            proxy=f"http://user:secret@127.0.0.1:{port}",
        )
        head = listener.heads[0]
        assert head.startswith(b"GET http://llm.example/api/breaker-sidecar-audit-no-such-path ")
        assert b"Proxy-Authorization: Basic " in head
        assert b"Host: llm.example\r\n" in head
        assert not report.misleads
    finally:
        server.close()
        await server.wait_closed()


async def test_signed_by_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("botocore")
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDGOOD")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def bedrock(head: bytes, body: bytes) -> bytes:
        del body
        if b"Credential=AKIDGOOD/" in head or b"credential=AKIDGOOD/" in head:
            return NOT_FOUND
        refused = b'{"message": "The security token included in the request is invalid."}'
        return (
            b"HTTP/1.1 403 Forbidden\r\nx-amzn-ErrorType: UnrecognizedClientException\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(refused), refused)
        )

    listener = Listener(bedrock)
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        given = provider(
            tmp_path,
            f"http://127.0.0.1:{port}",
            dialect="bedrock",
            sign={"aws": {"region": "us-east-1", "service": "bedrock"}},
        )
        report = await Audit(given, plan_of("generic", path="/me"), key="sign.aws").run()
        assert found(report, "no_key").result is Result.RIGHT
        assert found(report, "wrong_key").result is Result.RIGHT
        signed = [head for head in listener.heads if b"AWS4-HMAC-SHA256" in head]
        assert len(signed) == len(listener.heads) - 1
        assert sum(b"AKIAAUDITWRONGKEY000" in head for head in signed) == 1
    finally:
        server.close()
        await server.wait_closed()


async def test_without_credentials_to_sign_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("botocore")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    sign = {"aws": {"region": "us-east-1", "service": "bedrock"}}
    with pytest.raises(Refused):
        await audit(tmp_path, "http://127.0.0.1:9", dialect="generic", sign=sign)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
        b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\nzz",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 404 Not Found\r\nX: a\r\n b\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b",
    ],
)
async def test_odd_answers_are_findings(tmp_path: Path, answer: bytes) -> None:
    listener = Listener(lambda _head, _body: answer)
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        with suppress(AuditFailed):
            report = await audit(tmp_path, f"http://127.0.0.1:{port}", dialect="generic")
            assert len(report.findings) == 1
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("beginning", "status", "class_"),
    [
        (b"", None, None),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n{", 404, "permanent"),
        (
            b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n"
            + b"x" * 0xFFFFF,
            404,
            "permanent",
        ),
    ],
)
async def test_an_answer_without_end(
    tmp_path: Path, beginning: bytes, status: int | None, class_: str | None
) -> None:
    serving: list[Any] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(beginning)
            await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    given = provider(tmp_path, f"http://127.0.0.1:{port}", dialect="generic")
    try:
        running = Audit(given, plan_of("generic"), timeout=0.3).run()
        if status is None:
            with pytest.raises(AuditFailed, match="within"):
                await running
        else:
            one = found(await running, "unknown_path")
            assert (one.status, one.class_) == (status, class_)
        await asyncio.gather(*serving)
    finally:
        server.close()
        await server.wait_closed()
