"""The GraphQL of providers that have a dialect of their own.

Errors come as `errors` beside or instead of `data`, mostly under a 200. They fail the call only if
no data came with them: usable data with errors beside it is an answer. The code stands in
`extensions.code`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from sidecar.envelope.dialects.rule import TWO, Rule, words
from sidecar.envelope.dialects.tool import TOOL_RULES, Tool
from sidecar.envelope.dialects.words import PERMANENT, VALIDATION
from sidecar.envelope.fields import at
from sidecar.envelope.locate import Found, as_object, has_data
from sidecar.envelope.model import Envelope, Seen

GRAPHQL_RULES: tuple[Rule, ...] = (
    Rule(
        name="the document is at fault",
        why="refused before it ran: syntax, types, variables",
        codes=words(
            "graphql_parse_failed graphql_validation_failed bad_user_input user_input_error"
            " operation_resolution_failure persisted_query_not_found"
            " persisted_query_not_supported"
        ),
        class_=VALIDATION,
    ),
    Rule(
        name="the document is at fault",
        why="the words of graphql-ruby's static validation",
        codes=words(
            "anonymousFragment argumentLiteralsIncompatible argumentNotAccepted"
            " argumentNotUnique cannotSpreadFragment directiveCannotBeApplied"
            " directiveNotUniqueForLocation fieldConflict fragmentNotUnique"
            " fragmentOnNonCompositeType infiniteLoop inputFieldNotUnique"
            " invalidOneOfInputObject missingMutationConfiguration missingQueryConfiguration"
            " missingRequiredArguments missingRequiredInputObjectAttribute"
            " missingSubscriptionConfiguration notSingleSubscription"
            " queryContainsSchemaDefinitions selectionMismatch undefinedDirective undefinedField"
            " undefinedType uniquelyNamedOperations useAndDefineFragment variableMismatch"
            " variableNotDefined variableNotUnique variableNotUsed variableRequiresValidType"
            " defaultValueInvalidType invalid_variable parse_error"
        ),
        class_=VALIDATION,
    ),
    *TOOL_RULES,
)

WITHOUT_CODE = Rule(
    name="a GraphQL error without a code",
    why="nothing says whether it will pass: it is neither repeated nor counted",
    statuses=TWO,
    when=lambda evidence: (
        evidence.code is None
        and not evidence.stream
        and isinstance(at(evidence.body, "errors"), list)
    ),
    class_=PERMANENT,
    code="graphql_error",
)


class GraphQLErrors(Tool):
    """An API that speaks GraphQL on one of its routes."""

    name = "graphql-errors"
    rules: ClassVar[tuple[Rule, ...]] = (*GRAPHQL_RULES, WITHOUT_CODE)
    code_places: ClassVar[tuple[str, ...]] = ("extensions.code", *Tool.code_places)
    reads_errors_in_2xx: ClassVar[bool] = True

    def speaks_graphql(self, path: str) -> bool:
        """Whether the route is the one of GraphQL; without a path nobody knows, and it may be."""
        route = path.partition("?")[0].rstrip("/")
        return not route or route.endswith(("/graphql", "/graphql.json"))

    def may_hold_error(self, body: bytes, seen: Seen) -> bool:
        """On the route of GraphQL an answer that has `errors`."""
        return b'"errors"' in body and self.speaks_graphql(seen.path)

    def locate(self, body: Any, seen: Seen) -> Found | None:
        """The first of the errors that has a code, if no data came with them."""
        errors = body.get("errors") if isinstance(body, dict) else None
        if isinstance(errors, list) and errors and self.speaks_graphql(seen.path):
            if seen.status < 400 and has_data(body.get("data")):
                return None
            coded = (error for error in errors if at(error, "extensions.code") is not None)
            return Found(as_object(next(coded, errors[0])), body)
        return super().locate(body, seen)

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """`errors` with one entry, the envelope beside them."""
        del status, path
        return msgspec.json.encode(
            {
                "errors": [
                    {"message": envelope.message, "extensions": self.error_extensions(envelope)}
                ],
                "envelope": envelope,
            }
        )

    def error_extensions(self, envelope: Envelope) -> dict[str, Any]:
        """What stands under `extensions` in an error of the daemon's own."""
        return {"code": self.native_code(envelope)}
