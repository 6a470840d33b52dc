"""What SQLAlchemy, Django and pools put around a driver's exception, and what is their own.

SQLAlchemy's `code` is the key of a page of its documentation, Django keeps only the text: what
counts is what they wrap. Where a report has lost that, SQLAlchemy's text still begins with its
class.
"""

from __future__ import annotations

import re

from msgspec import structs

from sidecar.envelope.databases.kinds import (
    Told,
    by_word,
    dead_handle,
    final,
    mistaken,
    own_limit,
    phrases,
    says,
    undone,
)
from sidecar.envelope.databases.vendors import vendor_named
from sidecar.envelope.raised import Raised

_OWN = {
    f"{module}.{name}": meaning
    for module, meanings in {
        "sqlalchemy.exc": by_word(
            (own_limit("our own pool is busy", "pool_timeout"), "TimeoutError"),
            (final("roll back first: what failed came before", "pending_rollback"),
             "PendingRollbackError"),
            (mistaken("refused before it was sent", "client_error"),
             """
              ArgumentError CompileError UnsupportedCompilationError InvalidRequestError
              IdentifierError NoReferenceError NoSuchTableError NoSuchColumnError NoSuchModuleError
              UnboundExecutionError AmbiguousForeignKeysError ObjectNotExecutableError
              MissingGreenlet AwaitRequired
              """),
            (mistaken("more or fewer rows than one"), "NoResultFound MultipleResultsFound"),
            (dead_handle("the handle was closed before the call", "connection_closed"),
             "ResourceClosedError"),
        ),
        "sqlalchemy.orm.exc": by_word(
            (undone("the row changed since it was read", "StaleDataError"), "StaleDataError"),
            (mistaken("refused before it was sent", "client_error"),
             "UnmappedError FlushError DetachedInstanceError ObjectDeletedError"),
        ),
        "django.db.transaction": by_word(
            (final("leave the atomic block first: what failed came before", "pending_rollback"),
             "TransactionManagementError"),
        ),
        "django.core.exceptions": by_word(
            (mistaken("no such row, or more than one"),
             "ObjectDoesNotExist MultipleObjectsReturned"),
            (mistaken("refused before it was sent", "client_error"),
             "ValidationError FieldError FieldDoesNotExist SynchronousOnlyOperation"),
        ),
        "django.db.models.deletion": by_word(
            (mistaken("other rows depend on it"), "ProtectedError RestrictedError"),
        ),
    }.items()
    for name, meaning in meanings.items()
}  # fmt: skip

_WRAPPERS = ("sqlalchemy", "django", "peewee", "tortoise", "flask_sqlalchemy", "dbutils")
_CLOSED = frozenset({"sqlalchemy.exc.ResourceClosedError", "sqlalchemy.exc.InvalidRequestError"})
_TEXTS = phrases(
    (dead_handle("the handle was closed before the call", "connection_closed"),
     "this connection is closed", "connection already closed", "the connection is closed"),
    (mistaken("the result has no rows, or is used up", "client_error"), "result object"),
)  # fmt: skip

# `(psycopg2.errors.DeadlockDetected) deadlock detected`
_WRITTEN = re.compile(r"\((?:<class ')?([A-Za-z_][\w.]{2,200})(?:'>)?\) ?")
_STATEMENT = "\n[SQL: "
_DIALECTS = "sqlalchemy.dialects."


def is_wrapper(raised: Raised) -> bool:
    """Whether an exception is one that wraps a driver's."""
    return raised.family in _WRAPPERS and not raised.type.startswith(_DIALECTS)


def told(raised: Raised) -> Told | None:
    """What an exception of a wrapper's own tells, or None: it is what it wraps."""
    for name in raised.names:
        if name in _OWN:
            meaning = _OWN[name]
            if name in _CLOSED:
                meaning = says(_TEXTS, raised.message) or meaning
            code = None if meaning.code else raised.name
            return Told(meaning=meaning, code=code, text=raised.message)
    return None


def unwrapped(raised: Raised) -> Raised | None:
    """What a wrapper wraps: its cause, or what its text says of it; None if it wraps nothing."""
    if raised.cause is not None:
        return raised.cause
    text = raised.message or next((one for one in raised.args if isinstance(one, str)), "")
    found = _WRITTEN.match(text)
    if found is None or "." not in found[1]:
        return None
    said = text[found.end() :].partition(_STATEMENT)[0]
    return Raised(type=found[1], message=said, args=(said,), phase=raised.phase)


def vendor_of_dialect(raised: Raised) -> str | None:
    """The vendor whose dialect of SQLAlchemy emulates a driver here."""
    for name in raised.names:
        if name.startswith(_DIALECTS):
            return vendor_named(name.split(".", 3)[2])
    return None


def plain(raised: Raised) -> Raised:
    """An emulated exception with the text of the driver's own: `<class '…'>: text`."""
    text = raised.message
    mark = "'>: "
    if not text.startswith("<class '") or mark not in text[:256]:
        return raised
    said = text.partition(mark)[2]
    return structs.replace(raised, message=said, args=(said, *raised.args[1:]))
