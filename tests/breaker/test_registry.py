"""Which breakers a call needs, which one its outcome concerns, and how many there may be."""

import pytest

from sidecar.breaker import provider as provider_module
from sidecar.breaker.admission import Admission
from sidecar.breaker.model import (
    Kind,
    Mode,
    NoRoomError,
    Outcome,
    ProviderSettings,
    Refusal,
    Scope,
    Settings,
    State,
    UnknownKeyError,
    UpstreamVerdict,
    Verb,
)
from sidecar.breaker.registry import Registry
from sidecar.envelope.model import Verdict

FAILURE = Outcome(Verdict.FAILURE)
REFUSED = Outcome(Verdict.FAILURE, Kind.CONNECTION, code="connection_refused")
TIMEOUT = Outcome(Verdict.FAILURE, Kind.TIMEOUT)
SUCCESS = Outcome(Verdict.SUCCESS)


class Scene:
    def __init__(self, **providers):
        self.now = 1000.0
        self.transitions, self.faults = [], []
        self.registry = Registry(
            self.transitions.append, on_fault=self.faults.append, random=lambda: 0.0
        )
        self.registry.configure(providers, self.now)

    def call(self, provider, subject, outcome, *, byte=True):
        admission = self.registry.admit(provider, subject, self.now)
        assert isinstance(admission, Admission), admission
        if byte:
            admission.first_byte(self.now)
        admission.settle(outcome, self.now)

    def trip(self, provider, subject):
        for _ in range(5):
            self.call(provider, subject, FAILURE)

    def shown(self, key):
        provider = key.partition("/")[0]
        for snapshot in self.registry.snapshots(provider, self.now):
            if snapshot.key == key:
                return snapshot
        raise KeyError(key)

    def states(self, provider):
        return {shown.key: shown.state for shown in self.registry.snapshots(provider, self.now)}


@pytest.fixture
def at():
    settings = Settings(jitter=0.0)
    return Scene(
        openai=ProviderSettings(upstream="https://one.example", settings=settings),
        other=ProviderSettings(upstream="https://one.example", settings=settings),
        single=ProviderSettings(
            upstream="https://two.example", scope=Scope.PROVIDER, settings=settings
        ),
    )


