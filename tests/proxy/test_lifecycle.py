"""Listeners, reload, drain: nothing that runs is lost."""

from __future__ import annotations

import asyncio

import pytest
import trustme

from .callers import Caller, call, chat, request
from .upstreams import Upstream, Visit, answer, says


async def test_unix_sockets_on_both_sides(start, tmp_path) -> None:
    upstream = Upstream()
    await upstream.start(path=str(tmp_path / "up.sock"))
    await start(
        {"up": f"unix:{tmp_path}/up.sock"}, listen=["127.0.0.1:0", f"unix:{tmp_path}/in.sock"]
    )
    reader, writer = await asyncio.open_unix_connection(tmp_path / "in.sock")
    caller = Caller(reader, writer)
    await caller.send(request("/up/x", host="anything.test"))
    assert (await caller.answer()).status == 200
    assert upstream.requests[0].get(b"host") == b"localhost"
    caller.close()
    await upstream.stop()


async def test_f086_tls_towards_the_upstream(start, tmp_path) -> None:
    import ssl

    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    names: list[str | None] = []
    context.sni_callback = lambda _s, name, _c: names.append(name)
    upstream = Upstream()
    await upstream.start(tls=context)
    url = f"https://localhost:{upstream.port}"
    running = await start({"up": {"upstream": url, "tls": {"ca": str(tmp_path / "ca.pem")}}})
    assert (await call(running.port, host="LOCALHOST:1")).status == 200
    assert names == ["localhost"]
    assert upstream.requests[0].get(b"host") == f"localhost:{upstream.port}".encode()
    distrusting = await start({"up": url})
    found = await call(distrusting.port)
    assert (found.status, found.envelope["code"]) == (502, "tls_failure")
    assert not found.envelope["retryable"]
    await upstream.stop()


