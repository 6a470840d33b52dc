"""Addresses that are taken: said in one line, with exit code 69, and nothing half started."""

from __future__ import annotations

import signal
import socket

import pytest

from tests.field.process import Process
from tests.field.scene import OK, ask, base
from tests.proxy.callers import Caller, call
from tests.proxy.upstreams import says


@pytest.fixture
def taken():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]


@pytest.mark.parametrize("plane", ["listen", "admin", "probe"])
async def test_a_listener_in_use(tmp_path, upstream, taken, plane) -> None:
    address = f"127.0.0.1:{taken}"
    top = {"listen": address} if plane == "listen" else {plane: {"listen": address}}
    one = Process(tmp_path / "x", {"up": base(upstream.url)}, state_file="state.json", **top)
    assert await one.exit_code() == 69
    (line,) = one.log.read_text().splitlines()
    assert address in line
    assert "in use" in line
    # What never served keeps nothing either.
    assert {path.name for path in one.config.parent.iterdir()} == {"breakers.yaml", "log-0"}


async def test_one_of_several(tmp_path, upstream, taken) -> None:
    """The free one is not left open by a daemon that gives up."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        free = sock.getsockname()[1]
    listen = [f"127.0.0.1:{free}", f"127.0.0.1:{taken}"]
    one = Process(tmp_path / "x", {"up": base(upstream.url)}, listen=listen)
    assert await one.exit_code() == 69
    with pytest.raises(ConnectionError):
        await Caller.connect(free)


async def test_a_port_is_free_again_at_once(process, upstream) -> None:
    """Killed in the middle of calls, the next daemon of the same address starts."""
    upstream.script = says(OK)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    one = await process({"up": base(upstream.url)}, listen=f"127.0.0.1:{port}")
    for _ in range(3):
        caller = await Caller.connect(one.port)
        assert caller is not None
        assert (await ask(one)).status == 200
        one.kill()
        one.spawn()
        await one.listening()
    assert (await ask(one)).status == 200


async def test_a_socket_that_a_killed_daemon_left(process, upstream, tmp_path) -> None:
    upstream.script = says(OK)
    path = tmp_path / "in.sock"
    one = await process({"up": base(upstream.url)}, listen=["127.0.0.1:0", f"unix:{path}"])
    second = Process(tmp_path / "second", {"up": base(upstream.url)}, listen=f"unix:{path}")
    assert await second.exit_code() == 69
    assert len(second.log.read_text().splitlines()) == 1
    # The one that serves still does.
    assert (await ask(one)).status == 200
    assert path.is_socket()
    one.kill()
    assert path.is_socket()
    one.spawn()
    await one.listening()
    assert (await call(one.port, "/none/x")).status == 404
    one.signal(signal.SIGTERM)
    assert await one.exit_code() == 0
    assert not path.exists()


async def test_an_address_that_does_not_exist(tmp_path, upstream) -> None:
    one = Process(tmp_path / "x", {"up": base(upstream.url)}, listen="192.0.2.1:7600")
    assert await one.exit_code() == 69
    assert len(one.log.read_text().splitlines()) <= 2  # a warning that others can reach it
    assert "Traceback" not in one.log.read_text()
