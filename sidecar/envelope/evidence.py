"""Turns a located error into the few facts that rules look at: codes, status, message, headers.

Everything that a rule may ask is read once, here, so that rules stay data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from html import unescape
from http import HTTPStatus
from typing import Any

import msgspec

from sidecar.envelope.decode import decode_wrapped, looks_like_html
from sidecar.envelope.fields import (
    as_word,
    at,
    is_prose,
    is_reference,
    last_segment,
    message_of,
    normal,
    param_of,
    status_like,
)
from sidecar.envelope.headers import Headers
from sidecar.envelope.locate import Found, find_error, is_problem
from sidecar.envelope.model import Seen

# Words that say no more than that there is an error.
_EMPTY_WORDS = frozenset(
    {"", "error", "none", "null", "unknown", "undefined", "unknown_error", "about:blank"}
)
_HTTP_WORDS = frozenset(
    phrase.lower() for status in HTTPStatus for phrase in (status.phrase, status.name)
)
_CODE_IN_ERROR = re.compile(
    r"[a-z][a-z0-9]*(?:[_.][a-z0-9]+)+|[A-Z][A-Z0-9_]{2,}|(?:[A-Z]+[a-z0-9]+){2,}"
)
_STATED_IN_GRAPHQL = (
    "extensions.http.status",
    "extensions.statusCode",
    "extensions.status_code",
    "extensions.status",
)
# Of a page that says what is wrong: how its name begins, and how it ends. Apart, so that a page of
# nothing but beginnings is read once.
_NAMES = tuple(
    (
        re.compile(f"<{name}(?:[ \t\r\n][^>]{{0,200}})?>", re.IGNORECASE),
        re.compile(f"</{name}", re.IGNORECASE),
    )
    for name in ("title", "h1")
)
_TAG = re.compile(r"<[^>]{0,200}>")
# A gateway in front of a gateway in front of a provider.
_DEEPEST = 3


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What one error says of itself.

    Attributes:
        status: the status that counts: the body's own where the answer wore a 2xx.
        seen: the answer it was read from.
        code: the source's own code, or what it has instead; may be prose; None if it has none.
        words: every code named in a structural place, normalised, to its spelling in the source.
        message: what the source tells a person, unwrapped.
        param: the field or value at fault, where the source names it.
        error: the error object itself, `{}` where it is none.
        body: the whole decoded body, None where it is no JSON.
        headers: those of the answer, and behind them those that the body quotes.
        challenge: the parameters of `WWW-Authenticate`, where the answer has them.
        weak: nothing but a sentence in a 2xx says that it is an error.
        stream: it came as an event of a stream.
        html: the body was a page.
        problem: the body is a problem document (RFC 9457), whose type is a reference.
    """

    status: int
    seen: Seen
    code: str | None = None
    words: dict[str, str] = {}
    message: str = ""
    param: str | None = None
    error: dict[str, Any] = {}
    body: Any = None
    headers: Headers = Headers()
    challenge: dict[str, str] = {}
    weak: bool = False
    stream: bool = False
    html: bool = False
    problem: bool = False

    @property
    def text(self) -> str:
        """The message in lower case, for rules that have nothing but a phrase."""
        return _lower(self.message)


# Several rules ask for the same text in turn.
_lower = lru_cache(maxsize=8)(str.lower)


def read(
    found: Found,
    seen: Seen,
    *,
    code_places: Sequence[str],
    word_places: Sequence[str],
    stream: bool = False,
) -> Evidence:
    """Turn a located error into evidence.

    Args:
        found: the error.
        seen: the answer it came in.
        code_places: dotted paths in the error object, the most specific code first.
        word_places: further paths whose values rules may look at.
        stream: it came as an event.
    """
    error, around = found.error, found.around
    words: dict[str, str] = {}
    candidates: list[str] = []
    problem = is_problem(seen)
    for places, are_codes in ((code_places, True), (word_places, False)):
        for place in places:
            word = as_word(at(error, place))
            if word is None or (problem and place == "type"):
                continue
            spelling = normal(word)
            if spelling in _EMPTY_WORDS:
                continue
            if status_like(word) is None:
                words.setdefault(spelling, word)
            if are_codes:
                candidates.append(word)
    spoken = as_word(error.get("word"))
    if spoken and _is_code(spoken):
        words.setdefault(normal(spoken), spoken)
        candidates.append(spoken)
    for source in (error, around):
        kind = as_word(source.get("type"))
        if kind is None or not (problem or is_reference(kind)):
            continue
        # RFC 9457: a reference, whose last segment is the code; `about:blank` adds nothing.
        segment = last_segment(kind)
        if normal(segment) not in _EMPTY_WORDS and not kind.lower().startswith("about:"):
            words.setdefault(normal(segment), kind)
            candidates.append(kind)
    return Evidence(
        status=_status_of(error, around, seen),
        seen=seen,
        code=_choose(candidates),
        words=words,
        message=message_of(error) or (message_of(around) if around is not error else ""),
        param=param_of(error),
        error=error,
        body=around,
        headers=_with_quoted(seen.headers, error, around),
        weak=found.weak,
        stream=stream,
        problem=problem,
    )


