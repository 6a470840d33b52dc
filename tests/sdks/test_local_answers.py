"""Every answer of the daemon's own, as the official Python clients see it.

The exception is the one that their users catch, its text can be read, the envelope is beside it,
and a client asks again only where that can help.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import anyio
import openai
import pytest
import trustme

from sidecar import clock
from tests.proxy.upstreams import Upstream, Visit, answer, says

from .clients import ASYNC_KINDS, KINDS
from .conftest import begin, beside, envelope

SERVER_ERRORS = (openai.InternalServerError, anthropic.InternalServerError)
NOT_FOUND = (openai.NotFoundError, anthropic.NotFoundError)
RATE_LIMITS = (openai.RateLimitError, anthropic.RateLimitError)
STATUS_ERRORS = (openai.APIStatusError, anthropic.APIStatusError)
BAD_REQUESTS = (openai.BadRequestError, anthropic.BadRequestError)


def check(error: Any, status: int, class_: str, code: str, decision: str, raised: Any) -> Any:
    """What holds for each of them; returns the envelope."""
    assert isinstance(error, raised), repr(error)
    assert error.status_code == status
    headers = error.response.headers
    assert headers["x-sidecar-decision"] == decision
    found = beside(error)
    assert (found["class"], found["code"]) == (class_, code)
    assert envelope(error) == {name: v for name, v in found.items() if name != "raw"}
    assert found["message"] in str(error)
    assert found["source"] == (
        "http" if decision in {"connect_error", "timeout", "upstream_error"} else "sidecar"
    )
    assert found["correlation_id"] == headers["x-correlation-id"]
    assert headers["cache-control"] == "no-store"
    assert (headers.get("x-should-retry") == "false") or found["retryable"]
    if isinstance(error, openai.APIError) and decision not in {
        "unknown_provider",
        "forbidden_host",
        "internal_error",
    }:
        assert (error.code, error.param) == (code, None)
        assert error.type
    return found


async def hang(visit: Visit) -> None:
    await visit.closed()
    visit.keep = False


async def reset(visit: Visit) -> None:
    await visit.read_body()
    visit.reset()


# -- the breaker ----------------------------------------------------------------------------


async def open_the_breaker(client: Any, api: Any) -> None:
    for n in range(5):
        await client.error("status-500", extra_body={"n": n})


@pytest.mark.parametrize("kind", KINDS)
async def test_breaker_open(start, upstream, api, make, kind) -> None:
    """Once asked, once answered: the client does not wait for a breaker."""
    running = await begin(start, upstream.url)
    await open_the_breaker(make(kind, running, max_retries=0), api)
    client = make(kind, running)
    error = await client.error("status-500", extra_body={"n": 6})
    found = check(error, 503, "transient", "breaker_open", "breaker_open", SERVER_ERRORS)
    assert len(running.calls) == 6
    assert upstream.hits == 5
    assert error.response.headers["x-should-retry"] == "false"
    assert found["retryable"] is True
    assert 0 < found["retry_after"] <= 36
    await client.ask("gpt-4o")


@pytest.mark.parametrize("kind", ASYNC_KINDS)
async def test_breaker_open_without_fail_fast(
    start, upstream, api, make, kind, monkeypatch
) -> None:
    """The client's own retry, after the wait it was told, is the probe."""
    slept: list[float] = []
    real = clock.monotonic

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    # The client's sleep moves the daemon's clock, so that no machine is too slow for the test.
    monkeypatch.setattr(anyio, "sleep", sleep)
    monkeypatch.setattr(clock, "monotonic", lambda: real() + sum(slept))
    running = await begin(start, upstream.url, breaker={"fail_fast": False, "open_max": "1h"})
    hasty, patient = make(kind, running, max_retries=0), make(kind, running, max_retries=1)
    await open_the_breaker(hasty, api)

    async def well(visit: Visit) -> bool:
        await visit.read_body()
        await visit.send(answer(200, b'{"id":"x","type":"message","choices":[],"content":[]}'))
        return True

    api.before = well
    await patient.ask("status-500")
    assert [call.decision for call in running.calls[-2:]] == ["breaker_open", "forwarded"]
    assert running.calls[-1].status == 200
    assert len(slept) == 1
    assert 0 < slept[0] <= 36


