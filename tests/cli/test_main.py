"""The commands as a supervisor and a typist meet them: exit codes, one line of reason."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import sidecar
from sidecar.cli import COMMANDS, main

from .conftest import START, Commands, free_port, wait_for


def test_version_is_one_line(commands: Commands) -> None:
    done = commands.run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"breaker-sidecar {sidecar.__version__}\n",
        "",
    )


def test_help_names_every_command(commands: Commands) -> None:
    done = commands.run("--help")
    assert done.returncode == 0
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, commands: Commands) -> None:
    done = commands.run(name, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: breaker-sidecar {name}")
    assert "--supervised" not in done.stdout


def test_an_unknown_command_names_the_nearest(commands: Commands) -> None:
    done = commands.run("stauts")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "did you mean status?" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--no-such-option"],
        ["--log-level", "loud"],
        ["check", "extra"],
        ["open"],
        ["open", "openai", "--for", "soon"],
        ["open", "openai", "--for", "0s"],
        ["status", "--timeout", "-1"],
        ["status", "--admin", "http://user@host:1"],
        ["run"],
        ["run", "--"],
        ["run", "--listen", "unix:/tmp/x.sock", "--", "true"],
        ["run", "--listen", "127.0.0.1:0", "--", "true"],
        ["env", "--json", "--shell", "fish"],
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(
    arguments: list[str], commands: Commands
) -> None:
    done = commands.run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("breaker-sidecar: ")


@pytest.mark.parametrize("arguments", [["serve"], [], ["check"], ["env"], ["run", "--", "true"]])
def test_f133_e_a_bad_configuration(arguments: list[str], commands: Commands, config: Path) -> None:
    config.write_text(
        "providers:\n  a: {upstrem: x}\n  b: {upstream: 'ftp://x'}\nlisten: nowhere\n"
    )
    done = commands.run(*arguments)
    assert done.returncode == 78
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert sum(line.startswith(f"{config}:") for line in lines) >= 3
    for expected in (f"{config}:2:", f"{config}:3:", f"{config}:4:", "upstream"):
        assert expected in done.stderr


def test_f133_d_the_port_is_taken(commands: Commands) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = commands.run("--listen", address, "--admin", f"127.0.0.1:{free_port()}")
        assert done.returncode == 69
        assert address in done.stderr
        assert "Traceback" not in done.stderr
        for option, free in (("--listen", "--admin"), ("--admin", "--listen")):
            done = commands.run(
                "run", option, address, free, f"127.0.0.1:{free_port()}", "--", "true"
            )
            assert done.returncode == 69
            assert address in done.stderr
            assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_f133_a_b_a_stop_is_no_failure(number: signal.Signals, commands: Commands) -> None:
    process, _, _ = commands.serve()
    process.send_signal(number)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 0
    assert "Traceback" not in errors


@pytest.mark.parametrize("after", [0.1, 0.2, 0.3, 0.5, 1.0])
def test_f132_a_stop_while_starting(after: float, commands: Commands) -> None:
    process = commands.start(
        "--listen", f"127.0.0.1:{free_port()}", "--admin", f"127.0.0.1:{free_port()}"
    )
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(after)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=5)
    # Before any line of ours ran, the signal's own default ends the interpreter.
    assert process.returncode in ((0, -signal.SIGTERM) if after < 0.2 else (0,))
    assert "Traceback" not in errors


def test_f133_c_a_crash_is_a_failure_with_a_reason(commands: Commands) -> None:
    crash = (
        "import sys, sidecar.daemon, sidecar.cli\n"
        "async def crash(*_): raise RuntimeError('the loop\\nis gone')\n"
        "sidecar.daemon._serve = crash\n"
        f"sys.exit(sidecar.cli.main(['--listen', '127.0.0.1:{free_port()}']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", crash],
        check=False,
        env=commands.environ,
        cwd=commands.folder,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "RuntimeError: the loop is gone" in done.stderr


def test_a_reader_that_leaves_is_no_error(commands: Commands) -> None:
    process = subprocess.Popen(
        [*START, "check", "--print"],
        env=commands.environ,
        cwd=commands.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        errors = process.stderr.read()
    process.wait(20)
    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors


def test_main_returns_what_a_process_would_exit_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["--nonsense"]) == 2
    assert main(["status", "--help"]) == 0
    assert capsys.readouterr().err.count("\n") == 1


def test_a_daemon_in_an_own_folder_of_that_name_is_not_imported(
    commands: Commands, tmp_path: Path
) -> None:
    trap = tmp_path / "sidecar"
    trap.mkdir()
    (trap / "__init__.py").write_text("raise SystemExit('the wrong package')\n")
    done = commands.run("run", "--", sys.executable, "-c", "print('right')")
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_ready_within_a_second_of_the_command(commands: Commands) -> None:
    process, data, _ = commands.serve()
    wait_for(lambda: socket.create_connection(("127.0.0.1", data), 1).close() is None)
    assert process.poll() is None
