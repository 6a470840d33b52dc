"""Durations and sizes: read strictly, written back in the same grammar.

A duration is a number of seconds, or digits with one of four units. There are no compounds
(`1m30s`) and no spaces: one way to write a value is one way to misread it less.
"""

from __future__ import annotations

import re

_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(ms|s|m|h)")
_SIZE = re.compile(r"([0-9]{1,15})(KiB|MiB|GiB)")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_MOST_DIGITS = 18

DURATION_PATTERN = r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$"
SIZE_PATTERN = r"^[0-9]+(KiB|MiB|GiB)$"
DURATION_HINT = "write seconds (30, 0.25) or one of 250ms, 30s, 5m, 1h"
SIZE_HINT = "write bytes (65536) or one of 256KiB, 1MiB, 1GiB"


def parse_number(text: str) -> float | None:
    """A finite decimal number, or None.

    Underscores, hexadecimal, octal and base 60 of YAML 1.1 are no numbers here; nor are `.nan`
    and `.inf`, nor a number too large to be finite.
    """
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if abs(number) != float("inf") else None


def parse_integer(text: str) -> int | None:
    """A whole number of at most 18 digits, or None."""
    if not _INTEGER.fullmatch(text) or len(text) > _MOST_DIGITS:
        return None
    return int(text)


def parse_duration(text: str) -> float | None:
    """Seconds from `250ms`, `1.5s`, `5m` or `1h`; None if it is none of these."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    return round(float(match[1]) * _SECONDS[match[2]], 9)


def parse_size(text: str) -> int | None:
    """Bytes from `256KiB`, `1MiB` or `1GiB`; None if it is none of these."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _BYTES[match[2]] if match else None


def format_duration(seconds: float) -> str:
    """The shortest exact way to write a duration, with the largest unit that stays whole."""
    nanoseconds = round(seconds * 1e9)
    for unit in ("h", "m", "s", "ms"):
        whole = round(_SECONDS[unit] * 1e9)
        if nanoseconds and nanoseconds % whole == 0:
            return f"{nanoseconds // whole}{unit}"
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def format_size(size: int) -> str | int:
    """The largest unit that stays whole, or plain bytes."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return size
