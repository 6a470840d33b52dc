"""What the states of the SQL standard and of ODBC mean, whoever sends them.

The last resort behind a vendor's own numbers: drivers and ODBC bridges dress numbers in states that
say less, and some say them wrong. PostgreSQL, where the state is the code, has its own table.
"""

from __future__ import annotations

from sidecar.envelope.databases.kinds import (
    broken,
    by_beginning,
    by_word,
    contended,
    dead_handle,
    denied,
    final,
    mistaken,
    undone,
    unwell,
)
from sidecar.envelope.meaning import Meaning

_STATES = by_word(
    # connections
    (unwell("no connection, or lost"), "08"),
    (dead_handle("the connection was not open before the call"), "08003"),
    (broken("nobody knows how the transaction ended"), "08007 40003"),
    # transactions
    (undone("lost against another transaction and was rolled back"), "40"),
    (mistaken("a constraint, found at the end of the transaction"), "40002"),
    (undone("a branch of a distributed transaction was rolled back"), "XA1"),
    (mistaken("out of order in a distributed transaction"), "XAE"),
    (broken("the resource manager failed or may have committed"), "XAE03 XA7 XA8"),
    (undone("a transaction was rolled back"), "25S03"),
    (broken("nobody knows what became of the transaction"), "25S01 25S02"),
    (mistaken("not in this state of the transaction"), "25"),
    (final("a read-only transaction"), "25006"),
    # rights
    (denied("not let in"), "28"),
    (denied("not allowed to"), "42501"),
    # what was asked for
    (mistaken("a dynamic statement does not fit its parameters"), "07"),
    (mistaken("not supported"), "0A HYC00"),
    (mistaken("the number of values or rows does not fit"), "21"),
    (mistaken("the data do not fit"), "22"),
    (mistaken("a constraint"), "23"),
    (mistaken("the cursor is not in this state"), "24"),
    (mistaken("triggered data change"), "27"),
    (mistaken("dependent objects exist"), "2B"),
    (mistaken("syntax, names or access"), "37 42 S0"),
    (mistaken("not within the view"), "44"),
    (mistaken("raised by the application"), "45"),
    (mistaken("no rows where one was needed"), "02"),
    (mistaken("a program limit"), "54"),
    (final("no such database"), "3D"),
    (mistaken("no such schema"), "3F"),
    # ODBC
    (unwell("the driver's clock ran out: the work may have been done"), "HYT00 HYT01"),
    (contended("cancelled"), "HY008 HY018 70100"),
    (final("the driver is not set up"), "IM"),
    (final("the driver was called out of order"), "HY010"),
    (mistaken("refused in the driver"), "HY003 HY004 HY009 HY024 HY09 HY10"),
    # resources, of DB2's numbering and of others that borrowed it
    (unwell("out of resources"), "53"),
    (contended("in use"), "55006 55P03"),
    (unwell("the server goes down or comes up"), "57P01 57P02 57P03"),
    (contended("cancelled"), "57014"),
)  # fmt: skip


def meaning_of(state: str) -> Meaning | None:
    """What a state means by itself, or by the class its first characters name."""
    return by_beginning(_STATES, state)