class TestRouting:
    def test_an_answer_concerns_the_model_and_the_first_byte_the_provider(self, at):
        at.call("openai", "gpt-x", FAILURE)
        assert at.shown("openai/gpt-x").window.failure == 1
        assert at.shown("openai").window.success == 1
        assert at.shown("openai").window.failure == 0

    def test_a_connection_failure_concerns_the_provider_alone(self, at):
        at.call("openai", "gpt-x", REFUSED, byte=False)
        assert at.shown("openai").window.failure == 1
        model = at.shown("openai/gpt-x")
        assert (model.window.failure, model.window.neutral, model.in_flight) == (0, 0, 0)

    def test_five_refused_connections_over_five_models_darken_the_provider(self, at):
        for number in range(5):
            at.call("openai", f"model-{number}", REFUSED, byte=False)
        refusal = at.registry.admit("openai", "another", at.now)
        assert refusal.key == "openai"
        assert refusal.state is State.OPEN
        assert "connection_refused" in refusal.reason

    def test_a_timeout_concerns_the_model_and_gives_the_providers_permit_back(self, at):
        at.call("openai", "gpt-x", TIMEOUT, byte=False)
        own = at.shown("openai")
        assert (own.window.failure, own.window.success, own.in_flight) == (0, 0, 0)
        assert at.shown("openai/gpt-x").window.failure == 1

    def test_a_connection_that_breaks_after_a_byte_concerns_the_model(self, at):
        at.call("openai", "gpt-x", REFUSED, byte=True)
        assert at.shown("openai").window.failure == 0
        assert at.shown("openai/gpt-x").window.failure == 1

    def test_a_byte_clears_the_providers_run(self, at):
        for _ in range(4):
            at.call("openai", "gpt-x", REFUSED, byte=False)
        at.call("openai", "gpt-x", TIMEOUT, byte=True)
        assert at.shown("openai").consecutive_failures == 0

    def test_a_byte_closes_the_provider_before_the_call_has_ended(self, at):
        for _ in range(5):
            at.call("openai", "gpt-x", REFUSED, byte=False)
        at.now += 30
        probe = at.registry.admit("openai", "gpt-x", at.now)
        assert isinstance(at.registry.admit("openai", "gpt-x", at.now), Refusal)
        probe.first_byte(at.now)
        assert at.states("openai")["openai"] is State.CLOSED
        probe.settle(FAILURE, at.now)
        assert at.shown("openai/gpt-x").window.failure == 1

    def test_if_the_model_refuses_the_provider_gets_its_permit_back(self, at):
        at.trip("openai", "gpt-x")
        for _ in range(100):
            assert isinstance(at.registry.admit("openai", "gpt-x", at.now), Refusal)
        assert at.shown("openai").in_flight == 0

    def test_the_providers_probe_is_given_back_too_if_the_model_refuses(self, at):
        # Given both open, and only the provider half-open again
        at.trip("openai", "gpt-x")
        at.now += 25
        for number in range(5):
            at.call("openai", f"model-{number}", REFUSED, byte=False)
        at.registry.control("openai/gpt-x", Verb.OPEN, at.now)
        at.now += 30
        assert at.registry.admit("openai", "gpt-x", at.now).key == "openai/gpt-x"
        assert at.shown("openai").probes_in_flight == 0
        # Then a call for another model may be the probe
        at.call("openai", "model-1", SUCCESS)
        assert at.states("openai")["openai"] is State.CLOSED

    def test_f041_providers_and_models_are_independent(self, at):
        at.trip("openai", "gpt-x")
        assert isinstance(at.registry.admit("openai", "gpt-x", at.now), Refusal)
        at.call("openai", "gpt-y", SUCCESS)
        at.call("openai", "~v1/files", SUCCESS)
        at.call("other", "gpt-x", SUCCESS)

    @pytest.mark.parametrize("subject", ["text-embedding", "~v1/files", "~mcp", "~v1/models", "~x"])
    def test_f040_each_model_and_each_route_is_watched(self, at, subject):
        at.trip("openai", subject)
        assert at.registry.admit("openai", subject, at.now).key == f"openai/{subject}"

    @pytest.mark.parametrize("ending", [FAILURE, REFUSED, TIMEOUT, SUCCESS, None])
    @pytest.mark.parametrize("byte", [True, False])
    def test_the_first_to_end_a_call_decides(self, at, ending, byte):
        admission = at.registry.admit("openai", "gpt-x", at.now)
        if byte:
            admission.first_byte(at.now)
            admission.first_byte(at.now)
        for outcome in (ending, FAILURE, REFUSED, SUCCESS):
            if outcome is None:
                admission.release(at.now)
            else:
                admission.settle(outcome, at.now)
        admission.first_byte(at.now)
        own, model = at.shown("openai"), at.shown("openai/gpt-x")
        assert own.in_flight == model.in_flight == 0
        heard = model.window.success + model.window.failure
        heard += own.window.failure + own.window.success - byte
        assert heard == (0 if ending is None else 1)


class TestOneBreakerForAll:
    @pytest.mark.parametrize("outcome", [FAILURE, REFUSED, TIMEOUT])
    @pytest.mark.parametrize("byte", [True, False])
    def test_hears_exactly_one_verdict_a_call(self, at, outcome, byte):
        for count in range(1, 5):
            at.call("single", f"model-{count}", outcome, byte=byte)
            shown = at.shown("single")
            assert (shown.window.failure, shown.window.success) == (count, 0)
            assert shown.consecutive_failures == count
        at.call("single", "gpt-x", outcome, byte=byte)
        refusal = at.registry.admit("single", "anything", at.now)
        assert refusal.key == "single"
        assert list(at.states("single")) == ["single"]

    def test_subjects_have_no_key_of_their_own(self, at):
        at.call("single", "gpt-x", SUCCESS)
        assert at.registry.peek("single", "gpt-x", at.now)[0] == "single"
        with pytest.raises(UnknownKeyError) as caught:
            at.registry.control("single/gpt-x", Verb.OPEN, at.now)
        assert "scope: provider" in caught.value.why
        assert list(at.states("single")) == ["single"]

    def test_also_where_a_call_names_no_subject(self, at):
        at.call("openai", None, FAILURE, byte=True)
        assert at.shown("openai").window.failure == 1
        assert at.shown("openai").window.success == 0


