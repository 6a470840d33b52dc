"""A breaker before what the agent calls by itself: admission, reports, leases, reloads."""

import pytest

from sidecar.breaker.model import Kind, State
from sidecar.dependencies import permits
from sidecar.dependencies.guard import Refused, UnknownDependencyError
from sidecar.dependencies.permits import Trouble
from sidecar.dependencies.reports import Report, outcome_of
from sidecar.envelope.model import Classified, Envelope, ErrorClass, Source, Verdict
from sidecar.envelope.raised import Raised

from .conftest import Scene, changed, dependency


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classification says what the exception's message says; the breaker is tested here."""

    def judged(raised: Raised, **more: object) -> Classified:
        envelope = Envelope(
            class_=ErrorClass.TRANSIENT,
            source=Source.DATABASE,
            code=raised.type,
            message="it failed",
            retryable=True,
            correlation_id=str(more["correlation_id"]),
        )
        return Classified(envelope=envelope, verdict=Verdict(raised.message), rule="told")

    monkeypatch.setattr("sidecar.dependencies.guard.database.classify", judged)
    monkeypatch.setattr("sidecar.dependencies.guard.sdk.classify", judged)


FAILS = Raised(type="connection_refused", message="failure")
pytestmark = pytest.mark.usefixtures("verdicts")


def trip(scene: Scene, name: str = "db") -> None:
    for _ in range(2):
        scene.report(scene.permit(name), FAILS, name)
    assert scene.shown(name).state is State.OPEN


def test_failures_open_it_and_then_no_permit_is_given(scene) -> None:
    here = scene()
    trip(here)
    refused = here.ask(correlation_id="c-9")
    assert isinstance(refused, Refused)
    envelope = refused.envelope
    assert (envelope.class_, envelope.source, envelope.code) == (
        "transient",
        "sidecar",
        "breaker_open",
    )
    assert envelope.retryable
    assert envelope.retry_after == 30.0
    assert envelope.correlation_id == "c-9"
    assert envelope.message.startswith("db: 2 failures in a row, last: connection_refused")
    here.now += 12.0
    assert here.ask().envelope.retry_after == 18.0


def test_while_the_network_is_down_nobody_is_to_blame(scene) -> None:
    one = scene()
    one.network.failed("api.example", one.now, at_once=True)
    for _ in range(5):
        told = one.report(one.permit(), FAILS)
        assert told.classified.envelope is not None
        assert told.classified.envelope.code == "connection_refused", "what failed is still told"
    assert one.registry.snapshots("db", one.now)[0].state == "closed"
    one.network.reached("api.example", one.now)
    for _ in range(2):
        one.report(one.permit(), FAILS)
    assert one.registry.snapshots("db", one.now)[0].state == "open"


def test_other_dependencies_do_not_suffer(scene) -> None:
    here = scene(dependency("db"), dependency("pay", "sdk"))
    trip(here)
    here.permit("pay")


def test_a_good_probe_closes_what_refused_connections_opened(scene) -> None:
    here = scene()
    trip(here)
    here.now += 30.0
    probe = here.permit()
    assert isinstance(here.ask(), Refused)
    assert here.report(probe).snapshot.state is State.CLOSED


def test_the_callers_own_fault_is_no_failure(scene) -> None:
    here = scene()
    for _ in range(9):
        reported = here.report(here.permit(), Raised(type="23505", message="alive"))
    assert reported.classified.verdict is Verdict.ALIVE
    assert here.shown().state is State.CLOSED
    assert here.shown().window.alive == 9


def test_a_call_that_went_well(scene) -> None:
    here = scene()
    reported = here.report(here.permit())
    assert reported.classified.envelope is None
    assert reported.classified.verdict is Verdict.SUCCESS
    assert reported.snapshot.window.success == 1
    assert reported.trouble is None
    assert here.failures.groups(["code"]) == []


def test_a_report_settles_once(scene) -> None:
    here = scene()
    permit = here.permit()
    here.report(permit, FAILS)
    again = here.report(permit, FAILS)
    assert again.trouble is Trouble.REPORTED
    assert again.classified.envelope.code == "connection_refused"
    assert here.shown().window.failure == 1
    assert len(here.told("reported")) == 1


def test_an_unknown_permit_is_judged_and_told_of(scene) -> None:
    here = scene()
    reported = here.report("db.0123", FAILS, correlation_id="c-7")
    assert reported.trouble is Trouble.UNKNOWN
    assert reported.classified.envelope.correlation_id == "c-7"
    assert here.shown().window.failure == 0
    assert [call.correlation_id for call in here.told("reported")] == ["c-7"]


def test_a_permit_is_over_by_itself(scene) -> None:
    here = scene(dependency(lease=60.0))
    permit = here.permit()
    here.now += 59.0
    here.dependencies.tick(here.now)
    assert (here.dependencies.in_flight("db"), here.shown().in_flight) == (1, 1)
    here.now += 1.0
    here.dependencies.tick(here.now)
    assert (here.dependencies.in_flight("db"), here.shown().in_flight) == (0, 0)
    assert here.shown().window.neutral == 1
    (expired,) = here.told("expired")
    assert (expired.duration, expired.envelope) == (60.0, None)
    late = here.report(permit, FAILS)
    assert late.trouble is Trouble.EXPIRED
    assert late.classified.envelope
    assert here.shown().window.failure == 0


def test_a_lost_probe_makes_room_before_its_permit_is_over(scene) -> None:
    here = scene()
    trip(here)
    here.now += 30.0
    here.permit()
    here.now += 59.0
    assert isinstance(here.ask(), Refused)
    here.now += 1.0
    here.permit()


