"""mssql-python keeps neither number nor SQLSTATE: the name of the state and the text are left.

`Driver Error: Serialization failure; DDBC Error: [Microsoft][SQL Server]…`. Where the state says
what happened it is the code; where it is one of those that cover everything, the words stand for
the number. Its refused logins were bare RuntimeErrors until 2026, with the state in front at best.
"""

from __future__ import annotations

import re

from msgspec import structs

from sidecar.envelope.databases import sqlstate
from sidecar.envelope.databases.kinds import (
    UNKNOWN,
    Told,
    mistaken,
    phrases,
    says,
    state,
    text_of,
)
from sidecar.envelope.databases.sqlserver_numbers import NUMBERS
from sidecar.envelope.meaning import Meaning
from sidecar.envelope.raised import Raised

_STATES = {
    name.lower(): known
    for known, name in (
        ("01000", "General warning"),
        ("01002", "Disconnect error"),
        ("07001", "Wrong number of parameters"),
        ("07002", "COUNT field incorrect"),
        ("08001", "Client unable to establish connection"),
        ("08003", "Connection not open"),
        ("08004", "Server rejected the connection"),
        ("08007", "Connection failure during transaction"),
        ("08S01", "Communication link failure"),
        ("21S01", "Insert value list does not match column list"),
        ("21S02", "Degree of derived table does not match column list"),
        ("22001", "String data, right-truncated"),
        ("22002", "Indicator variable required but not supplied"),
        ("22003", "Numeric value out of range"),
        ("22007", "Invalid datetime format"),
        ("22008", "Datetime field overflow"),
        ("22012", "Division by zero"),
        ("22018", "Invalid character value for cast specification"),
        ("22019", "Invalid escape character"),
        ("22025", "Invalid escape sequence"),
        ("22026", "String data, length mismatch"),
        ("23000", "Integrity constraint violation"),
        ("24000", "Invalid cursor state"),
        ("25000", "Invalid transaction state"),
        ("25S01", "Transaction state"),
        ("25S02", "Transaction is still active"),
        ("25S03", "Transaction is rolled back"),
        ("28000", "Invalid authorization specification"),
        ("3D000", "Invalid catalog name"),
        ("3F000", "Invalid schema name"),
        ("40001", "Serialization failure"),
        ("40003", "Statement completion unknown"),
        ("42000", "Syntax error or access violation"),
        ("42S01", "Base table or view already exists"),
        ("42S02", "Base table or view not found"),
        ("42S11", "Index already exists"),
        ("42S12", "Index not found"),
        ("42S21", "Column already exists"),
        ("42S22", "Column not found"),
        ("44000", "WITH CHECK OPTION violation"),
        ("HY000", "General error"),
        ("HY008", "Operation canceled"),
        ("HYC00", "Optional feature not implemented"),
        ("HYT00", "Timeout expired"),
        ("HYT01", "Connection timeout expired"),
        ("IM002", "Data source name not found and no default driver specified"),
        ("IM003", "Specified driver could not be loaded"),
    )
}
# They cover everything from a typing error to a failover.
_SAY_LITTLE = frozenset({"01000", "25000", "42000", "HY000"})


def _numbered(own: int) -> Meaning:
    return structs.replace(NUMBERS[own], code=str(own))


# What the server's own messages begin with, or hold, in English.
_NUMBERS_BY_TEXT = phrases(
    (_numbered(1205), "deadlocked on*chosen as the deadlock victim"),
    (_numbered(3960), "snapshot isolation transaction aborted due to update conflict"),
    (_numbered(41302), "attempted to update a record that has been updated since"),
    (_numbered(41305), "repeatable read validation failure"),
    (_numbered(41325), "serializable validation failure"),
    (_numbered(1222), "lock request time out period exceeded"),
    (_numbered(40501), "the service is currently busy. retry the request after"),
    (_numbered(10928), "limit for the database is*and has been reached"),
    (_numbered(10936), "limit for the elastic pool is*and has been reached"),
    (_numbered(10929), "too busy to support requests greater than"),
    (_numbered(49918), "cannot process request. not enough resources"),
    (_numbered(40613), "is not currently available. please retry the connection later"),
    (_numbered(40197), "the service has encountered an error processing your request"),
    (_numbered(18401), "server is in script upgrade mode"),
    (_numbered(4060), "cannot open database*requested by the login"),
    (_numbered(40615), "cannot open server*requested by the login"),
    (_numbered(18487), "the password of the account has expired"),
    (_numbered(18488), "the password of the account must be changed"),
    (_numbered(18456), "login failed for user"),
    (_numbered(229), "permission was denied on the object"),
    (_numbered(262), "permission denied in database"),
    (_numbered(3906), "because the database is read-only"),
    (_numbered(9002), "the transaction log for database*is full"),
    (_numbered(1105), "could not allocate space for object"),
    (_numbered(6005), "shutdown is in progress"),
    (_numbered(596), "the session is in the kill state"),
    (_numbered(2628), "string or binary data would be truncated in table"),
    (_numbered(8152), "string or binary data would be truncated"),
)  # fmt: skip

_UNREADABLE = "ConnectionStringParseError"
_LIKE_LOGIN = re.compile(r"SQLSTATE:([0-9A-Z]{5}):")
_UNLISTED = re.compile(r"An error occurred with SQLSTATE code: ([0-9A-Z]{5})")
_DDBC = "; DDBC Error: "


def told(raised: Raised, text: str) -> Told | None:
    """What is left of an error of SQL Server that has no number, or None."""
    if raised.name == _UNREADABLE:
        return Told(
            meaning=mistaken("a connection string that cannot be read", "client_error"), text=text
        )
    name = text_of(raised.attrs.get("driver_error"))
    head, mark, rest = text.partition(_DDBC)
    if not name and head.startswith("Driver Error: "):
        name = head.removeprefix("Driver Error: ")
    said = (text_of(raised.attrs.get("ddbc_error")) or rest or text) if mark or name else text
    own = _STATES.get(name.lower()) or _state_in(name) or _state_in(text)
    if own is not None and own not in _SAY_LITTLE:
        return Told(meaning=sqlstate.meaning_of(own) or UNKNOWN, code=own, text=said)
    meaning = says(_NUMBERS_BY_TEXT, said)
    if meaning is not None:
        return Told(meaning=meaning, code=own, text=said)
    if own is None:
        return None
    return Told(meaning=sqlstate.meaning_of(own) or UNKNOWN, code=own, text=said)


def _state_in(text: str) -> str | None:
    found = _LIKE_LOGIN.match(text) or _UNLISTED.search(text[:256])
    return state(found[1]) if found else None
