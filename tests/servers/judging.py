"""What a live exception must mean, by itself, with its server named, and beside the recorded ones."""

from __future__ import annotations

import re
from typing import NamedTuple

from sidecar.envelope.database import classify
from sidecar.envelope.describe import describe
from sidecar.envelope.model import Classified
from tests.cases import all_cases

_CODE = re.compile(r"[A-Za-z0-9._:/#-]{1,64}")
# How the recorded cases spell the drivers in their ids.
_SPELLED = {
    "redis": "redis-py",
    "sqlalchemy+psycopg": "sa-psycopg",
    "sqlalchemy+asyncpg": "sa-asyncpg",
    "sqlalchemy+pymysql": "sa-pymysql",
}


class Means(NamedTuple):
    """An envelope's fields and the verdict, in the words of the recorded cases."""

    class_: str
    code: str
    retryable: bool
    retry_after: float | None
    verdict: str


def judged(
    error: BaseException, vendor: str | None, driver: str | None, phase: str | None = None
) -> Classified:
    """Classifies a live exception, and checks what holds of every envelope."""
    found = classify(
        describe(error, phase=phase), vendor=vendor, driver=driver, correlation_id="corr-1"
    )
    envelope = found.envelope
    assert envelope is not None
    assert envelope.correlation_id == "corr-1"
    assert _CODE.fullmatch(envelope.code)
    assert 0 < len(envelope.message) <= 500
    assert "\n" not in envelope.message
    return found


def means(found: Classified) -> Means:
    envelope = found.envelope
    assert envelope is not None
    return Means(
        envelope.class_.value,
        envelope.code,
        envelope.retryable,
        envelope.retry_after,
        found.verdict.value,
    )


def check(
    error: BaseException,
    expected: Means,
    *,
    vendor: str,
    driver: str,
    like: str | None = None,
    phase: str | None = None,
) -> Classified:
    """An exception means this, whether the server is named or not, as the recorded ones do.

    Args:
        error: what a driver raised.
        expected: what it must mean.
        vendor: the server.
        driver: the driver.
        like: how the ids of the recorded cases of this kind end.
        phase: `commit` where the call was one.
    """
    found = judged(error, vendor, driver, phase)
    assert means(found) == expected, f"{error!r}: {found.rule}"
    assert means(judged(error, None, None, phase)) == expected, "without the names"
    if like is not None:
        _compare(expected, vendor, driver, like)
    return found


def _compare(expected: Means, vendor: str, driver: str, like: str) -> None:
    cases = [
        case
        for case in all_cases("db-cases.jsonl")
        if case["vendor"] == vendor and re.search(rf"-(?:{like})\Z", case["id"])
    ]
    assert cases, f"no recorded case ends in {like}"
    for case in cases:
        held = case["expect"]
        recorded = Means(
            held["class"], held["code"], held["retryable"], held["retry_after"], held["verdict"]
        )
        if case["id"].startswith(f"{vendor}-{_SPELLED.get(driver, driver)}-{like}"):
            assert recorded == expected, case["id"]
        assert recorded._replace(code="") == expected._replace(code=""), case["id"]
