"""What is wrong with a configuration, in a form that a person can act on.

A load collects every problem before it gives up, since a file that is mended one error at a time
costs one restart for each. A problem never quotes a value that came from the environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """One thing to mend.

    Attributes:
        source: where it stands: the file's path, a variable's name or a flag.
        line: the line in the file, from 1; None where there is none.
        path: the key, dotted (`providers.openai.timeouts.idle`); empty for the file as a whole.
        message: what is wrong, without an end mark.
        hint: what would be right; empty where nothing is known.
    """

    source: str
    line: int | None
    path: str
    message: str
    hint: str = ""

    @property
    def told(self) -> str:
        """Key, message and hint, for whoever knows where it stands."""
        key = f"{self.path}: " if self.path else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{key}{self.message}{hint}"

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        text = f"{place}: {self.told}"
        # What stands in a file must not steer the terminal that shows it.
        return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


class ConfigError(Exception):
    """The configuration cannot be used; `problems` holds every reason, in order of lines.

    The exit code is EX_CONFIG of sysexits.h.
    """

    exit_code: ClassVar[int] = 78

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: (problem.source, problem.line or 0))
        super().__init__("\n".join(str(problem) for problem in self.problems))
