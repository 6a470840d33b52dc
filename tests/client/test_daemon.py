"""The daemon as it may be: there, away, silent, slow, restarted, talking nonsense, or full."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvloop

from sidecar.client import BreakerOpen, close, counts, guard
from sidecar.client import daemon as daemons
from sidecar.client.address import Address, Endpoints, parse_address

from .fake import Fake, Seen, letting_through, refusing, said, silent

PATIENT = 20.0
"""Seconds for what has to come; a test that waits for it has failed."""
Start = Callable[..., Fake]


def call(address: str, timeout: float = PATIENT, **more: Any) -> bool:
    """Whether a call was guarded."""
    with guard("orders-db", admin=address, timeout=timeout, **more) as entry:
        return entry.guarded


async def call_async(address: str, timeout: float = PATIENT) -> bool:
    async with guard("orders-db", admin=address, timeout=timeout) as entry:
        return entry.guarded


def calls(address: str, timeout: float = PATIENT) -> list[bool]:
    """A call of a thread, and one of a loop."""
    return [call(address, timeout), asyncio.run(call_async(address, timeout))]


def unused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@pytest.fixture
def asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missed daemon is asked again by the next call."""
    monkeypatch.setattr(daemons, "BACK_OFF", 0.0)


class TestThere:
    def test_a_permit_and_a_report(self, fake: Start) -> None:
        daemon = fake()
        assert calls(daemon.address) == [True, True]
        seen = daemon.wait_for(4)
        assert [one.path for one in seen] == [
            "/v1/dependencies/orders-db/permit",
            "/v1/dependencies/orders-db/report",
        ] * 2
        for one in seen:
            assert one.headers["x-sidecar-admin"] == "1"
            assert one.headers["host"] == daemon.address.removeprefix("http://")
        report = seen[1].document
        assert report["ok"] is True
        assert report["permit"].startswith("orders-db.")
        assert report["correlation_id"] == seen[0].headers["x-correlation-id"]
        assert report["duration"] >= 0
        assert (counts().permits, counts().reports, counts().unguarded) == (2, 2, 0)

    def test_one_caller_needs_one_connection(self, fake: Start) -> None:
        daemon = fake()
        for _ in range(5):
            assert calls(daemon.address) == [True, True]
        assert daemon.connections == 1

    def test_a_report_is_before_the_next_permit(self, fake: Start) -> None:
        daemon = fake()
        for _ in range(20):
            call(daemon.address)
        paths = [one.path.rpartition("/")[2] for one in daemon.wait_for(40)]
        assert paths == ["permit", "report"] * 20

    def test_a_refusal(self, fake: Start) -> None:
        daemon = fake(refusing)
        for one in (call, lambda address: asyncio.run(call_async(address))):
            with pytest.raises(BreakerOpen) as caught:
                one(daemon.address)
            envelope = caught.value.envelope
            assert (envelope.code, envelope.retry_after) == ("breaker_open", 12.5)
        assert counts().refused == 2
        assert daemon.outcomes(2) == []

    def test_over_a_unix_socket(self, fake: Start, tmp_path: Path) -> None:
        daemon = fake(path=tmp_path / "admin.sock")
        assert calls(daemon.address) == [True, True]
        assert daemon.wait_for(4)[0].headers["host"] == "localhost"

    def test_in_several_loops_and_threads_at_once(self, fake: Start) -> None:
        daemon = fake()

        async def many() -> list[bool]:
            return await asyncio.gather(*(call_async(daemon.address) for _ in range(20)))

        with ThreadPoolExecutor(8) as pool:
            loops = [pool.submit(asyncio.run, many()) for _ in range(4)]
            threads = [pool.submit(call, daemon.address) for _ in range(80)]
            assert all(all(loop.result()) for loop in loops)
            assert all(thread.result() for thread in threads)
        outcomes = daemon.outcomes(320)
        assert len({one["permit"] for one in outcomes}) <= 160 == len(outcomes)

    def test_in_a_loop_of_another_make(self, fake: Start) -> None:
        daemon = fake()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            assert runner.run(call_async(daemon.address))
            assert runner.run(call_async(daemon.address))
        assert asyncio.run(call_async(daemon.address))
        daemon.wait_for(6)
        assert daemon.connections == 1


