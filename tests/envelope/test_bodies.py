"""The daemon's own answers, as the official clients read them: their exceptions, our envelope."""

import json

import anthropic
import openai
import pytest

from sidecar.envelope.dialects import NAMES, get
from sidecar.envelope.events import SseParser
from sidecar.envelope.headers import Headers
from sidecar.envelope.http import classify
from sidecar.envelope.model import Envelope, ErrorClass, Seen, Source
from sidecar.envelope.stream import StreamReader

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


def envelope(class_="transient", code="breaker_open", *, retryable=True):
    return Envelope(
        class_=ErrorClass(class_),
        source=Source.SIDECAR,
        code=code,
        message="the breaker openai/gpt-x is open: five calls in a row failed",
        retryable=retryable,
        retry_after=12.5 if retryable else None,
        correlation_id="corr-1",
        raw={"sent": False},
    )


KINDS = [
    ("transient", "breaker_open", 503, openai.InternalServerError, anthropic.InternalServerError),
    ("transient", "first_byte_timeout", 504, openai.InternalServerError, anthropic.InternalServerError),
    ("transient", "connection_refused", 502, openai.InternalServerError, anthropic.InternalServerError),
    ("rate_limit", "shed", 429, openai.RateLimitError, anthropic.RateLimitError),
    ("permanent", "unknown_provider", 404, openai.NotFoundError, anthropic.NotFoundError),
    ("permanent", "forbidden_host", 403, openai.PermissionDeniedError, anthropic.PermissionDeniedError),
    ("permanent", "quota_exhausted", 402, openai.APIStatusError, anthropic.APIStatusError),
    ("validation", "bad_request", 400, openai.BadRequestError, anthropic.BadRequestError),
    ("permanent", "internal_error", 500, openai.InternalServerError, anthropic.InternalServerError),
]  # fmt: skip


def answering(library, status, body, content_type="application/json"):
    """A client of an official library whose transport answers this."""
    http = library._base_client.httpx2 if hasattr(library._base_client, "httpx2") else None
    if http is None:
        import httpx as http

    def answer(request):
        return http.Response(status, content=body, headers={"content-type": content_type})

    return http.Client(transport=http.MockTransport(answer))


def openai_client(status, body, content_type="application/json"):
    client = answering(openai, status, body, content_type)
    return openai.OpenAI(api_key="k", base_url="http://x/v1", max_retries=0, http_client=client)


def anthropic_client(status, body, content_type="application/json"):
    client = answering(anthropic, status, body, content_type)
    return anthropic.Anthropic(api_key="k", base_url="http://x", max_retries=0, http_client=client)


@pytest.mark.parametrize(("class_", "code", "status", "exception", "_"), KINDS)
def test_openai(class_, code, status, exception, _):
    told = envelope(class_, code, retryable=class_ in {"transient", "rate_limit"})
    client = openai_client(status, get("openai").error_body(told, status, CHAT))
    with pytest.raises(exception) as caught:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
    assert caught.value.code == code
    assert told.message in str(caught.value)
    assert caught.value.body["envelope"]["class"] == class_
    assert caught.value.body["envelope"]["correlation_id"] == "corr-1"
    assert caught.value.response.json()["envelope"]["raw"] == {"sent": False}


@pytest.mark.parametrize(("class_", "code", "status", "_", "exception"), KINDS)
def test_anthropic(class_, code, status, _, exception):
    told = envelope(class_, code, retryable=class_ in {"transient", "rate_limit"})
    client = anthropic_client(status, get("anthropic").error_body(told, status, MESSAGES))
    with pytest.raises(exception) as caught:
        client.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "x"}])
    assert caught.value.body["envelope"]["class"] == class_
    assert caught.value.body["error"]["message"] == told.message
    assert caught.value.body["error"]["details"] == {"error_code": code}


CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}\n\n'


def test_openai_chat_stream():
    body = CHUNK + get("openai").stream_error(envelope(), CHAT)
    stream = openai_client(200, body, "text/event-stream").chat.completions.create(
        model="m", messages=[{"role": "user", "content": "x"}], stream=True
    )
    assert next(stream).choices[0].delta.content == "Hel"
    with pytest.raises(openai.APIError) as caught:
        next(stream)
    assert caught.value.code == "breaker_open"
    assert caught.value.body["envelope"]["retry_after"] == 12.5


def test_openai_responses_stream():
    event = get("openai").stream_error(envelope(), RESPONSES)
    stream = openai_client(200, event, "text/event-stream").responses.create(
        model="m", input="x", stream=True
    )
    with pytest.raises(openai.APIError) as caught:
        next(stream)
    assert caught.value.code == "breaker_open"
    assert caught.value.body["envelope"]["class"] == "transient"
    (parsed,) = SseParser().feed(event)
    flat = json.loads(parsed.data)
    assert parsed.name == flat["type"] == "error"
    assert flat.keys() == {"type", "code", "message", "param", "sequence_number", "error"}


def test_anthropic_stream():
    start = b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}}\n\n'
    body = start + get("anthropic").stream_error(envelope("rate_limit", "shed"), MESSAGES)
    stream = anthropic_client(200, body, "text/event-stream").messages.create(
        model="m", max_tokens=1, messages=[{"role": "user", "content": "x"}], stream=True
    )
    assert next(stream).type == "message_start"
    with pytest.raises(anthropic.APIStatusError) as caught:
        next(stream)
    assert caught.value.body["error"]["type"] == "rate_limit_error"
    assert caught.value.body["envelope"]["code"] == "shed"


def test_ollama_speaks_three_skins():
    ollama, told = get("ollama"), envelope()
    assert json.loads(ollama.error_body(told, 503, "/api/chat"))["error"] == told.message
    assert ollama.stream_error(told, "/api/chat").endswith(b"}\n")
    assert json.loads(ollama.error_body(told, 503, CHAT))["error"]["code"] == "breaker_open"
    assert json.loads(ollama.error_body(told, 503, MESSAGES))["type"] == "error"


@pytest.mark.parametrize("name", sorted(NAMES))
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, "/api/chat", "/repos/x"])
def test_every_dialect_carries_the_envelope_and_is_read_back(name, path):
    dialect, told = get(name), envelope()
    sent = dialect.error_body(told, 503, path)
    body = json.loads(sent)
    # Salesforce's errors are an array, whose clients look at the first item.
    body = body[0] if isinstance(body, list) else body
    assert body["envelope"]["code"] == "breaker_open"
    assert list(body["envelope"]) == [
        "class", "source", "code", "message", "retryable", "retry_after", "correlation_id", "raw",
    ]  # fmt: skip
    seen = Seen(status=503, headers=Headers(), body=sent, path=path)
    assert classify(seen, dialect).envelope.class_ == "transient"
    kind = (
        "application/x-ndjson" if name == "ollama" and path == "/api/chat" else "text/event-stream"
    )
    reader = StreamReader(
        dialect, Seen(status=200, headers=Headers([("content-type", kind)]), path=path)
    )
    event = dialect.stream_error(told, path)
    assert event.endswith(b"\n")
    reader.feed(event)
    assert reader.failed is not None
    assert reader.failed.verdict == "failure"
