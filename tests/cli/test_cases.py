"""Every recorded case, as it stands, through the command and through `/v1/classify`."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sidecar import clock
from sidecar.cli import main
from sidecar.envelope import database, sdk
from sidecar.envelope.model import Classified
from sidecar.envelope.raised import recorded
from tests.admin.daemon import Daemon, started
from tests.admin.raw import call, post
from tests.cases import NOW, all_cases, classify_case

from .conftest import Commands

FILES = ("http-cases.jsonl", "db-cases.jsonl", "sdk-cases.jsonl")


def cases() -> Iterator[dict[str, Any]]:
    for file in FILES:
        yield from all_cases(file)


def judged(case: dict[str, Any], correlation_id: str) -> Classified:
    """By the functions themselves, without any reader in front."""
    if "response" in case:
        return classify_case(case, correlation_id=correlation_id)
    raised, now = recorded(case["error"]), float(case.get("now") or NOW)
    if "sdk" in case:
        return sdk.classify(raised, sdk=case["sdk"], correlation_id=correlation_id, now=now)
    return database.classify(
        raised,
        vendor=case["vendor"],
        driver=case["driver"],
        correlation_id=correlation_id,
        now=now,
    )


def expected(case: dict[str, Any], correlation_id: str = "") -> dict[str, Any]:
    found = judged(case, correlation_id)
    fields = {"envelope": found.envelope, "verdict": found.verdict, "rule": found.rule}
    decoded: dict[str, Any] = json.loads(msgspec.json.encode(fields))
    return decoded


def flat(case: dict[str, Any]) -> dict[str, Any]:
    """The same case as a program would send it: what was raised beside the other members."""
    if "response" in case:
        request, response = case["request"], case["response"]
        more = {"dialect": case["provider"], "stream": case.get("stream")}
        call = {"source": "http", **request, **response, **more}
    else:
        named = {name: case[name] for name in ("vendor", "driver", "sdk") if name in case}
        call = {"source": "sdk" if "sdk" in case else "database", **named, **case["error"]}
    return call if case.get("now") is None else {**call, "now": case["now"]}


@pytest.fixture(autouse=True)
def _at_the_time_of_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "wall", lambda: NOW)


def test_there_are_cases_of_each_source() -> None:
    assert [len(all_cases(file)) > 100 for file in FILES] == [True] * 3


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for case in cases():
        for form in (case, flat(case)):
            stdin = io.TextIOWrapper(io.BytesIO(json.dumps(form).encode()))
            monkeypatch.setattr(sys, "stdin", stdin)
            assert main(["classify"]) == 0, case["id"]
            out, err = capsys.readouterr()
            assert err == "", case["id"]
            assert json.loads(out) == expected(case), case["id"]


async def test_the_call(tmp_path: Path) -> None:
    plane, address = await started(Daemon(tmp_path))
    try:
        for number, case in enumerate(cases()):
            body = json.dumps(case)
            header = f"x-correlation-id: c-{number}"
            answer = await post(address, "/v1/classify", header, body=body)
            wanted = expected(case, f"c-{number}")
            assert (answer.status, answer.json()) == (200, wanted), case["id"]
            if number % 20:
                continue
            # Without the header nothing of what was seen.
            answer = await call(
                address, "/v1/classify", "POST", header, body=json.dumps(flat(case))
            )
            if wanted["envelope"] is not None:
                wanted["envelope"]["raw"] = None
            assert (answer.status, answer.json()) == (200, wanted), case["id"]
    finally:
        await plane.stop()


@pytest.mark.parametrize("file", FILES)
def test_real_processes(file: str, commands: Commands) -> None:
    case = next(case for case in all_cases(file) if case["expect"]["class"] is not None)
    done = commands.run("classify", stdin=json.dumps(case))
    assert (done.returncode, done.stderr) == (0, "")
    answer, wanted = json.loads(done.stdout), expected(case)
    assert answer["verdict"] == wanted["verdict"] == case["expect"]["verdict"]
    assert answer["rule"] == wanted["rule"]
    for field in ("class", "code", "retryable"):
        assert answer["envelope"][field] == case["expect"][field]
