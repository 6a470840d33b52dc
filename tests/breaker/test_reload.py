"""A reload keeps what did not change, and never hurts a call that runs."""

import msgspec
import pytest

from sidecar.breaker.model import (
    Mode,
    Outcome,
    ProviderSettings,
    Reconfigured,
    Refusal,
    Scope,
    Settings,
    State,
    Verb,
)
from sidecar.breaker.registry import Registry
from sidecar.envelope.model import Verdict

FAILURE = Outcome(Verdict.FAILURE)
ONE = ProviderSettings(upstream="https://one.example", settings=Settings(jitter=0.0))


class Scene:
    def __init__(self):
        self.transitions = []
        self.registry = Registry(self.transitions.append, random=lambda: 0.0)
        self.now = 1000.0

    def load(self, **providers):
        return self.registry.configure(providers, self.now)

    def fail(self, provider, times):
        for _ in range(times):
            self.registry.admit(provider, "gpt-x", self.now).settle(FAILURE, self.now)

    def shown(self, provider):
        return self.registry.snapshots(provider, self.now)[1]


@pytest.fixture
def at():
    scene = Scene()
    scene.load(a=ONE, b=ONE, c=ONE)
    return scene


def test_f123_state_survives_an_unrelated_change(at):
    # Given A open and B at four of five failures
    at.fail("a", 5)
    at.fail("b", 4)
    due = at.shown("a").half_open_at
    at.now += 10
    # When something else changes
    assert at.load(a=ONE, b=ONE, d=ONE) == Reconfigured(
        kept=("a", "b"), added=("d",), removed=("c",)
    )
    # Then A has the same deadline, and B opens with the next failure
    assert at.shown("a").state is State.OPEN
    assert at.shown("a").half_open_at == due
    at.fail("b", 1)
    assert at.shown("b").state is State.OPEN


@pytest.mark.parametrize(
    "other",
    [
        msgspec.structs.replace(ONE, upstream="https://other.example"),
        msgspec.structs.replace(ONE, scope=Scope.PROVIDER),
    ],
)
def test_f123_another_identity_starts_fresh(at, other):
    at.fail("a", 5)
    assert at.load(a=other, b=ONE, c=ONE) == Reconfigured(kept=("b", "c"), replaced=("a",))
    assert not isinstance(at.registry.admit("a", "gpt-x", at.now), Refusal)


def test_f124_other_thresholds_apply_from_the_next_outcome(at):
    at.fail("a", 4)
    lower = msgspec.structs.replace(ONE, settings=Settings(consecutive_failures=3))
    assert at.load(a=lower, b=ONE, c=ONE) == Reconfigured(kept=("b", "c"), changed=("a",))
    assert at.shown("a").state is State.CLOSED
    at.fail("a", 1)
    assert at.shown("a").state is State.OPEN


def test_f124_other_thresholds_reach_models_not_yet_seen(at):
    lower = msgspec.structs.replace(ONE, settings=Settings(consecutive_failures=1))
    at.load(a=lower)
    at.fail("a", 1)
    assert at.shown("a").state is State.OPEN


def test_f124_each_threshold_takes_effect(at):
    def reload(**settings):
        at.load(a=msgspec.structs.replace(ONE, settings=Settings(**settings)))

    reload(minimum_calls=2, consecutive_failures=0)
    at.fail("a", 2)
    assert at.shown("a").retry_after == pytest.approx(30)
    at.now += 30
    reload(open_for=7.0, jitter=0.0)
    at.fail("a", 1)
    assert at.shown("a").retry_after == pytest.approx(14)
    at.now += 14
    reload(successes=1)
    at.registry.admit("a", "gpt-x", at.now).settle(Outcome(Verdict.SUCCESS), at.now)
    assert at.shown("a").state is State.CLOSED
    reload(window=10.0)
    assert at.shown("a").window.seconds == 10.0
    reload(failure_ratio=0.0, consecutive_failures=0)
    at.fail("a", 100)
    assert at.shown("a").state is State.CLOSED
    reload(mode=Mode.OBSERVE)
    assert at.shown("a").mode is Mode.OBSERVE


def test_a_running_open_time_is_not_changed(at):
    at.fail("a", 5)
    at.load(a=msgspec.structs.replace(ONE, settings=Settings(open_for=1.0)))
    assert at.shown("a").retry_after == pytest.approx(30)


def test_f051_what_was_set_by_hand_survives(at):
    at.fail("a", 1)
    at.registry.control("a/gpt-x", Verb.OPEN, at.now, None, "drill")
    at.registry.control("a", Verb.OBSERVE, at.now)
    at.load(a=msgspec.structs.replace(ONE, settings=Settings(window=10.0)))
    assert at.shown("a").forced.reason == "drill"
    assert at.registry.snapshots("a", at.now)[0].mode is Mode.OBSERVE


@pytest.mark.parametrize("replaced", [True, False])
def test_f034_calls_of_a_provider_that_went_away_end_without_a_trace(at, replaced):
    calls = [at.registry.admit("a", "gpt-x", at.now) for _ in range(20)]
    other = msgspec.structs.replace(ONE, upstream="https://other.example")
    at.load(**({"a": other} if replaced else {}))
    for call in calls:
        call.first_byte(at.now)
        call.settle(FAILURE, at.now)
    assert at.transitions == []
    assert at.registry.faults == 0
    if replaced:
        assert len(at.registry.snapshots("a", at.now)) == 1


def test_f034_a_reload_during_a_probe_wedges_nothing(at):
    at.fail("a", 5)
    at.now += 30
    probe = at.registry.admit("a", "gpt-x", at.now)
    at.load(a=msgspec.structs.replace(ONE, settings=Settings(probes=2, successes=1)))
    probe.settle(Outcome(Verdict.SUCCESS), at.now)
    assert at.shown("a").state is State.CLOSED
