"""ClickHouse: the number is the code, whatever the HTTP status was.

clickhouse-connect gives it as `code` since 2026 and writes it into the text before; clickhouse-
driver numbers its own network errors like the server's.
"""

from __future__ import annotations

import re

from sidecar.envelope import transport
from sidecar.envelope.databases.clickhouse_numbers import NAMES, NUMBERS
from sidecar.envelope.databases.kinds import (
    UNKNOWN,
    Told,
    argument,
    number,
    text_of,
)
from sidecar.envelope.raised import Raised

_WRITTEN = re.compile(r"(?:\bCode: ?|\bexception, code: ?|\bcode: )(\d{1,4})\b")
_NAMED = re.compile(r"\(([A-Z][A-Z0-9_]{3,60})\)")
_READ = 8192


def told(raised: Raised) -> Told | None:
    """What one exception of a client of ClickHouse tells, or None."""
    text = text_of(argument(raised, 0)) or raised.message
    own = _number(raised, text)
    if own is not None:
        return Told(meaning=NUMBERS.get(own) or UNKNOWN, code=str(own), text=text)
    signal = transport.of_chain(raised)
    return None if signal is None else Told(meaning=signal.meaning, text=text)


def _number(raised: Raised, text: str) -> int | None:
    own = number(raised.code)
    if own is None and isinstance(raised.code, str):
        own = NAMES.get(raised.code)
    if own is not None:
        return own if own > 0 else None
    head = text[:_READ]
    written = _WRITTEN.search(head)
    if written:
        return int(written[1])
    for name in reversed(_NAMED.findall(head)):
        if name in NAMES:
            return NAMES[name]
    return None
