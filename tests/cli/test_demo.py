"""The demo tells the truth: it fails if its own measurements do not bear it out."""

import re
from contextlib import closing

import pytest

from sidecar.faults.demo import (
    GOOD_MODEL,
    MISSPELT_MODEL,
    Caller,
    Health,
    LyingUpstream,
    StatusOnlyBreaker,
)

from .conftest import Commands


def test_the_story(commands: Commands) -> None:
    done = commands.run("demo", "--fast")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    text = " ".join(done.stdout.split())
    for expected in (
        r"requests that reached the upstream 60 20\b",
        r"what each caller got 503 model_not_found 404 model_not_found",
        r"right calls that it would refuse 4 of 4 0 of 4",
        r"right calls that were answered 4 of 4 4 of 4",
        r"is open after 5 failures \(5 requests\)",
        r"200 of 200 more calls are answered by the daemon: 503 breaker_open",
        r"0 of them reached the upstream",
        r"20 callers 1 1 19 half_open 20 callers 1 1 19 closed 20 callers 20 20 0 closed",
    ):
        assert re.search(expected, text), (expected, done.stdout)


def test_the_caller_retries_as_the_sdks_do() -> None:
    waits: list[float] = []
    with (
        LyingUpstream(0.0) as upstream,
        closing(Caller("127.0.0.1", upstream.port, sleep=waits.append)) as caller,
    ):
        lied = caller.call(MISSPELT_MODEL, "x")
        assert (lied.status, lied.code, lied.attempts) == (503, "model_not_found", 3)
        assert 0.375 <= waits[0] <= 0.5 and 0.75 <= waits[1] <= 1.0  # noqa: PT018
        assert upstream.requests == {MISSPELT_MODEL: 3}
        assert caller.call(GOOD_MODEL, "x").attempts == 1
        upstream.health = Health.BROKEN
        assert caller.call(GOOD_MODEL, "x").statuses == (500, 500, 500)


@pytest.mark.parametrize(("statuses", "after"), [((200, 503), None), ((503,) * 7, 5)])
def test_a_breaker_that_reads_statuses(statuses: tuple[int, ...], after: int | None) -> None:
    naive = StatusOnlyBreaker()
    naive.hear(statuses)
    assert naive.open_after == after
