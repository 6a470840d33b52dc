"""Holds an answer against what is known of the request: is its status right, and its class?

The truth is the case's own, never the answer's. A status is right if it is one of the class's own
(the contract's table); a class is right if it is one of the case's. An answer that is neither is a
lie to whoever reads it, however honestly meant.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from sidecar.audit import clients
from sidecar.audit.asking import Answered
from sidecar.audit.cases import KINDS, Case
from sidecar.audit.questions import Identity, Question
from sidecar.envelope.model import Envelope, ErrorClass
from sidecar.envelope.policy import fits, status_for

MODEL_NOT_FOUND = "model_not_found"

PASSING = frozenset({ErrorClass.TRANSIENT, ErrorClass.RATE_LIMIT})
"""Classes that an upstream may wear for a moment, whatever it is asked."""


class Result(StrEnum):
    """What a case came to."""

    RIGHT = "right"
    MISLEADS = "misleads"
    ACCEPTED = "accepted"
    UNREACHED = "unreached"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One case, judged.

    Attributes:
        id: names it: `chat/malformed_json`, `no_key`.
        case: what was the matter with the request.
        sent: its method and path.
        expected: the classes that are right.
        status: of the answer; None if there was none.
        class_: what the answer is, `class` in JSON; None if it is no error.
        code: the envelope's code; None if there is none.
        message: the envelope's message; None if there is none.
        retryable: the envelope's; None if there is none.
        verdict: what the daemon's breaker hears.
        rule: why it is that.
        status_right: the status is one of the class's own; None where there is nothing to judge.
        class_right: the class is one of those expected; likewise.
        becomes: the status that the daemon would send in its place; None where it would not.
        result: what it came to.
        note: why, where that needs words.
        breaker: what a breaker that reads statuses only would do.
        openai: what OpenAI's client would do.
        anthropic: what Anthropic's client would do.
        repeated: it was asked twice, since the first answer might have been a moment's trouble.
    """

    id: str
    case: Case
    sent: str
    expected: tuple[ErrorClass, ...]
    status: int | None
    class_: ErrorClass | None = msgspec.field(name="class", default=None)
    code: str | None = None
    message: str | None = None
    retryable: bool | None = None
    verdict: str
    rule: str
    status_right: bool | None = None
    class_right: bool | None = None
    becomes: int | None = None
    result: Result
    note: str = ""
    breaker: str
    openai: clients.Conduct
    anthropic: clients.Conduct
    repeated: bool = False

    @property
    def signature(self) -> tuple[object, ...]:
        """Two answers with the same one say the same."""
        return self.status, self.class_, self.code


def finding(question: Question, answered: Answered, *, in_2xx: bool, repeated: bool) -> Finding:
    """One answer by itself.

    Args:
        question: what was sent.
        answered: what came back.
        in_2xx: the dialect's clients read errors in a 2xx, so such a status is right.
        repeated: it is the second answer.
    """
    envelope = answered.classified.brief
    status = answered.status
    kind = KINDS[question.case]
    class_right = status_right = None
    becomes = None
    if envelope is not None:
        class_right = envelope.class_ in kind.classes
        if status is not None:
            truth = envelope.class_ if class_right else kind.classes[0]
            read = in_2xx and 200 <= status < 300
            status_right = fits(truth, status) or (read and class_right)
            sent = status if read else status_for(answered.classified, status)
            becomes = sent if sent != status else None
    found = Finding(
        id=question.id,
        case=question.case,
        sent=f"{question.method} {question.path}",
        expected=kind.classes,
        status=status,
        class_=None if envelope is None else envelope.class_,
        code=None if envelope is None else envelope.code,
        message=None if envelope is None else envelope.message,
        retryable=None if envelope is None else envelope.retryable,
        verdict=answered.classified.verdict.value,
        rule=answered.classified.rule,
        status_right=status_right,
        class_right=class_right,
        becomes=becomes,
        result=Result.RIGHT,
        breaker=clients.breaker(status),
        openai=clients.openai(status, answered.headers, answered.at),
        anthropic=clients.anthropic(status, answered.headers, answered.at),
        repeated=repeated,
    )
    return _judged(found, envelope)


