"""Redis, Valkey and their kin: the first word of a reply is the code.

redis-py 8 moves a word it knows from the text to `status_code`, older ones drop it and leave the
class, and a word nobody knows stays in the text. What the server says about itself is told by
words, what happened to the connection by texts of the client's.
"""

from __future__ import annotations

import re

from sidecar.envelope import transport
from sidecar.envelope.databases.kinds import (
    UNKNOWN,
    Told,
    argument,
    by_class,
    by_word,
    contended,
    dead_handle,
    denied,
    final,
    mistaken,
    own_limit,
    phrases,
    says,
    text_of,
    undone,
    unwell,
)
from sidecar.envelope.meaning import Meaning
from sidecar.envelope.raised import Raised

_WORDS = by_word(
    (mistaken("a command, a key or an argument that does not fit"),
     """
      ERR WRONGTYPE SYNTAX CROSSSLOT BUSYGROUP NOGROUP NOTBUSY EXECABORT BUSYKEY INVALIDOBJ NOPROTO
      BADARITY DENIED NOADDR NOTFOUND WRONGID DUPLICATE
      """),
    (denied("not let in, or not allowed to"), "NOAUTH WRONGPASS NOPERM"),
    (unwell("starting, or without its primary or its cluster"),
     "LOADING MASTERDOWN CLUSTERDOWN NOREPLICAS NOMASTERLINK NOQUORUM NOGOODSLAVE"),
    (unwell("a replica: written to where only reading is allowed"), "READONLY"),
    (unwell("cannot write: no memory, or no disk to save to"), "OOM MISCONF"),
    (unwell("a script or a function blocks the server"), "BUSY"),
    (undone("the topology moved: follow it"), "MOVED ASK"),
    (contended("a slot moves, a script is not loaded, a client was unblocked"),
     "TRYAGAIN NOSCRIPT UNBLOCKED INPROG"),
    (final("a script that has written cannot be ended"), "UNKILLABLE"),
)  # fmt: skip

# Classes of redis-py by what word they had; it is gone where `status_code` is not there yet.
_CLASSES = {
    "NoPermissionError": "NOPERM",
    "AuthenticationWrongNumberOfArgsError": "ERR",
    "BusyLoadingError": "LOADING",
    "ExecAbortError": "EXECABORT",
    "MasterDownError": "MASTERDOWN",
    "ClusterDownError": "CLUSTERDOWN",
    "ReadOnlyError": "READONLY",
    "NoScriptError": "NOSCRIPT",
    "MovedError": "MOVED",
    "AskError": "ASK",
    "TryAgainError": "TRYAGAIN",
    "ClusterCrossSlotError": "CROSSSLOT",
    "OutOfMemoryError": "OOM",
    "ModuleError": "ERR",
    "NoSuchFieldsetError": "ERR",
}
# Classes that are no reply of a server's.
_CLIENT_CLASSES = by_word(
    (undone("an optimistic lock was lost: read again", "watch_error"), "WatchError"),
    (own_limit("our own pool is busy", "pool_timeout"), "MaxConnectionsError"),
    (final("a lock that is not, or no longer, ours"), "LockError LockNotOwnedError"),
    (mistaken("refused in the client", "client_error"),
     "DataError InvalidPipelineStack CrossSlotTransactionError IncorrectPolicyType"),
    (final("called out of order", "client_error"), "PubSubError"),
    (unwell("no node holds this slot"), "SlotNotCoveredError"),
    (unwell("an answer that is no answer of Redis's", "invalid_upstream_response"),
     "InvalidResponse"),
    (denied("the provider of credentials refused"), "ExternalAuthProviderError AuthorizationError"),
)  # fmt: skip

_CONNECTIONS = by_word(
    (unwell("no answer in time", "timeout"), "TimeoutError"),
    (denied("not let in", "WRONGPASS"), "AuthenticationError"),
    (unwell("no connection, and nothing tells why", "connection_error"),
     "ConnectionError RedisClusterException ClusterError"),
)  # fmt: skip

