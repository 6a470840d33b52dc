"""The guard: what it lets out, what it reports, and what it leaves alone."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

import pytest

from sidecar.client import (
    BreakerOpen,
    Guard,
    SidecarError,
    close,
    correlation_id,
    guard,
    workflow,
)

from .failures import no_such_table
from .fake import Fake, Seen, letting_through, refusing, said

Start = Callable[..., Fake]
Guarded = Callable[..., Guard]


@pytest.fixture
def daemon(fake: Start) -> Fake:
    return fake()


@pytest.fixture
def guarded(daemon: Fake) -> Guarded:
    return functools.partial(guard, "orders-db", admin=daemon.address, timeout=20.0)


def refused() -> None:
    raise ConnectionRefusedError(111, "Connection refused")


class TestFailures:
    def test_the_caller_still_catches_what_he_caught(self, daemon: Fake, guarded: Guarded) -> None:
        with pytest.raises(sqlite3.OperationalError) as caught, guarded():
            no_such_table()
        error = caught.value
        assert isinstance(error, SidecarError)
        assert isinstance(error.__cause__, sqlite3.OperationalError)
        assert (error.envelope.class_, error.envelope.source) == ("validation", "database")
        (report,) = daemon.outcomes(2)
        assert report["error"]["type"] == "sqlite3.OperationalError"
        assert report["error"]["mro"][0] == "sqlite3.DatabaseError"
        assert report["correlation_id"] == error.envelope.correlation_id
        assert "ok" not in report

    def test_without_a_daemon_the_envelope_is_the_same(self) -> None:
        with (
            pytest.raises(ConnectionRefusedError) as caught,
            guard("orders-db", admin="http://127.0.0.1:1", vendor="postgresql"),
        ):
            refused()
        envelope = caught.value.envelope
        assert (envelope.class_, envelope.code, envelope.retryable, envelope.source) == (
            "transient", "connection_refused", True, "database",
        )  # fmt: skip
        assert envelope.correlation_id

    def test_a_commit_that_was_lost_is_not_retryable(self, daemon: Fake, guarded: Guarded) -> None:
        for phase, retryable in ((None, True), ("commit", False)):
            with (
                pytest.raises(ConnectionResetError) as caught,
                guarded(phase=phase, source="database"),
            ):
                raise ConnectionResetError(104, "Connection reset by peer")
            assert caught.value.envelope.retryable is retryable
        assert [one["error"].get("phase") for one in daemon.outcomes(4)] == [None, "commit"]

    @pytest.mark.parametrize(
        "error",
        [
            asyncio.CancelledError(),
            KeyboardInterrupt(),
            SystemExit(3),
            GeneratorExit(),
            StopIteration(),
            StopAsyncIteration(),
            BaseExceptionGroup("x", [KeyboardInterrupt()]),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_what_is_no_failure_passes_as_it_is(
        self, daemon: Fake, guarded: Guarded, error: BaseException
    ) -> None:
        with pytest.raises(type(error)) as caught, guarded():
            raise error
        assert caught.value is error
        assert error.__cause__ is None
        (report,) = daemon.outcomes(2)
        assert report["error"] == {
            "type": "asyncio.exceptions.CancelledError",
            "message": f"ended by {type(error).__name__}",
        }

    def test_what_a_guard_inside_told_is_not_told_again(
        self, daemon: Fake, guarded: Guarded
    ) -> None:
        with pytest.raises(ConnectionRefusedError) as caught, guarded(), guarded():
            refused()
        inner, outer = daemon.outcomes(4)
        assert inner["error"]["type"] == "ConnectionRefusedError"
        assert outer["error"]["type"] == "asyncio.exceptions.CancelledError"
        assert caught.value.__cause__.__cause__ is None

    async def test_nor_is_what_a_group_of_them_told(self, daemon: Fake, guarded: Guarded) -> None:
        # Both are inside before one fails: a group cancels whoever is still on the way.
        inside = asyncio.Barrier(2)

        async def one() -> None:
            async with guarded():
                await inside.wait()
                refused()

        async def several() -> None:
            async with guarded(), asyncio.TaskGroup() as tasks:
                tasks.create_task(one())
                tasks.create_task(one())

        with pytest.raises(ExceptionGroup) as caught:
            await several()
        assert not isinstance(caught.value, SidecarError)
        types = [report["error"]["type"] for report in daemon.outcomes(6)]
        assert types == ["ConnectionRefusedError"] * 2 + ["asyncio.exceptions.CancelledError"]

    def test_a_group_is_told_as_a_whole(self, daemon: Fake, guarded: Guarded) -> None:
        group = ExceptionGroup("x", [ValueError("a"), ConnectionRefusedError(111, "no")])
        with pytest.raises(ExceptionGroup) as caught, guarded():
            raise group
        assert caught.value.envelope.code == "connection_refused"  # type: ignore[attr-defined]
        (report,) = daemon.outcomes(2)
        assert len(report["error"]["exceptions"]) == 2

    def test_a_report_is_bounded(self, daemon: Fake, guarded: Guarded) -> None:
        with pytest.raises(ValueError), guarded():
            raise ValueError("x" * 300000, ["y" * 4000] * 64)
        (report,) = daemon.outcomes(2)
        assert len(str(report)) < 70000
        assert report["error"]["type"] == "ValueError"

    def test_what_cannot_be_written_is_told_all_the_same(
        self, daemon: Fake, guarded: Guarded
    ) -> None:
        with pytest.raises(ValueError), guarded():
            raise ValueError("\ud800", float("nan"), b"\xff", object(), {1: {2: 3}})
        (report,) = daemon.outcomes(2)
        assert report["error"]["type"] == "ValueError"

    def test_a_fault_of_our_own_costs_no_exception(
        self, daemon: Fake, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fault(*_: Any, **__: Any) -> None:
            raise RuntimeError("a fault")

        monkeypatch.setattr("sidecar.client.judged.judge", fault)
        with pytest.raises(KeyError) as caught, guarded():
            raise KeyError("x")
        assert type(caught.value) is KeyError
        assert daemon.outcomes(2)[0]["error"]["type"] == "asyncio.exceptions.CancelledError"


class TestAsync:
    async def test_as_a_context_manager(self, daemon: Fake, guarded: Guarded) -> None:
        async with guarded() as entry:
            assert entry.guarded
        with pytest.raises(ConnectionRefusedError) as caught:
            async with guarded():
                refused()
        assert caught.value.envelope.code == "connection_refused"
        ok, failed = daemon.outcomes(4)
        assert (ok["ok"], failed["error"]["errno"]) == (True, 111)

    async def test_a_cancelled_call_is_neutral(self, daemon: Fake, guarded: Guarded) -> None:
        began = asyncio.Event()

        async def call() -> None:
            async with guarded():
                began.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(call())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert daemon.outcomes(2)[0]["error"]["type"] == "asyncio.exceptions.CancelledError"

    async def test_a_timeout_inside_is_a_failure(self, daemon: Fake, guarded: Guarded) -> None:
        with pytest.raises(TimeoutError) as caught:
            async with guarded(), asyncio.timeout(0):
                await asyncio.Event().wait()
        assert caught.value.envelope.code == "timeout"  # type: ignore[attr-defined]
        assert daemon.outcomes(2)[0]["error"]["type"] == "TimeoutError"

    async def test_cancelled_while_it_asks(self, fake: Start) -> None:
        """The connection in mid-question is not used again."""
        asked, answering = threading.Event(), threading.Event()

        def answer(seen: Seen) -> bytes:
            asked.set()
            answering.wait(20)
            return letting_through(seen)

        daemon = fake(answer)
        there = guard("orders-db", admin=daemon.address, timeout=20.0)

        async def call() -> None:
            async with there:
                raise AssertionError("it was cancelled before")

        task = asyncio.create_task(call())
        await asyncio.to_thread(asked.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        answering.set()
        async with there as entry:
            assert entry.guarded
        assert daemon.connections == 2

    async def test_entered_here_and_left_there(self, daemon: Fake, guarded: Guarded) -> None:
        """A fixture or a stack may be closed by another task."""
        there = guarded()
        await asyncio.create_task(there.__aenter__())
        await asyncio.create_task(there.__aexit__(None, None, None))
        assert [one["ok"] for one in daemon.outcomes(2)] == [True]

    async def test_many_at_once_through_one_guard(self, daemon: Fake, guarded: Guarded) -> None:
        there, met = guarded(), asyncio.Barrier(20)

        async def call(number: int) -> str:
            with workflow(f"w-{number}"):
                async with there as entry:
                    await met.wait()
                return entry.correlation_id

        ids = await asyncio.gather(*(call(number) for number in range(20)))
        reports = daemon.outcomes(40)
        asked = {one.headers["x-correlation-id"] for one in daemon.seen if one.document is None}
        assert {one["correlation_id"] for one in reports} == set(ids) == asked
        assert len({one["correlation_id"] for one in reports}) == 20


class TestDecorator:
    def test_a_function(self, daemon: Fake, guarded: Guarded) -> None:
        @guarded()
        def double(number: int, *, more: int = 0) -> int:
            """Doubles."""
            return number * 2 + more

        assert (double(2), double(2, more=1)) == (4, 5)
        assert (double.__name__, double.__doc__) == ("double", "Doubles.")
        assert str(inspect.signature(double)) == "(number: 'int', *, more: 'int' = 0) -> 'int'"
        assert [one["ok"] for one in daemon.outcomes(4)] == [True, True]

    async def test_a_coroutine_function(self, daemon: Fake, guarded: Guarded) -> None:
        class Client:
            @guarded()
            async def fetch(self, number: int) -> int:
                return number

            async def __call__(self) -> int:
                return 7

        assert inspect.iscoroutinefunction(Client.fetch)
        assert await Client().fetch(3) == 3
        assert await guarded()(Client())() == 7
        assert await guarded()(functools.partial(Client().fetch, 4))() == 4
        daemon.outcomes(8)

    def test_a_generator_is_guarded_while_it_runs(self, daemon: Fake, guarded: Guarded) -> None:
        @guarded()
        def count() -> Iterator[int]:
            sent = yield 1
            assert sent == "x"
            yield 2
            refused()

        numbers: Any = count()
        assert daemon.seen == []
        assert (next(numbers), numbers.send("x")) == (1, 2)
        with pytest.raises(ConnectionRefusedError):
            next(numbers)
        numbers = count()
        next(numbers)
        numbers.close()
        failed, closed = daemon.outcomes(4)
        assert failed["error"]["type"] == "ConnectionRefusedError"
        assert closed["error"]["message"] == "ended by GeneratorExit"

    def test_a_generator_may_be_driven_from_anywhere(self, daemon: Fake, guarded: Guarded) -> None:
        """As a web framework drives it: each step in another thread and another context."""

        @guarded()
        def count() -> Iterator[int]:
            yield from range(3)

        numbers = count()
        with ThreadPoolExecutor(4) as pool:
            steps = [
                pool.submit(copy_context().run, next, numbers, None).result() for _ in range(4)
            ]
        assert steps == [0, 1, 2, None]
        assert [one["ok"] for one in daemon.outcomes(2)] == [True]

    async def test_an_asynchronous_generator(self, daemon: Fake, guarded: Guarded) -> None:
        @guarded()
        async def count() -> AsyncIterator[int]:
            yield 1
            yield 2
            refused()

        numbers: Any = count()
        assert [await anext(numbers), await anext(numbers)] == [1, 2]
        with pytest.raises(ConnectionRefusedError) as caught:
            await anext(numbers)
        assert caught.value.envelope.retryable
        left: Any = count()
        assert await anext(left) == 1
        await left.aclose()
        assert daemon.outcomes(4)[1]["error"]["message"] == "ended by GeneratorExit"

    def test_a_refused_call_is_not_made(self, fake: Start) -> None:
        called = []

        @guard("orders-db", admin=fake(refusing).address, timeout=20.0)
        def call() -> None:
            called.append(1)

        with pytest.raises(BreakerOpen):
            call()
        assert called == []

    def test_inside_a_context_manager_of_a_library(self, daemon: Fake, guarded: Guarded) -> None:
        @contextmanager
        def transaction() -> Iterator[None]:
            with guarded():
                yield

        with pytest.raises(ConnectionRefusedError) as caught, transaction():
            refused()
        assert caught.value.envelope.code == "connection_refused"  # type: ignore[attr-defined]


class TestIds:
    def test_one_for_all_steps_of_a_workflow(self, daemon: Fake, guarded: Guarded) -> None:
        with workflow() as outer:
            assert correlation_id() == outer
            with guarded() as entry:
                assert entry.correlation_id == outer
            with workflow() as inner, pytest.raises(KeyError) as caught, guarded():
                raise KeyError("x")
            assert inner == outer
            assert caught.value.envelope.correlation_id == outer
            with workflow("another one\r\n" + "x" * 200) as other:
                assert other.startswith("another_one_")
                assert len(other) == 128
            assert correlation_id() == outer
        assert correlation_id() is None
        assert {one["correlation_id"] for one in daemon.outcomes(4)} == {outer}

    def test_outside_each_call_has_its_own(self, daemon: Fake, guarded: Guarded) -> None:
        for _ in range(3):
            with guarded():
                pass
        assert len({one["correlation_id"] for one in daemon.outcomes(6)}) == 3

    async def test_it_follows_tasks_and_threads(self) -> None:
        with workflow("w-7"):

            async def task() -> str | None:
                return correlation_id()

            assert await asyncio.create_task(task()) == "w-7"
            assert await asyncio.to_thread(correlation_id) == "w-7"

    def test_an_empty_one_is_made(self) -> None:
        with workflow("  ") as id_:
            assert len(id_) == 32


class TestArguments:
    @pytest.mark.parametrize("name", ["", "Orders", "a/b", "-x", "a b", "a\r\n", "ö"])
    def test_a_name_that_can_be_none(self, name: str) -> None:
        with pytest.raises(ValueError, match="no name"):
            guard(name)

    def test_words_that_mean_nothing(self) -> None:
        with pytest.raises(ValueError, match="phase"):
            guard("x", phase="prepare")
        with pytest.raises(ValueError, match="source"):
            guard("x", source="http")

    def test_what_it_is_called(self) -> None:
        assert repr(guard("orders-db")) == "guard('orders-db')"

    def test_left_without_having_been_entered(self, guarded: Guarded) -> None:
        with pytest.raises(KeyError) as caught:
            guarded().__exit__(KeyError, KeyError("x"), None)
        assert caught.value.envelope.correlation_id  # type: ignore[attr-defined]


def test_a_loop_of_another_kind_is_held_for_a_moment_only(daemon: Fake, guarded: Guarded) -> None:
    """No loop of asyncio runs, as under trio: the same question, asked by the thread."""

    async def call() -> bool:
        async with guarded() as entry:
            return entry.guarded

    coroutine = call()
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    assert done.value.value is True
    assert [one["ok"] for one in daemon.outcomes(2)] == [True]


def test_what_was_reported_last_arrives_although_the_process_closes(fake: Start) -> None:
    daemon = fake()
    with guard("orders-db", admin=daemon.address, timeout=20.0):
        pass
    close()
    assert len(daemon.outcomes(2)) == 1


def test_the_daemon_may_answer_a_report_as_it_likes(fake: Start) -> None:
    def answer(seen: Seen) -> bytes:
        if seen.path.endswith("/report"):
            return said({"error": {"code": "expired_permit", "message": "over"}}, 409)
        return letting_through(seen)

    daemon = fake(answer)
    for _ in range(3):
        with guard("orders-db", admin=daemon.address, timeout=20.0) as entry:
            assert entry.guarded
