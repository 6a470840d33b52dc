"""The few things that a failure of a database can mean, and the tables that say which.

Every vendor's file is rows of these: a meaning with its reason, and the numbers, states, words or
phrases that stand for it. Whether work was undone, whether it is known that it was, and whose fault
it is decides; the names of the drivers' classes decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sidecar.envelope.meaning import Meaning
from sidecar.envelope.model import ErrorClass, Verdict
from sidecar.envelope.raised import Raised

_LONGEST_WORD = 80
"""Characters of the longest code that any table knows, and some."""

_LONGEST = 8192
"""Characters of a text that phrases are looked for in; servers say theirs at the beginning."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What one exception of a chain tells.

    Attributes:
        meaning: what that means; its code, if any, stands for the source's.
        code: the source's own code, None where it has none.
        text: the source's words for a person, without what the driver put around them.
        vague: something deeper in the chain may know better.
    """

    meaning: Meaning
    code: str | None = None
    text: str = ""
    vague: bool = False


# --- meanings -------------------------------------------------------------------------------


def _transient(
    why: str, *, retryable: bool, verdict: Verdict, code: str | None, wait: float | None = None
) -> Meaning:
    return Meaning(
        class_=ErrorClass.TRANSIENT,
        retryable=retryable,
        verdict=verdict,
        code=code,
        wait=wait,
        rule=why,
    )


def undone(why: str, code: str | None = None) -> Meaning:
    """The server works and has undone the work: the same transaction may follow at once."""
    return _transient(why, retryable=True, verdict=Verdict.ALIVE, code=code, wait=0.0)


def contended(why: str, code: str | None = None) -> Meaning:
    """The server works and made us wait, or refused to: a short wait is wise."""
    return _transient(why, retryable=True, verdict=Verdict.ALIVE, code=code)


def unwell(why: str, code: str | None = None) -> Meaning:
    """The server cannot be reached, or cannot serve anybody for now."""
    return _transient(why, retryable=True, verdict=Verdict.FAILURE, code=code)


def broken(why: str, code: str | None = None) -> Meaning:
    """The server failed, and no repetition mends it, or nobody knows what it did."""
    return _transient(why, retryable=False, verdict=Verdict.FAILURE, code=code)


def dead_handle(why: str, code: str | None = None) -> Meaning:
    """The connection was dead before the call: nothing new about the server."""
    return _transient(why, retryable=True, verdict=Verdict.NEUTRAL, code=code, wait=0.0)


def own_limit(why: str, code: str | None = None) -> Meaning:
    """Something of this process was busy: nothing about the server."""
    return _transient(why, retryable=True, verdict=Verdict.NEUTRAL, code=code)


def mistaken(why: str, code: str | None = None) -> Meaning:
    """The caller's own: data, statement or order of calls."""
    return _for_caller(ErrorClass.VALIDATION, why, code)


def denied(why: str, code: str | None = None) -> Meaning:
    """Not let in, or not allowed to."""
    return _for_caller(ErrorClass.AUTHENTICATION, why, code)


def renewable(why: str) -> Meaning:
    """A session or token ran out; a new one will do."""
    return Meaning(
        class_=ErrorClass.AUTHENTICATION,
        retryable=True,
        verdict=Verdict.ALIVE,
        code="token_expired",
        rule=why,
    )


def throttled(why: str, code: str | None = None, wait: float | None = None) -> Meaning:
    """A share or a rate is used up; the server works."""
    return Meaning(
        class_=ErrorClass.RATE_LIMIT,
        retryable=True,
        verdict=Verdict.THROTTLE,
        code=code,
        wait=wait,
        rule=why,
    )


def final(why: str, code: str | None = None) -> Meaning:
    """No repetition helps, and it is not the caller's data."""
    return _for_caller(ErrorClass.PERMANENT, why, code)


def _for_caller(class_: ErrorClass, why: str, code: str | None) -> Meaning:
    return Meaning(class_=class_, retryable=False, verdict=Verdict.ALIVE, code=code, rule=why)


UNKNOWN = final("nothing is known of this code: kept, not guessed at")


# --- tables ---------------------------------------------------------------------------------