async def test_client_certificates(start, tmp_path) -> None:
    import ssl

    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    mine = authority.issue_cert("agent.test")
    mine.private_key_and_cert_chain_pem.write_to_path(tmp_path / "mine.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    upstream = Upstream()
    await upstream.start(tls=context)
    tls = {"ca": str(tmp_path / "ca.pem"), "cert": str(tmp_path / "mine.pem")}
    running = await start({"up": {"upstream": f"https://localhost:{upstream.port}", "tls": tls}})
    assert (await call(running.port)).status == 200
    await upstream.stop()


async def test_tls_on_a_listener(start, upstream, tmp_path) -> None:
    import ssl

    authority = trustme.CA()
    mine = authority.issue_cert("localhost")
    mine.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    mine.private_key_pem.write_to_path(tmp_path / "key.pem")
    tls = {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}
    running = await start({"up": upstream.url}, listen=[{"address": "127.0.0.1:0", "tls": tls}])
    context = ssl.create_default_context()
    authority.configure_trust(context)
    caller = await Caller.connect(running.port, ssl=context, server_hostname="localhost")
    await caller.send(request())
    assert (await caller.answer()).status == 200
    caller.close()


async def test_a_fixed_proxy_and_its_credentials(start, upstream) -> None:
    running = await start(
        {
            "up": {
                "upstream": "http://api.example.test",
                "proxy": f"http://user:p%40ss@127.0.0.1:{upstream.port}",
            }
        }
    )
    assert (await call(running.port, "/up/x?y")).status == 200
    seen = upstream.requests[0]
    assert seen.target == b"http://api.example.test/x?y"
    assert seen.get(b"host") == b"api.example.test"
    assert seen.get(b"proxy-authorization") == b"Basic dXNlcjpwQHNz"


async def test_a_loopback_upstream_never_goes_through_a_proxy(start, upstream, monkeypatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    running = await start({"up": upstream.url})
    assert (await call(running.port)).status == 200


async def test_headers_from_files(start, upstream, tmp_path) -> None:
    (tmp_path / "key").write_text("sk-file\n")
    section = {
        "upstream": upstream.url,
        "set_headers": {"authorization": {"file": str(tmp_path / "key"), "prefix": "Bearer "}},
    }
    running = await start({"up": section})
    await call(running.port, "/up/x", "GET", None, ("Authorization", "Bearer mine"))
    seen = [v for k, v in upstream.requests[0].headers if k.lower() == b"authorization"]
    assert seen == [b"Bearer sk-file"]


async def test_dns_failure(start) -> None:
    running = await start({"up": {"upstream": "http://no-such-host.invalid", "proxy": None}})
    found = await call(running.port)
    assert (found.status, found.envelope["code"]) == (502, "dns_failure")


async def test_connect_timeout(start) -> None:
    # A listening socket whose backlog is full accepts nobody.
    import socket

    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            waiting.append(one)
        running = await start(
            {"up": {"upstream": f"http://127.0.0.1:{port}", "timeouts": {"connect": "100ms"}}}
        )
        found = await call(running.port)
        for one in waiting:
            one.close()
    assert (found.status, found.envelope["code"]) == (502, "connect_timeout")
    assert running.breaker("up").window.failure == 1


async def test_reload_keeps_state_and_running_calls(start, upstream) -> None:
    upstream.script = says(answer(500, b"{}"))
    running = await start({"up": upstream.url})
    for n in range(4):
        await call(running.port, f"/up/v1/x?{n}")
    file = running.daemon._options.config
    text = file.read_text()
    file.write_text(text.replace("dialect: openai", "dialect: openai\n    timeouts: {idle: 9}"))
    result = await running.daemon.reload()
    assert (result.changed, result.generation) == (("up",), 2)
    assert running.breaker("up/~v1/x").consecutive_failures == 4
    file.write_text("providers: {up: {upstrm: x}}")
    result = await running.daemon.reload()
    assert result.problems
    assert running.daemon.config_error
    await call(running.port, "/up/v1/x?5")
    assert (await call(running.port, "/up/v1/x?6")).status == 503
    file.write_text(text)
    assert not (await running.daemon.reload()).problems
    assert running.daemon.config_error is None
    assert running.breaker("up/~v1/x").state == "open"


async def test_f098_calls_while_the_configuration_reloads(start, upstream) -> None:
    running = await start({"up": upstream.url, "other": upstream.url})
    file = running.daemon._options.config
    both = file.read_text()
    one = both.replace("  other:", "  another:")
    stop = asyncio.Event()
    statuses: list[int] = []

    async def calls() -> None:
        while not stop.is_set():
            statuses.append((await call(running.port)).status)

    tasks = [asyncio.create_task(calls()) for _ in range(5)]
    for n in range(20):
        file.write_text(one if n % 2 else both)
        await running.daemon.reload()
    stop.set()
    await asyncio.gather(*tasks)
    assert set(statuses) == {200}


async def test_f144_drain_lets_calls_end(start, upstream) -> None:
    go = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await go.wait()
        await visit.send(answer(200, b"done"))

    upstream.script = script
    running = await start({"up": upstream.url}, drain={"timeout": "10s"})
    idle = await Caller.connect(running.port)
    await idle.send(request("/none/x"))
    await idle.answer()
    caller = await Caller.connect(running.port)
    await caller.send(request())
    while not upstream.hits:
        await asyncio.sleep(0.01)
    daemon = running.daemon
    task = asyncio.create_task(daemon.run())
    daemon.stop()
    assert await idle.reader.read() == b""
    with pytest.raises(ConnectionError):
        await Caller.connect(running.port)
    assert not task.done()
    go.set()
    found = await caller.answer()
    assert (found.body, found.get("connection")) == (b"done", "close")
    await task
    caller.close()


async def test_what_outlasts_the_drain_is_cut_honestly(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await visit.closed()

    upstream.script = script
    running = await start({"up": upstream.url}, drain={"timeout": "50ms"})
    caller = await Caller.connect(running.port)
    await caller.send(request("/up/v1/chat/completions", "POST", chat()))
    while not upstream.hits:
        await asyncio.sleep(0.01)
    running.daemon.stop()
    await running.daemon.run()
    await running.daemon.close()
    found = await caller.answer()
    assert (found.status, found.envelope["code"]) == (503, "draining")
    assert running.calls[-1].ending == "shutdown"
    caller.close()


async def test_an_upload_under_way_ends_by_itself_in_the_drain(start, upstream) -> None:
    running = await start({"up": upstream.url}, drain={"timeout": "10s"})
    caller = await Caller.connect(running.port)
    await caller.send(
        request("/up/x", "POST", None, ("Content-Length", "10"), ("Content-Type", "image/x")),
        b"12345",
    )
    while not upstream.hits:
        await asyncio.sleep(0.01)
    task = asyncio.create_task(running.daemon.run())
    running.daemon.stop()
    await asyncio.sleep(0.1)
    assert not task.done()
    await caller.send(b"67890")
    found = await caller.answer()
    assert (found.status, found.get("connection")) == (200, "close")
    assert upstream.requests[0].body == b"1234567890"
    await task


async def test_http10_with_expect_is_not_told_to_go_on(start, upstream) -> None:
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(
        b"POST /up/x HTTP/1.0\r\nHost: localhost\r\nContent-Length: 2\r\n"
        b"Expect: 100-continue\r\n\r\n"
    )
    await asyncio.sleep(0.05)
    await caller.send(b"{}")
    line, _, _ = await caller.head()
    assert line.startswith(b"HTTP/1.1 200")


async def test_a_caller_that_writes_on_still_reads_its_refusal(start, upstream) -> None:
    running = await start({"up": upstream.url})
    caller = await Caller.connect(running.port)
    await caller.send(b"GET /up/x HTTP/1.1\r\nHost: localhost\r\nX : a\r\n")
    for _ in range(20):
        await caller.send(b"x" * 10_000)
        await asyncio.sleep(0.005)
    found = await caller.answer()
    assert (found.status, found.clean) == (400, True)
