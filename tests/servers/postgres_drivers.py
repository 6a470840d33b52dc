"""How each driver for PostgreSQL opens a session, by the names that the recorded cases use."""

from __future__ import annotations

from typing import Any

from tests.servers.postgres import PASSWORD, Postgres
from tests.servers.sessions import (
    Alchemy,
    AlchemyAsync,
    Asynchronous,
    DbApi,
    Django,
    Session,
)

DRIVERS = (
    "psycopg",
    "psycopg2",
    "asyncpg",
    "sqlalchemy+psycopg",
    "sqlalchemy+asyncpg",
    "django",
)
_LOGIN = {"user": "postgres", "password": PASSWORD, "dbname": "postgres"}


def open_session(driver: str, server: Postgres, **changes: Any) -> Session:
    """A session of a driver; `user`, `password`, `dbname` and `port` may be others."""
    login = {**_LOGIN, "port": server.port, **changes}
    if driver == "psycopg":
        import psycopg

        return DbApi(driver, psycopg.connect(server.dsn(**login), autocommit=True))
    if driver == "psycopg2":
        import psycopg2

        connection = psycopg2.connect(server.dsn(**login))
        connection.autocommit = True
        return DbApi(driver, connection)
    if driver == "asyncpg":
        import asyncpg

        login["database"] = login.pop("dbname")
        return Asynchronous(
            driver, lambda: asyncpg.connect(host="127.0.0.1", timeout=20, ssl=False, **login)
        )
    if driver == "django":
        return Django(
            driver,
            {
                "NAME": login["dbname"],
                "USER": login["user"],
                "PASSWORD": login["password"],
                "HOST": "127.0.0.1",
                "PORT": login["port"],
                "OPTIONS": {},
            },
        )
    url = (
        f"postgresql+{driver.partition('+')[2]}://{login['user']}:{login['password']}"
        f"@127.0.0.1:{login['port']}/{login['dbname']}"
    )
    return AlchemyAsync(driver, url) if "asyncpg" in driver else Alchemy(driver, url)
