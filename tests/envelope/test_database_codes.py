"""Plain codes: what a vendor's number means with nothing else beside it, family by family.

A report of an agent may hold no more than `{"vendor": "sqlserver", "code": 1205}`.
"""

import pytest

from sidecar.envelope.database import classify
from sidecar.envelope.databases.kinds import by_number, final
from sidecar.envelope.raised import recorded

UNDONE = ("transient", True, 0, "alive")
CONTENDED = ("transient", True, None, "alive")
UNWELL = ("transient", True, None, "failure")
BROKEN = ("transient", False, None, "failure")
DEAD = ("transient", True, 0, "neutral")
MISTAKEN = ("validation", False, None, "alive")
DENIED = ("authentication", False, None, "alive")
RENEWABLE = ("authentication", True, None, "alive")
THROTTLED = ("rate_limit", True, None, "throttle")
FINAL = ("permanent", False, None, "alive")

FAMILIES = [
    ("postgresql", UNDONE, "40001 40P01 40000 25P03 57P05 CR000"),
    ("postgresql", BROKEN, "40003 08007 XX000 XX001 XX002"),
    ("postgresql", MISTAKEN, """40002 23505 23503 23502 23514 23P01 23001 22001 22003 22P02 22012 44000
     54000 54001 54023 P0001 25001 25P01 25P02 53400 55000 58P01 42601 42P01 42703 42883 42P07 42804
     0A000 21000 2BP01 24000 3B001"""),
    ("postgresql", DENIED, "42501 28000 28P01"),
    ("postgresql", FINAL, "3D000 26000 57P04 25006 P0004 AP001 ZZ999"),
    ("postgresql", UNWELL, """08000 08001 08003 08004 08006 53000 53100 53200 53300 57P01 57P02 57P03
     58000 58030 08P01"""),
    ("postgresql", CONTENDED, "55P03 55006 57014 25P04"),
    ("mysql", UNDONE, "1213 1613 1614 3101 1020 1615"),
    ("mysql", CONTENDED, "1205 3572 1969 3024 1317"),
    ("mysql", MISTAKEN, """1062 1451 1452 1048 1364 3819 4025 1406 1264 1292 1366 1365 1054 1146 1064 1050
     1136 1242 1305 1644 1153 1399 1216 1217 1586 1690 1267 1046 1690"""),
    ("mysql", DENIED, "1045 1044 1142 1143 1820 4151 3118 1227 1130 1698 1862 3955 2059 2061"),
    ("mysql", FINAL, "1049 1792 9999 1290"),
    ("mysql", UNWELL, "1040 2002 2003 2005 2013 1053 1047 1836 2055 1927 1158 1159 1160 1161"),
    ("mysql", DEAD, "2006 4031"),
    ("mysql", THROTTLED, "1203 1226"),
    ("mysql", BROKEN, "1114 1021 1129 2026 1180"),
    ("sqlserver", UNDONE, "1205 3960 41301 41302 41305 41325 41839"),
    ("sqlserver", CONTENDED, "1222"),
    ("sqlserver", THROTTLED, "10928 10929 10936 49918 49919 49920 40189"),
    ("sqlserver", UNWELL, """40613 40197 40143 40540 4221 921 983 18401 42109 6005 17142 596 233 64 10053
     10054 10060 1204 8645 8651 701 4060 -2 20003 20009 11001 3906"""),
    ("sqlserver", MISTAKEN, """2627 2601 547 515 2628 8152 102 207 208 245 8115 8134 2812 50000 51000 156
     1913 2714 4104 8114 8178 3701"""),
    ("sqlserver", DENIED, "18456 18452 18470 18486 18487 18488 229 230 262 40615 916"),
    ("sqlserver", BROKEN, "9002 1105 42108 823 824"),
    ("sqlserver", FINAL, "911 99"),
    ("oracle", UNDONE, "60 8177 4068 4061 1555 25402"),
    ("oracle", CONTENDED, "54 30006 2049 1591 1013"),
    ("oracle", UNWELL, """18 20 12516 12519 12520 12541 12528 12170 12514 12505 12537 12571 1033 1034 1090
     1089 3113 3114 3135 16456 28 DPY-6005 DPY-4011 4031 12543"""),
    ("oracle", BROKEN, "25408 600 7445 1653 1654 257"),
    ("oracle", MISTAKEN, """1 1400 1438 2290 2291 2292 942 904 1722 12899 20000 20001 20999 900 933 1403
     1422 1476 1861 6502 6512 4043 955"""),
    ("oracle", DENIED, "1017 28000 28001 1031 1045 1950 DPY-4001"),
    ("oracle", THROTTLED, "2391"),
    ("oracle", FINAL, "12154 16000 DPY-4027 DPY-4000 99999"),
    ("oracle", DEAD, "1012 DPY-1001"),
    ("sqlite", CONTENDED, "5 6 261 262 773 518 9"),
    ("sqlite", UNDONE, "517"),
    ("sqlite", MISTAKEN, "1 19 20 18 787 1299 1555 2067 2579 275 3091"),
    ("sqlite", FINAL, "8 14 26 264 1032 526"),
    ("sqlite", BROKEN, "10 11 13 266 778 522 267"),
    ("sqlite", DENIED, "23"),
    ("mongodb", UNDONE, "112 251 24 246"),
    ("mongodb", CONTENDED, "50 11601 43 13388 267"),
    ("mongodb", UNWELL, "6 7 89 91 134 189 262 9001 10107 11600 11602 13435 13436 133"),
    ("mongodb", MISTAKEN, "11000 121 2 9 26 48 59 66 72 14 146 10334"),
    ("mongodb", DENIED, "13 18"),
    ("mongodb", RENEWABLE, "391"),
    ("mongodb", BROKEN, "64 14031"),
    ("mongodb", FINAL, "100 8000 286 99999"),
    ("mongodb", THROTTLED, "16500 462"),
    ("redis", MISTAKEN, "WRONGTYPE ERR BUSYGROUP NOGROUP CROSSSLOT EXECABORT"),
    ("redis", DENIED, "NOAUTH WRONGPASS NOPERM"),
    ("redis", UNWELL, "LOADING MASTERDOWN CLUSTERDOWN READONLY NOREPLICAS MISCONF OOM BUSY"),
    ("redis", UNDONE, "MOVED ASK"),
    ("redis", CONTENDED, "TRYAGAIN NOSCRIPT UNBLOCKED"),
    ("redis", FINAL, "UNKILLABLE MYERR"),
    ("cassandra", UNWELL, "Unavailable ReadTimeout Overloaded IsBootstrapping OperationTimedOut"),
    ("cassandra", BROKEN, "WriteTimeout ReadFailure WriteFailure CASWriteUnknown"),
    ("cassandra", DENIED, "AuthenticationFailed Unauthorized"),
    ("cassandra", MISTAKEN, "InvalidRequest SyntaxException AlreadyExists FunctionFailure"),
    ("neo4j", UNDONE, "Neo.TransientError.Transaction.DeadlockDetected"),
    ("neo4j", CONTENDED, "Neo.ClientError.Transaction.Terminated Neo.TransientError.New.Unheard"),
    ("neo4j", UNWELL, """Neo.TransientError.General.DatabaseUnavailable Neo.ClientError.Cluster.NotALeader
     Neo.TransientError.General.OutOfMemoryError"""),
    ("neo4j", MISTAKEN, """Neo.ClientError.Statement.SyntaxError
     Neo.ClientError.Schema.ConstraintValidationFailed"""),
    ("neo4j", DENIED, "Neo.ClientError.Security.Unauthorized Neo.ClientError.Security.Forbidden"),
    ("neo4j", RENEWABLE, "Neo.ClientError.Security.TokenExpired"),
    ("neo4j", BROKEN, "Neo.DatabaseError.General.UnknownError"),
    ("clickhouse", THROTTLED, "202 252 201"),
    ("clickhouse", UNWELL, "241 242 999 209 210 279 225"),
    ("clickhouse", CONTENDED, "159 394"),
    ("clickhouse", BROKEN, "319"),
    ("clickhouse", MISTAKEN, "62 60 47 46 43 53 27 6 16 57 469"),
    ("clickhouse", DENIED, "516 497 192 193"),
    ("snowflake", MISTAKEN, "606 000606 1003 2003 2043 100038 100132"),
    ("snowflake", DENIED, "390100 390144 3001"),
    ("snowflake", RENEWABLE, "390114 390112 390318"),
    ("snowflake", CONTENDED, "625 630 604"),
    ("snowflake", UNWELL, "250001 290503 250003"),
    ("snowflake", THROTTLED, "290429"),
    ("snowflake", DEAD, "250002"),
]  # fmt: skip
PLAIN = [(vendor, code, meaning) for vendor, meaning, codes in FAMILIES for code in codes.split()]


