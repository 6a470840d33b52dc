"""Where a database driver keeps what it knows about a failure: attributes, by class names.

No two drivers agree, not even on where the SQLSTATE is. Only what already lies in the exception is
read, or what a driver computes from it alone. The row that failed stays out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sidecar.envelope.peek import member, plain, text_of, woken

_MOST_HOSTS = 64
_ROW_DETAIL = "Failing row contains"
_FIELDS_OF_DIAGNOSTICS = ("constraint_name", "column_name", "table_name", "schema_name")


def fields(error: BaseException, names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of `Raised` that a live exception of a database driver fills; empty for any other.

    Args:
        error: the exception.
        names: its dotted class name and those of its bases.
    """
    for name in names:
        reader = _READERS.get(name.partition(".")[0]) if "." in name else None
        if reader is not None:
            return {key: held for key, held in reader(error).items() if _is_told(key, held)}
    return {}


def _is_told(key: str, held: Any) -> bool:
    """Whether a driver gave what belongs there: some put objects where others have a code."""
    if key == "code":
        return type(held) in {int, float, str}
    if key == "sqlstate":
        return type(held) is str
    return held is not None and held != {}


def _attrs(error: object, *names: str, **more: Any) -> dict[str, Any]:
    """What these attributes hold, as plain data, those left out that hold nothing."""
    held = {**{name: member(error, name) for name in names}, **more}
    return {name: plain(value) for name, value in held.items() if value is not None}


def _psycopg(error: BaseException) -> dict[str, Any]:
    diagnostics = woken(error, "diag")
    found = {
        f"diag.{name}": woken(diagnostics, name)
        for name in ("severity_nonlocalized", "severity", *_FIELDS_OF_DIAGNOSTICS)
    }
    severity = found.pop("diag.severity_nonlocalized") or found["diag.severity"]
    return {
        "sqlstate": woken(error, "sqlstate") or woken(error, "pgcode"),
        "attrs": _attrs(None, **{**found, "diag.severity": severity}),
    }


def _asyncpg(error: BaseException) -> dict[str, Any]:
    detail = member(error, "detail")
    shown = isinstance(detail, str) and not detail.startswith(_ROW_DETAIL)
    return {
        "sqlstate": member(error, "sqlstate"),
        "attrs": _attrs(
            error,
            *_FIELDS_OF_DIAGNOSTICS,
            "severity",
            "hint",
            detail=detail if shown else None,
        ),
    }


def _mysql(error: BaseException) -> dict[str, Any]:
    first = error.args[0] if error.args else None
    number = member(error, "errno")
    return {
        "code": number if number is not None else first if isinstance(first, int) else None,
        "sqlstate": member(error, "sqlstate"),
    }


def _odbc(error: BaseException) -> dict[str, Any]:
    first = error.args[0] if error.args else None
    return {"sqlstate": first if isinstance(first, str) and len(first) == 5 else None}


def _pymssql(error: BaseException) -> dict[str, Any]:
    first = error.args[0] if error.args else None
    nested = isinstance(first, tuple) and bool(first)
    number = first[0] if isinstance(first, tuple) and first else first
    if not isinstance(number, int):
        number = member(error, "number")
    return {
        "code": number if isinstance(number, int) else None,
        "attrs": _attrs(error, "severity", "state", args_nested=nested or None),
    }


def _mssql_python(error: BaseException) -> dict[str, Any]:
    return {"attrs": _attrs(error, "driver_error", "ddbc_error")}


def _pytds(error: BaseException) -> dict[str, Any]:
    number = member(error, "number")
    return {
        "code": number if isinstance(number, int) and number else None,
        "attrs": _attrs(error, "severity", "state", "number") if number else {},
    }


def _oracle(error: BaseException) -> dict[str, Any]:
    held = error.args[0] if error.args else None
    code = member(held, "code")
    return {
        "code": code if isinstance(code, int) else None,
        "attrs": _attrs(held, "full_code", "isrecoverable", "is_session_dead", "offset"),
    }


def _sqlite(error: BaseException) -> dict[str, Any]:
    return {
        "code": member(error, "sqlite_errorcode"),
        "attrs": _attrs(error, "sqlite_errorname"),
    }


def _mongodb(error: BaseException) -> dict[str, Any]:
    labels = member(error, "_error_labels")
    return {
        "code": woken(error, "code"),
        "attrs": _attrs(
            None,
            error_labels=sorted(map(str, labels)) if labels else None,
            details=woken(error, "details") or None,
            timeout=woken(error, "timeout") or None,
        ),
    }


def _redis(error: BaseException) -> dict[str, Any]:
    return {"attrs": _attrs(error, "status_code")}


def _cassandra(error: BaseException) -> dict[str, Any]:
    hosts = member(error, "errors")
    said = None
    if isinstance(hosts, Mapping):
        said = {str(host): _said(one) for host, one in list(hosts.items())[:_MOST_HOSTS]}
    return {
        "attrs": _attrs(
            error,
            "write_type",
            "consistency",
            "required_replicas",
            "alive_replicas",
            "required_responses",
            "received_responses",
            errors=said or None,
        )
    }


def _said(one: Any) -> str:
    return f"{type(one).__name__}: {text_of(one)}" if isinstance(one, BaseException) else str(one)


def _neo4j(error: BaseException) -> dict[str, Any]:
    return {
        "code": member(error, "_neo4j_code"),
        "attrs": _attrs(
            error, message=member(error, "_message"), gql_status=member(error, "_gql_status")
        ),
    }


def _clickhouse(error: BaseException) -> dict[str, Any]:
    return {"code": member(error, "code"), "attrs": _attrs(error, "name")}


def _snowflake(error: BaseException) -> dict[str, Any]:
    number = member(error, "errno")
    return {
        "code": number,
        "sqlstate": member(error, "sqlstate"),
        "attrs": _attrs(error, "sfqid", errno=number),
    }


def _sqlalchemy(error: BaseException) -> dict[str, Any]:
    """Its `code` is the key of a page of its documentation; an emulated driver's has states."""
    cause = member(error, "orig")
    code = member(error, "code")
    return {
        "code": code if isinstance(code, str) else None,
        "sqlstate": member(error, "sqlstate") or member(error, "pgcode"),
        "attrs": _attrs(error, "connection_invalidated"),
        "cause": cause if isinstance(cause, BaseException) else None,
    }


_READERS: dict[str, Callable[[BaseException], dict[str, Any]]] = {
    "psycopg": _psycopg,
    "psycopg_pool": _psycopg,
    "psycopg2": _psycopg,
    "asyncpg": _asyncpg,
    "pymysql": _mysql,
    "aiomysql": _mysql,
    "asyncmy": _mysql,
    "MySQLdb": _mysql,
    "mysql": _mysql,
    "mariadb": _mysql,
    "pyodbc": _odbc,
    "pymssql": _pymssql,
    "_mssql": _pymssql,
    "mssql_python": _mssql_python,
    "pytds": _pytds,
    "oracledb": _oracle,
    "cx_Oracle": _oracle,
    "sqlite3": _sqlite,
    "pymongo": _mongodb,
    "redis": _redis,
    "valkey": _redis,
    "cassandra": _cassandra,
    "neo4j": _neo4j,
    "clickhouse_connect": _clickhouse,
    "clickhouse_driver": _clickhouse,
    "snowflake": _snowflake,
    "sqlalchemy": _sqlalchemy,
}
"""Top-level package of a class to what reads its exceptions."""
