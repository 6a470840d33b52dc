"""Where drivers keep what they know: exceptions built like theirs, for no server is at hand."""

import pytest

from sidecar.envelope.database import classify
from sidecar.envelope.describe import describe
from sidecar.envelope.raised import recorded


def class_of(dotted, *bases, **members):
    module, _, name = dotted.rpartition(".")
    return type(name, bases or (Exception,), {"__module__": module, **members})


def told(error, vendor=None):
    raised = describe(error)
    found = classify(raised, vendor=vendor)
    return raised, found.envelope, found.verdict.value


def test_oracle_keeps_it_in_its_argument():
    class Held:
        def __init__(self):
            self.code, self.full_code = 60, "ORA-00060"
            self.isrecoverable, self.is_session_dead, self.offset = False, False, 0

        def __str__(self):
            return "ORA-00060: deadlock detected while waiting for resource"

    error = class_of("oracledb.exceptions.DatabaseError")(Held())
    raised, envelope, verdict = told(error)
    assert raised.code == 60
    assert raised.attrs["full_code"] == "ORA-00060"
    assert (envelope.code, envelope.retry_after, verdict) == ("ORA-00060", 0, "alive")


def test_mongodb_computes_it():
    failure = class_of(
        "pymongo.errors.OperationFailure",
        code=property(lambda _: 112),
        details=property(lambda _: {"code": 112, "errmsg": "WriteConflict"}),
        timeout=property(lambda _: False),
    )
    error = failure("WriteConflict, full error: {'code': 112}")
    error._error_labels = {"TransientTransactionError"}
    raised, envelope, verdict = told(error)
    assert raised.attrs["error_labels"] == ["TransientTransactionError"]
    assert raised.attrs["details"]["code"] == 112
    assert (envelope.code, envelope.message, verdict) == ("112", "WriteConflict", "alive")


def test_pymssql_nests_it():
    error = class_of("pymssql.exceptions.OperationalError")(
        (18488, b"Login failed for user 'sa'.DB-Lib error message 20018, severity 14:\nGeneral")
    )
    raised, envelope, verdict = told(error)
    assert (raised.code, raised.attrs["args_nested"]) == (18488, True)
    assert (envelope.class_.value, envelope.code, verdict) == ("authentication", "18488", "alive")
    assert envelope.message == "Login failed for user 'sa'."


def test_python_tds_numbers_it():
    error = class_of("pytds.tds_base.OperationalError")(
        "Lock request time out period exceeded.", None
    )
    error.number, error.severity, error.state = 1222, 16, 1
    _, envelope, verdict = told(error)
    assert (envelope.code, envelope.retryable, verdict) == ("1222", True, "alive")


def test_mssql_python_names_the_state():
    error = class_of("mssql_python.exceptions.OperationalError")(
        "Driver Error: Serialization failure; DDBC Error: [Microsoft][SQL Server]deadlocked"
    )
    error.driver_error, error.ddbc_error = (
        "Serialization failure",
        "[Microsoft][SQL Server]deadlocked",
    )
    assert told(error)[1].code == "40001"
    error = class_of("mssql_python.exceptions.ProgrammingError")("x")
    error.driver_error = "Syntax error or access violation"
    error.ddbc_error = "[Microsoft][SQL Server]Lock request time out period exceeded."
    assert (told(error)[1].code, told(error)[2]) == ("1222", "alive")


def test_cassandra_hides_what_each_host_said():
    refused = class_of("cassandra.AuthenticationFailed")("Bad credentials")
    error = class_of("cassandra.cluster.NoHostAvailable")("Unable to connect to any servers")
    error.errors = {"10.0.0.1": refused, "10.0.0.2": refused}
    raised, envelope, verdict = told(error)
    assert raised.attrs["errors"]["10.0.0.1"] == "AuthenticationFailed: Bad credentials"
    assert (envelope.class_.value, envelope.code, verdict) == (
        "authentication", "AuthenticationFailed", "alive",
    )  # fmt: skip
    timeout = class_of("cassandra.WriteTimeout")("Replica(s) failed to respond in time")
    timeout.write_type = 4
    assert told(timeout)[1].retryable
    timeout.write_type = 0
    assert not told(timeout)[1].retryable


