"""Retries: the five classes, keys, arguments, deadlines, and whatever comes out in the end."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2
import pytest

from sidecar.client import (
    Attempt,
    Budget,
    Policy,
    Retry,
    SidecarError,
    correlation_id,
    retry,
    workflow,
)
from sidecar.envelope.model import Envelope, Source
from sidecar.envelope.policy import header_envelope

from .clock import Clock
from .failures import deadlock, envelope, expired, failure


class Scene:
    """A function that fails as planned, and a retry whose time stands still meanwhile."""

    def __init__(self, *outcomes: Any, **options: Any) -> None:
        self.clock = Clock()
        self.outcomes = list(outcomes)
        self.calls: list[tuple[Any, ...]] = []
        options.setdefault("random", lambda: 1.0)
        self.retry = retry(clock=self.clock, sleep=self.clock.sleep, **options)

    def function(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((*args, kwargs) if kwargs else args)
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def coroutine(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


Run = Callable[..., Any]


def by_thread(scene: Scene, *args: Any, **kwargs: Any) -> Any:
    return scene.retry.call(scene.function, *args, **kwargs)


def by_loop(scene: Scene, *args: Any, **kwargs: Any) -> Any:
    return asyncio.run(scene.retry.call_async(scene.coroutine, *args, **kwargs))


@pytest.fixture(params=[by_thread, by_loop], ids=["thread", "loop"])
def run(request: pytest.FixtureRequest) -> Run:
    how: Run = request.param
    return how


def ended(run: Run, scene: Scene, *args: Any, **kwargs: Any) -> SidecarError:
    with pytest.raises(SidecarError) as caught:
        run(scene, *args, **kwargs)
    return caught.value


class TestClasses:
    def test_a_result_is_a_result(self, run: Run) -> None:
        scene = Scene("good")
        assert run(scene, 1, a=2) == "good"
        assert scene.calls == [(1, {"a": 2})]

    def test_transient(self, run: Run) -> None:
        scene = Scene(failure(), failure(), "good", idempotent=True)
        assert run(scene) == "good"
        assert scene.clock.slept == [0.5, 1.0]

    def test_rate_limit(self, run: Run) -> None:
        slow = failure("rate_limit", retry_after=3.0)
        scene = Scene(slow, failure("rate_limit"), "good")
        assert run(scene) == "good"
        assert scene.clock.slept == [pytest.approx(3.6), 2.0]
        scene = Scene(slow)
        assert ended(run, scene).gave_up == "attempts"
        assert len(scene.calls) == 3

    def test_a_deadlock_at_once(self, run: Run) -> None:
        scene = Scene(deadlock(), "good")
        assert run(scene) == "good"
        assert scene.clock.slept == []

    def test_permanent(self, run: Run) -> None:
        scene = Scene(failure("permanent"), idempotent=True)
        error = ended(run, scene)
        assert (error.gave_up, len(scene.calls)) == ("permanent", 1)

    def test_validation_is_repaired_by_name(self, run: Run) -> None:
        seen: list[Envelope] = []

        def shorten(told: Envelope, text: str, *, limit: int = 9) -> dict[str, Any]:
            seen.append(told)
            return {"text": text[:limit], "limit": 5}

        wrong = failure("validation", message="too long")
        scene = Scene(wrong, "good", repair=shorten)
        original = scene.function

        def function(text: str, limit: int = 9) -> Any:
            return original(text, limit)

        async def coroutine(text: str, limit: int = 9) -> Any:
            return original(text, limit)

        scene.function, scene.coroutine = function, coroutine  # type: ignore[method-assign, assignment]
        assert run(scene, "a very long text", limit=6) == "good"
        assert scene.calls == [("a very long text", 6), ("a very", 5)]
        assert [one.message for one in seen] == ["too long"]
        scene.outcomes = [wrong]
        assert ended(run, scene, "a very long text").gave_up == "validation"
        assert len(scene.calls) == 4

    @pytest.mark.parametrize("answer", [None, "text", 3])
    def test_a_repair_that_cannot_help(self, run: Run, answer: Any) -> None:
        scene = Scene(failure("validation"), repair=lambda *_: answer)
        assert ended(run, scene).gave_up == "validation"
        assert len(scene.calls) == 1

    def test_a_repair_of_what_is_not_taken(self, run: Run, caplog: Any) -> None:
        scene = Scene(failure("validation"), repair=lambda *_: {"b": 1})

        def function(a: int) -> Any:
            raise failure("validation")

        async def coroutine(a: int) -> Any:
            raise failure("validation")

        scene.function, scene.coroutine = function, coroutine  # type: ignore[method-assign, assignment]
        assert ended(run, scene, 1).gave_up == "repair_failed"
        assert "does not take" in caplog.text

    def test_a_token_is_refreshed_once(self, run: Run) -> None:
        refreshed: list[Envelope] = []
        scene = Scene(expired(), "good", refresh=refreshed.append)
        assert run(scene) == "good"
        assert [one.code for one in refreshed] == ["token_expired"]
        scene = Scene(expired(), refresh=refreshed.append)
        assert ended(run, scene).gave_up == "authentication"
        assert (len(scene.calls), len(refreshed)) == (2, 2)

    def test_a_key_that_was_revoked_is_for_a_person(self, run: Run) -> None:
        refreshed: list[Envelope] = []
        scene = Scene(failure("authentication", code="401"), refresh=refreshed.append)
        assert ended(run, scene).gave_up == "authentication"
        assert refreshed == []

    def test_a_refresh_that_fails_lets_the_failure_up(self, run: Run, caplog: Any) -> None:
        def refresh(told: Envelope) -> None:
            raise ConnectionError("no such server")

        scene = Scene(expired(), refresh=refresh)
        error = ended(run, scene)
        assert (error.gave_up, error.envelope.code) == ("refresh_failed", "token_expired")
        assert "no such server" in caplog.text

    async def test_both_may_be_awaited(self) -> None:
        async def refresh(told: Envelope) -> None:
            await asyncio.sleep(0)

        async def repair(told: Envelope, *args: Any) -> dict[str, Any]:
            await asyncio.sleep(0)
            return {"text": "better"}

        scene = Scene(expired(), failure("validation"), "good", refresh=refresh, repair=repair)

        async def ask(text: str) -> Any:
            return scene.function(text)

        assert await scene.retry.call_async(ask, "bad") == "good"
        assert scene.calls == [("bad",), ("bad",), ("better",)]

    def test_all_of_it_is_within_the_attempts(self, run: Run) -> None:
        scene = Scene(
            expired(), failure("validation"), failure(),
            refresh=lambda _: None, repair=lambda *_: {}, idempotent=True,
        )  # fmt: skip
        assert ended(run, scene).gave_up == "attempts"
        assert len(scene.calls) == 5


class TestSafe:
    def test_what_may_have_been_done_is_not_done_again(self, run: Run) -> None:
        scene = Scene(failure(code="read_timeout"), "good")
        assert ended(run, scene).gave_up == "not_safe"
        assert len(scene.calls) == 1

    def test_a_refused_connection_is_safe(self, run: Run) -> None:
        scene = Scene(ConnectionRefusedError(111, "Connection refused"), "good")
        assert run(scene) == "good"

    def test_a_key_makes_it_safe_and_is_one(self) -> None:
        keys, attempts = [], []
        scene = Scene(failure(), failure(), "good")

        def pay(amount: int, *, idempotency_key: str, attempt: Attempt) -> Any:
            keys.append(idempotency_key)
            attempts.append(attempt)
            return scene.function(amount)

        paying: Any = scene.retry(pay)
        assert paying(3) == "good"
        assert len(set(keys)) == 1
        assert len(keys[0]) == 36
        assert [one.number for one in attempts] == [1, 2, 3]
        assert {one.idempotency_key for one in attempts} == set(keys)
        assert len({one.correlation_id for one in attempts}) == 1
        assert [one.left for one in attempts] == [45.0, 44.5, 43.5]
        assert attempts[0].headers == {
            "idempotency-key": keys[0],
            "x-correlation-id": attempts[0].correlation_id,
        }
        assert paying(3) == "good"
        assert len(set(keys)) == 2

    @pytest.mark.parametrize("how", ["by name", "by place"])
    def test_the_callers_own_key_is_kept(self, how: str) -> None:
        keys = []
        scene = Scene(failure(), "good")

        def pay(amount: int, idempotency_key: str | None = None) -> Any:
            keys.append(idempotency_key)
            return scene.function()

        if how == "by name":
            scene.retry.call(pay, 3, idempotency_key="mine")
        else:
            scene.retry.call(pay, 3, "mine")
        assert keys == ["mine", "mine"]

    def test_a_key_that_is_not_given_is_made(self) -> None:
        keys = []
        scene = Scene("good", make_key=lambda: "made")

        def pay(*, idempotency_key: str | None = None) -> Any:
            keys.append(idempotency_key)

        scene.retry.call(pay, idempotency_key=None)
        scene.retry.call(pay)
        assert keys == ["made", "made"]

    def test_asking_for_the_attempt_alone_makes_nothing_safe(self) -> None:
        scene = Scene(failure())

        def call(attempt: Attempt | None = None) -> Any:
            return scene.function()

        with pytest.raises(SidecarError) as caught:
            scene.retry.call(call)
        assert caught.value.gave_up == "not_safe"

    def test_a_function_with_any_names_gets_none_of_ours(self) -> None:
        scene = Scene("good")
        scene.retry.call(scene.function, 1, b=2)
        assert scene.calls == [(1, {"b": 2})]


class TestDeadline:
    def test_nobody_sleeps_in_vain(self, run: Run) -> None:
        scene = Scene(failure("rate_limit", retry_after=10.0), timeout=10)
        assert ended(run, scene).gave_up == "deadline"
        assert scene.clock.slept == []

    def test_an_attempt_that_took_all_of_it_is_the_last(self, run: Run) -> None:
        scene = Scene(failure(), idempotent=True, timeout=10)
        original = scene.function

        def slow(*args: Any) -> Any:
            scene.clock.now += 4
            return original(*args)

        scene.function = slow  # type: ignore[method-assign]
        assert ended(run, scene).gave_up == "deadline"
        # 4 + 0.5 + 4 + 1 = 9.5, and after the third attempt it is 13.5.
        assert (len(scene.calls), scene.clock.slept) == (3, [0.5, 1.0])

    def test_a_refresh_that_took_all_of_it(self, run: Run) -> None:
        def refresh(told: Envelope) -> None:
            scene.clock.now += 11

        scene = Scene(expired(), "good", refresh=refresh, timeout=10)
        assert ended(run, scene).gave_up == "deadline"
        assert len(scene.calls) == 1

    def test_without_one(self, run: Run) -> None:
        scene = Scene(failure("rate_limit", retry_after=59.0), "good", timeout=None)
        assert run(scene) == "good"

    def test_a_hint_beyond_all_patience(self, run: Run) -> None:
        scene = Scene(failure("rate_limit", retry_after=568157.0), timeout=None)
        assert ended(run, scene).gave_up == "wait"
        assert scene.clock.slept == []


class TestBudget:
    def test_it_is_over_all_calls(self, run: Run) -> None:
        clock = Clock()
        budget = Budget(0.1, per_second=0, burst=2, clock=clock)
        ends = []
        for _ in range(21):
            scene = Scene(failure(), idempotent=True, budget=budget)
            ends.append((ended(run, scene).gave_up, len(scene.calls)))
        assert ends[0] == ("budget", 3)
        # The first paid into a full bucket; from then on ten calls pay for one repeat.
        assert sum(calls for _, calls in ends) == 21 + 2 + 2

    def test_each_retry_has_its_own_unless_it_is_given_one(self) -> None:
        assert retry().budget is not retry().budget
        one = Budget()
        assert retry(budget=one).budget is one


class TestEnd:
    def test_the_last_failure_with_its_envelope(self, run: Run) -> None:
        scene = Scene(sqlite3.OperationalError("database is locked"))
        with pytest.raises(sqlite3.OperationalError) as caught:
            run(scene)
        error: Any = caught.value
        assert isinstance(error, SidecarError)
        assert (error.envelope.class_, error.gave_up) == ("transient", "not_safe")
        assert isinstance(error.__cause__, sqlite3.OperationalError)

    def test_one_that_has_an_envelope_is_raised_itself(self, run: Run) -> None:
        told = failure("permanent")
        scene = Scene(told)
        assert ended(run, scene) is told

    @pytest.mark.parametrize(
        "error",
        [KeyboardInterrupt(), SystemExit(1), GeneratorExit(), asyncio.CancelledError()],
        ids=lambda error: type(error).__name__,
    )
    def test_who_goes_goes_at_once(self, error: BaseException) -> None:
        scene = Scene(error, "good", idempotent=True)
        with pytest.raises(type(error)) as caught:
            by_thread(scene)
        assert caught.value is error
        assert len(scene.calls) == 1

    def test_an_iterator_that_ran_out_is_no_failure(self) -> None:
        with pytest.raises(StopIteration) as caught:
            retry(idempotent=True).call(next, iter(()))
        assert type(caught.value) is StopIteration

    async def test_a_cancellation_ends_the_wait(self) -> None:
        waiting = asyncio.Event()

        async def sleep(seconds: float) -> None:
            waiting.set()
            await asyncio.Event().wait()

        calls = []

        @retry(sleep=sleep, idempotent=True)
        async def call() -> None:
            calls.append(1)
            raise failure()

        task = asyncio.create_task(call())
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert calls == [1]

    def test_a_retry_inside_has_had_its_attempts(self, run: Run) -> None:
        inner = Scene(failure(), idempotent=True)
        outer = Scene("unused", idempotent=True)
        outer.function = lambda: by_thread(inner)  # type: ignore[method-assign]

        async def coroutine() -> Any:
            return by_thread(inner)

        outer.coroutine = coroutine  # type: ignore[method-assign]
        assert ended(run, outer).gave_up == "attempts"
        assert len(inner.calls) == 5

    def test_a_fault_of_our_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fault(*_: Any, **__: Any) -> None:
            raise RuntimeError("a fault")

        monkeypatch.setattr("sidecar.client.judged.judge", fault)
        with pytest.raises(KeyError) as caught:
            retry(idempotent=True).call({}.__getitem__, "x")
        assert type(caught.value) is KeyError

    def test_each_attempt_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "sidecar.client"):
            by_thread(Scene(failure(code="503"), "good", idempotent=True))
        assert [record.message for record in caplog.records] == [
            "attempt 1: 503 (transient): repeat in 0.5 s [w-1]"
        ]

    def test_one_id_for_all_attempts(self, run: Run) -> None:
        ids: list[str | None] = []
        scene = Scene(failure(), "good", idempotent=True)
        original = scene.function

        def function() -> Any:
            ids.append(correlation_id())
            return original()

        scene.function = function  # type: ignore[method-assign]
        run(scene)
        assert len(ids) == 2
        assert len(set(ids)) == 1
        with workflow("w-5"):
            by_thread(scene)
        assert ids[2] == "w-5"


class FakeResponse:
    """An HTTP answer that nobody raised for."""

    def __init__(self, told: Envelope | None, **more: str) -> None:
        self.headers = dict(more)
        self.closed = 0
        if told is not None:
            self.headers["x-error-envelope"] = header_envelope(told)

    def close(self) -> None:
        self.closed += 1


class TestAnswers:
    def test_one_that_the_daemon_marked_is_a_failure(self, run: Run) -> None:
        bad, good = FakeResponse(envelope("rate_limit", retry_after=2.0)), FakeResponse(None)
        scene = Scene(bad, good)
        assert run(scene) is good
        assert (bad.closed, good.closed) == (1, 0)
        assert scene.clock.slept == [pytest.approx(2.4)]

    def test_the_last_one_is_given_back_open(self, run: Run) -> None:
        bad = FakeResponse(envelope("permanent"))
        assert run(Scene(bad)) is bad
        assert bad.closed == 0

    def test_what_it_says_of_retrying_is_heard(self, run: Run) -> None:
        bad = FakeResponse(envelope("transient"), **{"x-should-retry": "false"})
        scene = Scene(bad, "good", idempotent=True)
        assert run(scene) is bad

    def test_what_is_no_answer_is_not_looked_at(self, run: Run) -> None:
        class Row:
            """As a mapper's: a column of this name would be loaded from a server."""

            @property
            def headers(self) -> Any:
                raise AssertionError("it was asked for")

        row = Row()
        assert run(Scene(row)) is row

    async def test_of_a_real_client(self) -> None:
        marks = {"x-error-envelope": header_envelope(envelope("rate_limit"))}
        answers = [httpx2.Response(429, headers=marks), httpx2.Response(200, text="good")]
        transport = httpx2.MockTransport(lambda _: answers.pop(0))
        clock = Clock()
        again = retry(clock=clock, sleep=clock.sleep_async)
        async with httpx2.AsyncClient(transport=transport) as client:
            found = await again.call_async(client.get, "http://localhost:7600/x")
        assert found.text == "good"
        assert len(clock.slept) == 1


