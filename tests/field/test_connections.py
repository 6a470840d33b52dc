"""Area proxy, connections: names, addresses, reloads, and callers that stop halfway."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from sidecar.proxy import upstream as upstream_module
from tests.proxy.callers import Caller, call, chat, request
from tests.proxy.upstreams import Upstream, Visit, answer, says

from .scene import JSON, OK, ask, base, closed, counted, until

Names = dict[str, list[str]]


@pytest.fixture
async def names(monkeypatch) -> Names:
    """A resolver that knows what a test tells it; any other name does not exist."""
    known: Names = {}
    resolve = socket.getaddrinfo

    def stub(host, port, *args, **more):
        if host not in known:
            if host in (None, "127.0.0.1", "::1", "localhost"):
                return resolve(host, port, *args, **more)
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        found = []
        for address in known[host]:
            kind = socket.AF_INET6 if ":" in address else socket.AF_INET
            where = (address, port, 0, 0) if ":" in address else (address, port)
            found.append((kind, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", where))
        return found

    monkeypatch.setattr(socket, "getaddrinfo", stub)
    return known


async def _second_address(upstream: Upstream) -> Upstream:
    """Another server on the same port of another loopback address."""
    other = Upstream(says(OK))
    other.server = await asyncio.start_server(other._serve, "127.0.0.2", upstream.port, limit=2**20)
    other.port = upstream.port
    return other


async def test_f095_a_service_that_moved_is_found_again(
    start, upstream, names, monkeypatch
) -> None:
    monkeypatch.setattr(upstream_module, "DNS_TTL", 0.05)
    upstream.script = says(OK)
    names["api.example.test"] = ["127.0.0.1"]
    running = await start({"up": base(f"http://api.example.test:{upstream.port}", proxy=None)})
    assert (await ask(running)).status == 200
    other = await _second_address(upstream)
    names["api.example.test"] = ["127.0.0.2"]
    await upstream.stop()
    await until(lambda: not upstream.open_connections)
    # The cached address may still be tried until its time is over; then one attempt must do.
    await asyncio.sleep(0.06)
    found = [(await ask(running, n=n)).status for n in range(2)]
    assert found[-1] == 200
    assert other.hits >= 1
    await other.stop()


async def test_f095_the_second_address_is_tried_in_the_same_call(start, upstream, names) -> None:
    upstream.script = says(OK)
    names["api.example.test"] = ["127.0.0.3", "127.0.0.1"]
    running = await start({"up": base(f"http://api.example.test:{upstream.port}", proxy=None)})
    for n in range(3):
        assert (await ask(running, n=n)).status == 200
    assert (upstream.hits, counted(running), closed(running)) == (3, 0, True)


async def test_f095_a_black_hole_on_ipv6_delays_nobody_for_long(
    start, upstream, names, monkeypatch
) -> None:
    loop = asyncio.get_running_loop()
    connect: Callable[..., Awaitable[None]] = loop.sock_connect
    tried = []

    async def black_hole(sock, address):
        if sock.family == socket.AF_INET6:
            tried.append(address)
            await asyncio.Event().wait()
        await connect(sock, address)

    monkeypatch.setattr(loop, "sock_connect", black_hole)
    upstream.script = says(OK)
    names["api.example.test"] = ["2001:db8::1", "127.0.0.1"]
    section = base(
        f"http://api.example.test:{upstream.port}", proxy=None, timeouts={"connect": "30s"}
    )
    running = await start({"up": section})
    # Within the connect timeout of 30 s it could only come by way of the other address.
    async with asyncio.timeout(10):
        assert (await ask(running)).status == 200
    assert tried
    assert (counted(running), closed(running)) == (0, True)


@pytest.mark.parametrize("network", [True, False])
async def test_f097_one_bad_name_keeps_nobody_down(
    start, upstream, names, network, monkeypatch
) -> None:
    if network:
        names["a.test"] = names["b.test"] = ["127.0.0.1"]
    upstream.script = says(OK)
    port = upstream.port
    running = await start(
        {
            "one": base(f"http://a.test:{port}", proxy=None),
            "two": base(f"http://b.test:{port}", proxy=None),
            "three": base(f"http://c.invalid:{port}", proxy=None),
        }
    )
    assert (await call(running.admin_port, "/readyz")).status == 200
    for name in ("one", "two"):
        found = await call(running.port, f"/{name}/v1/chat/completions", "POST", chat(), JSON)
        assert found.status == (200 if network else 502)
        assert network or found.envelope["code"] == "dns_failure"
    found = await call(running.port, "/three/v1/chat/completions", "POST", chat(), JSON)
    assert (found.status, found.envelope["code"]) == (502, "dns_failure")
    assert "c.invalid" in found.envelope["message"]


async def test_f098_reloads_close_nothing_under_running_calls(start, upstream) -> None:
    async def script(visit: Visit) -> None:
        await visit.read_body()
        await asyncio.sleep(0.002)
        await visit.send(OK)

    upstream.script = script
    running = await start({"up": base(upstream.url), "other": base(upstream.url)})
    file = running.daemon._options.config
    both = file.read_text()
    one = both.replace("  other:", "  another:")
    slower = both.replace("keep_alive: 1", "keep_alive: 2").replace("connect: 1s", "connect: 2s")
    assert len({both, one, slower}) == 3
    stop = asyncio.Event()
    statuses: dict[str, set[int]] = {"up": set(), "other": set()}
    calls = 0

    async def agent(name: str) -> None:
        nonlocal calls
        while not stop.is_set():
            found = await call(
                running.port, f"/{name}/v1/chat/completions", "POST", chat(n=calls), JSON
            )
            statuses[name].add(found.status)
            calls += 1

    agents = [asyncio.create_task(agent(name)) for name in ("up", "other") * 3]
    for n in range(45):
        file.write_text((one, both, slower)[n % 3])
        assert not (await running.daemon.reload()).problems
        before = calls
        await until(lambda before=before: calls > before)
    stop.set()
    await asyncio.gather(*agents)
    assert statuses["up"] == {200}
    assert statuses["other"] <= {200, 404}
    assert not running.faults


async def _upload_begun(running, upstream: Upstream, *framing: tuple[str, str]) -> Caller:
    caller = await Caller.connect(running.port)
    kind = ("Content-Type", "image/png")
    await caller.send(request("/up/x", "POST", None, *framing, kind))
    await until(lambda: upstream.hits == 1)
    return caller


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("stalls", [False, True])
async def test_f099_half_an_upload_is_never_finished_for_the_caller(
    start, upstream, chunked, stalls
) -> None:
    received = bytearray()
    ended = asyncio.Event()

    async def script(visit: Visit) -> None:
        try:
            while part := await visit.reader.read(65536):
                received.extend(part)
        except ConnectionError:
            pass
        ended.set()
        visit.keep = False

    upstream.script = script
    running = await start({"up": base(upstream.url, timeouts={"client": "300ms"})})
    framing = ("Transfer-Encoding", "chunked") if chunked else ("Content-Length", "10000000")
    caller = await _upload_begun(running, upstream, framing)
    part = b"y" * 300_000
    for _ in range(10):
        await caller.send(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
    if stalls:
        raw = await caller.reader.read()
        # A caller that merely stopped is told so, if it is told anything.
        assert raw == b"" or b" 408 " in raw.split(b"\r\n")[0]
    else:
        caller.close()
    await ended.wait()
    assert not received.endswith(b"0\r\n\r\n")
    assert len(received) < 3_100_000
    await until(lambda: running.calls)
    assert running.calls[0].verdict == "neutral"
    assert (counted(running), closed(running)) == (0, True)


async def test_f099_the_callers_clock_is_the_providers_own(start, upstream) -> None:
    """`timeouts.client` may be repeated under a provider, and is that provider's then."""
    ended = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.closed()
        ended.set()
        visit.keep = False

    upstream.script = script
    running = await start(
        {
            "up": base(upstream.url, timeouts={"client": "200ms"}),
            "patient": base(upstream.url, timeouts={"client": "300s"}),
        }
    )
    caller = await _upload_begun(running, upstream, ("Content-Length", "1000"))
    await caller.send(b"abc")
    async with asyncio.timeout(10):
        await ended.wait()
    await until(lambda: running.calls)
    assert running.calls[0].verdict == "neutral"


async def test_f099_a_stalled_upload_before_the_model_is_known(start, upstream) -> None:
    """The caller stops while the daemon still reads its body: nothing reaches the upstream."""
    running = await start({"up": base(upstream.url, timeouts={"client": "200ms"})})
    caller = await Caller.connect(running.port)
    await caller.send(
        request("/up/v1/chat/completions", "POST", None, JSON, ("Content-Length", "1000")),
        b'{"messages": [',
    )
    raw = await caller.reader.read()
    assert raw == b"" or b" 408 " in raw.split(b"\r\n")[0]
    assert (upstream.hits, counted(running)) == (0, 0)
    await until(lambda: running.calls)
    assert running.calls[0].ending == "client_left"
    upstream.script = says(answer())
    assert (await call(running.port, "/up/x")).status == 200
