"""Reads a request of the admin plane: path, sender, leave and body, each within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiohttp import web

from sidecar.admin.answers import AdminError
from sidecar.admin.guard import bearer_matches, host_allowed, origin_allowed

LARGEST_BODY = 64 * 1024
"""Bytes of a body that steers something."""
_BODY_SECONDS = 10.0


def target_path(request: web.BaseRequest) -> str:
    """The path as it came, still encoded; an absolute form of ourselves is read as a path."""
    target = request.raw_path
    scheme, separator, rest = target.partition("://")
    if separator and scheme.lower() in {"http", "https"}:
        target = "/" + rest.partition("/")[2]
    return target.partition("?")[0].partition("#")[0]


def check_caller(request: web.BaseRequest, allowed: Sequence[str]) -> None:
    """Refuse what a web page sent, or what came by a name that is not ours.

    Args:
        request: the call.
        allowed: the configured names.

    Raises:
        AdminError: 400 for more than one Host, else 403.
    """
    hosts = request.headers.getall("Host", [])
    if len(hosts) > 1:
        raise AdminError(400, "bad_request", "more than one Host")
    host = hosts[0] if hosts else None
    scheme, separator, rest = request.raw_path.partition("://")
    if separator and not scheme.startswith("/"):
        # RFC 9112, 3.2.2: the authority of an absolute form stands above Host.
        host = rest.partition("/")[0].partition("?")[0]
    if not host_allowed(host, allowed):
        raise AdminError(
            403,
            "forbidden_host",
            "this Host is not answered: use localhost, an address, or a name of allowed_hosts",
        )
    for origin in request.headers.getall("Origin", [None]):
        for site in request.headers.getall("Sec-Fetch-Site", [None]):
            if not origin_allowed(origin, site, host):
                raise AdminError(403, "forbidden_origin", "calls from foreign pages are refused")


def check_method(request: web.BaseRequest, *allowed: str) -> None:
    """Refuse other methods with 405 and the ones that there are."""
    if request.method not in allowed:
        names = ", ".join(allowed)
        raise AdminError(
            405, "method_not_allowed", f"this call is {names}", headers={"Allow": names}
        )


def check_token(request: web.BaseRequest, token: str | None) -> None:
    """Refuse with 401 what does not carry the token of the configuration."""
    if not bearer_matches(request.headers.get("Authorization"), token):
        raise AdminError(
            401,
            "token_required",
            "send the token of admin.token_file as `Authorization: Bearer …`",
            headers={"WWW-Authenticate": 'Bearer realm="breaker-sidecar"'},
        )


def check_mutating(request: web.BaseRequest, token: str | None) -> None:
    """Refuse a call that changes something without the header that no foreign page can send.

    Args:
        request: the call.
        token: needed too, where there is one.
    """
    if not _is_marked(request):
        raise AdminError(
            403,
            "admin_header_required",
            "calls that change something need the header `x-sidecar-admin: 1`",
        )
    if token is not None:
        check_token(request, token)


def may_see_raw(request: web.BaseRequest, token: str | None) -> bool:
    """Whether a call carries what it takes to be shown `raw`: the header and, if any, the token."""
    allowed = token is None or bearer_matches(request.headers.get("Authorization"), token)
    return allowed and _is_marked(request)


def _is_marked(request: web.BaseRequest) -> bool:
    return request.headers.get("x-sidecar-admin", "").strip() == "1"


async def read_body(request: web.BaseRequest, largest: int = LARGEST_BODY) -> bytes:
    """The body of a call, of at most `largest` bytes and within ten seconds.

    Raises:
        AdminError: 413 or 408.
    """
    too_large = AdminError(413, "too_large", f"the body is larger than {largest // 1024} KiB")
    if (request.content_length or 0) > largest:
        raise too_large
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > largest:
                    raise too_large
    except TimeoutError:
        raise AdminError(408, "body_timeout", "the body did not come within 10 s") from None
    return bytes(body)
