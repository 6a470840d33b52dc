"""What of a breaker outlives its process: what is authoritative, and nothing that is a guess."""

import pytest

from sidecar.breaker.model import (
    Kind,
    Mode,
    Outcome,
    ProviderSettings,
    Scope,
    Settings,
    State,
    Verb,
)
from sidecar.breaker.registry import Registry
from sidecar.breaker.saved import Hold, SavedBreaker, SavedProvider, SetMode, Wait
from sidecar.envelope.model import Verdict

UPSTREAM = "https://api.test"


class Life:
    """One process's registry, at a time of its own clock."""

    def __init__(self, now=1000.0, **settings):
        self.now = now
        self.transitions = []
        self.registry = Registry(self.transitions.append, random=lambda: 1.0)
        known = ProviderSettings(upstream=UPSTREAM, settings=Settings(**settings))
        self.registry.configure({"up": known}, now)

    def fail(self, times=5, **details):
        for _ in range(times):
            admission = self.registry.admit("up", "m", self.now)
            admission.first_byte(self.now)
            admission.settle(Outcome(Verdict.FAILURE, **details), self.now)

    def control(self, key, verb, for_=None, reason=None):
        self.registry.control(key, verb, self.now, for_, reason)

    def shown(self, key="up/m"):
        found = {one.key: one for one in self.registry.snapshots("up", self.now)}
        return found.get(key)

    def next(self, after=1.0, now=5000.0, **settings):
        """The life of the next process, on another clock, `after` seconds later."""
        following = Life(now, **settings)
        saved = self.registry.saved(self.now)
        moved = {name: one.moved(now - after - self.now) for name, one in saved.items()}
        following.taken = following.registry.restore(moved, now)
        return following


def test_nothing_of_ours_is_kept():
    life = Life()
    life.fail(4)
    assert life.registry.saved(life.now) == {}
    life.fail(1, status=503, code="503")
    assert life.shown().state is State.OPEN
    assert life.registry.saved(life.now) == {}


@pytest.mark.parametrize("key", ["up", "up/m", "up/~v1/x", "up/~other"])
@pytest.mark.parametrize(("verb", "state"), [(Verb.OPEN, State.OPEN), (Verb.CLOSE, State.CLOSED)])
def test_a_forced_state_and_its_end(key, verb, state):
    life = Life()
    life.control(key, verb, 600.0, "maintenance")
    following = life.next(after=100.0)
    shown = following.shown(key)
    assert shown.state is state
    assert shown.forced.value is state
    assert shown.forced.until == pytest.approx(following.now + 500)
    assert shown.forced.reason == "maintenance"
    assert shown.since == pytest.approx(following.now - 100)
    if state is State.OPEN:
        assert shown.opened_at == shown.since
        assert shown.retry_after == pytest.approx(500)
        assert following.transitions[-1].reason == "forced open: maintenance"


def test_one_without_an_end_lasts_for_ever():
    life = Life()
    life.control("up/m", Verb.OPEN)
    for _ in range(3):
        life = life.next(after=1e7)
    assert life.shown().state is State.OPEN
    assert life.shown().half_open_at is None
    life.control("up/m", Verb.RESET)
    assert life.registry.saved(life.now) == {}


@pytest.mark.parametrize("mode", [Verb.ENFORCE, Verb.OBSERVE, Verb.OFF])
def test_a_mode_and_its_end(mode):
    life = Life()
    life.control("up/m", mode, 60.0, "trial")
    shown = life.next(after=10.0).shown()
    assert (shown.mode, shown.mode_override.reason) == (Mode(mode.value), "trial")
    assert shown.mode_override.until == pytest.approx(5050)
    assert life.next(after=61.0).taken == 0


def test_both_at_once():
    life = Life()
    life.control("up/m", Verb.OPEN, 600.0)
    life.control("up/m", Verb.OFF, 60.0)
    following = life.next()
    assert (following.shown().state, following.shown().mode) == (State.OPEN, Mode.OFF)
    assert following.registry.saved(following.now)["up"].breakers[0].hold.state is State.OPEN


def test_what_is_over_is_forgotten():
    life = Life()
    life.control("up/m", Verb.OPEN, 60.0)
    following = life.next(after=60.0)
    assert following.taken == 0
    assert following.shown() is None or following.shown().state is State.CLOSED
    life.now += 60
    assert life.registry.saved(life.now) == {}


