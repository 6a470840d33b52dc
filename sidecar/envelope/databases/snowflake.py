"""Snowflake: the number of six digits is the code; its states mean other things than PostgreSQL's.

57P03 says that no warehouse was chosen, 08001 that a token expired or a password is wrong. The
connector hides a refused login behind its own 250001; the text tells.
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
    by_word,
    contended,
    dead_handle,
    denied,
    final,
    mistaken,
    number,
    phrases,
    renewable,
    says,
    text_of,
    throttled,
    unwell,
)
from sidecar.envelope.meaning import Meaning
from sidecar.envelope.raised import Raised

_NUMBERS = by_number(
    (mistaken("a statement, a name or a value that does not fit"),
     "900..999 1000..3999 90000..99999 100000..199999"),
    (final("a resource monitor has spent its credits: whoever set it can raise it",
           "spend_limit_reached"), "90073"),
    (mistaken("no warehouse is chosen, or the session lacks something"), "605 606 608 609"),
    (contended("waited for a lock, or too many do"), "625 626"),
    (contended("cancelled, or a limit of time"), "604 630 631 638"),
    (broken("the server's own trouble"), "603 300002..300010 370001"),
    (denied("not allowed to"), "3001 3540 3041"),
    (denied("not let in"), "390000..390999 394300..394999 251005 251006"),
    (renewable("the session's token, or the access token, ran out"),
     "390111 390112 390113 390114 390195 390318"),
    (throttled("too many requests"), "290429 390180"),
    # the connector's own
    (unwell("cannot be reached, or no answer"),
     "250001 250003 250005..250007 250028 290000 290408 290500..290599"),
    (dead_handle("the handle was dead before the call"), "250002"),
    (denied("refused over HTTP"), "290401 290403"),
    (final("refused over HTTP"), "290400 290404..290407 290409..290428"),
    (mistaken("refused in the connector"),
     "251001..251004 251007..251999 252000..253999 255000..255999"),
    (broken("the certificate could not be verified"), "250012 254000..254999"),
)  # fmt: skip

_STATES = by_word(
    (mistaken("no warehouse is chosen, or the session lacks something"), "57P03"),
    (contended("cancelled, or a lock that too many wait for"), "57014"),
)

# A refused login, which the connector calls 250001.
_LOGIN = 250001
_LOGINS = phrases(
    (denied("wrong user or password", "390100"), "incorrect username or password"),
    (denied("the token is not valid", "390144"), "jwt token is invalid"),
    (denied("this address is not let in", "390422"), "is not allowed to access snowflake"),
    (denied("not let in", "390101"), "user access disabled", "your user account has been locked",
     "user temporarily locked", "password has expired", "role*is not granted", "mfa*is required"),
)  # fmt: skip

_WRITTEN = re.compile(r"(\d{6}) ?\(([0-9A-Z]{5})\): ?")


def told(raised: Raised) -> Told | None:
    """What one exception of Snowflake's connector tells, or None."""
    text = raised.message or text_of(argument(raised, 0))
    written = _WRITTEN.match(text)
    own = number(raised.code)
    if own is None:
        own = number(raised.attrs.get("errno"))
    if own is None:
        own = raised.errno
    if own is None and written is not None:
        own = int(written[1])
    if own is None or own <= 0:
        return _of_state(raised.sqlstate, text)
    said = text[written.end() :] if written else text
    return Told(meaning=_of_number(own, said, raised), code=f"{own:06}", text=said)


def _of_state(known: str | None, text: str) -> Told | None:
    """The few states that mean something else here than in the standard, or in PostgreSQL."""
    meaning = _STATES.get(known or "")
    return None if meaning is None else Told(meaning=meaning, code=known, text=text)


def _of_number(own: int, said: str, raised: Raised) -> Meaning:
    meaning: Meaning | None = None
    if own == _LOGIN:
        meaning = says(_LOGINS, said)
        signal = transport.of_chain(raised)
        if meaning is None and signal is not None and signal.meaning.code == "tls_failure":
            meaning = signal.meaning
    return meaning or _NUMBERS.get(own) or UNKNOWN
