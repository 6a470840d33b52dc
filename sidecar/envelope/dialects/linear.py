"""Linear: GraphQL whose errors may come under 200, 400 or a status of their own.

`extensions.type` is the vocabulary that its client maps to exceptions, in words with blanks;
`extensions.code` names the same in one word, where it is there. Throttles come as 400.
Sources: linear.app on rate limiting; the error types of its SDK.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from sidecar.envelope.dialects.graphql_errors import GRAPHQL_RULES, WITHOUT_CODE, GraphQLErrors
from sidecar.envelope.dialects.rule import FIVE, TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import AUTHENTICATION, PERMANENT, TRANSIENT, VALIDATION
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import as_word, at, normal
from sidecar.envelope.locate import Found
from sidecar.envelope.model import Envelope, ErrorClass, Seen, Verdict

_WEAK_STATUSES = TWO | FIVE | statuses(400, 401, 403)

LINEAR_RULES = (
    Rule(
        name="a limit of the plan is reached",
        why="the number of issues and the like: a larger plan or fewer of them mend it",
        codes=words("usage_limit_exceeded"),
        class_=PERMANENT,
        code="quota_exhausted",
    ),
    Rule(
        name="a lock was not obtained in time",
        why="another change holds the record: it passes",
        codes=words("lock_timeout"),
        class_=TRANSIENT,
        verdict=Verdict.ALIVE,
    ),
    Rule(
        name="refused, also as a bad request",
        why="the credential, its scope, or a feature outside the plan",
        codes=words("authentication_error authorization_error feature_not_accessible forbidden"),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="nothing is there",
        why="no repetition finds it",
        codes=words("entity_not_found"),
        class_=PERMANENT,
    ),
    Rule(
        name="a server's fault",
        why="the call failed within, whatever status it wore",
        codes=words("internal_error network_error bootstrap_error"),
        statuses=TWO | FIVE | statuses(400),
        class_=TRANSIENT,
    ),
    Rule(
        name="the input is at fault",
        why="complexity counts as input too: such a query can never run",
        codes=words("invalid_input input_error user_error graphql_error"),
        statuses=_WEAK_STATUSES,
        class_=VALIDATION,
    ),
)

CALLERS_FAULT = Rule(
    name="the input is at fault",
    why="a word that nobody wrote down, but the error calls itself the user's",
    statuses=TWO,
    when=lambda evidence: at(evidence.error, "extensions.userError") is True,
    class_=VALIDATION,
)

_TYPES = {
    ErrorClass.VALIDATION: "invalid input",
    ErrorClass.AUTHENTICATION: "authentication error",
    ErrorClass.RATE_LIMIT: "ratelimited",
    ErrorClass.TRANSIENT: "internal error",
    ErrorClass.PERMANENT: "other",
}


class Linear(GraphQLErrors):
    """Linear's API."""

    name = "linear"
    rules: ClassVar[tuple[Rule, ...]] = (
        *LINEAR_RULES,
        *GRAPHQL_RULES,
        CALLERS_FAULT,
        WITHOUT_CODE,
    )
    code_places: ClassVar[tuple[str, ...]] = ("extensions.code", "extensions.type")

    def speaks_graphql(self, path: str) -> bool:
        """On every route: it has no other."""
        del path
        return True

    def read(self, found: Found, seen: Seen, *, stream: bool = False) -> Evidence:
        """The evidence, the word of the type's vocabulary first: it is the one that decides."""
        evidence = super().read(found, seen, stream=stream)
        kind = as_word(at(evidence.error, "extensions.type"))
        if kind is None:
            return evidence
        others = {word: spelt for word, spelt in evidence.words.items() if word != normal(kind)}
        return msgspec.structs.replace(evidence, words={normal(kind): kind, **others})

    def error_extensions(self, envelope: Envelope) -> dict[str, Any]:
        """The type that its client turns into an exception, and our code."""
        rate = envelope.class_ is ErrorClass.RATE_LIMIT
        return {
            "type": _TYPES[envelope.class_],
            "code": "RATELIMITED" if rate else envelope.code,
            "userPresentableMessage": envelope.message,
        }
