"""Loading a text as if it were the file."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sidecar.config import Config, ConfigError, load

MINIMAL = "providers: {a: {upstream: https://api.example}}\n"


@pytest.fixture
def load_text(tmp_path: Path) -> Callable[..., Config]:
    def loads(text: str, environ: Mapping[str, str] | None = None, **options: Any) -> Config:
        file = tmp_path / "breakers.yaml"
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return load(file, environ=environ or {}, **options)

    return loads


@pytest.fixture
def problems_of(load_text: Callable[..., Config], tmp_path: Path) -> Callable[..., list[str]]:
    """The problems of a text, as lines without the folder."""

    def finds(text: str, environ: Mapping[str, str] | None = None, **options: Any) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load_text(text, environ, **options)
        return [str(problem).replace(f"{tmp_path}/", "") for problem in caught.value.problems]

    return finds


@pytest.fixture
def load_provider(load_text: Callable[..., Config]) -> Callable[..., Any]:
    """The provider `a` with these YAML lines beside its upstream."""

    def loads(text: str, environ: Mapping[str, str] | None = None) -> Any:
        lines = textwrap.indent(textwrap.dedent(text), "    ")
        head = "providers:\n  a:\n    upstream: https://api.example\n"
        return load_text(head + lines, environ).providers["a"]

    return loads


@pytest.fixture
def provider_problems(problems_of: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Like `load_provider`, for what is wrong; the lines start at 4."""

    def finds(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
        lines = textwrap.indent(textwrap.dedent(text), "    ")
        return problems_of("providers:\n  a:\n    upstream: https://api.example\n" + lines, environ)

    return finds
