"""What the daemon said to the question for a permit: yes, no, or nothing that one understands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidecar.client.wire import Answer

if TYPE_CHECKING:
    from sidecar.envelope.model import Envelope


@dataclass(frozen=True, slots=True)
class Permit:
    """The daemon lets a call through.

    Attributes:
        id: what the report names.
    """

    id: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The daemon does not.

    Attributes:
        envelope: why, as JSON.
    """

    envelope: dict[str, Any]

    def read(self) -> Envelope | None:
        """The envelope; None if it is none, or if nothing is there that could read it."""
        try:
            import msgspec  # noqa: PLC0415 - nothing needs it until something fails

            from sidecar.envelope.model import Envelope  # noqa: PLC0415

            return msgspec.convert(self.envelope, Envelope)
        except (ImportError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Injection(Refusal):
    """The call is to fail, because the daemon was asked to make it fail.

    Attributes:
        fault: what it says of that.
    """

    fault: dict[str, Any]


Given = Permit | Refusal | None
"""What became of the question for a permit; None: no answer, and the call runs."""


def given_by(answer: Answer) -> Given:
    """What an answer says."""
    document = document_of(answer)
    permit, envelope = document.get("permit"), document.get("envelope")
    if answer.status == 200 and isinstance(permit, str):
        return Permit(permit)
    if not isinstance(envelope, dict):
        return None
    if envelope.get("code") == "breaker_open":
        return Refusal(envelope)
    fault = document.get("fault")
    if isinstance(fault, dict):
        return Injection(envelope, fault)
    return None


def document_of(answer: Answer) -> dict[str, Any]:
    """The JSON object of an answer; empty if it has none."""
    try:
        document = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
