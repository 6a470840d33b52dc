"""What a provider really answers for each class of error, so that a test meets the true thing.

The tables (`native_*.py`) hold what the providers themselves send: statuses, codes, headers,
bodies. On a route that the clients of another provider ask, a server answers as that one does; what
nobody wrote down is said in the dialect's own shape. Nothing of ours is left in an answer: the
envelope beside an error is the daemon's own mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from sidecar.envelope.dialects.anthropic import Anthropic
from sidecar.envelope.dialects.auto import Auto, by_route
from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.bedrock import Bedrock
from sidecar.envelope.dialects.google_apis import GoogleApis
from sidecar.envelope.dialects.graphql_errors import GraphQLErrors
from sidecar.envelope.dialects.mcp import MCP
from sidecar.envelope.dialects.openai import OpenAI
from sidecar.envelope.dialects.tool import Tool
from sidecar.envelope.event_stream import frame
from sidecar.envelope.model import Envelope, ErrorClass, Source
from sidecar.faults.filling import (
    encoded,
    filling,
    mapped,
    number,
    renamed,
    restated,
    tells_wait,
)
from sidecar.faults.native_codes import CODES
from sidecar.faults.native_edges import EDGES
from sidecar.faults.native_models import MODELS
from sidecar.faults.native_platforms import PLATFORMS
from sidecar.faults.native_servers import SERVERS
from sidecar.faults.native_tools import TOOLS
from sidecar.faults.told import JSON, Table, Told

WAIT: Final = 2.0
"""Seconds that a rate limit asks for where nobody says otherwise."""


class Answer(NamedTuple):
    """One answer, ready to be sent."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


NATIVE: Final[Mapping[str, Table]] = {**EDGES, **MODELS, **PLATFORMS, **SERVERS, **TOOLS}
"""By dialect, what its provider sends; a dialect that builds on another inherits its lines."""

STREAMLESS: Final = (Tool, GraphQLErrors, GoogleApis, MCP)
"""Families whose providers stream no answers."""

_BUT_PERMANENT: Final = frozenset(ErrorClass) - {ErrorClass.PERMANENT}
SAID_IN_STREAMS: Final[Mapping[str, frozenset[ErrorClass]]] = {
    # The end of a message has the reason ERROR, and no other.
    "cohere": frozenset({ErrorClass.TRANSIENT}),
    # So has the last of its choices.
    "mistral": frozenset({ErrorClass.TRANSIENT}),
    # Money and models are settled before it.
    "deepseek": _BUT_PERMANENT,
    "xai": _BUT_PERMANENT,
    # The exceptions of ResponseStream; who may call, and what there is, is settled before it.
    "bedrock": frozenset({ErrorClass.VALIDATION, ErrorClass.RATE_LIMIT, ErrorClass.TRANSIENT}),
    # They stand in front of what streams.
    **dict.fromkeys(EDGES.keys() - {"generic"}, frozenset()),
}
"""The classes that a stream of a provider can fail with, where these are not all."""

_FRAME_HEAD: Final = 5
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


def answer(
    dialect: Dialect,
    class_: ErrorClass,
    path: str,
    *,
    wait: float | None = None,
    status: int | None = None,
    code: str | None = None,
    message: str | None = None,
    now: float = 0.0,
) -> Answer:
    """The answer by which a provider says that a call failed like this.

    Args:
        dialect: the provider's.
        class_: what it says.
        path: the path of the request: some servers speak several dialects.
        wait: seconds that a rate limit asks for.
        status: in place of its own.
        code: in place of its own.
        message: in place of its own.
        now: seconds since the epoch, for the headers that name the end of a wait.
    """
    told = told_by(dialect, class_, path, code)
    worn = told.status if status is None else status
    if worn != told.status:
        told = told._replace(body=mapped(told.body, restated(told.status, worn)))
    told = _reworded(told, dialect, class_, path, code, message)
    seconds = WAIT if wait is None else wait
    fill = filling(seconds, now)
    headers = [("content-type", told.media_type)]
    headers += [(name, str(fill(value))) for name, value in told.headers]
    asked = class_ is ErrorClass.RATE_LIMIT or wait is not None
    if asked and (told.retry_after or (wait is not None and not tells_wait(told))):
        headers.append(("retry-after", number(seconds)))
    return Answer(worn, tuple(headers), encoded(mapped(told.body, fill)))


def said_in_streams(dialect: Dialect) -> frozenset[ErrorClass]:
    """The classes that a stream of this provider can fail with."""
    if isinstance(dialect, STREAMLESS):
        return frozenset()
    return SAID_IN_STREAMS.get(dialect.name, frozenset(ErrorClass))


