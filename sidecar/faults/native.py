"""Which line of the tables is meant: by dialect, by route, and by what a rule asks for.

The tables (`native_*.py`) hold what the providers themselves send. On a route that the clients of
another provider ask, a server answers as that one does; what nobody wrote down is said in the
dialect's own shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from sidecar.envelope.dialects.anthropic import Anthropic
from sidecar.envelope.dialects.auto import Auto, by_route
from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.graphql_errors import GraphQLErrors
from sidecar.envelope.dialects.openai import OpenAI
from sidecar.envelope.model import Envelope, ErrorClass, Source
from sidecar.faults.filling import leaves, mapped, renamed
from sidecar.faults.native_codes import CODES
from sidecar.faults.native_edges import EDGES
from sidecar.faults.native_models import MODELS
from sidecar.faults.native_platforms import PLATFORMS
from sidecar.faults.native_servers import SERVERS
from sidecar.faults.native_tools import TOOLS
from sidecar.faults.told import JSON, Table, Told

WAIT: Final = 2.0
"""Seconds that a rate limit asks for where nobody says otherwise."""


NATIVE: Final[Mapping[str, Table]] = {**EDGES, **MODELS, **PLATFORMS, **SERVERS, **TOOLS}
"""By dialect, what its provider sends; a dialect that builds on another inherits its lines."""

_ANTHROPIC: Final = Anthropic()
_OPENAI: Final = OpenAI()
_ROUTES: Final = {"ollama": "/api/chat", "bedrock": "/model/m/converse", "cohere": "/v2/chat"}
"""Routes of their own of the dialects that speak like OpenAI on others."""

_WORDS: Final = {
    ErrorClass.VALIDATION: "invalid_request",
    ErrorClass.AUTHENTICATION: "invalid_api_key",
    ErrorClass.RATE_LIMIT: "rate_limit_exceeded",
    ErrorClass.TRANSIENT: "service_unavailable",
    ErrorClass.PERMANENT: "not_found",
}
"""Where a body has no code, and the shape of an event needs one."""


def line_of(
    dialect: Dialect, class_: ErrorClass, path: str, code: str | None, message: str | None
) -> Told:
    """The line by which a provider says a class, in the words that a rule asks for.

    Args:
        dialect: the provider's.
        class_: what is said.
        path: the path of the request.
        code: in place of its own.
        message: in place of its own.
    """
    told = told_by(dialect, class_, path, code)
    return _reworded(told, dialect, class_, path, code, message)


def told_by(dialect: Dialect, class_: ErrorClass, path: str, code: str | None = None) -> Told:
    """The line of the tables for a dialect, or of the nearest that it builds on.

    Args:
        dialect: the provider's.
        class_: what is said.
        path: the path of the request.
        code: that it has, if any of the class has it.
    """
    names = list(_lineage(_speaker(dialect, path), path))
    for name in names:
        for told in CODES.get(name, {}).get(class_, ()):
            if told.code == code:
                return told
    lines = (NATIVE[name].get(class_) for name in names if name in NATIVE)
    return next((told for told in lines if told is not None), EDGES["generic"][class_])


def _speaker(dialect: Dialect, path: str) -> Dialect:
    """Whose words are read on a route: a server may imitate another provider there."""
    chosen = by_route(path) if isinstance(dialect, Auto) else None
    if chosen is not None:
        return chosen
    probe = envelope_of(EDGES["generic"][ErrorClass.VALIDATION], ErrorClass.VALIDATION, None)
    said = dialect.error_body(probe, 400, path)
    if said == _ANTHROPIC.error_body(probe, 400, path):
        return _ANTHROPIC
    own = _ROUTES.get(dialect.name)
    if said == _OPENAI.error_body(probe, 400, path) and (
        not isinstance(dialect, OpenAI) or (own and dialect.error_body(probe, 400, own) != said)
    ):
        return _OPENAI
    return dialect


def _lineage(dialect: Dialect, path: str) -> Iterator[str]:
    """The names of tables, the most special first."""
    if isinstance(dialect, GraphQLErrors) and not dialect.speaks_graphql("/rest"):
        if dialect.speaks_graphql(path):
            yield from (f"{dialect.name}/graphql", "graphql")
    elif "/interactions" in path:
        yield f"{dialect.name}/interactions"
    yield dialect.name
    for base in type(dialect).__mro__[1:]:
        name = base.__dict__.get("name")
        if isinstance(name, str):
            yield name


def _reworded(
    told: Told,
    dialect: Dialect,
    class_: ErrorClass,
    path: str,
    code: str | None,
    message: str | None,
) -> Told:
    """The line with a code and a message that a rule asks for."""
    if code in (None, told.code) and message in (None, told.message):
        return told
    word = code or told.code
    # What is said of another code would contradict this one.
    sentence = message or (told.message if word == told.code else word.replace("_", " "))
    change = renamed(told, word, sentence)
    reworded = told._replace(
        code=word,
        message=sentence,
        body=_recoded(told, word, sentence),
        headers=tuple((name, str(change(value))) for name, value in told.headers),
        event=None,
    )
    if (code or message) in {*leaves(reworded.body), *dict(reworded.headers).values()}:
        return reworded
    # The provider has no place for it: the dialect's own shape may have one.
    body = dialect.error_body(envelope_of(reworded, class_, None), told.status, path)
    return reworded._replace(body=without_envelope(msgspec.json.decode(body)), media_type=JSON)


def envelope_of(told: Told, class_: ErrorClass, wait: float | None) -> Envelope:
    """What a line says, as the dialects are told of errors."""
    rate = class_ is ErrorClass.RATE_LIMIT
    retryable = rate or class_ is ErrorClass.TRANSIENT
    code = told.code or _WORDS[class_]
    return Envelope(
        class_=class_,
        source=Source.HTTP,
        code=code,
        message=told.message or code.replace("_", " "),
        retryable=retryable,
        retry_after=(WAIT if wait is None and rate else wait) if retryable else None,
        correlation_id="",
    )


def _recoded(told: Told, code: str, message: str) -> Any:
    """The body of a line with another code and message."""
    error = told.body.get("error") if isinstance(told.body, Mapping) else None
    if isinstance(error, Mapping) and error.get("code", "") is None:
        # It has only a type, and that stays what it is.
        said = {**error, "code": code, "message": message}
        return {**told.body, "error": said}
    return mapped(told.body, renamed(told, code, message))


def without_envelope(value: Any) -> Any:
    """A body without the marks of the daemon's own."""
    if isinstance(value, dict):
        return {key: without_envelope(item) for key, item in value.items() if key != "envelope"}
    if isinstance(value, list):
        return [without_envelope(item) for item in value]
    return "api" if value in ("sidecar", "breaker-sidecar") else value
