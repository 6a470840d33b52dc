"""From what a database driver raised to an envelope and a verdict.

The key is (vendor, number), never the number: 1205 is a deadlock in one server and a lock wait in
another. The class of the exception is asked last: drivers disagree about it.

A chain of causes is walked from the outside to the first link that has a code; what a wrapper or a
driver says in its own name counts only if nothing below says more. A COMMIT whose answer was lost
is never retryable, whatever lost it: nobody knows what the server did.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import structs

from sidecar.envelope import transport
from sidecar.envelope.databases import READERS, dbapi, odbc, wording, wrappers
from sidecar.envelope.databases.kinds import UNKNOWN, Told
from sidecar.envelope.databases.vendors import (
    vendor_behind_odbc,
    vendor_named,
    vendor_of_class,
    vendor_of_driver,
    vendor_of_shape,
)
from sidecar.envelope.meaning import Meaning, classified
from sidecar.envelope.model import Classified, ErrorClass, Source, Verdict
from sidecar.envelope.raised import DEEPEST, Raised

_UNKNOWN = structs.replace(UNKNOWN, rule="nothing known: permanent, with what was raised kept")
_SURE = 3
"""The rank of a signal of the transport that leaves no doubt."""

_NAMELESS = frozenset({"Exception", "Error"})
"""What a report gives that knows no class."""

_GRAVITY = {
    Verdict.FAILURE: 4,
    Verdict.THROTTLE: 3,
    Verdict.ALIVE: 2,
    Verdict.NEUTRAL: 1,
    Verdict.SUCCESS: 0,
}


class _Found(msgspec.Struct, frozen=True):
    """What was found out about an exception, and whose it is."""

    told: Told
    server: str | None
    known: bool


def classify(
    raised: Raised,
    *,
    vendor: str | None = None,
    driver: str | None = None,
    correlation_id: str = "",
    now: float = 0.0,
) -> Classified:
    """Classify what a database call raised. Never raises.

    Args:
        raised: the exception.
        vendor: `postgresql`, `mysql`, …; None to tell by driver and class.
        driver: `psycopg`, `sqlalchemy+asyncpg`, …; None to tell by class.
        correlation_id: goes into the envelope.
        now: when it was seen, seconds since the epoch.
    """
    del now
    try:
        found = _found(raised, vendor_named(vendor) or vendor_of_driver(driver), DEEPEST)
    except Exception as error:  # noqa: BLE001 - a fault in a table must not cost a call
        found = _fault(raised, error)
    told, meaning = found.told, found.told.meaning
    phase = next((link.phase for link in raised.chain() if link.phase), None)
    if phase == "commit":
        meaning = _in_commit(meaning)
    what = told.code or meaning.code or raised.name
    if not meaning.rule.startswith("fault"):
        rule = f"{found.server or 'database'}: {what[:80]}: {meaning.rule}"
        meaning = structs.replace(meaning, rule=rule)
    return classified(
        raised,
        meaning,
        source=Source.DATABASE,
        code=told.code,
        message=wording.plain(told.text) or told.meaning.rule,
        correlation_id=correlation_id,
    )


def _fault(raised: Raised, error: Exception) -> _Found:
    rule = f"fault in classification: {type(error).__name__}"
    meaning = structs.replace(UNKNOWN, verdict=Verdict.NEUTRAL, rule=rule)
    return _Found(Told(meaning=meaning, code=None, text=raised.message), None, known=False)


def driver_told(raised: Raised) -> tuple[Meaning, str | None, str] | None:
    """What a driver's exception means, wherever it turned up: its meaning, code and text.

    None if it is of no driver's class, or says nothing that is known.
    """
    if vendor_of_class(raised) is None:
        return None
    found = _found(raised, None, DEEPEST)
    if not found.known:
        return None
    meaning = found.told.meaning
    if raised.phase == "commit":
        meaning = _in_commit(meaning)
    return meaning, found.told.code, wording.plain(found.told.text) or meaning.rule


def _in_commit(meaning: Meaning) -> Meaning:
    """A COMMIT that was not answered may have been done: repeating is no way out."""
    if meaning.class_ is ErrorClass.TRANSIENT and meaning.verdict is not Verdict.ALIVE:
        why = f"lost in COMMIT, whose outcome nobody knows: {meaning.rule}"
        return structs.replace(meaning, retryable=False, wait=None, rule=why)
    return meaning


def _found(raised: Raised, server: str | None, deep: int) -> _Found:
    if raised.exceptions and deep > 0:
        members = (_found(member, server, deep - 1) for member in raised.exceptions)
        return max(members, key=_gravity)
    links = tuple(_links(raised))
    server = _server(links, server)
    told = _told(links, server)
    if told is not None:
        return _Found(told, server, known=True)
    text = next((link.message for link in links if link.message), "")
    return _Found(Told(meaning=_UNKNOWN, code=_code(links), text=text), server, known=False)


def _gravity(found: _Found) -> tuple[bool, int, bool]:
    meaning = found.told.meaning
    return found.known, _GRAVITY[meaning.verdict], not meaning.retryable


def _links(raised: Raised) -> Iterator[Raised]:
    """The links of a chain, the driver's own text in each; behind a wrapper what it wraps."""
    link: Raised | None = raised
    for _ in range(DEEPEST):
        if link is None:
            return
        yield wrappers.plain(link)
        link = wrappers.unwrapped(link) if wrappers.is_wrapper(link) else link.cause


