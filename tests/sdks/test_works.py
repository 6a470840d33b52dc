"""A: the official Python clients work through the daemon, unchanged but for the base URL."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import anthropic
import openai
import pytest

from tests.proxy.upstreams import Visit, answer, says

from .clients import ASYNC_KINDS, KINDS, MESSAGES
from .conftest import begin, beside, envelope
from .fake_api import SPEECH

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
OPENAI_KINDS = ("openai", "openai-async")
ANTHROPIC_KINDS = ("anthropic", "anthropic-async")


def text(client: Any, answer: Any) -> str:
    return answer.choices[0].message.content if client.is_openai else answer.content[0].text


@pytest.mark.parametrize("kind", KINDS)
async def test_plain(running, make, api, kind) -> None:
    client = make(kind, running)
    assert text(client, await client.ask("gpt-4o")) == "Hello world"
    assert api.seen[0]["messages"] == MESSAGES
    assert running.calls[0].decision == "forwarded"
    assert running.calls[0].verdict == "success"
    assert running.calls[0].key == f"{kind.removesuffix('-async')}/gpt-4o"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("api_name", ["chat", "responses", "messages"])
async def test_streamed(running, make, kind, api_name) -> None:
    if (api_name == "messages") != kind.startswith("anthropic"):
        return
    client = make(kind, running)
    assert await client.stream(api_name, "gpt-4o") == ("Hello world", None)
    assert running.calls[0].verdict == "success"


async def test_streamed_by_the_helpers_of_the_clients(running, make) -> None:
    client = make("anthropic-async", running)
    told = {"model": "claude", "messages": MESSAGES, "max_tokens": 9}
    async with client.raw.messages.stream(**told) as stream:
        assert [word async for word in stream.text_stream] == ["Hello", " world"]
        assert (await stream.get_final_message()).stop_reason == "end_turn"
    client = make("openai-async", running)
    async with client.raw.responses.stream(model="gpt-4o", input="x") as stream:
        async for _ in stream:
            pass
        assert (await stream.get_final_response()).output_text == "Hello world"
    async with client.raw.chat.completions.stream(model="gpt-4o", messages=MESSAGES) as stream:
        async for _ in stream:
            pass
        assert (await stream.get_final_completion()).choices[0].message.content == "Hello world"


@pytest.mark.parametrize("kind", OPENAI_KINDS)
async def test_openai_responses_embeddings_and_lists(running, make, kind) -> None:
    client = make(kind, running)
    found = await client.call(client.raw.responses.create, model="gpt-4o", input="Say hello.")
    assert found.output_text == "Hello world"
    found = await client.call(client.raw.embeddings.create, model="text-embedding-3", input="x")
    assert found.data[0].embedding == [1.0, 2.0]
    assert running.calls[-1].model == "text-embedding-3"
    found = await client.call(client.raw.models.list)
    assert found.data[0].id == "gpt-4o"


@pytest.mark.parametrize("kind", KINDS)
async def test_with_tools(running, make, api, kind) -> None:
    client = make(kind, running)
    if client.is_openai:
        tools: list[Any] = [
            {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}
        ]
        call = (await client.ask(tools=tools)).choices[0].message.tool_calls[0].function
        assert (call.name, call.arguments) == ("weather", '{"city": "Oslo"}')
    else:
        tools = [{"name": "weather", "input_schema": WEATHER}]
        call = (await client.ask(tools=tools)).content[0]
        assert (call.name, call.input) == ("weather", {"city": "Oslo"})
    assert api.seen[0]["tools"] == tools


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [5, 300_000])
async def test_with_a_file(running, make, api, kind, size) -> None:
    client = make(kind, running)
    content = b"h" * size
    if client.is_openai:
        found = await client.call(
            client.raw.files.create, file=("notes.jsonl", content), purpose="batch"
        )
        assert found.id == "file-1"
        assert api.uploads[0] == {"file": ("notes.jsonl", content), "purpose": (None, b"batch")}
    else:
        files = getattr(client.raw, "files", None) or client.raw.beta.files
        found = await client.call(files.upload, file=("notes.txt", content, "text/plain"))
        assert found.id == "file_1"
        assert api.uploads[0]["file"] == ("notes.txt", content)
    assert running.calls[0].verdict == "success"


@pytest.mark.parametrize("kind", OPENAI_KINDS)
async def test_openai_audio(running, make, api, kind) -> None:
    """A form names its model in a field; what comes back may be no text at all."""
    client = make(kind, running)
    found = await client.call(
        client.raw.audio.transcriptions.create, file=("a.wav", b"RIFF"), model="whisper-1"
    )
    assert found.text == "Hello world"
    assert running.calls[-1].key == "openai/whisper-1"
    found = await client.call(
        client.raw.audio.speech.create, model="tts-1", voice="alloy", input="Hello"
    )
    assert found.content == SPEECH
    assert running.calls[-1].verdict == "success"


async def test_anthropic_counts_tokens(running, make, api) -> None:
    client = make("anthropic-async", running)
    found = await client.raw.messages.count_tokens(model="claude", messages=MESSAGES)
    assert found.input_tokens == 9


async def test_many_at_once(running, make, api) -> None:
    clients = [make(kind, running) for kind in ("openai-async", "anthropic-async")]
    await asyncio.gather(*(client.ask() for client in clients for _ in range(50)))
    assert {call.verdict for call in running.calls} == {"success"}


async def test_azure(start, upstream, make, api) -> None:
    """The deployment stands in the path; the shape of errors is OpenAI's."""
    running = await start({"azure-openai": {"upstream": upstream.url, "dialect": "azure-openai"}})
    upstream.script = says(
        answer(
            404,
            b'{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}',
        )
    )
    async with openai.AsyncAzureOpenAI(
        azure_endpoint=f"http://127.0.0.1:{running.port}/azure-openai",
        api_key="good",
        api_version="2024-10-21",
    ) as client:
        with pytest.raises(openai.NotFoundError) as raised:
            await client.chat.completions.create(model="my-gpt", messages=MESSAGES)
        assert upstream.requests[0].target == (
            b"/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21"
        )
        assert running.calls[0].key == "azure-openai/my-gpt"
        assert envelope(raised.value)["code"] == "model_not_found"
        await upstream.stop()
        with pytest.raises(openai.InternalServerError) as failed:
            await client.with_options(max_retries=0).models.list()
        assert beside(failed.value)["code"] == "connection_refused"


