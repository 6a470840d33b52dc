"""All gates of a provider: keys apart from each other, bounded, reset by hand, kept over a reload."""

from __future__ import annotations

import pytest

from sidecar.breaker.admission import Faults
from sidecar.breaker.gates import KEYS, Gates
from sidecar.breaker.gating import GateSettings, GateState, Hint, LimitKey, QuotaMode
from sidecar.breaker.model import (
    Outcome,
    ProviderSettings,
    Scope,
    UpstreamVerdict,
    Verb,
)
from sidecar.breaker.registry import Registry
from sidecar.breaker.shedding import Ticket
from sidecar.envelope.model import Verdict

ONE = LimitKey(b"one", "gpt-x")
TWO = LimitKey(b"two", "gpt-x")
OTHER = LimitKey(b"one", "gpt-y")
NOW = 1000.0


@pytest.fixture
def faults():
    return Faults(None)


@pytest.fixture
def gates(faults):
    return Gates("up", GateSettings(), faults)


def throttle(gates, key, seconds=10.0, now=NOW):
    return gates.throttled(key, now, now, Hint(seconds, "retry-after"))


def test_there_is_none_until_a_throttle(gates):
    assert not gates
    gates.answered(ONE, NOW, NOW, accepted=True)
    assert gates.gate(ONE) is None
    assert gates.spent(ONE, NOW) is None
    assert not gates
    throttle(gates, ONE)
    assert gates


def test_b_credentials_and_models_are_apart(gates):
    throttle(gates, ONE)
    gates.ran_out(ONE, NOW, "credits_exhausted", None)
    for key in (TWO, OTHER):
        assert gates.gate(key) is None
        assert gates.spent(key, NOW) is None


def test_credentials_are_told_apart_and_never_shown(gates):
    throttle(gates, ONE)
    throttle(gates, TWO)
    throttle(gates, OTHER)
    assert [shot.key for shot in gates.gate_snapshots(NOW)] == [
        "up/gpt-x",
        "up/gpt-x#2",
        "up/gpt-y",
    ]


def test_the_number_of_keys_is_bounded(gates):
    for n in range(KEYS + 500):
        throttle(gates, LimitKey(b"one", f"model-{n}"))
    assert len(gates) == KEYS


def test_idle_keys_go_first_and_where_calls_wait_never(gates):
    waits = LimitKey(b"one", "waits")
    throttle(gates, waits, 1.0)
    assert isinstance(gates.gate(waits).enter(NOW), Ticket)
    idle = LimitKey(b"one", "idle")
    throttle(gates, idle, 0.0)
    later = NOW + 2
    for n in range(KEYS - 2):
        throttle(gates, LimitKey(b"one", f"model-{n}"), now=later)
    throttle(gates, ONE, now=later)
    assert gates.gate(idle) is None
    for n in range(KEYS):
        throttle(gates, LimitKey(b"two", f"model-{n}"), now=later)
    assert gates.gate(waits) is not None


def test_a_key_for_which_there_is_no_room_is_not_gated(gates):
    for n in range(KEYS):
        key = LimitKey(b"one", f"model-{n}")
        throttle(gates, key, 1.0)
        assert isinstance(gates.gate(key).enter(NOW), Ticket)
    assert throttle(gates, ONE) is False
    assert gates.gate(ONE) is None


def test_what_does_not_matter_any_more_is_forgotten(gates):
    throttle(gates, ONE, 1.0)
    gates.ran_out(TWO, NOW, "quota_exhausted", None)
    gates.tick(NOW + 5)
    assert len(gates) == 2
    gates.tick(NOW + 120)
    assert len(gates) == 1
    assert gates.spent(TWO, NOW + 1) is not None
    gates.tick(NOW + 60 + 3600)
    assert not gates


def test_a_gate_of_a_budget_alone_is_not_shown_as_one(gates):
    gates.ran_out(ONE, NOW, "quota_exhausted", None)
    assert gates.gate_snapshots(NOW) == []
    (shot,) = gates.quota_snapshots()
    assert (shot.key, shot.code) == ("up/gpt-x", "quota_exhausted")


