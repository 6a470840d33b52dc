"""What fails, of which kind, how often: the last hour in groups, and the last failures themselves.

A listener. The groups answer what eats the budget, whoever was called: an API, a database, an SDK.
They count every envelope that a caller got, the daemon's own refusals included (their source is
`sidecar`). The last failures are kept by their correlation ids, so that one workflow's failures can
be read side by side; refusals are kept apart, since an open breaker makes thousands in a second
and would push out what opened it.

Nothing here grows: codes, groups, failures and the bytes that were seen with them are bounded. A
call that goes well costs one comparison.
"""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable, Sequence
from operator import add
from typing import Any, Final

import msgspec

from sidecar import clock
from sidecar.envelope.model import Envelope, with_raw
from sidecar.telemetry.observer import LOCAL_REFUSALS, CallFinished, DependencyCalled, Fact

SECONDS: Final = 3600.0
"""How far back the groups reach, in steps of a bucket."""
BUCKETS: Final = 60
KEPT: Final = 200
"""Failures that can be asked for by their ids; as many refusals beside them."""
RAW_BYTES: Final = 4 * 1024 * 1024
"""What was seen with the last failures, altogether; beyond it the oldest keep their envelopes."""
_MOST_CODES = 100  # of one provider or dependency: an upstream may make them up
_MOST_SERIES = 512
_OTHER = "other"
_WIDTH = SECONDS / BUCKETS

FIELDS: Final = ("class", "source", "code", "provider")
"""What failures can be grouped by; `provider` is the name of a dependency too."""

Call = CallFinished | DependencyCalled
_Key = tuple[str, str, str, str | None]


