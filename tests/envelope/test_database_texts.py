"""What of a database's text is shown, and what is read where a code was lost on the way."""

import pytest

from sidecar.envelope.database import classify
from sidecar.envelope.databases.wording import plain
from sidecar.envelope.raised import recorded
from tests.cases import all_cases


def judged(error, vendor=None, driver=None):
    found = classify(recorded(error), vendor=vendor, driver=driver)
    return found.envelope, found.verdict.value


def shown(text):
    envelope, _ = judged({"type": "psycopg.Error", "sqlstate": "23505", "message": text})
    return envelope.message


# --- what is shown ---------------------------------------------------------------------------


def test_the_key_that_exists_is_named_with_its_value():
    text = 'duplicate key value violates unique constraint "u"\nDETAIL:  Key (email)=(a@b.c) already exists.'
    assert shown(text) == (
        'duplicate key value violates unique constraint "u" '
        "DETAIL: Key (email)=(a@b.c) already exists."
    )


@pytest.mark.parametrize(
    "detail",
    [
        "Key (api_key)=(a-plain-word) already exists.",
        "Key (name, password)=(ann, hunter2hunter2) already exists.",
        "Key (value)=(sk-live-0123456789abcdefABCDEF) already exists.",
    ],
)
def test_a_secret_is_not_shown_as_the_value_of_a_key(detail):
    message = shown(f'duplicate key value violates unique constraint "u"\nDETAIL:  {detail}')
    assert "Key (" in message
    assert detail.partition("=(")[2].partition(")")[0] not in message


def test_mysql_and_mongodb_name_the_key_too():
    assert "bob@x.y" in plain("Duplicate entry 'bob@x.y' for key 'users.email'")
    assert "hunter2" not in plain("Duplicate entry 'hunter2' for key 'users.password'")
    mongo = 'E11000 duplicate key error collection: d.u index: token_1 dup key: { token: "abc" }'
    assert "abc" not in plain(mongo)
    assert "abc" in plain(mongo.replace("token: ", "name: "))


@pytest.mark.parametrize(
    ("text", "kept", "lost"),
    [
        (
            'null value in column "v"\nDETAIL:  Failing row contains (3, null, ann@example.com).',
            'column "v"',
            "ann@example.com",
        ),
        (
            "(psycopg.errors.UniqueViolation) duplicate key\n[SQL: insert]\n[parameters: ('ann@example.com',)]",
            "duplicate key",
            "ann@example.com",
        ),
        (
            "E11000 duplicate key error, full error: {'writeErrors': [{'op': {'mail': 'ann@example.com'}}]}",
            "E11000",
            "ann@example.com",
        ),
        (
            "h:1: timed out (configured timeouts: x), Timeout: 3s, Topology Description: <TopologyDescription>",
            "timed out",
            "Topology",
        ),
        (
            "syntax error at or near \"selec\"\nLINE 1: selec mail from u where mail = 'ann@example.com'\n     ^",
            "syntax error",
            "ann@example.com",
        ),
        ("app rule\nCONTEXT:  PL/pgSQL function f(text) line 3 at RAISE", "app rule", "CONTEXT"),
    ],
)
def test_rows_statements_and_replies_stay_out(text, kept, lost):
    assert kept in plain(text)
    assert lost not in plain(text)


def test_the_password_of_an_address_is_hidden():
    error = {
        "type": "psycopg.OperationalError",
        "message": "could not connect to postgresql://ann:hunter2hunter2@db.example:5432/d",
    }
    envelope, _ = judged(error)
    assert "hunter2" not in envelope.message
    assert "hunter2" not in str(envelope.raw)
    assert "db.example" in envelope.message


def test_what_a_driver_puts_around_a_text_is_taken_off():
    odbc = "[23000] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]Violation of 'pk'. (2627) (SQLExecDirectW); [23000] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]The statement has been terminated. (3621)"
    envelope, _ = judged({"type": "pyodbc.IntegrityError", "args": ["23000", odbc]})
    assert (envelope.code, envelope.message) == ("2627", "Violation of 'pk'.")
    library = "Invalid object name 'x'.DB-Lib error message 20018, severity 16:\nGeneral SQL Server error\n"
    envelope, _ = judged({"type": "pymssql.exceptions.ProgrammingError", "args": [208, library]})
    assert (envelope.code, envelope.message) == ("208", "Invalid object name 'x'.")


def test_a_failure_without_words_says_what_it_means():
    envelope, _ = judged({"code": 1205}, "sqlserver")
    assert "deadlock" in envelope.message


@pytest.mark.parametrize("case", all_cases("db-cases.jsonl"), ids=lambda case: case["id"])
def test_no_recorded_message_holds_a_row_or_a_reply(case):
    envelope, _ = judged(case["error"], case["vendor"], case["driver"])
    for word in ("Failing row", "[SQL:", "[parameters:", "full error:", "Topology Description"):
        assert word not in envelope.message
    assert len(envelope.message) <= 500