def test_a_good_answer_lifts_a_budget_and_no_other_does(gates):
    gates.ran_out(ONE, NOW, "quota_exhausted", None)
    gates.answered(ONE, NOW + 70, NOW + 61, accepted=False)
    assert gates.quota_snapshots()
    gates.answered(ONE, NOW + 70, NOW - 5, accepted=True)
    assert gates.quota_snapshots()
    gates.answered(ONE, NOW + 70, NOW + 61, accepted=True)
    assert not gates.quota_snapshots()


def test_quota_off_remembers_nothing(faults):
    gates = Gates("up", GateSettings(quota_mode=QuotaMode.OFF), faults)
    gates.ran_out(ONE, NOW, "quota_exhausted", None)
    assert not gates
    gates = Gates("up", GateSettings(), faults)
    gates.ran_out(ONE, NOW, "quota_exhausted", None)
    gates.configure(GateSettings(quota_mode=QuotaMode.OFF), NOW)
    assert gates.spent(ONE, NOW) is None


def test_a_fault_costs_no_call(gates, faults, monkeypatch):
    throttle(gates, ONE)

    def broken(*_args):
        raise RuntimeError

    monkeypatch.setattr(Gates, "_find", broken)
    assert gates.gate(ONE) is None
    assert gates.spent(ONE, NOW) is None
    assert gates.enter(ONE, NOW) is None
    assert gates.would_shed(ONE, NOW) is False
    assert throttle(gates, ONE) is False
    gates.answered(ONE, NOW, NOW, accepted=True)
    assert faults.total == 6


# -- in the registry ------------------------------------------------------------------------


class Scene:
    def __init__(self, **more):
        self.registry = Registry(lambda _transition: None)
        self.settings = ProviderSettings(upstream="https://one.example", **more)
        self.registry.configure({"up": self.settings, "other": self.settings}, NOW)

    @property
    def gates(self):
        return self.registry.gates("up")

    def verdict(self, now=NOW):
        return self.registry.provider_verdict("up", now)


@pytest.fixture
def at():
    return Scene()


def test_f054_a_provider_that_sheds_is_degraded(at):
    assert at.verdict() is UpstreamVerdict.UP
    throttle(at.gates, ONE)
    assert at.verdict() is UpstreamVerdict.DEGRADED
    assert at.registry.provider_verdict("other", NOW) is UpstreamVerdict.UP
    assert at.verdict(NOW + 10) is UpstreamVerdict.UP
    at.gates.ran_out(ONE, NOW, "quota_exhausted", None)
    assert at.verdict(NOW + 10) is UpstreamVerdict.DEGRADED


@pytest.mark.parametrize(
    ("key", "opened"),
    [("up/gpt-x", {ONE, TWO}), ("up", {ONE, TWO, OTHER}), ("other", set()), ("up/gpt-z", set())],
)
def test_a_reset_opens_the_gates_of_its_key(at, key, opened):
    for limit in (ONE, TWO, OTHER):
        throttle(at.gates, limit)
        at.gates.ran_out(limit, NOW, "quota_exhausted", None)
    at.registry.control(key, Verb.RESET, NOW)
    for limit in (ONE, TWO, OTHER):
        is_open = at.gates.gate(limit).snapshot(NOW).state is GateState.IDLE
        assert is_open is (limit in opened)
        assert (at.gates.spent(limit, NOW) is None) is (limit in opened)


def test_with_one_breaker_for_all_its_reset_opens_all():
    at = Scene(scope=Scope.PROVIDER)
    throttle(at.gates, ONE)
    at.registry.control("up", Verb.RESET, NOW)
    assert at.gates.gate(ONE).snapshot(NOW).state is GateState.IDLE


def test_other_orders_leave_them_alone(at):
    throttle(at.gates, ONE)
    for verb in (Verb.OPEN, Verb.CLOSE, Verb.OBSERVE, Verb.OFF, Verb.ENFORCE):
        at.registry.control("up/gpt-x", verb, NOW)
    assert at.gates.gate(ONE).snapshot(NOW).state is GateState.WAITING


