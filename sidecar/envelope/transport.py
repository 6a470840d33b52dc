"""Failures without a code: the connection, the name, the time, this machine.

Drivers and SDKs wrap the same few troubles in hundreds of classes. What tells them apart is the
number of the operating system and the class at the end of the chain; both are read here, once for
databases and SDKs alike. Where only a text is left, as behind a wrapper that dropped the cause, it
is read for what machines write into it: names of classes and the operating system's own words.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import structs

from sidecar.envelope.meaning import Meaning
from sidecar.envelope.model import ErrorClass, Verdict
from sidecar.envelope.raised import Raised
from sidecar.envelope.transport_classes import SURE, VAGUE

_TRANSIENT = ErrorClass.TRANSIENT


def _lost(code: str, why: str, *, retryable: bool = True) -> Meaning:
    """The other side, or the way to it, failed."""
    return Meaning(
        class_=_TRANSIENT, retryable=retryable, verdict=Verdict.FAILURE, code=code, rule=why
    )


def _here(code: str, why: str, wait: float | None = None) -> Meaning:
    """Something on this machine: nobody else's fault."""
    return Meaning(
        class_=_TRANSIENT, retryable=True, verdict=Verdict.NEUTRAL, code=code, wait=wait, rule=why
    )


def _refused(code: str | None, why: str, class_: ErrorClass = ErrorClass.VALIDATION) -> Meaning:
    """The call itself is at fault; nothing was sent, or nothing of it can be mended by waiting."""
    return Meaning(class_=class_, retryable=False, verdict=Verdict.ALIVE, code=code, rule=why)


#: What each word means.
MEANINGS: dict[str, Meaning] = {
    "connection_refused": _lost("connection_refused", "nobody listens there"),
    "dns_failure": _lost("dns_failure", "the name was not resolved"),
    "connect_timeout": _lost("connect_timeout", "no connection in time"),
    "connection_reset": _lost("connection_reset", "cut while connecting or in mid-call"),
    "connection_error": _lost("connection_error", "no connection, and nothing tells why"),
    "tls_failure": _lost(
        "tls_failure", "certificate or protocol do not match: no repetition mends it",
        retryable=False,
    ),
    "read_timeout": _lost("read_timeout", "connected, and no answer in time"),
    "timeout": _lost("timeout", "no answer in time, in a phase that nothing tells"),
    "stream_truncated": _lost("stream_truncated", "the body is shorter than announced"),
    "invalid_upstream_response": _lost(
        "invalid_upstream_response", "what came back cannot be read"
    ),
    "connection_closed": _here("connection_closed", "the handle was dead before the call", 0.0),
    "pool_timeout": _here("pool_timeout", "our own pool is busy"),
    "local_resource": _here("local_resource", "this machine ran out of something"),
    "local_network_down": _here("local_network_down", "this machine has no way out"),
    "cancelled": _here("cancelled", "the caller went away"),
    "invalid_url": _refused("invalid_url", "nothing can be sent to such an address"),
    "too_many_redirects": _refused(
        "too_many_redirects", "a circle of redirects", ErrorClass.PERMANENT
    ),
    "refused_locally": _refused(None, "refused on this side; the class says what"),
}  # fmt: skip

# Numbers of Linux, of the BSDs and macOS, of Windows: a report may come from another machine.
_ERRNOS: dict[int, str] = {
    number: word
    for word, numbers in {
        "connection_refused": (111, 61, 10061),
        "connection_reset": (104, 54, 10054, 103, 53, 10053, 32, 108, 58, 107, 57),
        "connect_timeout": (110, 60, 10060),
        "connection_error": (113, 65, 10065, 112, 64, 10064),
        "local_network_down": (100, 101, 50, 51, 10050, 10051),
        "local_resource": (11, 12, 23, 24, 28, 35, 69, 122, 99, 49, 105, 55, 10024, 10055),
        "dns_failure": (11001, 11002),
    }.items()
    for number in numbers
}

# What machines write into a text, in lower case: classes that a repr names, the words of the
# operating system (strerror), of resolvers and of OpenSSL. In this order: the end of a chain first.
_WRITTEN: tuple[tuple[str, str], ...] = (
    ("eof occurred in violation of protocol", "connection_reset"),
    ("unexpected_eof_while_reading", "connection_reset"),
    ("ssleoferror", "connection_reset"),
    ("handshake operation timed out", "connect_timeout"),
    ("certificate_verify_failed", "tls_failure"),
    ("certificate verify failed", "tls_failure"),
    ("wrong_version_number", "tls_failure"),
    ("[ssl: ", "tls_failure"),
    ("[ssl] ", "tls_failure"),
    ("nameresolutionerror", "dns_failure"),
    ("gaierror", "dns_failure"),
    ("name or service not known", "dns_failure"),
    ("nodename nor servname provided", "dns_failure"),
    ("temporary failure in name resolution", "dns_failure"),
    ("no address associated with hostname", "dns_failure"),
    ("getaddrinfo failed", "dns_failure"),
    ("could not translate host name", "dns_failure"),
    ("failed to resolve host", "dns_failure"),
    ("could not resolve host", "dns_failure"),
    ("domain name not found", "dns_failure"),
    ("connection refused", "connection_refused"),
    ("connectionrefusederror", "connection_refused"),
    ("actively refused", "connection_refused"),
    ("connecttimeouterror", "connect_timeout"),
    ("connect timeout=", "connect_timeout"),
    ("readtimeouterror", "read_timeout"),
    ("read timed out", "read_timeout"),
    ("read operation timed out", "read_timeout"),
    ("timeout reading from", "read_timeout"),
    ("incompleteread(", "stream_truncated"),
    ("without sending complete message body", "stream_truncated"),
    ("incomplete chunked read", "stream_truncated"),
    ("not enough data to satisfy", "stream_truncated"),
    ("connectionreseterror", "connection_reset"),
    ("remotedisconnected", "connection_reset"),
    ("connection reset by peer", "connection_reset"),
    ("closed connection without response", "connection_reset"),
    ("server disconnected", "connection_reset"),
    ("broken pipe", "connection_reset"),
    ("too many open files", "local_resource"),
    ("no space left on device", "local_resource"),
    ("network is unreachable", "local_network_down"),
    ("write operation timed out", "timeout"),
    ("timeouterror(", "timeout"),
)
_NUMBERED = re.compile(r"\[(?:errno|winerror) (-?\d{1,5})\]")
# As far as a text is read: wrappers put what they wrap at its beginning or at its end.
_READ = 4096

