"""What crosses the daemon crosses it unchanged: targets, headers, bodies, framing."""

from __future__ import annotations

import asyncio
import gzip
import hashlib

import pytest

from .callers import Caller, call, chat, request
from .upstreams import Upstream, Visit, answer, says

TARGETS = [
    "/v1/models/org%2Fname",
    "/a%3Ab",
    "/a%28b%29",
    "/it%27s",
    "/a%20b+c",
    "/%E4%BD%A0",
    "/%e4%bd%a0",
    "/a%2e%2e/b",
    "/x;y=1",
    "/a|b",
    "/100%25",
    "/",
    "//x",
    "/x/",
    "/x//y",
    "/a/../x",
    "/./x",
    "/q?sig=a%2Bb%2F%3D",
    "/q?q=a+b",
    "/q?k=1&k=2",
    "/q?flag",
    "/q?e=",
    "/q?",
    "/q??",
    "/v1/messages?beta=true",
    "/@evil.test/x",
    "/http://evil.test/x",
    "/\\evil.test",
    "/%2F%2Fevil.test",
    "/:9999/x",
]


@pytest.mark.parametrize("target", TARGETS)
async def test_f067_f068_f151_the_target_arrives_byte_for_byte(start, upstream, target) -> None:
    running = await start({"up": upstream.url})
    found = await call(running.port, "/up" + target)
    assert found.status == 200
    assert upstream.requests[0].target == target.encode()


@pytest.mark.parametrize(
    ("base", "target", "expected"),
    [
        ("", "/up", "/"),
        ("", "/up?x=1", "/?x=1"),
        ("/", "/up/x", "/x"),
        ("/api/v1", "/up/x?y", "/api/v1/x?y"),
        ("/api/v1/", "/up//x", "/api/v1//x"),
        ("/api/v1", "/up", "/api/v1/"),
        ("/api/v1", "/up/a/../b", "/api/v1/a/../b"),
    ],
)
async def test_f068_joining_the_prefix(start, upstream, base, target, expected) -> None:
    running = await start({"up": upstream.url + base})
    await call(running.port, target)
    assert upstream.requests[0].target == expected.encode()


@pytest.mark.parametrize("target", ["/up/../x", "/up/%2e%2E/x", "/up/a/../../x"])
async def test_f068_dots_cannot_climb_above_the_prefix(start, upstream, target) -> None:
    running = await start({"up": upstream.url + "/api"})
    found = await call(running.port, target)
    assert (found.status, upstream.hits) == (400, 0)
    assert found.get("x-sidecar-decision") == "bad_request"


async def test_f072_f087_headers_keep_order_case_repeats_and_bytes(start, upstream) -> None:
    sent = [
        ("X-B", "1"),
        ("x-b", "2"),
        ("Cookie", "a=1"),
        ("Cookie", "b=2"),
        ("ETag-Like", 'W/"x"'),
        ("X-Latin", "caf\xe9\xff"),
        ("Accept-Encoding", "identity"),
        ("AUTHORIZATION", "Bearer T"),
    ]
    running = await start({"up": upstream.url})
    await call(running.port, "/up/x", "GET", None, *sent)
    seen = upstream.requests[0].headers
    assert seen[0] == (b"Host", f"127.0.0.1:{upstream.port}".encode())
    assert seen[1:] == [(k.encode(), v.encode("latin-1")) for k, v in sent]


async def test_f087_nothing_is_added(start, upstream) -> None:
    running = await start({"up": upstream.url})
    await call(running.port, "/up/x", "POST", b"body")
    assert [name for name, _ in upstream.requests[0].headers] == [b"Host", b"Content-Length"]


async def test_f072_answers_keep_repeats_and_order(start, upstream) -> None:
    sent = [
        (b"Set-Cookie", b"a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT"),
        (b"Set-Cookie", b"b=2"),
        (b"set-cookie", b"c=3"),
        (b"WWW-Authenticate", b"Basic"),
        (b"WWW-Authenticate", b"Bearer"),
        (b"ETag", b'"x"'),
        (b"X-Latin", b"caf\xe9"),
    ]
    upstream.script = says(answer(200, b"{}", *sent))
    running = await start({"up": upstream.url})
    found = await call(running.port, "/up/x")
    names = {name.lower() for name, _ in sent}
    assert [pair for pair in found.headers if pair[0].lower() in names] == sent


