"""What the databases raise, one file a vendor.

Each reads one exception of its drivers: numbers, states and words are tables of meanings, with a
reason for each row. A new vendor is a file with `told`, a line here and its names in `vendors`.
"""

from __future__ import annotations

from collections.abc import Callable

from sidecar.envelope.databases import (
    cassandra,
    clickhouse,
    mongodb,
    mysql,
    neo4j,
    oracle,
    postgresql,
    redis,
    snowflake,
    sqlite,
    sqlserver,
)
from sidecar.envelope.databases.kinds import Told
from sidecar.envelope.raised import Raised

READERS: dict[str, Callable[[Raised], Told | None]] = {
    "cassandra": cassandra.told,
    "clickhouse": clickhouse.told,
    "mongodb": mongodb.told,
    "mysql": mysql.told,
    "neo4j": neo4j.told,
    "oracle": oracle.told,
    "postgresql": postgresql.told,
    "redis": redis.told,
    "snowflake": snowflake.told,
    "sqlite": sqlite.told,
    "sqlserver": sqlserver.told,
}
"""Vendor to what reads one exception of its drivers."""
