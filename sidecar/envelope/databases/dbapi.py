"""The classes of the DB-API, asked last: drivers disagree about them.

A deadlock is an OperationalError, an InternalError, a DatabaseError or a ProgrammingError, by
driver. Only where there is no code, no word and no cause does the class say something.
"""

from __future__ import annotations

from sidecar.envelope.databases import sqlstate
from sidecar.envelope.databases.kinds import (
    UNKNOWN,
    Told,
    by_class,
    by_word,
    final,
    mistaken,
    state,
    unwell,
)
from sidecar.envelope.raised import Raised

_CLASSES = by_word(
    (mistaken("a constraint, by the class alone", "IntegrityError"), "IntegrityError"),
    (mistaken("refused in the driver", "client_error"),
     "DataError ProgrammingError NotSupportedError"),
    (final("called out of order", "interface_error"), "InterfaceError"),
    (unwell("no connection, and nothing tells why", "connection_error"), "OperationalError"),
)  # fmt: skip
_IN_PROCESS = frozenset({"sqlite"})
"""Servers that are none: they cannot be out of reach."""


def told(raised: Raised, server: str | None) -> Told | None:
    """What the class of an exception says by itself, or None.

    Args:
        raised: an exception that told nothing better.
        server: the vendor, if known; classes of no driver's are not read.
    """
    named = by_class(_CLASSES, raised)
    if named is None or "." not in raised.type:
        return None
    if named[0] == "OperationalError" and server in _IN_PROCESS:
        return None
    return Told(meaning=named[1], text=raised.message)


def by_state(raised: Raised) -> Told | None:
    """What a state means whose server nobody knows; a number without its server means nothing."""
    own = raised.sqlstate or (state(raised.code) if isinstance(raised.code, str) else None)
    own = own or state(raised.attrs.get("pgcode"))
    if own is None:
        return None
    meaning = sqlstate.meaning_of(own) or UNKNOWN
    return Told(meaning=meaning, code=own, text=raised.message, vague=meaning is UNKNOWN)
