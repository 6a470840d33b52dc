"""What sqlite3 and aiosqlite raise; the library works in this process, so nothing is started."""

from __future__ import annotations

import asyncio
import sqlite3
import threading

import pytest

from tests.servers.conftest import driver as installed
from tests.servers.judging import Means, check, judged, means
from tests.servers.sessions import raised_by


def transient(code, wait=None, verdict="alive", *, retryable=True):
    return Means("transient", code, retryable, wait, verdict)


def refused(class_, code):
    return Means(class_, code, False, None, "alive")


class Plain:
    """sqlite3 in its autocommit mode."""

    driver = "sqlite3"

    def __init__(self, path):
        self.connection = sqlite3.connect(path, timeout=0, isolation_level=None)

    def run(self, sql, *values):
        return self.connection.execute(sql, values).fetchall()

    def raw(self):
        return self.connection

    def close(self):
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Beside(Plain):
    """aiosqlite, which works in a thread beside the event loop."""

    driver = "aiosqlite"

    def __init__(self, path):
        import aiosqlite

        self.runner = asyncio.Runner()
        try:
            self.connection = self.runner.run(self._open(aiosqlite, path))
        except BaseException:
            self.runner.close()
            raise

    async def _open(self, module, path):
        connection = module.connect(path, timeout=0, isolation_level=None)
        try:
            return await connection
        except BaseException:
            # Its thread has a last word for the loop, which must hear it.
            await asyncio.to_thread(connection._thread.join)
            raise

    def run(self, sql, *values):
        return self.runner.run(self._run(sql, values))

    async def _run(self, sql, values):
        async with self.connection.execute(sql, values) as cursor:
            return await cursor.fetchall()

    def raw(self):
        return self.connection._conn

    def close(self):
        self.runner.run(self.connection.close())
        self.runner.close()


@pytest.fixture(params=[Plain, Beside], ids=["sqlite3", "aiosqlite"])
def kind(request):
    if request.param is Beside:
        installed("aiosqlite")
    return request.param


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "database"
    with Plain(path) as session:
        session.run("pragma journal_mode = wal")
        session.run("create table p (id integer primary key, v int not null, u text unique)")
        session.run("insert into p values (1, 1, 'a')")
    return path


@pytest.fixture
def opened(kind, sessions):
    return lambda path: sessions(kind(path))


def test_a_lock_that_another_holds(kind, opened, path):
    holder, other = opened(path), opened(path)
    holder.run("begin immediate")
    error = raised_by(lambda: other.run("update p set v = 2"))
    check(error, transient("SQLITE_BUSY"), vendor="sqlite", driver=kind.driver, like="busy-read")


def test_somebody_wrote_after_this_transaction_had_read(kind, opened, path):
    """The text is that of a lock, but only a new transaction helps: at once."""
    reader, writer = opened(path), opened(path)
    reader.run("begin")
    reader.run("select v from p")
    writer.run("update p set v = 2")
    error = raised_by(lambda: reader.run("update p set v = 3"))
    check(error, transient("SQLITE_BUSY_SNAPSHOT", 0), vendor="sqlite", driver=kind.driver)
    reader.run("rollback")
    reader.run("update p set v = 3")


def test_constraints(kind, opened, path):
    session = opened(path)
    unique = refused("validation", "SQLITE_CONSTRAINT_UNIQUE")
    error = raised_by(lambda: session.run("insert into p values (2, 1, 'a')"))
    found = check(error, unique, vendor="sqlite", driver=kind.driver, like="unique")
    assert "p.u" in found.envelope.message
    error = raised_by(lambda: session.run("insert into p values (2, null, 'b')"))
    check(
        error,
        refused("validation", "SQLITE_CONSTRAINT_NOTNULL"),
        vendor="sqlite",
        driver=kind.driver,
    )
    error = raised_by(lambda: session.run("selec 1"))
    check(error, refused("validation", "SQLITE_ERROR"), vendor="sqlite", driver=kind.driver)
    error = raised_by(lambda: session.run("select ?, ?", 1))
    client = refused("validation", "client_error")
    check(error, client, vendor="sqlite", driver=kind.driver, like="params")


def test_files(kind, opened, path, tmp_path):
    final = {"vendor": "sqlite", "driver": kind.driver}
    error = raised_by(lambda: opened(tmp_path / "no" / "where"))
    check(error, refused("permanent", "SQLITE_CANTOPEN"), like="cantopen", **final)
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"no database at all, but long enough to be read as one" * 40)
    error = raised_by(lambda: opened(garbage).run("select 1 from p"))
    check(error, refused("permanent", "SQLITE_NOTADB"), like="notadb", **final)
    session = opened(path)
    session.run("pragma query_only = on")
    error = raised_by(lambda: session.run("update p set v = 2"))
    check(error, refused("permanent", "SQLITE_READONLY"), like="readonly", **final)
    small = opened(tmp_path / "small")
    small.run("pragma max_page_count = 4")
    small.run("create table b (x)")
    error = raised_by(lambda: small.run("insert into b values (zeroblob(100000))"))
    full = transient("SQLITE_FULL", verdict="failure", retryable=False)
    check(error, full, like="full", **final)


def test_interrupted(kind, opened, path):
    session = opened(path)
    timer = threading.Timer(0.05, session.raw().interrupt)
    timer.start()
    endless = (
        "with recursive t (n) as (select 1 union all select n + 1 from t) select max(n) from t"
    )
    try:
        error = raised_by(lambda: session.run(endless))
    finally:
        timer.cancel()
    check(
        error, transient("SQLITE_INTERRUPT"), vendor="sqlite", driver=kind.driver, like="interrupt"
    )


def test_closed(kind, path):
    session = kind(path)
    session.close()
    if kind is Beside:
        session.runner = asyncio.Runner()
    error = raised_by(lambda: session.run("select 1"))
    closed = transient("connection_closed", 0, verdict="neutral")
    if kind is Plain:
        check(error, closed, vendor="sqlite", driver=kind.driver, like="closed")
        return
    # A ValueError, which tells nothing where nobody says that it is aiosqlite's.
    session.runner.close()
    assert means(judged(error, "sqlite", kind.driver)) == closed
    assert means(judged(error, None, kind.driver)) == closed