async def test_f080_hop_by_hop_headers_stop_here(start, upstream) -> None:
    upstream.script = says(
        answer(
            200,
            b"{}",
            (b"Connection", b"X-Int"),
            (b"X-Int", b"1"),
            (b"Proxy-Authenticate", b"b"),
            (b"Keep-Alive", b"timeout=5"),
            (b"X-Kept", b"1"),
        )
    )
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    sent = [
        ("Connection", "keep-alive, X-Secret"),
        ("X-Secret", "1"),
        ("Proxy-Authorization", "Basic x"),
        ("Keep-Alive", "5"),
        ("TE", "trailers"),
        ("Upgrade", "h2c"),
        ("Trailer", "X"),
        ("X-Sidecar-Thing", "1"),
        ("X-End", "2"),
    ]
    await caller.send(request("/up/x", "GET", None, *sent))
    found = await caller.answer()
    assert [name for name, _ in upstream.requests[0].headers] == [b"Host", b"X-End"]
    assert found.get("x-kept") == "1"
    for name in ("connection", "x-int", "proxy-authenticate", "keep-alive"):
        assert found.get(name) is None
    await caller.send(request("/up/x"))
    assert (await caller.answer()).status == 200
    caller.close()


async def test_f080_connection_cannot_remove_the_framing(start, upstream) -> None:
    running = await start({"up": upstream.url})
    found = await call(
        running.port, "/up/x", "POST", b"abc", ("Connection", "content-length, host")
    )
    assert found.status == 200
    assert upstream.requests[0].body == b"abc"


async def test_the_upstreams_own_sidecar_headers_are_dropped(start, upstream) -> None:
    upstream.script = says(
        answer(
            200,
            b"{}",
            (b"x-sidecar-decision", b"forged"),
            (b"X-Error-Envelope", b"{}"),
            (b"x-correlation-id", b"theirs"),
        )
    )
    running = await start({"up": upstream.url})
    found = await call(running.port, "/up/x", "GET", None, ("x-request-id", "mine"))
    assert found.all("x-sidecar-decision") == [b"forwarded"]
    assert found.all("x-correlation-id") == [b"mine"]
    assert found.get("x-error-envelope") is None


@pytest.mark.parametrize(
    ("method", "body", "expected"),
    [
        ("GET", None, None),
        ("DELETE", None, None),
        ("POST", b"", b"0"),
        ("POST", b"0123456789", b"10"),
        ("DELETE", b"abc", b"3"),
        ("GET", b"abc", b"3"),
        ("OPTIONS", None, None),
        ("QUERY", b"abc", b"3"),
    ],
)
async def test_f088_the_framing_of_requests_is_kept(
    start, upstream, method, body, expected
) -> None:
    running = await start({"up": upstream.url})
    await call(running.port, "/up/x", method, body)
    seen = upstream.requests[0]
    assert seen.get(b"content-length") == expected
    assert seen.get(b"transfer-encoding") is None
    assert seen.body == (body or b"")
    assert seen.line.startswith(method.encode() + b" ")


async def test_f088_chunked_requests_stay_chunked(start, upstream) -> None:
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(
        request("/up/x", "POST", None, ("Transfer-Encoding", "chunked")),
        b"3\r\nabc\r\n",
        b"2\r\nde\r\n0\r\n\r\n",
    )
    assert (await caller.answer()).status == 200
    assert upstream.requests[0].get(b"transfer-encoding") == b"chunked"
    assert upstream.requests[0].get(b"content-length") is None
    assert upstream.requests[0].body == b"abcde"
    caller.close()


async def test_chunked_answers_stay_chunked_and_sized_ones_sized(start, upstream) -> None:
    upstream.script = says(
        b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n2;x=1\r\nde\r\n0\r\nTrailer: dropped\r\n\r\n"
    )
    running = await start({"up": upstream.url})
    found = await call(running.port, "/up/x")
    assert (found.get("transfer-encoding"), found.body) == ("chunked", b"abcde")
    upstream.script = says(answer(200, b"abcde", kind=b"image/png"))
    found = await call(running.port, "/up/x")
    assert (found.get("content-length"), found.body) == ("5", b"abcde")


