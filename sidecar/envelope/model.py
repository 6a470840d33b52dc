"""The words of the contract: the envelope, the five classes, the five verdicts, and what was seen.

Everything that classifies or consumes a classification speaks in these types. They are plain
frozen records: nothing here decides anything.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Protocol

import msgspec

from sidecar.envelope.headers import Headers


class ErrorClass(StrEnum):
    """What the caller should do about a failure."""

    VALIDATION = "validation"
    AUTHENTICATION = "authentication"
    RATE_LIMIT = "rate_limit"
    TRANSIENT = "transient"
    PERMANENT = "permanent"


class Source(StrEnum):
    """Where a failure came from; `sidecar` marks the daemon's own decisions."""

    HTTP = "http"
    DATABASE = "database"
    SDK = "sdk"
    SIDECAR = "sidecar"


class Verdict(StrEnum):
    """What a finished call tells the breaker."""

    SUCCESS = "success"
    FAILURE = "failure"
    ALIVE = "alive"
    THROTTLE = "throttle"
    NEUTRAL = "neutral"


class Envelope(msgspec.Struct, frozen=True, kw_only=True, rename={"class_": "class"}):
    """The eight-field error envelope, the same for every failure of every tool.

    Attributes:
        class_: one of the five classes; `class` on the wire.
        source: where the failure came from.
        code: machine-readable, at most 64 characters of `[A-Za-z0-9._:/#-]`.
        message: one line a person can act on, at most 500 characters, without secrets.
        retryable: could the identical request succeed, after a wait or one refresh?
        retry_after: seconds, finite, >= 0; None where unknown or not retryable.
        correlation_id: the same on the log line, the span and the answer.
        raw: what was seen, secrets redacted; None where nothing was.
    """

    class_: ErrorClass
    source: Source
    code: str
    message: str
    retryable: bool
    retry_after: float | None = None
    correlation_id: str = ""
    raw: dict[str, Any] | None = None

    def for_model(self) -> dict[str, Any]:
        """The seven fields without `raw`, as plain values."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        del fields["raw"]
        return fields


class RawMaker(Protocol):
    """Makes what was seen of an error, when somebody asks for it."""

    @property
    def size(self) -> int:
        """About how many bytes it will take."""

    def __call__(self) -> dict[str, Any]:
        """The member `raw` of the envelope."""


class Classified:
    """The answer of every classification: the envelope (None: no error), the verdict, and why.

    Attributes:
        verdict: what the breaker hears.
        rule: the name of the rule that decided, with its reason.
        terminal: the body named a code that no repetition can mend; stronger than `X-Should-Retry`.
        look: makes `raw`, until somebody has asked for it; most errors are told without.
        request_id: the upstream's own id of the call, where it gave one.
    """

    __slots__ = ("_envelope", "look", "request_id", "rule", "terminal", "verdict")

    def __init__(
        self,
        *,
        envelope: Envelope | None,
        verdict: Verdict,
        rule: str,
        terminal: bool = False,
        look: RawMaker | None = None,
        request_id: str | None = None,
    ) -> None:
        self._envelope = envelope
        self.verdict = verdict
        self.rule = rule
        self.terminal = terminal
        self.look = look
        self.request_id = request_id

    @property
    def brief(self) -> Envelope | None:
        """The envelope as far as it is made: what was seen may be missing."""
        return self._envelope

    @property
    def envelope(self) -> Envelope | None:
        """The envelope with what was seen; None if what was seen is no error."""
        if self.look is not None and self._envelope is not None:
            self._envelope = with_raw(self._envelope, self.look)
            self.look = None
        return self._envelope

    def replaced(self, envelope: Envelope | None) -> Classified:
        """The same with another envelope."""
        return Classified(
            envelope=envelope,
            verdict=self.verdict,
            rule=self.rule,
            terminal=self.terminal,
            request_id=self.request_id,
        )

    def judged(self, verdict: Verdict, rule: str) -> Classified:
        """The same with another verdict, and why."""
        return Classified(
            envelope=self._envelope,
            verdict=verdict,
            rule=rule,
            terminal=self.terminal,
            look=self.look,
            request_id=self.request_id,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Classified):
            return NotImplemented
        return (self.envelope, self.verdict, self.rule, self.terminal) == (
            other.envelope, other.verdict, other.rule, other.terminal,
        )  # fmt: skip

    __hash__ = None  # type: ignore[assignment] # it holds what cannot be hashed

    def __repr__(self) -> str:
        return f"Classified({self._envelope!r}, {self.verdict.value}, {self.rule!r})"


def with_raw(envelope: Envelope, look: RawMaker) -> Envelope:
    """The envelope with what was seen; a fault in showing it costs no more than that."""
    try:
        raw = look()
    except Exception as error:  # noqa: BLE001 - the error is told all the same
        raw = {"fault": type(error).__name__}
    return msgspec.structs.replace(envelope, raw=raw)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP answer as it was seen, enough to classify it.

    Attributes:
        status: the status of the answer.
        headers: its headers.
        body: its body as the sender meant it (content codings undone), possibly cut.
        truncated: True if `body` is only the beginning: the limit of classification was reached.
        complete: False if the body ended before its framing said so.
        method: the method of the request.
        path: the path of the request at the upstream, without the query.
        now: the time at which it was seen, seconds since the epoch.
    """

    status: int
    headers: Headers
    body: bytes = b""
    truncated: bool = False
    complete: bool = True
    method: str = "POST"
    path: str = "/"
    now: float = 0.0
