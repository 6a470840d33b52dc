"""From what a vendor's SDK raised to an envelope and a verdict, in five steps.

After a terminal code in the body: the class or code that the SDK itself documents, an embedded HTTP
status, a string code of a short list, the bare status, and last `permanent` with everything kept.
What came as an answer is read by the dialect of its provider, as if the answer had been seen
itself; a failure without an answer is told by the end of the chain.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from sidecar.envelope import database, table, transport
from sidecar.envelope.dialects import NAMES, Dialect, get, guess
from sidecar.envelope.meaning import Meaning, classified
from sidecar.envelope.model import Classified, ErrorClass, Seen, Source, Verdict
from sidecar.envelope.raised import Raised
from sidecar.envelope.sdks import UNKNOWN, family_of, texts
from sidecar.envelope.sdks.answer import Answer
from sidecar.envelope.sdks.family import FINAL, NO_ANSWER, Facts, Family, facts_of

_GRAVITY = {Verdict.FAILURE: 4, Verdict.THROTTLE: 3, Verdict.ALIVE: 2, Verdict.NEUTRAL: 1}
# Whether the request had left, as far as the word tells.
_SENT = {
    "connection_refused": False,
    "dns_failure": False,
    "connect_timeout": False,
    "pool_timeout": False,
    "invalid_url": False,
    "missing_credentials": False,
    "read_timeout": True,
    "stream_truncated": True,
    "invalid_upstream_response": True,
}


class _Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What a link of a chain means, and what goes into the envelope beside it."""

    meaning: Meaning
    code: str | None
    message: str
    more: dict[str, Any] = {}
    source: Source = Source.SDK


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller said beside the exception."""

    sdk: str | None
    now: float
    correlation_id: str


def classify(
    raised: Raised,
    *,
    sdk: str | None = None,
    correlation_id: str = "",
    now: float = 0.0,
) -> Classified:
    """Classify what an SDK raised. Never raises.

    Args:
        raised: the exception.
        sdk: `openai`, `boto3-s3`, …; None to tell by class.
        correlation_id: goes into the envelope.
        now: when it was seen, seconds since the epoch.
    """
    asked = _Asked(sdk=sdk, now=now, correlation_id=correlation_id)
    try:
        judged = _judged(raised, asked)
    except Exception as error:  # noqa: BLE001 - a fault in a table must not cost a call
        judged = _fault(raised, error)
    return classified(
        raised,
        judged.meaning,
        source=judged.source,
        code=judged.code,
        message=judged.message,
        correlation_id=correlation_id,
        more=judged.more,
    )


def _fault(raised: Raised, error: Exception) -> _Judged:
    rule = f"fault in classification: {type(error).__name__}"
    status = raised.status or 0
    class_ = table.class_of(status) if status >= 400 else ErrorClass.PERMANENT
    meaning = Meaning(
        class_=class_,
        retryable=table.retryable(class_, status),
        verdict=Verdict.NEUTRAL,
        rule=rule,
    )
    return _Judged(meaning=meaning, code=raised.name, message=raised.message)


def _judged(raised: Raised, asked: _Asked) -> _Judged:
    """The first link that says anything decides; else what its text repeats; else `permanent`."""
    for link in raised.chain():
        judged = _link(link, asked) or _by_driver(link)
        if judged is not None:
            return judged
    for link in raised.chain():
        told = texts.loosely(link)
        judged = None if told is None else _link(told, asked)
        if judged is not None:
            return judged
    facts = facts_of(raised, family_of(raised, asked.sdk) or UNKNOWN)
    return _Judged(
        meaning=msgspec.structs.replace(FINAL, rule="nothing known: permanent, with all kept"),
        code=facts.code or raised.name,
        message=facts.message or raised.name,
    )


def _link(link: Raised, asked: _Asked) -> _Judged | None:
    """What one link of a chain means; None if it says nothing."""
    if link.exceptions:
        return _gravest(link.exceptions, asked)
    family = family_of(link, asked.sdk) or UNKNOWN
    members = family.members(link)
    if members:
        return _gravest(members, asked, sternest=family.sternest)
    facts = facts_of(texts.strictly(link), family)
    if "x-error-envelope" in facts.headers:
        told = _told_by_a_sidecar(facts, asked)
        if told is not None:
            return told
    if link.status is None:
        refused = _by_phrase(link, family)
        if refused is not None:
            return refused
    if family.invents and link.cause is not None and facts.body is None:
        behind = transport.of_chain(link.cause)
        if behind is not None:
            return _by_transport(behind.link, family, facts)
    answer = Answer.of(facts, family, _dialect(link, family, asked), asked.now)
    return (
        _by_answer(answer, link)
        or _by_transport(link, family, facts)
        or _by_mere_status(answer, link)
    )


def _gravest(members: Iterable[Raised], asked: _Asked, *, sternest: bool = False) -> _Judged | None:
    """Of several failures at once the one that says most against going on."""

    def gravity(judged: _Judged) -> tuple[int, int]:
        verdict, final = _GRAVITY[judged.meaning.verdict], int(not judged.meaning.retryable)
        return (final, verdict) if sternest else (verdict, final)

    return max((_judged(member, asked) for member in members), key=gravity, default=None)


def _dialect(link: Raised, family: Family, asked: _Asked) -> Dialect:
    """The provider's; of a client that is used for many, the one that host or report name."""
    if not (family.plain or family.shared):
        return _spoken(family)
    host = link.attrs.get("host")
    told = guess(host) if isinstance(host, str) else get("auto")
    if told.name != "auto":
        return told
    if asked.sdk in NAMES:
        return get(asked.sdk)
    named = family_of(Raised(type=""), asked.sdk)
    return _spoken(family if named is None or named.plain else named)


