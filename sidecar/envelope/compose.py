"""Puts an envelope together: code, message, waits and what was seen, with the secrets out.

The last step of every classification of an HTTP answer. Here `X-Should-Retry` is heard, and what a
rule left open follows from class and status.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from sidecar.envelope import retry_after, table
from sidecar.envelope.credentials import PATTERNS_ONLY, Redactor, Secrets
from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.dialects.rule import BUDGET_WORDS
from sidecar.envelope.evidence import Evidence, inner_errors
from sidecar.envelope.fields import (
    at,
    is_prose,
    is_reference,
    last_segment,
    message_of,
    status_like,
)
from sidecar.envelope.locate import find_error
from sidecar.envelope.model import Classified, Envelope, ErrorClass, Seen, Source, Verdict

MESSAGE_LIMIT = 500
CODE_LIMIT = 64
ID_LIMIT = 128
RAW_BODY_LIMIT = 65536

_ILLEGAL_IN_ID = re.compile(r"[^A-Za-z0-9._:/-]")
_ILLEGAL_IN_CODE = re.compile(r"[^A-Za-z0-9._:/#-]")
# Half a surrogate pair is no text that UTF-8, or a strict reader of JSON, knows.
_NOT_ONE_LINE = re.compile(r"[\s\x00-\x1f\x7f\u2028\u2029\ud800-\udfff]+")


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule decided; what is None follows from class and status.

    Attributes:
        class_: None only for weak evidence that no rule took up: no error.
        code: the project's own word, or None for the source's own code.
        retryable: before `X-Should-Retry`.
        verdict: what the breaker hears.
        rule: name and reason.
        raw_code: the source's code, where `code` replaces it.
        by_code: a code decided, not a phrase or a status.
        wait: a documented wait in seconds.
        terminal: stronger than `X-Should-Retry`.
        settled: decided by the operator: nothing in the answer changes it.
        bare: nothing was recognised; the status alone, or the mere fact of an error, decided.
    """

    class_: ErrorClass | None
    code: str | None
    rule: str
    retryable: bool | None = None
    verdict: Verdict | None = None
    raw_code: str | None = None
    by_code: bool = False
    wait: float | None = None
    terminal: bool = False
    settled: bool = False
    bare: bool = False


def classified(
    evidence: Evidence,
    decision: Decision,
    dialect: Dialect,
    correlation_id: str,
    secrets: Secrets = tuple,
) -> Classified:
    """The answer of a classification out of evidence and decision.

    Args:
        evidence: what the answer says.
        decision: what that means.
        dialect: of the provider.
        correlation_id: goes into the envelope.
        secrets: the credentials of the request, which the answer may echo; asked here only.
    """
    redactor = Redactor(secrets())
    class_ = decision.class_ or ErrorClass.PERMANENT
    retryable = decision.retryable
    if retryable is None:
        retryable = table.retryable(class_, evidence.status)
    verdict = decision.verdict or table.verdict(class_, evidence.status)
    if not decision.settled:
        class_, retryable, verdict = _obey(
            evidence,
            decision,
            class_,
            wish=dialect.should_retry(evidence.headers),
            retryable=retryable,
            verdict=verdict,
        )
    code, raw_code = _codes(evidence, decision, redactor)
    hint = wait_of(evidence, dialect, class_) if retryable else None
    wait = retry_after.wait(hint[0] if hint else decision.wait) if retryable else None
    envelope = Envelope(
        class_=class_,
        source=Source.HTTP,
        code=code,
        message=message_line(evidence, redactor),
        retryable=retryable,
        retry_after=wait,
        correlation_id=correlation_id,
    )
    return Classified(
        envelope=envelope,
        verdict=verdict,
        rule=decision.rule,
        terminal=decision.terminal,
        look=Look(evidence, dialect, class_, code, raw_code, redactor),
        request_id=_request_id(evidence, dialect, redactor),
    )


def without_secrets(classified: Classified, secrets: Secrets) -> Classified:
    """The same, an envelope that was composed elsewhere without the credentials of the request."""
    envelope = classified.envelope
    if envelope is None:
        return classified
    redactor = Redactor(secrets())
    hidden = within_bounds(envelope, redactor)
    hidden = msgspec.structs.replace(hidden, raw=_hidden(envelope.raw, redactor))
    return classified.replaced(hidden)