async def test_a_body_until_the_connection_ends(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.send(b"HTTP/1.0 200 OK\r\nContent-Type: image/png\r\n\r\nabc")
        visit.keep = False

    upstream.script = script
    running = await start({"up": upstream.url})
    found = await call(running.port, "/up/x")
    assert (found.body, found.clean) == (b"abc", True)
    assert found.get("content-length") is None


async def test_f073_statuses_without_a_body(start, upstream) -> None:
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    upstream.script = says(b"HTTP/1.1 204 No\r\nX-A: 1\r\n\r\n")
    await caller.send(request())
    found = await caller.answer()
    assert (found.status, found.get("transfer-encoding")) == (204, None)
    upstream.script = says(b'HTTP/1.1 304 N\r\nContent-Length: 123\r\nETag: "x"\r\n\r\n')
    await caller.send(request())
    found = await caller.answer()
    assert (found.status, found.get("etag"), found.get("content-length")) == (304, '"x"', "123")
    upstream.script = says(b"HTTP/1.1 205 R\r\nContent-Length: 0\r\n\r\n")
    await caller.send(request())
    assert (await caller.answer()).status == 205
    upstream.script = says(answer())
    await caller.send(request())
    assert (await caller.answer()).body == b"{}"
    caller.close()


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\nContent-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
async def test_f074_head(start, upstream, raw) -> None:
    upstream.script = says(raw)
    running = await start({"up": upstream.url})
    async with asyncio.timeout(2):
        found = await call(running.port, "/up/x", "HEAD")
    assert found.status == 200
    if b"Content-Length" in raw:
        assert found.get("content-length") in ("5000000", "20")
    assert running.breaker("up").window.success == 1


@pytest.mark.parametrize(
    "coding", ["br", "zstd", "gzip, gzip", "identity", "x-gzip", "GZIP", "foo", "gzip"]
)
async def test_f069_f070_codings_pass_untouched(start, upstream, coding) -> None:
    body = b"\x1f\x8bnot really compressed"
    upstream.script = says(answer(200, body, (b"Content-Encoding", coding.encode())))
    running = await start({"up": {"upstream": upstream.url, "dialect": "generic"}})
    found = await call(running.port, "/up/x")
    assert (found.status, found.body, found.get("content-encoding")) == (200, body, coding)
    assert running.breaker("up/~x").window.failure == 0


async def test_f069_a_compressed_error_is_classified_and_passed_as_it_came(start, upstream) -> None:
    plain = b'{"error":{"code":"insufficient_quota","type":"insufficient_quota","message":"m"}}'
    packed = gzip.compress(plain)
    upstream.script = says(answer(429, packed, (b"Content-Encoding", b"gzip")))
    running = await start({"up": upstream.url})
    found = await call(running.port, "/up/v1/chat/completions", "POST", chat())
    assert found.body == packed
    assert found.envelope["code"] == "quota_exhausted"
    assert found.status == 402


async def test_f071_compressed_requests_are_not_inflated(start, upstream) -> None:
    packed = gzip.compress(b"\0" * 2_000_000)
    running = await start({"up": upstream.url})
    found = await call(
        running.port,
        "/up/x",
        "POST",
        packed,
        ("Content-Encoding", "gzip"),
        ("Content-Type", "application/json"),
    )
    assert found.status == 200
    assert upstream.requests[0].body == packed
    assert upstream.requests[0].get(b"content-encoding") == b"gzip"


async def test_f084_no_cookie_jar(start) -> None:
    upstream = Upstream(says(answer(200, b"{}", (b"Set-Cookie", b"sid=A"))))
    await upstream.start()
    running = await start({"up": f"http://localhost:{upstream.port}"})
    first = await call(running.port, "/up/x")
    await call(running.port, "/up/x")
    assert first.get("set-cookie") == "sid=A"
    assert upstream.requests[1].get(b"cookie") is None
    await upstream.stop()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_f091_redirects_are_passed_back(start, upstream, status) -> None:
    upstream.script = says(answer(status, b"", (b"Location", b"http://evil.test/x")))
    running = await start({"up": upstream.url})
    found = await call(running.port, "/up/x", "POST", b"abc")
    assert (found.status, found.get("location")) == (status, "http://evil.test/x")
    assert upstream.hits == 1
    assert running.breaker("up/~x").window.success == 1


async def test_f093_netrc_is_never_read(start, upstream, tmp_path, monkeypatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login u password p\n")
    monkeypatch.setenv("NETRC", str(netrc))
    running = await start({"up": upstream.url})
    await call(running.port, "/up/x", "GET", None, ("Authorization", "Bearer T"))
    await call(running.port, "/up/x")
    assert upstream.requests[0].get(b"authorization") == b"Bearer T"
    assert upstream.requests[1].get(b"authorization") is None


async def test_interim_answers_are_dropped(start, upstream) -> None:
    upstream.script = says(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + answer()
    )
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(request())
    line, _, _ = await caller.head()
    assert line.startswith(b"HTTP/1.1 200")
    caller.close()


async def test_expect_is_answered_here(start, upstream) -> None:
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    body = chat()
    head = request(
        "/up/v1/chat/completions",
        "POST",
        None,
        ("Expect", "100-continue"),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
    )
    await caller.send(head)
    line, _, _ = await caller.head()
    assert line == b"HTTP/1.1 100 Continue"
    await caller.send(body)
    assert (await caller.answer()).status == 200
    assert upstream.requests[0].get(b"expect") is None
    assert upstream.requests[0].body == body
    caller.close()


async def test_long_header_lines_pass(start, upstream) -> None:
    running = await start({"up": upstream.url})
    upstream.script = says(answer(200, b"{}", (b"X-Long", b"y" * 60_000)))
    found = await call(running.port, "/up/x", "GET", None, ("X-Long", "x" * 60_000))
    assert found.status == 200
    assert upstream.requests[0].get(b"x-long") == b"x" * 60_000
    assert found.get("x-long") == "y" * 60_000


async def test_f082_f090_large_bodies_stream_through(start, upstream) -> None:
    size = 30 * 1024 * 1024
    digest = hashlib.sha256()

    async def script(visit: Visit) -> None:
        left = size
        while left:
            part = await visit.reader.read(min(left, 2**18))
            digest.update(part)
            left -= len(part)
        await visit.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
            b"Content-Length: %d\r\n\r\n" % size
        )
        for _ in range(30):
            await visit.send(b"z" * 2**20)

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(
        request("/up/x", "POST", None, ("Content-Length", str(size)), ("Content-Type", "image/x"))
    )
    for _ in range(30):
        await caller.send(b"a" * 2**20)
    found = await caller.answer()
    assert found.status == 200
    assert digest.hexdigest() == hashlib.sha256(b"a" * size).hexdigest()
    assert found.body == b"z" * size
    caller.close()


async def test_pipelined_requests_are_answered_in_order(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.send(answer(200, visit.request.target))

    upstream.script = script
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(b"".join(request(f"/up/{n}") for n in range(30)))
    for n in range(30):
        assert (await caller.answer()).body == b"/%d" % n
    caller.close()


async def test_http10_callers_get_no_chunks(start, upstream) -> None:
    upstream.script = says(
        b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n0\r\n\r\n"
    )
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(b"GET /up/x HTTP/1.0\r\nHost: localhost\r\n\r\n")
    found = await caller.answer()
    assert (found.body, found.get("transfer-encoding")) == (b"abc", None)
    assert found.get("connection") == "close"
    caller.close()


async def test_a_websocket_handshake_is_answered_and_not_stalled(start, upstream) -> None:
    upstream.script = says(answer(426, b"{}"))
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(
        request("/up/x", "GET", None, ("Connection", "Upgrade"), ("Upgrade", "websocket"))
    )
    async with asyncio.timeout(2):
        assert (await caller.answer()).status == 426
    upstream.script = says(answer())
    await caller.send(request())
    assert (await caller.answer()).status == 200
    caller.close()
