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


@pytest.mark.parametrize(
    "record",
    [
        {"source": "database", "vendor": "postgresql", "type": "psycopg.Error", "message": "x"},
        {"source": "sdk", "sdk": "openai", "type": "openai.APIError", "message": "x"},
        {"id": "x", "vendor": "mysql", "error": {"type": "x.Y"}, "source": "observed, MySQL 8"},
    ],
)
def test_errors_of_databases_and_sdks(record: dict[str, object], commands: Commands) -> None:
    done = commands.run("classify", stdin=json.dumps(record))
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert set(answer) == {"envelope", "verdict", "rule"}
    assert answer["envelope"]["source"] == ("sdk" if "sdk" in record else "database")
    assert answer["envelope"]["raw"]["type"]


def test_what_is_wrong_with_an_error_is_one_line(commands: Commands) -> None:
    record = {"source": "database", "cause": {"mro": 3}}
    done = commands.run("classify", stdin=json.dumps(record))
    assert (done.returncode, done.stdout) == (2, "")
    assert "standard input: cause.mro is a list of dotted names, not 3" in done.stderr
    record = {"source": "sdk", "type": "x.Y"}
    done = commands.run("classify", "--dialect", "openai", stdin=json.dumps(record))
    assert (done.returncode, done.stdout) == (2, "")
    assert "a dialect is for answers over HTTP" in done.stderr


def test_half_of_a_character_is_no_fault(commands: Commands) -> None:
    done = commands.run("classify", stdin='{"source": "sdk", "message": "cut \\ud83d"}')
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["envelope"]["message"].startswith("cut")


def test_what_cannot_be_read_is_one_line(commands: Commands, tmp_path: Path) -> None:
    for arguments in (["missing.json"], [str(tmp_path)]):
        done = commands.run("classify", *arguments)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert arguments[0] in done.stderr
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    assert commands.run("classify", "latin").returncode == 2