def within_bounds(envelope: Envelope, redactor: Redactor = PATTERNS_ONLY) -> Envelope:
    """An envelope that was made elsewhere, in the letters and lengths that the contract allows.

    Whoever sends one may be no daemon of ours: a wait that never ends would be slept through.
    """
    wait = retry_after.wait(envelope.retry_after) if envelope.retryable else None
    code = clean_code(envelope.code, redactor) or "error"
    return msgspec.structs.replace(
        envelope,
        code=code,
        message=one_line(envelope.message, redactor=redactor) or code,
        retry_after=wait,
        correlation_id=_ILLEGAL_IN_ID.sub("_", envelope.correlation_id)[:ID_LIMIT],
    )


def _hidden(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, dict):
        return {name: _hidden(member, redactor) for name, member in value.items()}
    return value


def _obey(
    evidence: Evidence,
    decision: Decision,
    class_: ErrorClass,
    *,
    wish: str | None,
    retryable: bool,
    verdict: Verdict,
) -> tuple[ErrorClass, bool, Verdict]:
    """`X-Should-Retry`, its two literal values: it changes whether to repeat, never the verdict.

    It cannot revive a terminal code. A conflict (409) that may be repeated is a passing one. An
    expired token stays retryable: not to repeat as it is does not speak of after a refresh.
    """
    if wish == "false":
        if decision.code == "token_expired":
            return class_, retryable, verdict
        return class_, False, verdict
    if wish != "true" or decision.terminal:
        return class_, retryable, verdict
    if class_ is ErrorClass.PERMANENT:
        if evidence.status != 409:
            return class_, retryable, verdict
        return ErrorClass.TRANSIENT, True, Verdict.ALIVE
    return class_, True, verdict


def _codes(evidence: Evidence, decision: Decision, redactor: Redactor) -> tuple[str, str | None]:
    """The envelope's code, and the source's where it was replaced or a rule went by it."""
    own = decision.raw_code or evidence.code
    if decision.code is not None:
        code = clean_code(decision.code, redactor)
        return code, own if own is not None and own != code else None
    source = evidence.code
    if decision.by_code and (source is None or is_prose(source) or status_like(source)):
        source = own
    code = ""
    if source is not None and not is_prose(source):
        named = evidence.problem or is_reference(source)
        code = clean_code(last_segment(source) if named else source, redactor)
    if not code.strip("_.:/#-"):
        # The status of a stream that fails after a 200 is no code of the failure.
        code = "stream_error" if evidence.stream and evidence.status < 400 else str(evidence.status)
    return code, source if source is not None and (source != code or decision.by_code) else None


def clean_code(code: str, redactor: Redactor = PATTERNS_ONLY) -> str:
    """A code in the letters of the contract, at most 64 of them."""
    return _ILLEGAL_IN_CODE.sub("_", redactor.text(code))[:CODE_LIMIT]


def one_line(text: str, limit: int = MESSAGE_LIMIT, redactor: Redactor = PATTERNS_ONLY) -> str:
    """A redacted line of at most `limit` characters; of a longer text head and tail are kept.

    What explains a failure stands at the end of a long report as often as at its beginning.
    """
    return _shortened(redactor.text(text), limit)


def _shortened(text: str, limit: int = MESSAGE_LIMIT) -> str:
    if "  " in text or not text.isprintable():
        text = _NOT_ONE_LINE.sub(" ", text)
    text = text.strip()
    if len(text) <= limit:
        return text
    head = limit * 3 // 5
    mark = f" … [{len(text)} characters] … "
    return text[:head].rstrip() + mark + text[len(text) - (limit - head - len(mark)) :].lstrip()


def message_line(evidence: Evidence, redactor: Redactor = PATTERNS_ONLY) -> str:
    """What a person can act on: the source's words, unwrapped, with the value it blames."""
    text = evidence.message
    for inner in inner_errors(evidence):
        found = find_error(inner, failed=True, answers=False)
        told = message_of(found.error) if found else ""
        if told:
            start = text.find("{")
            text = f"{text[:start].strip()} {told}" if start > 0 else f"{told}"
            break
    else:
        raw = at(evidence.error, "metadata.raw")
        if isinstance(raw, str) and raw.strip() and raw not in text:
            text = f"{text}: {raw}" if text else raw
    if len(text) > 20000:
        # First, for a secret that is cut in two is found no more.
        text = redactor.literally(text)
        text = text[:10000] + " … " + text[-10000:]
    text = redactor.text(text).rstrip()
    if evidence.param and evidence.param not in text:
        blamed = redactor.text(evidence.param)
        text = f"{text} (at {blamed})" if text else f"at {blamed}"
    return _shortened(text) or _shortened(redactor.text(_wordless(evidence)))