def _spoken(family: Family) -> Dialect:
    return family.dialect if isinstance(family.dialect, Dialect) else get(family.dialect)


# --- the steps ------------------------------------------------------------------------------


def _told_by_a_sidecar(facts: Facts, asked: _Asked) -> _Judged | None:
    """The answer came through one of these daemons, which has classified it already."""
    seen = Seen(status=facts.status or 200, headers=facts.headers, now=asked.now)
    told = get("sidecar").decided(seen, asked.correlation_id)
    if told is None or told.envelope is None:
        return None
    envelope = told.envelope
    meaning = Meaning(
        class_=envelope.class_,
        retryable=envelope.retryable,
        verdict=told.verdict,
        wait=envelope.retry_after,
        rule=told.rule,
        terminal=told.terminal,
    )
    own = envelope.source is Source.SIDECAR
    return _Judged(
        meaning=meaning,
        code=envelope.code,
        message=envelope.message,
        source=Source.SIDECAR if own else Source.SDK,
    )


def _by_phrase(link: Raised, family: Family) -> _Judged | None:
    """A fixed sentence of the SDK, where it has neither class nor code for it."""
    text = link.message[:4096].lower()
    for phrase, meaning in (*family.says, *UNKNOWN.says) if text else ():
        if phrase in text:
            why = f"{family.name}: refused on this side with its own sentence for it"
            return _Judged(
                meaning=msgspec.structs.replace(meaning, rule=why),
                code=None,
                message=link.message,
                more={"sent": False},
            )
    return None


def _by_driver(link: Raised) -> _Judged | None:
    """A database's exception behind an SDK's, as of a client that keeps its state in one."""
    told = database.driver_told(link)
    if told is None:
        return None
    meaning, code, message = told
    return _Judged(meaning=meaning, code=code or meaning.code or link.name, message=message)


def _by_answer(answer: Answer, link: Raised) -> _Judged | None:
    """Codes, classes, an embedded status: whatever says more than that something came back."""
    decided = answer.decide(link)
    return None if decided is None else _of_answer(answer, decided, link)


def _of_answer(answer: Answer, meaning: Meaning, link: Raised) -> _Judged:
    return _Judged(
        meaning=meaning,
        code=answer.code(meaning, link),
        message=answer.message or link.name,
        more=answer.more(),
    )


def _by_transport(link: Raised, family: Family, facts: Facts) -> _Judged | None:
    """No answer: the most specific of what the link and its causes say."""
    link = msgspec.structs.replace(link, message=facts.message)
    word = family.of_class(link, family.words)
    if word is None and transport.signal_of(link) is None:
        return None
    signal = transport.of_chain(link, word)
    if signal is None:
        return None
    meaning = signal.meaning
    if meaning.code == "stream_truncated" and not family.plain:
        # The SDK was reading for its caller: to whom it is a lost connection.
        meaning = msgspec.structs.replace(
            transport.MEANINGS["connection_reset"],
            rule=f"{meaning.rule}, while the SDK was reading",
        )
    code = meaning.code or signal.link.name
    more: dict[str, Any] = {}
    sent = facts.sent if facts.sent is not None else _SENT.get(code)
    if sent is not None:
        more["sent"] = sent
    if facts.request_id:
        more["upstream_request_id"] = facts.request_id[:200]
    return _Judged(meaning=meaning, code=code, message=facts.message or code, more=more)


def _by_mere_status(answer: Answer, link: Raised) -> _Judged | None:
    """An exception about a 2xx is no success: what came back could not be read."""
    status = answer.facts.status
    if status is None and (answer.facts.body is None or not answer.says_anything):
        return None
    if status is not None and 300 <= status < 400:
        meaning = msgspec.structs.replace(FINAL, rule=f"a {status} that nobody followed")
        return _of_answer(answer, meaning, link)
    if status is not None and not answer.says_anything:
        meaning = msgspec.structs.replace(
            NO_ANSWER, rule=f"an exception about a {status}: what came back cannot be read"
        )
        return _of_answer(answer, meaning, link)
    return _of_answer(answer, answer.by_status(), link)
