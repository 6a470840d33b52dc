"""What people see of a daemon, and how they steer it."""

import json
import os
import pty
import select
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sidecar.cli.status import exit_code, render
from sidecar.cli.status_lines import plain
from sidecar.cli.status_words import Known

from .conftest import START, Commands, free_port, wait_for

NOW = 1_800_000_000.0


def breaker(state: str = "closed", **fields: Any) -> dict[str, Any]:
    entry = {
        "state": state,
        "mode": "enforce",
        "reason": None,
        "since": "2027-01-15T07:59:00.000Z",
        "opens": 0,
        "consecutive_failures": 0,
        "window": {"seconds": 60, "success": 3, "failure": 0, "alive": 2},
        "half_open_at": None,
        "last_error": None,
    }
    return entry | fields


def document(verdict: str = "up", **breakers: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": 1,
        "version": "9.9",
        "started_at": "2027-01-15T05:00:00.000Z",
        "config": {"generation": 2, "hash": "abc", "error": None, "disabled": {"gone": "unset"}},
        "network": "up",
        "providers": {
            "openai": {
                "verdict": verdict,
                "upstream": "https://api.openai.com",
                "mode": "enforce",
                "in_flight": 4,
                "breakers": {f"openai/{name}": entry for name, entry in breakers.items()},
                "reclassified": {
                    "total": 1234,
                    "last": {"status": 503, "class": "permanent", "code": "model_not_found"},
                },
            }
        },
        "dependencies": {},
        "totals": {"requests": 10, "forwarded": 9, "answered_here": 1},
    }


FAILURE = {
    "number": 7,
    "at": "2027-01-15T07:59:30.000Z",
    "key": "openai/gpt-dmeo",
    "envelope": {
        "class": "permanent",
        "code": "model_not_found",
        "message": "no model gpt-dmeo\nand no other",
        "correlation_id": "workflow-7",
    },
}
GROUP = {
    "class": "permanent",
    "code": "model_not_found",
    "count": 1234,
    "last": {"at": "2027-01-15T07:58:00.000Z", "correlation_id": "workflow-7"},
    "minutes": [0] * 57 + [8, 0, 0],
}
CONFIG = {"providers": {"openai": {"breaker": {"consecutive_failures": 5}}}}


def known(status: dict[str, Any]) -> Known:
    return Known(status, CONFIG, (GROUP,), (FAILURE,))


def shown(status: dict[str, Any]) -> str:
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    with console.file:
        console.print(render(known(status), NOW))
    return console.export_text()


def lines(status: dict[str, Any]) -> list[str]:
    return list(plain(known(status), NOW))


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (document(), 0),
        (document(m=breaker()), 0),
        (document("degraded", m=breaker("open")), 3),
        (document("down"), 3),
        (document("up", m=breaker("half_open")), 3),
        (document("up", m=breaker("open", mode="observe")), 3),
        ({"providers": {}, "dependencies": {"db": breaker("open")}}, 3),
        ({}, 0),
    ],
)
def test_the_exit_code(status: dict[str, Any], code: int) -> None:
    assert exit_code(status) == code


def test_the_picture() -> None:
    open_entry = breaker(
        "open",
        mode="observe",
        reason="5 failures in a row",
        consecutive_failures=5,
        half_open_at="2027-01-15T08:00:30.000Z",
        last_error={"kind": "answer", "code": "server_error", "status": 500},
    )
    text = shown(document("degraded", gpt=breaker(), bad=open_entry))
    assert "breaker-sidecar 9.9 · up 3 h · network up · configuration 2 (abc) · 10 req" in text
    rows: dict[str, str] = {}
    for row in filter(str.strip, text.splitlines()):
        rows.setdefault(row.split()[0], row)
    assert "degraded" in rows["openai"]
    assert "https://api.openai.com" in rows["openai"]
    assert "3 good, 2 alive" in rows["gpt"]
    assert "60 s" in rows["gpt"]
    folded = " ".join(rows["bad"].split())
    assert "open (observe)" in folded
    assert "lets a probe through in 30 s; 5 failures in a row; last: server_error" in folded
    assert (
        "1,234 answers in a false dress, the last: 503 said model_not_found: a typo, not an" in text
    )
    assert "Errors of the last hour" in text
    assert "█" in next(row for row in text.splitlines() if "2 min ago" in row)
    assert "no model gpt-dmeo and no other" in rows[next(k for k in rows if k.count(":") == 2)]
    assert "disabled: gone" in text


