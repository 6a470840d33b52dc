"""Requests and answers that two readers could understand differently, and callers from elsewhere."""

from __future__ import annotations

import asyncio

import pytest

from .callers import Caller, call, request
from .upstreams import answer, says

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
