"""Faults by source: what the agent calls by itself, and what the daemon itself says."""

from __future__ import annotations

import asyncio
import importlib
import json
import sqlite3
import types
from typing import Any

import pytest

from sidecar.client import BreakerOpen, SidecarError, guard, injected
from sidecar.client.errors import original_of
from sidecar.client.guard import Guard
from sidecar.config.problems import ConfigError
from sidecar.config.schema import FaultSection
from sidecar.envelope.model import ErrorClass
from sidecar.faults import failures
from sidecar.faults.databases import DATABASES
from sidecar.faults.sdks import CODED, SDKS
from sidecar.proxy import replies
from tests.field.scene import CHAT, JSON, OK, admin, ask, base
from tests.proxy.callers import call, chat
from tests.proxy.upstreams import says

DEPENDENCIES = {
    "orders-db": {"source": "database", "vendor": "postgresql", "driver": "psycopg"},
    "cache": {"source": "database", "vendor": "sqlite"},
    "payments": {"source": "sdk", "sdk": "stripe"},
}


# --- the tables -----------------------------------------------------------------------------


@pytest.mark.parametrize("class_", ErrorClass)
@pytest.mark.parametrize(
    ("source", "system"),
    [*(("database", name) for name in DATABASES), *(("sdk", name) for name in (*SDKS, *CODED))],
)
def test_what_is_raised_is_of_the_class(source, system, class_) -> None:
    rule = FaultSection(class_=class_.value)
    if not failures.has(rule, source, system):
        assert source == "database"
        return
    made = failures.injection(rule, source, system, None, correlation_id="c-1")
    envelope = made.classified.envelope
    assert (envelope.class_, envelope.correlation_id) == (class_, "c-1")
    assert envelope.source.value == source
    assert made.raises[0] == made.error["type"]
    json.dumps(made.error)


def test_each_database_has_nearly_every_class() -> None:
    missing = {
        (name, class_.value)
        for name in DATABASES
        for class_ in ErrorClass
        if class_ not in DATABASES[name]
    }
    assert missing == {
        ("postgresql", "rate_limit"),
        ("sqlite", "rate_limit"),
        ("redis", "rate_limit"),
        ("cassandra", "permanent"),
        ("snowflake", "permanent"),
    }


@pytest.mark.parametrize(
    ("system", "code", "class_"),
    [
        ("postgresql", "40001", "transient"),
        ("postgresql", "57P01", "transient"),
        ("cockroachdb", "40001", "transient"),
        ("mysql", "1205", "transient"),
        ("mariadb", "1213", "transient"),
        ("sqlserver", "40501", "rate_limit"),
        ("oracle", "ORA-00001", "validation"),
        ("sqlite", "SQLITE_BUSY", "transient"),
        ("mongodb", "11600", "transient"),
        ("redis", "READONLY", "transient"),
        ("snowflake", "290429", "rate_limit"),
    ],
)
def test_by_code(system, code, class_) -> None:
    made = failures.injection(FaultSection(code=code), "database", system, None)
    assert made.classified.envelope.class_.value == class_
    assert code in made.classified.envelope.code


@pytest.mark.parametrize(
    ("driver", "first"),
    [
        ("asyncpg", "asyncpg.exceptions.SerializationError"),
        ("sqlalchemy+asyncpg", "asyncpg.exceptions.SerializationError"),
        ("psycopg2", "psycopg2.errors.SerializationFailure"),
        (None, "psycopg.errors.SerializationFailure"),
    ],
)
def test_the_driver_that_is_used_comes_first(driver, first) -> None:
    rule = FaultSection(class_="transient")
    made = failures.injection(rule, "database", "postgresql", driver)
    assert made.raises[0] == made.error["type"] == first
    assert made.classified.envelope.code == "40001"


@pytest.mark.parametrize(
    ("named", "system", "same"),
    [
        ("postgresql", "postgres", True),
        ("postgresql", "aurora-postgresql", True),
        ("stripe", "stripe", True),
        ("boto3", "boto3-s3", True),
        ("postgresql", "mysql", False),
        ("stripe", None, False),
    ],
)
def test_vendors_by_any_of_their_names(named, system, same) -> None:
    assert failures.same_system(named, system) is same


# --- dependencies ---------------------------------------------------------------------------


ADMIN = ("x-sidecar-admin", "1")


