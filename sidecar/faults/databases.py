"""What the drivers of databases raise for each class of error, as plain data.

The tables hold what servers document: the code, the words, and the classes of the drivers that
tell of it, the usual driver first. A server that has no error of a class (PostgreSQL has no rate
limit) is not made to have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sidecar.envelope.model import ErrorClass

_V, _A, _R = ErrorClass.VALIDATION, ErrorClass.AUTHENTICATION, ErrorClass.RATE_LIMIT
_T, _P = ErrorClass.TRANSIENT, ErrorClass.PERMANENT


class Failure(msgspec.Struct, frozen=True):
    """One error of a server's or an SDK's.

    Attributes:
        classes: of the exceptions that tell of it, by their dotted names, the usual driver first.
        code: its number or word.
        message: in the server's words.
        sqlstate: where it has one.
        attrs: what else the exception says.
    """

    classes: str
    code: str | int | None
    message: str
    sqlstate: str | None = None
    attrs: Mapping[str, Any] = {}


def _postgresql(code: str, message: str, name: str, asyncpg: str) -> Failure:
    classes = f"psycopg.errors.{name} psycopg2.errors.{name} asyncpg.exceptions.{asyncpg}"
    return Failure(classes, None, message, code)


def _mysql(code: int, state: str, message: str, name: str, connector: str = "") -> Failure:
    drivers = f"pymysql.err.{name} MySQLdb.{name} asyncmy.errors.{name}"
    return Failure(f"{drivers} mysql.connector.errors.{connector or name}", code, message, state)


def _oracle(code: int, message: str, name: str = "DatabaseError") -> Failure:
    classes = f"oracledb.exceptions.{name} cx_Oracle.{name}"
    return Failure(
        classes, code, f"ORA-{code:05}: {message}", attrs={"full_code": f"ORA-{code:05}"}
    )


def _sqlite(name: str, number: int, message: str, class_: str) -> Failure:
    attrs = {"sqlite_errorname": name, "sqlite_errorcode": number}
    return Failure(f"sqlite3.{class_} aiosqlite.{class_}", number, message, attrs=attrs)


def _neo4j(code: str, message: str, name: str) -> Failure:
    return Failure(f"neo4j.exceptions.{name}", f"Neo.{code}", message)


def _clickhouse(code: int, name: str, message: str) -> Failure:
    connect = "clickhouse_connect.driver.exceptions.DatabaseError"
    told = f"Received ClickHouse exception, code: {code}, server response: Code: {code}."
    classes = f"{connect} clickhouse_driver.errors.ServerError"
    return Failure(classes, code, f"{told} DB::Exception: {message} ({name})")


DATABASES: Final[Mapping[str, Mapping[ErrorClass, Failure]]] = {
    "postgresql": {
        _V: _postgresql("23505", 'duplicate key value violates unique constraint "items_pkey"',
                        "UniqueViolation", "UniqueViolationError"),
        _A: _postgresql("42501", "permission denied for table items",
                        "InsufficientPrivilege", "InsufficientPrivilegeError"),
        _T: _postgresql("40001", "could not serialize access due to concurrent update",
                        "SerializationFailure", "SerializationError"),
        _P: _postgresql("25006", "cannot execute INSERT in a read-only transaction",
                        "ReadOnlySqlTransaction", "ReadOnlySQLTransactionError"),
    },
    "mysql": {
        _V: _mysql(1062, "23000", "Duplicate entry '1' for key 'items.PRIMARY'", "IntegrityError"),
        _A: _mysql(1142, "42000", "INSERT command denied to user 'app'@'%' for table 'items'",
                   "OperationalError", "ProgrammingError"),
        _R: _mysql(1226, "42000", "User 'app' has exceeded the 'max_user_connections' resource",
                   "OperationalError", "ProgrammingError"),
        _T: _mysql(1213, "40001",
                   "Deadlock found when trying to get lock; try restarting transaction",
                   "OperationalError", "InternalError"),
        _P: _mysql(1792, "25006", "Cannot execute statement in a READ ONLY transaction.",
                   "OperationalError", "InternalError"),
    },
    "sqlserver": {
        _V: Failure("pymssql.exceptions.IntegrityError", 2627,
                    "Violation of PRIMARY KEY constraint 'PK_items'. Cannot insert duplicate key."),
        _A: Failure("pymssql.exceptions.OperationalError", 229,
                    "The INSERT permission was denied on the object 'items', schema 'dbo'."),
        _R: Failure("pymssql.exceptions.OperationalError", 10928,
                    "Resource ID: 1. The request limit for the database is 30 and was reached."),
        _T: Failure("pymssql.exceptions.OperationalError", 1205,
                    "Transaction (Process ID 55) was deadlocked on lock resources with another "
                    "process and has been chosen as the deadlock victim. Rerun the transaction."),
        _P: Failure("pymssql.exceptions.OperationalError", 911,
                    "Database 'app' does not exist. Make sure that the name is entered correctly."),
    },
    "oracle": {
        _V: _oracle(1, "unique constraint (APP.ITEMS_PK) violated", "IntegrityError"),
        _A: _oracle(1031, "insufficient privileges"),
        _R: _oracle(2391, "exceeded simultaneous SESSIONS_PER_USER limit"),
        _T: _oracle(60, "deadlock detected while waiting for resource"),
        _P: _oracle(16000, "database or pluggable database open for read-only access"),
    },
    "sqlite": {
        _V: _sqlite("SQLITE_CONSTRAINT_UNIQUE", 2067, "UNIQUE constraint failed: items.id",
                    "IntegrityError"),
        _A: _sqlite("SQLITE_AUTH", 23, "not authorized", "DatabaseError"),
        _T: _sqlite("SQLITE_BUSY", 5, "database is locked", "OperationalError"),
        _P: _sqlite("SQLITE_READONLY", 8, "attempt to write a readonly database",
                    "OperationalError"),
    },
    "mongodb": {
        _V: Failure("pymongo.errors.DuplicateKeyError", 11000,
                    "E11000 duplicate key error collection: app.items index: _id_"),
        _A: Failure("pymongo.errors.OperationFailure", 13,
                    'not authorized on app to execute command { insert: "items" }'),
        _R: Failure("pymongo.errors.OperationFailure", 16500, "Request rate is large"),
        _T: Failure("pymongo.errors.OperationFailure", 112,
                    "WriteConflict error: this operation conflicted with another operation."),
        _P: Failure("pymongo.errors.WriteConcernError", 100,
                    "Not enough data-bearing nodes", attrs={"details": {
                        "code": 100, "codeName": "UnsatisfiableWriteConcern"}}),
    },
    "redis": {
        _V: Failure("redis.exceptions.ResponseError valkey.exceptions.ResponseError", None,
                    "WRONGTYPE Operation against a key holding the wrong kind of value"),
        _A: Failure("redis.exceptions.NoPermissionError valkey.exceptions.NoPermissionError", None,
                    "this user has no permissions to run the 'set' command"),
        _T: Failure("redis.exceptions.BusyLoadingError valkey.exceptions.BusyLoadingError", None,
                    "Redis is loading the dataset in memory"),
        _P: Failure("redis.exceptions.ResponseError valkey.exceptions.ResponseError", None,
                    "UNKILLABLE Sorry the script already executed write commands."),
    },
    "cassandra": {
        _V: Failure("cassandra.InvalidRequest", None,
                    "Error from server: code=2200 [Invalid query]"),
        _A: Failure("cassandra.Unauthorized", None, "Error from server: code=2100 [Unauthorized]"),
        _R: Failure("cassandra.RateLimitReached", None,
                    "[request_error_rate_limit_reached OpType=Write RejectedByCoordinator=True]"),
        _T: Failure("cassandra.Unavailable", None,
                    "Cannot achieve consistency level QUORUM"),
    },
    "clickhouse": {
        _V: _clickhouse(62, "SYNTAX_ERROR", "Syntax error: failed at position 1"),
        _A: _clickhouse(497, "ACCESS_DENIED", "app: Not enough privileges."),
        _R: _clickhouse(202, "TOO_MANY_SIMULTANEOUS_QUERIES", "Too many simultaneous queries."),
        _T: _clickhouse(241, "MEMORY_LIMIT_EXCEEDED", "Memory limit (total) exceeded"),
        _P: _clickhouse(164, "READONLY", "app: Cannot execute query in readonly mode."),
    },
    "neo4j": {
        _V: _neo4j("ClientError.Schema.ConstraintValidationFailed", "Node(0) already exists",
                   "ConstraintError"),
        _A: _neo4j("ClientError.Security.Forbidden", "Write operations are not allowed for app",
                   "Forbidden"),
        _R: _neo4j("ClientError.Security.AuthenticationRateLimit",
                   "The client has provided incorrect authentication details too many times",
                   "AuthError"),
        _T: _neo4j("TransientError.Transaction.DeadlockDetected",
                   "ForsetiClient can't acquire ExclusiveLock", "TransientError"),
        _P: _neo4j("ClientError.Database.DatabaseNotFound", "Database does not exist: app",
                   "ClientError"),
    },
    "snowflake": {
        _V: Failure("snowflake.connector.errors.ProgrammingError", 1003,
                    "001003 (42000): SQL compilation error: syntax error line 1", "42000"),
        _A: Failure("snowflake.connector.errors.DatabaseError", 390100,
                    "250001 (08001): Incorrect username or password was specified.", "08001"),
        _R: Failure("snowflake.connector.errors.TooManyRequests", 290429,
                    "290429: HTTP 429: Too Many Requests"),
        _T: Failure("snowflake.connector.errors.ProgrammingError", 625,
                    "000625 (57014): Statement aborted: number of waiters for this lock exceeds",
                    "57014"),
    },
}  # fmt: skip
"""By vendor, as `vendor_named` calls it."""

BASES: Final[Mapping[str, str]] = {
    "postgresql": "psycopg.DatabaseError psycopg2.DatabaseError asyncpg.exceptions.PostgresError",
    "mysql": "pymysql.err.OperationalError MySQLdb.OperationalError asyncmy.errors.OperationalError"
    " mysql.connector.errors.DatabaseError",
    "sqlserver": "pymssql.exceptions.OperationalError",
    "oracle": "oracledb.exceptions.DatabaseError cx_Oracle.DatabaseError",
    "sqlite": "sqlite3.OperationalError",
    "mongodb": "pymongo.errors.OperationFailure",
    "redis": "redis.exceptions.ResponseError valkey.exceptions.ResponseError",
    "cassandra": "cassandra.DriverException",
    "clickhouse": "clickhouse_connect.driver.exceptions.DatabaseError",
    "neo4j": "neo4j.exceptions.Neo4jError",
    "snowflake": "snowflake.connector.errors.ProgrammingError",
}
"""The classes of an error of which only the code is given."""
