"""Reads what `/metrics` says, line by line, as strictly as Prometheus does."""

from __future__ import annotations

import re

LINE = re.compile(
    r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)'
)
PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\.)*)"')

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse(text: str) -> Series:
    """Every series with its value; raises where a line is no sample or one stands there twice."""
    found: Series = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        assert match is not None, line
        pairs = [
            (name, re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], value))
            for name, value in PAIR.findall(match[2] or "")
        ]
        key = (match[1], frozenset(pairs))
        assert key not in found, f"twice: {line}"
        found[key] = float(match[3])
    return found


def value(found: Series, name: str, **labels: str) -> float:
    """The one series that has these labels, among others."""
    wanted = {(label.rstrip("_"), text) for label, text in labels.items()}
    hits = [figure for (known, pairs), figure in found.items() if known == name and wanted <= pairs]
    assert len(hits) == 1, (name, labels, hits)
    return hits[0]


def total(found: Series, name: str, **labels: str) -> float:
    """The sum of all series that have these labels."""
    wanted = {(label.rstrip("_"), text) for label, text in labels.items()}
    return sum(
        figure for (known, pairs), figure in found.items() if known == name and wanted <= pairs
    )
