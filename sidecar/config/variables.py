"""`${VAR}` and `${VAR:-default}` in the values of a file.

They are expanded after the file was parsed, so that no value can add keys or lines. A variable
that is set to nothing counts as unset, as with `:-` in a shell: an empty host or key is never
meant. `$${` stands for a literal `${`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^${}]*))?\}|\$\{")


class UnsetVariableError(LookupError):
    """A variable without a default is not set; `name` is its name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not set")
        self.name = name


def expand(text: str, environ: Mapping[str, str]) -> str:
    """The text with every reference replaced.

    Raises:
        UnsetVariableError: for the first variable that is unset and has no default.
        ValueError: if a `${` starts no reference.
    """

    def value(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name, default = match[1], match[2]
        if name is None:
            raise ValueError("a ${ that starts no ${VAR} and no ${VAR:-default}")
        found = environ.get(name) or default
        if found is None:
            raise UnsetVariableError(name)
        return found

    return _REFERENCE.sub(value, text)
