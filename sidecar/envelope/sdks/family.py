"""What a family of SDKs is: where it keeps what it knows, and what its own codes and classes mean.

A family is mostly data: codes and classes that the SDK or its service documents, each group with
the reason. What the answer itself says is left to the dialect of its provider, so that a code in a
body is judged in one place, whoever received it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sidecar.envelope.decode import decode
from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.fields import as_word, status_like
from sidecar.envelope.headers import Headers
from sidecar.envelope.meaning import Meaning
from sidecar.envelope.model import ErrorClass, Verdict
from sidecar.envelope.raised import Raised

THROTTLE = Meaning(class_=ErrorClass.RATE_LIMIT, retryable=True, verdict=Verdict.THROTTLE)
#: Two calls met, or something is still on its way: the server works.
CONFLICT = Meaning(class_=ErrorClass.TRANSIENT, retryable=True, verdict=Verdict.ALIVE)
OUTAGE = Meaning(class_=ErrorClass.TRANSIENT, retryable=True, verdict=Verdict.FAILURE)
#: A server's fault that no repetition mends.
BROKEN = Meaning(class_=ErrorClass.TRANSIENT, retryable=False, verdict=Verdict.FAILURE)
#: Nothing failed: this side took the call back.
WITHDRAWN = Meaning(class_=ErrorClass.TRANSIENT, retryable=True, verdict=Verdict.NEUTRAL)
INVALID = Meaning(class_=ErrorClass.VALIDATION, retryable=False, verdict=Verdict.ALIVE)
REFUSED = Meaning(class_=ErrorClass.AUTHENTICATION, retryable=False, verdict=Verdict.ALIVE)
FINAL = Meaning(class_=ErrorClass.PERMANENT, retryable=False, verdict=Verdict.ALIVE)
EXPIRED = Meaning(
    class_=ErrorClass.AUTHENTICATION,
    retryable=True,
    verdict=Verdict.ALIVE,
    code="token_expired",
    terminal=True,
)


def worded(meaning: Meaning, code: str) -> Meaning:
    """The same meaning under a code of the project's own."""
    return msgspec.structs.replace(meaning, code=code)


def because(meaning: Meaning, why: str) -> Meaning:
    """The same meaning with its reason, which `rule` reports."""
    return msgspec.structs.replace(meaning, rule=why)


SPENT = worded(FINAL, "quota_exhausted")
NO_CREDENTIALS = worded(REFUSED, "missing_credentials")
NO_ANSWER = worded(OUTAGE, "invalid_upstream_response")


def named(*groups: tuple[str, Meaning, str]) -> dict[str, Meaning]:
    """A table of codes: each group is a reason, a meaning and codes in one line.

    Codes are compared without case, for protocols of one service spell them differently.
    """
    table: dict[str, Meaning] = {}
    for why, meaning, codes in groups:
        told = msgspec.structs.replace(meaning, rule=why)
        table |= {code.lower(): told for code in codes.split()}
    return table


def classes(module: str, *groups: tuple[str, Meaning, str]) -> dict[str, Meaning]:
    """A table of classes of one module, in groups as of `named`."""
    table: dict[str, Meaning] = {}
    for why, meaning, names in groups:
        told = msgspec.structs.replace(meaning, rule=why)
        table |= {f"{module}.{name}": told for name in names.split()}
    return table


def statuses(module: str, **given: int) -> dict[str, int]:
    """The statuses that classes of one module stand for, from their bare names."""
    return {f"{module}.{name}": status for name, status in given.items()}


