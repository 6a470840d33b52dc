"""docs/cli.md names every command, every option and every exit code."""

import argparse
import re
from pathlib import Path

import pytest

from sidecar.cli import COMMANDS, module_of, parser_of
from sidecar.cli.errors import Exit

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()


def section(name: str) -> str:
    found = re.search(
        rf"^## [^\n]*\b{name}\b[^\n]*\n(.*?)(?=^## |\Z)", DOCS, re.MULTILINE | re.DOTALL
    )
    assert found, f"docs/cli.md has no section for {name}"
    return found[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_described(name: str) -> None:
    text = section(name)
    if name == "run":
        text += section("serve")
    for action in parser_of(name, module_of(name))._actions:
        if action.help == argparse.SUPPRESS or action.dest == "help":
            continue
        for option in action.option_strings:
            assert f"`{option}" in text or f", `{option}" in text, f"{name} {option}"


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_is_described_that_does_not_exist(name: str) -> None:
    options = {
        option
        for action in parser_of(name, module_of(name))._actions
        for option in action.option_strings
    }
    rows = [line for line in section(name).splitlines() if line.startswith("| `--")]
    described = {found for row in rows for found in re.findall(r"`(--[a-z-]+)", row.split("|")[1])}
    assert described <= options


def test_every_exit_code_is_described() -> None:
    text = DOCS.partition("## Exit codes")[2].partition("\n## ")[0]
    for code in Exit:
        assert re.search(rf"\b{code.value}\b", text), code.name
