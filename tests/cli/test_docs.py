"""docs/cli.md names every command, every option and every exit code."""

import argparse
import re
import shlex
from pathlib import Path

import pytest

from sidecar.cli import COMMANDS, module_of, parser_of
from sidecar.cli.errors import Exit

ROOT = Path(__file__).resolve().parents[2]
DOCS = (ROOT / "docs" / "cli.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def section(name: str) -> str:
    found = re.search(
        rf"^## [^\n]*\b{name}\b[^\n]*\n(.*?)(?=^## |\Z)", DOCS, re.MULTILINE | re.DOTALL
    )
    assert found, f"docs/cli.md has no section for {name}"
    return found[1]


def commands_in(text: str) -> list[list[str]]:
    """The arguments of each `breaker-sidecar` that a console block says, without redirections."""
    lines = [
        line
        for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]
    found = [re.search(r"(?:^|\$\()breaker-sidecar([^)|>]*)", line) for line in lines]
    return [shlex.split(match[1], comments=True) for match in found if match]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_shows_is_understood(page: Path) -> None:
    for name, *arguments in commands_in(page.read_text()):
        parser_of(name, module_of(name)).parse_args(arguments, argparse.Namespace(command=name))


def test_the_readme_says_how_to_get_the_command_before_it_is_used() -> None:
    readme = (ROOT / "README.md").read_text()
    blocks = "".join(re.findall(r"^```console\n(.*?)^```", readme, re.MULTILINE | re.DOTALL))
    before = blocks.partition("breaker-sidecar ")[0]
    assert "make run" in before
    assert "make test" in before
    assert "pip install ." in before


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