def test_without_a_terminal_each_fact_is_a_line() -> None:
    open_entry = breaker(
        "open",
        reason="5 failures in a row, last: 500 server_error",
        half_open_at="2027-01-15T08:00:30.000Z",
        last_error={"kind": "answer", "code": "server_error", "status": 500},
        window={"failure": 5},
    )
    status = document("degraded", gpt=breaker(consecutive_failures=3), bad=open_entry)
    status["dependencies"] = {"db": breaker("half_open", in_flight=1, probes_in_flight=1)}
    told = lines(status)
    assert told[0].startswith("breaker-sidecar 9.9 · up 3 h")
    assert "provider openai degraded; 4 in flight; https://api.openai.com" in told
    bad = (
        "breaker openai/bad open; lets a probe through in 30 s;"
        " 5 failures in a row, last: 500 server_error; since 60 s; 5 failed"
    )
    good = (
        "breaker openai/gpt closed; opens after 2 more failures in a row; since 60 s;"
        " 3 good, 2 alive"
    )
    assert told.index(bad) < told.index(good)
    assert any(one.startswith("dependency db half-open; 1 probe under way;") for one in told)
    assert "errors permanent model_not_found: 1,234 failures within the last hour" in told
    assert told[-2].endswith(
        " openai/gpt-dmeo permanent model_not_found workflow-7: no model gpt-dmeo and no other"
    )
    assert told[-1] == "disabled gone: unset"


def test_what_is_shed_or_spent_is_shown() -> None:
    status = document("degraded")
    status["providers"]["openai"] |= {
        "shedding": [
            {"key": "openai/a", "state": "shedding", "not_before": "2027-01-15T08:00:02.000Z",
             "rate": 4.5, "queued": 3, "shed": 17, "hint": 90, "hint_source": "retry-after"},
            {"key": "openai/b", "state": "idle", "rate": None, "queued": 0, "shed": 0},
        ],
        "quota": [{"key": "openai/c", "until": None, "code": "credits_exhausted",
                   "next_check": "2027-01-15T08:00:40.000Z"}],
    }  # fmt: skip
    facts = "its next call may go in 2 s, 4.5 calls a second pass, 3 wait, 17 shed so far"
    asked = "the upstream asked for 90 s (retry-after)"
    assert f"restricted openai/a shedding: {facts}, {asked}" in lines(status)
    assert "restricted openai/c spent: credits_exhausted, one call asks again in 40 s" in lines(
        status
    )
    assert not any("openai/b" in line for line in lines(status))
    assert facts in shown(status)
    assert "Shed and spent" in shown(status)


@pytest.mark.parametrize("odd", [{}, {"providers": {"a": {}}, "dependencies": {"b": {}}}])
def test_a_daemon_of_another_version_is_shown_as_far_as_it_goes(odd: dict[str, Any]) -> None:
    assert shown(odd)
    assert lines(odd)


def test_many_closed_breakers_do_not_hide_the_open_one() -> None:
    entries = {f"m{number}": breaker() for number in range(50)}
    text = shown(document("degraded", **entries, last=breaker("open")))
    assert "last" in text
    assert "and 42 more, closed" in text


def test_a_models_name_cannot_speak_to_the_terminal() -> None:
    text = shown(document("up", **{"\x1b[2J[red]x[/red]\n": breaker("open")}))
    assert "\x1b" not in text
    assert "\\x1b[2J[red]x[/red]\\x0a" in text
    assert not any(
        "\x1b" in line or "\n" in line
        for line in lines(document("up", **{"\x1b\n": breaker("open")}))
    )


def test_a_refused_reload_is_shown() -> None:
    status = document()
    status["config"]["error"] = "b.yaml:3: nonsense"
    status["network"] = "down"
    assert "the last reload was refused: b.yaml:3: nonsense" in shown(status)
    assert "network down" in shown(status)
    assert "notice the last reload was refused: b.yaml:3: nonsense" in lines(status)
    assert "notice the network of this machine is down: no upstream is blamed" in lines(status)


def test_what_is_injected_is_no_failure_of_anybody() -> None:
    rule = {"rule": "third call", "fault": "rate_limit", "injected": 2}
    failed = {**FAILURE, "fault": "third call"}
    told = list(plain(Known(document(), failures=(failed,), faults=(rule,)), NOW))
    said = "faults are injected into calls on purpose: third call (rate_limit), 2 times"
    assert f"notice {said}" in told
    assert any("permanent model_not_found (injected) workflow-7" in one for one in told)


def test_without_a_daemon(commands: Commands) -> None:
    address = f"127.0.0.1:{free_port()}"
    for arguments in (["status"], ["status", "--json"], ["open", "openai"], ["healthcheck"]):
        done = commands.run(*arguments, "--admin", address)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("\n") == 1
        assert address in done.stderr


