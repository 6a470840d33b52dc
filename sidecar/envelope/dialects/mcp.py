"""JSON-RPC and MCP: an error object beside an id, at any status, in JSON or in an event.

A number in `error.code` decides where HTTP says nothing of its own. A tool that failed is a result
with `isError`, written for the model: it is reported and passes untouched, and its text is never
read for a cause. A batch is passed on whole. Numbers: jsonrpc.org and modelcontextprotocol.io.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec

from sidecar.envelope.decode import ERROR_IN_EARNEST
from sidecar.envelope.dialects.base import Heard
from sidecar.envelope.dialects.generic import Generic
from sidecar.envelope.dialects.rule import FIVE, TWO, Rule, statuses, words
from sidecar.envelope.dialects.words import AUTHENTICATION, PERMANENT, TRANSIENT, VALIDATION
from sidecar.envelope.evidence import Evidence
from sidecar.envelope.fields import as_word
from sidecar.envelope.locate import Found, is_truthy_error
from sidecar.envelope.model import Envelope, ErrorClass, Seen

_TOOL_FAILED = re.compile(rb'"isError"\s*:\s*true')
_SERVER_DEFINED = frozenset(f"_{number}" for number in range(32000, 32100))

# Under a client's status HTTP has said more than a number of JSON-RPC does: servers write -32000
# beside every one of them.
_SAYS_NOTHING = TWO | FIVE

MCP_RULES = (
    Rule(
        name="a tool failed",
        why="isError: the result is for the model, and the server is well",
        codes=words("tool_error"),
        statuses=TWO,
        when=lambda evidence: evidence.error.get("isError") is True,
        class_=PERMANENT,
    ),
    Rule(
        name="a person must act first",
        why="-32042: a consent or a login at a URL",
        codes=words("-32042"),
        class_=AUTHENTICATION,
    ),
    Rule(
        name="the request is at fault",
        why="-32700: no JSON, -32600: no request, -32602: parameters, -32020 to -32022: what MCP"
        " wants of a client",
        codes=words("-32700 -32600 -32602 -32020 -32021 -32022"),
        statuses=_SAYS_NOTHING,
        class_=VALIDATION,
    ),
    Rule(
        name="no repetition finds it",
        why="-32601: no such method, -32002: no such resource",
        codes=words("-32601 -32002"),
        statuses=_SAYS_NOTHING | statuses(400, 404),
        class_=PERMANENT,
    ),
    Rule(
        name="a fault of the server",
        why="-32603, and the range that servers define for themselves",
        codes=words("-32603") | _SERVER_DEFINED,
        statuses=_SAYS_NOTHING,
        class_=TRANSIENT,
    ),
)

_CODES = {
    ErrorClass.VALIDATION: -32600,
    ErrorClass.AUTHENTICATION: -32000,
    ErrorClass.RATE_LIMIT: -32000,
    ErrorClass.TRANSIENT: -32000,
    ErrorClass.PERMANENT: -32000,
}


class MCP(Generic):
    """A server that speaks JSON-RPC over HTTP, MCP above all."""

    name = "mcp"
    rules: ClassVar[tuple[Rule, ...]] = (*MCP_RULES, *Generic.rules)
    reads_errors_in_2xx: ClassVar[bool] = True
    signs: ClassVar[tuple[bytes, ...]] = (b'"result"', b'"error"')

    def is_model_route(self, method: str, path: str) -> bool:
        """None: a call of a tool is no question to a model, whatever its path is called."""
        del method, path
        return False

    def only_listens(self, method: str, path: str) -> bool:
        """Clients keep a stream open for what the server has to say; for hours that is nothing."""
        del path
        return method == "GET"

    def may_hold_error(self, body: bytes, seen: Seen) -> bool:
        """For an error in earnest, or a tool that failed."""
        if b'"isError"' in body and _TOOL_FAILED.search(body) is not None:
            return True
        if b'"jsonrpc"' in body:
            return b'"error"' in body and ERROR_IN_EARNEST.search(body) is not None
        return super().may_hold_error(body, seen)

    def locate(self, body: Any, seen: Seen) -> Found | None:
        """The error of a reply; of a batch none, unless the status says that all of it failed."""
        if isinstance(body, list):
            replies = [item for item in body if isinstance(item, dict)]
            return self.locate(replies[0], seen) if replies and seen.status >= 400 else None
        reply = _of_reply(body) if isinstance(body, dict) else None
        if reply is not None or (isinstance(body, dict) and "jsonrpc" in body):
            return reply
        return super().locate(body, seen)

    def read(self, found: Found, seen: Seen, *, stream: bool = False) -> Evidence:
        """The same whether the reply came as JSON or as an event."""
        del stream
        return super().read(found, seen)

    def hear(self, name: str | None, value: dict[str, Any]) -> Heard | None:
        """A reply is what the caller waits for; requests and notices of the server come before."""
        del name
        if "jsonrpc" not in value:
            return None
        if "method" in value:
            return Heard(content=True)
        return Heard(error=_of_reply(value), content=True, done=True)

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """A reply with an error, to a request whose id is not known."""
        del status, path
        return msgspec.json.encode(_reply(envelope))

    def stream_error(self, envelope: Envelope, path: str) -> bytes:
        """The same as a `message` event, the only kind that MCP knows."""
        del path
        return b"event: message\ndata: " + msgspec.json.encode(_reply(envelope)) + b"\n\n"


def _reply(envelope: Envelope) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": None,
        "error": {
            "code": _CODES[envelope.class_],
            "message": envelope.message,
            "data": {"code": envelope.code, "envelope": envelope},
        },
        "envelope": envelope,
    }


def _of_reply(body: dict[str, Any]) -> Found | None:
    """The error of one reply, or the tool that failed in it."""
    error = body.get("error")
    if "jsonrpc" in body and is_truthy_error(error):
        return Found(error if isinstance(error, dict) else {"message": str(error)}, body)
    result = body.get("result")
    if not isinstance(result, dict) or result.get("isError") is not True:
        return None
    return Found({"code": "tool_error", "message": _told(result), "isError": True}, body)


def _told(result: dict[str, Any]) -> str:
    content = result.get("content")
    for part in content if isinstance(content, list) else ():
        text = as_word(part.get("text")) if isinstance(part, dict) else None
        if text:
            return text
    return "the tool failed"