async def permit(running, name: str, *headers: tuple[str, str], body: bytes = b"") -> Any:
    return await admin(running, f"/v1/dependencies/{name}/permit", "POST", body, ADMIN, *headers)


def guarding(running, name: str, **more: Any) -> Guard:
    return guard(name, admin=f"http://127.0.0.1:{running.admin_port}", timeout=20.0, **more)


async def record(running) -> list[dict[str, Any]]:
    return (await admin(running, "/faults")).json["record"]


@pytest.mark.parametrize(
    ("rule", "name", "source", "class_", "code"),
    [
        ({"dependency": "orders-db", "class": "transient"}, "orders-db", "database", "transient",
         "40001"),
        ({"vendor": "postgres", "class": "validation"}, "orders-db", "database", "validation",
         "23505"),
        ({"source": "database", "class": "authentication"}, "orders-db", "database",
         "authentication", "42501"),
        ({"dependency": "orders-db", "code": "57P01"}, "orders-db", "database", "transient",
         "57P01"),
        ({"dependency": "orders-db", "kind": "refuse"}, "orders-db", "database", "transient",
         "connection_refused"),
        ({"dependency": "orders-db", "kind": "reset"}, "orders-db", "database", "transient",
         "connection_reset"),
        ({"source": "sdk", "class": "rate_limit", "retry_after": "7s"}, "payments", "sdk",
         "rate_limit", "rate_limit"),
        ({"vendor": "stripe", "class": "permanent"}, "payments", "sdk", "permanent",
         "resource_missing"),
        ({"dependency": "orders-db", "source": "sidecar", "class": "transient"}, "orders-db",
         "sidecar", "transient", "breaker_open"),
    ],
)  # fmt: skip
async def test_a_permit_that_is_a_failure(
    start, upstream, log, rule, name, source, class_, code
) -> None:
    running = await start(
        {"up": base(upstream.url)},
        dependencies=DEPENDENCIES,
        faults={"rules": [{"name": "test", **rule}]},
    )
    found = await permit(running, name, ("x-correlation-id", "w-7"))
    assert found.status == 503
    envelope = found.json["envelope"]
    assert (envelope["source"], envelope["class"], envelope["code"]) == (source, class_, code)
    assert envelope["correlation_id"] == found.get("x-correlation-id") == "w-7"
    assert found.get("x-sidecar-fault").startswith("test; ")
    if "retry_after" in rule:
        assert envelope["retry_after"] == 7
    (told,) = await record(running)
    assert (told["dependency"], told["provider"], told["source"]) == (name, None, source)
    assert told["envelope"]["code"] == code
    assert told["status"] == 503
    assert told["first_seen_after"] is not None
    (line,) = log.lines("fault.injected")
    assert (line["dependency"], line["fault"]) == (name, "test")
    if source != "sidecar":
        (line,) = log.lines("call.failed")
        assert (line["dependency"], line["fault"], line["verdict"]) == (name, "test", "neutral")
    assert running.breaker(name).window.failure == 0
    # The others are as they were.
    other = "cache" if rule.get("source") != "database" else "payments"
    assert (await permit(running, other)).status == 200
    metrics = (await admin(running, "/metrics")).body.decode()
    assert f'breaker_sidecar_faults_injected_total{{provider="{name}",fault="' in metrics


async def test_only_what_a_rule_names(start, upstream) -> None:
    running = await start(
        {"up": base(upstream.url)},
        dependencies={**DEPENDENCIES, "wiki": {"source": "database", "vendor": "mariadb"}},
        # PostgreSQL and SQLite have no rate limit, and a rule about providers names none of them.
        faults={"rules": [{"source": "database", "class": "rate_limit"}, {"class": "transient"}]},
    )
    for name in DEPENDENCIES:
        assert (await permit(running, name)).status == 200
    assert (await permit(running, "wiki")).json["envelope"]["code"] == "1226"
    assert (await ask(running)).status == 500


async def test_the_breaker_of_a_dependency_hears_of_it_if_asked(start, upstream) -> None:
    rule = {"dependency": "cache", "kind": "refuse", "breakers": True}
    running = await start(
        {"up": base(upstream.url)}, dependencies=DEPENDENCIES, faults={"rules": [rule]}
    )
    for _ in range(5):
        found = await permit(running, "cache")
        assert found.json["envelope"]["code"] == "connection_refused"
    assert running.breaker("cache").state == "open"
    assert (await permit(running, "cache")).json["envelope"]["code"] == "breaker_open"
    assert len(await record(running)) == 5


