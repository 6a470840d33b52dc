"""Where a request goes: the provider it names and the bytes of the target that remain.

The host of a call comes from the configuration alone. Nothing a caller writes into the target
(`@host`, `//host`, an absolute form, dot segments) can change it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from sidecar.proxy.failures import Refused

_DOTS = re.compile(r"(?:\.|%2e){1,2}", re.IGNORECASE)
_IDENTIFIER = re.compile(r"\d+|.*\d.{7,}|.{7,}\d.*|.{33,}|.*[%@:=,\[].*|\.{3}")
_VERSION = re.compile(r"v\d+(?:\.\d+)*(?:(?:alpha|beta)\d*)?", re.IGNORECASE)


REMEMBERED: Final = 256
"""Characters of a target up to which what was read of it is remembered."""

NOT_ALLOWED: Final = {
    "CONNECT": "CONNECT is not forwarded: this is no open proxy",
    "TRACE": "TRACE is not forwarded: its answer would show the headers that are set here",
}
"""Methods that no provider gets, and why."""


class AbsoluteForm(NamedTuple):
    """What an absolute-form target says before its path.

    Attributes:
        scheme: in lower case.
        authority: what follows it up to the path, as it came.
    """

    scheme: str
    authority: str


@dataclass(frozen=True, slots=True)
class Target:
    """A routed request target.

    Attributes:
        provider: the first path segment.
        path: what follows it up to the query, beginning with a slash, as it came.
        query: the query with its question mark, as it came; empty if there was none.
        rest: path and query, byte for byte.
    """

    provider: str
    path: str
    query: str
    rest: str


def parse(method: str, raw: str, *, own: bool | None) -> Target:
    """Reads a raw request target.

    Args:
        method: the request's method.
        raw: the target as it stood on the request line.
        own: for an absolute form, whether its authority is this daemon's; None in origin form.

    Raises:
        Refused: `not_allowed`, `forbidden_host`, `bad_request` or `unknown_provider`.
    """
    if method in NOT_ALLOWED:
        raise Refused("not_allowed", NOT_ALLOWED[method])
    if raw == "*":
        raise Refused("unknown_provider", "the target * names no provider")
    if own is False:
        raise Refused("forbidden_host", "the target's authority is not this daemon's")
    if own:
        raw = origin_form(raw)
    if "#" in raw:
        raise Refused("bad_request", "a request target has no fragment")
    # Most calls go to a few targets; a long one is none of them and would only fill memory.
    return _split(raw) if len(raw) <= REMEMBERED else _split.__wrapped__(raw)


@lru_cache(maxsize=512)
def _split(raw: str) -> Target:
    before, mark, query = raw.partition("?")
    provider, slash, rest = before[1:].partition("/")
    path, query = slash + rest or "/", mark + query
    return Target(provider, path, query, path + query)


def origin_form(raw: str) -> str:
    """The origin form of an absolute-form target."""
    _, _, after = raw.partition("://")
    cut = min((at for at in (after.find(mark) for mark in "/?#") if at >= 0), default=len(after))
    rest = after[cut:]
    return rest if rest.startswith("/") else "/" + rest


def absolute_form(raw: str) -> AbsoluteForm | None:
    """The scheme and authority of a target in absolute form, None in any other."""
    if raw.startswith("/") or "://" not in raw:
        return None
    scheme, _, after = raw.partition("://")
    for mark in "/?#":
        after = after.partition(mark)[0]
    return AbsoluteForm(scheme.lower(), after)


def climbs(path: str) -> bool:
    """Would the dot segments of a path leave the folder it is joined to?"""
    depth = 0
    for segment in path.split("/")[1:]:
        if _DOTS.fullmatch(segment):
            depth -= 1 if len(segment.lower().replace("%2e", ".")) == 2 else 0
        else:
            depth += 1
        if depth < 0:
            return True
    return False


def model(name: str) -> str:
    """The breaker's subject of a model: its name, kept apart from routes.

    A `~` at its beginning becomes `%7E`, and so a `%` there `%25`, or two names would meet.
    """
    return f"%{ord(name[0]):02X}{name[1:]}" if name.startswith(("~", "%")) else name


def route(path: str) -> str:
    """The breaker's subject of a call without a model: `~` and the first two literal segments.

    A segment that looks like an identifier (digits, a long token, an escape) is not literal: one
    breaker per document would never see two failures.
    """
    return _route(path) if len(path) <= REMEMBERED else _route.__wrapped__(path)


@lru_cache(maxsize=512)
def _route(path: str) -> str:
    literal = [
        segment
        for segment in path.split("/")
        if segment and (_VERSION.fullmatch(segment) or not _IDENTIFIER.fullmatch(segment))
    ]
    return "~" + "/".join(literal[:2])