# What a report gives that knows no class.
_NAMELESS = frozenset({"Exception", "Error"})
# Classes of mistakes in code, whose texts may be about anything.
_MISTAKES = frozenset(
    {
        "ArithmeticError", "AssertionError", "AttributeError", "ImportError", "LookupError",
        "NameError", "NotImplementedError", "RecursionError", "StopIteration", "SyntaxError",
        "TypeError", "ValueError",
    }
)  # fmt: skip


# Vague words, the vaguest first; below them what counts only where nothing else is found: a cause
# that was cancelled is how a deadline works, and a refused file is seldom why a call failed.
_RANK = {"cancelled": 0, "refused_locally": 0, "connection_error": 1}
_VAGUE_RANK = 2
_TEXT_RANK = 3
_SURE_RANK = 4
# Words that a class of a wrapper may say although a cause knows better.
_VAGUE_WORDS = frozenset({"connection_error", "connection_reset", "stream_truncated", "timeout"})


class Signal(msgspec.Struct, frozen=True):
    """What a link of a chain says about the transport.

    Attributes:
        meaning: of the failure; its code is the project's word, or the class of the link.
        link: the exception that says so.
        rank: how much it tells: 4 a class or a number, 3 a text, less is vague.
    """

    meaning: Meaning
    link: Raised
    rank: int


def meaning_of(raised: Raised) -> Meaning | None:
    """What one link of a chain says by itself about the transport, or None: it says nothing."""
    signal = signal_of(raised)
    return None if signal is None else signal.meaning


def of_chain(raised: Raised, known: str | None = None) -> Signal | None:
    """The most specific thing that an exception and its causes say about the transport.

    Of several that say equally much the outermost is asked: a client knows better than a socket
    whether it was connecting or reading.

    Args:
        raised: the exception.
        known: the word that its class stands for, where the asker knows a class of its own.
    """
    best = None
    if known is not None:
        rank = _VAGUE_RANK if known in _VAGUE_WORDS else _SURE_RANK
        best = _signal(raised, known, rank, raised.type)
    for depth, link in enumerate(raised.chain()):
        signal = signal_of(link)
        if signal is None:
            continue
        if depth == 0 and signal.rank == 0 and known is None:
            return signal
        if best is None or signal.rank > best.rank:
            best = signal
    return best


def signal_of(raised: Raised) -> Signal | None:
    """What one link says, and how surely."""
    found = _word(raised)
    if found is None:
        return None
    return _signal(raised, *found)


def _signal(raised: Raised, word: str, rank: int, why: str) -> Signal:
    if raised.phase == "connect" and word in {"timeout", "read_timeout"}:
        word = "connect_timeout"
    meaning = MEANINGS[word]
    meaning = structs.replace(
        meaning, code=meaning.code or raised.name, rule=f"transport: {why}: {meaning.rule}"
    )
    return Signal(meaning, raised, _RANK.get(word, rank))


def _word(raised: Raised) -> tuple[str, int, str] | None:
    """The word for a link, how much it tells, and what told it."""
    vague = None
    for name in raised.names:
        if name in SURE:
            return SURE[name], _SURE_RANK, name
        vague = VAGUE.get(name)
        if vague is not None:
            break
    number = _number(raised)
    if number in _ERRNOS:
        return _ERRNOS[number], _SURE_RANK, f"errno {number}"
    if not _MISTAKES.intersection(raised.names):
        written = _in_text(raised.message)
        if written is not None:
            return written
    return None if vague is None else (vague, _VAGUE_RANK, raised.type)


def _number(raised: Raised) -> int | None:
    """The number of the operating system; drivers and OpenSSL count their own."""
    if "ssl.SSLError" in raised.names:
        return None
    if "OSError" not in raised.names and raised.type not in _NAMELESS:
        return None
    if raised.errno is None and len(raised.args) > 1 and type(raised.args[0]) is int:
        return raised.args[0]
    return raised.errno


def _in_text(text: str) -> tuple[str, int, str] | None:
    if not text:
        return None
    if len(text) > 2 * _READ:
        text = f"{text[:_READ]} {text[-_READ:]}"
    text = text.lower()
    for written, word in _WRITTEN:
        if written in text:
            return word, _TEXT_RANK, f"the text says {written!r}"
    for number in _NUMBERED.findall(text):
        word = "dns_failure" if number[0] == "-" else _ERRNOS.get(int(number), "")
        if word:
            return word, _TEXT_RANK, f"the text says errno {number}"
    return None