async def test_a_commit_is_not_repeated(start, upstream) -> None:
    rule = {"dependency": "orders-db", "kind": "reset"}
    running = await start(
        {"up": base(upstream.url)}, dependencies=DEPENDENCIES, faults={"rules": [rule]}
    )
    assert (await permit(running, "orders-db")).json["envelope"]["retryable"] is True
    found = await permit(running, "orders-db", body=b'{"phase": "commit"}')
    assert found.json["envelope"]["retryable"] is False


async def test_by_header(start, upstream) -> None:
    running = await start(
        {"up": base(upstream.url)}, dependencies=DEPENDENCIES, faults={"allowed": True}
    )
    found = await permit(running, "orders-db", ("x-sidecar-fault", "class=transient; name=mine"))
    assert found.json["envelope"]["code"] == "40001"
    assert found.json["fault"]["rule"] == "mine"
    for wrong in ("class=rate_limit", "class=odd", "kind=cut", "", "decision=shed"):
        found = await permit(running, "orders-db", ("x-sidecar-fault", wrong))
        assert found.status == 400, wrong
    assert (await permit(running, "orders-db")).status == 200
    # A call of a provider is none of a dependency.
    header = ("X-Sidecar-Fault", "class=transient; dependency=orders-db")
    found = await call(running.port, CHAT, "POST", chat(), JSON, header)
    assert found.envelope["code"] == "bad_request"


@pytest.mark.parametrize("form", ["sync", "async", "decorated"])
async def test_the_guard_raises_before_the_call_runs(start, upstream, form) -> None:
    running = await start(
        {"up": base(upstream.url)},
        dependencies=DEPENDENCIES,
        faults={"rules": [{"dependency": "cache", "class": "transient", "name": "busy"}]},
    )
    ran = []

    async def attempt() -> None:
        if form == "async":
            async with guarding(running, "cache"):
                ran.append(1)
        elif form == "sync":
            with guarding(running, "cache"):
                ran.append(1)
        else:
            guarding(running, "cache")(ran.append)(1)

    running_it = attempt() if form == "async" else asyncio.to_thread(asyncio.run, attempt())
    with pytest.raises(sqlite3.OperationalError) as caught:
        await running_it
    error = caught.value
    assert ran == []
    assert isinstance(error, SidecarError)
    assert (error.envelope.code, error.envelope.source) == ("SQLITE_BUSY", "database")
    assert error.sqlite_errorname == "SQLITE_BUSY"
    assert str(error) == "database is locked"
    assert error.__notes__ == ["an injected fault: busy"]
    assert running.breaker("cache").window.failure == 0


async def test_without_its_driver_it_is_a_plain_one(start, upstream) -> None:
    running = await start(
        {"up": base(upstream.url)},
        dependencies={"graph": {"source": "database", "vendor": "neo4j"}},
        faults={"rules": [{"dependency": "graph", "class": "transient"}]},
    )
    with pytest.raises(SidecarError) as caught:
        async with guarding(running, "graph"):
            pytest.fail("it ran")
    assert type(caught.value) is SidecarError
    assert caught.value.envelope.code == "Neo.TransientError.Transaction.DeadlockDetected"


async def test_an_injected_open_breaker_is_one(start, upstream) -> None:
    rule = {"dependency": "cache", "source": "sidecar", "decision": "breaker_open",
            "retry_after": "12s"}  # fmt: skip
    running = await start(
        {"up": base(upstream.url)}, dependencies=DEPENDENCIES, faults={"rules": [rule]}
    )
    with pytest.raises(BreakerOpen) as caught:
        async with guarding(running, "cache"):
            pytest.fail("it ran")
    assert caught.value.envelope.retry_after == 12
    assert running.breaker("cache").state == "closed"


