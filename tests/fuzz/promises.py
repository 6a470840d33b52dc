"""What every envelope and every verdict promises, whoever made them and of whatever."""

from __future__ import annotations

import json
import math
import re

import msgspec

from sidecar.envelope.model import Classified, Envelope
from sidecar.envelope.policy import header_envelope, retry_headers, status_for

CODE = re.compile(r"[A-Za-z0-9._:/#-]{1,64}")
_NOT_ONE_LINE = re.compile(r"[\x00-\x1f\x7f\u2028\u2029\ud800-\udfff]")
FIELDS = ["class", "source", "code", "message", "retryable", "retry_after", "correlation_id", "raw"]
CLASSES = {"validation", "authentication", "rate_limit", "transient", "permanent"}
SOURCES = {"http", "database", "sdk", "sidecar"}


def check_envelope(envelope: Envelope) -> None:
    """The contract's rules of the eight fields, and that each way out of here can be taken."""
    assert CODE.fullmatch(envelope.code), envelope.code
    assert 0 < len(envelope.message) <= 500
    assert not _NOT_ONE_LINE.search(envelope.message), envelope.message
    wait = envelope.retry_after
    if wait is not None:
        assert envelope.retryable
        assert math.isfinite(wait)
        assert wait >= 0
    assert len(envelope.correlation_id) <= 128
    header = header_envelope(envelope)
    assert len(header) <= 2048
    assert header.isascii()
    assert header.isprintable()
    check_told(json.loads(header), fields=FIELDS[:-1])
    for name, value in retry_headers(envelope):
        assert re.fullmatch(r"[0-9]+", value), (name, value)
    whole = json.loads(msgspec.json.encode(envelope))
    check_told(whole, fields=FIELDS)
    if whole["raw"] is not None:
        assert "fault" not in whole["raw"], whole["raw"]
        assert len(whole["raw"].get("body") or "") <= 65536 + 64
    # As the admin plane writes it, which refuses what JSON does not know.
    json.dumps(msgspec.to_builtins(envelope), allow_nan=False).encode()


def check_told(told: dict[str, object], *, fields: list[str]) -> None:
    """The same of an envelope as somebody received it."""
    assert list(told) == fields
    assert told["class"] in CLASSES
    assert told["source"] in SOURCES
    assert CODE.fullmatch(str(told["code"]))
    assert isinstance(told["message"], str)
    assert told["message"]
    assert isinstance(told["retryable"], bool)
    wait = told["retry_after"]
    assert wait is None or (told["retryable"] and isinstance(wait, int | float) and wait >= 0)


def check(classified: Classified, *, status: int = 200, told: bool = False) -> None:
    """What class, verdict and status have to do with each other.

    Args:
        classified: the answer of a classification.
        status: the status that it wore.
        told: the answer says itself whether it may be asked again (`X-Should-Retry`).
    """
    assert not classified.rule.startswith("fault"), classified.rule
    envelope = classified.envelope
    if envelope is None:
        assert classified.verdict in {"success", "neutral"}
        return
    check_envelope(envelope)
    class_, verdict = envelope.class_.value, classified.verdict.value
    if class_ == "rate_limit":
        assert verdict == "throttle"
    elif class_ == "transient":
        assert verdict in {"failure", "alive", "neutral"}
    else:
        assert verdict == "alive"
        assert not envelope.retryable or envelope.code == "token_expired" or told
    given = status_for(classified, status)
    assert 400 <= given < 600
    assert status_for(classified, given) == given
