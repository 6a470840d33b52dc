"""MongoDB: labels first, then the class, then the number.

A label says what the server knows about the transaction; a write concern error is about a write
that was done; only then the number counts. Bulk errors carry 65 and hide the numbers of their
members.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import structs

from sidecar.envelope import transport
from sidecar.envelope.databases.kinds import (
    UNKNOWN,
    Told,
    argument,
    broken,
    by_class,
    by_word,
    dead_handle,
    denied,
    final,
    mistaken,
    number,
    own_limit,
    phrases,
    says,
    text_of,
    throttled,
    undone,
    unwell,
)
from sidecar.envelope.databases.mongodb_numbers import (
    ATLAS,
    NAMES,
    NUMBERS,
    THROTTLED_BY_COSMOS,
)
from sidecar.envelope.meaning import Meaning
from sidecar.envelope.model import Verdict
from sidecar.envelope.raised import Raised

_BULK = 65
# Write concerns that no replica set of this shape can meet.
_UNMEETABLE = frozenset({76, 79, 100})

_CLASSES = by_word(
    (own_limit("our own pool is busy", "pool_timeout"), "WaitQueueTimeoutError"),
    (unwell("connected, and no answer in time", "read_timeout"), "NetworkTimeout"),
    (mistaken("an address that is none", "invalid_url"), "InvalidURI"),
    (mistaken("refused in the driver", "client_error"),
     """
      ConfigurationError InvalidName InvalidOperation CollectionInvalid DocumentTooLarge
      InvalidDocument InvalidId InvalidStringData InvalidBSON BSONError FileExists NoFile
      """),
    (unwell("an answer that is no answer of MongoDB's", "invalid_upstream_response"),
     "ProtocolError"),
)  # fmt: skip
# The driver raises these for several troubles; the text or a cause tells which.
_VAGUE = by_word(
    (unwell("no server that fits was found in time", "connection_error"),
     "ServerSelectionTimeoutError"),
    (unwell("the server is not the primary, or goes down", "connection_reset"), "NotPrimaryError"),
    (unwell("the connection was lost: the work may have been done", "connection_reset"),
     "AutoReconnect"),
    (unwell("no connection, and nothing tells why", "connection_error"), "ConnectionFailure"),
)  # fmt: skip
_TEXTS = phrases(
    (dead_handle("the client was closed before the call", "connection_closed"),
     "cannot use mongoclient after close", "client has been closed"),
)  # fmt: skip
# Atlas has one number for whatever its proxies refuse.
_ATLAS = phrases(
    (denied("Atlas: not let in, or not allowed to"), "bad auth", "authentication failed",
     "is not allowed to do action", "not authorized"),
)  # fmt: skip
_SELECTION = phrases(
    (unwell("no connection in time", "connect_timeout"), "timed out (configured timeouts"),
)  # fmt: skip

_RETRY_AFTER_MS = re.compile(r"RetryAfterMs=(\d{1,9})")
_MOST_MEMBERS = 64


def told(raised: Raised) -> Told | None:
    """What one exception of a driver for MongoDB tells, or None."""
    text = text_of(argument(raised, 0)) or raised.message
    labels, details = _labels(raised), _details(raised)
    found = _without_labels(raised, details, text)
    if "UnknownTransactionCommitResult" in labels:
        unsure = broken("nobody knows whether it was committed: only the commit may be sent again")
        return _with(found, unsure, raised, text)
    if "SystemOverloadedError" in labels:
        wait = number(details.get("baseBackoffMS"))
        busy = throttled(
            "the server sheds load", "overloaded", None if wait is None else wait / 1000
        )
        return _with(found, busy, raised, text)
    if found is not None and "TransientTransactionError" in labels:
        if found.meaning.verdict is not Verdict.FAILURE:
            return _with(found, undone("the transaction was rolled back"), raised, text)
    elif found is not None and found.meaning is UNKNOWN and _says_retry(labels):
        return _with(found, unwell("the server says that a retry may help"), raised, text)
    return found


def _says_retry(labels: frozenset[str]) -> bool:
    return not labels.isdisjoint({"RetryableWriteError", "RetryableError", "RetryableReadError"})


def _with(found: Told | None, meaning: Meaning, raised: Raised, text: str) -> Told:
    """The same code, another meaning."""
    if found is None:
        signal = transport.of_chain(raised)
        return Told(meaning=meaning, code=signal.meaning.code if signal else None, text=text)
    code = meaning.code or (None if found.code else found.meaning.code)
    return structs.replace(found, meaning=structs.replace(meaning, code=code), vague=False)


def _without_labels(raised: Raised, details: Mapping[str, Any], text: str) -> Told | None:
    named = by_class(_CLASSES, raised)
    if named is not None:
        return Told(meaning=says(_TEXTS, text) or named[1], text=text)
    own = _number(raised, details)
    if own is None:
        return _of_connection(raised, text)
    if by_class({"WriteConcernError": UNKNOWN}, raised) or _only_concerns(details):
        if own in _UNMEETABLE:
            return Told(
                meaning=final("no replica set of this shape can meet it"), code=str(own), text=text
            )
        return Told(
            meaning=broken("written, and nobody knows how far it was replicated"),
            code=str(own),
            text=text,
        )
    meaning = NUMBERS.get(own, UNKNOWN)
    if own == ATLAS:
        meaning = says(_ATLAS, text) or meaning
    if own == THROTTLED_BY_COSMOS:
        asked = _RETRY_AFTER_MS.search(text[:2048])
        wait = None if asked is None else int(asked[1]) / 1000
        meaning = throttled("Cosmos DB: the request units are spent for now", wait=wait)
    return Told(meaning=meaning, code=str(own), text=text)


def _of_connection(raised: Raised, text: str) -> Told | None:
    named = by_class(_VAGUE, raised)
    if named is None:
        return None
    signal = transport.of_chain(raised)
    if signal is not None and signal.rank > 1:
        return Told(meaning=signal.meaning, text=text)
    if named[0] == "ServerSelectionTimeoutError":
        return Told(meaning=says(_SELECTION, text) or named[1], text=text)
    return Told(meaning=named[1], text=text)


def _labels(raised: Raised) -> frozenset[str]:
    held = raised.attrs.get("error_labels")
    told_ = held if isinstance(held, list | tuple) else ()
    inner = _details(raised).get("errorLabels")
    more = inner if isinstance(inner, list | tuple) else ()
    return frozenset(label for label in (*told_[:64], *more[:64]) if isinstance(label, str))


def _details(raised: Raised) -> Mapping[str, Any]:
    details = raised.attrs.get("details")
    if not isinstance(details, Mapping):
        details = raised.body
    return details if isinstance(details, Mapping) else {}


def _number(raised: Raised, details: Mapping[str, Any]) -> int | None:
    """The number of the failure itself; of a bulk the first member's."""
    own = number(raised.code)
    if own is None and isinstance(raised.code, str):
        own = NAMES.get(raised.code)
    if own is None:
        own = number(details.get("code"))
    if own is None and isinstance(details.get("codeName"), str):
        own = NAMES.get(details["codeName"])
    if own in {_BULK, None}:
        for member in _members(details):
            inner = number(member.get("code"))
            if inner is not None:
                return inner
    return own


def _members(details: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in ("error", "writeErrors", "writeConcernErrors", "writeConcernError"):
        held = details.get(name)
        if isinstance(held, Mapping):
            held = [held] if "code" in held else list(held.values())[:_MOST_MEMBERS]
        for member in held[:_MOST_MEMBERS] if isinstance(held, list | tuple) else ():
            if isinstance(member, Mapping):
                yield member


def _only_concerns(details: Mapping[str, Any]) -> bool:
    return not details.get("writeErrors") and bool(details.get("writeConcernErrors"))
