"""Which server an exception is about: told, or known by its driver, its class or its code.

A number means nothing without its server. The class of a driver knows better than a configuration
file; what speaks another server's protocol raises that server's errors, whatever its name.
"""

from __future__ import annotations

import re

from sidecar.envelope.raised import Raised

_NAMES: dict[str, str] = {
    "postgresql": """
     postgres pg pgsql postgresql cockroach cockroachdb crdb yugabyte yugabytedb ysql
     redshift greenplum alloydb neon supabase timescale timescaledb citus pgbouncer pgcat
     supavisor edb enterprisedb materialize questdb cratedb opengauss gaussdb kingbase
     """,
    "mysql": """
     mysql mariadb percona perconaserver galera tidb vitess planetscale singlestore memsql
     oceanbase maxscale proxysql starrocks doris mysqlinnodbcluster innodb
     """,
    "sqlserver": """
     sqlserver mssql azuresql azuresqldatabase azuresqldb sqlazure synapse
     azuresynapse sqldw sqledge fabric microsoftsqlserver tsql
     """,
    "oracle": "oracle oracledb oracledatabase autonomousdatabase",
    "sqlite": "sqlite sqlite3 libsql turso rqlite",
    "mongodb": "mongodb mongo documentdb cosmos cosmosdb cosmosmongo atlas mongodbatlas ferretdb",
    "redis": """
     redis valkey keydb dragonfly dragonflydb elasticache memorydb garnet upstash kvrocks
     rediscluster redissentinel redisstack
     """,
    "cassandra": "cassandra scylla scylladb keyspaces astra astradb dse datastax ycql",
    "clickhouse": "clickhouse clickhousecloud chdb",
    "neo4j": "neo4j aura neo4jaura memgraph",
    "snowflake": "snowflake snowflakedb",
}

_DRIVERS: dict[str, str] = {
    "postgresql": """
     psycopg psycopgpool psycopg2 psycopg2binary psycopg3 asyncpg pg8000 aiopg
     psycopg2cffi pygresql pgdb redshiftconnector psqlodbc psqlpy
     """,
    "mysql": """
     pymysql aiomysql asyncmy mysqlclient mysqldb mysqlconnector mysqlconnectorpython
     mariadbconnector cymysql pymysqlpool
     """,
    "sqlserver": "pymssql mssqlpython pytds pythontds sqlalchemypytds aioodbc msodbcsql freetds",
    "oracle": "oracledb cxoracle",
    "sqlite": "sqlite3 aiosqlite pysqlite pysqlite3 pysqlcipher apsw",
    "mongodb": "pymongo motor beanie mongoengine",
    "redis": """
     redis redispy redisasyncio redisrs aioredis rediscluster valkey valkeypy valkeyglide
     coredis hiredis
     """,
    "cassandra": "cassandra cassandradriver scylladriver acsylla dsedriver",
    "clickhouse": "clickhouseconnect clickhousedriver asynch aioch clickhousesqlalchemy",
    "neo4j": "neo4j neo4jdriver neomodel",
    "snowflake": """
     snowflake snowflakeconnector snowflakeconnectorpython snowflakesqlalchemy
     snowparkpython
     """,
}

# Top-level packages of the drivers' classes.
_FAMILIES: dict[str, str] = {
    family: vendor
    for vendor, families in {
        "postgresql": "psycopg psycopg_pool psycopg2 asyncpg pg8000 aiopg redshift_connector",
        "mysql": "pymysql aiomysql asyncmy MySQLdb _mysql_exceptions mysql mariadb cymysql",
        "sqlserver": "pymssql _mssql mssql_python pytds",
        "oracle": "oracledb cx_Oracle",
        "sqlite": "sqlite3 aiosqlite pysqlite3",
        "mongodb": "pymongo motor bson gridfs",
        "redis": "redis aioredis valkey coredis",
        "cassandra": "cassandra",
        "clickhouse": "clickhouse_connect clickhouse_driver asynch",
        "neo4j": "neo4j",
        "snowflake": "snowflake",
    }.items()
    for family in families.split()
}

_PREFIXES = (
    "amazon", "aurora", "aws", "azure", "rds", "google", "gcp", "cloudsql", "heroku",
)  # fmt: skip
_NOT_LETTERS = re.compile(r"[^a-z0-9]+")
_PARTS = re.compile(r"[+:/ ]+")

# What a code looks like that only one server writes.
_SHAPES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?:ORA|DPY|DPI|TNS)-\d{1,6}\b"), "oracle"),
    (re.compile(r"Neo\.[A-Z]"), "neo4j"),
    (re.compile(r"SQLITE_[A-Z]"), "sqlite"),
    (re.compile(r"[0-9A-Z]{2}P[0-9]{2}\Z|P000[0-9]\Z|XX00[0-2]\Z"), "postgresql"),
)

# How the drivers behind ODBC name themselves at the head of a text.
_BEHIND_ODBC: tuple[tuple[str, str], ...] = (
    ("[freetds]", "sqlserver"),
    ("sql server", "sqlserver"),
    ("[ma-", "mysql"),
    ("[mysql]", "mysql"),
    ("mariadb", "mysql"),
    ("[oracle]", "oracle"),
    ("[snowflake]", "snowflake"),
    ("[sqlite]", "sqlite"),
)


def _known(words: dict[str, str]) -> dict[str, str]:
    return {word: vendor for vendor, held in words.items() for word in held.split()}


_BY_NAME = _known(_NAMES)
_BY_DRIVER = _known(_DRIVERS)


def vendor_named(name: str | None) -> str | None:
    """The vendor whose protocol and numbers a server's name stands for.

    Args:
        name: `postgres`, `Azure SQL`, `aurora-mysql`, `rds_postgres`, …
    """
    if not name:
        return None
    word = _NOT_LETTERS.sub("", name[:64].lower())
    known = _BY_NAME.get(word)
    if known is not None:
        return known
    for prefix in _PREFIXES:
        if word.startswith(prefix) and word[len(prefix) :] in _BY_NAME:
            return _BY_NAME[word[len(prefix) :]]
    return None


def vendor_of_driver(driver: str | None) -> str | None:
    """The vendor a driver talks to; `sqlalchemy+asyncpg` and `mssql+pyodbc` tell by their parts."""
    for part in _PARTS.split(driver[:128].lower()) if driver else ():
        word = _NOT_LETTERS.sub("", part)
        vendor = _BY_DRIVER.get(word) or _BY_NAME.get(word)
        if vendor is not None:
            return vendor
    return None


def vendor_of_class(raised: Raised) -> str | None:
    """The vendor whose driver a class belongs to."""
    for name in raised.names:
        vendor = _FAMILIES.get(name.partition(".")[0]) if "." in name else None
        if vendor is not None:
            return vendor
    return None


def vendor_of_shape(raised: Raised) -> str | None:
    """The vendor that alone writes codes, or heads of texts, of this shape."""
    for value in (raised.code, raised.sqlstate, raised.message[:256]):
        if isinstance(value, str):
            for shape, vendor in _SHAPES:
                if shape.match(value):
                    return vendor
    return None


def vendor_behind_odbc(text: str) -> str:
    """The vendor behind ODBC; PostgreSQL's driver is the one that does not name itself."""
    head = text[:256].lower()
    for mark, vendor in _BEHIND_ODBC:
        if mark in head:
            return vendor
    return "postgresql"
