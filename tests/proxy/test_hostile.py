"""Requests and answers that two readers could understand differently, and callers from elsewhere."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

import pytest
import trustme

from .callers import Caller, call, request
from .upstreams import Visit, answer, says

H = b"Host: localhost\r\n"
BAD_REQUESTS = {
    "both framings": b"POST /up/x HTTP/1.1\r\n" + H
    + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST /up/x HTTP/1.1\r\n" + H
    + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    "length +5": b"POST /up/x HTTP/1.1\r\n" + H + b"Content-Length: +5\r\n\r\nabcde",
    "length 5, 5": b"POST /up/x HTTP/1.1\r\n" + H + b"Content-Length: 5, 5\r\n\r\nabcde",
    "length 0x5": b"POST /up/x HTTP/1.1\r\n" + H + b"Content-Length: 0x5\r\n\r\nabcde",
    "xchunked": b"POST /up/x HTTP/1.1\r\n" + H + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked, identity": b"POST /up/x HTTP/1.1\r\n" + H
    + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "gzip, chunked": b"POST /up/x HTTP/1.1\r\n" + H
    + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"POST /up/x HTTP/1.1\r\n" + H
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked on 1.0": b"POST /up/x HTTP/1.0\r\n" + H
    + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk -1": b"POST /up/x HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
    "chunk 0_a": b"POST /up/x HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n0_a\r\n",
    "chunk 17 digits": b"POST /up/x HTTP/1.1\r\n" + H
    + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\n",
    "space before colon": b"GET /up/x HTTP/1.1\r\n" + H + b"X : a\r\n\r\n",
    "folded": b"GET /up/x HTTP/1.1\r\n" + H + b"X: a\r\n b\r\n\r\n",
    "bare CR": b"GET /up/x HTTP/1.1\r\n" + H + b"X: a\rb\r\n\r\n",
    "bare LF": b"GET /up/x HTTP/1.1\nHost: localhost\n\n",
    "NUL": b"GET /up/x HTTP/1.1\r\n" + H + b"X: a\0b\r\n\r\n",
    "two hosts": b"GET /up/x HTTP/1.1\r\n" + H + H + b"\r\n",
    "no host": b"GET /up/x HTTP/1.1\r\n\r\n",
    "HTTP/2": b"GET /up/x HTTP/2.0\r\n" + H + b"\r\n",
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "user-info": b"GET @evil.test/x HTTP/1.1\r\n" + H + b"\r\n",
    "port": b"GET :9999/x HTTP/1.1\r\n" + H + b"\r\n",
    "query only": b"GET ?@evil.test HTTP/1.1\r\n" + H + b"\r\n",
    "fragment": b"GET #@evil.test HTTP/1.1\r\n" + H + b"\r\n",
    "fragment behind": b"GET /up/x#y HTTP/1.1\r\n" + H + b"\r\n",
    "space in the target": b"GET /up/x y HTTP/1.1\r\n" + H + b"\r\n",
    "too long": b"GET /up/" + b"x" * 70_000 + b" HTTP/1.1\r\n" + H + b"\r\n",
    "too many headers": b"GET /up/x HTTP/1.1\r\n" + H + b"X: y\r\n" * 300 + b"\r\n",
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_REQUESTS)
async def test_f085_bad_requests_are_refused_and_the_connection_closed(
    start, upstream, name
) -> None:
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    async with asyncio.timeout(5):
        await caller.send(BAD_REQUESTS[name], request("/up/smuggled"))
        found = await caller.answer()
        assert found.status in (400, 403)
        assert found.envelope["code"] in ("bad_request", "forbidden_host")
        if found.envelope["code"] == "bad_request" and name != "fragment behind":
            while await caller.reader.read(65536):
                pass
    caller.close()
    assert [seen.target for seen in upstream.requests if b"smuggled" in seen.target] in (
        [],
        [b"/smuggled"] if name == "fragment behind" else [],
    )
    assert b"evil" not in found.body


async def test_the_parsers_words_are_not_quoted(start, upstream) -> None:
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(b"GET /up/x HTTP/1.1\r\n" + H + b"Authorization : Bearer sk-secret\r\n\r\n")
    found = await caller.answer()
    assert found.status == 400
    assert b"sk-secret" not in found.raw
    caller.close()


BAD_ANSWERS = {
    "both framings": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"0\r\n\r\n",
    "gzip, chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked on 1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "folded": b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "bare CR": b"HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n",
    "status 99": b"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
    "chunk -1": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    "no HTTP": b"SSH-2.0-OpenSSH_9.9\r\n",
    "NUL": b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_f085_bad_answers_become_a_502(start, upstream, name) -> None:
    upstream.script = says(BAD_ANSWERS[name])
    running = await start({"up": upstream.url})
    async with asyncio.timeout(5):
        found = await call(running.port, "/up/x")
    assert found.status == 502
    assert found.get("x-sidecar-decision") == "upstream_error"
    assert found.envelope["code"] == "invalid_upstream_response"
    assert running.breaker("up/~x").window.failure == 1
    upstream.script = says(answer())
    assert (await call(running.port, "/up/x")).status == 200


@pytest.mark.parametrize(
    "host", ["evil.test", "evil.test:80", "127.0.0.1.evil.test", "", "localhost.evil.test"]
)
async def test_f147_foreign_hosts(start, upstream, host) -> None:
    running = await start({"up": upstream.url})
    found = await call(running.port, "/up/x", host=host)
    assert (found.status, upstream.hits) == (403, 0)
    assert found.envelope["code"] == "forbidden_host"


@pytest.mark.parametrize("host", ["LOCALHOST:1", "localhost.", "127.0.0.11:80", "[::1]:7600"])
async def test_f147_our_own_names(start, upstream, host) -> None:
    running = await start({"up": upstream.url})
    assert (await call(running.port, "/up/x", host=host)).status == 200


async def test_allowed_hosts(start, upstream) -> None:
    running = await start({"up": upstream.url}, allowed_hosts=["sidecar.internal"])
    assert (await call(running.port, "/up/x", host="sidecar.internal:80")).status == 200


@pytest.mark.parametrize(
    "header", [("Origin", "http://evil.test"), ("Origin", "null"), ("Sec-Fetch-Site", "cross-site")]
)
async def test_foreign_pages(start, upstream, header) -> None:
    running = await start({"up": upstream.url})
    found = await call(running.port, "/up/x", "GET", None, header)
    assert (found.status, upstream.hits) == (403, 0)


async def test_f152_absolute_forms(start, upstream) -> None:
    running = await start({"up": upstream.url})
    found = await call(running.port, "http://evil.test/up/x")
    assert (found.status, found.envelope["code"]) == (403, "forbidden_host")
    found = await call(running.port, f"http://8.8.8.8:{running.port}/up/x")
    assert found.status == 403
    found = await call(running.port, f"http://localhost:{running.port}/up/x?y")
    assert found.status == 200
    assert upstream.requests[0].target == b"/x?y"


ONCE = (
    "User-Agent", "Content-Type", "ETag", "Server", "Max-Forwards", "Content-Range",
    "Content-Location",
)  # fmt: skip


@pytest.mark.parametrize(
    ("line", "status"),
    [
        *((b"GET /up/x HTTP/1.1\r\n" + 2 * f"{name}: a\r\n".encode(), 400) for name in ONCE),
        (b"GET /up/x HTTP/1.1\r\n" + 2 * b"Accept: a\r\n", 200),
        (b"BREW /up/x HTTP/1.1\r\n", 400),
        (b"get /up/x HTTP/1.1\r\n", 400),
        (b"PURGE /up/x HTTP/1.1\r\n", 200),
        ("GET /up/größe HTTP/1.1\r\n".encode(), 400),
        ("GET /up/x?q=größe HTTP/1.1\r\n".encode(), 400),
        (b"GET /up/gr%C3%B6%C3%9Fe HTTP/1.1\r\n", 200),
    ],
)
async def test_what_the_page_for_clients_says_does_not_pass(start, upstream, line, status) -> None:
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(line + H + b"\r\n")
    assert ((await caller.answer()).status, upstream.hits) == (status, int(status == 200))


async def test_a_caller_that_closes_its_sending_side_is_gone(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.closed()

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(request("/up/x"))
    caller.writer.write_eof()
    with suppress(ConnectionResetError):
        assert await caller.reader.read() == b""
    while not running.calls:
        await asyncio.sleep(0)
    assert running.breaker("up/~x").window.neutral == 1


@pytest.mark.parametrize("scheme", ["https", "ftp", "ws", "x-http", "file"])
async def test_f152_absolute_forms_of_another_scheme(start, upstream, scheme) -> None:
    running = await start({"up": upstream.url})
    found = await call(running.port, f"{scheme}://localhost:{running.port}/up/x")
    assert (found.status, upstream.hits) in ((403, 0), (400, 0))
    assert found.envelope["code"] == ("forbidden_host" if found.status == 403 else "bad_request")


async def test_f152_absolute_forms_over_tls(start, upstream, tmp_path) -> None:
    authority, context = trustme.CA(), ssl.create_default_context()
    certificate = authority.issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "pem"))
    authority.configure_trust(context)
    tls = {"cert": str(tmp_path / "pem"), "key": str(tmp_path / "pem")}
    running = await start({"up": upstream.url}, listen={"address": "127.0.0.1:0", "tls": tls})
    for scheme, status in (("https", 200), ("HTTPS", 200), ("http", 200), ("ftp", 403)):
        caller = await Caller.connect(running.port, ssl=context, server_hostname="localhost")
        await caller.send(request(f"{scheme}://localhost:{running.port}/up/x"))
        assert (await caller.answer()).status == status, scheme
        await caller.closed()


@pytest.mark.parametrize("target", ["/up/x", "/nobody/x", "http://evil.test/up/x"])
async def test_trace_would_echo_the_headers_that_are_set_here(start, upstream, target) -> None:
    secret = {"authorization": {"value": "Bearer sk-of-the-house"}}
    running = await start({"up": {"upstream": upstream.url, "set_headers": secret}})
    found = await call(running.port, target, "TRACE")
    assert (found.status, found.envelope["code"]) == (405, "not_allowed")
    assert (found.get("x-sidecar-decision"), upstream.hits) == ("not_allowed", 0)
    assert b"TRACE" in found.body
    found = await call(running.port, target, "TRACE", host="evil.test")
    assert (found.status, found.envelope["code"]) == (405, "not_allowed")


async def test_f152_no_open_proxy(start, upstream) -> None:
    running = await start({"up": upstream.url})
    found = await call(running.port, "evil.test:443", "CONNECT")
    assert (found.status, found.envelope["code"]) == (405, "not_allowed")
    found = await call(running.port, "*", "OPTIONS")
    assert (found.status, found.envelope["code"]) == (404, "unknown_provider")
    for target in ("/", "//evil.test/x", "/evil.test/x", "/%75p/x", "/\\evil.test"):
        found = await call(running.port, target)
        assert (found.status, found.envelope["code"]) == (404, "unknown_provider"), target
        assert "up" in found.envelope["message"]
    assert upstream.hits == 0


async def test_request_body_limit(start, upstream) -> None:
    running = await start({"up": {"upstream": upstream.url, "limits": {"request_body": "1KiB"}}})
    found = await call(running.port, "/up/x", "POST", b"x" * 1025)
    assert (found.status, found.envelope["code"]) == (413, "too_large")
    assert upstream.hits == 0
    caller = await Caller.connect(running.port)
    await caller.send(
        request("/up/x", "POST", None, ("Transfer-Encoding", "chunked")),
        b"800\r\n" + b"x" * 2048 + b"\r\n0\r\n\r\n",
    )
    assert (await caller.answer()).status == 413
    caller.close()
    assert (await call(running.port, "/up/x", "POST", b"x" * 1024)).status == 200


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/up/x", [("Authorization", "AWS4-HMAC-SHA256 Credential=x")]),
        ("/up/x?X-Amz-Signature=abc", []),
    ],
)
async def test_sigv4_is_refused_with_the_remedy(start, upstream, target, headers) -> None:
    running = await start({"up": upstream.url})
    found = await call(running.port, target, "GET", None, *headers)
    assert (found.status, upstream.hits) == (400, 0)
    assert found.envelope["code"] == "sigv4_unsupported"
    assert "AWS_BEARER_TOKEN_BEDROCK" in found.envelope["message"]