# --- what is read ----------------------------------------------------------------------------


def test_a_wrapper_that_lost_its_cause_still_names_it():
    error = {
        "type": "sqlalchemy.exc.OperationalError",
        "code": "e3q8",
        "message": "(pymysql.err.OperationalError) (1213, 'Deadlock found when trying to get lock')\n[SQL: x]",
    }
    envelope, verdict = judged(error)
    assert (envelope.code, envelope.retry_after, verdict) == ("1213", 0, "alive")
    error["message"] = (
        "(psycopg2.errors.DeadlockDetected) deadlock detected\n[SQL: update t set x = 1]"
    )
    envelope, verdict = judged(error)
    assert (envelope.code, envelope.message, verdict) == ("40P01", "deadlock detected", "alive")


def test_a_class_alone_stands_for_its_state():
    for type_, code in (
        ("psycopg.errors.DeadlockDetected", "40P01"),
        ("psycopg2.errors.UniqueViolation", "23505"),
        ("asyncpg.exceptions.SerializationError", "40001"),
        ("asyncpg.exceptions.CannotConnectNowError", "57P03"),
        ("psycopg.errors.InternalError_", "XX000"),
    ):
        assert judged({"type": type_})[0].code == code


@pytest.mark.parametrize(
    ("vendor", "message", "code"),
    [
        ("oracle", "ORA-00060: deadlock detected while waiting for resource", "ORA-00060"),
        ("mysql", "(1213, 'Deadlock found when trying to get lock')", "1213"),
        ("mysql", "1213 (40001): Deadlock found when trying to get lock", "1213"),
        ("snowflake", "000625 (57014): Statement aborted: number of waiters", "000625"),
        ("clickhouse", "Code: 159. DB::Exception: Timeout exceeded", "159"),
        ("clickhouse", "DB::Exception: Memory limit exceeded (MEMORY_LIMIT_EXCEEDED)", "241"),
        ("sqlite", "database is locked", "SQLITE_BUSY"),
        ("redis", "LOADING Redis is loading the dataset in memory", "LOADING"),
        ("postgresql", "FATAL:  sorry, too many clients already", "53300"),
    ],
)
def test_a_text_alone(vendor, message, code):
    assert judged({"message": message}, vendor)[0].code == code


def test_the_gravest_member_of_a_group_decides():
    refused = {
        "type": "ConnectionRefusedError",
        "mro": ["ConnectionError", "OSError"],
        "errno": 111,
    }
    deadlock = {"type": "psycopg.errors.DeadlockDetected", "sqlstate": "40P01"}
    cancelled = {"type": "asyncio.exceptions.CancelledError"}
    mistake = {"type": "ValueError", "message": "x"}

    def of(*members):
        envelope, verdict = judged({"type": "ExceptionGroup", "exceptions": list(members)})
        return envelope.code, verdict

    assert of(mistake, deadlock, cancelled) == ("40P01", "alive")
    assert of(deadlock, refused, cancelled) == ("connection_refused", "failure")
    assert of(cancelled) == ("cancelled", "neutral")


def test_a_builtin_error_has_the_machines_number_and_not_the_servers():
    """111 is no number of MySQL's, and -2 is no timeout of SQL Server's."""
    refused = {
        "type": "ConnectionRefusedError",
        "mro": ["ConnectionError", "OSError"],
        "args": [111, "x"],
    }
    unknown = {
        "type": "socket.gaierror",
        "mro": ["OSError"],
        "args": [-2, "Name or service not known"],
    }
    for vendor in ("mysql", "sqlserver", "oracle", "postgresql", "clickhouse", "mongodb"):
        assert judged(refused, vendor)[0].code == "connection_refused"
        assert judged(unknown, vendor)[0].code == "dns_failure"


def test_a_bulk_error_hides_the_numbers_of_its_members():
    def bulk(**details):
        error = {"type": "pymongo.errors.BulkWriteError", "code": 65, "attrs": {"details": details}}
        envelope, verdict = judged(error)
        return envelope.class_.value, envelope.code, envelope.retryable, verdict

    duplicate, late = {"code": 11000, "errmsg": "E11000"}, {"code": 64, "errmsg": "waiting"}
    assert bulk(writeErrors=[duplicate]) == ("validation", "11000", False, "alive")
    assert bulk(writeErrors=[], writeConcernErrors=[late]) == ("transient", "64", False, "failure")


def test_labels_stand_above_numbers():
    def labelled(type_, code, *labels):
        attrs = {"error_labels": list(labels), "details": {"code": code, "baseBackoffMS": 1500}}
        envelope, verdict = judged(
            {"type": f"pymongo.errors.{type_}", "code": code, "attrs": attrs}
        )
        return envelope.code, envelope.retryable, envelope.retry_after, verdict

    unsure = ("UnknownTransactionCommitResult", "RetryableWriteError")
    assert labelled("OperationFailure", 91, *unsure) == ("91", False, None, "failure")
    assert labelled("AutoReconnect", None, *unsure)[1:] == (False, None, "failure")
    conflict = labelled("OperationFailure", 263, "TransientTransactionError")
    assert conflict == ("263", True, 0, "alive")
    busy = labelled("OperationFailure", 462, "SystemOverloadedError")
    assert busy == ("overloaded", True, 1.5, "throttle")
    lost = labelled("AutoReconnect", None, "TransientTransactionError")
    assert lost == ("connection_reset", True, None, "failure")


