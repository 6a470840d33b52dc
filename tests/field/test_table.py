"""The table of the field cases is complete and true: every number has a test or a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parent
CASES = TESTS.parent.parent / "shared" / "field-cases.md"
ROW = re.compile(r"^\| (F\d{3}) \| (.+?) \| (.*?) \|$", re.MULTILINE)
ROWS = ROW.findall((HERE / "README.md").read_text())


def numbers_in(file: Path) -> set[str]:
    """The cases that the tests of a file carry in their names."""
    names = re.findall(r"def (test_\w+)\(", file.read_text())
    return {f"F{number}" for name in names for number in re.findall(r"_f(\d{3})(?=_)", name)}


def test_every_case_stands_in_the_table_once() -> None:
    listed = [number for number, _, _ in ROWS]
    assert len(listed) == len(set(listed))
    assert listed == sorted(listed)
    assert len(listed) > 100
    # The list is kept beside the repository; who has only the repository has the table.
    if CASES.exists():
        known = re.findall(r"^### (F\d{3}) ", CASES.read_text(), re.MULTILINE)
        assert listed == known


@pytest.mark.parametrize(("number", "files", "note"), ROWS)
def test_a_row_names_its_tests_or_its_reason(number: str, files: str, note: str) -> None:
    if files == "–":
        assert note.startswith("not built yet: ")
        return
    for file in re.findall(r"`([^`]+)`", files):
        assert number in numbers_in(TESTS / file), file


def test_no_test_of_a_case_is_left_out() -> None:
    for file in sorted(TESTS.rglob("test_*.py")):
        for number in numbers_in(file):
            (files,) = [files for known, files, _ in ROWS if known == number]
            assert f"`{file.relative_to(TESTS)}`" in files, number
