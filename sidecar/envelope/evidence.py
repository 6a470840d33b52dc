"""Reads an error body once, in whatever shape it comes, into the few facts that rules look at.

Providers agree on nothing but JSON: the error may be an object under `error`, a string there, the
whole body, the first of a list, inside the first choice, or a page of HTML. Only these structural
places are read. A model writes about errors and an agent fetches pages about errors, so that no
word in the middle of an answer may ever count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from http import HTTPStatus
from typing import Any

import msgspec

from sidecar.envelope.model import Headers, Seen

# Beside these an `error` is an error; beside an `id` or a `status` it is the state of a resource.
_ERROR_MEMBERS = frozenset(
    {
        "error", "errors", "error_code", "error_description", "error_uri", "message", "msg", "code",
        "type", "detail", "details", "title", "request_id", "requestid", "trace_id", "timestamp",
        "success", "ok", "path", "statuscode", "status_code", "param", "user_id", "result", "data",
        "messages", "headers", "hint", "help", "error_type", "reason", "sequence_number",
        "retry_after", "docs", "documentation_url", "envelope", "signin_url",
    }
)  # fmt: skip
# Words that say no more than that there is an error.
_EMPTY_WORDS = frozenset(
    {"", "error", "none", "null", "unknown", "undefined", "unknown_error", "about:blank"}
)
_HTTP_WORDS = frozenset(
    phrase.lower() for status in HTTPStatus for phrase in (status.phrase, status.name)
)
_MACHINE_WORD = re.compile(r"[A-Za-z0-9._:/#@+-]{1,200}")
_CODE_IN_ERROR = re.compile(
    r"[a-z][a-z0-9]*(?:[_.][a-z0-9]+)+|[A-Z][A-Z0-9_]{2,}|(?:[A-Z][a-z0-9]+){2,}"
)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_HEADING = re.compile(r"<h1[^>]*>(.*?)</h1", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^>]{0,1000}>")
_HTML_START = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)?<(?:!doctype\s+html|html|head|body)\b", re.I | re.S
)

_OPENERS = {"{": "}", "[": "]"}


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

    @property
    def text(self) -> str:
        """The message in lower case, for rules that have nothing but a phrase."""
        return self.message.lower()

    @property
    def in_success(self) -> bool:
        """The answer itself wore a status below 400."""
        return self.seen.status < 400


def decode(body: bytes) -> Any:
    """The JSON value of a body, whatever its media type claims; None if it is none.

    Tolerates a byte order mark, blank lines in front and broken UTF-8. Never raises.
    """
    body = body.removeprefix(b"\xef\xbb\xbf").strip()
    if not body or body[:1] not in b'{["':
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        pass
    try:
        return msgspec.json.decode(body.decode("utf-8", "replace").encode())
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def decode_cut(body: bytes) -> Any:
    """The JSON value of the beginning of a body: open strings and brackets are closed.

    Returns None where even that gives no JSON.
    """
    text = body.decode("utf-8", "ignore").lstrip("\ufeff \t\r\n")
    if text[:1] not in _OPENERS:
        return None
    closers, in_string, escaped, safe = [], False, False, (0, "")
    for index, char in enumerate(text):
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in _OPENERS:
            closers.append(_OPENERS[char])
        elif char in "}]" and closers:
            closers.pop()
            safe = (index + 1, "".join(reversed(closers)))
        elif char == "," and closers:
            safe = (index, "".join(reversed(closers)))
    tail = ("" if not escaped else "\\") + ('"' if in_string else "")
    for attempt in (text + tail + "".join(reversed(closers)), text[: safe[0]] + safe[1]):
        value = decode(attempt.encode())
        if value is not None:
            return value
    return None


def looks_like_html(body: bytes) -> bool:
    """Whether a body begins like a web page."""
    return _HTML_START.match(body[:1024].decode("latin-1")) is not None


def is_truthy_error(value: Any) -> bool:
    """Whether an `error` member says that there is one: null, empty and all-null are none."""
    if isinstance(value, dict):
        return any(is_truthy_error(member) for member in value.values())
    if isinstance(value, str):
        return bool(value.strip())
    return bool(value)


def as_word(value: Any) -> str | None:
    """A code as text: strings and whole numbers; None for anything else or for nothing."""
    if isinstance(value, str):
        value = value.strip()
        return value or None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return None


def status_like(word: str) -> int | None:
    """The HTTP status that a code repeats (`429`, `"429"`), or None: it is a code of its own."""
    return int(word) if len(word) == 3 and word.isdecimal() and 100 <= int(word) < 600 else None


def is_prose(word: str) -> bool:
    """Whether a would-be code is a sentence, a phrase or a foreign script."""
    return "://" not in word and _MACHINE_WORD.fullmatch(word) is None


def normal(word: str) -> str:
    """The spelling in which rules name a code: lower case, underscores, the last part of a URI."""
    word = word.strip().lower()
    if "://" in word:
        word = re.split(r"[/#]", word.rstrip("/#"))[-1]
    return word.replace("-", "_").replace(" ", "_")


def at(value: Any, path: str) -> Any:
    """The member at a dotted path of objects, or None."""
    for name in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


class Found(msgspec.Struct, frozen=True):
    """An error located in a body: the object, what stands around it, and how sure it is."""

    error: dict[str, Any]
    around: dict[str, Any]
    weak: bool = False


def find_error(
    body: Any, *, failed: bool, answers: bool, failing: Mapping[str, str] = {}
) -> Found | None:
    """Locate the error in a decoded body.

    Args:
        body: decoded JSON.
        failed: the status already says that it is an error; then the body itself may be it.
        answers: the route answers with results only, so that an `error` beside them counts.
        failing: finish reasons that are errors, to their codes.

    Returns:
        The error, or None: there is none, or it is data of a resource.
    """
    if isinstance(body, list):
        if len(body) != 1 and not (failed and body):
            return None
        return find_error(body[0], failed=failed, answers=False)
    if not isinstance(body, dict):
        return Found({"message": body}, {}) if failed and isinstance(body, str) else None
    lone = all(name.lower() in _ERROR_MEMBERS for name in body) and not (
        body.get("data") or body.get("result")
    )
    error = body.get("error")
    if is_truthy_error(error) and (failed or answers or lone):
        if isinstance(error, dict):
            return Found(error, body)
        if isinstance(error, list):
            first = error[0]
            return Found(first if isinstance(first, dict) else {"message": str(first)}, body)
        if error is not True:
            return Found(_spoken(str(error), body), body)
    return _find_flat(body, failed=failed, lone=lone) or (
        _find_choice(body, failing) if answers else None
    )


def _spoken(error: str, body: dict[str, Any]) -> dict[str, Any]:
    """An `error` that is a string: a code of OAuth's kind, or a sentence."""
    member: dict[str, Any] = {
        name: value for name, value in body.items() if name != "error" and value is not None
    }
    described = (
        member.get("error_description") or member.get("message") or member.get("description")
    )
    if isinstance(described, str) and described.strip():
        member["message"] = described
        member.setdefault("word", error)
    else:
        member["message"] = error
        member.setdefault("word", error)
    return member


