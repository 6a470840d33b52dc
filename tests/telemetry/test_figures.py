"""What facts add up to, without a daemon around them."""

from __future__ import annotations

from sidecar.breaker.model import Cause, State
from sidecar.envelope.model import Source, Verdict
from sidecar.telemetry import instruments
from sidecar.telemetry.bounds import CODES, MODELS, code_label
from sidecar.telemetry.figures import Figures
from sidecar.telemetry.observer import ConfigReloaded, Ending, Fault

from .facts import call, cancelled, envelope, failed, refused, reported, transition


def test_a_dependency_counts_beside_the_providers() -> None:
    figures = Figures(["openai", "orders-db"])
    figures(reported("40P01", verdict=Verdict.ALIVE))
    figures(reported("08006", verdict=Verdict.FAILURE))
    figures(reported(envelope=None, verdict=Verdict.SUCCESS))
    figures(reported("breaker_open", decision="breaker_open", verdict=None,
                     envelope=envelope("breaker_open", source=Source.SIDECAR)))  # fmt: skip
    figures(reported(decision="expired", envelope=None, verdict=Verdict.NEUTRAL))
    own = figures.named["orders-db"]
    assert dict(zip(instruments.VERDICTS, own.subjects[""].verdicts, strict=True)) == {
        "success": 1, "failure": 1, "alive": 1, "throttle": 0, "neutral": 0,
    }  # fmt: skip
    assert own.refused["breaker_open"] == 1
    assert own.permits_expired == 1
    assert own.endings["reported"] == 3
    assert {code for _, _, code in own.codes} == {"40xxx", "08xxx", "breaker_open"}
    assert sum(own.duration.counts) == 3


def test_every_ending_is_counted_once_and_a_caller_who_left_is_no_error() -> None:
    figures = Figures(["openai"])
    figures(call(ending=Ending.ANSWERED))
    figures(cancelled())
    figures(failed("stream_truncated"))
    figures(failed("idle_timeout", decision="timeout"))
    figures(call(ending=Ending.SHUTDOWN, verdict=Verdict.NEUTRAL))
    figures(refused())
    own = figures.named["openai"]
    assert own.endings == {
        "answered": 1, "client_left": 1, "upstream_cut": 1, "timed_out": 1, "shutdown": 1,
        "refused": 1, "reported": 0,
    }  # fmt: skip
    assert sum(own.envelopes.values()) == 3


def test_what_a_reload_removed_comes_back_with_nothing() -> None:
    figures = Figures(["openai"])
    figures(call())
    figures.configure(["another"])
    figures(call())
    figures(transition(provider="openai", key="openai/m"))
    figures.configure(["openai"])
    assert sum(figures.named["openai"].subjects[""].verdicts) == 0
    assert "gpt-x" not in figures.named["openai"].subjects


def test_calls_that_name_no_provider_are_counted_too() -> None:
    figures = Figures([])
    figures(refused("unknown_provider", provider=None, key=None, model=None))
    assert figures.named[""].refused["unknown_provider"] == 1
    assert set(figures.named[""].refused) == set(instruments.REFUSALS)


def test_a_model_needs_to_tell_something_to_have_a_place() -> None:
    figures = Figures(["openai"])
    own = figures.named["openai"]
    for n in range(MODELS * 5):
        figures(call(key=f"openai/typo-{n}", verdict=Verdict.ALIVE))
    assert set(own.subjects) == {"", "other"}
    for n in range(MODELS * 5):
        figures(failed(key=f"openai/real-{n}"))
    assert len(own.subjects) == MODELS + 2
    figures(
        transition(key="openai/late", old=State.CLOSED, new=State.OPEN, cause=Cause.FAILURE_RATIO)
    )
    assert own.subjects["other"].moves == {("closed", "open", "failure_ratio", "true"): 1}
    assert sum(own.subjects["other"].verdicts) == MODELS * 9


def test_codes_are_of_a_closed_list_and_bounded_all_the_same() -> None:
    assert code_label("model_not_found") == "model_not_found"
    assert code_label("429") == "429"
    assert code_label("999") == "other"
    assert code_label("shed") == "shed"
    assert code_label("Rate-Limit-Exceeded") == "rate_limit_exceeded"
    assert code_label("40P01") == "40xxx"
    assert code_label("req_8213_made_up") == "other"
    figures = Figures(["openai"])
    for n in range(10_000):
        figures(failed(f"{n % 36}{chr(65 + n % 26)}{n % 1000:03d}"[:5].zfill(5)))
    for status in range(100, 600):
        figures(failed(str(status)))
    assert len(figures.named["openai"].codes) <= CODES + 20


def test_faults_and_reloads() -> None:
    figures = Figures([])
    figures(Fault(at=1.0, where="classify", error=ValueError()))
    figures(Fault(at=1.0, where="somewhere", error=ValueError()))
    assert (figures.faults["classify"], figures.faults["other"]) == (1, 1)
    figures(ConfigReloaded(at=1.0, generation=1, hash="x", problems=("bad",)))
    assert not figures.reload_good
    figures(ConfigReloaded(at=1.0, generation=2, hash="y"))
    assert figures.reload_good
    assert figures.reloads == {"taken": 1, "refused": 1}
