"""How the admin plane answers: JSON without a cache, errors in one shape, nothing for a web page.

The browser headers make sure that no page can frame, sniff or embed what stands here, even one
that got past the guards.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # aiohttp would name its own version and Python's.
    "Server": "breaker-sidecar",
}


class AdminError(Exception):
    """A call that the admin plane refuses.

    Attributes:
        status: the HTTP status.
        code: one word for a program.
        message: one line for a person; quotes nothing but what the caller may know.
        headers: to send beside the usual ones.
        details: more fields for the document, beside `error`.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})
        self.details = dict(details or {})

    def answer(self) -> web.Response:
        """`{"error": {"code", "message"}}` and the details."""
        document = {"error": {"code": self.code, "message": self.message}, **self.details}
        return json_answer(document, status=self.status, headers=self.headers)


def json_answer(
    document: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """A JSON document as an answer."""
    return answer(encode_json(document), "application/json", status=status, headers=headers)


def answer(
    body: bytes,
    content_type: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Any body as an answer."""
    fields = {**HEADERS, "Content-Type": content_type, **(headers or {})}
    return web.Response(body=body, status=status, headers=fields)


def encode_json(document: Any) -> bytes:
    """JSON in UTF-8; halves of surrogate pairs, which a model's name may hold, stay escaped."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":")).encode("ascii")