class Numbers:
    """A table of numbers and ranges of them; of rows that overlap the later one counts."""

    def __init__(self, rows: Iterable[tuple[Meaning, str]]) -> None:
        self._single: dict[int, tuple[int, Meaning]] = {}
        self._ranges: list[tuple[int, int, int, Meaning]] = []
        for row, (meaning, numbers) in enumerate(rows):
            for word in numbers.split():
                first, _, last = word.partition("..")
                if last:
                    self._ranges.append((row, int(first), int(last), meaning))
                else:
                    self._single[int(first)] = (row, meaning)
        self._ranges.reverse()

    def get(self, number: int) -> Meaning | None:
        """What a number means, or None."""
        row, found = self._single.get(number, (-1, None))
        for above, first, last, meaning in self._ranges:
            if above <= row:
                break
            if first <= number <= last:
                return meaning
        return found

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.get(number) is not None

    def __getitem__(self, number: int) -> Meaning:
        meaning = self.get(number)
        if meaning is None:
            raise KeyError(number)
        return meaning


def by_number(*rows: tuple[Meaning, str]) -> Numbers:
    """A table of numbers; a row lists them in words, ranges with two dots."""
    return Numbers(rows)


def by_word(*rows: tuple[Meaning, str]) -> dict[str, Meaning]:
    """A table of states, names or classes; a row lists them in words."""
    return {word: meaning for meaning, words in rows for word in words.split()}


def by_beginning(table: Mapping[str, Meaning], word: str) -> Meaning | None:
    """What the longest beginning of a word that the table knows means."""
    for length in range(min(len(word), _LONGEST_WORD), 0, -1):
        meaning = table.get(word[:length])
        if meaning is not None:
            return meaning
    return None


class Phrase(msgspec.Struct, frozen=True):
    """Words that tell where a source gives no code, or gives one that says too little.

    Attributes:
        words: any of these, in lower case, stands in the text; `*` is anything between two parts.
        meaning: what it means then.
    """

    words: tuple[str, ...]
    meaning: Meaning


def phrases(*rows: tuple[Meaning, *tuple[str, ...]]) -> tuple[Phrase, ...]:
    """Ordered phrases: the first that stands in a text decides."""
    return tuple(Phrase(words, meaning) for meaning, *words_ in rows for words in [tuple(words_)])


def says(known: Iterable[Phrase], text: str) -> Meaning | None:
    """What the first phrase means that stands in a text, or None."""
    text = text[:_LONGEST].lower()
    for phrase in known:
        if any(_stands_in(text, word) for word in phrase.words):
            return phrase.meaning
    return None


def _stands_in(text: str, word: str) -> bool:
    start = 0
    for part in word.split("*"):
        found = text.find(part, start)
        if found < 0:
            return False
        start = found + len(part)
    return True


def by_class(table: Mapping[str, Meaning], raised: Raised) -> tuple[str, Meaning] | None:
    """What the most special class of an exception that the table knows means, and its name.

    Args:
        table: class names without their modules.
        raised: an exception of a driver whose names are its own.
    """
    for dotted in raised.names:
        name = dotted.rpartition(".")[2]
        if name in table:
            return name, table[name]
    return None


# --- values ---------------------------------------------------------------------------------


def number(value: Any) -> int | None:
    """A code as a number, whether it came as one or as digits."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if abs(value) < 10**10 else None
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 10**10 else None
    if isinstance(value, str) and value.isascii() and len(value) <= 10:
        digits = value[1:] if value[:1] == "-" else value
        return int(value) if digits.isdecimal() else None
    return None


def first_number(*values: Any) -> int | None:
    """The first of the values that is a number."""
    for value in values:
        found = number(value)
        if found is not None:
            return found
    return None


def state(value: Any) -> str | None:
    """An SQLSTATE: five digits or capital letters; numbers lost their zeros on the way."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 100000:
        return f"{value:05}"
    if not isinstance(value, str) or len(value) != 5 or not value.isascii():
        return None
    return value.upper() if value.isalnum() and any(map(str.isdigit, value)) else None


def text_of(value: Any) -> str:
    """A text, or what a driver gave as bytes; empty for anything else."""
    if isinstance(value, bytes):
        return value[:_LONGEST].decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def argument(raised: Raised, place: int) -> Any:
    """One of an exception's arguments, or None."""
    return raised.args[place] if len(raised.args) > place else None
