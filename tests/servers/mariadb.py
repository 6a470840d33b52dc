"""MariaDB: an own instance in a folder, and the account that everything but root is refused with."""

from __future__ import annotations

import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.servers.processes import Account, Server, found, wait_until

PASSWORD = "s3cret-pass"
CONNECTIONS = 16

_SETTINGS = {
    "bind-address": "127.0.0.1",
    "max-connections": str(CONNECTIONS),
    "innodb-buffer-pool-size": "16M",
    "innodb-log-file-size": "8M",
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-lock-wait-timeout": "50",
    "performance-schema": "0",
    "skip-log-bin": None,
    "skip-networking": "0",
    "skip-name-resolve": None,
}
_SCHEMA = f"""
create database d;
create user t@'127.0.0.1' identified by '{PASSWORD}';
grant all on d.* to t@'127.0.0.1';
grant process, connection admin on *.* to t@'127.0.0.1';
create user limited@'127.0.0.1' identified by '{PASSWORD}' with max_user_connections 1;
grant all on d.* to limited@'127.0.0.1';
create user busy@'127.0.0.1' identified by '{PASSWORD}';
grant all on d.* to busy@'127.0.0.1';
create table d.p (id int primary key, v int not null, email varchar(40) unique) engine innodb;
insert into d.p values (1, 10, 'ann@example.com'), (2, 20, 'bob@example.com');
"""


def program(name: str) -> str | None:
    return found(name, f"/usr/sbin/{name}")


class MariaDb(Server):
    """An instance that accepts `root` without a password over its socket, `t` over TCP."""

    def __init__(self, account: Account, folder: Path) -> None:
        super().__init__(account, folder)
        self.data = folder / "data"
        self.socket = str(folder / "s")

    def initialise(self) -> None:
        self.account.run(
            program("mariadb-install-db"), f"--datadir={self.data}", "--no-defaults",
            "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
            "--innodb-log-file-size=8M",
            *([f"--user={self.account.name}"] if self.account.name else []),
        )  # fmt: skip

    def copy_of(self, other: MariaDb) -> None:
        shutil.copytree(other.data, self.data)
        self.account.give(self.folder)

    def run(self, **settings: str) -> None:
        options = [
            f"--{name}" if value is None else f"--{name.replace('_', '-')}={value}"
            for name, value in {**_SETTINGS, **settings}.items()
        ]
        self.start(
            program("mariadbd"), "--no-defaults", f"--datadir={self.data}", f"--port={self.port}",
            f"--socket={self.socket}", f"--pid-file={self.folder / 'pid'}", *options,
            ready=self._answers,
        )  # fmt: skip

    def _answers(self) -> bool:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(self.socket)
            return True
        return False

    def admin(self) -> Any:
        """A connection as `root` over the socket, for what no driver is tested with."""
        import pymysql

        return pymysql.connect(unix_socket=self.socket, user="root", autocommit=True)

    def ask(self, sql: str) -> Any:
        """Runs one statement as `root`; answers the first value."""
        with self.admin() as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            row = cursor.fetchone()
        return None if row is None else row[0]

    def prepare(self) -> None:
        for statement in filter(str.strip, _SCHEMA.split(";\n")):
            self.ask(statement)

    def wait_for(self, connection: int, state: str) -> None:
        """Waits until a connection is in such a state, as the list of processes spells it."""
        query = f"select state from information_schema.processlist where id = {connection}"
        wait_until(lambda: state in (self.ask(query) or ""), f"a connection in {state!r}")

    def wait_for_lock(self) -> None:
        """Waits until some transaction waits for a lock."""
        query = "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'"
        wait_until(lambda: self.ask(query), "a transaction that waits for a lock")

    def kill(self, connection: int) -> None:
        """Ends a connection from the server's side."""
        self.ask(f"kill connection {connection}")
        query = f"select count(*) from information_schema.processlist where id = {connection}"
        wait_until(lambda: not self.ask(query), "the end of a connection")