def test_f123_a_reload_keeps_what_is_closed(at):
    throttle(at.gates, ONE, 100.0)
    at.gates.ran_out(TWO, NOW, "quota_exhausted", None)
    gates = at.gates
    changed = ProviderSettings(
        upstream="https://one.example", shedding=GateSettings(max_queue=1, min_rate=5.0)
    )
    at.registry.configure({"up": changed}, NOW)
    assert at.gates is gates
    assert gates.settings.max_queue == 1
    assert gates.gate(ONE).opens_at == NOW + 100
    assert gates.spent(TWO, NOW) is not None
    at.registry.configure({"up": ProviderSettings(upstream="https://two.example")}, NOW)
    assert not at.gates


def test_time_passes_for_them_too(at):
    throttle(at.gates, ONE, 1.0)
    at.registry.tick(NOW + 120)
    assert not at.gates


def test_a_gate_begins_with_what_went_well_before(at):
    for n in range(120):
        now = NOW + n / 20
        at.registry.admit("up", "gpt-x", now).settle(Outcome(Verdict.SUCCESS), now)
    now = NOW + 6
    for _ in range(5):
        at.gates.throttled(ONE, now, now, Hint(0.0, "retry-after"))
    (shot,) = at.gates.gate_snapshots(now)
    # Half of some twenty a second; the breaker's buckets are no finer than six seconds.
    assert shot.state is GateState.SHEDDING
    assert 4 <= shot.rate <= 11


# -- each setting, taken by a reload --------------------------------------------------------


def _shed_of(gates, now):
    found = gates.enter(ONE, now)
    return not isinstance(found, tuple)


def _queue_of(gates, now):
    throttle(gates, ONE, 0.5, now)
    return sum(isinstance(gates.enter(ONE, now), tuple) for _ in range(20))


def _longest_held(gates, now):
    throttle(gates, ONE, 1.5, now)
    return not _shed_of(gates, now)


def _closed_for(gates, now):
    throttle(gates, ONE, 5000.0, now)
    return gates.gate(ONE).opens_at - now


def _paced_after(gates, now):
    for n in range(1, 20):
        throttle(gates, ONE, 0.0, now + n * 2)
        if gates.gate(ONE).state is GateState.SHEDDING:
            return n
    return None


def _paced_after_among_good(gates, now):
    for n in range(1, 20):
        for _ in range(3):
            gates.answered(ONE, now + n, now + n, accepted=True)
        throttle(gates, ONE, 0.0, now + n)
        if gates.gate(ONE).state is GateState.SHEDDING:
            return n
    return None


def _floor(gates, now):
    _paced_after(gates, now)
    return gates.gate(ONE).snapshot(now).rate


def _dark_after(gates, now):
    for n in range(1000):
        if gates.throttled(ONE, now + n, now + n, None):
            return n
    return None


def _asks_after(gates, now):
    gates.ran_out(ONE, now, "quota_exhausted", None)
    return next((n for n in range(100) if gates.spent(ONE, now + n) is None), None)


@pytest.mark.parametrize(
    ("changed", "see", "before", "after"),
    [
        ({"max_queue": 3}, _queue_of, 16, 3),
        ({"max_wait": 1.0}, _longest_held, True, False),
        ({"retry_after_max": 60.0}, _closed_for, 3600, 60),
        ({"sustained_count": 2}, _paced_after, 5, 2),
        ({"sustained_window": 4.0}, _paced_after, 5, None),
        ({"sustained_ratio": 0.2}, _paced_after_among_good, None, 5),
        ({"min_rate": 7.0}, _floor, 1, 7),
        ({"open_after": 50.0}, _dark_after, 604, 54),
        ({"open_after": 0.0}, _dark_after, 604, None),
        ({"recheck": 10.0}, _asks_after, 60, 10),
        ({"quota_mode": QuotaMode.OFF}, _asks_after, 60, 0),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_f124_a_changed_setting_changes_behaviour(faults, changed, see, before, after):
    assert see(Gates("up", GateSettings(), faults), NOW) == before
    gates = Gates("up", GateSettings(), faults)
    throttle(gates, ONE, 0.0, NOW - 100)
    gates.configure(GateSettings(**changed), NOW)
    assert see(gates, NOW) == after
