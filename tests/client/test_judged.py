"""What a failure means, told in the agent's process: whose it is, and what was known before."""

from __future__ import annotations

import json
import re
import types
import urllib.error
from concurrent.futures import CancelledError, Future
from email.message import Message
from typing import Any

import anthropic
import httpx2
import msgspec
import openai
import pytest
import requests
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from sidecar.client import envelope_of, for_model
from sidecar.client.errors import BreakerOpen, enveloped
from sidecar.client.judged import Origin, judge, judge_answer
from sidecar.client.reports import LARGEST, error_of
from sidecar.envelope.describe import describe
from sidecar.envelope.model import Envelope, ErrorClass, Source
from sidecar.envelope.policy import header_envelope
from sidecar.envelope.raised import Raised, recorded

TOLD = Envelope(
    class_=ErrorClass.RATE_LIMIT,
    source=Source.HTTP,
    code="burst",
    message="slow down",
    retryable=True,
    retry_after=7.5,
    correlation_id="w-9",
)
MARKS = {"X-Error-Envelope": header_envelope(TOLD), "X-Should-Retry": "false"}


def of_openai() -> Exception:
    request = httpx2.Request("POST", "http://localhost:7600/openai/v1/responses")
    response = httpx2.Response(429, headers=MARKS, json={"error": {}}, request=request)
    return openai.RateLimitError("slow down", response=response, body=None)


def of_anthropic() -> Exception:
    request = httpx2.Request("POST", "http://localhost:7600/anthropic/v1/messages")
    response = httpx2.Response(429, headers=MARKS, json={}, request=request)
    return anthropic.RateLimitError("slow down", response=response, body=None)


def of_httpx() -> Exception:
    request = httpx2.Request("GET", "http://localhost:7600/x")
    response = httpx2.Response(429, headers=MARKS, request=request)
    return httpx2.HTTPStatusError("429", request=request, response=response)


def of_requests() -> Exception:
    response = requests.Response()
    response.status_code = 429
    response.headers.update(MARKS)
    return requests.HTTPError("429", response=response)


def of_botocore() -> Exception:
    headers = {name.lower(): value for name, value in MARKS.items()}
    answer = {"Error": {"Code": "X"}, "ResponseMetadata": {"HTTPHeaders": headers}}
    return ClientError(answer, "Converse")  # type: ignore[arg-type]


def of_urllib() -> Exception:
    message = Message()
    for name, value in MARKS.items():
        message[name] = value
    return urllib.error.HTTPError("http://x", 429, "no", message, None)


def of_google() -> Exception:
    """As google.api_core's: the answer of requests behind a property."""
    inner = of_requests()

    class TooManyRequests(Exception):
        @property
        def response(self) -> Any:
            return inner.response  # type: ignore[attr-defined]

    return TooManyRequests("429")


def of_a_framework() -> Exception:
    """As LangChain and the like: raised from the SDK's."""
    try:
        try:
            raise of_openai()
        except openai.APIError as error:
            raise RuntimeError("the chain failed") from error
    except RuntimeError as error:
        return error


@pytest.mark.parametrize(
    "make",
    [
        of_openai, of_anthropic, of_httpx, of_requests, of_botocore, of_urllib, of_google,
        of_a_framework,
    ],
)  # fmt: skip
def test_what_the_daemon_said_is_believed(make: Any) -> None:
    judged = judge(make(), correlation_id="another")
    assert judged.envelope == TOLD
    assert judged.should_retry is False


def test_an_answer_that_nobody_raised_for() -> None:
    for answer in (of_requests().response, of_httpx().response):  # type: ignore[attr-defined]
        judged = judge_answer(answer)
        assert judged is not None
        assert judged.envelope == TOLD
    assert judge_answer(httpx2.Response(500)) is None
    assert judge_answer(types.SimpleNamespace(headers=None)) is None


@pytest.mark.parametrize(
    "header", ["", "x", "[]", "{}", '{"class": "odd"}', '{"class": "transient"}', "[" * 5000]
)
def test_an_envelope_that_is_none_is_not_believed(header: str) -> None:
    response = httpx2.Response(429, headers={"x-error-envelope": header})
    assert judge_answer(response) is None
    error = requests.HTTPError("x", response=None)
    error.response = response  # type: ignore[assignment]
    assert judge(error).envelope.code != "burst"