class TestMarks:
    def test_an_admission_names_the_models_breaker(self, at):
        admission = at.registry.admit("openai", "gpt-x", at.now)
        assert (admission.key, admission.state, admission.mode) == (
            "openai/gpt-x",
            State.CLOSED,
            Mode.ENFORCE,
        )

    def test_peek_makes_nothing(self, at):
        assert at.registry.peek("openai", "gpt-x", at.now) == (
            "openai/gpt-x",
            State.CLOSED,
            Mode.ENFORCE,
        )
        assert list(at.states("openai")) == ["openai"]

    def test_peek_sees_what_time_has_done(self, at):
        at.trip("openai", "gpt-x")
        assert at.registry.peek("openai", "gpt-x", at.now)[1] is State.OPEN
        assert at.registry.peek("openai", "gpt-x", at.now + 30)[1] is State.HALF_OPEN

    def test_the_providers_own_breaker_is_shown_from_the_start_and_first(self, at):
        at.call("openai", "b", SUCCESS)
        at.call("openai", "a", SUCCESS)
        assert list(at.states("openai")) == ["openai", "openai/a", "openai/b"]

    @pytest.mark.parametrize("own", [True, False])
    def test_observe_admits_and_says_so(self, own):
        at = Scene(
            openai=ProviderSettings(upstream="u", settings=Settings(mode=Mode.OBSERVE, jitter=0))
        )
        for _ in range(5):
            at.call("openai", "gpt-x", REFUSED if own else FAILURE, byte=not own)
        admission = at.registry.admit("openai", "gpt-x", at.now)
        assert admission.would_refuse.key == ("openai" if own else "openai/gpt-x")

    def test_a_tick_reaches_all(self, at):
        at.trip("openai", "gpt-x")
        at.trip("other", "gpt-y")
        at.registry.tick(at.now + 30)
        assert [t.new for t in at.transitions[-2:]] == [State.HALF_OPEN] * 2


class TestControl:
    def test_f051_concerns_one_key_only(self, at):
        at.trip("openai", "gpt-x")
        at.trip("openai", "gpt-y")
        shown = at.registry.control("openai/gpt-x", Verb.RESET, at.now, reason="mended")
        assert shown.state is State.CLOSED
        assert at.states("openai")["openai/gpt-y"] is State.OPEN

    def test_each_verb(self, at):
        at.call("openai", "meta/llama-3", SUCCESS)
        key = "openai/meta/llama-3"

        def control(verb, for_=None):
            return at.registry.control(key, verb, at.now, for_, "why")

        assert control(Verb.OPEN, 60.0).retry_after == pytest.approx(60)
        assert control(Verb.CLOSE, 60.0).forced.value is State.CLOSED
        assert control(Verb.OBSERVE, 60.0).mode_override.until == at.now + 60
        assert control(Verb.OFF).mode is Mode.OFF
        assert control(Verb.ENFORCE).mode is Mode.ENFORCE
        shown = control(Verb.RESET)
        assert shown.forced is shown.mode_override is None

    @pytest.mark.parametrize("key", ["nobody", "nobody/gpt-x", "", "/gpt-x"])
    def test_an_unknown_provider_is_an_error(self, at, key):
        with pytest.raises(UnknownKeyError):
            at.registry.control(key, Verb.OPEN, at.now)

    @pytest.mark.parametrize("subject", ["gpt-x", "meta/llama-3", "~v1/files", "~other"])
    def test_a_key_that_no_call_has_used(self, at, subject):
        key = f"openai/{subject}"
        shown = at.registry.control(key, Verb.OPEN, at.now, 60.0, "a drill")
        assert (shown.key, shown.state) == (key, State.OPEN)
        refusal = at.registry.admit("openai", subject, at.now)
        assert (refusal.key, refusal.reason) == (key, "forced open: a drill")
        assert at.registry.control(key, Verb.RESET, at.now).state is State.CLOSED
        at.call("openai", subject, SUCCESS)

    @pytest.mark.interpreted
    @pytest.mark.parametrize("verb", [Verb.OPEN, Verb.OBSERVE, Verb.ENFORCE, Verb.OFF])
    def test_what_was_set_by_hand_before_a_call_is_not_forgotten(self, at, verb, monkeypatch):
        monkeypatch.setattr(provider_module, "KEYS", 5)
        at.registry.control("openai/by-hand", verb, at.now)
        for number in range(50):
            at.call("openai", f"gpt-{number}", SUCCESS)
        assert "openai/by-hand" in at.states("openai")
        assert len(at.states("openai")) == 4

    def test_keys_by_hand_are_bounded_and_never_the_shared_one(self, at):
        for number in range(provider_module.KEYS - 2):
            at.registry.control(f"openai/gpt-{number}", Verb.OPEN, at.now)
        with pytest.raises(NoRoomError):
            at.registry.control("openai/one-more", Verb.OPEN, at.now)
        at.call("openai", "one-more", SUCCESS)
        assert at.states("openai")["openai/~other"] is State.CLOSED
        at.registry.control("openai/gpt-7", Verb.RESET, at.now)
        assert at.registry.control("openai/one-more", Verb.OPEN, at.now).key == "openai/one-more"

    def test_reset_takes_no_time(self, at):
        at.trip("openai", "gpt-x")
        for key in ("openai/gpt-x", "openai/never-called"):
            with pytest.raises(ValueError, match="reset takes no time"):
                at.registry.control(key, Verb.RESET, at.now, 60.0)
        assert at.states("openai") == {"openai": State.CLOSED, "openai/gpt-x": State.OPEN}


