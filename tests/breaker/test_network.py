"""Whose fault it is that nothing can be reached: this machine's only on good evidence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.breaker.breaker import Breaker
from sidecar.breaker.model import Kind, Outcome, Settings, State
from sidecar.breaker.network import (
    ALONE_FOR,
    PROBE_EVERY,
    WITHIN,
    Network,
    NetworkChange,
    host_of,
    is_this_machine,
    relation,
)
from sidecar.envelope.model import Verdict

A, B, LOCAL = "api.one.example", "api.two.example", "localhost"
FAILURE = Outcome(Verdict.FAILURE, kind=Kind.CONNECTION, code="connection_refused")


@pytest.fixture
def changes() -> list[NetworkChange]:
    return []


@pytest.fixture
def network(changes: list[NetworkChange]) -> Network:
    return Network(changes.append)


# -- what brings it down ------------------------------------------------------------------------


def test_one_host_alone_proves_nothing(network: Network) -> None:
    for n in range(100):
        assert not network.failed(A, 1000.0 + n)
    assert not network.down


def test_two_unrelated_hosts_within_ten_seconds(network: Network, changes) -> None:
    assert not network.failed(A, 1000.0)
    assert network.failed(B, 1000.0 + WITHIN)
    assert network.down
    assert network.since == 1000.0 + WITHIN
    assert [(one.down, one.hosts) for one in changes] == [(True, frozenset({A, B}))]
    assert A in (network.reason or "")


def test_not_if_they_are_further_apart(network: Network) -> None:
    network.failed(A, 1000.0)
    assert not network.failed(B, 1000.1 + WITHIN)


def test_not_if_something_was_heard_meanwhile(network: Network, changes) -> None:
    network.failed(A, 1000.0)
    network.reached("api.three.example", 1001.0)
    assert not network.failed(B, 1002.0)
    assert not changes


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("api.openai.com", "eu.api.openai.com"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "s3.amazonaws.com"),
        ("Api.Example.", "x.api.example"),
        ("127.0.0.1", "localhost"),
        ("::1", "127.0.0.1"),
        ("[::1]", "localhost"),
    ],
)
def test_hosts_of_one_owner_are_related(network: Network, one: str, other: str) -> None:
    network.failed(host_of(one), 1000.0)
    assert not network.failed(host_of(other), 1000.0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("10.0.0.1", "10.0.0.2"),
        ("127.0.0.1", "127.0.0.2"),
        ("2001:db8::1", "2001:db8::2"),
        ("api.openai.com", "api.anthropic.com"),
        ("ollama", "vllm"),
    ],
)
def test_hosts_of_two_owners_are_not(network: Network, one: str, other: str) -> None:
    network.failed(host_of(one), 1000.0)
    assert network.failed(host_of(other), 1000.0)


def test_what_names_this_machine_needs_no_second_host(network: Network) -> None:
    assert network.failed(A, 1000.0, detail="no route", at_once=True)
    assert network.down
    assert network.reason == "no route"


def test_one_host_without_a_way_to_it_is_no_outage_of_the_others(network: Network, changes) -> None:
    """Such as one with an IPv6 address alone, on a machine without IPv6."""
    network.failed(A, 1000.0, at_once=True)
    network.reached(B, 1000.1)
    assert not network.down
    for n in range(int(ALONE_FOR)):
        assert network.failed(A, 1000.2 + n, at_once=True), "still nobody else's fault"
        assert not network.down
    assert len(changes) == 2
    network.failed(A, 1001.0 + ALONE_FOR, at_once=True)
    assert network.down


# -- this machine as a host ---------------------------------------------------------------------


def test_a_local_server_answers_while_the_network_is_down(network: Network) -> None:
    network.failed(A, 1000.0)
    network.failed(B, 1000.0)
    assert network.refuses(A)
    assert network.refuses("never.called.example")
    assert not network.refuses(LOCAL)
    network.reached(LOCAL, 1001.0)
    assert network.down, "it says nothing about the network"
    assert not network.failed(LOCAL, 1002.0), "its own failure is its own"
    assert network.judged(FAILURE, LOCAL) is FAILURE


def test_a_local_server_that_answers_hides_no_outage(network: Network) -> None:
    network.failed(A, 1000.0)
    network.reached(LOCAL, 1000.5)
    assert network.failed(B, 1001.0)


def test_tunnels_that_end_here_go_dark_and_come_back(network: Network) -> None:
    network.failed("127.0.0.2", 1000.0)
    assert network.failed("127.0.0.3", 1001.0)
    assert network.refuses("127.0.0.2")
    assert network.targets(["localhost", "127.0.0.3", A], 8) == ["127.0.0.3", A]
    network.reached("127.0.0.3", 1002.0)
    assert not network.down


# -- what ends it -------------------------------------------------------------------------------


def test_a_probe_is_due_at_once_and_then_in_time_for_the_five_seconds(network: Network) -> None:
    assert network.probe_at == float("inf")
    network.failed(A, 1000.0, at_once=True)
    assert network.probe_at == 1000.0
    network.probing(1000.0)
    assert network.probe_at == 1000.0 + PROBE_EVERY
    assert PROBE_EVERY < 5
    network.reached(A, 1003.0)
    assert network.probe_at == float("inf")
    assert (network.down, network.reason, network.since) == (False, None, None)


def test_a_probe_asks_first_who_failed(network: Network) -> None:
    network.failed(A, 1000.0, at_once=True)
    hosts = [f"host{n}.example" for n in range(20)] + [A, LOCAL]
    asked = network.targets(hosts, 8)
    assert asked[0] == A
    assert len(asked) == 8
    assert LOCAL not in asked


def test_in_the_end_probes_ask_everybody(network: Network) -> None:
    """A firewall lets one host of twenty through: an outage must not last for ever for it."""
    network.failed(A, 1000.0, at_once=True)
    hosts = [f"host{n}.example" for n in range(20)] + [A]
    asked: list[str] = []
    for _ in range(3):
        batch = network.targets(hosts, 8)
        assert len(batch) == len(set(batch)) == 8
        asked += batch
    assert set(asked) == set(hosts)
    for _ in range(100):
        assert len(set(network.targets(hosts[:9], 8))) == 8


# -- what breakers hear -------------------------------------------------------------------------


def test_breakers_hear_of_no_failure_while_it_is_down(network: Network) -> None:
    assert network.judged(FAILURE, A) is FAILURE
    network.failed(A, 1000.0, at_once=True)
    for kind in Kind:
        heard = network.judged(Outcome(Verdict.FAILURE, kind=kind, code="x"), A)
        assert (heard.verdict, heard.code) == (Verdict.NEUTRAL, "x")
    for verdict in set(Verdict) - {Verdict.FAILURE}:
        assert network.judged(Outcome(verdict), A).verdict is verdict


def test_of_a_dependency_the_way_to_it_is_excused_and_its_answer_is_not(network: Network) -> None:
    network.failed(A, 1000.0, at_once=True)
    assert network.judged(FAILURE, None).verdict is Verdict.NEUTRAL
    answered = Outcome(Verdict.FAILURE, kind=Kind.ANSWER)
    assert network.judged(answered, None) is answered


def breaker(transitions: list) -> Breaker:
    return Breaker("up", Settings(), transitions.append, now=1000.0, random=lambda: 0.0)


def fail(one: Breaker, times: int, outcome: Outcome = FAILURE, now: float = 1001.0) -> None:
    for _ in range(times):
        permit = one.admit(now)
        permit.settle(outcome, now)


def test_what_it_did_to_a_breaker_is_taken_back() -> None:
    transitions: list = []
    one = breaker(transitions)
    fail(one, 5)
    assert one.state is State.OPEN
    one.pardon(1000.0, 1002.0, "the network of this machine was down")
    assert one.state is State.CLOSED
    assert transitions[-1].reason == "the network of this machine was down"
    assert one.snapshot(1002.0).consecutive_failures == 0
    fail(one, 4, now=1003.0)
    one.pardon(1000.0, 1003.0, "down")
    fail(one, 4, now=1003.0)
    assert one.state is State.CLOSED


@pytest.mark.parametrize("kind", [Kind.ANSWER, Kind.TIMEOUT])
def test_what_an_upstream_did_itself_stands(kind: Kind) -> None:
    one = breaker([])
    fail(one, 5, Outcome(Verdict.FAILURE, kind=kind))
    one.pardon(1000.0, 1002.0, "down")
    assert one.state is State.OPEN


def test_what_was_long_before_stands() -> None:
    one = breaker([])
    fail(one, 5, now=1001.0)
    one.pardon(1001.5, 1002.0, "down")
    assert one.state is State.OPEN


def test_what_an_operator_set_stands() -> None:
    one = breaker([])
    fail(one, 1)
    one.force(State.OPEN, 1001.0)
    one.pardon(1000.0, 1002.0, "down")
    assert one.state is State.OPEN


# -- always -------------------------------------------------------------------------------------

HOSTS = st.sampled_from([A, B, "x.one.example", "10.0.0.1", LOCAL, "127.0.0.2"])
EVENTS = st.tuples(st.sampled_from(["failed", "at_once", "reached", "probing"]), HOSTS)


@given(st.lists(st.tuples(EVENTS, st.floats(0, 20)), max_size=60))
def test_it_goes_down_and_up_in_turn_and_always_asks(steps) -> None:
    changes: list[NetworkChange] = []
    network, now = Network(changes.append), 1000.0
    for (what, host), pause in steps:
        now += pause
        before = network.down
        if what == "reached":
            network.reached(host, now)
        elif what == "probing":
            network.probing(now)
        else:
            local = network.failed(host, now, at_once=what == "at_once")
            assert local or what != "at_once"
        assert network.down == (network.probe_at < float("inf"))
        assert network.down == (network.reason is not None)
        if what == "reached" and not is_this_machine(host):
            assert not network.down
        if before and what != "reached":
            assert network.down
    assert [one.down for one in changes] == [n % 2 == 0 for n in range(len(changes))]


@given(st.text(max_size=80))
def test_any_text_is_a_host(text: str) -> None:
    host = host_of(text)
    assert relation(host) == relation(relation(host))
    is_this_machine(host)