class TestAway:
    @pytest.mark.usefixtures("asked_at_once")
    def test_nobody_listens(self) -> None:
        address = f"http://127.0.0.1:{unused_port()}"
        assert calls(address) == [False, False]
        assert counts().unguarded == 2

    @pytest.mark.usefixtures("asked_at_once")
    def test_it_says_nothing(self, fake: Start) -> None:
        daemon = fake(silent)
        assert calls(daemon.address, timeout=0.02) == [False, False]
        assert [one.path for one in daemon.wait_for(2)] == ["/v1/dependencies/orders-db/permit"] * 2

    @pytest.mark.usefixtures("asked_at_once")
    def test_it_says_a_little_at_a_time(self, fake: Start) -> None:
        """Each byte in time, the whole of it never: the budget is for all of it."""
        ended = threading.Event()
        daemon: Fake

        def dripping(seen: Seen) -> None:
            sock = daemon._open[-1]
            while not ended.wait(0.005):
                try:
                    sock.sendall(b"H")
                except OSError:
                    return

        daemon = fake(dripping)
        try:
            assert calls(daemon.address, timeout=0.05) == [False, False]
        finally:
            ended.set()

    @pytest.mark.usefixtures("asked_at_once")
    def test_its_queue_is_full(self) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            where = listener.getsockname()
            held = [socket.socket() for _ in range(4)]
            try:
                for sock in held:
                    sock.setblocking(False)
                    sock.connect_ex(where)
                assert calls(f"http://127.0.0.1:{where[1]}", timeout=0.02) == [False, False]
            finally:
                for sock in held:
                    sock.close()

    @pytest.mark.usefixtures("asked_at_once")
    @pytest.mark.parametrize(
        "answer",
        [
            b"SSH-2.0-OpenSSH\r\n\r\n",
            said({"permit": 7}),
            said([1, 2]),
            said({"permit": "x"}, 500),
            said({"error": {"code": "draining"}, "envelope": {"code": "draining"}}, 503),
            said({"envelope": {"code": "breaker_open", "class": "odd"}}, 503),
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{{{",
            said({"permit": "a"}) + said({"permit": "b"}),
        ],
    )
    def test_it_talks_nonsense(self, fake: Start, answer: bytes) -> None:
        daemon = fake(lambda _: answer)
        guarded = calls(daemon.address)
        assert guarded == [False, False] or answer.count(b"permit") == 2

    def test_after_a_miss_it_is_left_alone(self, fake: Start) -> None:
        daemon = fake(silent)
        assert not call(daemon.address, timeout=0.02)
        began = time.monotonic()
        for _ in range(100):
            assert calls(daemon.address) == [False, False]
        assert time.monotonic() - began < PATIENT
        assert len(daemon.wait_for(1)) == 1
        assert counts().unguarded == 201

    def test_then_one_call_asks_for_all(self, fake: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of many that come when the second is over only one waits."""
        address = fake(silent).address
        assert not call(address, timeout=0.02)
        later = time.monotonic() + daemons.BACK_OFF
        monkeypatch.setattr(daemons.time, "monotonic", lambda: later)
        one = daemons.daemon_at(address, None)
        assert [one._worth_asking() for _ in range(8)].count(True) == 1

    def test_it_comes_back(self, fake: Start, asked_at_once: None) -> None:
        mood: list[Callable[[Seen], bytes | None]] = [letting_through]
        daemon = fake(lambda seen: mood[0](seen))
        assert call(daemon.address)
        mood[0] = silent
        assert not call(daemon.address, timeout=0.02)
        mood[0] = letting_through
        assert calls(daemon.address) == [True, True]

    def test_it_was_restarted(self, fake: Start) -> None:
        """A kept connection that ended meanwhile costs nobody a permit."""
        daemon = fake()
        for _ in range(2):
            assert calls(daemon.address) == [True, True]
            daemon.wait_for(4)
            daemon.hang_up()
            _until_closed(daemon.address)
        assert calls(daemon.address) == [True, True]
        assert counts().unguarded == 0
        assert daemon.connections == 3

    def test_it_ends_the_connection_itself(self, fake: Start) -> None:
        daemon = fake(lambda _: said({"permit": "a"}, 200, "Connection: close"))
        for _ in range(3):
            assert call(daemon.address)
        assert daemon.connections >= 3

    def test_a_report_that_cannot_be_sent_is_counted(self, fake: Start) -> None:
        daemon = fake()
        with guard("orders-db", admin=daemon.address, timeout=PATIENT):
            daemon.close()
            close()
        assert (counts().reports, counts().dropped) == (0, 1)

    def test_a_report_holds_nobody_when_nobody_reads(self, fake: Start) -> None:
        stuck = threading.Event()

        def answer(seen: Seen) -> bytes:
            if seen.path.endswith("/report"):
                stuck.wait(PATIENT)
            return letting_through(seen)

        daemon = fake(answer)
        try:
            began = time.monotonic()
            for _ in range(50):
                with (
                    pytest.raises(ValueError),
                    guard("orders-db", admin=daemon.address, timeout=0.01),
                ):
                    raise ValueError("x" * 60000)
            assert time.monotonic() - began < PATIENT
        finally:
            stuck.set()


class TestWhatIsSaidOnce:
    def test_a_name_that_nobody_configured(
        self, fake: Start, caplog: pytest.LogCaptureFixture
    ) -> None:
        error = {"code": "unknown_dependency", "message": "no such dependency; configured: none"}
        daemon = fake(lambda _: said({"error": error}, 404))
        with caplog.at_level(logging.WARNING, "sidecar.client"):
            for _ in range(3):
                assert not call(daemon.address)
        assert len(caplog.records) == 1
        assert "no such dependency" in caplog.text
        assert len(daemon.wait_for(3)) == 3  # it is there, and is asked

    def test_a_report_that_was_refused(self, fake: Start, caplog: pytest.LogCaptureFixture) -> None:
        def answer(seen: Seen) -> bytes:
            if seen.path.endswith("/report"):
                return said({"error": {"code": "forbidden", "message": "a token is needed"}}, 403)
            return letting_through(seen)

        daemon = fake(answer)
        with caplog.at_level(logging.WARNING, "sidecar.client"):
            for _ in range(3):
                assert call(daemon.address)
        assert [record.message for record in caplog.records] == [
            f"{daemon.address} answers forbidden: a token is needed"
        ]

    def test_the_environment_names_no_daemon(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("BREAKER_SIDECAR_ADMIN", "ftp://nowhere")
        with caplog.at_level(logging.WARNING, "sidecar.client"):
            for _ in range(3):
                with guard("orders-db") as entry:
                    assert not entry.guarded
        assert len(caplog.records) == 1


class TestToken:
    @pytest.mark.parametrize("how", ["argument", "variable", "file"])
    def test_it_is_sent(
        self, fake: Start, how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        daemon = fake()
        monkeypatch.setenv("BREAKER_SIDECAR_ADMIN", daemon.address)
        (tmp_path / "token").write_text("s3cret\n")
        if how == "variable":
            monkeypatch.setenv("BREAKER_SIDECAR_TOKEN", "s3cret")
        elif how == "file":
            monkeypatch.setenv("BREAKER_SIDECAR_TOKEN_FILE", str(tmp_path / "token"))
        token = "s3cret" if how == "argument" else None
        with guard("orders-db", timeout=PATIENT, token=token):
            pass
        assert [one.headers["authorization"] for one in daemon.wait_for(2)] == ["Bearer s3cret"] * 2

    def test_a_file_that_is_not_there_costs_no_call(self, monkeypatch: Any) -> None:
        monkeypatch.setenv("BREAKER_SIDECAR_TOKEN_FILE", "/nowhere")
        with guard("orders-db") as entry:
            assert not entry.guarded

    def test_it_cannot_smuggle_a_header(self) -> None:
        with pytest.raises(ValueError, match="token"):
            guard("orders-db", admin="http://localhost:1", token="a\r\nx: y")


class TestAddress:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("http://localhost:7601", Address("localhost", 7601)),
            ("http://127.0.0.1:80/", Address("127.0.0.1", 80)),
            ("http://[::1]:7601", Address("::1", 7601)),
            ("localhost", Address("localhost", 7601)),
            ("10.0.0.1:99", Address("10.0.0.1", 99)),
            ("unix:/run/admin.sock", Address(path="/run/admin.sock")),
            ("http://a:1,http://b:2", Address("a", 1)),
        ],
    )
    def test_read(self, text: str, expected: Address) -> None:
        assert parse_address(text) == expected

    @pytest.mark.parametrize(
        "text", ["", "https://localhost:1", "ftp://x", "http://x:99999", "http://", "http://x/y"]
    )
    def test_refused(self, text: str) -> None:
        with pytest.raises(ValueError):
            parse_address(text)
        with pytest.raises(ValueError):
            guard("orders-db", admin=text)

    def test_a_resolver_that_is_silent_holds_nobody(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answering = threading.Event()

        def resolve(host: str, port: int, **_: Any) -> Any:
            answering.wait(PATIENT)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        endpoints = Endpoints(Address("sidecar", 7601))
        assert endpoints.known(0.01) == []
        assert endpoints.known(0) == []
        answering.set()
        assert endpoints.known(PATIENT) == [(socket.AF_INET, ("127.0.0.1", 7601))]

    def test_localhost_is_either_loopback(self, fake: Start) -> None:
        port = fake().address.rpartition(":")[2]
        assert calls(f"http://localhost:{port}") == [True, True]
        if not socket.has_ipv6:
            return
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as listener:
            try:
                listener.bind(("::1", 0))
            except OSError:
                return
            listener.listen()
            where = listener.getsockname()

            def serve() -> None:
                sock, _ = listener.accept()
                with sock:
                    sock.recv(65536)
                    sock.sendall(said({"permit": "a"}))
                    sock.recv(65536)

            thread = threading.Thread(target=serve)
            thread.start()
            assert call(f"http://localhost:{where[1]}")
            thread.join()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
class TestProcesses:
    def test_a_child_uses_no_connection_of_its_parent(self, fake: Start) -> None:
        daemon = fake()
        assert call(daemon.address)
        daemon.wait_for(2)
        child = os.fork()
        if not child:
            os._exit(0 if call(daemon.address) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert call(daemon.address)
        daemon.wait_for(6)
        assert daemon.connections == 2

    def test_a_child_leaves_the_report_to_its_parent(self, fake: Start) -> None:
        daemon = fake()
        with guard("orders-db", admin=daemon.address, timeout=PATIENT):
            child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        assert len(daemon.outcomes(2)) == 1


def _until_closed(address: str) -> None:
    """Until the end of every kept connection has arrived."""
    lines = daemons.daemon_at(address, None)._lines
    for line in tuple(lines._idle):
        line.sock.settimeout(PATIENT)
        while line.sock.recv(65536, socket.MSG_PEEK) and line.sock.recv(65536):
            pass
