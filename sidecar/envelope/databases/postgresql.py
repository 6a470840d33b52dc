"""PostgreSQL and what speaks its protocol: the SQLSTATE is the code, where it is not lost.

libpq drops it for every failed login, PgBouncer dresses everything as a protocol violation,
psqlodbc as an unreachable server, and asyncpg puts its own in front of the server's: there the
text tells. Of the states the whole of appendix A of the manual is covered, class by class.
"""

from __future__ import annotations

from msgspec import structs

from sidecar.envelope import transport
from sidecar.envelope.databases import odbc, postgresql_names, sqlstate
from sidecar.envelope.databases.kinds import (
    UNKNOWN,
    Told,
    argument,
    broken,
    by_beginning,
    by_class,
    by_word,
    contended,
    dead_handle,
    denied,
    final,
    mistaken,
    own_limit,
    phrases,
    says,
    state,
    text_of,
    undone,
    unwell,
)
from sidecar.envelope.meaning import Meaning
from sidecar.envelope.raised import Raised

_STATES = by_word(
    (mistaken("no data where some were needed"), "02 P0002"),
    (mistaken("called out of order"), "03 09 0B 0F 0Z 24 2D 3B"),
    (unwell("no connection, or lost"), "08"),
    (broken("nobody knows how the transaction ended"), "08007 40003 XXA00"),
    (mistaken("not supported"), "0A"),
    (mistaken("no such role, or not one that may grant"), "0L 0P"),
    (mistaken("no case applies"), "20"),
    (mistaken("more rows, or values, than fit"), "21 P0003"),
    (mistaken("the data do not fit"), "10 22"),
    (mistaken("a constraint"), "23 27 44 40002"),
    (mistaken("not in this state of the transaction; what failed came before"), "25"),
    (undone("the server closed an idle transaction, which is rolled back"), "25P03"),
    (contended("the transaction took longer than it may; it is rolled back"), "25P04"),
    (final("a read-only transaction, or a hot standby: the same state and text"), "25006"),
    (final("the pooler or the session does not know this name"), "26 34"),
    (denied("not let in"), "28"),
    (mistaken("other objects depend on it"), "2B"),
    (mistaken("a routine did what it may not"), "2F 38 39"),
    (final("no such database"), "3D"),
    (mistaken("no such schema"), "3F"),
    (undone("lost against another transaction and was rolled back"), "40"),
    (mistaken("syntax, or names that do not fit"), "42"),
    (denied("not allowed to"), "42501"),
    (unwell("the server is full: connections, memory or disk"), "53"),
    (mistaken("the query's own appetite: it would fail again"), "53400"),
    (mistaken("a limit of the program: columns, depth, length"), "54"),
    (mistaken("the object is not in this state"), "55"),
    (contended("in use, or locked by another"), "55006 55P03"),
    (contended("an operator intervened"), "57"),
    (contended("cancelled: by a timeout of the server's or by somebody"), "57014"),
    (unwell("the server goes down, crashed, or is starting"), "57P01 57P02 57P03"),
    (dead_handle("psqlodbc: the handle was dead before the call"), "08S01"),
    (final("the database was dropped"), "57P04"),
    (undone("the server closed an idle session"), "57P05"),
    (unwell("an error of the system the server runs on"), "58"),
    (mistaken("a file that the caller named"), "58P01 58P02 58P03"),
    (undone("the snapshot is too old: a new transaction has a new one"), "72"),
    (undone("CockroachDB, long ago: restart the transaction"), "CR000"),
    (broken("the server's configuration"), "F0"),
    (unwell("the foreign server cannot be reached"), "HV00N HV001"),
    (mistaken("raised by the application, or by a routine"), "P0"),
    (final("an assertion does not hold"), "P0004"),
    (broken("an internal error"), "XX000"),
    (broken("corruption: repeating is useless, and the server is sick"), "XX001 XX002"),
)  # fmt: skip

