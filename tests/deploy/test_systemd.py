"""The daemon under a service manager: each datagram, the watchdog, handed-over sockets, the units."""

from __future__ import annotations

import asyncio
import http.server
import itertools
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from sidecar.service_manager import ServiceManager
from tests.conftest import need

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "systemd"
SANDBOX = Path(__file__).with_name("sandbox.py")
HANG = 20
CREDENTIALS = struct.Struct("iII")


class Manager:
    """Plays systemd: a notify socket that tells who sent each datagram."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.settimeout(HANG)
        self.senders: set[int] = set()

    def next(self, *wanted: str) -> dict[str, str]:
        """The next datagram, pings left out unless they are wanted; of these keys, if given."""
        while True:
            data, more, _, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(CREDENTIALS.size))
            for _, kind, value in more:
                if kind == socket.SCM_CREDENTIALS:
                    self.senders.add(CREDENTIALS.unpack(value)[0])
            told = dict(line.split("=", 1) for line in data.decode().splitlines())
            if all(key in told for key in wanted) and (wanted or "WATCHDOG" not in told):
                return told


@pytest.fixture
def manager(tmp_path):
    made = Manager(str(tmp_path / "notify"))
    yield made
    made.socket.close()


class Started:
    def __init__(self, folder, environ, providers=None, *, handed=(), top=None, within=()):
        self.config = folder / "breakers.yaml"
        self.document = {
            "listen": "127.0.0.1:0",
            "admin": {"listen": "127.0.0.1:0"},
            "providers": providers or {"up": {"upstream": "http://127.0.0.1:1"}},
            "drain": {"timeout": "1s"},
            **(top or {}),
        }
        self.write()
        self.log = folder / "log"
        command = [sys.executable, "-W", "error", "-m", "sidecar", "serve"]
        command += ["--config", str(self.config), "--log-format", "json"]
        command = [*within, *command]
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environ}
        if handed:
            # Only the process itself can say its number, as a manager does between fork and exec.
            names = ":".join(name for name, _ in handed)
            script = (
                f'import os,sys\nos.environ["LISTEN_PID"]=str(os.getpid())\n'
                f'os.environ["LISTEN_FDS"]="{len(handed)}"\nos.environ["LISTEN_FDNAMES"]="{names}"\n'
                f"os.execv(sys.executable, {command!r})\n"
            )
            command = [sys.executable, "-c", script]
        with self.log.open("wb") as stream:
            self.process = subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                preexec_fn=(lambda: _hand_over(handed)) if handed else None,
                close_fds=not handed,
            )

    def write(self, **more):
        self.config.write_text(yaml.safe_dump({**self.document, **more}))

    def listening(self):
        """Where it listens; its log is written beside the loop, so READY may come before the line."""
        deadline = time.monotonic() + HANG
        while time.monotonic() < deadline:
            for line in self.log.read_text().splitlines(keepends=True):
                told = json.loads(line) if line.endswith("\n") else {"event": ""}
                if told["event"] == "daemon.listening":
                    return told["addresses"]
            time.sleep(0.01)
        raise AssertionError(self.log.read_text())

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(HANG)


def _hand_over(handed):
    for index, (_, sock) in enumerate(handed):
        os.dup2(sock.fileno(), 3 + index)


@pytest.fixture
def start(tmp_path):
    running = []

    def begin(environ, **more):
        running.append(Started(tmp_path, environ, **more))
        return running[-1]

    yield begin
    for one in running:
        one.end()


def test_f141_a_whole_life(manager, start, tmp_path):
    started = start({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "900000"})
    ready = manager.next("READY")
    assert ready == {"READY": "1", "STATUS": "1 provider, all up; 0 calls under way"}
    # READY means that a call is answered.
    address = started.listening()["listen"][0]
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"http://{address}/nobody/x", timeout=HANG)
    for _ in range(4):
        assert manager.next("WATCHDOG") == {"WATCHDOG": "1"}

    started.write(log={"level": "debug"})
    started.process.send_signal(signal.SIGHUP)
    reloading = manager.next("RELOADING")
    assert reloading["RELOADING"] == "1"
    assert int(reloading["MONOTONIC_USEC"]) > 0
    assert manager.next("READY")["STATUS"].startswith("1 provider, all up")

    started.write(providers={"up": {"upstraem": "http://127.0.0.1:1"}})
    started.process.send_signal(signal.SIGHUP)
    manager.next("RELOADING")
    told = manager.next("READY")["STATUS"]
    assert "the last reload was refused" in told
    assert "upstraem" in told

    started.process.send_signal(signal.SIGTERM)
    stopping = manager.next("STOPPING")
    assert stopping["STATUS"] == "draining, 0 calls under way"
    assert int(stopping["EXTEND_TIMEOUT_USEC"]) == 6_000_000
    assert started.process.wait(HANG) == 0
    # Every word came from the daemon's own process.
    assert manager.senders == {started.process.pid}


def test_f141_an_abstract_name(start):
    name = f"@breaker-sidecar-test-{os.getpid()}"
    manager = Manager(name)
    start({"NOTIFY_SOCKET": name})
    assert manager.next("READY")["READY"] == "1"
    manager.socket.close()


def test_nobody_listens(start, tmp_path):
    started = start({"NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "100000"})
    deadline = HANG * 20
    while deadline and "daemon.listening" not in started.log.read_text():
        deadline -= 1
        with suppress(subprocess.TimeoutExpired):
            started.process.wait(0.05)
    started.process.send_signal(signal.SIGTERM)
    assert started.process.wait(HANG) == 0


async def test_f140_no_ping_while_the_loop_is_stuck():
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    here.setblocking(False)

    async def live() -> tuple[int, int, int]:
        served = ServiceManager({"WATCHDOG_USEC": "120000"}, 1)
        served.address, served._socket = "x", _To(there)
        task = asyncio.create_task(served.keep_pinging())
        loop = asyncio.get_running_loop()

        async def counted(seconds: float) -> int:
            until, count = loop.time() + seconds, 0
            while loop.time() < until:
                await asyncio.sleep(0.005)
                count += _drain(here)
            return count

        before = await counted(0.4)
        with socket.socket() as silent:
            silent.settimeout(0.3)
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            # The loop stands still, whatever it is that blocks it.
            with suppress(TimeoutError):
                silent.accept()
        during = _drain(here)
        after = await counted(0.4)
        task.cancel()
        return before, during, after

    before, during, after = await live()
    here.close()
    there.close()
    assert before >= 5
    assert during == 0
    assert after >= 5


def test_f140_load_delays_no_ping(manager, start, tmp_path):
    """As many calls as the machine can make: the loop that serves them pings in time."""
    period = 3.0
    usec = str(int(period * 1e6))
    started = start({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": usec})
    manager.next("READY")
    host, _, port = started.listening()["listen"][0].rpartition(":")
    over = threading.Event()
    calls = [0] * 4

    def call(number):
        with socket.create_connection((host, int(port)), timeout=HANG) as caller:
            while not over.is_set():
                # Eight at a time, so that the daemon is never the one who waits.
                caller.sendall(b"GET /nobody/x HTTP/1.1\r\nHost: localhost\r\n\r\n" * 8)
                seen = b""
                while seen.count(b"HTTP/1.1 404") < 8:
                    seen += caller.recv(65536)
                calls[number] += 8

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    came = [time.monotonic()]
    while came[-1] - came[0] < period:
        manager.next("WATCHDOG")
        came.append(time.monotonic())
    over.set()
    for thread in threads:
        thread.join(HANG)
    assert max(later - before for before, later in itertools.pairwise(came)) < period
    assert len(came) > 3
    assert sum(calls) > 100


class _To:
    """A socket that sends to its pair, whatever the address."""

    def __init__(self, sock):
        self._sock = sock

    def settimeout(self, seconds):
        self._sock.settimeout(seconds)

    def sendto(self, data, _address):
        self._sock.send(data)


def _drain(sock) -> int:
    count = 0
    with suppress(BlockingIOError):
        while True:
            sock.recv(1024)
            count += 1
    return count


@pytest.mark.parametrize(
    ("usec", "pid", "expected"),
    [
        ("500000", "", 0.5), ("3000000", "7", 3.0), ("3000000", "8", None), ("0", "", None),
        ("abc", "", None), ("", "", None), ("-1", "", None), ("٣", "", None), ("1e6", "", None),
    ],
)  # fmt: skip
def test_f140_the_period(usec, pid, expected):
    environ = {"WATCHDOG_USEC": usec, "WATCHDOG_PID": pid, "HOME": "/"}
    assert ServiceManager(environ, 7).watchdog == expected
    assert environ == {"HOME": "/"}


@pytest.mark.parametrize("count", ["", "0", "x", "-1"])
def test_no_sockets_were_handed_over(count):
    environ = {"LISTEN_FDS": count, "LISTEN_PID": "7", "LISTEN_FDNAMES": "listen"}
    served = ServiceManager(environ, 7)
    assert served.listens("listen", ()) == ()
    assert ServiceManager({"LISTEN_FDS": "1", "LISTEN_PID": "8"}, 7).unknown == ()


def _listener(family=socket.AF_INET, address=("127.0.0.1", 0)):
    sock = socket.socket(family)
    sock.bind(address)
    sock.listen(64)
    return sock


def test_sockets_are_handed_over(manager, start, tmp_path):
    calls, admin = _listener(), _listener()
    path = str(tmp_path / "calls.sock")
    local = _listener(socket.AF_UNIX, path)
    started = start(
        {"NOTIFY_SOCKET": str(tmp_path / "notify")},
        handed=[("listen", calls), ("admin", admin), ("listen", local)],
    )
    # Whoever calls before the daemon runs waits and is not refused.
    early = socket.create_connection(calls.getsockname())
    early.sendall(b"GET /nobody/x HTTP/1.1\r\nHost: localhost\r\n\r\n")
    manager.next("READY")
    early.settimeout(HANG)
    assert b"unknown_provider" in early.recv(65536)
    early.close()
    port = admin.getsockname()[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=HANG) as answer:
        assert answer.status == 200
    addresses = started.listening()
    assert addresses["listen"] == [f"127.0.0.1:{calls.getsockname()[1]}", f"unix:{path}"]
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(HANG)
        caller.connect(path)
        caller.sendall(b"GET /nobody/x HTTP/1.1\r\nHost: any\r\n\r\n")
        assert b"unknown_provider" in caller.recv(65536)
    started.process.send_signal(signal.SIGTERM)
    assert started.process.wait(HANG) == 0
    # They belong to the manager: a caller who comes now waits for the next daemon.
    assert Path(path).is_socket()
    socket.create_connection(calls.getsockname()).close()
    for sock in (calls, admin, local):
        sock.close()


def test_an_admin_socket_for_all_needs_a_token(manager, start, tmp_path):
    admin = _listener(address=("0.0.0.0", 0))
    started = start({"NOTIFY_SOCKET": str(tmp_path / "notify")}, handed=[("admin", admin)])
    assert started.process.wait(HANG) == 69
    assert "admin.token_file" in started.log.read_text()
    admin.close()


# -- the units ------------------------------------------------------------------------------


@pytest.fixture
def analyze(tmp_path):
    found = shutil.which("systemd-analyze")
    if found is None:
        need("systemd-analyze is not installed")
    folder = tmp_path / "units"
    shutil.copytree(UNITS, folder)
    command = tmp_path / "breaker-sidecar"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    for unit in folder.glob("*.service"):
        text = unit.read_text()
        unit.write_text(text.replace("/opt/breaker-sidecar/bin/breaker-sidecar", str(command)))
    # The examples of drop-ins stand where they would.
    (folder / "examples").rename(folder / "breaker-sidecar.service.d")

    def run(*words):
        return subprocess.run(
            [found, *words], cwd=folder, capture_output=True, text=True, timeout=HANG, check=False
        )

    return run


SERVICES = ["breaker-sidecar.service", "breaker-sidecar@one.service"]


def test_the_units_verify(analyze):
    done = analyze(
        "verify",
        "./breaker-sidecar.service",
        "./breaker-sidecar.socket",
        "./breaker-sidecar-admin.socket",
        "./breaker-sidecar@.service",
        "./breaker-sidecar@.socket",
    )
    said = [line for line in done.stderr.splitlines() if "breaker-sidecar" in line]
    assert (done.returncode, said) == (0, [])


@pytest.mark.parametrize("unit", SERVICES)
def test_f146_the_sandbox(analyze, unit):
    done = analyze("security", "--offline=true", "--threshold=15", f"./{unit}")
    assert done.returncode == 0, done.stdout
    score = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert score
    assert float(score[1]) <= 1.5


class Upstream(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def test_f146_the_daemon_lives_in_the_sandbox(manager, start, tmp_path):
    """Under the unit's own filter of system calls and without memory that becomes code."""
    if why := sandbox_missing():
        need(f"the sandbox of the unit cannot be set up here: {why}")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    unit = UNITS / "breaker-sidecar.service"
    local = ["127.0.0.1:0", "[::1]:0"] if socket.has_ipv6 else ["127.0.0.1:0"]
    started = start(
        {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "900000"},
        providers={"up": {"upstream": f"http://localhost:{server.server_port}"}},
        top={"listen": local, "state_file": str(tmp_path / "state.json")},
        within=[sys.executable, str(SANDBOX), str(unit)],
    )
    manager.next("READY")
    confined = Path(f"/proc/{started.process.pid}/status").read_text()
    assert re.search(r"^Seccomp:\s+2$", confined, re.MULTILINE)
    addresses = started.listening()
    assert len(addresses["listen"]) == len(local)
    for address in addresses["listen"]:
        # By a name, which takes a thread and a resolver.
        with urllib.request.urlopen(f"http://{address}/up/x", timeout=HANG) as answer:
            assert (answer.status, answer.read()) == (200, b"{}")
    admin = addresses["admin"][0]
    for path in ("/status", "/metrics", "/"):
        with urllib.request.urlopen(f"http://{admin}{path}", timeout=HANG) as answer:
            assert answer.status == 200
    order = urllib.request.Request(
        f"http://{admin}/breakers/up/open", b"{}", {"x-sidecar-admin": "1"}, method="POST"
    )
    urllib.request.urlopen(order, timeout=HANG).close()
    assert json.loads((tmp_path / "state.json").read_text())
    manager.next("WATCHDOG")
    started.write(log={"level": "debug"})
    started.process.send_signal(signal.SIGHUP)
    manager.next("RELOADING")
    assert "refused" not in manager.next("READY")["STATUS"]
    started.process.send_signal(signal.SIGTERM)
    assert started.process.wait(HANG) == 0
    assert "Traceback" not in started.log.read_text()
    server.shutdown()
    server.server_close()


