"""Facts reach every listener, and no listener costs a call."""

import logging

import pytest

from sidecar.envelope.model import Verdict
from sidecar.telemetry.observer import Ending, Fact, Observer, ending_of

from .facts import call, cancelled, envelope, failed, refused, transition


def test_every_listener_hears_every_fact_in_order() -> None:
    heard: list[tuple[str, Fact]] = []
    observer = Observer(lambda fact: heard.append(("a", fact)))
    second = lambda fact: heard.append(("b", fact))  # noqa: E731
    observer.add(second)
    fact = call()
    observer.emit(fact)
    assert heard == [("a", fact), ("b", fact)]
    observer.remove(second)
    observer.remove(second)
    observer.emit(transition())
    assert [name for name, _ in heard] == ["a", "b", "a"]


def test_a_failing_listener_is_counted_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Fact] = []

    def broken(fact: Fact) -> None:
        raise ZeroDivisionError

    observer = Observer(broken, heard.append)
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            observer.emit(call())
    assert len(heard) == 5
    assert observer.failures == 5
    assert [record.getMessage() for record in caplog.records] == ["listener.failed"]


def test_a_listener_may_leave_while_it_hears() -> None:
    heard: list[Fact] = []

    def once(fact: Fact) -> None:
        heard.append(fact)
        observer.remove(once)

    observer = Observer(once)
    observer.emit(call())
    observer.emit(call())
    assert len(heard) == 1


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        (call(), Ending.ANSWERED),
        (failed(), Ending.ANSWERED),
        (failed("invalid_upstream_response", decision="upstream_error"), Ending.ANSWERED),
        (cancelled(), Ending.CLIENT_LEFT),
        (failed("hang_abandoned", status=0), Ending.CLIENT_LEFT),
        (failed("stream_truncated", status=200), Ending.UPSTREAM_CUT),
        (failed("connection_reset", decision="upstream_error"), Ending.UPSTREAM_CUT),
        (failed("first_byte_timeout", decision="timeout"), Ending.TIMED_OUT),
        (failed("idle_timeout", status=200), Ending.TIMED_OUT),
        (failed("gateway_timeout"), Ending.ANSWERED),
        (failed("draining", ending=Ending.SHUTDOWN), Ending.SHUTDOWN),
        (refused(), Ending.REFUSED),
        (refused("unknown_provider", provider=None, key=None), Ending.REFUSED),
    ],
)
def test_f166_every_call_has_one_ending(fact: object, expected: Ending) -> None:
    assert ending_of(fact) is expected  # type: ignore[arg-type]


def test_a_neutral_verdict_with_an_envelope_is_no_cancel() -> None:
    fact = failed(
        "connection_closed", verdict=Verdict.NEUTRAL, envelope=envelope("connection_closed")
    )
    assert ending_of(fact) is Ending.UPSTREAM_CUT
