"""How an audit is shown: a table on a terminal, plain lines elsewhere, one JSON document.

Every line stands for itself, so that grep and a log can use it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from sidecar import __version__
from sidecar.audit.audit import Report
from sidecar.audit.baseline import Change, Remembered
from sidecar.audit.cases import KINDS
from sidecar.audit.clients import Conduct
from sidecar.audit.findings import Finding, Result
from sidecar.cli.errors import printable

SCHEMA = 1

_STYLES = {
    Result.RIGHT: "green",
    Result.MISLEADS: "bold red",
    Result.ACCEPTED: "yellow",
    Result.UNREACHED: "dim",
}
_BREAKER = {
    "failure": "counts a failure",
    "success": "counts a success",
    "ignored": "counts nothing",
}


def encoded(report: Report, changes: tuple[Change, ...]) -> str:
    """The report as one JSON document."""
    document = {
        "schema": SCHEMA,
        "version": __version__,
        "provider": report.provider,
        "upstream": report.upstream,
        "dialect": report.dialect,
        "key": report.key,
        "misleads": report.misleads,
        "counts": report.counts,
        "absent": report.absent,
        "cases": report.findings,
        "changes": changes,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def plain(report: Report, changes: tuple[Change, ...]) -> Iterator[str]:
    """The report as lines."""
    return (printable(line) for line in _lines(report, changes))


def _lines(report: Report, changes: tuple[Change, ...]) -> Iterator[str]:
    yield _head(report)
    for one in report.findings:
        facts = [
            f"case {one.id} {one.result.value}: {KINDS[one.case].sent}",
            f"{one.sent} -> {_answer(one)}",
            f"expected {_expected(one)}",
            *([f"note {one.note}"] if one.note else []),
            *([f"the daemon sends {one.becomes}"] if one.becomes else []),
            f"a status-only breaker {_BREAKER[one.breaker]}",
            f"openai {conduct(one.openai)}",
            f"anthropic {conduct(one.anthropic)}",
        ]
        yield "; ".join(facts)
        if one.message and one.result is Result.MISLEADS:
            yield f"message {one.id}: {one.message}"
    for name in report.absent:
        yield f"absent {name}"
    for change in changes:
        yield _change(change)
    yield _sum(report)


def _head(report: Report) -> str:
    return f"audit {report.provider}: {report.upstream} ({report.dialect}), key: {report.key}"


def _sum(report: Report) -> str:
    counted = ", ".join(f"{count} {name}" for name, count in report.counts.items() if count)
    return f"{len(report.findings)} cases: {counted}"


def _change(change: Change) -> str:
    how = "breaking" if change.breaking else "changed"
    return f"{how} {change.id}: {_was(change.before)} -> {_was(change.after)}"


def _was(one: Remembered | None) -> str:
    if one is None:
        return "not asked"
    return f"{one.status or 'no answer'} {one.class_ or 'no error'} {one.code or ''}".rstrip()


def _answer(one: Finding) -> str:
    status = "no answer" if one.status is None else str(one.status)
    return f"{status} {one.class_ or 'no error'}" + (f" {one.code}" if one.code else "")


def _expected(one: Finding) -> str:
    return " or ".join(one.expected)


def conduct(one: Conduct) -> str:
    """What a client does, in words."""
    if one.error is None:
        return "takes it for an answer"
    if one.requests == 1:
        return f"raises {one.error}"
    wait = "" if one.wait is None else f" {one.wait:g} s apart"
    return f"asks {one.requests} times{wait}, then {one.error}"


def draw(report: Report, changes: tuple[Change, ...]) -> bool:
    """Draws the report if standard output is a terminal; tells whether it did."""
    # Only the commands that draw load it.
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    if not console.is_terminal:
        return False
    console.print(Text(printable(_head(report))))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("case", "answer", "expected", "", "breaker", "openai", "anthropic"):
        table.add_column(title, overflow="fold")
    for one in report.findings:
        result = one.result.value + (f": {one.note}" if one.note else "")
        if one.becomes:
            result += f"; the daemon sends {one.becomes}"
        cells = (
            Text(one.id),
            Text(printable(_answer(one))),
            Text(_expected(one)),
            Text(printable(result), style=_STYLES[one.result]),
            Text(one.breaker),
            Text(conduct(one.openai)),
            Text(conduct(one.anthropic)),
        )
        table.add_row(*cells)
    console.print(table)
    for name in report.absent:
        console.print(Text(f"the upstream has no route {name}", style="dim"))
    for change in changes:
        style = "bold red" if change.breaking else "yellow"
        console.print(Text(printable(_change(change)), style=style))
    console.print(Text(_sum(report), style="bold"))
    return True
