"""A dialect for a host that nobody named: by what only one provider sends, by route, by shape."""

from __future__ import annotations

from typing import ClassVar

from sidecar.envelope.decode import decode
from sidecar.envelope.dialects.anthropic import Anthropic
from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.bedrock import Bedrock
from sidecar.envelope.dialects.compatible import Compatible
from sidecar.envelope.dialects.edges_aws import is_api_gateway
from sidecar.envelope.dialects.fingerprints import by_body, by_header
from sidecar.envelope.dialects.gemini import Gemini, route_of
from sidecar.envelope.dialects.generic import Generic
from sidecar.envelope.dialects.graphql import GraphQL
from sidecar.envelope.dialects.grpc_web import GrpcWeb, end_flag
from sidecar.envelope.dialects.mcp import MCP
from sidecar.envelope.dialects.shopify import Shopify
from sidecar.envelope.model import Envelope, Seen

_ANTHROPIC = Anthropic()
_BEDROCK = Bedrock()
_COMPATIBLE = Compatible()
_GEMINI = Gemini()
_GENERIC = Generic()
_GRAPHQL = GraphQL()
_GRPC_WEB = GrpcWeb()
_MCP = MCP()
_SHOPIFY = Shopify()
# Routes that many providers have.
_SHARED: tuple[Dialect, ...] = (_COMPATIBLE, _GRAPHQL)

_COMPATIBLE_ROUTES = (
    "/chat/completions", "/completions", "/responses", "/embeddings", "/moderations",
    "/images/generations",
)  # fmt: skip


_LONGEST_REPLY = 65536
"""Bytes of a good answer that is looked at for JSON-RPC: what tells of an error is short."""


def by_route(path: str) -> Dialect | None:
    """The dialect whose clients ask this route, or None."""
    route = path.partition("?")[0].rstrip("/")
    if route.endswith(("/v1/messages", "/messages/count_tokens", "/messages/batches")):
        return _ANTHROPIC
    if route.endswith(_COMPATIBLE_ROUTES):
        return _COMPATIBLE
    if route.endswith("/graphql"):
        return _GRAPHQL
    if route.endswith("/graphql.json"):
        return _SHOPIFY
    if route.endswith("/mcp"):
        return _MCP
    # These name the model in the path, in a form that is nobody else's.
    if _BEDROCK.model_of(path) is not None:
        return _BEDROCK
    return _GEMINI if route_of(path)[1] and _GEMINI.is_model_route("POST", path) else None


def by_shape(seen: Seen) -> Dialect:
    """The dialect whose errors look like this answer; the body is decoded for errors only."""
    if "grpc-status" in seen.headers or end_flag(seen.headers.get("content-type")) is not None:
        return _GRPC_WEB
    if seen.status < 400 and len(seen.body) <= _LONGEST_REPLY and seen.body.find(b'"jsonrpc"') >= 0:
        # Its clients read errors under any status.
        return _MCP
    body = decode(seen.body) if seen.status >= 400 else None
    if "x-amzn-errortype" in seen.headers and not is_api_gateway(seen.headers):
        return _BEDROCK
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        if isinstance(body["error"].get("details"), list) and "status" in body["error"]:
            return _GEMINI
        if body.get("type") == "error" and isinstance(body["error"].get("type"), str):
            return _ANTHROPIC
        if body["error"].keys() >= {"message", "type"}:
            return _COMPATIBLE
        if "jsonrpc" in body:
            return _MCP
    return _GENERIC


class Auto(Generic):
    """Chooses for each answer."""

    name = "auto"
    rules: ClassVar = Generic.rules

    def for_answer(self, seen: Seen) -> Dialect:
        """By a header or a form of one provider's, by route, then by shape."""
        route = by_route(seen.path)
        if route is not None and route not in _SHARED:
            return route
        own = by_header(seen.headers)
        if own is None and seen.status >= 400:
            own = by_body(decode(seen.body), seen.body)
        return own or route or by_shape(seen)

    def model_of(self, path: str) -> str | None:
        """As the dialect of the route names it."""
        chosen = by_route(path)
        return None if chosen is None else chosen.model_of(path)

    def repeatable(self, method: str, path: str) -> bool:
        """As the dialect of the route says."""
        chosen = by_route(path)
        return (
            super().repeatable(method, path) if chosen is None else chosen.repeatable(method, path)
        )

    def streams_json(self, method: str, path: str) -> bool:
        """As the dialect of the route says."""
        chosen = by_route(path)
        return chosen is not None and chosen.streams_json(method, path)

    def error_headers(self, envelope: Envelope, path: str) -> list[tuple[str, str]]:
        """By which the clients of this route know the error."""
        chosen = by_route(path)
        return [] if chosen is None else chosen.error_headers(envelope, path)

    def error_body(self, envelope: Envelope, status: int, path: str) -> bytes:
        """In the form that the clients of this route read."""
        chosen = by_route(path)
        if chosen is None:
            return super().error_body(envelope, status, path)
        return chosen.error_body(envelope, status, path)

    def stream_error(self, envelope: Envelope, path: str) -> bytes:
        """In the form that the clients of this route read."""
        chosen = by_route(path)
        if chosen is None:
            return super().stream_error(envelope, path)
        return chosen.stream_error(envelope, path)
