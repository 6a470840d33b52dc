"""A program with a daemon beside it, from before its first call to after its last."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import START, Commands, free_port, ready, wait_for

PYTHON = [sys.executable, "-c"]

PRINT_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"

ASK = """
import os, urllib.request, urllib.error
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with opener.open(os.environ["BREAKER_SIDECAR_ADMIN"] + "/readyz") as answer:
    print("ready", answer.status)
try:
    opener.open(os.environ["OPENAI_BASE_URL"] + "/models")
except urllib.error.HTTPError as error:
    print("answered", error.code, error.headers["x-sidecar-provider"])
"""

# Says on which port its daemon is, then tells the signals it gets.
LISTENER = """
import os, signal, sys, time
count = 0
def told(number, frame):
    global count
    count += 1
    os.write(1, signal.Signals(number).name.encode() + b"\\n")
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, told)
print(os.environ["BREAKER_SIDECAR_ADMIN"], flush=True)
deadline = time.monotonic() + 30
while not count and time.monotonic() < deadline:
    time.sleep(0.02)
time.sleep(0.3)
sys.exit(40 + count)
"""


def daemons_port(line: str) -> int:
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)\n", line)
    assert found, line
    return int(found[1])


def test_the_program_finds_a_daemon_that_listens(commands: Commands) -> None:
    done = commands.run("run", "--", *PYTHON, ASK)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ready 200\nanswered 502 openai\n"


def test_what_the_program_gets(commands: Commands) -> None:
    done = commands.run(
        "run", "--", *PYTHON, PRINT_ENVIRONMENT, NO_PROXY="corp.example", MINE="stays"
    )
    assert (done.returncode, done.stderr) == (0, "")
    got = json.loads(done.stdout)
    base = re.fullmatch(r"http://127\.0\.0\.1:\d+/openai/v1", got["OPENAI_BASE_URL"])
    assert base
    assert got["OPENAI_API_BASE"] == got["OPENAI_BASE_URL"]
    assert got["ANTHROPIC_BASE_URL"] == got["OPENAI_BASE_URL"].replace("/openai/v1", "/anthropic")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", got["BREAKER_SIDECAR_ADMIN"])
    assert got["NO_PROXY"] == got["no_proxy"] == "corp.example,127.0.0.1,localhost,::1"
    assert "PRIVATE_URL" not in got
    assert got["MINE"] == "stays"
    assert got["PYTHONPATH"] == commands.environ["PYTHONPATH"]


def test_streams_and_arguments_pass_untouched(commands: Commands) -> None:
    program = "import sys; sys.stderr.write('to stderr'); print(sys.argv[1:], sys.stdin.read())"
    done = commands.run(
        "run", "--log-level", "info", "--", *PYTHON, program, "--config", "--", "-x", stdin="in\n"
    )
    assert done.stdout == "['--config', '--', '-x'] in\n\n"
    assert "to stderr" in done.stderr
    quiet = commands.run("run", "--", *PYTHON, program, stdin="")
    assert quiet.stderr == "to stderr"


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ([*PYTHON, "raise SystemExit(7)"], 7),
        ([*PYTHON, "import os; os.kill(os.getpid(), 9)"], 137),
        (["no-such-program-anywhere"], 127),
        (["/"], 126),
    ],
)
def test_the_programs_code_is_ours(program: list[str], code: int, commands: Commands) -> None:
    done = commands.run("run", "--", *program)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    if code in (126, 127):
        assert done.stderr.count("\n") == 1
        assert program[0] in done.stderr


def test_without_dashes_it_works_too(commands: Commands) -> None:
    done = commands.run("run", "--observe", *PYTHON, "print(6 * 7)")
    assert (done.returncode, done.stdout) == (0, "42\n")


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1], ids=lambda n: n.name
)
def test_signals_reach_the_program_once_and_the_daemon_outlasts_it(
    number: signal.Signals, commands: Commands
) -> None:
    process = commands.start("run", "--", *PYTHON, LISTENER)
    assert process.stdout is not None
    port = daemons_port(process.stdout.readline())
    process.send_signal(number)
    assert process.stdout.readline() == f"{number.name}\n"
    assert ready(port)
    rest, errors = process.communicate(timeout=20)
    assert (rest, errors, process.returncode) == ("", "", 41)
    assert not ready(port)


def test_ctrl_c_in_a_terminal_reaches_the_program_once(commands: Commands) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(commands.folder)
        os.execve(START[0], [*START, "run", "--", *PYTHON, LISTENER], commands.environ)
    try:
        output = b""
        while b"http://" not in output:
            output += os.read(terminal, 1024)
        os.write(terminal, b"\x03")
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 41
    finally:
        os.close(terminal)


def test_a_signal_before_the_program_runs_ends_everything(commands: Commands) -> None:
    process = commands.start("run", "--", *PYTHON, "print('ran')")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.15)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=10)
    assert "Traceback" not in errors
    # Before our own code ran, the signal's default ends it; after the daemon listened, the program.
    assert process.returncode in (128 + signal.SIGTERM, -signal.SIGTERM)
    assert output == ""


def test_a_daemon_that_dies_is_started_again_on_the_same_ports(commands: Commands) -> None:
    process = commands.start("run", "--", *PYTHON, LISTENER)
    assert process.stdout is not None
    port = daemons_port(process.stdout.readline())
    children = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(process.pid)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    daemon = next(int(line.split()[0]) for line in children if "--supervised" in line)
    os.kill(daemon, signal.SIGKILL)
    wait_for(lambda: not ready(port) or time.sleep(0.02))
    wait_for(lambda: ready(port))
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 41
    assert errors == "breaker-sidecar: the daemon ended (signal 9) and is started again\n"


def test_a_daemon_does_not_outlive_a_run_that_was_killed(commands: Commands) -> None:
    program = "import os, time; parent = os.getppid()\n"
    program += "print(os.environ['BREAKER_SIDECAR_ADMIN'], flush=True)\n"
    program += "while os.getppid() == parent: time.sleep(0.05)"
    process = commands.start("run", "--", *PYTHON, program)
    assert process.stdout is not None
    port = daemons_port(process.stdout.readline())
    process.kill()
    wait_for(lambda: not ready(port))


def test_a_variable_that_is_set_becomes_the_upstream(commands: Commands, tmp_path: Path) -> None:
    upstream = f"http://127.0.0.1:{free_port()}"
    show = "import json, os, urllib.request as u; o = u.build_opener(u.ProxyHandler({}))\n"
    show += "admin = os.environ['BREAKER_SIDECAR_ADMIN']\n"
    show += "status = json.load(o.open(admin + '/status'))['providers']\n"
    show += "print(json.dumps({n: p['upstream'] for n, p in status.items()}))\n"
    show += "print(os.environ['OPENAI_BASE_URL'], os.environ['PRIVATE_URL'])"
    done = commands.run(
        "run",
        "--",
        *PYTHON,
        show,
        OPENAI_BASE_URL=f"{upstream}/team/v1",
        PRIVATE_URL=f"{upstream}/",
        ANTHROPIC_BASE_URL="not a url",
    )
    assert done.returncode == 0, done.stderr
    status, variables = done.stdout.splitlines()
    assert json.loads(status)["openai"] == f"{upstream}/team"
    assert json.loads(status)["private"] == upstream
    assert re.fullmatch(r"http://127\S+/openai/v1 http://127\S+/private/", variables)
    assert sorted(line.split()[1] for line in done.stderr.splitlines()) == [
        "ANTHROPIC_BASE_URL",
        "OPENAI_BASE_URL",
        "PRIVATE_URL",
    ]


def test_given_addresses_are_used(commands: Commands) -> None:
    data, admin = free_port(), free_port()
    done = commands.run(
        "run",
        "--listen",
        f"localhost:{data}",
        "--admin",
        f"127.0.0.1:{admin}",
        "--",
        *PYTHON,
        PRINT_ENVIRONMENT,
        BREAKER_SIDECAR_LISTEN="localhost:1",
        BREAKER_SIDECAR_ADMIN="localhost:1",
    )
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got["OPENAI_BASE_URL"] == f"http://127.0.0.1:{data}/openai/v1"
    assert got["BREAKER_SIDECAR_ADMIN"] == f"http://127.0.0.1:{admin}"


def test_the_admin_plane_may_be_a_socket(commands: Commands, tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'admin.sock'}"
    inner = [*START, "healthcheck"]
    done = commands.run("run", "--admin", address, "--", *inner)
    assert done.returncode == 0, done.stderr


def test_two_runs_of_a_file_with_a_probe_listener(commands: Commands, config: Path) -> None:
    config.write_text(f"{config.read_text()}probe: {{listen: '127.0.0.1:{free_port()}'}}\n")
    inner = [*START, "run", "--", *PYTHON, "print('inner')"]
    done = commands.run("run", "--", *inner)
    assert (done.returncode, done.stdout) == (0, "inner\n"), done.stderr
