"""The facts of `/status` as plain lines, where no terminal draws them.

Each line says of what kind it is and stands for itself, so that grep, a log and a screen reader
can use it.
"""

from __future__ import annotations

from collections.abc import Iterator

from sidecar.cli import status_words as say
from sidecar.cli.errors import printable
from sidecar.cli.status_words import Known, Row

_FAILURES = 10


def plain(known: Known, now: float) -> Iterator[str]:
    """The lines.

    Args:
        known: what was asked for.
        now: seconds since the epoch, for "since" and "in".
    """
    return (printable(line) for line in _lines(known, now))


def _lines(known: Known, now: float) -> Iterator[str]:
    status = known.status
    yield say.headline(status, now)
    for notice in say.notices(known):
        yield f"notice {notice}"
    for name, provider in status.get("providers", {}).items():
        yield _joined(
            f"provider {name} {provider.get('verdict', '?')}{say.mode(provider)}",
            f"{provider.get('in_flight', 0)} in flight",
            str(provider.get("upstream", "")),
        )
        for row in say.rows_of(known, name, provider):
            yield _breaker("breaker", row, now)
    for row in say.dependency_rows(known):
        yield _breaker("dependency", row, now)
    for key, state, facts in say.restrictions(status, now):
        yield f"restricted {key} {state}: {facts}"
    for name, told in say.reclassified(status):
        yield f"reclassified {name}: {told}"
    for group in known.errors:
        count = say.plural(group.get("count"), "failure")
        yield f"errors {group.get('class')} {group.get('code')}: {count} within the last hour"
    for entry in known.failures[:_FAILURES]:
        at, where, what, message, id_ = say.failure(entry)
        yield f"failure {at} {where} {what} {id_}: {message}"
    for name, reason in (status.get("config", {}).get("disabled") or {}).items():
        yield f"disabled {name}: {say.line(reason)}"


def _breaker(kind: str, row: Row, now: float) -> str:
    entry = row.entry
    return _joined(
        f"{kind} {row.key} {say.state(entry)}",
        say.what_next(row, now),
        say.why(entry),
        f"since {say.ago(entry.get('since'), now)}",
        say.window(entry),
    )


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
