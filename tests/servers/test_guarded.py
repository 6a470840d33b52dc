"""The worked example: guards and retries around a real PostgreSQL, with a real daemon's breaker."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sidecar.client import BreakerOpen, Guard, Policy, SidecarError, close, guard, retry, workflow
from tests.field.process import Process
from tests.servers.conftest import driver as installed
from tests.servers.postgres import Postgres
from tests.servers.postgres_drivers import open_session
from tests.servers.processes import wait_until
from tests.servers.sessions import Beside, Session

NAME = "orders-db"
OPENS_AFTER = 3
QUICKLY = Policy(backoff=0.05)
"""A victim that is quicker than the survivor's waking meets it again; then it waits a moment."""

Opened = Callable[..., Session]


class Daemon:
    """A daemon that guards `orders-db`."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.address = f"http://127.0.0.1:{process.admin_port}"

    def guard(self, phase: str | None = None) -> Guard:
        return guard(NAME, phase=phase, admin=self.address, timeout=20.0)

    def entry(self) -> Any:
        with urllib.request.urlopen(f"{self.address}/status", timeout=20) as answer:
            return json.load(answer)["dependencies"][NAME]

    def settled(self, **expected: int) -> Any:
        """The breaker's entry once these outcomes stand in its window."""

        def counted() -> bool:
            window = self.entry()["window"]
            return {name: window[name] for name in expected} == expected

        wait_until(counted, f"{expected} of {NAME}")
        return self.entry()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    breaker = {"consecutive_failures": OPENS_AFTER, "open_for": "200ms", "jitter": 0}
    process = Process(
        tmp_path / "daemon",
        {"openai": {"upstream": "https://api.openai.com", "dialect": "openai"}},
        dependencies={NAME: {"source": "database", "vendor": "postgresql", "breaker": breaker}},
    )
    try:
        asyncio.run(process.listening())
        yield Daemon(process)
    finally:
        close()
        asyncio.run(process.end())


@pytest.fixture(params=["psycopg", "psycopg2", "asyncpg", "sqlalchemy+psycopg"])
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    for module in name.split("+"):
        installed(module)
    return name


def test_the_victim_of_a_deadlock_succeeds_at_once_and_its_breaker_never_moved(
    daemon: Daemon, driver: str, postgres: Postgres, deadlock: Callable[..., Any]
) -> None:
    """Nothing says that the transaction is idempotent: that it was undone is enough."""
    duel = deadlock(lambda: open_session(driver, postgres))
    attempts = [0, 0]
    judged: list[Any] = []

    def transaction(which: int) -> None:
        attempts[which] += 1
        try:
            with daemon.guard():
                duel.transaction(which)
        except SidecarError as error:
            judged.append(error.envelope)
            raise

    with postgres.admin() as admin:
        sums = "select sum(v) from p where id in (1, 2)"
        before = admin.execute(sums).fetchone()[0]
        assert duel.fight(partial(retry(policy=QUICKLY).call, transaction)) == (None, None)
        assert admin.execute(sums).fetchone()[0] == before + 4
    assert min(attempts) >= 1
    assert sum(attempts) == 2 + len(judged) > 2
    assert {(one.code, one.retryable, one.retry_after) for one in judged} == {("40P01", True, 0)}
    entry = daemon.settled(success=2, alive=len(judged))
    assert (entry["state"], entry["opens"], entry["consecutive_failures"]) == ("closed", 0, 0)
    assert entry["window"]["failure"] == 0


def test_what_the_caller_caught_before_he_still_catches(
    daemon: Daemon, postgres: Postgres, sessions: Callable[[Session], Session]
) -> None:
    psycopg = installed("psycopg")
    session = sessions(open_session("psycopg", postgres))
    with pytest.raises(psycopg.errors.UniqueViolation) as caught, daemon.guard():
        session.run("insert into p values (9, 1, 'x', 'bob@example.com')")
    error = caught.value
    assert error.envelope.class_ == "validation"
    # What the driver keeps behind properties and in C is there as ever.
    assert error.diag.constraint_name == "p_email_key"
    assert error.sqlstate == "23505"
    psycopg2 = installed("psycopg2")
    session = sessions(open_session("psycopg2", postgres))
    with pytest.raises(psycopg2.errors.UniqueViolation) as other, daemon.guard():
        session.run("insert into p values (9, 1, 'x', 'bob@example.com')")
    assert (other.value.pgcode, other.value.diag.table_name) == ("23505", "p")
    assert other.value.envelope.code == "23505"
    daemon.settled(alive=2, failure=0)


def test_a_commit_that_nobody_answered_is_not_repeated(
    daemon: Daemon, driver: str, postgres: Postgres, sessions: Callable[[Session], Session]
) -> None:
    """Not even for a caller who takes his transaction to be idempotent."""
    session = sessions(open_session(driver, postgres))
    session.run("set synchronous_commit = on")
    pid = session.run("select pg_backend_pid()")
    session.run("begin")
    session.run("update p set v = v + 0 where id = 1")
    commits: list[int] = []

    def commit() -> None:
        commits.append(1)
        with daemon.guard(phase="commit"):
            session.run("commit")

    def committed() -> None:
        with workflow("order-17"):
            retry(idempotent=True).call(commit)

    beside = Beside(committed)
    postgres.wait_for(pid, "IPC")
    postgres.end_backend(pid)
    error = beside.wait()
    assert isinstance(error, SidecarError)
    assert (error.gave_up, error.envelope.retryable) == ("not_retryable", False)
    assert error.envelope.correlation_id == "order-17"
    assert commits == [1]
    daemon.settled(failure=1)


def test_a_server_that_goes_and_comes_back(daemon: Daemon, mortal_postgres: Postgres) -> None:
    def ask() -> int:
        with daemon.guard():
            session = open_session("psycopg", mortal_postgres)
        with session:
            return int(session.run("select 1"))

    assert ask() == 1
    mortal_postgres.signal(signal.SIGQUIT)
    wait_until(lambda: mortal_postgres.ended, "the end of PostgreSQL")
    for _ in range(OPENS_AFTER):
        with pytest.raises(installed("psycopg").OperationalError) as caught:
            ask()
        assert caught.value.envelope.code == "connection_refused"
    with pytest.raises(BreakerOpen):
        ask()
    mortal_postgres.run()

    def answered() -> bool:
        try:
            return ask() == 1
        except BreakerOpen:
            return False

    wait_until(answered, "a probe")
    assert daemon.settled()["state"] == "closed"
