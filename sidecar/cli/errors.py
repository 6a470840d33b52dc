"""How a command fails: one line that a person can act on, and a code that a supervisor can.

Any exception that carries an `exit_code` ends a command this way, so that the configuration and
the daemon need not know the command line.
"""

from __future__ import annotations

import sys
from enum import IntEnum


class Exit(IntEnum):
    """The exit codes; 69 and 78 are EX_UNAVAILABLE and EX_CONFIG of sysexits.h."""

    FINE = 0
    FAILED = 1
    USAGE = 2
    DEGRADED = 3
    MISLEADS = 4
    CANNOT_LISTEN = 69
    BAD_CONFIGURATION = 78
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127


class CommandError(Exception):
    """A command cannot do what it was asked.

    Attributes:
        exit_code: what the process ends with.
    """

    def __init__(self, message: str, exit_code: int = Exit.FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def say(message: str) -> None:
    """One line on stderr, marked as ours: in `run` that stream belongs to the agent too."""
    print(f"breaker-sidecar: {message}", file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Text from elsewhere (a model's name, a message), harmless to a terminal."""
    return "".join(
        character if character.isprintable() else f"\\x{ord(character):02x}" for character in text
    )
