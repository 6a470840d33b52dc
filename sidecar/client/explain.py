"""A failure in words for a model: the text of a tool's result when the tool has failed.

It says what happened, whether the same call may be made again, and what would have to change.
Nothing of `raw` is in it, and the message has had its secrets taken out before.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from sidecar.client.workflow import correlation_id

if TYPE_CHECKING:
    from sidecar.envelope.model import Envelope

_HAPPENED: Final = {
    "validation": "The call was refused because of what it contains",
    "authentication": "The call was refused: the credentials or the rights do not suffice",
    "rate_limit": "The call was turned away: too many calls at the moment",
    "transient": "The call failed: the service, or the way to it, is in trouble",
    "permanent": "The call cannot succeed",
}

_ADVICE: Final = {
    "validation": "Change what the message names, then call again.",
    "authentication": "Tell the person you work for: somebody has to grant access.",
    "permanent": "Look for another way, or say that it cannot be done.",
}
"""What to do where the code tells nothing better and the same call is in vain."""

_ADVICE_OF_CODE: Final = {
    "model_not_found": "Use a model that exists and that this account may use.",
    "context_length_exceeded": "Send less: shorten or leave out what is not needed, and try again.",
    "content_filtered": "Say it in other words, or leave that part out.",
    "token_expired": "The credential has to be renewed first; then the same call may succeed.",
    "missing_credentials": "No credential is configured: tell the person you work for.",
    "credits_exhausted": "Credits have to be bought first: tell the person you work for.",
    "spend_limit_reached": "A spending limit is reached: whoever set it has to raise it.",
    "plan_window_exhausted": "The plan's share is used up until its window opens again.",
    "request_over_budget": "This one request costs too much: ask for less.",
    "quota_exhausted": "A quota is used up: tell the person you work for.",
}

_UNKNOWN_OUTCOME: Final = "It is not known whether it was carried out: look before you do it again."
_LONGEST_MESSAGE = 400


def preload() -> None:
    """Load now what the first failure would load: some 60 ms of work.

    A program whose event loop must not stop for it calls this at its start, or in a thread.
    """
    importlib.import_module("sidecar.client.judged")


def for_model(failure: Envelope | BaseException) -> str:
    """What a model should be told of a failed tool call: a few sentences.

    Args:
        failure: an envelope, or an exception; one without an envelope is classified.
    """
    envelope = _envelope_of(failure)
    if envelope is None:
        return f"The call failed: {type(failure).__name__}. Do not repeat it unchanged."
    class_ = str(envelope.class_)
    message = " ".join(envelope.message.split())
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE].rstrip() + "…"
    said = f"{_HAPPENED[class_]} ({envelope.code}): {message}"
    if not said.endswith((".", "!", "?", "…")):
        said += "."
    reference = f" Reference: {envelope.correlation_id}." if envelope.correlation_id else ""
    return f"{said} {_what_now(envelope, class_)}{reference}"


def _what_now(envelope: Envelope, class_: str) -> str:
    advice = _ADVICE_OF_CODE.get(envelope.code)
    if envelope.retryable and advice is None:
        return f"The same call may succeed {_when(envelope.retry_after)}."
    if advice is None and class_ == "transient" and _maybe_done(envelope):
        return f"Do not repeat it. {_UNKNOWN_OUTCOME}"
    advice = advice or _ADVICE.get(class_, "Look for another way.")
    return advice if envelope.retryable else f"Do not repeat it unchanged. {advice}"


def _when(wait: float | None) -> str:
    if wait is None:
        return "a little later"
    if wait <= 0:
        return "at once"
    if wait < 120:
        seconds = max(1, -int(-wait // 1))
        return f"in {seconds} second{'s' if seconds != 1 else ''}"
    return f"in {-int(-wait // 60)} minutes"


def _maybe_done(envelope: Envelope) -> bool:
    raw: Mapping[str, object] = envelope.raw or {}
    return raw.get("phase") == "commit" or raw.get("sent") is True


def _envelope_of(failure: Envelope | BaseException) -> Envelope | None:
    if not isinstance(failure, BaseException):
        return failure
    return envelope_of(failure) if isinstance(failure, Exception) else None


def envelope_of(
    error: Exception,
    *,
    source: str | None = None,
    vendor: str | None = None,
    sdk: str | None = None,
) -> Envelope:
    """The envelope of an exception: the one that is on it, else what it means, judged here.

    Args:
        error: as it was caught.
        source: `database` or `sdk`; None to tell by the exception.
        vendor: the database, where its exceptions do not tell.
        sdk: the SDK, where its exceptions do not tell.
    """
    from sidecar.client.judged import Origin, judge  # noqa: PLC0415 - first now something has failed

    return judge(error, Origin(source, vendor, sdk), correlation_id=correlation_id() or "").envelope
