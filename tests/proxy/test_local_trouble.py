"""Trouble of this machine's own: told as such, and no breaker moves for it."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest
import trustme

from sidecar.breaker import network as pure
from sidecar.proxy import clocks, network_watch, resolver
from sidecar.proxy import upstream as upstream_module

from .callers import call, chat
from .conftest import Running
from .upstreams import Upstream, Visit, answer, says

JSON = ("Content-Type", "application/json")


def closed_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as sock:
        sock.bind((host, 0))
        return int(sock.getsockname()[1])


async def ask(running: Running, provider: str, n: int = 0):
    return await call(running.port, f"/{provider}/v1/chat/completions", "POST", chat(n=n), JSON)


async def status(running: Running):
    return json.loads((await call(running.admin_port, "/status")).body)


def shots(running: Running):
    now = time.monotonic()
    registry = running.daemon.registry
    return [shot for name in ("one", "two") for shot in registry.snapshots(name, now)]


@pytest.fixture
async def unreachable(start):
    """Two providers on two hosts, both refused."""
    ports = closed_port("127.0.0.2"), closed_port("127.0.0.3")
    providers = {
        "one": f"http://127.0.0.2:{ports[0]}",
        "two": f"http://127.0.0.3:{ports[1]}",
    }
    return await start(providers), ports


async def test_all_unreachable_at_once_is_nobody_elses_fault(unreachable) -> None:
    running, _ = unreachable
    first = await ask(running, "one")
    assert (first.status, first.envelope["code"]) == (502, "connection_refused")
    for n in range(20):
        found = await ask(running, "two" if n % 2 else "one", n)
        if n == 0:
            continue
        assert (found.status, found.get("x-sidecar-decision")) == (503, "local_network")
        envelope = found.envelope
        assert envelope["source"] == "sidecar"
        assert (envelope["class"], envelope["code"]) == ("transient", "local_network_down")
        assert envelope["retryable"] is True
        assert 0 < envelope["retry_after"] <= 5
        assert found.get("x-sidecar-verdict") is None
    assert (await status(running))["network"] == "down"
    assert {shot.state.value for shot in shots(running)} == {"closed"}
    assert sum(shot.window.failure for shot in shots(running)) == 0, "taken back"
    assert (await call(running.admin_port, "/readyz")).status == 200


async def test_what_one_host_had_done_before_the_second_failed_is_taken_back(unreachable) -> None:
    running, _ = unreachable
    for n in range(6):
        await ask(running, "one", n)
    assert running.breaker("one").state == "open"
    assert (await ask(running, "two")).get("x-sidecar-decision") == "local_network"
    assert {shot.state.value for shot in shots(running)} == {"closed"}


async def test_it_is_over_within_five_seconds(unreachable, monkeypatch) -> None:
    """Waits are tenths: the probe comes each 0.45 s."""
    monkeypatch.setattr(pure, "PROBE_EVERY", pure.PROBE_EVERY / 10)
    running, ports = unreachable
    await ask(running, "one")
    await ask(running, "two")
    assert (await status(running))["network"] == "down"
    back = Upstream(says(answer()))
    back.server = await asyncio.start_server(back._serve, "127.0.0.3", ports[1])
    returned = time.monotonic()
    async with asyncio.timeout(20):
        while (await status(running))["network"] != "up":
            await asyncio.sleep(0.01)
    assert time.monotonic() - returned < 0.5 + 0.5
    assert not back.requests, "a probe sends nothing"
    assert (await ask(running, "two")).status == 200
    await back.stop()


async def test_a_local_model_goes_on_while_the_network_is_down(start, upstream) -> None:
    running = await start(
        {
            "one": f"http://127.0.0.2:{closed_port('127.0.0.2')}",
            "two": f"http://127.0.0.3:{closed_port('127.0.0.3')}",
            "up": upstream.url,
        }
    )
    await ask(running, "one")
    await ask(running, "two")
    for n in range(5):
        assert (await ask(running, "up", n)).status == 200
    assert (await status(running))["network"] == "down"


async def test_two_ports_of_one_host_are_one_host(start) -> None:
    """A machine whose services are down is no network that is down."""
    running = await start({name: f"http://127.0.0.1:{closed_port()}" for name in ("one", "two")})
    for n in range(5):
        for name in ("one", "two"):
            assert (await ask(running, name, n)).status == 502
    assert (await status(running))["network"] == "up"
    assert running.breaker("one").state == running.breaker("two").state == "open"


async def test_in_observe_and_off_calls_are_tried_all_the_same(start) -> None:
    for mode in ("observe", "off"):
        hosts = ("127.0.0.2", "127.0.0.3")
        running = await start(
            {
                f"p{n}": {"upstream": f"http://{host}:{closed_port(host)}", "mode": mode}
                for n, host in enumerate(hosts)
            }
        )
        for n in range(4):
            found = await ask(running, f"p{n % 2}", n)
        assert found.envelope["code"] == "local_network_down"
        assert found.envelope["message"].endswith("connection refused"), "it was tried"


async def test_what_it_says_in_log_and_facts(unreachable) -> None:
    running, _ = unreachable
    facts: list = []
    running.daemon.observer.add(facts.append)
    await ask(running, "one")
    await ask(running, "two")
    changes = [fact for fact in facts if isinstance(fact, pure.NetworkChange)]
    assert [(one.down, one.hosts) for one in changes] == [(True, {"127.0.0.2", "127.0.0.3"})]
    assert "network down" in running.daemon._status_line()


# -- what names this machine by itself ----------------------------------------------------------


def fails(monkeypatch, error: Exception) -> None:
    """Every new connection ends with this error, as the operating system would raise it."""

    async def connect(*_args, **_more):
        raise error

    monkeypatch.setattr("aiohappyeyeballs.start_connection", connect)
    monkeypatch.setattr("aiohttp.connector.aiohappyeyeballs.start_connection", connect)


@pytest.mark.parametrize(
    "error",
    [
        OSError(101, "Network is unreachable"),
        OSError(100, "Network is down"),
        PermissionError(1, "Operation not permitted"),
        OSError("Multiple exceptions: [Errno 101] Connect call failed, [Errno 101] Connect ..."),
    ],
)
async def test_no_way_out_is_known_at_once(start, monkeypatch, error: OSError) -> None:
    running = await start({"one": "http://192.0.2.1:9", "two": "http://198.51.100.1:9"})
    fails(monkeypatch, error)
    found = await ask(running, "one")
    assert (found.status, found.envelope["code"]) == (503, "local_network_down")
    assert (await status(running))["network"] == "down"
    assert sum(shot.window.failure for shot in shots(running)) == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(113, "No route to host"), "connection_reset"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 101] Connect"),
            "connection_refused",
        ),
        (ConnectionRefusedError(111, "Connection refused"), "connection_refused"),
    ],
)
async def test_what_one_host_may_have_done_itself_is_its_own(
    start, monkeypatch, error: OSError, code: str
) -> None:
    running = await start({"one": "http://192.0.2.1:9", "two": "http://198.51.100.1:9"})
    fails(monkeypatch, error)
    found = await ask(running, "one")
    assert (found.status, found.envelope["code"]) == (502, code)
    assert running.breaker("one").window.failure == 1
    assert (await status(running))["network"] == "up"


async def test_a_resolver_that_says_try_again(start, monkeypatch) -> None:
    def again(*_args, **_more):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    running = await start({"one": "http://api.one.example", "two": "http://api.two.example"})
    monkeypatch.setattr(socket, "getaddrinfo", again)
    found = await ask(running, "one")
    assert (found.status, found.envelope["code"]) == (503, "local_network_down")
    assert "try again" in found.envelope["message"]


async def test_a_name_that_does_not_exist_is_the_hosts(start, monkeypatch) -> None:
    def unknown(*_args, **_more):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    running = await start({"one": "http://api.one.example", "two": "http://api.two.example"})
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    for name in ("one", "two", "one", "two"):
        found = await ask(running, name)
        assert (found.status, found.envelope["code"]) == (502, "dns_failure")
    monkeypatch.setattr(network_watch, "NAMES_ANSWER", False)
    await ask(running, "one")
    assert (await ask(running, "two")).envelope["code"] == "local_network_down"


async def test_an_egress_proxy_that_is_gone(start) -> None:
    section = {"upstream": "https://api.one.example", "proxy": f"http://127.0.0.1:{closed_port()}"}
    running = await start({"one": section, "two": "http://192.0.2.1:9"})
    found = await ask(running, "one")
    assert (found.status, found.envelope["code"]) == (503, "local_network_down")
    assert "egress proxy" in found.envelope["message"]


# -- shortages ----------------------------------------------------------------------------------


async def test_lookups_that_hang_block_nobody_elses(start, monkeypatch, upstream) -> None:
    """The resolver is silent about one provider's name; the other's is asked all the same."""
    release, real = threading.Event(), socket.getaddrinfo

    def silent(host, *args, **more):
        if host.endswith("silent.example"):
            release.wait(20)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real("127.0.0.1", *args[:1], **more)

    names = [f"h{n}.silent.example" for n in range(40)]
    timeouts = {"timeouts": {"connect": "200ms"}}
    running = await start(
        {name.split(".")[0]: {"upstream": f"http://{name}", **timeouts} for name in names}
        | {"up": f"http://api.two.example:{upstream.port}"}
    )
    monkeypatch.setattr(socket, "getaddrinfo", silent)
    asked = [asyncio.create_task(ask(running, name.split(".")[0])) for name in names]
    assert (await ask(running, "up")).status == 200
    await asyncio.gather(*asked)
    release.set()


async def test_out_of_resolver_threads_is_nobody_elses_fault(start, monkeypatch) -> None:
    monkeypatch.setattr(resolver, "_threads", threading.Semaphore(0))
    running = await start({"one": "http://api.one.example"})
    for n in range(6):
        found = await ask(running, "one", n)
        assert (found.status, found.get("x-sidecar-decision")) == (502, "connect_error")
        assert (found.envelope["source"], found.envelope["code"]) == ("sidecar", "local_resource")
        assert found.get("x-sidecar-verdict") == "neutral"
    assert running.breaker("one").state == "closed"


async def stall(running: Running, seconds: float) -> None:
    """The loop does not run for a while, in the middle of whatever it does."""
    time.sleep(seconds)
    await asyncio.sleep(0)


async def waiting(running: Running, upstream: Upstream) -> asyncio.Task:
    task = asyncio.create_task(ask(running, "up"))
    async with asyncio.timeout(20):
        while not upstream.hits:
            await asyncio.sleep(0.005)
    return task


@pytest.fixture
def short(monkeypatch) -> None:
    monkeypatch.setattr(clocks, "STALLED", 0.1)
    monkeypatch.setattr(clocks, "GRACE", 0.1)


async def test_an_answer_that_came_while_the_loop_stood_still(start, upstream, short) -> None:
    """In the socket in time, and read too late by our own fault alone."""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        await asyncio.sleep(0.02)
        time.sleep(0.5)
        await visit.send(answer())

    upstream.script = script
    running = await start({"up": {"upstream": upstream.url, "timeouts": {"first_byte": "200ms"}}})
    assert (await ask(running, "up")).status == 200


async def test_a_timeout_over_a_stall_is_nobody_elses_fault(start, upstream, short) -> None:
    async def silent(visit: Visit) -> None:
        await visit.closed()

    upstream.script = silent
    running = await start({"up": {"upstream": upstream.url, "timeouts": {"first_byte": "200ms"}}})
    task = await waiting(running, upstream)
    await stall(running, 0.5)
    found = await task
    assert (found.status, found.get("x-sidecar-decision")) == (504, "timeout")
    assert (found.envelope["source"], found.envelope["code"]) == ("sidecar", "loop_stalled")
    assert found.get("x-sidecar-verdict") == "neutral"


async def test_a_timeout_without_a_stall_is_the_upstreams(start, upstream) -> None:
    async def silent(visit: Visit) -> None:
        await visit.closed()

    upstream.script = silent
    running = await start({"up": {"upstream": upstream.url, "timeouts": {"first_byte": "50ms"}}})
    assert (await ask(running, "up")).envelope["code"] == "first_byte_timeout"


async def test_a_connection_that_was_made_while_the_loop_stood_still(
    start, monkeypatch, short
) -> None:
    async def slow(*_args, **_more):
        await asyncio.sleep(0)
        time.sleep(0.5)
        await asyncio.sleep(0.2)

    running = await start(
        {"one": {"upstream": "http://192.0.2.1:9", "timeouts": {"connect": "200ms"}}}
    )
    monkeypatch.setattr("aiohttp.connector.aiohappyeyeballs.start_connection", slow)
    found = await ask(running, "one")
    assert (found.status, found.envelope["code"]) == (502, "loop_stalled")
    assert (found.envelope["source"], found.get("x-sidecar-verdict")) == ("sidecar", "neutral")


# -- whom this machine trusts -------------------------------------------------------------------


@pytest.fixture
async def strangers():
    """Two servers on two hosts whose certificates were issued by nobody that is known here."""
    servers = []
    for host in ("127.0.0.2", "127.0.0.3"):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        trustme.CA().issue_cert(host).configure_cert(context)
        server = Upstream(says(answer()))
        server.server = await asyncio.start_server(server._serve, host, 0, ssl=context)
        server.port = server.server.sockets[0].getsockname()[1]
        servers.append((f"https://{host}:{server.port}", server))
    yield [url for url, _ in servers]
    for _, server in servers:
        await server.stop()


async def test_one_stranger_is_its_own_fault_and_two_are_this_machines(start, strangers) -> None:
    running = await start(dict(zip(("one", "two"), strangers, strict=True)))
    for n in range(2):
        found = await ask(running, "one", n)
        assert (found.status, found.envelope["code"]) == (502, "tls_failure")
        assert found.get("x-sidecar-verdict") == "failure"
    for n in range(6):
        found = await ask(running, "two", n)
        assert (found.status, found.envelope["code"]) == (502, "untrusted_ca")
        assert (found.envelope["source"], found.envelope["retryable"]) == ("sidecar", False)
        assert found.get("x-sidecar-verdict") == "neutral"
    assert running.breaker("two").state == "closed"
    assert (await status(running))["network"] == "up"


async def test_a_machine_that_trusts_nobody(start, strangers, monkeypatch) -> None:
    monkeypatch.setattr(upstream_module, "trusts_nobody", lambda _: True)
    running = await start({"one": strangers[0]})
    assert (await ask(running, "one")).envelope["code"] == "untrusted_ca"
    assert running.breaker("one").window.failure == 0


def test_whom_a_context_trusts() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trustme.CA().configure_trust(context)
    assert not upstream_module.trusts_nobody(context)
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    folder = ssl.get_default_verify_paths().capath
    known = folder is not None and any(Path(folder).iterdir())
    assert upstream_module.trusts_nobody(bare) is not known
