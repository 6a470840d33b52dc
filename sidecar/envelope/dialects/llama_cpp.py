"""The server of llama.cpp: OpenAI's shape with an integer `code` and types of its own.

Embeddings and forks report a prompt that is too long as a server error; old builds stream an error
in a field `error:` that no standard knows.
"""

from __future__ import annotations

import re
from typing import ClassVar

from sidecar.envelope.dialects.compatible import LOADING_TEXT, MODEL_TEXT
from sidecar.envelope.dialects.openai import OPENAI_RULES, SIZE_STATUSES, OpenAI
from sidecar.envelope.dialects.rule import FIVE, Rule
from sidecar.envelope.dialects.words import VALIDATION
from sidecar.envelope.evidence import Evidence

# What reads the request throws, and whatever is thrown there is called a server error. The same
# exceptions behind other words may tell of what a model wrote.
_UNREADABLE = re.compile(
    r"\s*(?:\[json\.exception\.parse_error\b|failed to parse (?:messages|tools|tool_choice)\b"
    r"|['\"][\w.]{1,64}['\"] is required\b)"
)


def _cannot_be_read(evidence: Evidence) -> bool:
    return _UNREADABLE.match(evidence.text[:200]) is not None


LLAMA_CPP_RULES = (
    LOADING_TEXT,
    Rule(
        name="the input is too long",
        why="its size is the caller's, though some builds call it a server error",
        says=("too large to process", "physical batch size", "available context size"),
        statuses=SIZE_STATUSES,
        class_=VALIDATION,
        code="context_length_exceeded",
    ),
    Rule(
        name="the request cannot be read",
        why="its JSON breaks off or lacks a member; the server's own reader says so, under 500",
        statuses=FIVE,
        when=_cannot_be_read,
        class_=VALIDATION,
    ),
)


class LlamaCpp(OpenAI):
    """A llama.cpp server."""

    name = "llama.cpp"
    rules: ClassVar[tuple[Rule, ...]] = (*LLAMA_CPP_RULES, *OPENAI_RULES, MODEL_TEXT)