class Sighting(msgspec.Struct, frozen=True, gc=False, order=True):
    """One failure of a group.

    Attributes:
        number: its place among all of them.
        at: when, seconds since the epoch.
        correlation_id: of the call.
    """

    number: int
    at: float
    correlation_id: str


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Failures that are alike.

    Attributes:
        values: of the fields that they were grouped by, in that order.
        count: how many.
        first: the first one within the hour.
        last: the last one.
        minutes: how many in each of the last sixty minutes, the present one last.
    """

    values: tuple[str | None, ...]
    count: int
    first: Sighting
    last: Sighting
    minutes: tuple[int, ...]


class Failure:
    """One failed call that is kept.

    Attributes:
        number: its place among all failures.
        call: the fact; its envelope is without `raw` once there was no room for that.
        size: bytes that `raw` takes, or will.
    """

    __slots__ = ("_look", "call", "number", "size")

    def __init__(self, number: int, call: Call, envelope: Envelope) -> None:
        self.number = number
        self._look = call.look if isinstance(call, CallFinished) else None
        # Beyond this moment the fact itself holds nothing that was not redacted.
        self.call = call if self._look is None else msgspec.structs.replace(call, look=None)
        self.size = _size(envelope.raw) if self._look is None else self._look.size

    def settle(self) -> None:
        """Make `raw` of what was seen, and let go of that."""
        look, self._look = self._look, None
        if look is not None:
            envelope = with_raw(self.envelope, look)
            self.call = msgspec.structs.replace(self.call, envelope=envelope)

    @property
    def envelope(self) -> Envelope:
        """What was told of it."""
        envelope = self.call.envelope
        assert envelope is not None
        return envelope

    def forget_raw(self) -> None:
        """Keep what was told, not what was seen."""
        self._look = None
        bare = msgspec.structs.replace(self.envelope, raw=None)
        self.call = msgspec.structs.replace(self.call, envelope=bare)
        self.size = 0


class _Bucket:
    """A minute of one series."""

    __slots__ = ("count", "first", "index")

    def __init__(self, index: float, first: Sighting) -> None:
        self.index = index
        self.first = first
        self.count = 0


class _Series:
    """Failures of one provider, source, class and code."""

    __slots__ = ("buckets", "count", "last")

    def __init__(self) -> None:
        self.buckets: deque[_Bucket] = deque()
        self.count = 0
        self.last: Sighting

    def add(self, index: float, sighting: Sighting) -> None:
        if not self.buckets or self.buckets[-1].index != index:
            self.buckets.append(_Bucket(index, sighting))
        self.buckets[-1].count += 1
        self.count += 1
        self.last = sighting

    def minutes(self, index: float) -> tuple[int, ...]:
        """Failures in each bucket, the one of `index` last."""
        counts = [0] * BUCKETS
        for bucket in self.buckets:
            counts[int(bucket.index - index) - 1] = bucket.count
        return tuple(counts)

    def drop(self, index: float) -> None:
        """Forget what is over."""
        buckets = self.buckets
        while buckets and buckets[0].index <= index - BUCKETS:
            self.count -= buckets.popleft().count


class Failures:
    """Groups of the last hour and the last failures; give it to an `Observer` as a listener.

    Args:
        monotonic: the clock by which an hour passes.
    """

    def __init__(self, monotonic: Callable[[], float] | None = None) -> None:
        self._monotonic = monotonic or _monotonic
        self._index = 0.0
        self._number = 0
        self._series: dict[_Key, _Series] = {}
        self._codes: dict[str | None, int] = {}
        self._last: deque[Failure] = deque()
        self._refused: deque[Failure] = deque(maxlen=KEPT)
        self._with_raw: deque[Failure] = deque()
        self._unsettled: deque[Failure] = deque(maxlen=KEPT)
        self._bytes = 0

    def __call__(self, fact: Fact) -> None:
        """Hear a fact."""
        if isinstance(fact, CallFinished):
            envelope = fact.envelope
            if envelope is not None:
                self._add(fact, envelope, fact.provider)
        elif isinstance(fact, DependencyCalled):
            envelope = fact.envelope
            if envelope is not None:
                self._add(fact, envelope, fact.dependency)

    def settle(self) -> None:
        """Make what was seen of the last failures fit to be kept; to be called now and then.

        In a storm most failures are pushed out before: nobody pays for what nobody can ask for.
        """
        unsettled, self._unsettled = self._unsettled, deque(maxlen=KEPT)
        for failure in unsettled:
            failure.settle()

    # -- what is asked ----------------------------------------------------------------------

    def groups(self, by: Sequence[str]) -> list[Group]:
        """The failures of the last hour, the most frequent kinds first.

        Args:
            by: some of `FIELDS`.
        """
        self._roll()
        places = [FIELDS.index(field) for field in by]
        found: dict[tuple[str | None, ...], Group] = {}
        for key, series in self._series.items():
            values = tuple(key[place] for place in places)
            first, last = series.buckets[0].first, series.last
            known = found.get(values)
            count, minutes = series.count, series.minutes(self._index)
            if known is not None:
                count += known.count
                first, last = min(first, known.first), max(last, known.last)
                minutes = tuple(map(add, minutes, known.minutes))
            found[values] = Group(
                values=values, count=count, first=first, last=last, minutes=minutes
            )
        return sorted(found.values(), key=lambda group: (-group.count, -group.last.number))

    def find(self, correlation_id: str) -> list[Failure]:
        """The kept failures of one id, in the order in which they came."""
        self.settle()
        kept = itertools.chain(self._last, self._refused)
        found = [failure for failure in kept if failure.call.correlation_id == correlation_id]
        return sorted(found, key=lambda failure: failure.number)

    def latest(self, after: int = 0, *, refusals: bool = False) -> list[Failure]:
        """The kept failures, the last one first.

        Args:
            after: only those whose number is higher.
            refusals: what the daemon refused itself too.
        """
        kept = itertools.chain(self._last, self._refused if refusals else ())
        found = [failure for failure in kept if failure.number > after]
        return sorted(found, key=lambda failure: -failure.number)[:KEPT]

    # -- what is heard ----------------------------------------------------------------------

    def _add(self, call: Call, envelope: Envelope, name: str | None) -> None:
        index = self._monotonic() // _WIDTH
        if index > self._index:
            self._roll(index)
        self._number += 1
        sighting = Sighting(self._number, call.at, call.correlation_id)
        self._series_of(envelope, name).add(self._index, sighting)
        failure = Failure(self._number, call, envelope)
        if call.decision in LOCAL_REFUSALS:
            self._refused.append(failure)
        else:
            self._keep(failure)

    def _series_of(self, envelope: Envelope, name: str | None) -> _Series:
        key = (envelope.class_.value, envelope.source.value, envelope.code, name)
        series = self._series.get(key)
        if series is not None:
            return series
        if self._codes.get(name, 0) >= _MOST_CODES or len(self._series) >= _MOST_SERIES:
            # As many of these as there are names, classes and sources.
            key = (key[0], key[1], _OTHER, name)
            series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series()
            self._codes[name] = self._codes.get(name, 0) + 1
        return series

    def _roll(self, index: float | None = None) -> None:
        """Forget what is older than an hour; reads do so too."""
        index = self._monotonic() // _WIDTH if index is None else index
        if index <= self._index:
            return
        self._index = index
        for key, series in tuple(self._series.items()):
            series.drop(index)
            if not series.buckets:
                del self._series[key]
                self._codes[key[3]] -= 1
                if not self._codes[key[3]]:
                    del self._codes[key[3]]

    def _keep(self, failure: Failure) -> None:
        if len(self._last) == KEPT:
            oldest = self._last.popleft()
            if oldest.size:
                self._bytes -= oldest.size
                self._with_raw.popleft()
        self._last.append(failure)
        self._unsettled.append(failure)
        if failure.size:
            self._with_raw.append(failure)
            self._bytes += failure.size
        while self._bytes > RAW_BYTES:
            oldest = self._with_raw.popleft()
            self._bytes -= oldest.size
            oldest.forget_raw()


def _monotonic() -> float:
    return clock.monotonic()


def _size(value: Any) -> int:
    """Bytes that plain values take, about; texts are what counts."""
    if isinstance(value, str):
        return sys.getsizeof(value)
    if isinstance(value, dict):
        return 64 + sum(_size(name) + _size(member) for name, member in value.items())
    if isinstance(value, list | tuple):
        return 64 + sum(map(_size, value))
    return 0 if value is None else 32