ODD: list[dict[str, Any]] = [
    {"retry_after": float("inf")}, {"retry_after": float("nan")}, {"retry_after": -5},
    {"retry_after": 10**400}, {"retryable": False, "retry_after": 5}, {"code": "a b" * 50}, {"code": ""},
    {"message": "a\nb" * 300}, {"message": ""}, {"message": "a \ud800"}, {"correlation_id": "a b" * 500},
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_an_envelope_that_no_daemon_of_ours_sent_is_kept_within_bounds(odd: dict[str, Any]) -> None:
    """The header may come from anybody: a wait that never ends would be slept through."""
    told = json.dumps(msgspec.to_builtins(TOLD) | odd)
    error = requests.HTTPError("x", response=None)
    error.response = httpx2.Response(429, headers={"x-error-envelope": told})  # type: ignore[assignment]
    envelope = judge(error).envelope
    assert envelope.retry_after is None or 0 <= envelope.retry_after < 1e9
    assert envelope.retryable or envelope.retry_after is None
    assert re.fullmatch(r"[A-Za-z0-9._:/#-]{1,64}", envelope.code)
    assert 0 < len(envelope.message) <= 500
    assert envelope.message.isprintable()
    assert re.fullmatch(r"[A-Za-z0-9._:/-]{0,128}", envelope.correlation_id)
    assert for_model(envelope).encode()


def test_an_envelope_that_is_there_stays() -> None:
    original = ValueError("x")
    assert judge(enveloped(original, TOLD)).envelope is TOLD
    assert envelope_of(BreakerOpen(TOLD)) is TOLD


def test_of_several_that_were_judged_apart_the_one_against_going_on() -> None:
    def told(**changes: Any) -> Exception:
        fields = {name: getattr(TOLD, name) for name in TOLD.__struct_fields__}
        return enveloped(ValueError("x"), Envelope(**fields | changes))

    final = told(class_=ErrorClass.PERMANENT, retryable=False, retry_after=None)
    slow = told(retry_after=9.0)
    group = ExceptionGroup("x", [told(), ExceptionGroup("y", [slow, ConnectionRefusedError(111)])])
    assert judge(group).envelope.retry_after == 9.0
    assert judge(ExceptionGroup("x", [slow, final])).envelope.class_ == "permanent"
    mixed = ExceptionGroup("x", [told(), KeyError("x")])
    assert judge(mixed).envelope.retryable is False


def made_in(module: str, name: str = "Error", base: type = Exception) -> type[Exception]:
    return type(name, (base,), {"__module__": module})


class TestOrigin:
    @pytest.mark.parametrize(
        ("module", "source"),
        [
            ("psycopg.errors", "database"),
            ("redis.exceptions", "database"),
            ("sqlalchemy.exc", "database"),
            ("django.db.utils", "database"),
            ("pyodbc", "database"),
            ("stripe", "sdk"),
            ("botocore.exceptions", "sdk"),
            ("google.api_core.exceptions", "sdk"),
            ("requests.exceptions", "sdk"),
            ("nobody.knows", "sdk"),
        ],
    )
    def test_by_the_family_of_its_class(self, module: str, source: str) -> None:
        assert envelope_of(made_in(module)("x")).source == source

    def test_by_what_it_wraps(self) -> None:
        error = made_in("tenacity", "RetryError")("x")
        error.__cause__ = made_in("psycopg.errors", "DeadlockDetected")("deadlock detected")
        assert envelope_of(error).source == "database"
        group = ExceptionGroup("x", [made_in("asyncpg.exceptions", "PostgresError")("x")])
        assert envelope_of(group).source == "database"

    @pytest.mark.parametrize(
        ("module", "source"),
        [("asyncpg.connect_utils", "database"), ("stripe._http", "sdk"), ("app.db", "sdk")],
    )
    def test_by_whose_code_it_came_through(self, module: str, source: str) -> None:
        """asyncpg lets a bare ConnectionRefusedError out."""
        code = "def connect():\n    raise ConnectionRefusedError(111, 'Connection refused')"
        frame: dict[str, Any] = {"__name__": module}
        exec(code, frame)
        with pytest.raises(ConnectionRefusedError) as caught:
            frame["connect"]()
        envelope = envelope_of(caught.value)
        assert (envelope.source, envelope.code) == (source, "connection_refused")

    def test_as_the_caller_says(self) -> None:
        error = TimeoutError("x")
        assert envelope_of(error, source="database").source == "database"
        assert envelope_of(error, vendor="mysql").source == "database"
        assert envelope_of(error, sdk="stripe").source == "sdk"
        assert judge(error, Origin(source="sdk")).envelope.source == "sdk"


class TestReport:
    def test_the_daemon_reads_what_was_told(self) -> None:
        try:
            try:
                raise ConnectionRefusedError(111, "Connection refused")
            except OSError as error:
                raise ExceptionGroup("x", [ValueError("a")]) from error
        except ExceptionGroup as error:
            raised = describe(error, phase="commit")
        error = error_of(raised)
        back = recorded(json.loads(json.dumps(error)))
        assert error_of(back) == error
        assert (back.type, back.phase) == ("ExceptionGroup", "commit")
        assert back.cause is not None
        assert back.cause.errno == 111
        assert [one.type for one in back.exceptions] == ["ValueError"]

    @given(st.integers(0, 12), st.integers(0, 200000))
    def test_it_is_never_too_large(self, deep: int, size: int) -> None:
        raised = Raised(type="x.Y", message="m" * size, body={"b": "b" * size}, args=("a" * size,))
        for _ in range(deep):
            raised = Raised(type="x.Z", message="m" * size, cause=raised)
        assert len(json.dumps(error_of(raised))) <= LARGEST + 1000

    @given(st.sampled_from(["type", "code", "sqlstate", "mro"]), st.text(min_size=1, max_size=3))
    def test_no_code_makes_it_too_large(self, name: str, piece: str) -> None:
        text = piece * 100000
        told = {"type": "x.Y", "message": "m", name: (text, text) if name == "mro" else text}
        assert len(json.dumps(error_of(Raised(**told)))) <= LARGEST + 1000

    def test_a_cancelled_future_is_the_callers(self) -> None:
        future: Future[None] = Future()
        future.cancel()
        with pytest.raises(CancelledError) as caught:
            future.result()
        assert envelope_of(caught.value).code == "cancelled"