def test_every_host_of_a_cluster_that_refused_us():
    def of(**hosts):
        error = {"type": "cassandra.cluster.NoHostAvailable", "attrs": {"errors": hosts}}
        return judged(error)[0].code

    refused = 'ConnectionRefusedError(111, "Tried connecting. Last error: Connection refused")'
    assert (
        of(a="AuthenticationFailed: Bad", b="AuthenticationFailed: Bad") == "AuthenticationFailed"
    )
    assert of(a="AuthenticationFailed: Bad", b=refused) == "connection_refused"
    assert of(a="something") == "connection_error"


def test_a_driver_of_odbc_whose_number_is_the_machines():
    """104 is a typing error in SQL Server, and a reset in the driver's own sentence."""
    head = "[Microsoft][ODBC Driver 18 for SQL Server]"
    lost = f"[08S01] {head}TCP Provider: Error code 0x68 (104) (SQLExecDirectW)"
    envelope, verdict = judged({"type": "pyodbc.OperationalError", "args": ["08S01", lost]})
    assert (envelope.code, envelope.retryable, verdict) == ("104", True, "failure")
    typing = f"[42000] {head}[SQL Server]ORDER BY items must appear (104) (SQLExecDirectW)"
    envelope, verdict = judged({"type": "pyodbc.ProgrammingError", "args": ["42000", typing]})
    assert (envelope.class_.value, envelope.code, verdict) == ("validation", "104", "alive")
    closed = judged(
        {"type": "pyodbc.ProgrammingError", "args": ["Attempt to use a closed connection."]}
    )
    assert (closed[0].code, closed[1]) == ("connection_closed", "neutral")


@pytest.mark.parametrize(
    ("text", "class_"),
    [
        ("bad auth : authentication failed", "authentication"),
        ("bad auth : Authentication failed.", "authentication"),
        ("user is not allowed to do action [find] on [shop.orders]", "authentication"),
        ("(Unauthorized) not authorized on admin to execute command", "authentication"),
        ("you are over your space quota, using 513 MB of 512 MB", "permanent"),
    ],
)
def test_atlas_has_one_number_for_whatever_it_refuses(text, class_):
    error = {
        "type": "pymongo.errors.OperationFailure",
        "code": 8000,
        "message": f"{text}, full error: {{'ok': 0, 'code': 8000, 'codeName': 'AtlasError'}}",
        "attrs": {"details": {"ok": 0, "errmsg": text, "code": 8000, "codeName": "AtlasError"}},
    }
    envelope, verdict = judged(error)
    assert (envelope.class_, envelope.code, envelope.retryable) == (class_, "8000", False)
    assert verdict == "alive"


_AT_NEON = 'connection to server at "ep-x.neon.tech" (192.0.2.1), port 5432 failed: ERROR:  '


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            "Your account or project has exceeded the compute time quota. Upgrade your plan to increase limits.",
            "plan_window_exhausted",
        ),
        (
            "Your project has exceeded the data transfer quota. Upgrade your plan to increase limits.",
            "plan_window_exhausted",
        ),
        ("The endpoint has been disabled. Enable it using Neon API and retry.", "55000"),
    ],
)
@pytest.mark.parametrize(
    ("error", "before"),
    [
        ({"type": "psycopg2.OperationalError", "mro": ["psycopg2.DatabaseError"]}, _AT_NEON),
        ({"type": "psycopg.OperationalError", "mro": ["psycopg.DatabaseError"]}, _AT_NEON),
        ({"type": "asyncpg.exceptions.InternalServerError", "sqlstate": "XX000"}, ""),
    ],
)
def test_a_proxy_of_neon_says_that_no_server_will_come(error, before, text, code):
    envelope, verdict = judged({**error, "message": before + text})
    assert (envelope.class_, envelope.code, envelope.retryable) == ("permanent", code, False)
    assert verdict == "alive"


def test_a_resource_monitor_of_snowflake_is_a_spend_limit():
    text = "090073 (22000): Warehouse 'W' cannot be resumed because resource monitor 'M' has exceeded its quota."
    error = {"type": "snowflake.connector.errors.ProgrammingError", "errno": 90073}
    envelope, verdict = judged({**error, "sqlstate": "22000", "message": text})
    assert (envelope.class_, envelope.code) == ("permanent", "spend_limit_reached")
    assert envelope.raw["code"] == "090073"
    assert verdict == "alive"
    assert judged({"code": 90074}, "snowflake")[0].class_ == "validation"
