"""What every driver raises when a real MariaDB fails, and what it means."""

from __future__ import annotations

import signal
from contextlib import ExitStack

import pytest

from tests.servers.conftest import driver as installed
from tests.servers.duel import Duel
from tests.servers.judging import Means, check, judged
from tests.servers.mariadb import CONNECTIONS, PASSWORD
from tests.servers.processes import wait_until
from tests.servers.sessions import Aiomysql, Alchemy, Beside, DbApi, raised_by

DRIVERS = {
    "pymysql": "pymysql",
    "aiomysql": "aiomysql",
    "mysql-connector": "mysql.connector",
    "sqlalchemy+pymysql": "sqlalchemy",
}

DEADLOCK = Means("transient", "1213", True, 0, "alive")
CHANGED = Means("transient", "1020", True, 0, "alive")
LOCK_WAIT = Means("transient", "1205", True, None, "alive")
TIMEOUT = Means("transient", "1969", True, None, "alive")
UNIQUE = Means("validation", "1062", False, None, "alive")
NOT_NULL = Means("validation", "1048", False, None, "alive")
READ_ONLY_TRANSACTION = Means("permanent", "1792", False, None, "alive")
READ_ONLY_SERVER = Means("transient", "1290", True, None, "failure")
FULL = Means("transient", "1040", True, None, "failure")
SPENT = Means("rate_limit", "1226", True, None, "throttle")
PASSWORD_WRONG = Means("authentication", "1045", False, None, "alive")
NO_RIGHT = Means("authentication", "1044", False, None, "alive")
REFUSED = Means("transient", "2003", True, None, "failure")
LOST = Means("transient", "2013", True, None, "failure")
CLOSED = Means("transient", "connection_closed", True, 0, "neutral")
ROLL_BACK = Means("permanent", "pending_rollback", False, None, "alive")


def open_session(driver, server, **changes):
    login = {
        "host": "127.0.0.1",
        "port": server.port,
        "user": "t",
        "password": PASSWORD,
        "database": "d",
        **changes,
    }
    if driver == "pymysql":
        import pymysql

        return DbApi(driver, pymysql.connect(autocommit=True, **login))
    if driver == "mysql-connector":
        import mysql.connector

        return DbApi(driver, mysql.connector.connect(autocommit=True, use_pure=True, **login))
    if driver == "aiomysql":
        import aiomysql

        login["db"] = login.pop("database")
        return Aiomysql(driver, lambda: aiomysql.connect(autocommit=True, **login))
    return Alchemy(
        driver,
        f"mysql+pymysql://{login['user']}:{login['password']}@127.0.0.1:{login['port']}"
        f"/{login['database']}",
    )


@pytest.fixture(params=DRIVERS)
def driver(request, mariadb):
    installed(DRIVERS[request.param])
    return request.param


@pytest.fixture
def opened(driver, mariadb, sessions):
    return lambda **changes: sessions(open_session(driver, mariadb, **changes))


def test_a_deadlock(driver, opened):
    errors = Duel(opened(), opened()).fight()
    (error,) = [error for error in errors if error is not None]
    check(error, DEADLOCK, vendor="mariadb", driver=driver, like="deadlock")


def test_a_row_that_changed(driver, opened):
    one, other = opened(), opened()
    one.run("set innodb_snapshot_isolation = 1")
    one.run("begin")
    one.run("select v from p where id = 1")
    other.run("update p set v = v + 1 where id = 1")
    error = raised_by(lambda: one.run("update p set v = 0 where id = 1"))
    check(error, CHANGED, vendor="mariadb", driver=driver, like="snapshot-1020")
    one.run("rollback")


def test_a_lock_that_another_holds(driver, opened):
    holder, other = opened(), opened()
    holder.run("begin")
    holder.run("select v from p where id = 1 for update")
    error = raised_by(lambda: other.run("select v from p where id = 1 for update nowait"))
    check(error, LOCK_WAIT, vendor="mariadb", driver=driver, like="lock-wait-timeout")
    holder.run("rollback")


def test_a_statement_timeout(driver, opened):
    slow = "set statement max_statement_time = 0.05 for select sleep(30)"
    error = raised_by(lambda: opened().run(slow))
    check(error, TIMEOUT, vendor="mariadb", driver=driver, like="stmt-timeout")