def _is_code(word: str) -> bool:
    return word.lower() not in _HTTP_WORDS and _CODE_IN_ERROR.fullmatch(word) is not None


def _choose(candidates: list[str]) -> str | None:
    """The first that is a code; else the first phrase; else the status that was repeated."""
    own = [word for word in candidates if status_like(word) is None]
    for word in own:
        if not is_prose(word):
            return word
    return own[0] if own else (candidates[0] if candidates else None)


def _status_of(error: dict[str, Any], around: dict[str, Any], seen: Seen) -> int:
    if seen.status >= 400 and not is_problem(seen):
        return _more_precise(seen.status, error, around)
    places = (
        (error, ("status_code", "statusCode", "status", "code", "http_code", "http_status_code")),
        (around, ("status_code", "statusCode", "status")),
        (error, _STATED_IN_GRAPHQL),
    )
    for source, names in places:
        for name in names:
            stated = status_like(as_word(at(source, name)) or "")
            if stated is not None and stated >= 400:
                return stated
    return seen.status


def _more_precise(status: int, error: dict[str, Any], around: dict[str, Any]) -> int:
    """The client's fault that a body states by number under a 400, which says no more than that."""
    if status != 400:
        return status
    for value in (around.get("statusCode"), *(at(error, name) for name in _STATED_IN_GRAPHQL)):
        stated = status_like(as_word(value) or "") or 0
        if 400 < stated < 500:
            return stated
    return status


def _with_quoted(headers: Headers, error: dict[str, Any], around: dict[str, Any]) -> Headers:
    """Headers that a gateway quotes inside the body count where the answer has none of its own."""
    if "metadata" not in error and "headers" not in around:
        return headers
    quoted: list[tuple[str, str]] = []
    for source in (at(error, "metadata.headers"), around.get("headers")):
        if isinstance(source, dict):
            quoted += [(str(name), str(value)) for name, value in source.items()]
    more = [(name, value) for name, value in quoted if name.lower() not in headers]
    return Headers((*headers.pairs, *more)) if more else headers


def read_text(seen: Seen) -> Evidence:
    """Evidence of a body that is no JSON: a page gives its title, a text its beginning."""
    html = looks_like_html(seen.body)
    text = seen.body[:65536].decode("utf-8", "replace")
    if html:
        message = unescape(_TAG.sub(" ", _name_of_page(text)))
    else:
        message = _TAG.sub(" ", text) if text.lstrip()[:1] == "<" else text
        if "\x00" in message:
            message = ""
    return Evidence(
        status=seen.status, seen=seen, message=message.strip(), headers=seen.headers, html=html
    )


def _name_of_page(text: str) -> str:
    for begin, end in _NAMES:
        begun = begin.search(text)
        ended = end.search(text, begun.end()) if begun else None
        if begun and ended:
            return text[begun.end() : ended.start()]
    return ""


def with_header_code(evidence: Evidence, code: str) -> Evidence:
    """Add the code that a header names; one in the body is the more specific one.

    Args:
        evidence: what the body says.
        code: the header's; empty for none.
    """
    if not code:
        return evidence
    own = evidence.code
    return msgspec.structs.replace(
        evidence,
        words={**evidence.words, normal(code): evidence.words.get(normal(code), code)},
        code=code if own is None or is_prose(own) or status_like(own) is not None else own,
    )


def inner_errors(evidence: Evidence) -> Iterator[Any]:
    """What gateways wrapped into a message, decoded; the outermost first, three deep at most."""
    raw = at(evidence.error, "metadata.raw")
    for text in (evidence.message, raw if isinstance(raw, str) else ""):
        for _ in range(_DEEPEST):
            inner = decode_wrapped(text)
            if inner is None:
                break
            yield inner
            found = find_error(inner, failed=True, answers=False)
            text = message_of(found.error) if found else ""  # noqa: PLW2901 - one level further in


_CHALLENGE = re.compile(
    # A name begins where no name goes on, and nothing is tried twice: long ones take no longer.
    r'(?<![a-z_])([a-z_]++)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^\s,"]++))',
    re.IGNORECASE,
)


def with_challenge(evidence: Evidence) -> Evidence:
    """Add what `WWW-Authenticate` says (RFC 6750); a code in the body is the more specific one."""
    if "www-authenticate" not in evidence.headers:
        return evidence
    lines = evidence.headers.get_all("www-authenticate")
    challenge: dict[str, str] = {}
    for name, quoted, bare in _CHALLENGE.findall(", ".join(lines)):
        challenge.setdefault(name.lower(), quoted or bare)
    error = challenge.get("error", "")
    spelt = dict(evidence.words)
    if error:
        spelt.setdefault(normal(error), error)
    return msgspec.structs.replace(
        evidence,
        challenge=challenge,
        words=spelt,
        code=evidence.code or error or None,
        message=evidence.message or challenge.get("error_description", ""),
    )