def test_a_class_whose_module_is_loaded(monkeypatch) -> None:
    """The driver's own class and attributes, however it is made, and no import."""
    from sidecar.client.injected import failure

    module = types.ModuleType("vendor.errors")

    class Awkward(Exception):
        def __init__(self, one: int, two: int) -> None:
            raise AssertionError("no constructor is run")

        @property
        def sqlstate(self) -> str:
            raise AttributeError

        def code(self) -> int:
            return 7

        def __str__(self) -> str:
            raise AssertionError("it has nothing to say")

    module.Awkward = Awkward
    monkeypatch.setitem(__import__("sys").modules, "vendor.errors", module)
    envelope = failures.injection(
        FaultSection(class_="transient"), "database", "postgresql", None
    ).classified.envelope
    error = failure(
        envelope,
        {
            "rule": "r",
            "error": {"sqlstate": "40001", "code": "x", "message": "lost"},
            "raises": ["never.loaded.Error", "vendor.errors.Awkward"],
        },
    )
    assert isinstance(error, Awkward)
    assert isinstance(error, SidecarError)
    assert (error.sqlstate, error.pgcode, error.code(), str(error)) == (
        "40001", "40001", 7, "lost",
    )  # fmt: skip
    assert original_of(error).args == ("lost",)
    for odd in ({}, {"error": 1}, {"error": {}, "raises": [1, "x", "sys.path", "json.loads"]}):
        assert type(failure(envelope, odd)) is SidecarError


# --- the daemon itself ----------------------------------------------------------------------


@pytest.mark.parametrize("decision", sorted(replies.DECISIONS))
async def test_the_daemons_own_answers(start, upstream, decision) -> None:
    upstream.script = says(OK)
    rule = {"source": "sidecar", "decision": decision, "name": "own"}
    running = await start({"up": base(upstream.url)}, faults={"rules": [rule]})
    found = await ask(running)
    row = replies.DECISIONS[decision]
    assert found.status == row.status
    assert found.get("x-sidecar-decision") == decision
    assert found.get("x-sidecar-fault") == f"own; {decision}"
    envelope = found.envelope
    assert (envelope["class"], envelope["source"]) == (row.class_, row.source)
    assert envelope["retryable"] is row.retryable
    waits = {"breaker_open", "shed", "bulkhead", "local_network", "draining"}
    assert (envelope["retry_after"] is not None) is (decision in waits)
    assert upstream.hits == 0
    for shot in ("up", "up/gpt-x"):
        assert running.breaker(shot).window.failure == 0
    (told,) = await record(running)
    assert (told["decision"], told["source"], told["fault"]) == (decision, "sidecar", decision)
    assert told["first_seen_after"] <= told["seen_after"]
    if decision == "breaker_open":
        assert "state=open" in found.get("x-sidecar-breaker")
    assert running.breaker("up/gpt-x").state == "closed"


@pytest.mark.parametrize(
    ("class_", "decision"),
    [
        ("validation", "bad_request"),
        ("authentication", "missing_credentials"),
        ("rate_limit", "shed"),
        ("transient", "breaker_open"),
        ("permanent", "quota"),
    ],
)
async def test_its_answer_for_each_class(start, upstream, class_, decision) -> None:
    running = await start(
        {"up": base(upstream.url)}, faults={"rules": [{"source": "sidecar", "class": class_}]}
    )
    found = await ask(running)
    assert found.envelope["class"] == class_
    assert found.get("x-sidecar-decision") == decision


@pytest.mark.parametrize(
    ("rule", "code", "wait"),
    [
        ({"decision": "connect_error", "code": "tls_failure"}, "tls_failure", None),
        ({"decision": "timeout", "code": "idle_timeout"}, "idle_timeout", None),
        ({"decision": "quota", "code": "credits_exhausted"}, "credits_exhausted", None),
        ({"decision": "shed", "retry_after": "9s"}, "shed", 9),
        ({"decision": "breaker_open", "retry_after": "45s"}, "breaker_open", 45),
    ],
)
async def test_in_its_own_words(start, upstream, rule, code, wait) -> None:
    running = await start(
        {"up": base(upstream.url)}, faults={"rules": [{"source": "sidecar", **rule}]}
    )
    envelope = (await ask(running)).envelope
    assert (envelope["code"], envelope["retry_after"]) == (code, wait)
    assert envelope["retryable"] is (code in ("idle_timeout", "shed", "breaker_open"))


async def test_its_timeouts_count_if_asked(start, upstream) -> None:
    rule = {"source": "sidecar", "decision": "timeout", "breakers": True}
    running = await start({"up": base(upstream.url)}, faults={"rules": [rule]})
    for n in range(5):
        assert (await ask(running, n=n)).status == 504
    assert running.breaker("up/gpt-x").state == "open"