def _find_flat(body: dict[str, Any], *, failed: bool, lone: bool) -> Found | None:
    if body.get("object") == "error" or (body.get("type") == "error" and "message" in body):
        return Found(body, body)
    errors = body.get("errors")
    refused = body.get("success") is False or body.get("ok") is False
    if isinstance(errors, list) and errors and (failed or refused or lone) and not body.get("data"):
        first = errors[0]
        return Found(first if isinstance(first, dict) else {"message": str(first)}, body)
    if failed:
        return Found(body, body) if body else None
    if refused and lone:
        return Found(body, body)
    status = body.get("status")
    if status == "error" and isinstance(body.get("message"), str):
        return Found({name: value for name, value in body.items() if name != "status"}, body)
    stated = as_word(body.get("statusCode") or body.get("status_code") or status) or ""
    if (status_like(stated) or 0) >= 400 and ("title" in body or "message" in body):
        return Found(body, body)
    if set(body) == {"detail"} and isinstance(body["detail"], str):
        return Found(body, body, weak=True)
    return None


def _find_choice(body: dict[str, Any], failing: Mapping[str, str]) -> Found | None:
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    error = choices[0].get("error")
    if isinstance(error, dict) and is_truthy_error(error):
        return Found(error, body)
    reason = choices[0].get("finish_reason")
    code = failing.get(reason) if isinstance(reason, str) else None
    if code is None:
        return None
    return Found({"code": code, "message": f"the answer ended with the reason {reason}"}, body)


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
    for place in (*code_places, *word_places):
        word = as_word(at(error, place))
        if word is not None and normal(word) not in _EMPTY_WORDS:
            if status_like(word) is None:
                words.setdefault(normal(word), word)
            if place in code_places:
                candidates.append(word)
    spoken = as_word(error.get("word"))
    if spoken and _is_code(spoken):
        words.setdefault(normal(spoken), spoken)
        candidates.append(spoken)
    for source in (error, around):
        kind = source.get("type")
        if isinstance(kind, str) and "://" in kind:
            words.setdefault(normal(kind), kind)
            candidates.append(kind)
    return Evidence(
        status=_status_of(error, around, seen),
        seen=seen,
        code=_choose(candidates),
        words=words,
        message=message_of(error) or (message_of(around) if around is not error else ""),
        param=as_word(error.get("param")) if isinstance(error.get("param"), str) else None,
        error=error,
        body=around,
        headers=_with_quoted(seen.headers, error, around),
        weak=found.weak,
        stream=stream,
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
    problem = "problem+json" in (seen.headers.get("content-type") or "")
    if seen.status >= 400 and not problem:
        return seen.status
    places = (
        (error, ("status_code", "statusCode", "status", "code", "http_code")),
        (around, ("status_code", "statusCode", "status")),
    )
    for source, names in places:
        for name in names:
            stated = status_like(as_word(source.get(name)) or "")
            if stated is not None and stated >= 400:
                return stated
    return seen.status


def _with_quoted(headers: Headers, error: dict[str, Any], around: dict[str, Any]) -> Headers:
    """Headers that a gateway quotes inside the body count where the answer has none of its own."""
    quoted: list[tuple[str, str]] = []
    for source in (at(error, "metadata.headers"), around.get("headers")):
        if isinstance(source, dict):
            quoted += [(str(name), str(value)) for name, value in source.items()]
    more = [(name, value) for name, value in quoted if name.lower() not in headers]
    return Headers((*headers.pairs, *more)) if more else headers


def message_of(error: dict[str, Any]) -> str:
    """What an error object tells a person, from the members in which sources say it."""
    for name in ("message", "error_description", "detail", "msg", "title", "description", "Message",
                 "reason"):  # fmt: skip
        value = error.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, dict | list) and value:
            return _told(value)
    return ""