def _server(links: tuple[Raised, ...], named: str | None) -> str | None:
    """The vendor whose numbers these are: by a driver's class, by name, by the shape of a code."""
    for link in links:
        server = vendor_of_class(link) or wrappers.vendor_of_dialect(link)
        if server is not None:
            return server
    if named is not None:
        return named
    for link in links:
        if odbc.is_odbc(link):
            return vendor_behind_odbc(odbc.text(link))
    return next(filter(None, map(vendor_of_shape, links)), None)


def _told(links: tuple[Raised, ...], server: str | None) -> Told | None:
    """What the first link with a code tells, else vaguer ones, the transport, the classes."""
    vague: Told | None = None
    for link in links:
        told = _of_link(link, server)
        if told is not None and not told.vague:
            return told
        vague = vague or told
    inner = next((link for link in links if not wrappers.is_wrapper(link)), links[0])
    signal = transport.of_chain(inner)
    if signal is not None and (signal.rank == _SURE or (vague is None and signal.rank > 0)):
        return Told(meaning=signal.meaning, text=signal.link.message)
    if vague is not None:
        return vague
    told = next(filter(None, (dbapi.told(link, server) for link in reversed(links))), None)
    if told is None and signal is not None:
        told = Told(meaning=signal.meaning, text=signal.link.message)
    return told


def _of_link(link: Raised, server: str | None) -> Told | None:
    if wrappers.is_wrapper(link):
        return wrappers.told(link)
    own = vendor_of_class(link)
    reader = READERS.get(own or server or "")
    if reader is None:
        return dbapi.by_state(link)
    told = reader(link if own or not _is_builtin(link) else _text_only(link))
    return told or dbapi.by_state(link)


def _is_builtin(link: Raised) -> bool:
    """A class of Python's own: its numbers are the operating system's, or nobody's."""
    return "OSError" in link.names or ("." not in link.type and link.type not in _NAMELESS)


def _text_only(link: Raised) -> Raised:
    return structs.replace(link, args=(), attrs={}, errno=None)


def _code(links: tuple[Raised, ...]) -> str | None:
    """A code that nobody knows, kept: the first that is one."""
    for link in links:
        if wrappers.is_wrapper(link):
            continue
        if link.code not in {None, ""} or link.sqlstate:
            return str(link.code or link.sqlstate)
    return None
