"""SQLite: the extended result code is the code, by its name; the library works in this process.

Python before 3.11 gives no code and some codes are younger than Python's names: then the text
tells, or the primary code, which is the low byte.
"""

from __future__ import annotations

from sidecar.envelope.databases.kinds import (
    UNKNOWN,
    Told,
    argument,
    broken,
    by_beginning,
    by_word,
    contended,
    dead_handle,
    denied,
    final,
    mistaken,
    number,
    own_limit,
    phrases,
    says,
    text_of,
    undone,
)
from sidecar.envelope.meaning import Meaning
from sidecar.envelope.raised import Raised

# https://sqlite.org/rescode.html, primary codes and then the extended ones of each.
_PRIMARY = """
     OK ERROR INTERNAL PERM ABORT BUSY LOCKED NOMEM READONLY INTERRUPT IOERR CORRUPT NOTFOUND FULL
     CANTOPEN PROTOCOL EMPTY SCHEMA TOOBIG CONSTRAINT MISMATCH MISUSE NOLFS AUTH FORMAT RANGE NOTADB
     NOTICE WARNING
     """
_EXTENDED = {
    "ERROR": "MISSING_COLLSEQ RETRY SNAPSHOT RESERVESIZE KEY UNABLE",
    "ABORT": "- ROLLBACK",
    "BUSY": "RECOVERY SNAPSHOT TIMEOUT",
    "LOCKED": "SHAREDCACHE VTAB",
    "READONLY": "RECOVERY CANTLOCK ROLLBACK DBMOVED CANTINIT DIRECTORY",
    "IOERR": """
     READ SHORT_READ WRITE FSYNC DIR_FSYNC TRUNCATE FSTAT UNLOCK RDLOCK DELETE BLOCKED NOMEM
     ACCESS CHECKRESERVEDLOCK LOCK CLOSE DIR_CLOSE SHMOPEN SHMSIZE SHMLOCK SHMMAP SEEK DELETE_NOENT
     MMAP GETTEMPPATH CONVPATH VNODE AUTH BEGIN_ATOMIC COMMIT_ATOMIC ROLLBACK_ATOMIC DATA CORRUPTFS
     IN_PAGE
     """,
    "CORRUPT": "VTAB SEQUENCE INDEX",
    "CANTOPEN": "NOTEMPDIR ISDIR FULLPATH CONVPATH DIRTYWAL SYMLINK",
    "CONSTRAINT": """
     CHECK COMMITHOOK FOREIGNKEY FUNCTION NOTNULL PRIMARYKEY TRIGGER UNIQUE VTAB ROWID
     PINNED
     """,
    "AUTH": "USER",
    "NOTICE": "RECOVER_WAL RECOVER_ROLLBACK RBU",
    "WARNING": "AUTOINDEX",
}


def _codes() -> dict[int, str]:
    named = dict(enumerate(f"SQLITE_{name}" for name in _PRIMARY.split()))
    for primary, names in _EXTENDED.items():
        low = _PRIMARY.split().index(primary)
        for high, name in enumerate(names.split(), start=1):
            named[low | high << 8] = f"SQLITE_{primary}_{name}"
    return named


_NAMES = _codes()

_MEANINGS = by_word(
    (contended("another connection holds the lock"), "SQLITE_BUSY SQLITE_LOCKED SQLITE_PROTOCOL"),
    (undone("somebody wrote after this transaction had read: only a new one helps"),
     "SQLITE_BUSY_SNAPSHOT"),
    (undone("the schema changed, or the transaction was rolled back"),
     "SQLITE_SCHEMA SQLITE_ABORT_ROLLBACK SQLITE_ERROR_RETRY SQLITE_ERROR_SNAPSHOT"),
    (contended("interrupted"), "SQLITE_INTERRUPT"),
    (mistaken("a constraint"), "SQLITE_CONSTRAINT"),
    (mistaken("a statement, or data that do not fit"),
     "SQLITE_ERROR SQLITE_MISMATCH SQLITE_TOOBIG SQLITE_RANGE"),
    (denied("the authorizer forbids it"), "SQLITE_AUTH"),
    (final("the file cannot be written, opened or read as a database"),
     "SQLITE_READONLY SQLITE_CANTOPEN SQLITE_NOTADB SQLITE_PERM SQLITE_FORMAT SQLITE_NOLFS"),
    (final("called out of order"), "SQLITE_MISUSE SQLITE_ABORT SQLITE_NOTFOUND"),
    (broken("the disk is full, or fails, or what is on it is damaged"),
     "SQLITE_CORRUPT SQLITE_FULL SQLITE_IOERR SQLITE_INTERNAL"),
    (own_limit("out of memory in this process"), "SQLITE_NOMEM SQLITE_IOERR_NOMEM"),
)  # fmt: skip