_REPLIES = phrases(
    (unwell("as many clients as it takes", "max_clients"), "max number of clients"),
    (contended("the script was ended by somebody"), "script killed by user",
     "function killed by user"),
    (denied("a password is needed, or is wrong"), "invalid password",
     "without any password configured", "authentication required"),
    (final("a plan's requests are spent", "quota_exhausted"), "max daily request limit exceeded",
     "max requests limit exceeded", "max monthly request limit exceeded"),
)  # fmt: skip
_HELD = phrases(
    (contended("a lock of the application's is held by another"), "unable to acquire lock"),
)
_TEXTS = phrases(
    (own_limit("our own pool is busy", "pool_timeout"), "no connection available",
     "too many connections"),
    (unwell("no connection in time", "connect_timeout"), "timeout connecting to"),
    (unwell("no answer in time", "read_timeout"), "timeout reading from"),
    (unwell("no end of sending in time", "timeout"), "timeout writing to"),
    (unwell("cut in mid-call", "connection_reset"), "connection closed by server",
     "while reading from", "while writing to", "server closed the connection"),
    (denied("a password is needed", "NOAUTH"), "authentication required"),
    (dead_handle("the handle was dead before the call", "connection_closed"),
     "connection not ready", "connection is closed", "buffer is closed"),
)  # fmt: skip

_WORD = re.compile(r"-?([A-Z][A-Z0-9_]{1,40})(?=[ :]|\Z)")
_ERRNO = re.compile(r"Error (-?\d{1,5}) (?:connecting to|while )")
_PIPELINE = " of pipeline caused error: "


def told(raised: Raised) -> Told | None:
    """What one exception of a client of Redis tells, or None."""
    text = text_of(argument(raised, 0)) or raised.message
    if text.startswith("Command # ") and _PIPELINE in text:
        text = text.partition(_PIPELINE)[2]
    word = _word(raised, text)
    if word is not None:
        meaning = says(_REPLIES, text) if word == "ERR" else None
        return Told(meaning=meaning or _WORDS.get(word, UNKNOWN), code=word, text=text)
    named = by_class(_CLIENT_CLASSES, raised)
    if named is not None and says(_HELD, text) is not None:
        return Told(meaning=_HELD[0].meaning, code=named[0], text=text)
    if named is not None:
        return Told(meaning=named[1], code=None if named[1].code else named[0], text=text)
    return _of_connection(raised, text)


def _of_connection(raised: Raised, text: str) -> Told | None:
    """What the client says of its connection; what the operating system said stands above it."""
    named = by_class(_CONNECTIONS, raised)
    if named is None:
        return None
    meaning: Meaning | None = says(_REPLIES[:1], text)
    if meaning is None:
        found = _ERRNO.match(text)
        below = (
            raised if found is None else Raised(type="OSError", errno=int(found[1]), message=text)
        )
        signal = transport.signal_of(below)
        meaning = signal.meaning if signal is not None else says(_TEXTS, text)
    return Told(meaning=meaning or named[1], text=text, vague=meaning is None)


def _word(raised: Raised, text: str) -> str | None:
    """The word a reply began with, or None: no server said this."""
    for value in (raised.attrs.get("status_code"), raised.code):
        if isinstance(value, str) and _WORD.fullmatch(value):
            return value
    reply = by_class(dict.fromkeys(("ResponseError",), UNKNOWN), raised) is not None
    named = next((name for name in map(_last, raised.names) if name in _CLASSES), None)
    if named is not None:
        return _CLASSES[named]
    if reply or _last(raised.type) in {"Exception", "RedisError"}:
        found = _WORD.match(text)
        if found:
            return found[1]
    return "ERR" if reply and text else None


def _last(dotted: str) -> str:
    return dotted.rpartition(".")[2]
