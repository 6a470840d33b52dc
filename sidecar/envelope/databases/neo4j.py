"""Neo4j: the driver's class stands above the code, whose third word is often wrong.

NotALeader and AuthorizationExpired are ClientErrors by their code and transient by their class; the
driver knows. An incomplete commit is a ServiceUnavailable that must not be repeated.
"""

from __future__ import annotations

from sidecar.envelope import transport
from sidecar.envelope.databases.kinds import (
    UNKNOWN,
    Told,
    argument,
    broken,
    by_beginning,
    by_class,
    by_word,
    contended,
    dead_handle,
    denied,
    final,
    mistaken,
    own_limit,
    phrases,
    renewable,
    says,
    text_of,
    throttled,
    undone,
    unwell,
)
from sidecar.envelope.meaning import Meaning
from sidecar.envelope.raised import Raised

_CODES = by_word(
    # `Neo.TransientError`: may succeed later
    (contended("may succeed later"), "Neo.TransientError."),
    (undone("a deadlock: rolled back"), "Neo.TransientError.Transaction.DeadlockDetected"),
    (undone("lost against another transaction"), """
     Neo.TransientError.Transaction.Outdated
     Neo.TransientError.Transaction.ConstraintsChanged
     Neo.TransientError.Transaction.ConstraintOutdated
     Neo.TransientError.Transaction.Interrupted
     """),
    (contended("ended by an operator or by its limit of time"),
     """
      Neo.TransientError.Transaction.Terminated Neo.ClientError.Transaction.Terminated
      Neo.TransientError.Transaction.LockClientStopped Neo.ClientError.Transaction.LockClientStopped
      Neo.ClientError.Transaction.TransactionTimedOut
      Neo.ClientError.Transaction.TransactionTimedOutClientConfiguration
      Neo.ClientError.Transaction.LockAcquisitionTimeout
      Neo.TransientError.Transaction.LockAcquisitionTimeout
      """),
    (unwell("the server, or its cluster, cannot serve for now"),
     """
      Neo.TransientError.General. Neo.TransientError.Cluster. Neo.TransientError.Network.
      Neo.TransientError.Database. Neo.TransientError.Transaction.BookmarkTimeout
      Neo.TransientError.Transaction.MaximumTransactionLimitReached
      Neo.TransientError.Transaction.LeaderSwitch Neo.TransientError.Transaction.LeaseExpired
      Neo.TransientError.Transaction.ReplicationFailure
      """),
    (unwell("not the leader: ask the routing table again"),
     """
      Neo.ClientError.Cluster.NotALeader Neo.ClientError.General.ForbiddenOnReadOnlyDatabase
      Neo.ClientError.Cluster.Routing
      """),
    (contended("the server's cache of rights ran out: sign in again"),
     "Neo.ClientError.Security.AuthorizationExpired Neo.TransientError.Security."),
    # `Neo.ClientError`: the caller's
    (mistaken("a statement or a request that does not fit"), "Neo.ClientError."),
    (denied("not let in, or not allowed to"), """
     Neo.ClientError.Security.
     Neo.ClientError.Statement.AccessMode Neo.ClientError.Database.AccessDenied
     """),
    (renewable("the token has expired"), "Neo.ClientError.Security.TokenExpired"),
    (throttled("too many failed attempts: wait"),
     "Neo.ClientError.Security.AuthenticationRateLimit"),
    (final("no such database"), "Neo.ClientError.Database.DatabaseNotFound"),
    # `Neo.DatabaseError`: the server's own
    (broken("the server's own trouble"), "Neo.DatabaseError."),
)  # fmt: skip

_CLASSES = by_word(
    (broken("lost in COMMIT: nobody knows whether it was done"), "IncompleteCommit"),
    (own_limit("our own pool is busy", "pool_timeout"),
     "ConnectionAcquisitionTimeoutError ConnectionPoolError"),
    (mistaken("refused in the driver", "client_error"),
     """
      ConfigurationError AuthConfigurationError CertificateConfigurationError
      TransactionNestingError ResultNotSingleError
      """),
    (final("called out of order", "client_error"),
     "TransactionError SessionError ResultError ResultConsumedError ResultFailedError"),
    (final("not with this server"), "UnsupportedServerProduct BrokenRecordError"),
)  # fmt: skip
_TEXTS = phrases(
    (dead_handle("the handle was closed before the call", "connection_closed"),
     "driver closed", "session closed", "connection closed", "transaction closed"),
)  # fmt: skip
_VAGUE = by_word(
    (unwell("no server of the database could be asked"),
     """
      ServiceUnavailable SessionExpired RoutingServiceUnavailable WriteServiceUnavailable
      ReadServiceUnavailable
      """),
)  # fmt: skip
_TRANSIENT = "TransientError"


def told(raised: Raised) -> Told | None:
    """What one exception of Neo4j's driver tells, or None."""
    text = _text(raised)
    code = raised.code if isinstance(raised.code, str) and raised.code.startswith("Neo.") else None
    if code is not None:
        return Told(meaning=_of_code(code, raised), code=code, text=text)
    named = by_class(_CLASSES, raised)
    if named is not None:
        return Told(meaning=named[1], code=None if named[1].code else named[0], text=text)
    vague = by_class(_VAGUE, raised)
    if vague is None:
        closed = says(_TEXTS, text)
        return None if closed is None else Told(meaning=closed, text=text)
    signal = transport.of_chain(raised)
    if signal is not None and signal.rank > 1:
        return Told(meaning=signal.meaning, text=text)
    return Told(meaning=vague[1], code=vague[0], text=text)


def _of_code(code: str, raised: Raised) -> Meaning:
    meaning = by_beginning(_CODES, code) or UNKNOWN
    if not meaning.retryable and any(name.endswith(f".{_TRANSIENT}") for name in raised.names):
        return contended("transient by its class, whatever its code says")
    return meaning


def _text(raised: Raised) -> str:
    said = raised.attrs.get("message")
    return text_of(said) or text_of(argument(raised, 0)) or raised.message
