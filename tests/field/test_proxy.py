"""Area proxy, bytes: what crosses the daemon crosses it unchanged, and only once."""

from __future__ import annotations

import pytest

from tests.proxy.callers import Caller, call, chat, request
from tests.proxy.upstreams import Upstream, Visit, answer, says

from .scene import (
    CHAT,
    JSON,
    base,
    counted,
    total,
)

TARGETS = [
    "/v1/models/org%2Fname",
    "/v1/models/org%2fname",
    "/a%3Ab",
    "/a%3ab",
    "/a%28b%29",
    "/it%27s",
    "/a%20b+c",
    "/%E4%BD%A0",
    "/%e4%bd%a0",
    "/a%2e%2e/b",
    "/x;y=1",
    "/a|b",
    "/100%25",
    "/q?sig=a%2Bb%2F%3D",
    "/q?q=a+b",
    "/q?k=1&k=2",
    "/q?flag",
    "/q?e=",
    "/q?",
    "/q?a?b",
    "/~a",
    "/a*",
    "/a'b(c)",
    "/[x]",
    "/{y}",
    "/^z",
    '/a"b',
    "/a`b",
]


async def test_f067_every_target_arrives_byte_for_byte(start, upstream) -> None:
    running = await start({"up": base(upstream.url), "deep": base(upstream.url + "/api/v1")})
    caller = await Caller.connect(running.port)
    for target in TARGETS:
        for provider, prefix in (("up", ""), ("deep", "/api/v1")):
            await caller.send(request(f"/{provider}{target}"))
            assert (await caller.answer()).status == 200, target
            assert upstream.requests[-1].target == (prefix + target).encode()


@pytest.mark.parametrize("base_path", ["", "/", "/api/v1", "/api/v1/"])
async def test_f068_the_shape_of_the_path_is_kept(start, upstream, base_path) -> None:
    running = await start({"up": base(upstream.url + base_path)})
    prefix = base_path.rstrip("/")
    for target in ("/", "//x", "/x/", "/x//y", "/v1/messages?beta=true", "/?beta=true"):
        found = await call(running.port, "/up" + target)
        assert (found.status, found.get("location")) == (200, None)
        assert upstream.requests[-1].target == (prefix + target).encode()
    hits = upstream.hits
    climbing = await call(running.port, "/up/../x")
    if prefix:
        assert (climbing.status, upstream.hits) == (400, hits)
    else:
        assert upstream.requests[-1].target == b"/../x"


async def test_f072_repeated_headers_keep_count_order_and_value(start, upstream) -> None:
    back = [
        (b"Set-Cookie", b"a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT; Path=/"),
        (b"X-A", b"1"),
        (b"Set-Cookie", b"b=2"),
        (b"WWW-Authenticate", b'Basic realm="x"'),
        (b"set-cookie", b"c=3"),
        (b"WWW-Authenticate", b"Bearer"),
        (b"Link", b"</a>; rel=next"),
        (b"X-A", b"2"),
        (b"Link", b"</b>; rel=prev"),
    ]
    there = [("X-B", "1"), ("Cookie", "a=1"), ("x-b", "2"), ("cookie", "b=2"), ("X-b", "")]
    upstream.script = says(answer(200, b"{}", *back))
    running = await start({"up": base(upstream.url)})
    found = await call(running.port, "/up/x", "GET", None, *there)
    names = {name.lower() for name, _ in back}
    assert [pair for pair in found.headers if pair[0].lower() in names] == back
    sent = [(name.encode(), value.encode()) for name, value in there]
    arrived = upstream.requests[0].head.split(b"\r\n")[2:]
    assert [tuple(line.split(b":", 1)) for line in arrived] == [(k, b" " + v) for k, v in sent]


