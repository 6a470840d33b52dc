"""What every driver raises when a real PostgreSQL fails, and what it means."""

from __future__ import annotations

import signal
from contextlib import ExitStack, suppress

import pytest

from tests.servers.conftest import driver as installed
from tests.servers.judging import Means, check, judged
from tests.servers.postgres import CONNECTIONS
from tests.servers.postgres import PASSWORD as SECRET
from tests.servers.postgres_drivers import DRIVERS, open_session
from tests.servers.processes import wait_until
from tests.servers.sessions import Beside, raised_by

DEADLOCK = Means("transient", "40P01", True, 0, "alive")
SERIALIZATION = Means("transient", "40001", True, 0, "alive")
UNIQUE = Means("validation", "23505", False, None, "alive")
NOT_NULL = Means("validation", "23502", False, None, "alive")
LOCKED = Means("transient", "55P03", True, None, "alive")
TIMEOUT = Means("transient", "57014", True, None, "alive")
FAILED_TRANSACTION = Means("validation", "25P02", False, None, "alive")
FULL = Means("transient", "53300", True, None, "failure")
READ_ONLY = Means("permanent", "25006", False, None, "alive")
PASSWORD = Means("authentication", "28P01", False, None, "alive")
NO_DATABASE = Means("permanent", "3D000", False, None, "alive")
REFUSED = Means("transient", "connection_refused", True, None, "failure")
SHUTTING_DOWN = Means("transient", "57P03", True, None, "failure")
CLOSED = Means("transient", "connection_closed", True, 0, "neutral")
ROLL_BACK = Means("permanent", "pending_rollback", False, None, "alive")


def ended(driver):
    """A backend that an administrator ended: one event, three shapes."""
    code = (
        "08003" if "asyncpg" in driver else "connection_reset" if driver == "psycopg2" else "57P01"
    )
    return Means("transient", code, True, None, "failure")


@pytest.fixture(params=DRIVERS)
def driver(request, postgres):
    for module in request.param.split("+"):
        installed(module)
    if request.param == "sqlalchemy+asyncpg":
        installed("greenlet")
    return request.param


@pytest.fixture
def opened(driver, postgres, sessions):
    """Opens sessions of the driver, which are closed with the test."""
    return lambda **changes: sessions(open_session(driver, postgres, **changes))


def test_a_deadlock(driver, postgres, deadlock):
    errors = deadlock(lambda: open_session(driver, postgres)).fight()
    (error,) = [error for error in errors if error is not None]
    check(error, DEADLOCK, vendor="postgresql", driver=driver, like="deadlock")


def test_the_victim_of_a_deadlock_succeeds_at_once(driver, postgres, deadlock):
    """Its retry needs no wait, as the envelope says; both transactions are in the table.

    A retry that is quicker than the survivor's waking meets it once more: that says nothing new.
    """
    duel = deadlock(lambda: open_session(driver, postgres))
    verdicts = []

    def guarded(which):
        for _ in range(5):
            try:
                return duel.transaction(which)
            except Exception as error:
                found = judged(error, "postgresql", driver)
                verdicts.append(found.verdict.value)
                assert found.envelope.retryable
                assert found.envelope.retry_after == 0
        raise AssertionError("a fifth deadlock")

    with postgres.admin() as admin:
        sums = "select sum(v) from p where id in (1, 2)"
        before = admin.execute(sums).fetchone()[0]
        assert duel.fight(guarded) == (None, None)
        assert admin.execute(sums).fetchone()[0] == before + 4
    assert set(verdicts) == {"alive"}


def test_a_serialization_failure(driver, opened):
    one, other = opened(), opened()
    one.run("begin isolation level repeatable read")
    one.run("select v from p where id = 1")
    other.run("update p set v = v + 1 where id = 1")
    error = raised_by(lambda: one.run("update p set v = 0 where id = 1"))
    check(error, SERIALIZATION, vendor="postgresql", driver=driver, like="serialization-rr")
    error = raised_by(lambda: one.run("select 1"))
    check(error, FAILED_TRANSACTION, vendor="postgresql", driver=driver, like="in-failed-tx")
    one.run("rollback")


def test_a_unique_violation(driver, opened):
    error = raised_by(lambda: opened().run("insert into p values (9, 1, 'x', 'bob@example.com')"))
    found = check(error, UNIQUE, vendor="postgresql", driver=driver, like="unique-violation")
    assert "p_email_key" in found.envelope.message
    assert "insert into" not in found.envelope.message


def test_a_row_that_fails_stays_out_of_the_message(driver, opened):
    error = raised_by(
        lambda: opened().run("insert into p values (9, null, 'x', 'carol@example.com')")
    )
    found = check(error, NOT_NULL, vendor="postgresql", driver=driver, like="not-null")
    assert '"v"' in found.envelope.message
    assert "carol" not in found.envelope.message


def test_a_statement_timeout(driver, opened):
    session = opened()
    session.run("set statement_timeout = '50ms'")
    error = raised_by(lambda: session.run("select pg_sleep(30)"))
    check(error, TIMEOUT, vendor="postgresql", driver=driver, like="stmt-timeout")


def test_a_lock_that_another_holds(driver, opened):
    holder, other = opened(), opened()
    holder.run("begin")
    holder.run("select v from p where id = 1 for update")
    error = raised_by(lambda: other.run("select v from p where id = 1 for update nowait"))
    check(error, LOCKED, vendor="postgresql", driver=driver, like="lock-nowait")
    other.run("set lock_timeout = '50ms'")
    error = raised_by(lambda: other.run("update p set v = 0 where id = 1"))
    check(error, LOCKED, vendor="postgresql", driver=driver)
    holder.run("rollback")