class TestVerdict:
    def verdict(self, at, provider="openai"):
        return at.registry.provider_verdict(provider, at.now)

    def test_up_while_nothing_is_open(self, at):
        assert self.verdict(at) is UpstreamVerdict.UP
        at.call("openai", "gpt-x", FAILURE)
        assert self.verdict(at) is UpstreamVerdict.UP

    def test_down_while_its_own_breaker_is_open(self, at):
        for _ in range(5):
            at.call("openai", "gpt-x", REFUSED, byte=False)
        assert self.verdict(at) is UpstreamVerdict.DOWN
        at.now += 30
        assert self.verdict(at) is UpstreamVerdict.UP

    def test_degraded_while_one_model_of_one_or_two_is_open(self, at):
        at.trip("openai", "gpt-x")
        assert self.verdict(at) is UpstreamVerdict.DEGRADED
        at.call("openai", "gpt-y", SUCCESS)
        assert self.verdict(at) is UpstreamVerdict.DEGRADED

    def test_down_while_more_than_half_of_the_models_in_use_are_open(self, at):
        at.call("openai", "gpt-old", SUCCESS)
        at.call("openai", "gpt-older", SUCCESS)
        at.now += 61
        for model in ("gpt-x", "gpt-y", "gpt-z"):
            at.call("openai", model, SUCCESS)
        for route in ("~v1/models", "~v1/files", "~v1/batches"):
            at.call("openai", route, SUCCESS)
        at.trip("openai", "gpt-x")
        assert self.verdict(at) is UpstreamVerdict.DEGRADED
        at.trip("openai", "gpt-y")
        assert self.verdict(at) is UpstreamVerdict.DOWN

    def test_a_model_that_was_only_steered_is_not_in_use(self, at):
        for model in ("gpt-x", "gpt-y"):
            at.registry.control(f"openai/{model}", Verb.OPEN, at.now)
        assert self.verdict(at) is UpstreamVerdict.DEGRADED

    def test_an_api_without_models_is_judged_by_its_routes(self, at):
        at.trip("other", "~repos")
        at.call("other", "~user", SUCCESS)
        assert self.verdict(at, "other") is UpstreamVerdict.DEGRADED
        at.trip("other", "~user")
        assert self.verdict(at, "other") is UpstreamVerdict.DOWN


class TestBounds:
    @pytest.mark.interpreted
    def test_the_least_recently_used_goes_first(self, at, monkeypatch):
        monkeypatch.setattr(provider_module, "KEYS", 5)
        for model in "abc":
            at.call("openai", model, SUCCESS)
        at.call("openai", "a", SUCCESS)
        at.call("openai", "d", SUCCESS)
        assert list(at.states("openai")) == ["openai", "openai/a", "openai/c", "openai/d"]

    @pytest.mark.interpreted
    def test_what_is_needed_stays_and_the_rest_shares_one(self, at, monkeypatch):
        monkeypatch.setattr(provider_module, "KEYS", 6)
        at.trip("openai", "open")
        running = at.registry.admit("openai", "running", at.now)
        at.call("openai", "forced", SUCCESS)
        at.registry.control("openai/forced", Verb.CLOSE, at.now, 60.0)
        at.call("openai", "observed", SUCCESS)
        at.registry.control("openai/observed", Verb.OBSERVE, at.now)
        for number in range(50):
            at.call("openai", f"more-{number}", SUCCESS)
        shared = at.registry.admit("openai", "one-more", at.now)
        assert shared.key == "openai/~other"
        shared.release(at.now)
        assert at.shown("openai/~other").window.success == 50
        assert len(at.states("openai")) == 6
        # When one of them is not needed any more, its place is free
        running.settle(SUCCESS, at.now)
        assert at.registry.admit("openai", "one-more", at.now).key == "openai/one-more"

    def test_a_route_of_the_shared_name_shares_it(self, at):
        at.call("openai", "~other", SUCCESS)
        assert at.shown("openai/~other").window.success == 1
        assert at.registry.control("openai/~other", Verb.RESET, at.now).key == "openai/~other"

    def test_a_thousand_names_and_not_more(self, at):
        for number in range(3000):
            at.call("openai", f"gpt-{number}", SUCCESS)
        assert len(at.states("openai")) <= 1024

    def test_a_subject_of_a_megabyte_fills_nothing(self, at):
        for tail in ("a", "b"):
            at.call("openai", "x" * 1_000_000 + tail, FAILURE)
        (key,) = set(at.states("openai")) - {"openai"}
        assert len(key) < 300
        assert at.shown(key).window.failure == 2
        assert at.registry.peek("openai", "x" * 1_000_000, at.now)[0] == key


