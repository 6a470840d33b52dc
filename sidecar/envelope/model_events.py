"""What an event means in the vocabularies of Gemini, Bedrock, Cohere and Hugging Face's server.

Each provider has its own word for the end of an answer and its own way of failing before it. The
vocabularies do not collide with each other nor with the four of `stream.py`, so a stream is read
by what it turns out to speak.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple

from sidecar.envelope.decode import decode

_CONVERSE_OPENING = frozenset({"initial-response", "messageStart", "contentBlockStart"})
_CONVERSE = _CONVERSE_OPENING | {
    "contentBlockDelta", "contentBlockStop", "messageStop", "metadata",
}  # fmt: skip
_COHERE_OPENING = frozenset({"message-start", "content-start", "stream-start"})
_COHERE = _COHERE_OPENING | {
    "content-delta", "content-end", "tool-plan-delta", "tool-call-start", "tool-call-delta",
    "tool-call-end", "citation-start", "citation-end", "text-generation", "message-end",
    "stream-end", "stream-error",
}  # fmt: skip
_COHERE_ENDS = frozenset({"message-end", "stream-end", "stream-error"})
_INTERACTION_OPENING = frozenset({"interaction.created", "interaction.start", "step.start"})
_INTERACTION_ENDS = frozenset({"interaction.completed", "interaction.complete"})

# The last chunk of InvokeModel carries its figures, whichever model wrote it.
_FIGURES = "amazon-bedrock-invocationMetrics"


class Meaning(NamedTuple):
    """What one event says.

    Attributes:
        content: it is more than an opening frame.
        done: the answer is whole, if the body then ends as it should.
        whole: the answer is whole, whatever becomes of the body.
        terminated: nothing more follows.
        error: what it says of a failure, as a body of its provider's; None if it failed not.
    """

    content: bool = True
    done: bool = False
    whole: bool = False
    terminated: bool = False
    error: dict[str, Any] | None = None


def meaning_of_frame(kind: str) -> Meaning | None:
    """Read the name of an event of a binary stream; None if it is none of Converse's."""
    if kind not in _CONVERSE:
        return None
    # After the word that ends the answer come its figures, and then nothing.
    return Meaning(
        content=kind not in _CONVERSE_OPENING,
        done=kind in {"messageStop", "metadata"},
        whole=kind == "messageStop",
        terminated=kind == "metadata",
    )


def meaning_of(kind: str, value: dict[str, Any], failing: Mapping[str, str]) -> Meaning | None:
    """Read one event of a stream of text.

    Args:
        kind: its type or name; empty if it has none.
        value: its decoded data.
        failing: finish reasons that are errors, to their codes.

    Returns:
        What it says, or None if it is of none of these vocabularies.
    """
    if kind in _COHERE:
        return _cohere(kind, value, failing)
    if kind.startswith(("interaction.", "step.")):
        return _interaction(kind, value)
    if "candidates" in value or "promptFeedback" in value:
        return _candidates(value)
    wrapped = value.get("response")
    if isinstance(wrapped, dict) and ("candidates" in wrapped or "promptFeedback" in wrapped):
        return _candidates(wrapped)
    if "generated_text" in value and "token" in value:
        return Meaning(done=isinstance(value["generated_text"], str))
    return None


def payload_of_chunk(value: dict[str, Any]) -> dict[str, Any] | None:
    """What the model wrote into a chunk of InvokeModel: JSON in base64; None if it is no object."""
    try:
        payload = decode(base64.b64decode(value["bytes"], validate=True))
    except (KeyError, TypeError, ValueError, binascii.Error):
        return None
    return payload if isinstance(payload, dict) else None


def ends_invocation(payload: dict[str, Any]) -> bool:
    """Whether this is the last chunk of InvokeModel."""
    return _FIGURES in payload


def block_reason(body: Any) -> dict[str, Any] | None:
    """Why Gemini refused a prompt: a block reason and no candidate; else None."""
    if not isinstance(body, dict) or body.get("candidates"):
        return None
    feedback = body.get("promptFeedback")
    reason = feedback.get("blockReason") if isinstance(feedback, dict) else None
    if not isinstance(reason, str) or not reason or reason == "BLOCK_REASON_UNSPECIFIED":
        return None
    told = feedback.get("blockReasonMessage") if isinstance(feedback, dict) else None
    message = told if isinstance(told, str) and told else f"the prompt was blocked: {reason}"
    return {"blockReason": reason, "message": message}


def failed_interaction(interaction: Any) -> dict[str, Any] | None:
    """The error of an interaction of Gemini's that failed; None if it did not."""
    if not isinstance(interaction, dict) or interaction.get("status") != "failed":
        return None
    errors = interaction.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else None
    return first if isinstance(first, dict) else {"message": "the interaction failed"}


def _cohere(kind: str, value: dict[str, Any], failing: Mapping[str, str]) -> Meaning:
    if kind not in _COHERE_ENDS:
        return Meaning(content=kind not in _COHERE_OPENING)
    delta = value.get("delta")
    ending = delta if isinstance(delta, dict) else value
    reason = ending.get("finish_reason")
    code = failing.get(reason) if isinstance(reason, str) else None
    if code is None and kind == "stream-error":
        code = "stream_error"
    if code is None:
        return Meaning(done=True, terminated=True)
    told = ending.get("error") or ending.get("err")
    message = told if isinstance(told, str) and told else f"the stream ended with {reason}"
    return Meaning(error={"error": {"code": code, "message": message}})


def _interaction(kind: str, value: dict[str, Any]) -> Meaning:
    if kind not in _INTERACTION_ENDS:
        return Meaning(content=kind not in _INTERACTION_OPENING)
    error = failed_interaction(value.get("interaction"))
    if error is not None:
        return Meaning(error={"error": error})
    return Meaning(done=True, terminated=True)


def _candidates(value: dict[str, Any]) -> Meaning:
    blocked = block_reason(value)
    if blocked is not None:
        return Meaning(error={"error": blocked})
    candidates = value.get("candidates")
    reasons = [
        candidate.get("finishReason")
        for candidate in (candidates if isinstance(candidates, list) else ())
        if isinstance(candidate, dict)
    ]
    done = any(isinstance(reason, str) and reason for reason in reasons)
    return Meaning(content=bool(reasons), done=done)
