"""MiniMax: a number says what happened, and it stands in one of two places.

Native answers are 200 with `base_resp: {"status_code", "status_msg"}`, 0 for none; the skins of
OpenAI and Anthropic write it in brackets at the end of the message, `insufficient balance (1008)`,
under a status and a type that may say something else. The number is never an HTTP status.
Codes: platform.minimax.io/docs/api-reference/errorcode.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec

from sidecar.envelope import retry_after
from sidecar.envelope.dialects.base import Heard
from sidecar.envelope.dialects.compatible import COMPATIBLE_RULES, Compatible
from sidecar.envelope.dialects.rule import FOUR, Rule, words
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    PERMANENT,
    RATE_LIMIT,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import as_word, at, normal, status_like
from sidecar.envelope.locate import Found
from sidecar.envelope.model import Seen, Verdict

_IN_BRACKETS = re.compile(r"\((\d{4,6})\)\s*$", re.ASCII)
_RESETS_AT = re.compile(r"resets? at (\d{4}-\d\d-\d\d[T ][\d:.]{4,15}(?:Z|[+-]\d\d:\d\d))")
# The success path: the member ends an answer, and 0 says that all is well.
_BAD_STATUS = re.compile(rb'"status_code"\s*:\s*[1-9]')

MINIMAX_RULES = (
    Rule(
        name="credit is spent",
        why="1008, under 500 as under 429",
        codes=words("1008 insufficient_balance_error"),
        class_=PERMANENT,
        code="credits_exhausted",
    ),
    Rule(
        name="the window of a plan is spent",
        why="2056: five hours or a week",
        codes=words("2056"),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="the credential is refused",
        why="1004 and 2049: the key, 2042: no right to this voice",
        codes=words("1004 2049 2042"),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="throttled",
        why="1002: requests, 1039: tokens, 1041: connections, 2045: growing too fast",
        codes=words("1002 1039 1041 2045"),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="the content was blocked",
        why="1026: in what was sent, 1027: in what was made",
        codes=words("1026 1027"),
        class_=VALIDATION,
        code="content_filtered",
    ),
    Rule(
        name="the parameters are at fault",
        why="20xx but for the limits, and 1042 to 1044: text and samples that do not do",
        codes=words("1042 1043 1044 2013 20132 2037 2038 2039 2048"),
        class_=VALIDATION,
    ),
    Rule(
        name="a fault of the server under a client's status",
        why="passing, whatever the status says; the status keeps it from being counted",
        codes=words("1000 1001 1024 1033"),
        statuses=FOUR,
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="a fault of the server",
        why="1000: unknown, 1001: a timeout, 1024 and 1033: inside",
        codes=words("1000 1001 1024 1033"),
        class_=TRANSIENT,
    ),
)


class MiniMax(Compatible):
    """MiniMax's native API and its two skins."""

    name = "minimax"
    rules: ClassVar[tuple[Rule, ...]] = (*MINIMAX_RULES, *COMPATIBLE_RULES)
    request_id_headers: ClassVar[tuple[str, ...]] = (
        "trace-id",
        "minimax-request-id",
        *Compatible.request_id_headers,
    )
    signs: ClassVar[tuple[bytes, ...]] = (b'"base_resp"',)

    def is_model_route(self, method: str, path: str) -> bool:
        """As everywhere, and the native routes of chat and speech."""
        route = path.partition("?")[0].rstrip("/")
        return super().is_model_route(method, path) or (
            method == "POST" and route.endswith(("/text/chatcompletion_v2", "/t2a_v2"))
        )

    def may_hold_error(self, body: bytes, seen: Seen) -> bool:
        """As everywhere, and for a number that is not 0."""
        return (
            b'"base_resp"' in body and _BAD_STATUS.search(body) is not None
        ) or super().may_hold_error(body, seen)

    def locate(self, body: Any, seen: Seen) -> Found | None:
        """The native number first, on any status."""
        return _native(body) or super().locate(body, seen)

    def hear(self, name: str | None, value: dict[str, Any]) -> Heard | None:
        """The native number ends a stream as it ends an answer."""
        del name
        error = _native(value)
        return Heard(error=error) if error else None

    def read(self, found: Found, seen: Seen, *, stream: bool = False) -> Evidence:
        """The number at the end of the message is the most specific code there is."""
        evidence = super().read(found, seen, stream=stream)
        marked = _IN_BRACKETS.search(evidence.message[-16:])
        if marked is None:
            return evidence
        number = marked.group(1)
        named = evidence.code is not None and normal(evidence.code) not in _KINDS
        return msgspec.structs.replace(
            evidence,
            words={**evidence.words, number: number},
            code=evidence.code if named and status_like(evidence.code or "") is None else number,
        )

    def resets_in(self, evidence: Evidence) -> float | None:
        """As everywhere, else out of the sentence, whose moment has a zone."""
        known = super().resets_in(evidence)
        moment = _RESETS_AT.search(evidence.message[:4096])
        if known is not None or moment is None:
            return known
        return retry_after.seconds_of(moment.group(1), evidence.seen.now)


# Types that say no more than the status does.
_KINDS = words(
    "api_error rate_limit_error invalid_request_error server_error bad_request_error"
    " authentication_error permission_error overloaded_error not_found_error"
)


def _native(body: Any) -> Found | None:
    number = as_word(at(body, "base_resp.status_code"))
    if number is None or number == "0":
        return None
    return Found({"code": number, "message": at(body, "base_resp.status_msg") or ""}, body)
