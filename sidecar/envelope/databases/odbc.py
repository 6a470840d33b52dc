"""How pyodbc writes an error: `[state] [driver]text (native number) (function)`.

The state is the first argument, the vendor's own number stands in parentheses before the name of
the function, and 0 there means that there is none.
"""

from __future__ import annotations

import re

from sidecar.envelope.databases.kinds import argument, number, state, text_of
from sidecar.envelope.raised import Raised

_TAIL = re.compile(r"\((-?\d{1,10})\) \(SQL[A-Za-z]{1,40}\)")
_LAST_NUMBER = re.compile(r"\((-?\d{1,10})\)\s*\Z")
_HEAD = re.compile(r"\s*(?:\[[^\[\]]{1,80}\]\s?){1,6}")
_LONGEST = 16384


def is_odbc(raised: Raised) -> bool:
    """Whether an exception came out of pyodbc, or is written as pyodbc writes."""
    if raised.family in {"pyodbc", "aioodbc"}:
        return True
    first = state(argument(raised, 0)) if isinstance(argument(raised, 0), str) else None
    return first is not None and text_of(argument(raised, 1)).startswith("[")


def is_not_set_up(raised: Raised) -> bool:
    """Whether the manager of drivers did not find the one that was asked for."""
    known = state_of(raised) or ""
    return known.startswith(("01", "IM")) and "[Driver Manager]" in text(raised)[:256]


def state_of(raised: Raised) -> str | None:
    """The SQLSTATE of an exception of pyodbc."""
    return raised.sqlstate or state(argument(raised, 0))


def text(raised: Raised) -> str:
    """The whole text of an exception of pyodbc, head and tail included."""
    return text_of(argument(raised, 1)) or text_of(argument(raised, 0)) or raised.message


def native(raised: Raised) -> int | None:
    """The vendor's own number, 0 where the driver gave none, None where the text has none at all.

    Of several records that were joined the last is the tail of the text; the first is the error.
    """
    whole = text(raised)[:_LONGEST]
    found = _TAIL.search(whole) or _LAST_NUMBER.search(whole)
    return number(found[1]) if found else None


def plain(raised: Raised) -> str:
    """What the server, or the driver, said: without the heads in brackets and the tail."""
    whole = text(raised)[:_LONGEST]
    head = _HEAD.match(whole)
    start = head.end() if head else 0
    tail = _TAIL.search(whole, start)
    return whole[start : tail.start() if tail else len(whole)].strip(" ;\n")