class TestFaults:
    @pytest.mark.interpreted
    def test_a_fault_at_admission_costs_no_call(self, at, monkeypatch):
        monkeypatch.setattr(provider_module.Breaker, "admit", lambda *_: 1 / 0)
        for _ in range(3):
            admission = at.registry.admit("openai", "gpt-x", at.now)
            assert admission.key == "openai/gpt-x"
            assert (admission.state, admission.mode) == (State.CLOSED, Mode.ENFORCE)
            admission.first_byte(at.now)
            admission.settle(FAILURE, at.now)
            admission.release(at.now)
        assert at.registry.faults == 3
        assert [type(fault) for fault in at.faults] == [ZeroDivisionError]

    @pytest.mark.interpreted
    def test_a_fault_of_the_models_breaker_gives_the_providers_permit_back(self, at, monkeypatch):
        monkeypatch.setattr(provider_module.Provider, "_make", lambda *_: 1 / 0)
        at.registry.admit("openai", "gpt-x", at.now)
        assert at.shown("openai").in_flight == 0
        assert at.registry.faults == 1

    @pytest.mark.interpreted
    @pytest.mark.parametrize("byte", [True, False])
    @pytest.mark.parametrize("outcome", [FAILURE, REFUSED])
    def test_a_fault_at_the_end_of_a_call_costs_nothing(self, at, monkeypatch, byte, outcome):
        monkeypatch.setattr(provider_module.Breaker, "_settle", lambda *_: 1 / 0)
        at.call("openai", "gpt-x", outcome, byte=byte)
        assert at.registry.faults >= 1

    def test_a_fault_of_the_listener_leaves_the_machine_whole(self, at):
        def broken(_):
            raise LookupError("a listener")

        registry = Registry(broken, on_fault=at.faults.append, random=lambda: 0.0)
        registry.configure({"openai": ProviderSettings(upstream="u")}, 0.0)
        for _ in range(5):
            registry.admit("openai", "gpt-x", 0.0).settle(FAILURE, 0.0)
        assert isinstance(registry.admit("openai", "gpt-x", 0.0), Refusal)
        assert isinstance(registry.admit("openai", "gpt-x", 30.0), Admission)
        assert isinstance(registry.admit("openai", "gpt-x", 30.0), Refusal)
        assert registry.faults == 2
        assert len(at.faults) == 1

    def test_a_provider_that_is_not_there_is_admitted_on_doubt(self, at):
        assert isinstance(at.registry.admit("gone", "gpt-x", at.now), Admission)
        assert at.registry.faults == 1

    def test_a_listener_may_ask_and_admit(self, at):
        registry = Registry(lambda t: registry.admit("openai", f"by-{t.key}", 0.0))
        registry.configure({"openai": ProviderSettings(upstream="u")}, 0.0)
        for _ in range(5):
            registry.admit("openai", "gpt-x", 0.0).settle(FAILURE, 0.0)
        registry.tick(60.0)
        assert registry.faults == 0


@pytest.mark.interpreted
def test_a_fault_while_failures_are_taken_back_costs_no_call(monkeypatch) -> None:
    registry = Registry(lambda _: None)
    registry.configure({"up": ProviderSettings(upstream="http://a.example")}, 1000.0)
    monkeypatch.setattr("sidecar.breaker.breaker.Breaker.pardon", lambda *_: 1 / 0)
    registry.pardon(["up", "gone"], 990.0, 1000.0, "down")
    assert registry.faults == 1