async def test_f080_hop_by_hop_headers_stop_here(start, upstream) -> None:
    back = (
        (b"Connection", b"close, X-Int"), (b"X-Int", b"1"), (b"Proxy-Authenticate", b"b"),
        (b"Keep-Alive", b"timeout=5"), (b"X-Kept", b"1"),
    )  # fmt: skip
    upstream.script = says(answer(200, b"{}", *back))
    running = await start({"up": base(upstream.url)})
    caller = await Caller.connect(running.port)
    sent = [
        ("Connection", "X-Secret"), ("X-Secret", "1"), ("Proxy-Authorization", "Basic x"),
        ("Keep-Alive", "5"), ("TE", "trailers"), ("Upgrade", "h2c"), ("Trailer", "X"), ("X-End", "2"),
    ]  # fmt: skip
    for _ in range(2):
        # The upstream closes its connection each time; the caller's goes on.
        await caller.send(request("/up/x", "GET", None, *sent))
        found = await caller.answer()
        assert [name for name, _ in upstream.requests[-1].headers] == [b"Host", b"X-End"]
        names = {name.lower() for name, _ in found.headers}
        assert b"x-kept" in names
        assert not names & {b"x-int", b"proxy-authenticate", b"keep-alive", b"connection"}
    await caller.send(
        request("/up/x", "GET", None, ("Connection", "close, X-Secret"), ("X-Secret", "1"))
    )
    found = await caller.answer()
    assert await caller.reader.read() == b""
    assert upstream.requests[-1].get(b"x-secret") is None
    assert upstream.requests[-1].get(b"connection") is None


async def test_f084_no_cookie_of_one_caller_reaches_another(start) -> None:
    async def script(visit: Visit) -> None:
        cookie = (b"Set-Cookie", b"sid=A; Max-Age=99999999; Path=/")
        if visit.request.target == b"/hop":
            await visit.send(answer(302, b"", cookie, (b"Location", b"/x")))
        else:
            await visit.send(answer(200, b"{}", cookie))

    upstream = Upstream(script)
    await upstream.start()
    running = await start({"up": base(f"http://localhost:{upstream.port}")})
    for target in ("/up/hop", "/up/x"):
        found = await call(running.port, target, "GET", None, ("X-Caller", "A"))
        assert found.get("set-cookie").startswith("sid=A")
    for target in ("/up/hop", "/up/x"):
        await call(running.port, target, "GET", None, ("X-Caller", "B"))
    assert all(seen.get(b"cookie") is None for seen in upstream.requests)
    assert upstream.hits == 4
    await upstream.stop()


async def test_f085_the_smuggled_request_is_never_seen(start, upstream) -> None:
    running = await start({"up": base(upstream.url)})
    head = b"POST /up/x HTTP/1.1\r\nHost: localhost\r\n"
    smuggled = b"GET /up/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for framing in (
        b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n",
        b"Content-Length: 0\r\nContent-Length: 44\r\n\r\n",
        b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n0_0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n",
    ):
        caller = await Caller.connect(running.port)
        await caller.send(head + framing + smuggled)
        found = await caller.answer()
        rest = await caller.reader.read()
        assert b"HTTP/1.1 200" not in rest, framing
        assert found.status == 400, framing
        caller.close()
    assert not [seen for seen in upstream.requests if b"smuggled" in seen.target]
    assert counted(running) == 0


async def test_f086_one_host_header_and_it_is_the_upstreams(start, upstream) -> None:
    running = await start({"up": base(f"http://LOCALHOST:{upstream.port}/x")})
    raw = b"GET /up/y HTTP/1.1\r\nX-First: 1\r\nhOsT: localhost:7600\r\n\r\n"
    caller = await Caller.connect(running.port)
    await caller.send(raw)
    assert (await caller.answer()).status == 200
    hosts = [value for name, value in upstream.requests[0].headers if name.lower() == b"host"]
    assert [host.lower() for host in hosts] == [b"localhost:%d" % upstream.port]