def _told(value: Any) -> str:
    """A validation report (`[{loc, msg}]`) in one line; any other structure as JSON."""
    items = value.get("detail", value) if isinstance(value, dict) else value
    lines = []
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and isinstance(item.get("msg"), str):
            where = ".".join(str(part) for part in item.get("loc") or ())
            lines.append(f"{where}: {item['msg']}" if where else item["msg"])
    return "; ".join(lines) or msgspec.json.encode(value).decode()


def read_text(seen: Seen) -> Evidence:
    """Evidence of a body that is no JSON: a page gives its title, a text its beginning."""
    html = looks_like_html(seen.body)
    text = seen.body[:65536].decode("utf-8", "replace")
    if html:
        title = _TITLE.search(text) or _HEADING.search(text)
        message = unescape(_TAG.sub(" ", title.group(1))) if title else ""
    else:
        message = _TAG.sub(" ", text) if text.lstrip()[:1] == "<" else text
        if "\x00" in message:
            message = ""
    return Evidence(
        status=seen.status, seen=seen, message=message.strip(), headers=seen.headers, html=html
    )


def inner_errors(evidence: Evidence) -> Iterator[Any]:
    """JSON that a gateway wrapped into its own message, decoded; the outermost first."""
    raw = at(evidence.error, "metadata.raw")
    for text in (evidence.message, raw if isinstance(raw, str) else ""):
        start, end = text.find("{"), text.rfind("}")
        if 0 <= start < end:
            inner = decode(text[start : end + 1].encode())
            if isinstance(inner, dict):
                yield inner


_CHALLENGE = re.compile(r'([a-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))', re.IGNORECASE)


def with_challenge(evidence: Evidence) -> Evidence:
    """Add what `WWW-Authenticate` says (RFC 6750); a code in the body is the more specific one."""
    lines = evidence.headers.get_all("www-authenticate")
    if not lines:
        return evidence
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


ERROR_IN_EARNEST = re.compile(rb'"error"(?!\s*:\s*(?:null|\{\s*\}|"\s*"|\[\s*\]|false))')
"""An `error` in a body that is neither null nor empty; a cheap sieve before decoding."""


def as_number_text(value: Any) -> str | None:
    """A wait or a moment out of JSON as text, for the one reader of all its forms."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return f"{value:f}" if isinstance(value, float) else str(value)
    return value if isinstance(value, str) else None
