"""What was found before, and what is no longer so."""

import json
from pathlib import Path

import pytest

from sidecar.audit import baseline
from sidecar.audit.audit import Report
from sidecar.audit.baseline import BaselineError

from .conftest import audited
from .upstream import Started, error


async def report(folder: Path, started: Started, **options: object) -> Report:
    return await audited(folder, await started(**options))


async def test_it_is_the_same_after_a_round(tmp_path: Path, started: Started) -> None:
    found = await report(tmp_path, started)
    file = tmp_path / "b.json"
    assert baseline.read(file) is None
    baseline.write(file, baseline.of_report(found))
    before = baseline.read(file)
    assert before is not None
    assert baseline.compare(before, found) == ()
    assert json.loads(file.read_text())["cases"]["chat/unknown_model"] == {
        "class": "permanent",
        "code": "model_not_found",
        "status": 404,
    }
    assert list(tmp_path.glob(".b.json*")) == []


async def test_a_change_of_class_is_breaking_and_of_code_is_not(
    tmp_path: Path, started: Started
) -> None:
    before = baseline.of_report(await report(tmp_path, started))
    lies = {
        "json": (500, "oops"),
        "model": (404, error("No", "unknown_model_name")),
        "key": (403, error("Incorrect API key provided", "invalid_api_key")),
    }
    changes = baseline.compare(before, await report(tmp_path, started, lies=lies))
    breaking = {change.id for change in changes if change.breaking}
    assert breaking == {"chat/malformed_json", "responses/malformed_json"}
    assert {change.id for change in changes} - breaking == {
        "chat/unknown_model",
        "responses/unknown_model",
        "wrong_key",
    }


async def test_cases_that_are_new_or_gone(tmp_path: Path, started: Started) -> None:
    few = await report(tmp_path, started, routes=("/v1/chat/completions",))
    many = await report(tmp_path, started)
    new = baseline.compare(baseline.of_report(few), many)
    assert {change.id for change in new} == {
        "responses/unknown_model",
        "responses/malformed_json",
        "responses/missing_field",
    }
    assert all(change.before is None for change in new)
    gone = baseline.compare(baseline.of_report(many), few)
    assert all(change.after is None and not change.breaking for change in gone)
    assert len(gone) == 3


async def test_what_was_not_reached_is_neither_remembered_nor_compared(
    tmp_path: Path, started: Started
) -> None:
    upstream = await started()
    full, locked = await audited(tmp_path, upstream), await audited(tmp_path, upstream, key=None)
    assert "chat/unknown_model" not in baseline.of_report(locked).cases
    assert baseline.compare(baseline.of_report(full), locked) == ()


async def test_a_baseline_of_another_provider(tmp_path: Path, started: Started) -> None:
    found = await report(tmp_path, started)
    other = baseline.Baseline(schema=1, version="0", provider="q", dialect="openai", cases={})
    with pytest.raises(BaselineError, match="is of q"):
        baseline.compare(other, found)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"schema": 1}', b"[" * 100_000,
     b'{"schema": 9, "version": "1", "provider": "p", "dialect": "openai", "cases": {}}'],
)  # fmt: skip
def test_a_file_that_is_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "b.json"
    file.write_bytes(content)
    with pytest.raises(BaselineError, match=re_escape(str(file))):
        baseline.read(file)


def re_escape(text: str) -> str:
    import re

    return re.escape(text)


async def test_a_folder_that_is_not_there(tmp_path: Path, started: Started) -> None:
    found = baseline.of_report(await report(tmp_path, started))
    with pytest.raises(BaselineError, match="No such file"):
        baseline.write(tmp_path / "none" / "b.json", found)
    with pytest.raises(BaselineError):
        baseline.read(tmp_path)
