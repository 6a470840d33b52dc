"""The answer inside an exception, read by the dialect of its provider.

An SDK keeps the status, the headers and most of the body of what it raised for. Put together again
they are judged as the answer itself would be, with what the SDK's own tables know in front.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from sidecar.envelope import compose, http
from sidecar.envelope.compose import Decision
from sidecar.envelope.decode import decode, decode_cut, first_data
from sidecar.envelope.dialects.base import Dialect
from sidecar.envelope.evidence import Evidence, read_text
from sidecar.envelope.fields import as_word, is_prose, normal, status_like
from sidecar.envelope.headers import Headers
from sidecar.envelope.locate import Found
from sidecar.envelope.meaning import Meaning
from sidecar.envelope.model import Classified, Envelope, ErrorClass, Seen
from sidecar.envelope.raised import Raised
from sidecar.envelope.sdks.allowlist import ALLOWED
from sidecar.envelope.sdks.family import Facts, Family

_MOST_BODY = 262144
_NO_ANSWER = Decision(class_=ErrorClass.PERMANENT, code=None, rule="there was no answer", bare=True)


class Answer:
    """One answer, its evidence, and what the dialect makes of it."""

    def __init__(
        self, facts: Facts, family: Family, dialect: Dialect, evidence: Evidence, decision: Decision
    ) -> None:
        self.facts = facts
        self._family = family
        self._dialect = dialect
        self._evidence = evidence
        self._decision = decision
        self._classified: Classified | None = None

    @classmethod
    def of(cls, facts: Facts, family: Family, dialect: Dialect, now: float) -> Answer:
        """Read the facts of an exception as an answer; if there was none, nothing is asked."""
        seen = Seen(
            status=facts.status or 200,
            headers=_headers(facts, dialect.should_retry_headers),
            body=_bytes(facts.body),
            now=now,
        )
        if not facts.tell:
            return cls(facts, family, dialect, _said(facts, seen), _NO_ANSWER)
        dialect = dialect.for_answer(seen)
        # Whoever answered may word the wish otherwise than whoever was asked.
        seen = msgspec.structs.replace(seen, headers=_headers(facts, dialect.should_retry_headers))
        evidence = _completed(_evidence(seen, dialect), facts)
        return cls(facts, family, dialect, *http.decide(evidence, dialect))

    @property
    def says_anything(self) -> bool:
        """Whether it names a code: then a 2xx held an error, and is not merely unreadable."""
        return self._evidence.code is not None and not is_prose(self._evidence.code)

    @property
    def message(self) -> str:
        """What a person can act on."""
        return self._envelope().message if self._evidence.message or self.facts.status else ""

    def decide(self, link: Raised) -> Meaning | None:
        """What codes, class and status mean; None if there is at most a 2xx.

        A code that the family's tables know is the most special, terminal or not; then what the
        dialect recognised, the kind that a code names, the class, an embedded status, a
        code that is the same everywhere, a bare status.
        """
        by_code = self._by_code(self._family.codes)
        if by_code is not None:
            return by_code
        if not self._decision.bare:
            return self._settled(self._decision)
        by_kind = self._by_code(self._family.kinds)
        if by_kind is not None:
            return by_kind
        status = self.facts.status
        meaning = self._family.by_status.get(status or 0)
        if meaning is None:
            meaning = self._family.of_class(link, self._family.classes)
        if meaning is not None:
            return self._meant(meaning, self._family.name)
        if status is None or status < 400:
            return self._by_code(ALLOWED)
        embedded = self.facts.body is not None or bool(self.facts.headers.pairs)
        return self.by_status() if embedded else self._by_code(ALLOWED) or self.by_status()

    def by_status(self) -> Meaning:
        """What the status means, or an error inside a success that nobody knows."""
        return self._settled(self._decision)

    def code(self, meaning: Meaning, link: Raised) -> str | None:
        """The source's own code, or what stands for it; None if the project's word has to do."""
        envelope = self._envelope()
        if meaning.code is not None:
            own = (envelope.raw or {}).get("code")
            return own if isinstance(own, str) else None
        status = self.facts.status
        nothing = envelope.code == str(self._evidence.seen.status)
        return link.name if nothing and (status is None or status < 300) else envelope.code

    def more(self) -> dict[str, Any]:
        """What goes into `raw` beside the exception."""
        raw = self._envelope().raw or {}
        names = ("upstream_request_id", "retry_after", "resets_in")
        more = {name: raw[name] for name in names if name in raw}
        if self.facts.request_id and "upstream_request_id" not in more:
            more["upstream_request_id"] = self.facts.request_id[:200]
        if self.facts.sent is not None:
            more["sent"] = self.facts.sent
        return more

    # --- inside ---------------------------------------------------------------------------

    def _by_code(self, known: Mapping[str, Meaning]) -> Meaning | None:
        for code in self._codes() if known else ():
            meaning = known.get(code.lower())
            if meaning is not None:
                return self._meant(meaning, f"{self._family.name} {code}")
        return None

    def _codes(self) -> Iterator[str]:
        yield from self.facts.codes
        if self.facts.code is not None:
            yield self.facts.code
        if self._evidence.code is not None:
            yield self._evidence.code

    def _meant(self, meaning: Meaning, name: str) -> Meaning:
        """A meaning of a table with what the answer adds: the wait, and a wish not to repeat."""
        decision = Decision(
            class_=meaning.class_,
            code=meaning.code,
            retryable=meaning.retryable,
            verdict=meaning.verdict,
            rule=f"{name}: {meaning.rule}" if meaning.rule else name,
            raw_code=self._evidence.code,
            terminal=meaning.terminal or not meaning.retryable,
        )
        return self._settled(decision)

    def _settled(self, decision: Decision) -> Meaning:
        # A documented constant is for callers who have nothing better; an SDK has a back-off.
        self._decision = msgspec.structs.replace(decision, wait=None)
        self._classified = None
        envelope, found = self._envelope(), self._found()
        wait = envelope.retry_after
        if wait is None and envelope.retryable:
            wait = self.facts.wait
        return Meaning(
            class_=envelope.class_,
            retryable=envelope.retryable,
            verdict=found.verdict,
            code=decision.code,
            wait=wait,
            rule=decision.rule,
            terminal=decision.terminal,
        )

    def _envelope(self) -> Envelope:
        envelope = self._found().envelope
        assert envelope is not None
        return envelope

    def _found(self) -> Classified:
        if self._classified is None:
            self._classified = compose.classified(
                self._evidence, self._decision, self._dialect, correlation_id=""
            )
        return self._classified


def _headers(facts: Facts, wishes: Sequence[str]) -> Headers:
    """The headers, without a wish to repeat.

    The SDK has heard that itself and given up; it still tells a passing conflict, and nothing else.
    """
    given = facts.headers
    if facts.again is None and not any(name in given for name in wishes):
        return given
    pairs = [
        (name, held)
        for name, held in given
        if name.lower() not in wishes or held.strip().lower() != "true" or facts.status == 409
    ]
    if facts.again is not None:
        pairs.append((wishes[0], str(facts.again).lower()))
    return Headers(pairs)


def _bytes(body: Any) -> bytes:
    if body is None:
        return b""
    if isinstance(body, str):
        return body[:_MOST_BODY].encode("utf-8", "replace")
    try:
        return msgspec.json.encode(body)[:_MOST_BODY]
    except (TypeError, ValueError, RecursionError, OverflowError):
        return b""


def _evidence(seen: Seen, dialect: Dialect) -> Evidence:
    """What the body says: an exception was raised for it, so that it is an error on any status."""
    body = decode(seen.body)
    if body is None and (event := first_data(seen.body)):
        body = decode(event)
    if body is None and seen.body[:1] in b"{[":
        body = decode_cut(seen.body)
    failed = msgspec.structs.replace(seen, status=max(seen.status, 400))
    found = None if body is None else dialect.locate(body, failed)
    if found is None:
        return read_text(seen)
    evidence = dialect.read(found, failed)
    if failed.status == seen.status:
        return evidence
    return msgspec.structs.replace(evidence, seen=seen, status=_stated(found) or seen.status)


def _stated(found: Found) -> int | None:
    """The status that an error repeats inside an answer of another."""
    for source in (found.error, found.around):
        for name in ("status_code", "statusCode", "status", "code"):
            status = status_like(as_word(source.get(name)) or "")
            if status is not None and status >= 400:
                return status
    return None


def _said(facts: Facts, seen: Seen) -> Evidence:
    return Evidence(status=seen.status, seen=seen, message=facts.message, headers=seen.headers)


def _completed(evidence: Evidence, facts: Facts) -> Evidence:
    """With what the SDK keeps outside the body."""
    words = dict(evidence.words)
    code = evidence.code
    named = [word for word in (facts.code, *facts.codes) if word and not is_prose(word)]
    for word in named:
        words.setdefault(normal(word), word)
    if named and (code is None or is_prose(code) or status_like(code) is not None):
        code = named[0]
    return msgspec.structs.replace(
        evidence, code=code, words=words, message=evidence.message or facts.message, weak=False
    )
