"""What a failure outside HTTP means, and the envelope that says so.

Databases and SDKs are read by tables of meanings; here a meaning and the exception it was found
for become an envelope, with the secrets out, in the same form as an answer's.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import msgspec

from sidecar.envelope import retry_after
from sidecar.envelope.compose import RAW_BODY_LIMIT, clean_code, one_line
from sidecar.envelope.credentials import Redactor
from sidecar.envelope.decode import well_formed
from sidecar.envelope.key_shapes import HIDDEN
from sidecar.envelope.model import Classified, Envelope, ErrorClass, Source, Verdict
from sidecar.envelope.raised import DEEPEST, Raised
from sidecar.envelope.redact import is_secret_name

_MOST_TEXT = 4096
_MOST_CODE = 512
_MOST_MEMBERS = 64


class Meaning(msgspec.Struct, frozen=True, kw_only=True):
    """What a kind of failure means.

    Attributes:
        class_: what the caller should do.
        retryable: could the identical call succeed, after a wait or one refresh?
        verdict: what the breaker hears.
        code: the project's own word, or the code it stands for; None keeps the source's own.
        wait: seconds to wait, where the source gives a hint or the work was undone (0).
        rule: what was recognised, and why.
        terminal: no hint of the source revives it.
    """

    class_: ErrorClass
    retryable: bool
    verdict: Verdict
    code: str | None = None
    wait: float | None = None
    rule: str = ""
    terminal: bool = False


def classified(
    raised: Raised,
    meaning: Meaning,
    *,
    source: Source,
    code: str | None,
    message: str,
    correlation_id: str = "",
    more: dict[str, Any] | None = None,
) -> Classified:
    """The answer of a classification out of an exception and its meaning.

    Args:
        raised: the exception as it was caught; goes into `raw`.
        meaning: what it means.
        source: `database` or `sdk`.
        code: the source's own code; None where it has none: then the class name stands for it.
        message: what a person can act on, secrets not yet out.
        correlation_id: goes into the envelope.
        more: further members of `raw`, such as `upstream_request_id`.
    """
    redactor = Redactor(())
    code = None if code is None else code[:_MOST_CODE]
    own = meaning.code or code or raised.name[:_MOST_CODE]
    wait = retry_after.wait(meaning.wait) if meaning.retryable else None
    raw = _well_formed({**shown(raised, redactor), **(more or {})})
    shown_code = clean_code(own, redactor) or "error"
    if code is not None and clean_code(code, redactor) != shown_code:
        raw["code"] = _mended(redactor.text(code)[:200])
    envelope = Envelope(
        class_=meaning.class_,
        source=source,
        code=shown_code,
        message=one_line(message, redactor=redactor) or shown_code,
        retryable=meaning.retryable,
        retry_after=wait,
        correlation_id=correlation_id,
        raw=raw,
    )
    return Classified(
        envelope=envelope, verdict=meaning.verdict, rule=meaning.rule, terminal=meaning.terminal
    )


def _well_formed(raw: dict[str, Any]) -> dict[str, Any]:
    """The same as text that every reader of JSON takes."""
    try:
        msgspec.json.encode(raw)
    except UnicodeError:
        # So few that nobody should pay more for them than for one look.
        mended: dict[str, Any] = _mended(raw)
        return mended
    return raw


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {_mended(name): _mended(held) for name, held in value.items()}
    return [_mended(one) for one in value] if isinstance(value, list) else value


def shown(raised: Raised, redactor: Redactor, deep: int = DEEPEST) -> dict[str, Any]:
    """An exception as plain values for `raw`: type, attributes, answer and causes, bounded."""
    shown: dict[str, Any] = {"type": raised.type}
    for name in ("code", "sqlstate", "status", "errno", "phase"):
        value = getattr(raised, name)
        if value is not None:
            shown[name] = _plain(value, redactor)
    if raised.message:
        shown["message"] = _plain(raised.message, redactor)
    if raised.args:
        shown["args"] = _plain(list(raised.args), redactor)
    if raised.attrs:
        shown["attrs"] = _plain(dict(raised.attrs), redactor)
    if raised.headers.pairs:
        shown["headers"] = redactor.headers(raised.headers)
    if raised.body is not None:
        text = raised.body if isinstance(raised.body, str) else _encoded(raised.body)
        shown["body"] = redactor.text(text[: RAW_BODY_LIMIT + 1024])[:RAW_BODY_LIMIT]
        shown["body_cut"] = len(text) > RAW_BODY_LIMIT
    if raised.cause is not None and deep > 1:
        shown["cause"] = _nested(raised.cause, redactor, deep)
    if raised.exceptions and deep > 1:
        shown["exceptions"] = [_nested(one, redactor, deep) for one in raised.exceptions[:8]]
    return shown


def _nested(raised: Raised, redactor: Redactor, deep: int) -> dict[str, Any]:
    return shown(raised, redactor, deep - 1)


def _encoded(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, UnicodeError):
        return repr(type(value))


def _plain(value: Any, redactor: Redactor, deep: int = 4) -> Any:
    """A value of an exception as JSON can hold it, cut and redacted."""
    if isinstance(value, str):
        return redactor.text(value[: _MOST_TEXT + 256])[:_MOST_TEXT]
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if deep and isinstance(value, dict):
        members = list(value.items())[:_MOST_MEMBERS]
        return {str(name)[:128]: _named(name, held, redactor, deep) for name, held in members}
    if deep and isinstance(value, list | tuple):
        return [_plain(one, redactor, deep - 1) for one in value[:_MOST_MEMBERS]]
    return f"<{type(value).__name__}>"


def _named(name: Any, held: Any, redactor: Redactor, deep: int) -> Any:
    """A member whose name says that nobody may see it is hidden; the code is what this is about."""
    hidden = isinstance(name, str) and name.lower() != "code" and is_secret_name(name)
    if hidden and isinstance(held, str | bytes):
        return HIDDEN
    return _plain(held, redactor, deep - 1)
