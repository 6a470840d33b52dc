"""Oracle: the number of the server decides, even where the driver folds it into one of its own.

oracledb turns a score of numbers into DPY-4011 and calls all of them recoverable, an internal
error (ORA-00600) among them; `code` keeps what the server said. Its own numbers, DPY-1000 to
DPY-8999, are read only where the server has said nothing.
"""

from __future__ import annotations

import re

from sidecar.envelope import transport
from sidecar.envelope.databases.kinds import (
    UNKNOWN,
    Told,
    argument,
    broken,
    by_number,
    contended,
    dead_handle,
    denied,
    final,
    mistaken,
    number,
    own_limit,
    renewable,
    text_of,
    throttled,
    undone,
    unwell,
)
from sidecar.envelope.meaning import Meaning
from sidecar.envelope.raised import Raised

_SERVER = by_number(
    # the caller's: broad ranges first
    (mistaken("syntax, names, types or values"),
     """
      900..949 951..999 1000..1003 1006 1008 1036 1400..1403 1405..1409 1417..1499 1700..1799
      1801..1899 1901..1914 1918..1921 1935 2000..2048 2050..2098 2200..2288 2303 2327 2329 2335
      2337 2378 2401..2500 3001 4043 4044 4063 4080 4082 4088 4091 4098 6500..6599 12838 12839 12899
      13000..13999 14000..14499 22275 22835 22900..22999 24330..24380 26000..26001 29900..29913
      30926 31000..31099 32001..32099 38101 40400..40699 54000..54099
     """),
    (mistaken("a constraint"), "1 1400 1407 1438 2289..2299 2436..2449 14400 21525"),
    (mistaken("raised by the application"), "20000..20999"),
    # lost against others
    (undone("a deadlock: only the statement is undone, roll the transaction back first"),
     "60 4020 12829"),
    (undone("lost against another transaction, or its snapshot is gone"), "1555 8176 8177"),
    (undone("changed in between: once more"), "4061 4062 4065 4068 8103"),
    (undone("a session that failed over, or was closed as idle: start the transaction again"),
     "2396 2399 25401 25402"),
    (contended("waited for a lock, or would not"), "51 54 1591 2049 4021 14403 30006"),
    (contended("cancelled, or a limit of time"), "40 1013 3111"),
    # the server
    (throttled("a limit of one account's profile"), "2391..2395"),
    (unwell("as many sessions or processes as it takes"), "18..20 12516..12520"),
    (unwell("starting, stopping or not there"),
     """
      1033 1034 1089 1090 1092 1109 1219 12500 12502 12505 12514 12521 12523..12529 12757 16456
      27101
      """),
    (unwell("cannot be reached"),
     """
      3136 12170 12203 12224 12510 12533..12536 12540..12546 12549 12552 12555 12560 12564 12569
      12574 12582 12606 12636 25403 28511 28547 29702
     """),
    (unwell("the connection was lost, or the session ended, in mid-call"),
     """
      22 28 31 45 378 602 603 609 1041 1043 3113 3114 3122 3135 12153 12161 12537 12547 12570 12571
      12583 12592 12608..12612 27146 56600
      """),
    (unwell("out of memory, or a file that cannot be read now"), "376 1115 4030 4031 4036 27102"),
    (broken("nobody knows whether the call was done"), "2053 2054 25404..25409"),
    (broken("an internal error"), "600 700 7445"),
    (broken("full: needs an operator"),
     """
      257 1536 1628..1632 1650..1659 1680..1693 3206 16014 16038 19502 19504 19809 19815 30032 30036
      """),
    (broken("corruption, or a file that is gone"),
     "1110 1113 1116 1122 1157 1578 8102 26040 27072"),
    (dead_handle("not logged on: the handle was dead before the call"), "1012"),
    # rights
    (denied("not let in"),
     "1004 1005 1017 1045 28000..28009 28030..28049 28150 28273 28365 46981"),
    (denied("not allowed to"), "1031 1039 1720 1749 1924 1950 1952 1990 41900"),
    # the rest
    (final("the client's configuration knows no such name"), "12154 12162 12504 12511"),
    (final("open for reading only"), "1456 16000 16001"),
)  # fmt: skip

_DRIVER = by_number(
    (final("the driver was called out of order"), "1000..1999"),
    (mistaken("refused in the driver"), "2000..2999 4000..4999"),
    (mistaken("not supported"), "3000..3999"),
    (broken("an answer that the driver does not understand"), "4035 5000..5999"),
    (unwell("cannot be reached"), "6000..6999"),
    (mistaken("the data do not fit"), "8000..8999"),
    (dead_handle("the handle was dead before the call"), "1001"),
    (final("the pool is closed"), "1002"),
    (renewable("the access token has expired"), "2033"),
    (final("not with this server"), "3010 3015"),
    (final("the client's configuration knows no such name"), "4000 4017 4018 4026 4027"),
    (denied("no credentials were given"), "4001"),
    (own_limit("our own pool is busy"), "4005"),
    (unwell("the database or the network closed the connection"), "4011"),
    (unwell("the driver's clock ran out: the work may have been done"), "4024"),
    (undone("the session was idle for too long"), "4033"),
    (broken("the certificate is not the server's"), "6002 6006 6008 6009"),
)  # fmt: skip
# Numbers of ODPI-C, under the driver in its thick mode.
_LIBRARY = by_number(
    (dead_handle("the handle was dead before the call"), "1010"),
    (unwell("the database or the network closed the connection"), "1080"),
    (unwell("the driver's clock ran out: the work may have been done"), "1067"),
)  # fmt: skip
# They only say that something behind them failed.
_VAGUE = frozenset({"DPY-6005", "DPY-6000", "ORA-00604", "ORA-12801", "ORA-06512", "ORA-12560"})

_WRITTEN = re.compile(r"(ORA|TNS|DPY|DPI)-(\d{1,5})\b")


def told(raised: Raised) -> Told | None:
    """What one exception of a driver for Oracle tells, or None."""
    text = raised.message or text_of(argument(raised, 0))
    found = _code(raised, text)
    if found is None:
        return None
    kind, own = found
    if kind in {"ORA", "TNS"}:
        code = f"ORA-{own:05}"
        return Told(meaning=_SERVER.get(own) or UNKNOWN, code=code, text=text, vague=code in _VAGUE)
    code = f"{kind}-{own:04}"
    meaning: Meaning | None = (_DRIVER if kind == "DPY" else _LIBRARY).get(own)
    if code in _VAGUE and _refused_below(raised):
        # What the operating system said is the better word.
        return None
    return Told(meaning=meaning or UNKNOWN, code=code, text=text, vague=code in _VAGUE)


def _refused_below(raised: Raised) -> bool:
    signal = transport.of_chain(raised)
    return signal is not None and signal.rank > 0


def _code(raised: Raised, text: str) -> tuple[str, int] | None:
    """Prefix and number: the server's where there is one."""
    own = number(raised.code)
    if own:
        return "ORA", own
    for written in (raised.code, raised.attrs.get("full_code"), text[:64]):
        found = _WRITTEN.match(written) if isinstance(written, str) else None
        if found:
            return found[1], int(found[2])
    found = _WRITTEN.search(text[:512])
    return (found[1], int(found[2])) if found else None
