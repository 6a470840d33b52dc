"""How a stream of a provider fails: its event, or its last frame.

It is framed as the dialect frames the daemon's own errors, and says what the provider says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.bedrock import Bedrock
from sidecar.envelope.dialects.google_apis import GoogleApis
from sidecar.envelope.dialects.graphql_errors import GraphQLErrors
from sidecar.envelope.dialects.mcp import MCP
from sidecar.envelope.dialects.tool import Tool
from sidecar.envelope.event_stream import frame
from sidecar.envelope.model import ErrorClass
from sidecar.faults.filling import encoded, filling, mapped
from sidecar.faults.native import WAIT, envelope_of, line_of, without_envelope
from sidecar.faults.native_edges import EDGES
from sidecar.faults.told import JSON

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

    Args:
        dialect: the provider's.
        class_: what it says.
        path: the path of the request.
        wait: seconds that a rate limit asks for.
        code: in place of its own.
        message: in place of its own.
        now: seconds since the epoch.
    """
    told = line_of(dialect, class_, path, code, message)
    fill = filling(WAIT if wait is None else wait, now)
    told = told._replace(message=str(fill(told.message)))
    event = dialect.stream_error(envelope_of(told, class_, wait), path)
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
    told = line_of(dialect, class_, path, code, message)
    whole = dialect.frame_error(envelope_of(told, class_, wait), content_type)
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


_SSE_DATA = re.compile(rb"^(data: ?|)(\{.*\}|\[.*\])$", re.MULTILINE)


def _overlaid(data: bytes, said: Any) -> bytes:
    """The data of an event of the dialect's, with the members that the provider says otherwise."""
    event = without_envelope(msgspec.json.decode(data))
    if isinstance(event, dict) and isinstance(said, dict):
        event |= {
            name: value
            for name, value in said.items()
            if name in event and (event[name] is None or isinstance(value, type(event[name])))
        }
    return msgspec.json.encode(event)
