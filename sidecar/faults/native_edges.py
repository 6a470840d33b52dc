"""What the boxes in front of any API answer, and APIs of which nobody knows more than HTTP.

An edge has no error of every class: nginx checks no keys, unless it was told to. The status then
stands for the class, in a page of the edge's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sidecar.faults.told import (
    HTML,
    TEXT,
    A,
    P,
    R,
    T,
    Table,
    Told,
    V,
    aws,
    flat,
)

_PAGE: Final = (
    "<html>\r\n<head><title>{0}</title></head>\r\n<body>\r\n<center><h1>{0}</h1></center>\r\n"
    "<hr><center>{1}</center>\r\n</body>\r\n</html>\r\n"
)
_CLOUDFLARE: Final = (
    '<!DOCTYPE html>\n<html lang="en-US">\n<head><title>{1} | api.example.test</title></head>\n'
    '<body><div id="cf-wrapper"><div id="cf-error-details"><h1><span>{1}</span> '
    '<span class="code-label">Error code {0}</span></h1></div></div></body>\n</html>\n'
)


def _nginx(status: int, reason: str) -> Told:
    page = _PAGE.format(f"{status} {reason}", "nginx")
    return Told(status, "", "", page, (("server", "nginx"),), HTML, retry_after=False)


def _cloudflare(status: int, number: int, title: str) -> Told:
    headers = (("server", "cloudflare"), ("cf-ray", "0000000000000000-SJC"))
    return Told(status, "", "", _CLOUDFLARE.format(number, title), headers, HTML)


def _envoy(status: int, text: str) -> Told:
    return Told(status, "", text, text, (("server", "envoy"),), TEXT, retry_after=False)


def _oauth(status: int, error: str, description: str) -> Told:
    return flat(status, error, description, error=error, error_description=description)


def _problem(status: int, title: str, detail: str) -> Told:
    told = flat(status, "", detail, type="about:blank", title=title, status=status, detail=detail)
    return told._replace(media_type="application/problem+json")


def _plain(status: int, code: str, message: str) -> Told:
    return flat(status, code, message, error={"code": code, "message": message})


EDGES: Final[Mapping[str, Table]] = {
    "aws-edge": {
        V: aws(400, "BadRequestException", "Invalid request body"),
        A: aws(401, "UnauthorizedException", "Unauthorized"),
        R: aws(429, "TooManyRequestsException", "Too Many Requests"),
        T: aws(502, "InternalServerErrorException", "Internal server error"),
        P: aws(403, "MissingAuthenticationTokenException", "Missing Authentication Token"),
    },
    "cloudflare": {
        V: _nginx(400, "Bad Request")._replace(headers=(("server", "cloudflare"),)),
        A: _nginx(401, "Authorization Required")._replace(headers=(("server", "cloudflare"),)),
        R: _cloudflare(429, 1015, "You are being rate limited"),
        T: _cloudflare(522, 522, "Connection timed out"),
        P: _cloudflare(403, 1020, "Access denied"),
    },
    "envoy": {
        V: _envoy(400, "Bad Request"),
        A: _envoy(401, "Jwt is missing"),
        R: _envoy(429, "local_rate_limited"),
        T: _envoy(503, "no healthy upstream"),
        P: _envoy(404, ""),
    },
    "generic": {
        V: _plain(400, "invalid_request", "a field of the request is not valid"),
        A: _plain(401, "invalid_api_key", "the key is not valid"),
        R: _plain(429, "rate_limit_exceeded", "too many requests"),
        T: _plain(503, "service_unavailable", "the service is unavailable; try again later"),
        P: _plain(404, "not_found", "there is no such thing"),
    },
    "nginx": {
        V: _nginx(400, "Bad Request"),
        A: _nginx(401, "Authorization Required"),
        R: _nginx(429, "Too Many Requests"),
        T: _nginx(502, "Bad Gateway"),
        P: _nginx(404, "Not Found"),
    },
    "oauth": {
        V: _oauth(400, "invalid_request", "The grant type is missing"),
        A: _oauth(400, "invalid_grant", "The refresh token is not valid"),
        R: _oauth(429, "rate_limit_exceeded", "Too many requests"),
        T: _oauth(503, "temporarily_unavailable", "The server is overloaded"),
        P: _oauth(404, "not_found", "There is no such endpoint"),
    },
    "problem-json": {
        V: _problem(422, "Unprocessable Content", "name: must not be empty"),
        A: _problem(401, "Unauthorized", "The token is not valid"),
        R: _problem(429, "Too Many Requests", "The limit of requests is reached"),
        T: _problem(503, "Service Unavailable", "The service is unavailable"),
        P: _problem(404, "Not Found", "There is no such thing"),
    },
}
"""By dialect; `generic` stands for all of which nothing more is known."""