def words(module: str, **given: str) -> dict[str, str]:
    """The words of `transport` that classes of one module stand for: the word, its classes."""
    return {f"{module}.{name}": word for word, names in given.items() for name in names.split()}


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What an exception of an SDK says, brought into the form of an answer.

    Attributes:
        status: of the answer; None where there was none.
        code: the SDK's own code, where it keeps one outside the body.
        codes: further codes, which its family's tables may know; the most specific first.
        headers: of the answer.
        body: of the answer, as the provider's dialect reads it; None where nobody kept it.
        message: what the source tells a person, where the body does not say it.
        wait: seconds, where the SDK keeps the wait outside headers and body.
        again: what the service said about repeating, outside headers that everybody reads.
        request_id: the provider's id of the request, where the SDK keeps one.
        sent: whether the request had left, where the SDK tells.
    """

    status: int | None = None
    code: str | None = None
    codes: tuple[str, ...] = ()
    headers: Headers = Headers()
    body: Any = None
    message: str = ""
    wait: float | None = None
    again: bool | None = None
    request_id: str | None = None
    sent: bool | None = None

    @property
    def tell(self) -> bool:
        """Whether there is anything of an answer: a status, a code, a body."""
        return self.status is not None or bool(self.code or self.codes) or self.body is not None


def changed(facts: Facts, **changes: Any) -> Facts:
    """The same facts, some of them said better."""
    return msgspec.structs.replace(facts, **changes)


def _same(_: Raised, facts: Facts) -> Facts:
    return facts


def _nobody(_: Raised) -> tuple[Raised, ...]:
    return ()


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One family of SDKs.

    Attributes:
        name: that `rule` reports.
        packages: beginnings of dotted class names; the longest of all families wins.
        sdks: the names by which a report may call it.
        dialect: of the provider that answers, or its name.
        codes: its codes, in lower case, to what they mean.
        kinds: codes that name a mere kind: they count where the dialect recognises nothing.
        classes: its classes, by dotted names, to what they mean beyond status and code; None where
            a class says less than its bases do.
        statuses: its classes that stand for a status, for a report that has only the class.
        words: its classes that stand for a failure without an answer, to the word of `transport`.
        says: fixed sentences of the SDK, in lower case, for what it has neither class nor code for.
        by_status: statuses that this service uses in a way of its own.
        invents: it gives a status to failures that had none; without an answer the causes count.
        plain: a client of anything: the provider is told by host and shape.
        shared: made for one provider, and used for others that speak alike: the host tells.
        read: where it keeps what it knows.
        members: the failures inside one failure, as of a bulk call; the gravest counts.
        sternest: of several members one that no repetition mends counts before any other.
    """

    name: str
    packages: tuple[str, ...]
    sdks: tuple[str, ...] = ()
    dialect: str | Dialect = "auto"
    codes: Mapping[str, Meaning] = {}
    kinds: Mapping[str, Meaning] = {}
    classes: Mapping[str, Meaning | None] = {}
    statuses: Mapping[str, int] = {}
    words: Mapping[str, str] = {}
    says: tuple[tuple[str, Meaning], ...] = ()
    by_status: Mapping[int, Meaning] = {}
    invents: bool = False
    plain: bool = False
    shared: bool = False
    read: Callable[[Raised, Facts], Facts] = _same
    members: Callable[[Raised], tuple[Raised, ...]] = _nobody
    sternest: bool = False

    def of_class(self, raised: Raised, table: Mapping[str, Any]) -> Any:
        """What a table of classes says of an exception; its own class before its bases."""
        for name in raised.names:
            if name in table:
                return table[name]
        if table and "." not in raised.type:
            # A report of other people's code may know the bare name only.
            for dotted, value in table.items():
                if dotted.rpartition(".")[2] == raised.type:
                    return value
        return None


_STATUS_PLACES = ("status_code", "http_status", "status", "statusCode")


def facts_of(raised: Raised, family: Family) -> Facts:
    """The facts of an exception: what its fields say, then what its family knows better."""
    word = as_word(raised.code)
    status = raised.status
    if status is None:
        status = next(
            (found for place in _STATUS_PLACES if (found := _status(raised.attrs.get(place)))),
            None,
        )
    elif not 100 <= status <= 999:
        # Zero is what clients write where there was no answer.
        status = None
    if word is not None and status_like(word):
        status = status or status_like(word)
        word = None
    if status is None:
        status = family.of_class(raised, family.statuses)
    request_id = as_word(raised.attrs.get("request_id"))
    facts = Facts(
        status=status,
        code=word,
        headers=raised.headers,
        body=decoded(raised.body),
        message=raised.message,
        request_id=request_id,
    )
    return family.read(raised, facts)


def _status(value: Any) -> int | None:
    return status_like(as_word(value) or "")


def decoded(body: Any) -> Any:
    """A body that was kept as text, decoded if it is JSON."""
    if isinstance(body, str) and body[:4096].lstrip()[:1] in {"{", "["}:
        value = decode(body.encode("utf-8", "replace"))
        return body if value is None else value
    return body


def member(value: Any, *path: str) -> Any:
    """The member at a path of objects, the first of a list counting for it; else None."""
    for name in path:
        if isinstance(value, list) and value:
            value = value[0]
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def seconds(value: Any, scale: float = 1.0) -> float | None:
    """A number of seconds, or of another unit, out of a number or its text; None if it is none."""
    if isinstance(value, str):
        try:
            value = float(value) if len(value) < 32 else None
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        wait = float(value) * scale
    except OverflowError:
        return None
    return wait if 0 <= wait < float("inf") else None