async def test_f087_exactly_the_callers_headers(start, upstream) -> None:
    running = await start({"up": base(upstream.url)})
    await call(running.port, "/up/x")
    await call(running.port, "/up/x", "POST", b"{}")
    await call(running.port, "/up/x", "GET", None, ("Accept-Encoding", "identity"))
    seen = [[name.lower() for name, _ in one.headers] for one in upstream.requests]
    assert seen == [[b"host"], [b"host", b"content-length"], [b"host", b"accept-encoding"]]


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST", "PUT", "PATCH"])
async def test_f088_sized_stays_sized_chunked_chunked_and_none_none(
    start, upstream, method
) -> None:
    running = await start({"up": base(upstream.url)})
    await call(running.port, "/up/x", method)
    await call(running.port, "/up/x", method, b"")
    await call(running.port, "/up/x", method, b"0123456789")
    caller = await Caller.connect(running.port)
    head = request("/up/x", method, None, ("Transfer-Encoding", "chunked"))
    await caller.send(head, b"4\r\nabcd\r\n0\r\n\r\n")
    await caller.answer()
    seen = [
        (one.get(b"content-length"), one.get(b"transfer-encoding"), one.body)
        for one in upstream.requests
    ]
    assert seen == [
        (None, None, b""), (b"0", None, b""), (b"10", None, b"0123456789"), (None, b"chunked", b"abcd"),
    ]  # fmt: skip


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_f091_redirects_are_the_callers_to_follow(start, upstream, status) -> None:
    other = Upstream()
    await other.start()
    running = await start({"up": base(upstream.url)})
    locations = [
        f"{upstream.url}/same", f"{other.url}/port", "http://localhost.test/host", "../relative",
        "/up/v1/x", "", "//other.test/x",
    ]  # fmt: skip
    for n, location in enumerate(locations):
        upstream.script = says(answer(status, b"", (b"Location", location.encode())))
        found = await call(running.port, "/up/v1/x", "POST", b"body", ("Authorization", "Bearer T"))
        assert (found.status, found.get("location")) == (status, location)
        assert (upstream.hits, total(running, "success")) == (n + 1, n + 1)
    assert (other.hits, counted(running)) == (0, 0)
    await other.stop()


async def test_f092_a_refused_upgrade_is_answered_at_once(start, upstream) -> None:
    upstream.script = says(answer(426, b'{"error":{"message":"no sockets here"}}'))
    running = await start({"up": base(upstream.url)})
    caller = await Caller.connect(running.port)
    upgrade = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
    await caller.send(request("/up/v1/realtime", "GET", None, *upgrade))
    found = await caller.answer()
    assert (found.status, counted(running)) == (426, 0)
    # An upgrade opens no way past the list of providers.
    await caller.send(request("/nobody/v1/realtime", "GET", None, *upgrade))
    assert (await caller.answer()).status == 404
    assert upstream.hits == 1


@pytest.mark.parametrize("trusts", [False, True])
async def test_f093_netrc_replaces_no_credential(start, tmp_path, monkeypatch, trusts) -> None:
    upstream = Upstream()
    await upstream.start()
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login u password p\ndefault login u password p\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    if trusts:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("NO_PROXY", "localhost")
    running = await start({"up": base(f"http://localhost:{upstream.port}", proxy="env")})
    await call(running.port, "/up/x", "GET", None, ("Authorization", "Bearer T"))
    await call(running.port, "/up/x")
    values = [one.get(b"authorization") for one in upstream.requests]
    assert values == [b"Bearer T", None]
    await upstream.stop()


@pytest.mark.parametrize("plain", [False, True])
async def test_f100_the_upstreams_own_error_page_arrives(start, upstream, plain) -> None:
    body = b'{"error":{"message":"the disk is full","code":"E42"},"hint":"call us"}'
    upstream.script = says(answer(500, body, (b"X-Request-Id", b"req-1"), (b"X-Extra", b"kept")))
    running = await start({"up": base(upstream.url)})
    headers = [("Accept", "application/vnd.error-envelope+json")] if plain else []
    found = await call(running.port, CHAT, "POST", chat(), JSON, *headers)
    assert (found.status, found.get("x-request-id"), found.get("x-extra")) == (500, "req-1", "kept")
    if plain:
        assert found.json["raw"]["body"].encode() == body
        assert found.json["raw"]["upstream_request_id"] == "req-1"
        assert found.json["raw"]["status"] == 500
    else:
        assert found.body == body
    assert found.envelope["code"] == "E42"