# Neon's proxies speak for a server that is not running, as a server would.
_NEON = (
    (final("the plan has no compute or transfer left", "plan_window_exhausted"),
     "exceeded the * quota. upgrade your plan"),
    (final("somebody has switched the compute off", "55000"), "the endpoint has been disabled"),
)  # fmt: skip

# A state that means something else with these words.
_STATES_THAT_SAY_MORE = {
    "0A000": phrases(
        (undone("the schema changed under a prepared statement"),
         "cached plan", "cached statement"),
    ),
    "XX000": phrases(
        *_NEON,
        (undone("Redshift: serializable isolation violation", "1023"),
         "serializable isolation violation"),
        (undone("a race over the catalogue"), "tuple concurrently updated",
         "tuple concurrently deleted", "tuple already updated by self"),
        (undone("YugabyteDB: lost against another transaction"), "restart read required",
         "conflicts with higher priority transaction", "conflicts with committed transaction",
         "catalog version mismatch", "schema version mismatch", "kconflict",
         "could not complete because of conflict with concurrent transaction"),
        (denied("the pooler knows no such user", "28000"), "tenant or user not found"),
        (unwell("the pooler is full", "53300"), "max clients reached", "maxclientsinsessionmode"),
        (unwell("the pooler has no server for us"), "unable to check out process from the pool"),
    ),
}  # fmt: skip

# States that a driver or a pooler puts in place of the server's, or where there is none.
_MASKS = frozenset({"08P01", "08001", "08003", "08004", "08006", "HY000"})
# Of these, those that say less than any word about the transport.
_SAYS_NOTHING = frozenset({"08001", "08P01", "HY000"})

_TEXTS = phrases(
    *_NEON,
    (denied("wrong password", "28P01"), "password authentication failed", "wrong password",
     "sasl authentication failed", "scram authentication failed", "auth failed"),
    (denied("not let in", "28000"), "no pg_hba.conf entry", "pg_hba.conf rejects",
     "is not permitted to log in", "authentication failed for user", "no such user",
     "certificate authentication failed", "login rejected", "not allowed to connect",
     "is not permitted to connect", "tenant or user not found"),
    (denied("a password is needed and none was given", "missing_credentials"),
     "no password supplied"),
    (denied("not allowed to", "42501"), "permission denied for database"),
    (final("no such database", "3D000"), "no such database", 'database "*" does not exist'),
    (mistaken("not open to connections", "55000"), "is not currently accepting connections"),
    (unwell("no connection is left", "53300"), "too many clients", "too many connections",
     "remaining connection slots", "no more connections allowed", "max clients reached",
     "client_connections exceeded", "user_connections exceeded", "db_connections exceeded"),
    (unwell("the server goes down or comes up", "57P03"), "the database system is starting up",
     "the database system is shutting down", "the database system is in recovery mode",
     "the database system is not"),
    (undone("the server closed an idle transaction", "25P03"), "idle-in-transaction timeout",
     "idle transaction timeout", "idle_transaction_timeout"),
    (undone("the server closed an idle session", "57P05"), "idle-session timeout",
     "client_idle_timeout"),
    (unwell("PgBouncer had no server for this query in time", "query_wait_timeout"),
     "query_wait_timeout"),
    (contended("PgBouncer ended a query that took too long", "query_timeout"), "query timeout",
     "query_timeout", "transaction timeout", "transaction_timeout"),
    (unwell("the login took too long", "connect_timeout"), "client_login_timeout"),
    (unwell("PgBouncer cannot reach its server", "connection_error"), "server_login_retry",
     "server login has been failing", "cannot connect to server", "server conn crashed"),
    (mistaken("a parameter that the pooler does not take"), "unsupported startup parameter"),
)  # fmt: skip

