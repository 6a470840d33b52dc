"""PostgreSQL: an own cluster, a standby of it, and what both need to fail quickly."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.servers.processes import Account, Server, found, wait_until

PROGRAMS = "/usr/lib/postgresql/*/bin/{}"
PASSWORD = "s3cret-pass"
CONNECTIONS = 24

_SETTINGS = {
    "fsync": "off",
    "max_connections": str(CONNECTIONS),
    "superuser_reserved_connections": "1",
    "shared_buffers": "16MB",
    "deadlock_timeout": "100ms",
    "log_min_messages": "fatal",
    "wal_level": "replica",
    "max_wal_senders": "4",
    "hot_standby": "on",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "password_encryption": "scram-sha-256",
}
_SCHEMA = """
create table p (id int primary key, v int not null, note varchar(8), email text unique);
insert into p values (1, 10, 'a', 'ann@example.com'), (2, 20, 'b', 'bob@example.com');
create table c (id int primary key, pid int references p (id));
create role limited login password 's3cret-pass' connection limit 0;
"""


def program(name: str) -> str | None:
    return found(PROGRAMS.format(name), name)


class Postgres(Server):
    """A cluster that accepts `postgres` with a password, over TCP only."""

    def __init__(self, account: Account, folder: Path) -> None:
        super().__init__(account, folder)
        self.data = folder / "data"

    def initialise(self) -> None:
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        self.account.give(self.folder)
        self.account.run(
            program("initdb"), "-D", str(self.data), "-U", "postgres", "-A", "scram-sha-256",
            "--pwfile", str(secret), "--no-sync", "-E", "UTF8", "--locale", "C",
        )  # fmt: skip

    def copy_of(self, other: Postgres) -> None:
        shutil.copytree(other.data, self.data, ignore=shutil.ignore_patterns("postmaster.pid"))
        self.account.give(self.folder)

    def run(self, **settings: str) -> None:
        options = {**_SETTINGS, "port": str(self.port), **settings}
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        self.start(program("postgres"), "-D", str(self.data), *arguments, ready=self._answers)

    def _answers(self) -> bool:
        import psycopg

        with suppress(psycopg.OperationalError), self.admin():
            return True
        return False

    def admin(self) -> Any:
        """A connection of its own for what no driver is tested with."""
        import psycopg

        return psycopg.connect(self.dsn(), autocommit=True)

    def dsn(self, **changes: object) -> str:
        held = {
            "host": "127.0.0.1",
            "port": self.port,
            "user": "postgres",
            "password": PASSWORD,
            "dbname": "postgres",
            "connect_timeout": 10,
            **changes,
        }
        return " ".join(f"{name}={value}" for name, value in held.items())

    def prepare(self) -> None:
        with self.admin() as connection:
            connection.execute(_SCHEMA)

    def standby(self, folder: Path) -> Postgres:
        """A hot standby of this cluster, by a base backup."""
        replica = Postgres(self.account, folder)
        pgpass = f"host=127.0.0.1 port={self.port} user=postgres password={PASSWORD}"
        self.account.run(
            program("pg_basebackup"), "-d", pgpass, "-D", str(replica.data), "-R", "-X", "stream",
            "-c", "fast", "--no-sync",
        )  # fmt: skip
        replica.run()
        return replica

    def end_backend(self, pid: int) -> None:
        """Ends a connection from the server's side, as an administrator would."""
        with self.admin() as connection:
            connection.execute("select pg_terminate_backend(%s)", (pid,))
            wait_until(lambda: not self._lives(connection, pid), "the end of a backend")

    @staticmethod
    def _lives(connection: Any, pid: int) -> bool:
        query = "select count(*) from pg_stat_activity where pid = %s"
        return connection.execute(query, (pid,)).fetchone()[0] > 0

    def wait_for(self, pid: int, event: str = "Lock") -> None:
        """Waits until a backend waits for such an event (`Lock`, `Timeout`, `IPC`)."""
        query = "select wait_event_type from pg_stat_activity where pid = %s"
        with self.admin() as connection:
            wait_until(
                lambda: (connection.execute(query, (pid,)).fetchone() or [None])[0] == event,
                f"a backend that waits for {event}",
            )
