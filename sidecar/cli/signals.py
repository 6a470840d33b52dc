"""Waiting for signals as the parent of a program that shares the terminal.

A Ctrl+C reaches every process of the terminal's foreground group, the program included. Passing it
on would make two of one, and for many programs a second one means: stop at once. Where the system
tells who sent a signal, one from the kernel is the terminal's; elsewhere it is guessed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Self

PASSED_ON = frozenset(
    {
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    }
)
"""What a supervisor or a person may send to the parent and mean the program."""

_FROM_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})


@dataclass(frozen=True, slots=True)
class Received:
    """A signal that came.

    Attributes:
        number: which.
        from_terminal: the program got it as well.
    """

    number: signal.Signals
    from_terminal: bool


class Signals:
    """Collects signals while entered; nothing is lost between two waits.

    Attributes:
        mask: the signal mask from before, for children to start with.
    """

    def __init__(self) -> None:
        self.mask: set[int] = set()
        self._awaited = {*PASSED_ON, signal.SIGCHLD}

    def __enter__(self) -> Self:
        self.mask = {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())}
        # Were it ignored, as some parents leave it, children would vanish without a code.
        self._child_handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, self._awaited)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # What is still pending was meant for a program that has ended.
        while self.wait(0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
        signal.signal(signal.SIGCHLD, self._child_handler)

    def wait(self, timeout: float | None) -> Received | None:
        """The next signal, or None after `timeout` seconds (None: however long it takes)."""
        info = signal.sigtimedwait(self._awaited, 3600.0 if timeout is None else timeout)
        if info is None:
            return None
        return Received(
            signal.Signals(info.si_signo),
            from_terminal=info.si_code > 0 and info.si_signo in _FROM_TERMINAL,
        )


class HandledSignals(Signals):
    """The same where the system has no `sigtimedwait` (macOS): by handlers and a pipe."""

    def __enter__(self) -> Self:
        self.mask = {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())}
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._before = {
            number: signal.signal(number, _noted)
            for number in self._awaited
            if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, timeout: float | None) -> Received | None:
        """The next signal, or None after `timeout` seconds (None: however long it takes)."""
        select.select([self._reader], [], [], timeout)
        with contextlib.suppress(BlockingIOError):
            number = signal.Signals(os.read(self._reader, 1)[0])
            return Received(
                number, from_terminal=number in _FROM_TERMINAL and _is_foreground_of_terminal()
            )
        return None


def collect() -> Signals:
    """The better of the two that this system has."""
    return Signals() if hasattr(signal, "sigtimedwait") else HandledSignals()


def _noted(_number: int, _frame: FrameType | None) -> None:
    """The pipe says it; a handler has to exist for that."""


def _is_foreground_of_terminal() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
