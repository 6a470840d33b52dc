"""What of the gates outlives their process: what the upstream named, and no rate that was found."""

from __future__ import annotations

import pytest

from sidecar.breaker.admission import Faults
from sidecar.breaker.gates import KEYS, Gates
from sidecar.breaker.gating import GateSettings, Hint, LimitKey, QuotaMode
from sidecar.breaker.saved import KeyWait, SavedLimit, SpentBudget
from sidecar.breaker.shedding import Shed
from sidecar.proxy import limit_key

ONE = LimitKey(b"1" * 16, "gpt-x")
TWO = LimitKey(b"2" * 16, "gpt-x")
NOW = 1000.0


def gates(**settings):
    return Gates("up", GateSettings(**settings), Faults(None), random=lambda: 0.0)


def following(before, now=NOW, after=10.0, clock=7000.0, **settings):
    """The next process's gates, `after` seconds later and on another clock."""
    made = gates(**settings)
    saved = [one.moved(clock - after - now) for one in before.saved(now)]
    return made, made.restore(saved, clock)


def test_a_wait_that_the_upstream_named():
    before = gates()
    before.throttled(ONE, NOW, NOW, Hint(120.0, "retry-after"))
    after, taken = following(before)
    (shown,) = after.gate_snapshots(7000.0)
    assert (shown.not_before, shown.hint, shown.hint_source) == (7110.0, 120.0, "retry-after")
    assert isinstance(after.gate(ONE).enter(7000.0), Shed)
    assert after.gate(TWO) is None
    assert taken == 1


def test_a_wait_of_our_own_is_a_guess():
    before = gates()
    for n in range(10):
        before.throttled(ONE, NOW + n, NOW + n, None)
    assert before.saved(NOW + 9) == ()


def test_a_spent_budget():
    before = gates(recheck=60.0)
    before.ran_out(ONE, NOW, "credits_exhausted", 3600.0)
    after, _ = following(before, after=10.0)
    (shown,) = after.quota_snapshots()
    assert (shown.code, shown.until, shown.next_check) == ("credits_exhausted", 10590.0, 7050.0)
    assert after.spent(ONE, 7000.0).code == "credits_exhausted"
    assert after.spent(TWO, 7000.0) is None
    # One call asks again when it would have, and a good answer lifts it.
    assert after.spent(ONE, 7050.0) is None
    after.answered(ONE, 7051.0, 7050.0, accepted=True)
    assert after.quota_snapshots() == []


def test_a_budget_whose_turn_to_ask_has_come_meanwhile():
    before = gates(recheck=60.0)
    before.ran_out(ONE, NOW, "credits_exhausted", None)
    after, _ = following(before, after=3600.0)
    assert after.spent(ONE, 7000.0) is None
    assert after.spent(ONE, 7000.0) is not None


def test_todays_configuration_decides():
    before = gates()
    before.throttled(ONE, NOW, NOW, Hint(3000.0, "retry-after"))
    before.ran_out(TWO, NOW, "credits_exhausted", None)
    after, taken = following(before, retry_after_max=60.0, quota_mode=QuotaMode.OFF)
    assert taken == 1
    assert after.gate_snapshots(7000.0)[0].not_before == 7060.0
    assert after.quota_snapshots() == []


def test_what_is_over_is_forgotten():
    before = gates()
    before.throttled(ONE, NOW, NOW, Hint(5.0, "retry-after"))
    assert following(before, after=5.0)[1] == 0
    assert before.saved(NOW + 5) == ()


@pytest.mark.parametrize("count", [KEYS, KEYS + 10])
def test_any_file_is_of_bounded_size(count):
    made = gates()
    saved = [
        SavedLimit(
            credential=f"{n:032x}",
            subject="",
            wait=KeyWait(until=1e12, hint=1e12, source=""),
            budget=SpentBudget(code="", until=-1e12, next_check=-1e12),
        )
        for n in range(count)
    ]
    made.restore(saved, NOW)
    made.tick(NOW)
    assert len(made) == KEYS
    assert made.gate_snapshots(NOW)[0].not_before == NOW + 3600
    assert len(made.saved(NOW)) == KEYS


def test_a_key_is_recognised_by_the_same_secret_only():
    before = limit_key._secret
    headers = [(b"Authorization", b"Bearer sk-secret-of-somebody")]
    try:
        limit_key.use_secret(b"a" * 32)
        first = limit_key.limit_key("m", headers, "/x")
        limit_key.use_secret(b"b" * 32)
        assert limit_key.limit_key("m", headers, "/x") != first
        limit_key.use_secret(b"a" * 32)
        assert limit_key.limit_key("m", headers, "/x") == first
    finally:
        limit_key.use_secret(before)