def test_constraints(driver, opened):
    session = opened()
    error = raised_by(lambda: session.run("insert into p values (9, 1, 'bob@example.com')"))
    found = check(error, UNIQUE, vendor="mariadb", driver=driver, like="dup-key")
    assert "email" in found.envelope.message
    assert "insert into" not in found.envelope.message
    error = raised_by(lambda: session.run("insert into p values (9, null, 'x')"))
    found = check(error, NOT_NULL, vendor="mariadb", driver=driver, like="not-null")
    assert "'v'" in found.envelope.message


def test_what_may_only_be_read(driver, opened, mariadb):
    session = opened()
    session.run("start transaction read only")
    error = raised_by(lambda: session.run("insert into p values (9, 1, 'x')"))
    check(error, READ_ONLY_TRANSACTION, vendor="mariadb", driver=driver, like="read-only-tx")
    session.run("rollback")
    mariadb.ask("set global read_only = 1")
    try:
        error = raised_by(lambda: session.run("insert into p values (9, 1, 'x')"))
    finally:
        mariadb.ask("set global read_only = 0")
    check(error, READ_ONLY_SERVER, vendor="mariadb", driver=driver, like="read-only-server")


def test_a_server_that_is_full(driver, mariadb):
    with ExitStack() as held:

        def fill():
            for _ in range(2 * CONNECTIONS):
                held.enter_context(open_session(driver, mariadb, user="busy"))

        error = raised_by(fill)
    check(error, FULL, vendor="mariadb", driver=driver, like="too-many")
    others = "select count(*) from information_schema.processlist where user = 'busy'"
    wait_until(lambda: not mariadb.ask(others), "a server with room again")


def test_an_account_that_is_full(driver, opened):
    opened(user="limited")
    error = raised_by(lambda: opened(user="limited"))
    check(error, SPENT, vendor="mariadb", driver=driver, like="user-conn-limit")


def test_refused_logins(driver, opened):
    error = raised_by(lambda: opened(password="wrong"))
    found = check(error, PASSWORD_WRONG, vendor="mariadb", driver=driver, like="bad-password")
    assert "wrong" not in found.envelope.message
    error = raised_by(lambda: opened(database="ghost"))
    check(error, NO_RIGHT, vendor="mariadb", driver=driver, like="db-denied")
    error = raised_by(lambda: opened(port=1))
    check(error, REFUSED, vendor="mariadb", driver=driver, like="refused")


def test_a_connection_that_is_killed_in_mid_query(driver, opened, mariadb):
    session = opened()
    connection = session.run("select connection_id()")
    beside = Beside(lambda: session.run("select sleep(60)"))
    mariadb.wait_for(connection, "User sleep")
    mariadb.kill(connection)
    error = beside.wait()
    check(error, LOST, vendor="mariadb", driver=driver, like="kill-conn-running")
    in_commit = judged(error, "mariadb", driver, phase="commit")
    assert not in_commit.envelope.retryable
    assert in_commit.verdict.value == "failure"
    error = raised_by(lambda: session.run("select 1"))
    after = ROLL_BACK if driver.startswith("sqlalchemy") else CLOSED
    like = None if after is ROLL_BACK else "use-after-kill"
    check(error, after, vendor="mariadb", driver=driver, like=like)


def test_a_shutdown(mortal_mariadb, sessions):
    """Every driver calls it a lost connection, and nobody the number of a shutdown, 1053."""
    server, running = mortal_mariadb, {}
    for driver, module in DRIVERS.items():
        installed(module)
        session = sessions(open_session(driver, server))
        connection = session.run("select connection_id()")
        running[driver] = Beside(lambda session=session: session.run("select sleep(60)"))
        server.wait_for(connection, "User sleep")
    server.signal(signal.SIGTERM)
    for driver, beside in running.items():
        check(beside.wait(), LOST, vendor="mariadb", driver=driver, like="shutdown-running")
    wait_until(lambda: server.ended, "the end of the server")
    for driver in DRIVERS:
        error = raised_by(lambda driver=driver: open_session(driver, server))
        check(error, REFUSED, vendor="mariadb", driver=driver, like="refused")