# --- rules that cannot be -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"dependency": "cache"}, "injects nothing"),
        ({"dependency": "cache", "class": "transient", "model": "x"}, '"model" has no effect'),
        ({"dependency": "cache", "class": "transient", "source": "http"}, "of providers"),
        ({"dependency": "cache", "kind": "cut"}, "cut cannot be done"),
        ({"dependency": "cache", "kind": "reset", "class": "transient"}, "tells no class"),
        ({"dependency": "cache", "class": "transient", "code": "5"}, "tells the class"),
        ({"dependency": "cache", "class": "transient", "decision": "shed"}, "source: sidecar"),
        ({"dependency": "cache", "source": "sidecar", "decision": "shed"}, "is all that"),
        ({"class": "transient", "decision": "shed"}, "source: sidecar"),
        ({"source": "sidecar"}, "which of its own answers"),
        ({"source": "sidecar", "class": "transient", "decision": "shed"}, "not both"),
        ({"source": "sidecar", "kind": "hang"}, "hang is done to"),
        ({"source": "sidecar", "decision": "shed", "code": "x"}, "one code"),
        ({"source": "sidecar", "decision": "timeout", "code": "x"}, "first_byte_timeout"),
        ({"source": "sidecar", "decision": "quota", "retry_after": 3}, "asks for no wait"),
        ({"source": "sidecar", "decision": "shed", "status": 500}, '"status" has no effect'),
        ({"dependency": "nobody", "class": "transient"}, "no dependency of this name"),
        ({"dependency": "cache", "class": "rate_limit"}, "sqlite has no error of this class"),
        ({"vendor": "postgresql", "class": "rate_limit"}, "postgresql has no error of this class"),
        ({"vendor": "nothing", "class": "transient"}, "no dependency of this vendor"),
    ],
)
async def test_rules_that_cannot_be(start, upstream, rule, told) -> None:
    with pytest.raises(ConfigError, match=told):
        await start({"up": base(upstream.url)}, dependencies=DEPENDENCIES, faults={"rules": [rule]})
    allowing = await start(
        {"up": base(upstream.url)}, dependencies=DEPENDENCIES, faults={"allowed": True}
    )
    found = await admin(allowing, "/faults", "POST", json.dumps({"rules": [rule]}).encode())
    assert found.status == 400
    assert told in found.json["error"]["message"]


def _fault(class_: str, source: str, system: str, driver: str | None) -> Any:
    made = failures.injection(FaultSection(class_=class_), source, system, driver)
    envelope = made.classified.envelope
    told = json.loads(json.dumps({"rule": "r", "error": made.error, "raises": made.raises}))
    return injected.failure(envelope, told)


@pytest.mark.parametrize("class_", ErrorClass)
@pytest.mark.parametrize(
    ("source", "system", "driver", "module"),
    [
        ("database", "postgresql", "psycopg", "psycopg"),
        ("database", "postgresql", "psycopg2", "psycopg2.errors"),
        ("database", "postgresql", "asyncpg", "asyncpg"),
        ("database", "mysql", None, "pymysql"),
        ("database", "redis", None, "redis"),
        ("database", "sqlite", None, "sqlite3"),
        ("sdk", "stripe", None, "stripe"),
        ("sdk", "openai", None, "openai"),
        ("sdk", "anthropic", None, "anthropic"),
        ("sdk", "boto3", None, "botocore.exceptions"),
    ],
)
def test_a_made_exception_has_what_the_driver_s_own_has(
    source, system, driver, module, class_
) -> None:
    importlib.import_module(module)
    if not failures.has(FaultSection(class_=class_.value), source, system):
        return
    error = _fault(class_.value, source, system, driver)
    assert error.envelope.class_ == class_
    assert repr(error)
    broken = []
    for name in dir(error):
        if name.startswith("_"):
            continue
        try:
            getattr(error, name)
        except Exception as raised:
            broken.append((name, str(raised)))
    assert not broken


def test_a_made_exception_says_what_a_driver_s_own_says() -> None:
    importlib.import_module("psycopg")
    error = _fault("transient", "database", "postgresql", "psycopg")
    assert error.sqlstate == "40001"
    assert error.diag.message_primary is None
    assert error.pgconn is None
