"""The document of GET /status: the contract's keys and types, and nothing that is not meant."""

import json
from datetime import datetime
from typing import Any

import pytest

from sidecar import __version__, clock
from sidecar.admin.status import Times, breaker_entry, rfc3339, shown_upstream, status
from sidecar.breaker.model import Outcome, Verb
from sidecar.compiled import compiled
from sidecar.envelope.model import Envelope, ErrorClass, Source, Verdict
from sidecar.telemetry.observer import CallFinished

from .daemon import Daemon
from .raw import call

BREAKER: dict[str, Any] = {
    "state": "closed",
    "mode": "enforce",
    "reason": None,
    "opens": 0,
    "consecutive_failures": 0,
    "deduplicated": 0,
    "window": {
        "seconds": 60,
        "success": 0,
        "failure": 0,
        "alive": 0,
        "throttle": 0,
        "neutral": 0,
        "failure_ratio": None,
    },
    "opened_at": None,
    "half_open_at": None,
    "retry_after": None,
    "probes_in_flight": 0,
    "hint": None,
    "last_error": None,
}


async def test_a_fresh_daemon_in_full(daemon: Daemon, address: str) -> None:
    answer = await call(address, "/status")
    document = answer.json()
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    since = document["providers"]["openai"]["breakers"]["openai"].pop("since")
    document["providers"]["private"]["breakers"]["private"].pop("since")
    assert abs(datetime.fromisoformat(since).timestamp() - clock.wall()) < 60
    provider = {
        "verdict": "up",
        "in_flight": 0,
        "shedding": [],
        "quota": [],
        "errors": {
            "by_class": {
                "validation": 0,
                "authentication": 0,
                "rate_limit": 0,
                "transient": 0,
                "permanent": 0,
            },
            "by_code": {},
        },
        "reclassified": {"total": 0, "last": None},
    }
    (reason,) = document["config"]["disabled"].values()
    assert document == {
        "schema": 1,
        "version": __version__,
        "compiled": compiled(),
        "started_at": "2023-11-14T22:13:20.000Z",
        "config": {
            "generation": 1,
            "hash": daemon.config.hash,
            "error": None,
            "disabled": {"missing": reason},
        },
        "network": "up",
        "providers": {
            "openai": provider
            | {
                "upstream": "https://api.openai.com",
                "dialect": "openai",
                "mode": "enforce",
                "breakers": {"openai": BREAKER},
            },
            "private": provider
            | {
                "upstream": "https://llm.example/base",
                "dialect": daemon.config.providers["private"].dialect,
                "mode": "observe",
                "breakers": {"private": BREAKER | {"mode": "observe"}},
            },
        },
        "dependencies": {},
        "totals": {"requests": 0, "forwarded": 0, "answered_here": 0},
    }


async def test_an_open_breaker(daemon: Daemon, address: str) -> None:
    daemon.fail("gpt-x")
    daemon.running["openai"] = 3
    document = (await call(address, "/status")).json()["providers"]["openai"]
    assert document["in_flight"] == 3
    assert document["verdict"] == "degraded"
    entry = document["breakers"]["openai/gpt-x"]
    assert set(entry) == set(BREAKER) | {"since"}
    assert entry["state"] == "open"
    assert entry["opens"] == 1
    assert "5" in entry["reason"]
    assert entry["window"]["failure"] == 5
    assert entry["window"]["failure_ratio"] == 1.0
    assert 25 < entry["retry_after"] <= 36
    assert entry["last_error"]["code"] == "503"
    assert entry["last_error"]["status"] == 503
    opened, half_open, now = (
        datetime.fromisoformat(text).timestamp()
        for text in (entry["opened_at"], entry["half_open_at"], rfc3339(clock.wall()))
    )
    assert abs(now - opened) < 60
    assert 29.9 < half_open - opened < 36.1


def test_the_wait_is_never_negative_and_time_alone_moves_the_state(daemon: Daemon) -> None:
    daemon.fail("gpt-x")
    now = clock.monotonic()
    document = status(daemon, now + 3_600, clock.wall())
    entry = document["providers"]["openai"]["breakers"]["openai/gpt-x"]
    assert entry["state"] == "half_open"
    assert entry["retry_after"] is None