_A_FUNCTION = phrases(
    (final("a function of the application's own raised"), "user-defined function raised",
     "user-defined aggregate*raised"),
)  # fmt: skip

# Without a code: refused in the module, or said by a Python that gives none.
_TEXTS = phrases(
    (dead_handle("the handle was closed before the call", "connection_closed"),
     "closed database", "no active connection", "connection closed"),
    (final("a connection of another thread's", "client_error"), "created in a thread"),
    (contended("another connection holds the lock", "SQLITE_BUSY"), "database is locked"),
    (contended("another statement holds the lock", "SQLITE_LOCKED"), "table is locked",
     "schema is locked"),
    (mistaken("a constraint", "SQLITE_CONSTRAINT_UNIQUE"), "unique constraint failed"),
    (mistaken("a constraint", "SQLITE_CONSTRAINT_NOTNULL"), "not null constraint failed"),
    (mistaken("a constraint", "SQLITE_CONSTRAINT_FOREIGNKEY"), "foreign key constraint failed"),
    (mistaken("a constraint", "SQLITE_CONSTRAINT_CHECK"), "check constraint failed"),
    (mistaken("a constraint", "SQLITE_MISMATCH"), "datatype mismatch"),
    (mistaken("a statement that does not fit", "SQLITE_ERROR"), "no such table", "no such column",
     "syntax error", "already exists", "no such function", "incomplete input"),
    (final("the file cannot be written", "SQLITE_READONLY"), "readonly database"),
    (final("the file cannot be opened", "SQLITE_CANTOPEN"), "unable to open database file"),
    (final("the file is no database", "SQLITE_NOTADB"), "file is not a database",
     "file is encrypted or is not a database"),
    (broken("what is on the disk is damaged", "SQLITE_CORRUPT"), "disk image is malformed"),
    (broken("the disk is full", "SQLITE_FULL"), "database or disk is full"),
    (broken("the disk fails", "SQLITE_IOERR"), "disk i/o error"),
    (contended("interrupted", "SQLITE_INTERRUPT"), "interrupted"),
    (denied("the authorizer forbids it", "SQLITE_AUTH"), "not authorized"),
)  # fmt: skip


def told(raised: Raised) -> Told | None:
    """What one exception of sqlite3 or aiosqlite tells, or None."""
    text = text_of(argument(raised, 0)) or raised.message
    name = _name(raised)
    if name is None:
        meaning = says(_TEXTS, text)
        return None if meaning is None else Told(meaning=meaning, text=text)
    return Told(meaning=_of_name(name, text), code=name, text=text)


def _of_name(name: str, text: str) -> Meaning:
    if name == "SQLITE_ERROR":
        meaning = says(_A_FUNCTION, text)
        if meaning is not None:
            return meaning
    return by_beginning(_MEANINGS, name) or UNKNOWN


def _name(raised: Raised) -> str | None:
    for value in (raised.attrs.get("sqlite_errorname"), raised.code):
        if isinstance(value, str) and value.upper().startswith("SQLITE_"):
            return value.upper()
    code = number(raised.code)
    if code is None:
        code = number(raised.attrs.get("sqlite_errorcode"))
    if code is None or code <= 0:
        return None
    return _NAMES.get(code) or _NAMES.get(code & 0xFF) or f"SQLITE_{code}"
