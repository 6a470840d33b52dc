"""Mixed traffic: mistakes of callers trip nothing, an outage trips at once."""

import random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sidecar.breaker.admission import Admission
from sidecar.breaker.model import Kind, Outcome, ProviderSettings, Refusal
from sidecar.breaker.registry import Registry
from sidecar.envelope.model import Verdict

MISTAKES = [
    Outcome(Verdict.ALIVE, code="model_not_found", status=503, fingerprint=b"typo"),
    Outcome(Verdict.ALIVE, code="context_length_exceeded", status=500),
    Outcome(Verdict.ALIVE, code="quota_exhausted", status=429),
    Outcome(Verdict.ALIVE, code="invalid_api_key", status=401),
    Outcome(Verdict.THROTTLE, status=429, retry_after=1.0),
    Outcome(Verdict.NEUTRAL),
]
MODELS = ["gpt-x", "gpt-y", "gpt-typo", "~v1/files", "~v1/models"]


@pytest.fixture
def transitions():
    return []


@pytest.fixture
def registry(transitions):
    registry = Registry(transitions.append)
    registry.configure({"openai": ProviderSettings(upstream="u")}, 0.0)
    return registry


@pytest.mark.parametrize("rate", [1 / 30, 1.0, 1000.0])
def test_100_000_calls_of_a_healthy_upstream_with_30_percent_mistakes_trip_nothing(
    registry, transitions, rate
):
    draw = random.Random(7)
    running, now = [], 0.0
    for _ in range(100_000):
        now += 1 / rate
        admission = registry.admit("openai", draw.choice(MODELS), now)
        assert isinstance(admission, Admission)
        running.append(admission)
        if len(running) > 20:
            ending = running.pop(draw.randrange(20))
            ending.first_byte(now)
            mistake = draw.random() < 0.3
            ending.settle(draw.choice(MISTAKES) if mistake else Outcome(Verdict.SUCCESS), now)
    for ending in running:
        ending.release(now)
    assert transitions == []
    assert registry.faults == 0
    assert all(not shown.in_flight for shown in registry.snapshots("openai", now))


@given(
    failed=st.permutations([True] * 6 + [False] * 4),
    mistakes=st.lists(st.sampled_from(MISTAKES), max_size=30),
    rate=st.sampled_from([1.0, 1000.0]),
)
@hypothesis_settings(deadline=None)
def test_60_percent_genuine_5xx_open_within_ten_decided_calls(failed, mistakes, rate):
    # Given any order of six failures and four successes, mistakes between them
    registry = Registry(lambda _: None)
    registry.configure({"openai": ProviderSettings(upstream="u")}, 0.0)
    now = 0.0
    calls = [
        Outcome(Verdict.FAILURE, status=500, fingerprint=bytes([place]))
        if fails
        else Outcome(Verdict.SUCCESS)
        for place, fails in enumerate(failed)
    ]
    for place, mistake in enumerate(mistakes):
        calls.insert(place * len(calls) // len(mistakes), mistake)
    for outcome in calls:
        now += 1 / rate
        admission = registry.admit("openai", "gpt-x", now)
        if isinstance(admission, Refusal):
            break
        admission.first_byte(now)
        admission.settle(outcome, now)
    assert isinstance(registry.admit("openai", "gpt-x", now), Refusal)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "byte", "settle", "release", "reload", "tick"]),
        st.sampled_from(["gpt-x", "gpt-y", "~v1/files", None]),
        st.sampled_from(
            [
                Outcome(Verdict.SUCCESS),
                Outcome(Verdict.FAILURE),
                Outcome(Verdict.FAILURE, Kind.CONNECTION),
                Outcome(Verdict.FAILURE, Kind.TIMEOUT),
                Outcome(Verdict.ALIVE),
                Outcome(Verdict.NEUTRAL),
            ]
        ),
        st.sampled_from([0.0, 0.5, 31.0]),
        st.integers(0, 100),
    ),
    max_size=150,
)


@given(steps=STEPS)
@hypothesis_settings(deadline=None)
def test_however_calls_end_no_permit_is_lost(steps):
    registry = Registry(lambda _: None)
    sets = [
        {"p": ProviderSettings(upstream="one")},
        {"p": ProviderSettings(upstream="two")},
        {},
    ]
    registry.configure(sets[0], 0.0)
    now, running = 0.0, []
    for what, subject, outcome, step, pick in steps:
        now += step
        if what == "reload":
            registry.configure(sets[pick % 3], now)
        elif what == "tick":
            registry.tick(now)
        elif what == "admit":
            admission = registry.admit("p", subject, now)
            if isinstance(admission, Admission):
                running.append(admission)
        elif running:
            call = running[pick % len(running)]
            if what == "byte":
                call.first_byte(now)
            elif what == "settle":
                call.settle(outcome, now)
            else:
                call.release(now)
    for call in running:
        call.release(now)
    registry.configure(sets[0], now)
    assert [shown.in_flight for shown in registry.snapshots("p", now) if shown.in_flight] == []
    # And time alone lets each of them be called again
    now += 10_000
    for subject in ("gpt-x", "gpt-y", "~v1/files"):
        admission = registry.admit("p", subject, now)
        assert isinstance(admission, Admission)
        admission.release(now)
