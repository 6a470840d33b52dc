"""What an audit found before: a change of class between two versions breaks whoever relies on it.

The file is small, sorted JSON, made to be committed and read in a diff.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from sidecar import __version__
from sidecar.audit.audit import Report
from sidecar.audit.findings import Finding, Result

SCHEMA = 1


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of one case.

    Attributes:
        class_: the class, `class` in JSON; None for an answer that is no error.
        code: the envelope's code.
        status: of the answer; None if there was none.
    """

    class_: str | None = msgspec.field(name="class", default=None)
    code: str | None = None
    status: int | None = None


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """A remembered audit.

    Attributes:
        schema: of the file.
        version: of the program that wrote it.
        provider: its name.
        dialect: how its answers were read.
        cases: by the id of the case.
    """

    schema: int
    version: str
    provider: str
    dialect: str
    cases: dict[str, Remembered]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A case that is not what it was.

    Attributes:
        id: of the case.
        before: what was remembered; None for a new case.
        after: what was found; None for a case that is gone.
        breaking: the class changed.
    """

    id: str
    before: Remembered | None
    after: Remembered | None
    breaking: bool


class BaselineError(Exception):
    """A file is no baseline of this provider, or cannot be written."""

    exit_code = 2


def of_report(report: Report) -> Baseline:
    """What is remembered of an audit; what was not reached is not known, and so left out."""
    return Baseline(
        schema=SCHEMA,
        version=__version__,
        provider=report.provider,
        dialect=report.dialect,
        cases={one.id: _remembered(one) for one in _known(report.findings)},
    )


def read(path: Path) -> Baseline | None:
    """A remembered audit; None if there is no such file.

    Raises:
        BaselineError: it cannot be read, or is none.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BaselineError(f"{path}: {error.strerror}") from None
    try:
        found = msgspec.json.decode(content, type=Baseline)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BaselineError(f"{path} is no baseline of an audit: {error}") from None
    if found.schema != SCHEMA:
        raise BaselineError(f"{path} is of another version (schema {found.schema}, not {SCHEMA})")
    return found


def write(path: Path, baseline: Baseline) -> None:
    """Writes a baseline, whole or not at all.

    Raises:
        BaselineError: it cannot be written.
    """
    document = msgspec.json.encode(baseline, order="sorted")
    content = msgspec.json.format(document, indent=2) + b"\n"
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise BaselineError(f"{path}: {error.strerror}") from None


def compare(before: Baseline, report: Report) -> tuple[Change, ...]:
    """What is not as it was, in the order of the report, what is gone last.

    Args:
        before: what was remembered.
        report: what was found now.

    Raises:
        BaselineError: they are of two providers.
    """
    if (before.provider, before.dialect) != (report.provider, report.dialect):
        raise BaselineError(
            f"the baseline is of {before.provider} ({before.dialect}),"
            f" not of {report.provider} ({report.dialect})"
        )
    changes = []
    for one in _known(report.findings):
        was, now = before.cases.get(one.id), _remembered(one)
        if was != now:
            breaking = was is not None and was.class_ != now.class_
            changes.append(Change(id=one.id, before=was, after=now, breaking=breaking))
    asked = {one.id for one in report.findings}
    changes += [
        Change(id=id_, before=was, after=None, breaking=False)
        for id_, was in sorted(before.cases.items())
        if id_ not in asked
    ]
    return tuple(changes)


def _known(findings: Iterable[Finding]) -> Iterable[Finding]:
    return (one for one in findings if one.result is not Result.UNREACHED)


def _remembered(one: Finding) -> Remembered:
    class_ = None if one.class_ is None else one.class_.value
    return Remembered(class_=class_, code=one.code, status=one.status)
