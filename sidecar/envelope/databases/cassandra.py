"""Cassandra and ScyllaDB: the class is the code; a write that timed out may have been done.

Only the batch log times out before anything is written. NoHostAvailable is outside the tree of the
driver's exceptions and hides what each host said.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from sidecar.envelope import transport
from sidecar.envelope.databases.kinds import (
    Told,
    argument,
    broken,
    by_class,
    by_word,
    denied,
    final,
    mistaken,
    number,
    own_limit,
    text_of,
    throttled,
    undone,
    unwell,
)
from sidecar.envelope.meaning import Meaning
from sidecar.envelope.raised import Raised

_BATCH_LOG = (4, "BATCH_LOG")

_CLASSES = by_word(
    (unwell("too few replicas are alive"), "Unavailable"),
    (unwell("replicas did not answer in time"), "ReadTimeout"),
    (broken("the write may have been done"), "WriteTimeout CASWriteUnknown"),
    (broken("replicas failed"), "ReadFailure WriteFailure TruncateError"),
    (unwell("a coordinator sheds load", "overloaded"), "Overloaded"),
    (unwell("a coordinator is starting"), "IsBootstrapping"),
    (broken("the server's own trouble"), "ServerError"),
    (broken("the space for change data is full"), "CDCWriteFailure CDCWrite ClientWriteError"),
    (throttled("a limit of the table, the partition or the service"), "RateLimitReached"),
    (undone("a node does not know the statement: prepare it again"),
     "PreparedQueryNotFound Unprepared"),
    (denied("not let in, or not allowed to"),
     "AuthenticationFailed Unauthorized BadCredentials AuthenticationException"),
    (mistaken("a statement, a name or a value that does not fit"),
     """
      InvalidRequest Invalid SyntaxException Syntax AlreadyExists Config ConfigurationException
      FunctionFailure UserTypeDoesNotExist RequestValidationException
      """),
    (mistaken("not supported"), "UnsupportedOperation"),
    (final("no version of the protocol that both speak"), """
     ProtocolVersionUnsupported Protocol
     ProtocolException
     """),
    # the driver's own
    (unwell("no answer in time: the work may have been done", "read_timeout"), "OperationTimedOut"),
    (own_limit("our own pool is busy", "pool_timeout"), "NoConnectionsAvailable ConnectionBusy"),
    (unwell("none of the names was resolved", "dns_failure"), "UnresolvableContactPoints"),
    (mistaken("refused in the driver", "client_error"), "QueryExhausted DependencyException"),
)  # fmt: skip
# They cover several troubles; what the hosts or the text say is better.
_VAGUE = by_word(
    (unwell("no host of the cluster could be asked", "connection_error"), "NoHostAvailable"),
    (unwell("the connection was lost", "connection_reset"),
     "ConnectionShutdown ConnectionHeartbeatFailure CrcMismatchException ConnectionException"),
)  # fmt: skip
# https://cassandra.apache.org native protocol, section 9: error codes.
_NUMBERS = {
    0x0000: "ServerError", 0x000A: "ProtocolException", 0x0100: "AuthenticationFailed",
    0x1000: "Unavailable", 0x1001: "Overloaded", 0x1002: "IsBootstrapping", 0x1003: "TruncateError",
    0x1100: "WriteTimeout", 0x1200: "ReadTimeout", 0x1300: "ReadFailure", 0x1400: "FunctionFailure",
    0x1500: "WriteFailure", 0x1600: "CDCWriteFailure", 0x1700: "CASWriteUnknown",
    0x2000: "SyntaxException", 0x2100: "Unauthorized", 0x2200: "InvalidRequest",
    0x2300: "ConfigurationException", 0x2400: "AlreadyExists", 0x2500: "PreparedQueryNotFound",
}  # fmt: skip


def told(raised: Raised) -> Told | None:
    """What one exception of a driver for Cassandra tells, or None."""
    text = text_of(argument(raised, 0)) or raised.message
    found = _class_of(raised)
    if found is not None:
        name, meaning = found
        if name == "WriteTimeout" and raised.attrs.get("write_type") in _BATCH_LOG:
            meaning = unwell("the batch log was not written, so nothing was")
        return Told(meaning=meaning, code=None if meaning.code else name, text=text)
    vague = by_class(_VAGUE, raised)
    if vague is None:
        return None
    if vague[0] == "NoHostAvailable":
        return _of_hosts(raised, vague[1], text)
    signal = transport.of_chain(raised)
    meaning = signal.meaning if signal is not None and signal.rank > 1 else vague[1]
    return Told(meaning=meaning, text=text)


def _class_of(raised: Raised) -> tuple[str, Meaning] | None:
    """The class that the table knows; the protocol's own classes end in `ErrorMessage`."""
    for dotted in raised.names:
        name = dotted.rpartition(".")[2]
        for known in (name, name.removesuffix("ErrorMessage"), name.removesuffix("Message"),
                      name.removesuffix("Exception")):  # fmt: skip
            if known in _CLASSES:
                return known, _CLASSES[known]
    if isinstance(raised.code, str) and raised.code in _CLASSES:
        return raised.code, _CLASSES[raised.code]
    own = number(raised.code)
    name = _NUMBERS.get(own, "") if own is not None else ""
    return (name, _CLASSES[name]) if name else None


def _of_hosts(raised: Raised, vague: Meaning, text: str) -> Told:
    """What the hosts said: all of them refused us, or the first trouble that can be named."""
    hosts = raised.attrs.get("errors") or argument(raised, 1)
    said = (
        [str(one)[:512] for one in list(hosts.values())[:64]] if isinstance(hosts, Mapping) else []
    )
    refusals = [name for name in ("AuthenticationFailed", "Unauthorized", "BadCredentials")
                if said and all(name in one for one in said)]  # fmt: skip
    if refusals:
        return Told(meaning=denied("every host refused us"), code=refusals[0], text=said[0])
    for one in said:
        signal = transport.signal_of(Raised(type="cassandra.Host", message=one))
        if signal is not None:
            return Told(meaning=signal.meaning, text=f"{text}: {one}")
    signal = transport.of_chain(structs.replace(raised, message=text))
    meaning = signal.meaning if signal is not None and signal.rank > 1 else vague
    return Told(meaning=meaning, text=f"{text}: {said[0]}" if said else text)
