"""Z.AI (Zhipu): a business code of digits in `error.code`, under statuses that say little.

Spent balances, locked accounts, plan windows and real throttles share 429. The Anthropic skin puts
the code into `type` or `code`. A reset in the message has no zone, so no wait follows from it.
Codes: docs.z.ai/api-reference/api-code and docs.bigmodel.cn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from sidecar.envelope.dialects.compatible import COMPATIBLE_RULES, Compatible
from sidecar.envelope.dialects.openai import OpenAI
from sidecar.envelope.dialects.rule import FOUR, Rule, statuses, words
from sidecar.envelope.dialects.words import (
    AUTHENTICATION,
    PERMANENT,
    RATE_LIMIT,
    TRANSIENT,
    VALIDATION,
)
from sidecar.envelope.model import Seen, Verdict

ZAI_RULES = (
    Rule(
        name="the token has expired",
        why="1003: the client signs a short-lived token from its key, signing again is a refresh",
        codes=words("1003"),
        class_=AUTHENTICATION,
        code="token_expired",
        retryable=True,
        terminal=True,
    ),
    Rule(
        name="the credential is refused",
        why="10xx: the token, 111x and 112x: the account, 1220: no right to this API",
        codes=words("1000 1001 1002 1004 1110 1111 1112 1121 1220"),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="no right to this API",
        why="the private status 434",
        statuses=statuses(434),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="credit is spent",
        why="1113: in arrears, 1309: the plan ended; whoever pays can mend it",
        codes=words("1113 1309"),
        class_=PERMANENT,
        code="credits_exhausted",
    ),
    Rule(
        name="the window of a plan is spent",
        why="1304: the day, 1308: five hours, 1310: a week or a month, 1316 to 1321: their kin",
        codes=words("1304 1308 1310 1316 1317 1318 1319 1320 1321"),
        class_=PERMANENT,
        code="plan_window_exhausted",
    ),
    Rule(
        name="no such model",
        why="1211: it does not exist, 1311: it is outside the plan",
        codes=words("1211 1311"),
        class_=PERMANENT,
        code="model_not_found",
    ),
    Rule(
        name="the context is too long",
        why="1261: the prompt",
        codes=words("1261"),
        class_=VALIDATION,
        code="context_length_exceeded",
    ),
    Rule(
        name="the content was blocked",
        why="1301: unsafe or sensitive",
        codes=words("1301"),
        class_=VALIDATION,
        code="content_filtered",
    ),
    Rule(
        name="the parameters are at fault",
        why="1210 to 1215",
        codes=words("1210 1212 1213 1214 1215"),
        class_=VALIDATION,
    ),
    Rule(
        name="no repetition mends it",
        why="1221: the API is gone, 1222: there is none, 1300: a policy forbids the call",
        codes=words("1221 1222 1300"),
        class_=PERMANENT,
    ),
    Rule(
        name="throttled",
        why="1302: calls at a time, 1303: calls in a time, 1313: slowed down for unfair use",
        codes=words("1302 1303 1313"),
        class_=RATE_LIMIT,
    ),
    Rule(
        name="refused for lack of capacity",
        why="1305 and 1312: the model has more traffic than it can take, whoever sent it",
        codes=words("1305 1312"),
        statuses=FOUR,
        class_=RATE_LIMIT,
        code="overloaded",
    ),
    Rule(
        name="overloaded",
        why="1305 and 1312 under a server's status or inside a success",
        codes=words("1305 1312"),
        class_=TRANSIENT,
        code="overloaded",
        verdict=Verdict.FAILURE,
    ),
    Rule(
        name="the same request is under way",
        why="1231: a passing conflict",
        codes=words("1231"),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="a fault of the server",
        why="500, 1120 (try again later), 1230 and 1234, or the finish reason of a broken answer",
        codes=words("1120 1230 1234 network_error"),
        class_=TRANSIENT,
    ),
)


class ZAI(Compatible):
    """Z.AI's API and its Anthropic skin."""

    name = "zai"
    rules: ClassVar[tuple[Rule, ...]] = (*ZAI_RULES, *COMPATIBLE_RULES)
    failing_reasons: ClassVar[Mapping[str, str]] = {
        **OpenAI.failing_reasons,
        "network_error": "network_error",
    }

    def may_hold_error(self, body: bytes, seen: Seen) -> bool:
        """As everywhere, and for the finish reason of a broken answer."""
        return b'"network_error"' in body or super().may_hold_error(body, seen)
