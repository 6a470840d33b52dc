"""google-genai, cohere, huggingface_hub and boto3: what they raise for an answer of the daemon's own.

Each client gets an error in the form in which its provider sends one, so that the exception is the
one its users already catch, with the envelope in reach.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import botocore.eventstream
import botocore.exceptions
import pytest
import trustme
from botocore.config import Config

from sidecar.envelope.event_stream import frame
from tests.proxy.upstreams import Visit, answer, says

from .test_local_answers import free_port

MODEL = "anthropic.claude-3-5-sonnet-20241022-v2:0"
SAID = [{"role": "user", "content": [{"text": "Say hello."}]}]


def chunked(kind: bytes, *parts: bytes) -> Callable[[Visit], Any]:
    """A stream that is cut after these parts, without a word and without the last chunk."""

    async def script(visit: Visit) -> None:
        await visit.read_body()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % kind
        await visit.send(head, *(b"%x\r\n%b\r\n" % (len(part), part) for part in parts))
        await asyncio.sleep(0.05)
        visit.reset()

    return script


async def refused(start: Any, dialect: str) -> str:
    """The address of a daemon whose upstream is not there."""
    upstream = {"upstream": f"http://127.0.0.1:{free_port()}", "dialect": dialect}
    running = await start({dialect: upstream})
    return f"http://127.0.0.1:{running.port}/{dialect}"


async def fails(kind: type[BaseException], function: Callable[..., Any], **more: Any) -> Any:
    """The exception of this kind that a call raises."""
    with pytest.raises(kind) as raised:
        await asyncio.to_thread(function, **more)
    return raised.value


# -- google-genai ---------------------------------------------------------------------------


def gemini(url: str) -> Any:
    genai = pytest.importorskip("google.genai")
    return genai.Client(api_key="k", http_options={"base_url": url})


async def test_gemini(start) -> None:
    errors = pytest.importorskip("google.genai.errors")
    client = gemini(await refused(start, "gemini"))
    error = await fails(
        errors.ServerError, client.models.generate_content, model="gemini-x", contents="x"
    )
    assert (error.code, error.status) == (502, "UNAVAILABLE")
    assert "refused" in error.message
    assert error.details["envelope"]["code"] == "connection_refused"
    assert error.details["error"]["details"][0]["reason"] == "connection_refused"
    client.close()


async def test_a_gemini_stream_that_is_cut(start, upstream) -> None:
    errors = pytest.importorskip("google.genai.errors")
    piece = {"candidates": [{"content": {"parts": [{"text": "Hi"}], "role": "model"}}]}
    upstream.script = chunked(
        b"text/event-stream", b"data: " + json.dumps(piece).encode() + b"\r\n\r\n"
    )
    running = await start({"gemini": {"upstream": upstream.url, "dialect": "gemini"}})
    client = gemini(f"http://127.0.0.1:{running.port}/gemini")
    told: list[str] = []

    def read() -> None:
        for part in client.models.generate_content_stream(model="gemini-x", contents="x"):
            told.append(part.text)

    error = await fails(errors.ServerError, read)
    assert told == ["Hi"]
    assert error.details["envelope"]["code"] == "stream_truncated"
    assert running.calls[-1].key == "gemini/gemini-x"
    client.close()


# -- cohere ---------------------------------------------------------------------------------


@pytest.fixture
def cohere_client() -> Iterator[Callable[[str], Any]]:
    cohere = pytest.importorskip("cohere")
    httpx = pytest.importorskip("httpx")
    with httpx.Client() as connections:
        yield lambda url: cohere.ClientV2(
            api_key="k",
            base_url=url,
            httpx_client=connections,
            log_warning_experimental_features=False,
        )


ONCE = {"request_options": {"max_retries": 0}}


async def test_cohere(start, cohere_client) -> None:
    core = pytest.importorskip("cohere.core.api_error")
    client = cohere_client(await refused(start, "cohere"))
    said = [{"role": "user", "content": "x"}]
    error = await fails(core.ApiError, client.chat, model="command-x", messages=said, **ONCE)
    assert error.status_code == 502
    assert error.body["envelope"]["code"] == "connection_refused"
    assert "refused" in error.body["message"]


async def test_a_cohere_stream_that_is_cut(start, upstream, cohere_client) -> None:
    piece = {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "Hi"}}}}
    upstream.script = chunked(
        b"text/event-stream",
        b"event: content-delta\ndata: " + json.dumps(piece).encode() + b"\n\n",
    )
    running = await start({"cohere": {"upstream": upstream.url, "dialect": "cohere"}})
    client = cohere_client(f"http://127.0.0.1:{running.port}/cohere")
    told: list[Any] = []

    def read() -> None:
        said = [{"role": "user", "content": "x"}]
        told.extend(client.chat_stream(model="command-x", messages=said, **ONCE))

    with pytest.raises(Exception, match="incomplete chunked read"):
        await asyncio.to_thread(read)
    assert [event.type for event in told] == ["content-delta", "message-end"]
    assert told[-1].delta.finish_reason == "ERROR"
    assert "before the answer was whole" in told[-1].delta.error


# -- huggingface_hub ------------------------------------------------------------------------


async def test_huggingface(start) -> None:
    hub = pytest.importorskip("huggingface_hub")
    errors = pytest.importorskip("huggingface_hub.errors")
    url = await refused(start, "huggingface")
    client = hub.InferenceClient(model=f"{url}/models/org/model", token="hf_x")
    error = await fails(errors.GenerationError, client.text_generation, prompt="x")
    assert "refused" in str(error)
    told = error.__cause__.response.json()
    assert told["envelope"]["code"] == "connection_refused"
    api = hub.HfApi(endpoint=url, token="hf_x")
    error = await fails(errors.HfHubHTTPError, api.model_info, repo_id="org/model")
    assert "refused" in str(error)
    assert error.response.headers["x-error-envelope"]
    hub.close_session()


async def test_a_huggingface_stream_that_is_cut(start, upstream) -> None:
    hub = pytest.importorskip("huggingface_hub")
    errors = pytest.importorskip("huggingface_hub.errors")
    piece = {"index": 1, "token": {"id": 1, "text": "Hi", "special": False}, "generated_text": None}
    upstream.script = chunked(b"text/event-stream", b"data:" + json.dumps(piece).encode() + b"\n\n")
    running = await start({"hf": {"upstream": upstream.url, "dialect": "huggingface"}})
    url = f"http://127.0.0.1:{running.port}/hf/models/org/model"
    client = hub.InferenceClient(model=url, token="hf_x")
    told: list[str] = []

    def read() -> None:
        told.extend(client.text_generation("x", stream=True))

    error = await fails(errors.GenerationError, read)
    assert told == ["Hi"]
    assert "before the answer was whole" in str(error)
    assert running.calls[-1].key == "hf/org/model"
    hub.close_session()


# -- boto3 ----------------------------------------------------------------------------------


@pytest.fixture
def bedrock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], Any]:
    """Makes `bedrock-runtime` clients with an API key, for a daemon that is called over https."""
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-good")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))

    def make(port: int) -> Any:
        config = Config(retries={"total_max_attempts": 1, "mode": "standard"}, read_timeout=10)
        session = boto3.session.Session(region_name="us-east-1")
        return session.client(
            "bedrock-runtime", endpoint_url=f"https://127.0.0.1:{port}/bedrock", config=config
        )

    return make


@pytest.fixture
async def secure(start, tmp_path) -> Any:
    """Starts daemons that are called over https."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}

    async def begin(url: str, **more: Any) -> Any:
        return await start(
            {"bedrock": {"upstream": url, "dialect": "bedrock", **more}},
            listen=[{"address": "127.0.0.1:0", "tls": tls}],
        )

    return begin


