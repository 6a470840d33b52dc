"""What is said of the two SDKs, asked of the SDKs themselves."""

import time
from email.utils import formatdate
from typing import Any

import anthropic
import openai
import pytest

from sidecar.audit import clients
from sidecar.envelope.headers import Headers

STATUSES = [400, 401, 402, 403, 404, 405, 408, 409, 410, 412, 413, 415, 422, 425, 429, 431, 451,
            499, 500, 501, 502, 503, 504, 507, 520, 529, 599]  # fmt: skip
HEADERS: list[dict[str, str]] = [
    {},
    {"x-should-retry": "true"},
    {"x-should-retry": "false"},
    {"x-should-retry": "TRUE"},
    {"x-should-retry": "true", "retry-after": "121"},
    {"retry-after": "3"},
    {"retry-after": "0"},
    {"retry-after": "-4"},
    {"retry-after": "1.5"},
    {"retry-after": "120"},
    {"retry-after": "120.5"},
    {"retry-after": "600000"},
    {"retry-after": "nan"},
    {"retry-after": "inf"},
    {"retry-after": "1e999"},
    {"retry-after": "soon"},
    {"retry-after": ""},
    {"retry-after-ms": "1500", "retry-after": "9"},
    {"retry-after-ms": "much", "retry-after": "9"},
    {"retry-after-ms": "900000"},
    {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"},
]

_OPENAI: Any = openai.OpenAI(api_key="x", base_url="http://localhost:1")
_ANTHROPIC: Any = anthropic.Anthropic(api_key="x", base_url="http://localhost:1")


_OPENAI_OPTIONS: Any = openai._models.FinalRequestOptions.construct(method="post", url="/x")
_ANTHROPIC_OPTIONS: Any = anthropic._models.FinalRequestOptions.construct(method="post", url="/x")


def _response(client: Any, status: int, headers: dict[str, str]) -> Any:
    # Both may bring an httpx of their own.
    module = type(client._client).__mro__
    library = next(
        (cls.__module__.partition(".")[0] for cls in module if cls.__name__ == "Client"), "httpx"
    )
    lib = __import__(library)
    request = lib.Request("POST", "http://localhost:1/v1/x")
    return lib.Response(status, headers=headers, json={"error": {"message": "x"}}, request=request)


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize(
    ("client", "options", "ours"),
    [(_OPENAI, _OPENAI_OPTIONS, clients.openai), (_ANTHROPIC, _ANTHROPIC_OPTIONS, clients.anthropic)],
    ids=["openai", "anthropic"],
)  # fmt: skip
def test_the_sdk_does_what_is_said_of_it(client: Any, options: Any, ours: Any, status: int) -> None:
    now = time.time()
    for headers in [*HEADERS, {"retry-after": formatdate(now + 60, usegmt=True)}]:
        response = _response(client, status, headers)
        said = ours(status, Headers(headers.items()), now)
        assert client._should_retry(response) is (said.requests == clients.REQUESTS), headers
        assert said.error == type(client._make_status_error_from_response(response)).__name__
        if said.requests == 1:
            assert said.wait is None
            continue
        slept = client._calculate_retry_timeout(2, options, response.headers)
        if said.wait is None:
            assert slept <= 0.75, headers
        else:
            assert said.wait == pytest.approx(slept, abs=2), headers


@pytest.mark.parametrize("client", [_OPENAI, _ANTHROPIC])
def test_both_repeat_twice(client: Any) -> None:
    assert client.max_retries == clients.REQUESTS - 1


@pytest.mark.parametrize("ours", [clients.openai, clients.anthropic])
def test_no_answer_is_asked_for_again(ours: Any) -> None:
    said = ours(None, Headers(), 0.0)
    assert (said.requests, said.error) == (3, "APIConnectionError")


@pytest.mark.parametrize("ours", [clients.openai, clients.anthropic])
def test_a_success_is_an_answer_whatever_stands_in_it(ours: Any) -> None:
    assert ours(200, Headers([("retry-after", "3")]), 0.0).error is None


def test_a_breaker_that_reads_statuses() -> None:
    assert [clients.breaker(status) for status in (None, 500, 503, 599)] == ["failure"] * 4
    assert [clients.breaker(status) for status in (400, 404, 429)] == ["ignored"] * 3
    assert clients.breaker(200) == "success"