def _wordless(evidence: Evidence) -> str:
    """What is told of an error that says nothing for a person: not that its status is good."""
    if evidence.status >= 400:
        return table.phrase(evidence.status)
    code = evidence.code
    named = code if code and not is_prose(code) else "an error without a word about it"
    return f"the upstream reported {named} in an answer with the status {evidence.status}"


def wait_of(
    evidence: Evidence, dialect: Dialect | None, class_: ErrorClass = ErrorClass.RATE_LIMIT
) -> tuple[float, str] | None:
    """The wait that the answer asks for, the most precise source first, and its spelling there."""
    headers, now = evidence.headers, evidence.seen.now
    found = retry_after.from_headers(headers, now)
    if dialect is not None:
        in_body = dialect.wait_in_body(evidence)
        found = in_body if dialect.body_wait_first and in_body else found or in_body
    if found is None and class_ is ErrorClass.RATE_LIMIT:
        found = retry_after.from_reset(headers, now)
    return found


def _shown_body(seen: Seen, redactor: Redactor) -> str:
    body = seen.body[: RAW_BODY_LIMIT + 1024].decode("utf-8", "replace")
    if seen.truncated or len(seen.body) > RAW_BODY_LIMIT + 1024:
        return redactor.cut_text(body)[:RAW_BODY_LIMIT]
    return redactor.whole(body)[:RAW_BODY_LIMIT]


class Look:
    """What was seen of one error, made when somebody asks for it.

    Attributes:
        size: about how many bytes it will take.
    """

    __slots__ = ("_class", "_code", "_dialect", "_evidence", "_raw_code", "_redactor", "size")

    def __init__(
        self,
        evidence: Evidence,
        dialect: Dialect,
        class_: ErrorClass,
        code: str,
        raw_code: str | None,
        redactor: Redactor,
    ) -> None:
        self._evidence = evidence
        self._dialect = dialect
        self._class = class_
        self._code = code
        self._raw_code = raw_code
        self._redactor = redactor
        self.size = 1024 + len(evidence.seen.body)

    def __call__(self) -> dict[str, Any]:
        """Status, headers and body, with the secrets out."""
        evidence, dialect, redactor = self._evidence, self._dialect, self._redactor
        seen = evidence.seen
        raw: dict[str, Any] = {
            "status": seen.status,
            "headers": redactor.headers(seen.headers),
            "body": _shown_body(seen, redactor),
            "body_cut": seen.truncated or len(seen.body) > RAW_BODY_LIMIT,
        }
        if self._raw_code is not None:
            raw["code"] = redactor.text(redactor.literally(self._raw_code)[:200])
        request_id = _request_id(evidence, dialect, redactor)
        if request_id is not None:
            raw["upstream_request_id"] = request_id
        asked = seen.headers.get("retry-after")
        if asked is None and (hint := wait_of(evidence, dialect, self._class)):
            asked = hint[1]
        if asked is not None:
            raw["retry_after"] = redactor.text(asked)
        if self._code in BUDGET_WORDS:
            resets_in = dialect.resets_in(evidence)
            if resets_in is not None:
                raw["resets_in"] = resets_in
        return raw


def _request_id(evidence: Evidence, dialect: Dialect, redactor: Redactor) -> str | None:
    found = _told_id(evidence, dialect)
    return None if found is None else redactor.text(found)[:200]


def _told_id(evidence: Evidence, dialect: Dialect) -> str | None:
    for name in dialect.request_id_headers:
        value = evidence.headers.get(name)
        if value:
            return value
    for source in (evidence.body, evidence.error):
        for name in ("request_id", "requestId", "request-id"):
            value = source.get(name) if isinstance(source, dict) else None
            if isinstance(value, str) and value:
                return value
    return None
