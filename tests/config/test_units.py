"""Durations and sizes: one way to write each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.config import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("30s", 30.0), ("5m", 300.0), ("1h", 3600.0), ("1.5s", 1.5), ("0s", 0.0)],
)
def test_durations(text, seconds):
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "5 s",
        "5sec",
        "1m30s",
        "-5s",
        "+5s",
        "5S",
        "1d",
        "s",
        ".5s",
        "5.s",
        "1e3s",
        "٣s",
        "5s\n",
    ],
)
def test_no_durations(text):
    assert units.parse_duration(text) is None


@pytest.mark.parametrize(("text", "size"), [("1KiB", 1024), ("256KiB", 262144), ("1GiB", 2**30)])
def test_sizes(text, size):
    assert units.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "1", "1KB", "1kib", "1.5MiB", "-1MiB", "1 MiB", "1TiB", "1B"])
def test_no_sizes(text):
    assert units.parse_size(text) is None


@pytest.mark.parametrize(
    "text", [".nan", ".inf", "nan", "inf", "1e999", "0x10", "1_000", "1:30", "", "--1", "1e"]
)
def test_no_numbers(text):
    assert units.parse_number(text) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (90, "90s"),
        (60, "1m"),
        (5400, "90m"),
        (3600, "1h"),
        (1.0005, "1.0005s"),
    ],
)
def test_written_durations(seconds, text):
    assert units.format_duration(seconds) == text


@given(st.integers(0, 31_536_000_000_000))
def test_a_written_duration_reads_back(microseconds):
    seconds = microseconds / 1_000_000
    assert units.parse_duration(units.format_duration(seconds)) == pytest.approx(seconds, abs=1e-8)


@given(st.integers(1, 2**40))
def test_a_written_size_reads_back(size):
    written = units.format_size(size)
    assert (written if isinstance(written, int) else units.parse_size(written)) == size


def test_a_misspelt_method_is_named(problems_of):
    text = "defaults: {retry: {methods: [PSOT, REPORT, QUERY, GET]}}\n"
    said = problems_of(text + "providers: {a: {upstream: https://api.example}}\n")
    assert len(said) == 1
    assert 'there is no method "PSOT"' in said[0]
    assert 'did you mean "POST"?' in said[0]