OPENAI_CLASSES = [
    ("status-400", openai.BadRequestError, "validation"),
    ("status-401", openai.AuthenticationError, "authentication"),
    ("status-403", openai.PermissionDeniedError, "authentication"),
    ("status-404", openai.NotFoundError, "permanent"),
    ("status-409", openai.ConflictError, "transient"),
    ("status-422", openai.UnprocessableEntityError, "validation"),
    ("status-429", openai.RateLimitError, "rate_limit"),
    ("status-500", openai.InternalServerError, "transient"),
    ("status-503", openai.InternalServerError, "transient"),
]
ANTHROPIC_CLASSES = [
    ("status-400", anthropic.BadRequestError, "validation"),
    ("status-401", anthropic.AuthenticationError, "authentication"),
    ("status-403", anthropic.PermissionDeniedError, "authentication"),
    ("status-404", anthropic.NotFoundError, "permanent"),
    ("status-413", anthropic.APIStatusError, "permanent"),
    ("status-422", anthropic.UnprocessableEntityError, "validation"),
    ("status-429", anthropic.RateLimitError, "rate_limit"),
    ("status-500", anthropic.InternalServerError, "transient"),
    ("status-529", anthropic.InternalServerError, "transient"),
]
CLASSES = [
    (kind, *row)
    for kinds, rows in ((OPENAI_KINDS, OPENAI_CLASSES), (ANTHROPIC_KINDS, ANTHROPIC_CLASSES))
    for kind in kinds
    for row in rows
]