def judged(error, vendor=None, driver=None):
    found = classify(recorded(error), vendor=vendor, driver=driver)
    envelope = found.envelope
    shown = (envelope.class_.value, envelope.retryable, envelope.retry_after, found.verdict.value)
    return found, shown


@pytest.mark.parametrize(("vendor", "code", "meaning"), PLAIN, ids=lambda value: str(value)[:40])
def test_a_code_and_its_vendor(vendor, code, meaning):
    found, shown = judged({"code": code}, vendor)
    assert shown == meaning, found.rule
    if code.lstrip("-").isdecimal():
        assert judged({"code": int(code)}, vendor)[1] == meaning
    assert found.envelope.message


def test_the_later_of_two_rows_that_overlap_counts():
    broad, narrow, single = final("a"), final("b"), final("c")
    table = by_number((broad, "1..9 5"), (narrow, "3..4"), (single, "4 9"))
    found = [table.get(number) for number in range(11)]
    assert found == [None, broad, broad, narrow, single, broad, broad, broad, broad, single, None]


def test_the_vendor_decides_what_a_number_means():
    assert judged({"code": 1205}, "sqlserver")[1] == UNDONE
    assert judged({"code": 1205}, "mysql")[1] == CONTENDED
    assert judged({"sqlstate": "57P03"}, "postgresql")[1] == UNWELL
    assert judged({"code": 606, "sqlstate": "57P03"}, "snowflake")[1] == MISTAKEN
    assert judged({"code": 3024}, "mysql")[1] == CONTENDED
    timeout = {"type": "mysql.connector.errors.ConnectionTimeoutError", "code": 3024}
    assert judged(timeout)[0].envelope.code == "connect_timeout"