class TestForms:
    def test_a_bare_decorator(self) -> None:
        @retry
        def double(number: int) -> int:
            """Doubles."""
            return number * 2

        assert double(2) == 4
        assert (double.__name__, double.__doc__) == ("double", "Doubles.")

    async def test_of_a_coroutine_function(self) -> None:
        class Client:
            @retry(idempotent=True)
            async def fetch(self, number: int) -> int:
                return number

        assert inspect.iscoroutinefunction(Client.fetch)
        assert await Client().fetch(3) == 3
        assert await retry(functools.partial(Client().fetch, 4))() == 4

    def test_what_reads_the_signature_does_not_see_the_attempt(self) -> None:
        @retry
        def call(text: str, *, attempt: Attempt, idempotency_key: str = "") -> str:
            return f"{text} {attempt.number}"

        assert list(inspect.signature(call).parameters) == ["text", "idempotency_key"]
        assert call("x") == "x 1"  # type: ignore[call-arg]

    def test_a_builtin(self) -> None:
        assert retry().call(max, 1, 2) == 2
        assert retry(len)([1]) == 1

    def test_a_stream_cannot_be_repeated(self) -> None:
        def numbers() -> Iterator[int]:
            yield 1

        async def later() -> AsyncIterator[int]:
            yield 1

        for function in (numbers, later):
            with pytest.raises(TypeError, match="generator"):
                retry(function)  # type: ignore[type-var]

    @pytest.mark.parametrize(
        "wrong", [{"timeout": 0}, {"timeout": -1}, {"timeout": float("nan")}, {"source": "http"}]
    )
    def test_options_that_can_be_none(self, wrong: Any) -> None:
        with pytest.raises(ValueError):
            retry(**wrong)
        with pytest.raises(ValueError):
            Retry(**wrong)

    def test_an_option_that_there_is_not(self) -> None:
        with pytest.raises(TypeError):
            retry(tries=3)  # type: ignore[call-overload]

    def test_the_policy_is_an_option(self) -> None:
        scene = Scene(failure(), idempotent=True, policy=Policy(attempts=2, backoff=4))
        ended(by_thread, scene)
        assert (len(scene.calls), scene.clock.slept) == (2, [4.0])

    def test_a_database_may_be_named(self) -> None:
        scene = Scene(TimeoutError("x"), vendor="postgresql")
        assert ended(by_thread, scene).envelope.source is Source.DATABASE

    async def test_its_own_sleeps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        slept: list[Any] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        monkeypatch.setattr("time.sleep", slept.append)
        monkeypatch.setattr("asyncio.sleep", sleep)
        outcomes: list[Any] = [failure(), 1, failure(), 2]

        def call() -> Any:
            outcome = outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        async def call_async() -> Any:
            return call()

        again = retry(idempotent=True, random=lambda: 0.5)
        assert again.call(call) == 1
        assert await again.call_async(call_async) == 2
        assert slept == [0.25, 0.25]
