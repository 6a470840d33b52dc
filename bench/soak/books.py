"""Closes the books: callers, upstream, counters and log have to tell of the same calls.

Everything that does not add up is a line of words; without any the soak has passed. The daemon's
lives follow one another without overlap, so a call belongs to the life in which it began.
"""

from __future__ import annotations

import hashlib
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from bench.soak import calls
from bench.soak.callers import Seen
from bench.soak.process import Metrics
from bench.soak.trouble import Span

LOCAL = {
    "bad_request", "forbidden_host", "unknown_provider", "too_large", "draining", "quota",
    "breaker_open", "shed", "bulkhead", "local_network", "not_allowed",
}  # fmt: skip
AROUND = 0.5
"""Seconds around a disturbance in which its effects are still seen: half-closed sockets, timers."""

FIRST_BYTE = 1.5
"""The clocks of the configuration, which run on while a process stands still."""

Line = dict[str, Any]


class Life(NamedTuple):
    """What one life of the daemon left behind.

    Attributes:
        ended: when its process was gone, monotonic seconds.
        lines: of its log.
    """

    ended: float
    lines: list[Line]


class Books:
    """Compares.

    Args:
        seen: what the callers saw.
        spans: what was done to daemon and upstream.
        records: what the upstream wrote down: word, id, more.
        lives: of the daemon, in their order.
        metrics: of the last life, at rest.

    Attributes:
        problems: what does not add up.
    """

    def __init__(
        self,
        seen: Sequence[Seen],
        spans: Sequence[Span],
        records: Iterable[Sequence[str]],
        lives: Sequence[Life],
        metrics: Metrics,
    ) -> None:
        self._seen = {one.id: one for one in seen}
        self._spans = spans
        self._lives = lives
        self._metrics = metrics
        self._ends = [life.ended for life in lives]
        self._heads: Counter[str] = Counter()
        self._bodies: dict[str, str] = {}
        for word, id_, *more in records:
            if word == "head":
                self._heads[id_] += 1
            elif word == "got":
                self._bodies[id_] = more[0]
        self._by_life: dict[int, list[Seen]] = defaultdict(list)
        for one in seen:
            if self.counted(one):
                self._by_life[bisect(self._ends, one.began)].append(one)
        self._opened = self._openings()
        self.problems: list[str] = []

    def close(self) -> list[str]:
        """Every comparison there is."""
        for one in self._seen.values():
            why = self._why_not(one)
            if why:
                self._problem(f"{one.id}: {why}: {one}")
        self._upstream()
        for number, life in enumerate(self._lives):
            self._log(number, life, self._by_life[number])
        self._counters(self._by_life[len(self._lives) - 1])
        return self.problems

    def unsure(self, one: Seen) -> bool:
        """Was a caller on its way out while the upstream or the daemon were too?

        Who was first is decided within one turn of the daemon's loop, and cannot be seen from
        here: such a call is counted, once, as the caller's doing or as the upstream's.
        """
        return one.ending in ("left", "thrown") and self._disturbed(
            one, "upstream away", "restart", "frozen", before=FIRST_BYTE
        )

    def traced(self, lines: Iterable[str]) -> list[str]:
        """Which calls the daemon tells otherwise than their callers do, of a line for each."""
        told = {line.split(" ")[0]: line for line in lines}
        found = []
        for one in self._seen.values():
            line = told.get(one.id)
            if (line is not None) != self.counted(one):
                found.append(f"{line or 'not traced'}: {one}")
            elif line is not None and not self.unsure(one):
                _, decision, _, verdict, _ = line.split(" ")
                if decision != (one.decision or "forwarded") or verdict != (verdict_of(one) or "-"):
                    found.append(f"{line}: {one}")
        return found

    def _problem(self, told: str) -> None:
        self.problems.append(told[:500])

    # -- single calls -----------------------------------------------------------------------

    def counted(self, one: Seen) -> bool:
        """Did the daemon take this call up? One that it closed without a byte it had not read."""
        if one.ending in ("nothing", "unreachable"):
            return self._heads[one.id] > 0
        return True

    def _disturbed(self, one: Seen, *what: str, before: float = AROUND) -> bool:
        return any(
            span.what in what and span.began - before < one.over and one.began < span.over + AROUND
            for span in self._spans
        )

    def _why_not(self, one: Seen) -> str:
        """Why a call should not have come to this; empty if it may."""
        if one.wrong:
            return one.wrong
        if one.ending == "endless":
            return "it has no end"
        if one.ending in ("nothing", "unreachable"):
            away = self._disturbed(one, "restart", "callers stalled")
            return "" if away else "nobody answered"
        kind = calls.KINDS[one.kind]
        if one.ending in ("left", "thrown"):
            return "" if one.kind in calls.LEAVING | calls.STUCK else "nobody had left"
        if one.decision not in kind.decisions:
            return self._why_not_here(one)
        if one.ending == "cut":
            planned = one.kind in ("cut_stream", "cut_large", "silence")
            away = self._disturbed(one, "upstream away", "restart", "frozen", before=FIRST_BYTE)
            return "" if planned or away else "it was cut without a cause"
        if one.status not in kind.statuses and one.decision == "forwarded":
            return "this status has no cause"
        return ""

    def _why_not_here(self, one: Seen) -> str:
        """Why the daemon should not have answered this by itself."""
        provider = calls.KINDS[one.kind].provider
        away = self._disturbed(one, "upstream away", "frozen", before=FIRST_BYTE)
        causes = {
            "breaker_open": self._was_open(one),
            "shed": provider == "limited",
            "quota": provider == "spent",
            "bulkhead": provider == "narrow" or self._disturbed(one, "frozen"),
            "draining": self._disturbed(one, "restart"),
            "unknown_provider": provider == "passing",
            "connect_error": away,
            # Who was to leave and had no time to, has seen the clock that would have come next.
            "timeout": away
            or (one.kind in calls.LEAVING and self._disturbed(one, "callers stalled")),
            "upstream_error": away or one.code == "connection_closed",
        }
        return "" if causes.get(one.decision) else f"{one.decision or 'this'} has no cause"

    def _openings(self) -> dict[str, list[tuple[int, str]]]:
        """For each key, in which lives its breaker opened, and by which rule."""
        found: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for number, life in enumerate(self._lives):
            for line in life.lines:
                if line["event"] == "breaker.opened":
                    found[line["key"]].append((number, line["reason"] or ""))
        return found

    def _was_open(self, one: Seen) -> bool:
        key = one.breaker.partition(";")[0]
        life = bisect(self._ends, one.began)
        return any(number == life for number, _ in self._opened[key])

    # -- the upstream -----------------------------------------------------------------------

    def _upstream(self) -> None:
        """What arrived was asked for, as it was asked, and not more often than it may be sent."""
        for id_, count in self._heads.items():
            one = self._seen.get(id_)
            if one is None:
                self._problem(f"{id_}: nobody asked for what the upstream got")
                continue
            kind = calls.KINDS[one.kind]
            most = 3 if one.kind == "flaky" else 2 if kind.safe else 1
            if count > most:
                self._problem(f"{id_}: it was sent {count} times: {one}")
            if one.decision in LOCAL:
                self._problem(f"{id_}: refused, and sent all the same: {one}")
        for id_, digest in self._bodies.items():
            one = self._seen.get(id_)
            if one is None or calls.KINDS[one.kind].method != "POST":
                continue
            body = calls.request_body(one.kind, id_, int(id_.rpartition("-")[2]))
            if hashlib.blake2b(body, digest_size=8).hexdigest() != digest:
                self._problem(f"{id_}: another body arrived than was sent")
        for one in self._seen.values():
            answered = one.ending in ("whole", "cut") and one.decision == "forwarded"
            if answered and not self._heads[one.id]:
                self._problem(f"{one.id}: answered for an upstream that never got it: {one}")

    # -- the log ----------------------------------------------------------------------------

    def _log(self, number: int, life: Life, seen: Sequence[Seen]) -> None:
        """Lines and counts together are all calls that did not end well; nothing else is in it."""
        written: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        for line in life.lines:
            event = line["event"]
            if event in ("call.failed", "call.cancelled"):
                if "dependency" not in line:
                    written["calls"] += 1
                    self._line(number, line)
            elif event == "calls.repeated":
                if line["provider"] != "orders-db":
                    written["calls"] += line["count"]
            elif event == "calls.refused":
                refused.update(line["by_decision"])
            elif (
                event in ("", "fault", "faults.repeated", "listener.failed", "log.dropped")
                or "logger" in line
            ):
                self._problem(f"life {number}: {line}")
        self._same(f"life {number}: refusals in the log", dict(refused), _decisions(seen))
        # Without a line are those that went well.
        well = sum(1 for one in seen if verdict_of(one) == "success")
        stopped = [line for line in life.lines if line["event"] == "daemon.stopped"]
        if len(stopped) != 1:
            self._problem(f"life {number}: it did not end as it should")
            return
        total = stopped[0]["requests"]
        self._same(
            f"life {number}: calls in the log", written["calls"] + refused.total() + well, total
        )
        self._same(f"life {number}: calls in all", total, len(seen))
        forwarded = [one for one in seen if one.decision in ("forwarded", "")]
        sure = sum(1 for one in forwarded if not self.unsure(one))
        if not sure <= stopped[0]["forwarded"] <= len(forwarded):
            told = stopped[0]["forwarded"]
            self._problem(f"life {number}: {told} forwarded, and not {sure} to {len(forwarded)}")

    def _line(self, number: int, line: Line) -> None:
        """A line tells of a call that somebody made, and what that caller saw."""
        one = self._seen.get(line["correlation_id"])
        if one is None:
            self._problem(f"life {number}: a line of a call that nobody made: {line}")
        elif one.ending == "whole" and one.status and (line["status"], line["decision"]) != (
            one.status, one.decision,
        ):  # fmt: skip
            self._problem(f"life {number}: {line} for {one}")

    # -- the counters -----------------------------------------------------------------------

    def _counters(self, seen: Sequence[Seen]) -> None:
        """The metrics of the last life, by provider: what comes and goes by reloads is left out."""
        fixed = [one for one in seen if _provider(one) != "passing"]
        verdicts: Counter[tuple[str, str]] = Counter()
        unsure: Counter[str] = Counter()
        for one in fixed:
            verdict = verdict_of(one)
            if self.unsure(one):
                unsure[_provider(one)] += 1
            elif verdict is not None:
                verdicts[_provider(one), verdict] += 1
        told: Counter[tuple[str, str]] = Counter()
        for (provider, _, verdict), count in self._of("breaker_sidecar_calls_total"):
            told[provider, verdict] += int(count)
        for provider in unsure:
            self._either(told, verdicts, provider, unsure[provider])
        self._same("verdicts in the metrics", _positive(told), _positive(verdicts))
        ended: Counter[str] = Counter()
        for (provider, _), count in self._of("breaker_sidecar_calls_ended_total"):
            ended[provider] += int(count)
        self._same(
            "calls that ended, in the metrics",
            _positive(ended),
            _positive(Counter(_provider(one) for one in fixed)),
        )
        refusals: Counter[str] = Counter()
        for (_, decision), count in self._of("breaker_sidecar_refusals_total"):
            refusals[decision] += int(count)
        self._same("refusals in the metrics", _positive(refusals), _decisions(fixed))
        attempts = sum(
            int(count) for _, count in self._of("breaker_sidecar_upstream_attempts_total")
        )
        least = sum(self._heads[one.id] for one in fixed)
        unseen = sum(1 for one in fixed if self._may_have_missed(one))
        if not least <= attempts <= least + 2 * unseen:
            self._problem(
                f"{attempts} attempts in the metrics, {least} arrived, {unseen} may not have"
            )

    def _either(
        self,
        told: Counter[tuple[str, str]],
        verdicts: Counter[tuple[str, str]],
        provider: str,
        unsure: int,
    ) -> None:
        """Gives calls of which nobody knows who was first to the verdicts that lack them."""
        for verdict in ("neutral", "failure"):
            lacks = max(0, told[provider, verdict] - verdicts[provider, verdict])
            given = min(lacks, unsure)
            verdicts[provider, verdict] += given
            unsure -= given
        verdicts[provider, "neutral"] += unsure

    def _of(self, name: str) -> list[tuple[tuple[str, ...], float]]:
        return [
            (labels, count)
            for labels, count in self._metrics[name].items()
            if labels[0] not in ("passing", "orders-db")
        ]

    def _may_have_missed(self, one: Seen) -> bool:
        """May an attempt of this call have gone where nobody wrote it down?"""
        return one.decision in ("connect_error", "upstream_error", "timeout") or self._disturbed(
            one, "upstream away", before=FIRST_BYTE
        )

    def _same(self, what: str, one: object, other: object) -> None:
        if isinstance(one, dict) and isinstance(other, dict):
            # What is the same need not be read.
            same = {name for name in one if one[name] == other.get(name)}
            one = {name: count for name, count in one.items() if name not in same}
            other = {name: count for name, count in other.items() if name not in same}
        if one != other:
            self._problem(f"{what}: {one}, and not {other}")


def _decisions(seen: Iterable[Seen]) -> dict[str, int]:
    return dict(Counter(one.decision for one in seen if one.decision in LOCAL))


def _positive(counts: Counter[Any]) -> dict[Any, int]:
    return {name: count for name, count in sorted(counts.items()) if count}


def _provider(one: Seen) -> str:
    """Under which name a call is counted; none where no provider was found."""
    nobody = one.decision in ("unknown_provider", "forbidden_host") or one.kind == "bad_request"
    return "" if nobody else calls.KINDS[one.kind].provider


def verdict_of(one: Seen) -> str | None:
    """What the breaker must have heard of a call, by what its caller saw; None if nothing."""
    if one.decision in LOCAL:
        return None
    if one.ending in ("left", "thrown", "nothing"):
        return "neutral"
    if one.verdict:
        return one.verdict
    if one.ending == "cut":
        return "neutral" if one.code == "draining" else "failure"
    if one.kind == "error_event" and one.status == 200:
        return "failure"
    return "success"