def test_a_server_that_is_full(driver, postgres):
    with ExitStack() as held:

        def fill():
            for _ in range(2 * CONNECTIONS):
                held.enter_context(open_session(driver, postgres))

        error = raised_by(fill)
    check(error, FULL, vendor="postgresql", driver=driver, like="too-many-user")
    wait_until(lambda: accepts_sessions(postgres), "a server with room again")


def test_a_role_that_is_full(driver, opened):
    error = raised_by(lambda: opened(user="limited"))
    check(error, FULL, vendor="postgresql", driver=driver, like="role-conn-limit")


def test_refused_logins(driver, opened):
    error = raised_by(lambda: opened(password="wrong"))
    found = check(error, PASSWORD, vendor="postgresql", driver=driver, like="bad-password")
    assert "wrong" not in found.envelope.message
    error = raised_by(lambda: opened(dbname="ghost"))
    found = check(error, NO_DATABASE, vendor="postgresql", driver=driver, like="no-such-db")
    assert "ghost" in found.envelope.message
    error = raised_by(lambda: opened(port=1))
    check(error, REFUSED, vendor="postgresql", driver=driver, like="refused")


def test_pools(postgres):
    """Our own pool was busy or closed: that says nothing about the server."""
    pools, sqlalchemy = installed("psycopg_pool"), installed("sqlalchemy")
    with pools.ConnectionPool(postgres.dsn(), min_size=1, max_size=1, open=True) as pool:
        with pool.connection():
            error = raised_by(lambda: pool.getconn(timeout=0.05))
        busy = Means("transient", "pool_timeout", True, None, "neutral")
        check(error, busy, vendor="postgresql", driver="psycopg_pool", like="pool-pool-timeout")
    closed = Means("permanent", "pool_closed", False, None, "alive")
    error = raised_by(lambda: pool.getconn(timeout=0.05))
    check(error, closed, vendor="postgresql", driver="psycopg_pool", like="pool-pool-closed")
    url = f"postgresql+psycopg://postgres:{SECRET}@127.0.0.1:{postgres.port}/postgres"
    engine = sqlalchemy.create_engine(url, pool_size=1, max_overflow=0, pool_timeout=0.05)
    try:
        with engine.connect():
            error = raised_by(engine.connect)
        check(error, busy, vendor="postgresql", driver="sqlalchemy", like="sqlalchemy-pool-timeout")
    finally:
        engine.dispose()


def test_a_backend_that_is_ended_in_mid_query(driver, opened, postgres):
    session = opened()
    pid = session.run("select pg_backend_pid()")
    beside = Beside(lambda: session.run("select pg_sleep(60)"))
    postgres.wait_for(pid, "Timeout")
    postgres.end_backend(pid)
    error = beside.wait()
    check(error, ended(driver), vendor="postgresql", driver=driver)
    error = raised_by(lambda: session.run("select 1"))
    after = ROLL_BACK if driver.startswith("sqlalchemy") else CLOSED
    like = "use-after-invalid" if after is ROLL_BACK else "use-after-terminate"
    check(error, after, vendor="postgresql", driver=driver, like=like)


def test_a_commit_that_nobody_answered(driver, opened, postgres):
    """The connection is lost while COMMIT waits for a replica, and the row is there all the same."""
    session = opened()
    session.run("set synchronous_commit = on")
    pid = session.run("select pg_backend_pid()")
    key = 1000 + DRIVERS.index(driver)
    session.run("begin")
    session.run(f"insert into p values ({key}, 1)")
    beside = Beside(lambda: session.run("commit"))
    postgres.wait_for(pid, "IPC")
    postgres.end_backend(pid)
    error = beside.wait()
    found = judged(error, "postgresql", driver, phase="commit")
    assert not found.envelope.retryable
    assert found.envelope.retry_after is None
    assert (found.envelope.class_.value, found.verdict.value) == ("transient", "failure")
    assert "COMMIT" in found.rule
    with postgres.admin() as admin:
        assert admin.execute("select 1 from p where id = %s", (key,)).fetchone() == (1,)
    assert judged(error, "postgresql", driver).envelope.retryable, "in any other phase"


def test_a_hot_standby(driver, standby, sessions):
    session = sessions(open_session(driver, standby))
    assert session.run("select count(*) from p") >= 2
    error = raised_by(lambda: session.run("insert into p values (9, 1)"))
    check(error, READ_ONLY, vendor="postgresql", driver=driver, like="standby-write|read-only-tx")


def test_a_shutdown(mortal_postgres, sessions):
    """A smart shutdown refuses new sessions while old ones work; a fast one ends those too."""
    server, running = mortal_postgres, {}
    for driver in DRIVERS:
        for module in driver.split("+"):
            installed(module)
        session = sessions(open_session(driver, server))
        pid = session.run("select pg_backend_pid()")
        running[driver] = Beside(lambda session=session: session.run("select pg_sleep(60)"))
        server.wait_for(pid, "Timeout")
    server.signal(signal.SIGTERM)
    wait_until(lambda: not accepts_sessions(server), "a smart shutdown")
    for driver in DRIVERS:
        error = raised_by(lambda driver=driver: open_session(driver, server))
        check(
            error,
            SHUTTING_DOWN,
            vendor="postgresql",
            driver=driver,
            like="connect-while-shutting-down",
        )
    server.signal(signal.SIGINT)
    for driver, beside in running.items():
        check(beside.wait(), ended(driver), vendor="postgresql", driver=driver)
    wait_until(lambda: server.ended, "the end of the server")
    for driver in DRIVERS:
        error = raised_by(lambda driver=driver: open_session(driver, server))
        check(error, REFUSED, vendor="postgresql", driver=driver, like="refused")


def accepts_sessions(server):
    with suppress(Exception), server.admin():
        return True
    return False