def _judged(found: Finding, envelope: Envelope | None) -> Finding:
    if envelope is None:
        return _accepted(found)
    if found.status is None:
        return _as(found, Result.MISLEADS, f"no answer ({found.code}), as in an outage")
    if found.class_right and found.status_right:
        vague = found.case is Case.UNKNOWN_MODEL and found.code != MODEL_NOT_FOUND
        return _as(found, Result.RIGHT, "no code says that it is the model") if vague else found
    if found.class_right:
        return _as(found, Result.MISLEADS, f"its status says {_kind_of(found.status)}")
    return _as(found, Result.MISLEADS, f"it says {found.class_}")


def _accepted(found: Finding) -> Finding:
    kind = KINDS[found.case]
    if found.status is not None and 300 <= found.status < 400:
        return _as(found, Result.ACCEPTED, "it leads elsewhere, and was not followed")
    if kind.denies:
        return _as(found, Result.MISLEADS, f"it says that {kind.sent} is fine")
    return _as(found, Result.ACCEPTED, _NOTES[found.case])


_NOTES = {
    Case.UNKNOWN_MODEL: "it answers to any model's name",
    Case.NO_KEY: "no key is needed",
    Case.WRONG_KEY: "no key is looked at",
    Case.MISSING: "it does without",
    Case.WRONG_METHOD: "the path has this method too",
}


_BEFORE_KEYS = frozenset({Case.UNKNOWN_PATH, Case.WRONG_METHOD})
"""What many servers answer before they look at a key."""


def in_context(
    findings: list[Finding], identities: dict[str, Identity], *, key: bool
) -> list[Finding]:
    """The findings with what they say about each other.

    A name that is looked up before the body is read hides the body's faults; a key that is needed
    and not there hides everything; a key that nobody looks at cannot be wrong; and what a path that
    is not there answers to says nothing of keys.

    Args:
        findings: all of an audit.
        identities: whose key each of them was asked with, by id.
        key: there is one of our own.
    """
    own = [one for one in findings if identities[one.id] is Identity.OWN]
    behind = [one for one in own if one.case not in _BEFORE_KEYS]
    locked = bool(behind) and all(one.class_ is ErrorClass.AUTHENTICATION for one in behind)
    named = {one.id.rpartition("/")[0]: one for one in own if one.case is Case.UNKNOWN_MODEL}
    ordinary = {one.signature for one in own if one.case in (Case.UNKNOWN_MODEL, Case.MISSING)}
    nowhere = {one.signature for one in own if one.case is Case.UNKNOWN_PATH}
    placed = []
    for one in findings:
        if identities[one.id] is Identity.OWN:
            placed.append(_of_own(one, locked=locked, key=key, named=named))
        elif one.result is not Result.MISLEADS or locked:
            placed.append(one)
        elif one.signature in ordinary:
            placed.append(_as(one, Result.ACCEPTED, _NOTES[one.case]))
        elif one.signature in nowhere and one.class_ is ErrorClass.PERMANENT:
            placed.append(_as(one, Result.UNREACHED, "the path that was asked is not there"))
        else:
            placed.append(one)
    return placed


def _of_own(one: Finding, *, locked: bool, key: bool, named: dict[str, Finding]) -> Finding:
    if one.class_ is ErrorClass.AUTHENTICATION and (locked or not key):
        # A status that the daemon would leave as it is tells the truth about the key.
        why = "the key was not accepted" if key else "a key is needed"
        return one if one.becomes else _as(one, Result.UNREACHED, why)
    first = named.get(one.id.rpartition("/")[0])
    if first is None or one.case not in (Case.MALFORMED, Case.MISSING):
        return one
    if one.signature == first.signature and first.class_ not in (None, *PASSING):
        return _as(one, Result.UNREACHED, "the model is looked up first")
    return one


def _as(found: Finding, result: Result, note: str) -> Finding:
    return msgspec.structs.replace(found, result=result, note=note)


_KINDS_OF_STATUS = {
    "2": "a success",
    "3": "a redirect",
    "5": "an outage",
}


def _kind_of(status: int) -> str:
    for class_ in ErrorClass:
        if status < 500 and fits(class_, status):
            return class_.value
    return _KINDS_OF_STATUS.get(str(status)[:1], "something else")
