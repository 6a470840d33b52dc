"""The counters of /status."""

from sidecar.envelope.model import ErrorClass, Source, Verdict
from sidecar.telemetry.observer import ConfigReloaded, Observer
from sidecar.telemetry.tally import Tally

from .facts import call, cancelled, envelope, failed, refused, reported, transition


def test_totals_add_up() -> None:
    tally = Tally()
    for fact in (call(), failed(), cancelled(), refused(), failed(decision="timeout")):
        tally(fact)
    tally(transition())
    assert tally.totals.requests == 5
    assert tally.totals.forwarded == 3
    assert tally.totals.answered_here == 2


def test_errors_are_counted_by_class_and_code() -> None:
    tally = Tally()
    typo = envelope("model_not_found", class_=ErrorClass.VALIDATION)
    tally(call())
    tally(failed())
    tally(failed())
    tally(failed(envelope=typo, verdict=Verdict.ALIVE))
    tally(refused())
    tally(refused("unknown_provider", provider=None))
    assert tally.named("openai").errors() == {
        "by_class": {
            "validation": 1,
            "authentication": 0,
            "rate_limit": 0,
            "transient": 3,
            "permanent": 0,
        },
        "by_code": {"503": 2, "model_not_found": 1, "breaker_open": 1},
    }


def test_a_provider_that_was_never_called_has_zeros() -> None:
    tally = Tally().named("groq")
    assert set(tally.errors()["by_class"].values()) == {0}
    assert tally.errors()["by_code"] == {}
    assert tally.reclassifications() == {"total": 0, "last": None}


def test_codes_are_bounded() -> None:
    tally = Tally()
    for number in range(300):
        tally(failed(f"code-{number}"))
    tally(failed("code-7"))
    by_code = tally.named("openai").errors()["by_code"]
    assert len(by_code) == 101
    assert by_code["other"] == 200
    assert by_code["code-7"] == 2
    assert sum(by_code.values()) == 301


def test_the_last_reclassified_answer_is_kept_as_it_was_dressed() -> None:
    tally = Tally()
    typo = envelope("model_not_found", class_=ErrorClass.VALIDATION, correlation_id="c-9")
    tally(failed(envelope=envelope("insufficient"), reclassified=True))
    tally(failed(envelope=typo, status=404, upstream_status=503, reclassified=True))
    tally(failed())
    assert tally.named("openai").reclassifications() == {
        "total": 2,
        "last": {
            "status": 503,
            "class": "validation",
            "code": "model_not_found",
            "correlation_id": "c-9",
        },
    }


def test_a_removed_provider_is_forgotten() -> None:
    tally = Tally()
    tally(failed())
    tally(ConfigReloaded(at=1.0, generation=2, hash="x", removed=("openai",)))
    assert tally.named("openai").errors()["by_code"] == {}
    assert tally.totals.requests == 1


def test_the_readings_are_copies() -> None:
    tally = Tally()
    tally(failed())
    tally.named("openai").errors()["by_code"]["503"] = 99
    assert tally.named("openai").errors()["by_code"] == {"503": 1}


def test_the_daemons_own_answers_can_be_told_apart() -> None:
    tally = Tally()
    Observer(tally).emit(refused("shed", envelope=envelope("shed", source=Source.SIDECAR)))
    assert tally.named("openai").errors()["by_code"] == {"shed": 1}


def test_what_the_agent_reports_counts_under_its_dependency() -> None:
    tally = Tally()
    for fact in (
        reported(),
        reported("23505"),
        reported(envelope=None, verdict=Verdict.SUCCESS),
        reported("breaker_open", decision="breaker_open"),
        reported(decision="expired", envelope=None),
    ):
        tally(fact)
    errors = tally.named("orders-db").errors()
    assert errors["by_code"] == {"40001": 1, "23505": 1, "breaker_open": 1}
    assert sum(errors["by_class"].values()) == 3
    assert tally.totals.requests == 0
    assert tally.named("orders-db").reclassifications() == {"total": 0, "last": None}