def test_a_number_without_a_vendor_means_nothing():
    found, shown = judged({"code": 1205})
    assert shown == FINAL
    assert found.envelope.code == "1205"


@pytest.mark.parametrize(
    ("code", "shown_as", "meaning"),
    [
        ("ORA-00060", "ORA-00060", UNDONE),
        ("ORA-60", "ORA-00060", UNDONE),
        ("Neo.TransientError.Transaction.DeadlockDetected", None, UNDONE),
        ("SQLITE_BUSY", "SQLITE_BUSY", CONTENDED),
        ("40P01", "40P01", UNDONE),
        ("57P03", "57P03", UNWELL),
        ("23505", "23505", MISTAKEN),
        ("40001", "40001", UNDONE),
    ],
)
def test_codes_that_tell_their_vendor(code, shown_as, meaning):
    found, shown = judged({"code": code})
    assert shown == meaning
    assert found.envelope.code == (shown_as or code)


@pytest.mark.parametrize(
    ("error", "vendor", "code"),
    [
        ({"code": "40P01"}, "postgresql", "40P01"),
        ({"code": 40001}, "postgres", "40001"),
        ({"pgcode": "40001"}, "cockroachdb", "40001"),
        ({"attrs": {"pgcode": "40001"}}, "yugabytedb", "40001"),
        ({"sqlstate": "40001"}, "mysql", "40001"),
        ({"code": "40001"}, "mariadb", "40001"),
        ({"code": 60}, "oracle", "ORA-00060"),
        ({"code": "ORA-08177"}, "Oracle Database", "ORA-08177"),
        ({"code": "1205"}, "Azure SQL", "1205"),
        ({"code": 1205}, "mssql", "1205"),
        ({"code": "WriteConflict"}, "mongo", "112"),
        ({"code": 517}, "sqlite3", "SQLITE_BUSY_SNAPSHOT"),
        ({"code": 1213}, "aurora-mysql", "1213"),
        ({"sqlstate": "40001"}, "aurora-postgresql", "40001"),
    ],
)
def test_codes_in_every_spelling(error, vendor, code):
    found, shown = judged(error, vendor)
    assert shown == UNDONE, found.rule
    assert found.envelope.code == code


@pytest.mark.parametrize(
    ("driver", "code", "meaning"),
    [
        ("psycopg", "40P01", UNDONE),
        ("sqlalchemy+asyncpg", "40001", UNDONE),
        ("pymysql", 1205, CONTENDED),
        ("mysql-connector-python", 1205, CONTENDED),
        ("pymssql", 1205, UNDONE),
        ("mssql+pyodbc", 1205, UNDONE),
        ("oracledb", 60, UNDONE),
        ("snowflake-connector-python", 606, MISTAKEN),
        ("clickhouse-driver", 62, MISTAKEN),
        ("motor", 112, UNDONE),
    ],
)
def test_a_driver_tells_the_vendor(driver, code, meaning):
    assert judged({"code": code}, driver=driver)[1] == meaning


def test_a_class_of_a_driver_knows_better_than_a_name():
    error = {"type": "pymysql.err.OperationalError", "args": [1205, "Lock wait timeout exceeded"]}
    assert judged(error, "sqlserver")[1] == CONTENDED


def test_an_sqlstate_that_lost_its_zero():
    assert judged({"code": 8006}, "pg")[0].envelope.code == "08006"


def test_the_wait_that_azure_asks_for():
    assert judged({"code": 40501}, "sqlserver")[1] == ("rate_limit", True, 10, "throttle")


def test_a_state_of_a_vendor_that_counts_in_numbers():
    assert judged({"sqlstate": "57P03"}, "snowflake")[1] == MISTAKEN
    assert judged({"sqlstate": "40001"}, "oracle")[1] == UNDONE
    found, shown = judged({"sqlstate": "ZZ999"}, "oracle")
    assert (found.envelope.code, shown) == ("ZZ999", FINAL)


def test_a_driver_of_odbc_that_is_not_there():
    text = "[01000] [unixODBC][Driver Manager]Can't open lib 'x' : file not found (0) (SQLDriverConnect)"
    error = {"type": "pyodbc.Error", "args": ["01000", text]}
    for vendor in ("sqlserver", "postgresql", None):
        assert judged(error, vendor)[1] == FINAL