async def test_bedrock_without_an_upstream(secure, bedrock) -> None:
    running = await secure(f"http://127.0.0.1:{free_port()}")
    client = bedrock(running.port)
    error = await fails(
        client.exceptions.ServiceUnavailableException,
        client.converse,
        modelId=MODEL,
        messages=SAID,
    )
    assert "refused" in str(error)
    assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 502
    told = json.loads(error.response["ResponseMetadata"]["HTTPHeaders"]["x-error-envelope"])
    assert told["code"] == "connection_refused"
    assert running.calls[-1].key == f"bedrock/{MODEL}"
    client.close()


async def test_bedrock_behind_an_open_breaker(secure, bedrock, upstream) -> None:
    """The wait stands where boto3 looks for it."""
    upstream.script = says(answer(503, b'{"message":"m"}'))
    running = await secure(upstream.url, breaker={"consecutive_failures": 1, "repeat_window": 0})
    client = bedrock(running.port)
    kind = client.exceptions.ServiceUnavailableException
    await fails(botocore.exceptions.ClientError, client.converse, modelId=MODEL, messages=SAID)
    error = await fails(kind, client.converse, modelId=MODEL, messages=SAID)
    headers = error.response["ResponseMetadata"]["HTTPHeaders"]
    assert headers["x-sidecar-decision"] == "breaker_open"
    assert 0 < int(headers["x-amz-retry-after"]) <= 36_000
    assert upstream.hits == 1
    client.close()


async def test_a_bedrock_call_without_an_answer(secure, bedrock, upstream) -> None:
    async def hang(visit: Visit) -> None:
        await visit.read_body()
        await visit.closed()
        visit.keep = False

    upstream.script = hang
    running = await secure(upstream.url, timeouts={"first_byte": "50ms"})
    client = bedrock(running.port)
    error = await fails(
        client.exceptions.ModelTimeoutException, client.converse, modelId=MODEL, messages=SAID
    )
    assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 504
    client.close()


@pytest.mark.parametrize("half", [False, True])
async def test_a_bedrock_stream_that_is_cut(secure, bedrock, upstream, half) -> None:
    """The exception follows a whole frame, however the network cut what came before it."""
    delta = {"contentBlockIndex": 0, "delta": {"text": "Hi"}}
    whole = frame(
        {
            ":message-type": "event",
            ":event-type": "contentBlockDelta",
            ":content-type": "application/json",
        },
        json.dumps(delta).encode(),
    )
    parts = (whole, whole[:40]) if half else (whole[:9], whole[9:])
    upstream.script = chunked(b"application/vnd.amazon.eventstream", *parts)
    running = await secure(upstream.url)
    client = bedrock(running.port)
    told: list[Any] = []

    def read() -> None:
        with closing(client.converse_stream(modelId=MODEL, messages=SAID)["stream"]) as events:
            told.extend(events)

    error = await fails(botocore.exceptions.EventStreamError, read)
    assert [event["contentBlockDelta"]["delta"]["text"] for event in told] == ["Hi"]
    assert error.response["Error"]["Code"] == "serviceUnavailableException"
    assert "before the answer was whole" in error.response["Error"]["Message"]
    assert running.calls[-1].envelope.code == "stream_truncated"
    client.close()
