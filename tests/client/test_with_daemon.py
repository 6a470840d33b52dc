"""With a real daemon in a process of its own: the worked examples, from permit to closed breaker."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.client import BreakerOpen, Guard, SidecarError, counts, guard, retry, workflow
from tests.field.process import Process

from .failures import no_such_table

TOKEN = "s3cret-of-the-test"


PAIRS = 16
"""Of dependencies: each test has one of its own, in one daemon for all."""


class Running:
    """The daemon, a database and a service of this test's own, and what one may ask about them."""

    def __init__(self, process: Process, folder: Path, number: int) -> None:
        self.process = process
        self.address = f"http://127.0.0.1:{process.admin_port}"
        self.socket = f"unix:{folder}/admin.sock"
        self.database, self.service = f"orders-db-{number}", f"mail-{number}"

    def guard(self, name: str | None = None, **more: Any) -> Guard:
        # Far more patience than a caller has: the machine may be busy.
        more = {"admin": self.address, "token": TOKEN, "timeout": 20.0, **more}
        return guard(name or self.database, **more)

    async def get(self, path: str) -> Any:
        def asked() -> Any:
            request = urllib.request.Request(
                f"{self.address}{path}",
                headers={"x-sidecar-admin": "1", "authorization": f"Bearer {TOKEN}"},
            )
            try:
                with urllib.request.urlopen(request, timeout=20) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                with error:
                    return json.load(error)

        return await asyncio.to_thread(asked)

    async def entry(self, name: str) -> Any:
        return (await self.get("/status"))["dependencies"][name]

    async def counted(self, name: str, **expected: int) -> None:
        """Until these outcomes stand in the window."""
        for _ in range(2000):
            window = (await self.entry(name))["window"]
            if {key: window[key] for key in expected} == expected:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(window)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, Path]]:
    folder = tmp_path_factory.mktemp("client")
    token = folder / "token"
    token.write_text(TOKEN)
    breaker = {"consecutive_failures": 3, "open_for": "200ms", "jitter": 0}
    dependencies: dict[str, Any] = {}
    for number in range(PAIRS):
        database = {"source": "database", "vendor": "postgresql", "breaker": breaker}
        dependencies[f"orders-db-{number}"] = database
        dependencies[f"mail-{number}"] = {"source": "sdk", "breaker": breaker}
    started = Process(
        folder / "daemon",
        {"openai": {"upstream": "https://api.openai.com", "dialect": "openai"}},
        admin={"listen": ["127.0.0.1:0", f"unix:{folder}/admin.sock"], "token_file": str(token)},
        dependencies=dependencies,
    )
    try:
        asyncio.run(started.listening())
        yield started, folder
    finally:
        asyncio.run(started.end())


_numbers = itertools.count()


@pytest.fixture
def running(process: tuple[Process, Path]) -> Running:
    return Running(*process, next(_numbers) % PAIRS)


def refused() -> None:
    raise ConnectionRefusedError(111, "Connection refused")


async def fail(there: Guard, how: Callable[[], None] = refused) -> SidecarError:
    with pytest.raises(SidecarError) as caught:
        async with there:
            how()
    return caught.value


async def test_an_outage_opens_and_a_success_closes(running: Running) -> None:
    """No report is overtaken by the next permit: the fourth call is refused, always."""
    there = running.guard()
    for _ in range(3):
        assert (await fail(there)).envelope.code == "connection_refused"
    with pytest.raises(BreakerOpen) as caught:
        async with there:
            raise AssertionError("it was refused")
    envelope = caught.value.envelope
    assert (envelope.source, envelope.code, envelope.retryable) == ("sidecar", "breaker_open", True)
    assert 0 < (envelope.retry_after or 0) <= 0.2
    assert (await running.entry(running.database))["state"] == "open"
    for _ in range(2000):
        try:
            async with there:
                break
        except BreakerOpen:
            await asyncio.sleep(0.005)
    async with there as entry:
        assert entry.guarded
    assert (await running.entry(running.database))["state"] == "closed"


async def test_threads_see_the_same(running: Running) -> None:
    def work() -> str:
        for _ in range(3):
            with pytest.raises(ConnectionRefusedError), running.guard():
                refused()
        with pytest.raises(BreakerOpen), running.guard():
            raise AssertionError("it was refused")
        with running.guard(running.service) as entry:
            assert entry.guarded
        return (entry.guarded and "done") or ""

    assert await asyncio.to_thread(work) == "done"


async def test_the_callers_mistakes_open_nothing(running: Running) -> None:
    for _ in range(10):
        error = await fail(running.guard(running.service), no_such_table)
        assert isinstance(error, sqlite3.OperationalError)
    for _ in range(10):
        with pytest.raises(asyncio.CancelledError):
            async with running.guard(running.service):
                raise asyncio.CancelledError
    entry = await running.entry(running.service)
    assert (entry["state"], entry["window"]["failure"], entry["window"]["neutral"]) == (
        "closed", 0, 10,
    )  # fmt: skip


async def test_three_failures_of_one_workflow_join(running: Running) -> None:
    names = [running.database, running.service, running.service]
    with workflow("order-17") as id_:
        errors = [await fail(running.guard(name)) for name in names]
    assert {error.envelope.correlation_id for error in errors} == {id_}
    await running.counted(running.service, failure=2)
    found = await running.get("/v1/failures/order-17")
    assert [one["dependency"] for one in found["failures"]] == names


async def test_both_judge_alike(running: Running) -> None:
    """The envelope in this process is the one that the daemon keeps."""
    with workflow("alike"):
        error = await fail(running.guard(source="database", vendor="postgresql"))
    await running.counted(running.database, failure=1)
    (kept,) = (await running.get("/v1/failures/alike"))["failures"]
    theirs = kept.get("envelope", kept)
    ours = error.envelope
    for name, value in ours.for_model().items():
        assert theirs[name] == value, name


async def test_over_its_unix_socket(running: Running) -> None:
    async with running.guard(admin=running.socket) as entry:
        assert entry.guarded
    await running.counted(running.database, success=1)


async def test_without_the_token_the_call_runs(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with running.guard(token="another") as entry:
        assert not entry.guarded
    assert "token" in caplog.text.lower()


async def test_a_name_that_nobody_configured(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with running.guard("nobody") as entry:
        assert not entry.guarded
    assert f", {running.database}," in caplog.text


async def test_a_daemon_that_is_stopped_holds_nobody(running: Running) -> None:
    """It is there and accepts, and answers nothing."""
    async with running.guard() as entry:
        assert entry.guarded
    running.process.signal(signal.SIGSTOP)
    try:
        async with running.guard(timeout=0.05) as entry:
            assert not entry.guarded
        for _ in range(20):
            error = await fail(running.guard(timeout=0.05))
            assert error.envelope.code == "connection_refused"
    finally:
        running.process.signal(signal.SIGCONT)
    assert counts().unguarded >= 21


async def test_a_retry_through_a_guard(running: Running) -> None:
    outcomes: list[Callable[[], Any]] = [refused, refused, lambda: "good"]

    @retry(sleep=lambda _: None)
    @running.guard()
    async def call() -> Any:
        return outcomes.pop(0)()

    assert await call() == "good"
    await running.counted(running.database, success=1, failure=2)


async def test_a_retry_does_not_wait_for_an_open_breaker(running: Running) -> None:
    calls = []

    @retry(sleep=lambda _: None)
    @running.guard()
    async def call() -> None:
        calls.append(1)
        refused()

    with pytest.raises(BreakerOpen) as caught:
        await call()
    assert len(calls) == 3
    assert caught.value.gave_up == "breaker_open"