def test_a_daemon_from_the_shell(commands: Commands) -> None:
    _, _, admin = commands.serve()
    address = f"127.0.0.1:{admin}"
    here = {"BREAKER_SIDECAR_ADMIN": address}

    assert commands.run("healthcheck", **here).returncode == 0
    assert commands.run("healthcheck", "--url", f"http://{address}/readyz").returncode == 0
    assert commands.run("healthcheck", "--url", f"http://{address}/nonsense").returncode == 1

    done = commands.run("status", **here)
    assert (done.returncode, done.stderr) == (0, "")
    assert "openai" in done.stdout
    assert "\x1b" not in done.stdout

    done = commands.run("open", "openai/gpt-x", **here)  # no call has named that model yet
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("openai/gpt-x is open")
    done = commands.run("reset", "openai/gpt-x", "--for", "10m", **here)
    assert (done.returncode, done.stdout) == (2, "")
    assert "reset takes no --for" in done.stderr
    assert commands.run("reset", "openai/gpt-x", **here).returncode == 0
    done = commands.run("open", "openai", "--for", "10m", "--reason", "a drill", **here)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("openai is open, mode enforce, for 10m")
    assert commands.run("status", **here).returncode == 3
    done = commands.run("status", "--json", "--admin", f"http://{address}")
    assert done.returncode == 3
    entry = json.loads(done.stdout)["providers"]["openai"]["breakers"]["openai"]
    assert entry["state"] == "open"

    done = commands.run("reset", "openai", "--json", **here)
    assert json.loads(done.stdout)["state"] == "closed"
    done = commands.run("observe", "openai", **here)
    assert done.stdout.startswith("openai is closed, mode observe")
    for verb in ("enforce", "off", "close"):
        assert commands.run(verb, "openai", **here).returncode == 0

    done = commands.run("open", "no-such-provider", **here)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "no-such-provider" in done.stderr


def test_a_token_is_found_and_given(commands: Commands, config: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token\n")
    config.write_text(f"admin: {{token_file: {token}}}\n{config.read_text()}")
    _, _, admin = commands.serve()
    here = ("--admin", f"127.0.0.1:{admin}")
    assert commands.run("open", "openai", *here).returncode == 0
    bare = tmp_path / "bare.yaml"
    bare.write_text("providers: {a: {upstream: 'http://127.0.0.1:9'}}\n")
    done = commands.run("close", "openai", *here, "--config", str(bare))
    assert done.returncode == 1
    given = ("--token-file", str(token))
    assert commands.run("close", "openai", *here, "--config", str(bare), *given).returncode == 0
    assert commands.run("close", "openai", "--token-file", "/nonexistent").returncode == 2


def test_watching_survives_a_daemon_that_goes(commands: Commands) -> None:
    daemon, _, admin = commands.serve()
    watch = commands.start(
        "status", "--watch", "--json", "--interval", "0.1", "--admin", f"127.0.0.1:{admin}"
    )
    assert watch.stdout is not None
    assert watch.stderr is not None
    for _ in range(2):
        assert json.loads(watch.stdout.readline())["schema"] == 1
    daemon.terminate()
    assert "no daemon answers" in watch.stderr.readline()
    watch.send_signal(signal.SIGINT)
    watch.communicate(timeout=10)
    assert watch.returncode == 0


def test_watching_draws(commands: Commands) -> None:
    _, _, admin = commands.serve()
    watch = commands.start("status", "--watch", "--admin", f"127.0.0.1:{admin}")
    assert watch.stdout is not None
    while "anthropic" not in watch.stdout.readline():
        assert watch.poll() is None
    watch.send_signal(signal.SIGINT)
    _, errors = watch.communicate(timeout=10)
    assert (watch.returncode, errors) == (0, "")


def test_a_terminal_counts_down_and_survives_a_daemon_that_goes(commands: Commands) -> None:
    """In a terminal of its own, as rich needs one: a screen that is drawn again and again."""
    daemon, _, admin = commands.serve()
    address = f"127.0.0.1:{admin}"
    assert commands.run("open", "openai", "--for", "1h", "--admin", address).returncode == 0
    ours, theirs = pty.openpty()
    watch = subprocess.Popen(
        [*START, "status", "--watch", "--interval", "0.2", "--admin", address],
        env=commands.environ | {"TERM": "xterm-256color", "COLUMNS": "160", "LINES": "40"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    drawn = b""

    def sees(text: bytes) -> bool:
        nonlocal drawn
        if select.select([ours], [], [], 0)[0]:
            drawn += os.read(ours, 65536)
        return text in drawn

    try:
        wait_for(lambda: sees(b"lets a probe through in"))
        daemon.terminate()
        wait_for(lambda: sees(b"no daemon answers"))
        drawn = b""
        wait_for(lambda: sees(b"what follows is older"))
        wait_for(lambda: sees(b"lets a probe through in"))
    finally:
        watch.send_signal(signal.SIGINT)
        with suppress(OSError):
            while watch.poll() is None:
                os.read(ours, 65536)
        os.close(ours)
        assert watch.wait(10) == 0


def test_a_file_that_is_being_edited_does_not_hide_the_daemon(
    commands: Commands, config: Path
) -> None:
    port = free_port()
    config.write_text(f"admin: {{listen: '127.0.0.1:{port}'}}\n{config.read_text()}")
    daemon = commands.start("serve", "--listen", f"127.0.0.1:{free_port()}")
    wait_for(lambda: commands.run("healthcheck").returncode == 0)
    config.write_text(f"{config.read_text()}nonsense: 1\n")
    assert commands.run("healthcheck").returncode == 0
    assert commands.run("status").returncode == 0
    assert daemon.poll() is None
