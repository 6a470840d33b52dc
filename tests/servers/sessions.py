"""One way to speak through every driver: a session runs SQL text, and raises what its driver raises."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self


class Session:
    """A connection of one driver; transactions are begun, committed and rolled back in SQL."""

    driver = ""

    def run(self, sql: str) -> Any:
        """Runs one statement; answers the first value of the first row, if there is one."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):
            self.close()


class DbApi(Session):
    """A driver of the DB-API in its autocommit mode."""

    def __init__(self, driver: str, connection: Any) -> None:
        self.driver = driver
        self.connection = connection

    def run(self, sql: str) -> Any:
        cursor = self.connection.cursor()
        try:
            cursor.execute(sql)
            row = cursor.fetchone() if cursor.description else None
        finally:
            with suppress(Exception):
                cursor.close()
        return None if row is None else row[0]

    def close(self) -> None:
        self.connection.close()


class Asynchronous(Session):
    """A driver that needs an event loop: one of its own for each session."""

    def __init__(self, driver: str, connect: Callable[[], Any]) -> None:
        self.driver = driver
        self.runner = asyncio.Runner()
        try:
            self.connection = self.runner.run(connect())
        except BaseException:
            self.runner.close()
            raise

    def run(self, sql: str) -> Any:
        return self.runner.run(self._run(sql))

    async def _run(self, sql: str) -> Any:
        return await self.connection.fetchval(sql)

    def close(self) -> None:
        try:
            self.runner.run(self._close())
        finally:
            self.runner.close()

    async def _close(self) -> None:
        await self.connection.close(timeout=2)


class Aiomysql(Asynchronous):
    async def _run(self, sql: str) -> Any:
        async with self.connection.cursor() as cursor:
            await cursor.execute(sql)
            row = await cursor.fetchone() if cursor.description else None
            return None if row is None else row[0]

    async def _close(self) -> None:
        self.connection.close()


class Alchemy(Session):
    """SQLAlchemy over a driver, in its autocommit mode."""

    def __init__(self, driver: str, url: str, **options: Any) -> None:
        import sqlalchemy

        self.driver = driver
        self.engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT", **options)
        try:
            self.connection = self.engine.connect()
        except BaseException:
            self.engine.dispose()
            raise

    def run(self, sql: str) -> Any:
        result = self.connection.exec_driver_sql(sql)
        row = result.fetchone() if result.returns_rows else None
        return None if row is None else row[0]

    def close(self) -> None:
        with suppress(Exception):
            self.connection.close()
        self.engine.dispose()


class AlchemyAsync(Asynchronous):
    """SQLAlchemy over a driver that needs an event loop."""

    def __init__(self, driver: str, url: str, **options: Any) -> None:
        from sqlalchemy.ext.asyncio import create_async_engine

        self.engine = create_async_engine(url, isolation_level="AUTOCOMMIT", **options)

        async def connect() -> Any:
            try:
                return await self.engine.connect()
            except BaseException:
                await self.engine.dispose()
                raise

        super().__init__(driver, connect)

    async def _run(self, sql: str) -> Any:
        result = await self.connection.exec_driver_sql(sql)
        row = result.fetchone() if result.returns_rows else None
        return None if row is None else row[0]

    async def _close(self) -> None:
        with suppress(Exception):
            await self.connection.close()
        await self.engine.dispose()


class Django(Session):
    """Django's wrapper around a driver, without a project around it."""

    def __init__(self, driver: str, settings: dict[str, Any]) -> None:
        import django
        from django.conf import settings as configured

        if not configured.configured:
            configured.configure(DATABASES={}, USE_TZ=True)
            django.setup()
        from django.db.backends.postgresql.base import DatabaseWrapper

        self.driver = driver
        self.connection = DatabaseWrapper(
            {
                "ENGINE": "django.db.backends.postgresql",
                "ATOMIC_REQUESTS": False,
                "AUTOCOMMIT": True,
                "CONN_MAX_AGE": 0,
                "CONN_HEALTH_CHECKS": False,
                "TIME_ZONE": None,
                **settings,
            },
            alias="tested",
        )
        self.connection.inc_thread_sharing()
        self.connection.ensure_connection()

    def run(self, sql: str) -> Any:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            row = cursor.fetchone() if cursor.description else None
        return None if row is None else row[0]

    def close(self) -> None:
        self.connection.close()


class Beside:
    """Runs something in a thread beside the test, and keeps what it raised."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, args=(run,), daemon=True)
        self._thread.start()

    def _guarded(self, run: Callable[[], Any]) -> None:
        try:
            run()
        except BaseException as error:
            self.error = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, deadline: float = 30.0) -> BaseException | None:
        """What it raised, None if it went well.

        Raises:
            TimeoutError: it is still running.
        """
        self._thread.join(deadline)
        if self._thread.is_alive():
            raise TimeoutError("still running")
        return self.error


def raised_by(run: Callable[[], Any]) -> BaseException:
    """What a call raises; that it must, and that it is no warning."""
    try:
        run()
    except Warning:
        raise
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")
