"""The command line: finds the command, loads that one file, turns its failures into exit codes.

A command's module is imported only when it is called, since the daemon has to be ready within a
second and a table library is of no use to it.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any, NoReturn, Protocol

from sidecar import __version__
from sidecar.cli.errors import CommandError, Exit, say

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("serve", "run the daemon in the foreground; the default without a command"),
    "run": ("run", "run a program with a daemon of its own beside it"),
    "check": ("check", "validate the configuration"),
    "env": ("env", "print the export lines that lead a program to the daemon"),
    "status": ("status", "show providers and breakers"),
    "open": ("control", "force a breaker open"),
    "close": ("control", "force a breaker closed"),
    "reset": ("control", "forget what a breaker has counted and let it decide again"),
    "enforce": ("control", "let a breaker refuse calls"),
    "observe": ("control", "let a breaker count and report, and refuse nothing"),
    "off": ("control", "switch a breaker off"),
    "classify": ("classify", "say what one recorded error is"),
    "faults": ("faults", "show what the daemon would inject, and how it is judged"),
    "demo": ("demo", "show in half a minute what the daemon is for; no network is needed"),
    "healthcheck": ("healthcheck", "exit 0 if the daemon is alive"),
}
"""Each command with the module that does it and a line of help."""


class Command(Protocol):
    """What the module of a command offers."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def execute(self, arguments: argparse.Namespace) -> int:
        """Do it; returns the exit code."""


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake is one line: a supervisor's log shows the reason, not the usage."""

    def error(self, message: str) -> NoReturn:
        """Ends with code 2."""
        say(f"{message} (see {self.prog} --help)")
        raise SystemExit(Exit.USAGE)


def parser_of(name: str, module: Command) -> Parser:
    """The parser of one command."""
    parser = Parser(
        prog=f"breaker-sidecar {name}",
        description=f"{COMMANDS[name][1][0].upper()}{COMMANDS[name][1][1:]}.",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.configure(parser)
    return parser


def module_of(name: str) -> Command:
    """The module that does a command, imported now."""
    module: Any = importlib.import_module(f"sidecar.cli.{COMMANDS[name][0]}")
    command: Command = module
    return command


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else Exit.FINE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of our output has left; the interpreter must not complain of it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILED
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        return _explain(error, arguments[:1])


def _dispatch(arguments: list[str]) -> int:
    first = arguments[0] if arguments else "serve"
    if first in ("-h", "--help"):
        print(_help())
        return Exit.FINE
    if first in ("-V", "--version"):
        print(f"breaker-sidecar {__version__}")
        return Exit.FINE
    if first.startswith("-"):
        first = "serve"
    elif first not in COMMANDS:
        near = difflib.get_close_matches(first, COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else "see breaker-sidecar --help"
        raise CommandError(f"there is no command {first!r} ({hint})", Exit.USAGE)
    else:
        arguments = arguments[1:]
    if first == "serve":
        _stop_at_once_while_starting()
    with _reloads_held_back() if first == "serve" else nullcontext():
        module = module_of(first)
        parsed = parser_of(first, module).parse_args(arguments, argparse.Namespace(command=first))
        code = module.execute(parsed)
    sys.stdout.flush()  # here and not at the end of the interpreter, where nothing is caught
    return code


def _stop_at_once_while_starting() -> None:
    """As process 1 a signal without a handler is ignored, and imports take a while.

    The daemon puts its own handlers in their place once it has something to drain.
    """

    def stop(_signal: int, _frame: FrameType | None) -> None:
        os._exit(Exit.FINE)

    for number in (signal.SIGTERM, signal.SIGINT):
        # A background job of a shell without job control inherits an ignored SIGINT.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


@contextmanager
def _reloads_held_back() -> Iterator[None]:
    """A SIGHUP during the start is kept for the daemon, which lets it through once it can reload.

    One that comes when there is nothing to reload any more has nobody to go to.
    """
    hangup = {signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, hangup)
    try:
        yield
    finally:
        if signal.SIGHUP in signal.sigpending():
            signal.sigwait(hangup)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, hangup)


def _explain(error: Exception, command: list[str]) -> int:
    code = getattr(error, "exit_code", None)
    if not isinstance(code, int):
        reason = " ".join(str(error).split())
        say(f"{type(error).__name__}: {reason} (PYTHONDEVMODE=1 shows where)")
        return Exit.FAILED
    problems = getattr(error, "problems", None)
    if problems is None:
        say(" ".join(str(error).split()))
        return code
    for problem in problems:
        print(" ".join(str(problem).split()), file=sys.stderr)
    count = len(problems)
    hint = "" if command == ["check"] else "; `breaker-sidecar check` tries it and starts nothing"
    say(f"{count} problem{'s' if count > 1 else ''} in the configuration{hint}")
    return code


def _help() -> str:
    lines = [
        "usage: breaker-sidecar [COMMAND] [options]",
        "",
        "A local circuit breaker that every agent runs beside.",
        "",
    ]
    lines += [f"  {name:<12} {summary}" for name, (_, summary) in COMMANDS.items()]
    lines += [
        "",
        "breaker-sidecar COMMAND --help tells more; breaker-sidecar --version, which one this is.",
        "Exit codes: 0 fine, 1 failed, 2 usage, 3 degraded, 69 cannot listen, 78 bad configuration",
    ]
    return "\n".join(lines)
