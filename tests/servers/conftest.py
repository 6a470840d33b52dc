"""Real servers, started once; a test that needs one which is not installed is skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import need
from tests.servers import mariadb as mysql
from tests.servers import postgres as postgresql
from tests.servers import redis as key_value
from tests.servers.duel import Duel
from tests.servers.mariadb import MariaDb
from tests.servers.postgres import Postgres
from tests.servers.processes import Account
from tests.servers.redis import Redis
from tests.servers.sessions import Session

Open = Callable[..., Session]

# Drivers leave sockets open where a server goes away under them: that is theirs to mend.
_THEIRS = (
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            for warning in _THEIRS:
                item.add_marker(pytest.mark.filterwarnings(warning))


def driver(module: str) -> Any:
    """A driver's module; a test that needs it is skipped where it is not installed."""
    try:
        return __import__(module)
    except ImportError:
        need(f"{module} is not installed")


@pytest.fixture(scope="session")
def postgres_account() -> Account:
    for name in ("initdb", "postgres", "pg_basebackup"):
        if postgresql.program(name) is None:
            need("PostgreSQL is not installed")
    driver("psycopg")
    return Account("postgres")


@pytest.fixture(scope="session")
def new_postgres(postgres_account: Account) -> Iterator[Callable[[], Postgres]]:
    """Makes clusters that are ready to run; each test that asks for one ends it."""
    template = Postgres(postgres_account, postgres_account.folder())

    def make() -> Postgres:
        server = Postgres(postgres_account, postgres_account.folder())
        server.copy_of(template)
        return server

    try:
        template.initialise()
        yield make
    finally:
        template.stop()


@pytest.fixture(scope="session")
def postgres(new_postgres: Callable[[], Postgres]) -> Iterator[Postgres]:
    """A PostgreSQL whose COMMITs wait for a replica that does not exist, if a session wants that."""
    server = new_postgres()
    try:
        server.run(synchronous_commit="local", synchronous_standby_names="nobody")
        server.prepare()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def standby(postgres: Postgres) -> Iterator[Postgres]:
    """A hot standby of it."""
    server = postgres.standby(postgres.account.folder())
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def mortal_postgres(new_postgres: Callable[[], Postgres]) -> Iterator[Postgres]:
    """A PostgreSQL for one test, which may end it."""
    server = new_postgres()
    try:
        server.run()
        server.prepare()
        yield server
    finally:
        server.stop()


@pytest.fixture
def sessions() -> Iterator[Callable[[Session], Session]]:
    """Keeps sessions and closes them when the test is over."""
    with ExitStack() as stack:
        yield stack.enter_context


@pytest.fixture
def deadlock(postgres: Postgres, sessions: Callable[[Session], Session]) -> Callable[[Open], Duel]:
    """Makes two transactions that will deadlock, over any driver.

    Use it with what opens a session: `deadlock(open_).fight()`.
    """

    def make(open_: Open) -> Duel:
        return Duel(sessions(open_()), sessions(open_()))

    return make


@pytest.fixture(scope="session")
def mariadb_account() -> Account:
    for name in ("mariadbd", "mariadb-install-db"):
        if mysql.program(name) is None:
            need("MariaDB is not installed")
    driver("pymysql")
    return Account("mysql")


@pytest.fixture(scope="session")
def new_mariadb(mariadb_account: Account) -> Iterator[Callable[[], MariaDb]]:
    """Makes instances that are ready to run; each test that asks for one ends it."""
    template = MariaDb(mariadb_account, mariadb_account.folder())

    def make() -> MariaDb:
        server = MariaDb(mariadb_account, mariadb_account.folder())
        server.copy_of(template)
        return server

    try:
        template.initialise()
        yield make
    finally:
        template.stop()


@pytest.fixture(scope="session")
def mariadb(new_mariadb: Callable[[], MariaDb]) -> Iterator[MariaDb]:
    """A MariaDB with a database `d` and accounts of several kinds."""
    server = new_mariadb()
    try:
        server.run()
        server.prepare()
        yield server
    finally:
        server.stop()


@pytest.fixture
def mortal_mariadb(new_mariadb: Callable[[], MariaDb]) -> Iterator[MariaDb]:
    """A MariaDB for one test, which may end it."""
    server = new_mariadb()
    try:
        server.run()
        server.prepare()
        yield server
    finally:
        server.stop()


@pytest.fixture
def start_redis() -> Iterator[Callable[..., Redis]]:
    """Starts Redis with any settings; every server ends with the test."""
    if key_value.program() is None:
        need("Redis is not installed")
    driver("redis")
    account = Account("redis")
    with ExitStack() as stack:

        def start(**settings: str) -> Redis:
            server = Redis(account, account.folder())
            stack.callback(server.stop)
            server.run(**settings)
            return server

        yield start