# -- limits and budgets ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_shed(running, upstream, api, make, kind) -> None:
    """The exception of a rate limit, with the wait that is left."""
    error = await make(kind, running, max_retries=0).error("wait-week")
    assert error.status_code == 429
    error = await make(kind, running).error("wait-week")
    found = check(error, 429, "rate_limit", "shed", "shed", RATE_LIMITS)
    assert found["retryable"] is True
    assert 3599 < found["retry_after"] < 3602
    # Longer than a client should sleep: it was told so, and asked once.
    assert error.response.headers["x-should-retry"] == "false"
    assert (upstream.hits, len(running.calls)) == (1, 2)


@pytest.mark.parametrize("kind", ASYNC_KINDS)
async def test_shed_for_a_while_is_left_to_the_client(
    start, upstream, api, make, kind, monkeypatch
) -> None:
    """The client sleeps as long as it was told, and its own retry is served."""
    slept: list[float] = []
    real = clock.monotonic

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    monkeypatch.setattr(clock, "monotonic", lambda: real() + sum(slept))
    running = await begin(start, upstream.url, shedding={"retry_after_max": "20s"})
    await make(kind, running, max_retries=0).error("wait-week")

    async def well(visit: Visit) -> bool:
        await visit.read_body()
        await visit.send(answer(200, b'{"id":"x","type":"message","choices":[],"content":[]}'))
        return True

    api.before = well
    await make(kind, running, max_retries=1).ask("wait-week")
    assert [call.decision for call in running.calls] == ["forwarded", "shed", "forwarded"]
    assert len(slept) == 1
    assert 19 < slept[0] <= 22


@pytest.mark.parametrize("kind", KINDS)
async def test_quota(running, upstream, api, make, kind) -> None:
    """Asked once: nobody retries a budget that is known to be spent."""
    await make(kind, running).error("spent-429")
    word = "quota_exhausted" if kind.startswith("openai") else "credits_exhausted"
    error = await make(kind, running).error("spent-429")
    found = check(error, 402, "permanent", word, "quota", STATUS_ERRORS)
    assert (found["retryable"], found["retry_after"]) == (False, None)
    assert "retry-after" not in error.response.headers
    assert "asks again in" in found["message"]
    assert (upstream.hits, len(running.calls)) == (1, 2)


# -- no connection --------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def full() -> Iterator[str]:
    """An address whose queue of connections is full: the next one hangs."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = []
        for _ in range(4):
            caller = socket.socket()
            caller.setblocking(False)
            caller.connect_ex(listening.getsockname())
            waiting.append(caller)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        for caller in waiting:
            caller.close()


@pytest.fixture
async def untrusted() -> AsyncIterator[str]:
    """An upstream whose certificate nobody vouches for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    server = Upstream()
    await server.start(tls=context)
    yield f"https://localhost:{server.port}"
    await server.stop()


@pytest.mark.parametrize("kind", KINDS)
async def test_connection_refused(start, make, kind) -> None:
    running = await begin(start, f"http://127.0.0.1:{free_port()}")
    error = await make(kind, running, max_retries=0).error()
    found = check(error, 502, "transient", "connection_refused", "connect_error", SERVER_ERRORS)
    assert found["retryable"] is True
    assert error.response.headers.get("x-should-retry") is None


async def test_connection_refused_is_worth_the_clients_retry(start, make) -> None:
    running = await begin(start, f"http://127.0.0.1:{free_port()}")
    for kind in ASYNC_KINDS:
        running.calls.clear()
        await make(kind, running, max_retries=1).error()
        assert len(running.calls) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_dns_failure(start, make, kind) -> None:
    running = await begin(start, "http://nobody.invalid")
    error = await make(kind, running, max_retries=0).error()
    check(error, 502, "transient", "dns_failure", "connect_error", SERVER_ERRORS)


@pytest.mark.parametrize("kind", KINDS)
async def test_connect_timeout(start, make, kind, full) -> None:
    running = await begin(start, full, timeouts={"connect": "100ms"})
    error = await make(kind, running, max_retries=0).error()
    check(error, 502, "transient", "connect_timeout", "connect_error", SERVER_ERRORS)