# Where no server has spoken at all.
_CLIENT_TEXTS = phrases(
    (denied("no such role", "28000"), 'role "*" does not exist'),
    (unwell("an administrator ended the connection", "57P01"), "due to administrator command"),
    (unwell("another process of the server crashed", "57P02"), "because of crash of another"),
    (contended("cancelled", "57014"), "canceling statement due to"),
    (broken("TLS is asked for and not to be had: configuration", "tls_failure"),
     "does not support ssl", "rejected ssl upgrade", "ssl was required", "ssl error",
     "does not match host name", "root certificate file", "sslmode value", "no ssl error reported"),
    (unwell("cut in mid-call", "connection_reset"), "server closed the connection unexpectedly",
     "ssl connection has been closed unexpectedly", "eof detected", "could not receive data",
     "could not send data", "lost synchronization", "connection was closed in the middle",
     "unexpected connection_lost", "terminating connection"),
    (unwell("no writable, or no readable, server among the hosts: failover", "connection_error"),
     "session is read-only", "session is not read-only", "server is in hot standby mode",
     "server is not in hot standby mode", "hosts match the target"),
    (unwell("no connection in time", "connect_timeout"), "timeout expired"),
    (unwell("nobody listens on this socket", "connection_refused"), "is the server running"),
    (dead_handle("the handle was dead before the call", "connection_closed"),
     "connection is closed", "connection already closed", "connection is lost",
     "connection has been closed", "connection not open", "no connection to the server",
     "connection lost", "use a closed connection"),
    (final("the pool is closed", "pool_closed"), "pool is closed", "pool is closing",
     "pool has been closed"),
)  # fmt: skip

_CLASSES = by_word(
    (own_limit("our own pool is busy, or its server down: no telling", "pool_timeout"),
     "PoolTimeout TooManyRequests"),
    (final("the pool is closed", "pool_closed"), "PoolClosed"),
    (unwell("no connection in time", "connect_timeout"), "ConnectionTimeout"),
    (unwell("the answer to a cancellation did not come", "timeout"), "CancellationTimeout"),
    (unwell("no server of this kind among the hosts", "connection_error"),
     "TargetServerAttributeNotMatched"),
    (undone("the driver's picture of a type is out of date"), "OutdatedSchemaCacheError"),
    (mistaken("an earlier statement of the pipeline failed", "client_error"), "PipelineAborted"),
)  # fmt: skip


def told(raised: Raised) -> Told | None:
    """What one exception of a driver for PostgreSQL tells, or None."""
    own = raised.sqlstate or state(raised.attrs.get("pgcode")) or state(raised.code)
    text = max(text_of(argument(raised, 0)), raised.message, key=len)
    said = text
    if odbc.is_odbc(raised):
        own, text, said = odbc.state_of(raised), odbc.text(raised), odbc.plain(raised)
    if own is None:
        named = by_class(_CLASSES, raised)
        if named is not None:
            return Told(meaning=named[1], text=said)
        own = postgresql_names.state_of(raised)
    meaning = _behind(own, text, raised)
    if meaning is not None:
        return Told(meaning=meaning, code=own, text=said)
    if own is None:
        return None
    return Told(meaning=_of_state(own, text), code=own, text=said)


def _behind(own: str | None, text: str, raised: Raised) -> Meaning | None:
    """What the text says where the state is none, or one that was put in the server's place."""
    if own is not None and own not in _MASKS:
        return None
    meaning = says(_TEXTS, text)
    if meaning is not None or own in _MASKS - _SAYS_NOTHING:
        return meaning
    meaning = says(_CLIENT_TEXTS, text)
    if meaning is None and own is not None:
        meaning = transport.meaning_of(structs.replace(raised, message=text))
    return meaning


def _of_state(own: str, text: str) -> Meaning:
    if own in _STATES_THAT_SAY_MORE:
        meaning = says(_STATES_THAT_SAY_MORE[own], text)
        if meaning is not None:
            return meaning
    return by_beginning(_STATES, own) or sqlstate.meaning_of(own) or UNKNOWN