def test_neo4j_keeps_it_to_itself():
    error = class_of("neo4j.exceptions.TransientError")()
    error._neo4j_code = "Neo.TransientError.Transaction.DeadlockDetected"
    error._message = "ForsetiClient[1] can't acquire"
    _, envelope, verdict = told(error)
    assert envelope.code == "Neo.TransientError.Transaction.DeadlockDetected"
    assert (envelope.message, verdict) == ("ForsetiClient[1] can't acquire", "alive")


def test_snowflake_numbers_stand_where_python_keeps_numbers_of_errors():
    raised = recorded({"type": "snowflake.connector.errors.DatabaseError", "errno": 390100})
    envelope = classify(raised, vendor="snowflake").envelope
    assert (envelope.class_.value, envelope.code) == ("authentication", "390100")


@pytest.mark.parametrize(
    ("dotted", "members", "code"),
    [
        ("clickhouse_connect.driver.exceptions.DatabaseError", {"code": 241, "name": "M"}, "241"),
        ("clickhouse_driver.errors.ServerException", {"code": 62}, "62"),
        (
            "snowflake.connector.errors.ProgrammingError",
            {"errno": 606, "sqlstate": "57P03"},
            "000606",
        ),
        ("mysql.connector.errors.InternalError", {"errno": 1213, "sqlstate": "40001"}, "1213"),
        ("redis.exceptions.ResponseError", {"status_code": "LOADING"}, "LOADING"),
        (
            "sqlite3.OperationalError",
            {"sqlite_errorcode": 5, "sqlite_errorname": "SQLITE_BUSY"},
            "SQLITE_BUSY",
        ),
    ],
)
def test_plain_members(dotted, members, code):
    error = class_of(dotted)("text")
    vars(error).update(members)
    assert told(error)[1].code == code


def test_a_class_of_the_applications_own_is_read_as_its_base():
    base = class_of("psycopg.errors.UniqueViolation", sqlstate="23505")
    error = class_of("shop.EmailTaken", base)("duplicate key")
    assert told(error)[1].code == "23505"


def test_sqlalchemy_wraps_it():
    inner = class_of("pymysql.err.OperationalError", sqlstate="40001")(1213, "Deadlock found")
    outer = class_of("sqlalchemy.exc.OperationalError")("(pymysql.err.OperationalError) (1213, …)")
    outer.orig, outer.code, outer.connection_invalidated = inner, "e3q8", False
    raised, envelope, verdict = told(outer)
    assert raised.code == "e3q8"
    assert raised.cause.code == 1213
    assert (envelope.code, envelope.message, verdict) == ("1213", "Deadlock found", "alive")


def test_members_that_are_not_what_their_names_say():
    """Whatever lies there, what is told fits the form, and is told."""
    for dotted in (
        "psycopg.Error", "asyncpg.exceptions.PostgresError", "pymysql.err.Error", "oracledb.Error",
        "pymongo.errors.PyMongoError", "redis.exceptions.RedisError", "cassandra.DriverException",
        "neo4j.exceptions.Neo4jError", "snowflake.connector.errors.Error", "sqlite3.Error",
        "clickhouse_driver.errors.Error", "pytds.tds_base.Error", "pymssql.Error", "sqlalchemy.exc.Error",
        "mssql_python.exceptions.Error", "pyodbc.Error",
    ):  # fmt: skip
        error = class_of(dotted)(object(), [object()])
        for name in ("sqlstate", "code", "errno", "args_", "number", "status_code", "errors", "orig",
                     "_error_labels", "details", "_neo4j_code", "sqlite_errorcode", "detail"):  # fmt: skip
            setattr(error, name, object())
        raised, envelope, _ = told(error)
        assert raised.code is None
        assert raised.sqlstate is None
        assert envelope.code