def stream_event(
    dialect: Dialect,
    class_: ErrorClass,
    path: str,
    *,
    wait: float | None = None,
    code: str | None = None,
    message: str | None = None,
    now: float = 0.0,
) -> bytes:
    """The event by which a stream of this provider fails, ready to be sent.

    It is framed as the dialect frames its errors, and says what the provider says.

    Args:
        dialect: the provider's.
        class_: what it says.
        path: the path of the request.
        wait: seconds that a rate limit asks for.
        code: in place of its own.
        message: in place of its own.
        now: seconds since the epoch.
    """
    told = told_by(dialect, class_, path, code)
    told = _reworded(told, dialect, class_, path, code, message)
    fill = filling(WAIT if wait is None else wait, now)
    told = told._replace(message=str(fill(told.message)))
    event = dialect.stream_error(_envelope(told, class_, wait), path)
    if isinstance(dialect, Bedrock) and not event.startswith((b"event:", b"data:")):
        name = told.code[0].lower() + told.code[1:]
        headers = {":message-type": "exception", ":exception-type": name}
        headers[":content-type"] = JSON
        return frame(headers, encoded(mapped(told.body, fill)))
    if told.event is not None:
        return _SSE_DATA.sub(lambda line: line[1] + encoded(mapped(told.event, fill)), event)
    said = mapped(told.body, fill)
    return _SSE_DATA.sub(lambda line: line[1] + _overlaid(line[2], said), event)


def last_frame(
    dialect: Dialect,
    class_: ErrorClass,
    path: str,
    content_type: str,
    *,
    wait: float | None = None,
    code: str | None = None,
    message: str | None = None,
) -> bytes:
    """The frame by which a body of frames fails; empty where the dialect has no such form.

    Args:
        dialect: the provider's.
        class_: what it says.
        path: the path of the request.
        content_type: of the answer.
        wait: seconds that a rate limit asks for.
        code: in place of its own.
        message: in place of its own.
    """
    told = told_by(dialect, class_, path, code)
    told = _reworded(told, dialect, class_, path, code, message)
    whole = dialect.frame_error(_envelope(told, class_, wait), content_type)
    if not whole:
        return b""
    payload = whole[_FRAME_HEAD:]
    if payload.startswith(b"{"):
        payload = msgspec.json.encode({"error": msgspec.json.decode(payload)["error"]})
    else:
        lines = payload.splitlines(keepends=True)
        payload = b"".join(line for line in lines if not line.startswith(b"x-error-envelope"))
        if class_ is ErrorClass.RATE_LIMIT or wait is not None:
            pause = round((WAIT if wait is None else wait) * 1000)
            payload += b"grpc-retry-pushback-ms: %d\r\n" % pause
    return whole[:1] + len(payload).to_bytes(_FRAME_HEAD - 1, "big") + payload


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
    probe = _envelope(EDGES["generic"][ErrorClass.VALIDATION], ErrorClass.VALIDATION, None)
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
    code = code or told.code
    if code != told.code and message is None:
        # What is said of another code would contradict this one.
        message = code.replace("_", " ")
    message = told.message if message is None else message
    if (code, message) == (told.code, told.message):
        return told
    replaced = mapped(told.body, renamed(told, code, message))
    reworded = told._replace(code=code, message=message)
    missing = (code != told.code and not told.code) or (
        message != told.message and not told.message
    )
    if missing or replaced == told.body:
        # The provider has no place for it: the dialect's own shape has one.
        body = dialect.error_body(_envelope(reworded, class_, None), told.status, path)
        return reworded._replace(body=_stripped(msgspec.json.decode(body)), media_type=JSON)
    return reworded._replace(body=replaced)


def _envelope(told: Told, class_: ErrorClass, wait: float | None) -> Envelope:
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


_SSE_DATA = re.compile(rb"^(data: ?|)(\{.*\}|\[.*\])$", re.MULTILINE)


def _overlaid(data: bytes, said: Any) -> bytes:
    """The data of an event of the dialect's, with the members that the provider says otherwise."""
    event = _stripped(msgspec.json.decode(data))
    if isinstance(event, dict) and isinstance(said, dict):
        event |= {
            name: value
            for name, value in said.items()
            if name in event and (event[name] is None or isinstance(value, type(event[name])))
        }
    return msgspec.json.encode(event)


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stripped(item) for key, item in value.items() if key != "envelope"}
    if isinstance(value, list):
        return [_stripped(item) for item in value]
    return value