@pytest.mark.parametrize("kind", KINDS)
async def test_tls_failure(start, make, kind, untrusted) -> None:
    """The same certificate comes again: asked once, whatever retries are on."""
    running = await begin(start, untrusted)
    error = await make(kind, running).error()
    found = check(error, 502, "transient", "tls_failure", "connect_error", SERVER_ERRORS)
    assert len(running.calls) == 1
    assert (found["retryable"], found["retry_after"]) == (False, None)


# -- no answer ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("code", "timeouts"),
    [
        ("first_byte_timeout", {"first_byte": "50ms"}),
        ("total_timeout", {"total": "50ms"}),
    ],
)
async def test_timeouts(start, upstream, make, kind, code, timeouts) -> None:
    """504, and worth a retry where asking twice does no harm: a completion."""
    running = await begin(start, upstream.url, timeouts=timeouts)
    upstream.script = hang
    error = await make(kind, running, max_retries=0).error()
    check(error, 504, "transient", code, "timeout", SERVER_ERRORS)
    assert error.response.headers.get("x-should-retry") is None
    verdict = "neutral" if code == "total_timeout" else "failure"
    assert error.response.headers["x-sidecar-verdict"] == verdict


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", ["first_content_timeout", "idle_timeout"])
async def test_timeouts_while_the_answer_is_held(start, upstream, make, kind, code) -> None:
    """An answer that has begun but said nothing yet still becomes a real status."""
    name = code.removesuffix("_timeout")
    running = await begin(start, upstream.url, timeouts={name: "50ms", "hold": "5s"})

    async def script(visit: Visit) -> None:
        await visit.read_body()
        if code == "idle_timeout":
            head = (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
            )
            await visit.send(head, b'{"id": "x"')
        else:
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            await visit.send(head)
        await hang(visit)

    upstream.script = script
    error = await make(kind, running, max_retries=0).error()
    check(error, 504, "transient", code, "timeout", SERVER_ERRORS)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_may_have_been_done_is_not_repeated(start, upstream, make, kind) -> None:
    """A file may have been stored: only its owner can tell, so no client asks again by itself."""
    running = await begin(start, upstream.url, timeouts={"first_byte": "50ms"})
    client = make(kind, running)

    async def upload() -> Any:
        content = ("notes.txt", b"hello", "text/plain")
        if client.is_openai:
            send = client.call(client.raw.files.create, file=content, purpose="batch")
        else:
            files = getattr(client.raw, "files", None) or client.raw.beta.files
            send = client.call(files.upload, file=content)
        try:
            return await send
        except (openai.OpenAIError, anthropic.AnthropicError) as error:
            return error

    upstream.script = hang
    error = await upload()
    check(error, 504, "transient", "first_byte_timeout", "timeout", SERVER_ERRORS)
    assert upstream.hits == 1
    upstream.script = reset
    error = await upload()
    check(error, 502, "transient", "connection_reset", "upstream_error", SERVER_ERRORS)
    assert upstream.hits == 2
    assert "may have been executed" in str(error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", ["connection_reset", "invalid_upstream_response"])
async def test_upstream_errors(start, upstream, make, kind, code) -> None:
    running = await begin(start, upstream.url)
    upstream.script = reset if code == "connection_reset" else says(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    error = await make(kind, running, max_retries=0).error()
    check(error, 502, "transient", code, "upstream_error", SERVER_ERRORS)
    assert error.response.headers.get("x-should-retry") is None


@pytest.mark.parametrize("kind", KINDS)
async def test_a_reused_connection_that_was_dead(start, upstream, api, make, kind) -> None:
    running = await begin(start, upstream.url)
    client = make(kind, running, max_retries=0)
    await client.ask()

    async def script(visit: Visit) -> bool:
        await visit.read_body()
        visit.reset()
        return True

    api.before = script
    error = await client.error()
    check(error, 502, "transient", "connection_closed", "upstream_error", SERVER_ERRORS)
    assert error.response.headers["x-sidecar-verdict"] == "neutral"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_web_page_instead_of_an_answer(start, upstream, make, kind) -> None:
    """Without the daemon the clients hand the page on as if it were the answer."""
    page = b"<!DOCTYPE html><html><body>Sign in to the guest network</body></html>"
    upstream.script = says(answer(200, page, kind=b"text/html"))
    running = await begin(start, upstream.url)
    error = await make(kind, running, max_retries=0).error()
    assert isinstance(error, SERVER_ERRORS)
    assert (error.status_code, envelope(error)["code"]) == (503, "invalid_upstream_response")


# -- refused --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_draining(running, upstream, make, kind) -> None:
    client = make(kind, running, max_retries=0)
    await client.ask()
    running.daemon.plane.draining = True
    error = await client.error()
    found = check(error, 503, "transient", "draining", "draining", SERVER_ERRORS)
    assert (found["retry_after"], error.response.headers["retry-after"]) == (1, "1")
    assert error.response.headers["connection"] == "close"
    assert upstream.hits == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_unknown_provider(running, upstream, make, kind) -> None:
    client = make(kind, f"http://127.0.0.1:{running.port}/opanai")
    error = await client.error()
    check(error, 404, "permanent", "unknown_provider", "unknown_provider", NOT_FOUND)
    assert "anthropic, openai" in str(error)
    assert (len(running.calls), upstream.hits) == (1, 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_forbidden_host(running, upstream, make, kind) -> None:
    client = make(kind, running, default_headers={"Host": "evil.example"})
    error = await client.error()
    refused = (openai.PermissionDeniedError, anthropic.PermissionDeniedError)
    check(error, 403, "permanent", "forbidden_host", "forbidden_host", refused)
    assert "allowed_hosts" in str(error)
    assert (len(running.calls), upstream.hits) == (1, 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_bad_request(start, upstream, make, kind) -> None:
    running = await begin(start, f"{upstream.url}/prefix")
    client = make(kind, running)
    with pytest.raises(BAD_REQUESTS) as raised:
        await client.call(client.raw.get, "/%2e%2e/%2e%2e/%2e%2e/secret", cast_to=object)
    check(raised.value, 400, "validation", "bad_request", "bad_request", BAD_REQUESTS)
    assert (len(running.calls), upstream.hits) == (1, 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_too_large(start, upstream, make, kind) -> None:
    running = await begin(start, upstream.url, limits={"request_body": 1000})
    client = make(kind, running)
    error = await client.error(extra_body={"long": "x" * 1_000_000})
    classes = (openai.APIStatusError, anthropic.APIStatusError)
    check(error, 413, "validation", "too_large", "too_large", classes)
    assert "limits.request_body (1000" in str(error)
    assert (len(running.calls), upstream.hits) == (1, 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_sigv4_unsupported(running, upstream, make, kind) -> None:
    client = make(kind, running)
    signed = {
        "Authorization": "AWS4-HMAC-SHA256 Credential=AKIA/20260101/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=0"
    }
    error = await client.error(extra_headers=signed)
    check(error, 400, "validation", "sigv4_unsupported", "sigv4_unsupported", BAD_REQUESTS)
    assert (len(running.calls), upstream.hits) == (1, 0)


@pytest.mark.interpreted
@pytest.mark.parametrize("kind", KINDS)
async def test_internal_error(running, upstream, make, monkeypatch, kind) -> None:
    def fall(*_: Any) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("sidecar.proxy.headers.request_lines", fall)
    error = await make(kind, running).error()
    check(error, 500, "permanent", "internal_error", "internal_error", SERVER_ERRORS)
    assert (len(running.calls), upstream.hits) == (1, 0)
    assert [str(fault.error) for fault in running.faults] == ["a fault of ours"]
    running.faults.clear()


@pytest.mark.parametrize("kind", KINDS)
async def test_the_whole_envelope_on_request(running, make, kind) -> None:
    """A caller that asks for it gets the eight fields as the body of any error."""
    wanted = {"Accept": "application/vnd.error-envelope+json"}
    error = await make(kind, running).error("gpt-typo", extra_headers=wanted)
    assert isinstance(error, NOT_FOUND)
    assert error.body["code"] == "model_not_found"
    assert error.body["raw"]["status"] == 503
