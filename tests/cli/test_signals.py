"""Both ways to collect signals tell the same."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from sidecar.cli.children import start_program
from sidecar.cli.signals import HandledSignals, Signals, collect

ways = pytest.mark.parametrize(
    "way",
    [
        pytest.param(
            Signals,
            marks=pytest.mark.skipif(
                not hasattr(signal, "sigtimedwait"), reason="this system has no sigtimedwait"
            ),
        ),
        HandledSignals,
    ],
)


@ways
def test_signals_are_kept_until_they_are_asked_for(way: Callable[[], Signals]) -> None:
    with way() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        received = signals.wait(5)
        assert received is not None
        assert received.number == signal.SIGINT
        os.kill(os.getpid(), signal.SIGTERM)
        received = signals.wait(5)
        assert received is not None
        assert (received.number, received.from_terminal) == (signal.SIGTERM, False)
        assert signals.wait(0.01) is None


@ways
def test_a_child_that_ends_is_noticed(way: Callable[[], Signals]) -> None:
    with way() as signals:
        child = start_program(["sh", "-c", "exit 3"], os.environ, tuple(signals.mask))
        received = signals.wait(5)
        assert received is not None
        assert received.number == signal.SIGCHLD
        assert child.wait() == 3


@ways
def test_a_child_starts_with_signals_as_they_were(way: Callable[[], Signals]) -> None:
    with way() as signals:
        child = start_program(["sh", "-c", "kill -TERM $$; exit 0"], {}, tuple(signals.mask))
        assert child.wait() == -signal.SIGTERM
        child = start_program(["sleep", "60"], os.environ, tuple(signals.mask))
        time.sleep(0.05)  # until exec
        child.send(signal.SIGINT)
        assert child.wait() == -signal.SIGINT
        child.send(signal.SIGTERM)  # to nobody


@ways
def test_everything_is_as_before_afterwards(way: Callable[[], Signals]) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGCHLD)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with way():
        pass
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGCHLD)) == before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask


@pytest.mark.skipif(not hasattr(signal, "sigtimedwait"), reason="no sigtimedwait here")
def test_a_signal_from_a_process_is_never_taken_for_the_terminals() -> None:
    with collect() as signals:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            os.kill(os.getpid(), number)
            received = signals.wait(5)
            assert received is not None
            assert (received.number, received.from_terminal) == (number, False)