def test_f051_a_forced_state_is_shown_as_such(daemon: Daemon) -> None:
    now = clock.monotonic()
    snapshot = daemon.registry.control("openai", Verb.OPEN, now, 600.0, "drill")
    entry = breaker_entry(snapshot, Times(now, 0.0))
    assert entry["state"] == "open"
    assert "forced" in entry["reason"]
    assert "drill" in entry["reason"]
    assert status(daemon, now, 0.0)["providers"]["openai"]["verdict"] == "down"


def test_a_breaker_held_without_end_has_no_wait(daemon: Daemon) -> None:
    now = clock.monotonic()
    entry = breaker_entry(daemon.registry.control("openai", Verb.OPEN, now), Times(now, 0.0))
    assert entry["half_open_at"] is None
    assert entry["retry_after"] is None


def test_errors_and_reclassifications_are_shown(daemon: Daemon) -> None:
    envelope = Envelope(
        class_=ErrorClass.VALIDATION,
        source=Source.HTTP,
        code="model_not_found",
        message="the model `gpt-typo` does not exist",
        retryable=False,
        correlation_id="c-1",
        raw={"body": "SECRET upstream text"},
    )
    daemon.observer.emit(
        CallFinished(
            at=1.0,
            provider="openai",
            method="POST",
            path="/v1/x",
            decision="forwarded",
            status=404,
            upstream_status=503,
            correlation_id="c-1",
            duration=0.1,
            envelope=envelope,
            verdict=Verdict.ALIVE,
            reclassified=True,
        )
    )
    document = status(daemon, clock.monotonic(), clock.wall())
    entry = document["providers"]["openai"]
    assert entry["errors"]["by_class"]["validation"] == 1
    assert entry["errors"]["by_code"] == {"model_not_found": 1}
    assert entry["reclassified"] == {
        "total": 1,
        "last": {
            "status": 503,
            "class": "validation",
            "code": "model_not_found",
            "correlation_id": "c-1",
        },
    }
    assert document["totals"] == {"requests": 1, "forwarded": 1, "answered_here": 0}
    # F156: whose words they are, they are not for whoever reads the status.
    text = json.dumps(document)
    assert "SECRET" not in text
    assert "gpt-typo" not in text


@pytest.mark.parametrize(
    ("upstream", "shown"),
    [
        ("https://api.openai.com", "https://api.openai.com"),
        ("https://user:pass@llm.example/base?key=1#x", "https://llm.example/base"),
        ("unix:/run/llm.sock", "unix:/run/llm.sock"),
    ],
)
def test_f156_an_upstream_is_shown_without_secrets(upstream: str, shown: str) -> None:
    assert shown_upstream(upstream) == shown


async def test_names_that_are_no_unicode_break_nothing(daemon: Daemon, address: str) -> None:
    daemon.fail("odd-\ud800")
    answer = await call(address, "/status")
    assert answer.status == 200
    assert "openai/odd-\ud800" in answer.json()["providers"]["openai"]["breakers"]
    assert (await call(address, "/")).status == 200


def test_times_are_utc_with_milliseconds() -> None:
    assert rfc3339(0.0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1.9999) == "1970-01-01T00:00:01.999Z"
    times = Times(now=100.0, wall=1_000.0)
    assert times.text(None) is None
    assert times.text(90.0) == rfc3339(990.0)


async def test_a_network_that_is_down(daemon: Daemon) -> None:
    daemon.network_down = True
    document = status(daemon, clock.monotonic(), clock.wall())
    assert document["network"] == "down"


def test_a_settled_outcome_appears_in_the_window(daemon: Daemon) -> None:
    now = clock.monotonic()
    admission: Any = daemon.registry.admit("openai", "gpt-x", now)
    admission.first_byte(now)
    admission.settle(Outcome(Verdict.ALIVE), now)
    entry = status(daemon, now, clock.wall())["providers"]["openai"]["breakers"]["openai/gpt-x"]
    assert entry["window"]["alive"] == 1
    assert entry["window"]["failure_ratio"] is None
