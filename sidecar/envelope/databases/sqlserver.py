"""SQL Server and Azure SQL: the number is the code; the state of an ODBC driver says too little.

Microsoft's driver gives 42000 to snapshot conflicts, lock timeouts, throttling and failover alike,
FreeTDS even to a deadlock, and 01000 to a server that went away. pymssql may show the number of an
earlier failed login, and mssql-python drops the number altogether.
"""

from __future__ import annotations

import re

from msgspec import structs

from sidecar.envelope import transport
from sidecar.envelope.databases import mssql_python, odbc, sqlstate
from sidecar.envelope.databases.kinds import (
    UNKNOWN,
    Told,
    argument,
    broken,
    dead_handle,
    final,
    first_number,
    mistaken,
    number,
    phrases,
    says,
    state,
    text_of,
    unwell,
)
from sidecar.envelope.databases.sqlserver_numbers import APPLICATION, NUMBERS, THAT_SAY_LITTLE
from sidecar.envelope.meaning import Meaning
from sidecar.envelope.raised import Raised

# DB-Library adds its own lines to the server's; where it has none of those, they come first.
_LIBRARY = "DB-Lib error message "
_LIBRARY_NUMBER = re.compile(r"DB-Lib error message (\d{5})")
_LIBRARY_NUMBERS = range(20000, 20100)
_DEAD_PROCESS = 20047
_SERVER_SPOKE = "[SQL Server]"
_SEVERITY = re.compile(r"severity (\d{1,2})")

_TEXTS = phrases(
    (dead_handle("the handle was dead before the call", "connection_closed"),
     "connection is closed", "a closed connection", "connection's been closed",
     "connection has been closed", "not connected to any ms sql server"),
)  # fmt: skip


def told(raised: Raised) -> Told | None:
    """What one exception of a driver for SQL Server tells, or None."""
    if odbc.is_odbc(raised):
        return _of_odbc(raised)
    if raised.is_a("pytds.tds_base.ClosedConnectionError"):
        lost = unwell("the server closed the connection", "connection_reset")
        return Told(meaning=lost, text=raised.message)
    own, text = _number(raised), _text(raised)
    if own is not None:
        return _of_number(own, text, raised)
    meaning = says(_TEXTS, text)
    if meaning is not None:
        return Told(meaning=meaning, text=text)
    named = mssql_python.told(raised, text)
    if named is not None:
        return named
    known = raised.sqlstate or (state(raised.code) if isinstance(raised.code, str) else None)
    return None if known is None else _of_state(known, text)


def _of_odbc(raised: Raised) -> Told | None:
    """An ODBC driver: the server's number where it spoke, else the driver's state."""
    own, known, text = odbc.native(raised), odbc.state_of(raised), odbc.plain(raised)
    if known is None:
        meaning = says(_TEXTS, text)
        return None if meaning is None else Told(meaning=meaning, text=text)
    if odbc.is_not_set_up(raised):
        return Told(meaning=final("the driver is not set up"), code=known, text=text)
    if _SERVER_SPOKE not in odbc.text(raised)[:512]:
        # The number is the operating system's: it names the failure, and means nothing of its own.
        if "SSL Provider" in text:
            return Told(meaning=transport.MEANINGS["tls_failure"], code=known, text=text)
        told_ = _of_state(known, text)
        return structs.replace(told_, code=str(own)) if own is not None and own > 0 else told_
    if own is None or (own == 0 and says(THAT_SAY_LITTLE[0], text) is None):
        return _of_state(known, text)
    found = _of_number(own, text, raised)
    if found.meaning is UNKNOWN and known != "HY000":
        return structs.replace(_of_state(known, text), code=str(own))
    return found


def _of_state(known: str, text: str) -> Told:
    if known in {"01000", "01002"}:
        return Told(
            meaning=unwell("FreeTDS reports a lost server as a warning"), code=known, text=text
        )
    return Told(meaning=sqlstate.meaning_of(known) or UNKNOWN, code=known, text=text)


def _of_number(own: int, text: str, raised: Raised) -> Told:
    if text.startswith(_LIBRARY):
        # No word of the server: a number of the server's is one that an earlier login left behind.
        line = _LIBRARY_NUMBER.match(text)
        if own == _DEAD_PROCESS and line is not None:
            own = int(line[1])
        if own not in _LIBRARY_NUMBERS:
            stale = unwell("a stale number: the server said nothing", "connection_error")
            return Told(meaning=stale, code=str(own), text=text)
    meaning = says(THAT_SAY_LITTLE.get(own, ()), text) or NUMBERS.get(own)
    if own == _DEAD_PROCESS:
        meaning = dead_handle("the handle was dead before the call")
    if meaning is None and own >= APPLICATION:
        meaning = mistaken("raised by the application")
    if meaning is None and isinstance(raised.sqlstate, str) and not odbc.is_odbc(raised):
        meaning = sqlstate.meaning_of(raised.sqlstate)
    return Told(
        meaning=meaning or _of_severity(text, raised), code=str(own), text=_without_library(text)
    )


def _of_severity(text: str, raised: Raised) -> Meaning:
    """From 17 on a message is about the server, from 20 on it ends the connection."""
    severity = number(raised.attrs.get("severity"))
    if severity is None:
        found = _SEVERITY.search(text)
        severity = int(found[1]) if found else 0
    if severity >= 17:
        return broken(f"an unknown number at severity {severity}: the server's own trouble")
    return UNKNOWN


def _number(raised: Raised) -> int | None:
    own = first_number(raised.code, raised.attrs.get("number"), argument(_inner(raised), 0))
    if own is None and raised.family == "pytds":
        return None
    return own


def _inner(raised: Raised) -> Raised:
    """Pymssql nests the arguments of a failed login once more."""
    nested = argument(raised, 0)
    if isinstance(nested, list | tuple):
        return structs.replace(raised, args=tuple(nested))
    return raised


def _text(raised: Raised) -> str:
    inner = _inner(raised)
    return text_of(argument(inner, 1)) or text_of(argument(inner, 0)) or raised.message


def _without_library(text: str) -> str:
    cut = text.find(_LIBRARY)
    return text[:cut] if cut > 0 else text
