"""What `env` prints is what a shell understands; what `check` says is everything."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from .conftest import CONFIG, Commands

TRICKY = 'it\'s a "test" $(touch pwned) `x` \\ ü'


def test_export_lines_survive_a_shell(commands: Commands, tmp_path: Path) -> None:
    done = commands.run("env", NO_PROXY=TRICKY)
    assert (done.returncode, done.stderr.count("\n")) == (0, 0)
    script = f'{done.stdout}\nprintf \'%s|\' "$OPENAI_BASE_URL" "$NO_PROXY"'
    shell = subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True)
    base, no_proxy, _ = shell.stdout.split("|")
    assert base == "http://127.0.0.1:7600/openai/v1"
    assert no_proxy == f"{TRICKY},127.0.0.1,localhost,::1"
    assert not Path("pwned").exists()
    assert not (tmp_path / "pwned").exists()


def test_fish_lines(commands: Commands) -> None:
    done = commands.run("env", "--shell", "fish", NO_PROXY=TRICKY)
    assert done.returncode == 0
    assert "set -gx OPENAI_BASE_URL 'http://127.0.0.1:7600/openai/v1'\n" in done.stdout
    escaped = TRICKY.replace("\\", "\\\\").replace("'", "\\'")
    assert f"set -gx NO_PROXY '{escaped},127.0.0.1,localhost,::1'\n" in done.stdout
    if shutil.which("fish") is None:
        pytest.skip("there is no fish here")
    script = f"{done.stdout}\nprintf %s $NO_PROXY"
    shell = subprocess.run(["fish", "-c", script], check=True, capture_output=True, text=True)
    assert shell.stdout.startswith(TRICKY)


def test_json(commands: Commands) -> None:
    done = commands.run("env", "--json")
    assert json.loads(done.stdout) == {
        "OPENAI_BASE_URL": "http://127.0.0.1:7600/openai/v1",
        "OPENAI_API_BASE": "http://127.0.0.1:7600/openai/v1",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:7600/anthropic",
        "NO_PROXY": "127.0.0.1,localhost,::1",
        "no_proxy": "127.0.0.1,localhost,::1",
    }


@pytest.mark.parametrize(
    ("listen", "base"),
    [
        ("0.0.0.0:7700", "http://127.0.0.1:7700"),
        ("[::1]:7700", "http://[::1]:7700"),
        ("unix:/run/x.sock,localhost:7701", "http://127.0.0.1:7701"),
    ],
)
def test_the_address_is_one_that_a_client_can_use(
    listen: str, base: str, commands: Commands
) -> None:
    done = commands.run("env", "--json", BREAKER_SIDECAR_LISTEN=listen)
    assert json.loads(done.stdout)["ANTHROPIC_BASE_URL"] == f"{base}/anthropic"


def test_without_a_fixed_port_there_is_nothing_to_print(commands: Commands) -> None:
    for listen in ("unix:/run/x.sock", "localhost:0"):
        done = commands.run("env", BREAKER_SIDECAR_LISTEN=listen)
        assert (done.returncode, done.stdout) == (1, "")
        assert "breaker-sidecar run" in done.stderr


def test_a_variable_that_is_set_is_not_replaced_in_silence(commands: Commands) -> None:
    done = commands.run("env", OPENAI_BASE_URL="https://gw.example/v1")
    assert done.returncode == 0
    assert "OPENAI_BASE_URL is set already" in done.stderr


def test_check_says_what_is_fine_and_what_is_disabled(commands: Commands, config: Path) -> None:
    done = commands.run("check")
    assert done.returncode == 0
    assert done.stdout == f"{config}: fine, 2 providers, 1 disabled\n"
    assert "PRIVATE_HOST is not set" in done.stderr
    done = commands.run("check", PRIVATE_HOST="x.example")
    assert (done.stdout, done.stderr) == (f"{config}: fine, 3 providers\n", "")


def test_check_reads_the_file_that_is_given(commands: Commands, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("providers: {}\n")
    done = commands.run("check", "--config", str(other))
    assert done.returncode == 78
    assert done.stderr.startswith(f"{other}:1: providers: ")
    other.write_text(f"later: 1\n{CONFIG}")
    assert commands.run("check", "--config", str(other)).returncode == 78
    done = commands.run("check", "--config", str(other), "--unknown-keys", "warn")
    assert done.returncode == 0
    assert "later" in done.stderr


def test_print_is_a_configuration_without_secrets(
    commands: Commands, config: Path, tmp_path: Path
) -> None:
    config.write_text(
        CONFIG + '  keyed:\n    upstream: "https://x.example"\n'
        '    set_headers: {authorization: {value: "${TOKEN}", prefix: "Bearer "}}\n'
    )
    done = commands.run("check", "--print", TOKEN="a-secret-token")
    assert done.returncode == 0
    assert "a-secret-token" not in done.stdout + done.stderr
    printed = yaml.safe_load(done.stdout)
    assert printed["providers"]["openai"]["breaker"]["consecutive_failures"] == 5
    again = tmp_path / "again.yaml"
    again.write_text(done.stdout)
    assert commands.run("check", "--config", str(again), TOKEN="x").returncode == 0