def sandbox_missing():
    """Why not; empty where the kernel and the libraries have what it takes."""
    if shutil.which("systemd-analyze") is None:
        return "systemd-analyze is not installed"
    unit = str(UNITS / "breaker-sidecar.service")
    tried = subprocess.run(
        [sys.executable, str(SANDBOX), unit, sys.executable, "-c", "print()"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return tried.stderr.strip().rpartition("\n")[2]


def test_the_sandbox_of_the_test_is_one():
    """What the unit forbids is refused in it, or the test above would prove nothing."""
    if why := sandbox_missing():
        need(f"the sandbox of the unit cannot be set up here: {why}")
    acts = ["os.sched_setaffinity(0, {0})", "os.chroot('/')"]
    if tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 3):
        acts.append("mmap.mmap(-1, 4096, prot=7)")
    code = (
        "import mmap, os\n"
        f"for act in ({''.join(f'lambda: {act}, ' for act in acts)}):\n"
        "    try:\n"
        "        act()\n"
        "    except PermissionError:\n"
        "        print('refused')\n"
    )
    unit = str(UNITS / "breaker-sidecar.service")
    done = subprocess.run(
        [sys.executable, str(SANDBOX), unit, sys.executable, "-c", code],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["refused"] * len(acts), done.stderr


@pytest.mark.parametrize("name", ["breaker-sidecar.service", "breaker-sidecar@.service"])
def test_f146_what_the_daemon_needs_is_allowed(name):
    unit = (UNITS / name).read_text()
    for family in ("AF_INET", "AF_INET6", "AF_UNIX"):
        assert re.search(rf"^RestrictAddressFamilies=.*\b{family}\b", unit, re.MULTILINE)
    assert "Type=notify\n" in unit
    assert "RestartPreventExitStatus=2 78\n" in unit
    reload = re.findall(r"^ExecReload=(.*)$", unit, re.MULTILINE)
    assert " check " in reload[0]
    assert reload[1] == "/bin/kill -HUP $MAINPID"


def test_both_services_differ_by_their_instance_only():
    one = (UNITS / "breaker-sidecar.service").read_text().partition("[Unit]")[2]
    several = (UNITS / "breaker-sidecar@.service").read_text().partition("[Unit]")[2]
    several = several.replace("/%i.yaml", "/breakers.yaml").replace(
        "Directory=breaker-sidecar/%i", "Directory=breaker-sidecar"
    )
    assert several.replace("the agent %i", "the agents of this machine") == one
