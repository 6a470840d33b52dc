"""RESOURCE_EXHAUSTED, the one status of gRPC's that stands for four different troubles.

A rate, a spent plan, a full disk and a message that is larger than a limit of either end: the first
passes, the last can never pass. Where no details say which, only the text tells. The name comes
with gRPC, with its number from gateways to JSON, and from whoever borrowed it.
"""

from __future__ import annotations

import re

from sidecar.envelope.dialects.rule import Rule, statuses, words
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.model import ErrorClass

_EXHAUSTED = words("8 resource_exhausted")

# gRPC's core, Go, Node, Java and .NET, and Connect.
_TOO_LARGE = re.compile(
    r"\bmessage (?:after decompression )?(?:is )?larger than\b"
    r"|\bmessage exceeds (?:the )?maximum\b"
    r"|\bmessage size \d{1,20} (?:is larger than|exceeds)\b"
)


def _says_too_large(evidence: Evidence) -> bool:
    return _TOO_LARGE.search(evidence.text[:4096]) is not None


MESSAGE_TOO_LARGE = Rule(
    name="one message larger than a limit of gRPC's",
    why="RESOURCE_EXHAUSTED: the same message is refused each time; only the text tells",
    codes=_EXHAUSTED,
    when=_says_too_large,
    class_=ErrorClass.VALIDATION,
    retryable=False,
    terminal=True,
)

MONTH_SPENT = Rule(
    name="the month of a plan is spent",
    why="RESOURCE_EXHAUSTED for rates and months alike, at Pinecone; only the text tells",
    codes=_EXHAUSTED,
    says=("limit for the current month",),
    statuses=statuses(200, 429),
    class_=ErrorClass.PERMANENT,
    code="plan_window_exhausted",
)