def test_a_wait_that_the_upstream_named():
    life = Life(open_for=30.0)
    life.fail(5, retry_after=300.0, status=503, code="overloaded")
    following = life.next(after=100.0)
    shown = following.shown()
    assert shown.state is State.OPEN
    # The upstream's own time, without what this process would have added to it.
    assert shown.half_open_at == pytest.approx(following.now + 200)
    assert (shown.hint, shown.consecutive_failures) == (300.0, 0)
    assert shown.reason == "5 failures in a row, last: 503 overloaded"
    # It is still the upstream's for the next but one.
    assert following.next(after=50.0).shown().half_open_at == pytest.approx(5150)
    following.now += 200
    assert following.shown().state is State.HALF_OPEN
    assert following.registry.saved(following.now) == {}


def test_a_wait_shorter_than_the_own_guess_is_kept_and_the_guess_is_not():
    life = Life(open_for=30.0, jitter=0.0)
    life.fail(5, retry_after=10.0)
    assert life.shown().half_open_at == 1030
    # The hint did not decide, but it was named: until then nobody is to call.
    assert life.next(after=1.0).shown().half_open_at == pytest.approx(5009)


def test_a_wait_that_decides_nothing_is_not_kept():
    life = Life()
    life.fail(1, retry_after=300.0)
    assert life.registry.saved(life.now) == {}
    life.control("up/m", Verb.OPEN, 10.0)
    (kept,) = life.registry.saved(life.now)["up"].breakers
    assert kept.wait is None


@pytest.mark.parametrize(("kind", "probes"), [(Kind.ANSWER, 2), (Kind.TIMEOUT, 1)])
def test_how_many_probes_it_takes_is_remembered(kind, probes):
    life = Life(successes=2)
    life.fail(5, retry_after=100.0, kind=kind)
    following = life.next()
    following.now += 100
    for left in range(probes, 0, -1):
        assert following.shown().state is State.HALF_OPEN, left
        admission = following.registry.admit("up", "m", following.now)
        admission.settle(Outcome(Verdict.SUCCESS), following.now)
    assert following.shown().state is State.CLOSED


def test_a_wait_and_a_hold():
    life = Life()
    life.fail(5, retry_after=300.0)
    life.control("up/m", Verb.OPEN, 100.0, "look")
    following = life.next()
    assert following.shown().reason == "forced open: look"
    assert following.shown().half_open_at == pytest.approx(following.now + 299)
    following.now += 100
    assert following.shown().state is State.OPEN
    assert following.shown().forced is None


def test_a_wait_is_capped_by_todays_configuration():
    life = Life()
    life.fail(5, retry_after=3000.0)
    assert life.next(retry_after_max=60.0).shown().half_open_at == pytest.approx(5060)


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE])
def test_todays_mode_decides(mode):
    life = Life()
    life.fail(5, retry_after=300.0)
    state = life.next(mode=mode).shown().state
    assert state is (State.CLOSED if mode is Mode.OFF else State.OPEN)


@pytest.mark.parametrize(
    "other",
    [
        {"upstream": "https://other.test"},
        {"scope": Scope.PROVIDER},
    ],
)
def test_another_upstream_is_another_ones(other):
    life = Life()
    life.control("up", Verb.OPEN, 600.0)
    saved = life.registry.saved(life.now)
    known = {"upstream": UPSTREAM, **other}
    following = Life()
    following.registry.configure({"up": ProviderSettings(**known)}, 0.0)
    assert following.registry.restore(saved, following.now) == 0
    assert following.shown("up").state is State.CLOSED


def test_a_provider_that_is_gone():
    life = Life()
    life.control("up", Verb.OPEN)
    following = Life()
    following.registry.configure({}, 0.0)
    assert following.registry.restore(life.registry.saved(life.now), 0.0) == 0


def test_more_than_there_is_room_for():
    identity = Life().registry._providers["up"]._identity()
    hold = Hold(state=State.OPEN)
    many = tuple(SavedBreaker(subject=f"m{n}", since=0.0, hold=hold) for n in range(1024))
    life = Life()
    taken = life.registry.restore({"up": SavedProvider(identity=identity, breakers=many)}, 1000.0)
    assert taken == 1022
    assert life.registry.admit("up", "free", 1000.0) is not None


def test_no_one_is_half_open_by_decree():
    identity = Life().registry._providers["up"]._identity()
    odd = SavedBreaker(
        since=1e12,
        hold=Hold(state=State.HALF_OPEN),
        mode=SetMode(mode=Mode.OFF, until=-1e12),
        wait=Wait(until=1e12, hint=1e12),
    )
    life = Life()
    life.registry.restore({"up": SavedProvider(identity=identity, breakers=(odd,))}, life.now)
    shown = life.shown("up")
    assert (shown.state, shown.since) == (State.OPEN, life.now)
    assert shown.half_open_at == pytest.approx(life.now + 3600)