def test_a_foreign_permit_stays_good(scene) -> None:
    here = scene(dependency("db"), dependency("pay", "sdk"))
    permit = here.permit("pay")
    reported = here.report(permit, FAILS, "db")
    assert reported.trouble is Trouble.FOREIGN
    assert reported.classified.envelope
    assert here.told() == []
    assert here.report(permit, FAILS, "pay").trouble is None


def test_what_does_not_exist(scene) -> None:
    here = scene()
    with pytest.raises(UnknownDependencyError):
        here.ask("nowhere")
    with pytest.raises(UnknownDependencyError):
        here.report("nowhere.1", FAILS, "nowhere")


def test_a_leaking_agent_fills_no_memory(scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permits, "MOST_OPEN", 8)
    monkeypatch.setattr(permits, "REMEMBERED", 4)
    here = scene()
    given = [here.permit() for _ in range(20)]
    assert here.dependencies.in_flight("db") == 8
    assert here.shown().in_flight == 8
    assert here.report(given[11], FAILS).trouble is Trouble.EXPIRED
    assert here.report(given[0], FAILS).trouble is Trouble.UNKNOWN
    assert here.report(given[-1], FAILS).trouble is None


class TestReload:
    def test_state_and_permits_are_kept(self, scene) -> None:
        here = scene()
        permit = here.permit()
        trip(here)
        here.reload(dependency(breaker={"consecutive_failures": 7}))
        assert here.shown().state is State.OPEN
        assert here.report(permit).trouble is None

    def test_another_vendor_is_another_breaker(self, scene) -> None:
        here = scene(dependency(vendor="postgresql"))
        permit = here.permit()
        trip(here)
        here.reload(dependency(vendor="mysql"))
        assert here.shown().state is State.CLOSED
        assert here.report(permit, FAILS).trouble is None
        assert here.shown().window.failure == 0

    def test_a_removed_dependency_still_judges_what_was_under_way(self, scene) -> None:
        here = scene(dependency("db"), dependency("pay", "sdk"))
        permit = here.permit("pay", "c-3")
        here.reload(dependency("db"))
        reported = here.report(permit, FAILS, "pay")
        assert (reported.trouble, reported.snapshot) == (None, None)
        assert reported.classified.envelope.correlation_id == "c-3"
        with pytest.raises(UnknownDependencyError):
            here.report(permit, FAILS, "pay")

    def test_a_shorter_lease_holds_at_once(self, scene) -> None:
        here = scene(dependency(lease=600.0))
        here.permit()
        here.reload(dependency(lease=5.0))
        here.now += 5.0
        here.dependencies.tick(here.now)
        assert here.dependencies.in_flight("db") == 0


def test_observe_refuses_nothing_and_says_what_it_would_have(scene) -> None:
    here = scene(dependency(mode="observe"))
    trip(here)
    here.report(here.permit())
    assert [call.would_refuse for call in here.told("reported")] == [False, False, True]


def test_off_counts_nothing(scene) -> None:
    here = scene(changed(dependency(), mode="off"))
    for _ in range(5):
        here.report(here.permit(), FAILS)
    assert here.shown().window.failure == 0
    assert len(here.told("reported")) == 5


def test_a_fault_of_a_classification_costs_no_report(
    scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object, **_more: object) -> Classified:
        raise ZeroDivisionError

    monkeypatch.setattr("sidecar.dependencies.guard.database.classify", broken)
    here = scene()
    reported = here.report(here.permit(), FAILS)
    assert reported.classified.verdict is Verdict.NEUTRAL
    assert reported.classified.rule == "fault: ZeroDivisionError"
    assert here.dependencies.in_flight("db") == 0
    assert here.shown().window.neutral == 1


@pytest.mark.parametrize(
    ("given", "header", "asked", "expected"),
    [
        ("said", "sent", "asked", "said"),
        (None, "sent", "asked", "sent"),
        (None, None, "asked", "asked"),
    ],
)
def test_the_correlation_id(scene, given, header, asked, expected) -> None:
    here = scene()
    report = Report(permit=here.permit(correlation_id=asked), error=FAILS, correlation_id=given)
    reported = here.dependencies.report("db", report, header, here.now)
    assert reported.correlation_id == expected
    assert reported.classified.envelope.correlation_id == expected
    assert here.told()[-1].correlation_id == expected


def test_the_duration_is_the_reported_one_else_that_of_the_permit(scene) -> None:
    here = scene()
    first, second = here.permit(), here.permit()
    here.now += 3.0
    here.report(first, FAILS)
    here.report(second, FAILS, duration=0.25)
    assert [call.duration for call in here.told()] == [3.0, 0.25]


@pytest.mark.parametrize(
    ("code", "fields", "kind"),
    [
        ("connection_refused", {}, Kind.CONNECTION),
        ("dns_failure", {}, Kind.CONNECTION),
        ("08006", {}, Kind.CONNECTION),
        ("2003", {"phase": "connect"}, Kind.CONNECTION),
        ("2003", {"cause": Raised(type="ConnectionRefusedError")}, Kind.CONNECTION),
        ("2013", {"cause": Raised(type="OSError", errno=104)}, Kind.CONNECTION),
        ("query_timeout", {}, Kind.TIMEOUT),
        ("57P03", {}, Kind.ANSWER),
        ("08", {}, Kind.ANSWER),
        ("503", {"status": 503, "cause": Raised(type="ConnectionResetError")}, Kind.ANSWER),
    ],
)
def test_how_it_failed_decides_how_the_breaker_closes(code, fields, kind) -> None:
    raised = Raised(type="x.Y", **fields)
    envelope = Envelope(
        class_=ErrorClass.TRANSIENT, source=Source.DATABASE, code=code, message="", retryable=True
    )
    found = Classified(envelope=envelope, verdict=Verdict.FAILURE, rule="")
    assert outcome_of(found, raised).kind is kind
