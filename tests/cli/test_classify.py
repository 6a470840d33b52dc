"""The classification of one error, from the shell."""

import json
from pathlib import Path

import pytest

from .conftest import Commands

TYPO = {
    "provider": "openai",
    "request": {"method": "POST", "path": "/v1/chat/completions"},
    "response": {
        "status": 503,
        "headers": {"content-type": "application/json"},
        "body": json.dumps(
            {
                "error": {
                    "message": "The model `gpt-dmeo` does not exist",
                    "type": "invalid_request_error",
                    "param": None,
                    "code": "model_not_found",
                }
            }
        ),
    },
    "source": "constructed",
}


@pytest.mark.parametrize("way", ["file", "-", "stdin"])
def test_a_recorded_case(way: str, commands: Commands, tmp_path: Path) -> None:
    file = tmp_path / "case.json"
    file.write_text(json.dumps(TYPO))
    arguments = {"file": [str(file)], "-": ["-"], "stdin": []}[way]
    done = commands.run("classify", *arguments, stdin=json.dumps(TYPO))
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert set(answer) == {"envelope", "verdict", "rule"}
    assert answer["envelope"]["class"] == "permanent"
    assert answer["envelope"]["code"] == "model_not_found"
    assert answer["envelope"]["retryable"] is False
    assert answer["envelope"]["source"] == "http"
    assert answer["verdict"] == "alive"
    assert answer["rule"]


def test_no_error_has_no_envelope(commands: Commands) -> None:
    done = commands.run("classify", stdin='{"status": 204}')
    assert done.returncode == 0
    assert json.loads(done.stdout)["envelope"] is None
    assert json.loads(done.stdout)["verdict"] == "success"


def test_the_dialect_can_be_given(commands: Commands) -> None:
    record = json.dumps({"status": 529, "body": {"type": "error", "error": {"type": "x"}}})
    done = commands.run("classify", "--dialect", "anthropic", stdin=record)
    assert done.returncode == 0
    assert json.loads(done.stdout)["envelope"]["class"] == "transient"
    done = commands.run("classify", "--dialect", "no-such-dialect", stdin=record)
    assert done.returncode == 2
    assert "anthropic" in done.stderr


@pytest.mark.parametrize("field", ["dialect", "provider"])
@pytest.mark.parametrize(("name", "near"), [("anthropc", "anthropic"), ("zzzzzz", None)])
def test_a_dialect_that_does_not_exist(
    field: str, name: str, near: str | None, commands: Commands
) -> None:
    done = commands.run("classify", stdin=json.dumps({"status": 503, field: name}))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no dialect '{name}'" in done.stderr
    assert ("did you mean" in done.stderr) is (near is not None)
    assert f"did you mean {near}?" in done.stderr or near is None
    assert "auto" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("source", ["database", "sdk"])
def test_other_sources_are_a_clear_no(source: str, commands: Commands) -> None:
    done = commands.run("classify", stdin=json.dumps({"source": source, "type": "x"}))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "not built in this version" in done.stderr


def test_what_cannot_be_read_is_one_line(commands: Commands, tmp_path: Path) -> None:
    for arguments in (["missing.json"], [str(tmp_path)]):
        done = commands.run("classify", *arguments)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert arguments[0] in done.stderr
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    assert commands.run("classify", "latin").returncode == 2