@pytest.mark.parametrize(("kind", "model", "raised", "class_"), CLASSES)
async def test_errors_of_each_class(running, upstream, make, kind, model, raised, class_) -> None:
    """The same exception with the same words as without the daemon, and an envelope beside it."""
    error = await make(kind, running, max_retries=0).error(model)
    direct = await make(kind, upstream.url, max_retries=0).error(model)
    assert type(error) is type(direct)
    assert isinstance(error, raised)
    assert str(error) == str(direct)
    assert (error.body, error.request_id) == (direct.body, direct.request_id)
    found = envelope(error)
    assert found["class"] == class_
    assert found["message"]
    assert found["correlation_id"] == error.response.headers["x-correlation-id"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_wrong_key(running, make, kind) -> None:
    error = await make(kind, running, api_key="sk-wrong").error()
    assert isinstance(error, (openai.AuthenticationError, anthropic.AuthenticationError))
    assert envelope(error)["class"] == "authentication"
    assert len(running.calls) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_what_passes_by_itself_is_left_to_the_clients_retries(
    running, make, upstream, kind
) -> None:
    client = make(kind, running, max_retries=1)
    await client.error("status-429" if client.is_openai else "status-500")
    assert upstream.hits == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_errors_that_come_compressed(running, upstream, make, kind) -> None:
    body = gzip.compress(
        b'{"type":"error","error":{"type":"not_found_error","code":"model_not_found","message":"model: gpt-5o"}}'
    )
    upstream.script = says(answer(503, body, (b"Content-Encoding", b"gzip")))
    error = await make(kind, running).error("gpt-5o")
    assert isinstance(error, (openai.NotFoundError, anthropic.NotFoundError))
    assert "gpt-5o" in str(error)
    assert envelope(error)["code"] == "model_not_found"


@pytest.mark.parametrize("kind", KINDS)
async def test_annotate_leaves_the_status_and_still_asks_once(
    start, upstream, api, make, kind
) -> None:
    running = await begin(start, upstream.url, on_reclassified="annotate")
    error = await make(kind, running).error("gpt-typo")
    assert (error.status_code, upstream.hits) == (503, 1)
    assert envelope(error)["code"] == "model_not_found"


@pytest.mark.parametrize("kind", ASYNC_KINDS)
async def test_the_clients_own_timeout_is_nobodys_failure(running, upstream, make, kind) -> None:
    async def hang(visit: Visit) -> None:
        await visit.closed()
        visit.keep = False

    upstream.script = hang
    error = await make(kind, running, timeout=0.2, max_retries=0).error()
    assert isinstance(error, (openai.APITimeoutError, anthropic.APITimeoutError))
    while not running.calls:
        await asyncio.sleep(0.01)
    assert running.calls[0].verdict == "neutral"
    assert not upstream.open_connections


@pytest.mark.parametrize("kind", KINDS)
async def test_no_daemon(start, make, kind) -> None:
    """What it looks like when nobody listens: the client's own class for that."""
    error = await make(kind, f"http://127.0.0.1:9/{kind}", max_retries=0).error()
    assert isinstance(error, (openai.APIConnectionError, anthropic.APIConnectionError))


async def test_the_environment_variables_of_the_clients(running, monkeypatch, make) -> None:
    """`env` and `run` set these; nothing in the program changes."""
    base = f"http://127.0.0.1:{running.port}"
    monkeypatch.setenv("OPENAI_BASE_URL", f"{base}/openai/v1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", f"{base}/anthropic")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-good")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-good")
    async with openai.AsyncOpenAI() as one:
        await one.chat.completions.create(model="gpt-4o", messages=MESSAGES)
    async with anthropic.AsyncAnthropic() as other:
        await other.messages.create(model="claude", messages=MESSAGES, max_tokens=9)
    assert [call.provider for call in running.calls] == ["openai", "anthropic"]


@pytest.mark.parametrize("kind", KINDS)
async def test_no_proxy_keeps_the_way_to_the_daemon_free(running, monkeypatch, make, kind) -> None:
    """Behind a company's proxy the clients need NO_PROXY for loopback: `env` and `run` set it."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost,::1")
    await make(kind, running, max_retries=0).ask()
    assert running.calls[0].decision == "forwarded"
