"""boto3 for Bedrock: a signature cannot survive forwarding and is told so; an API key works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import boto3
import botocore.exceptions
import pytest
import trustme
from botocore.config import Config

from tests.proxy.conftest import Running
from tests.proxy.upstreams import answer, says

MODEL = "anthropic.claude-3-5-sonnet-20241022-v2:0"
SAID = [{"role": "user", "content": [{"text": "Say hello."}]}]

Bedrock = Callable[..., Any]


@pytest.fixture
def bedrock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bedrock:
    """Makes `bedrock-runtime` clients that know nothing of this machine's AWS settings."""
    for name in ("AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK", "AWS_CA_BUNDLE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def make(url: str, retries: int = 3, **options: Any) -> Any:
        config = Config(retries={"max_attempts": retries, "mode": "standard"}, read_timeout=10)
        session = boto3.session.Session(region_name="us-east-1")
        return session.client("bedrock-runtime", endpoint_url=url, config=config, **options)

    return make


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def secure(start, upstream, api, authority, tmp_path) -> Running:
    """A daemon that is called over https, with `bedrock` in front of the fake."""
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}
    return await start(
        {"bedrock": {"upstream": upstream.url, "dialect": "bedrock"}},
        listen=[{"address": "127.0.0.1:0", "tls": tls}],
    )


async def fails(client: Any, **more: Any) -> Any:
    try:
        found = await asyncio.to_thread(client.converse, modelId=MODEL, messages=SAID, **more)
    except botocore.exceptions.ClientError as error:
        return error
    raise AssertionError(f"answered: {found}")


async def test_a_signed_call_is_told_the_remedy(start, upstream, api, bedrock) -> None:
    running = await start({"bedrock": {"upstream": upstream.url, "dialect": "bedrock"}})
    client = bedrock(
        f"http://127.0.0.1:{running.port}/bedrock",
        aws_access_key_id="AKIAIOSFODNN7EXAMPLE",
        aws_secret_access_key="secret",
    )
    error = await fails(client)
    assert error.response["Error"]["Code"] == "sigv4_unsupported"
    assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert "sigv4_unsupported" in str(error)
    assert "AWS_BEARER_TOKEN_BEDROCK" in str(error)
    assert error.response["ResponseMetadata"]["HTTPHeaders"]["x-error-envelope"]
    assert (len(running.calls), upstream.hits) == (1, 0)
    client.close()


async def test_anthropics_own_client_for_bedrock(start, upstream, bedrock, monkeypatch) -> None:
    """It signs too, and is told the same; it sends an API key over plain HTTP to loopback."""
    running = await start({"bedrock": {"upstream": upstream.url, "dialect": "bedrock"}})
    monkeypatch.setenv("ANTHROPIC_BEDROCK_BASE_URL", f"http://127.0.0.1:{running.port}/bedrock")
    said = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 9}
    async with anthropic.AsyncAnthropicBedrock(
        aws_access_key="AKIAIOSFODNN7EXAMPLE", aws_secret_key="secret", aws_region="us-east-1"
    ) as signing:
        with pytest.raises(anthropic.BadRequestError, match="AWS_BEARER_TOKEN_BEDROCK") as raised:
            await signing.messages.create(**said)
    assert raised.value.body["envelope"]["code"] == "sigv4_unsupported"
    assert (len(running.calls), upstream.hits) == (1, 0)
    body = b'{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"Hello"}]}'
    upstream.script = says(answer(200, body))
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-good")
    async with anthropic.AsyncAnthropicBedrock(aws_region="us-east-1") as client:
        found = await client.messages.create(**said)
    assert found.content[0].text == "Hello"
    assert upstream.requests[0].get(b"authorization") == b"Bearer bedrock-api-key-good"


async def test_an_api_key_wants_https(bedrock, monkeypatch) -> None:
    """What boto3 says by itself: why `listen` needs a certificate for it."""
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-good")
    client = bedrock("http://127.0.0.1:9/bedrock")
    with pytest.raises(botocore.exceptions.BotoCoreError, match="HTTPS"):
        client.converse(modelId=MODEL, messages=SAID)
    client.close()


async def test_an_api_key_works(secure, api, upstream, bedrock, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-good")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    client = bedrock(f"https://127.0.0.1:{secure.port}/bedrock")
    upstream.requests.clear()

    async def enter(visit: Any) -> bool:
        assert visit.request.get(b"authorization") == b"Bearer bedrock-api-key-good"
        return False

    api.before = enter
    monkeypatch.setattr(api, "_may_enter", lambda *_, **__: True)
    found = await asyncio.to_thread(client.converse, modelId=MODEL, messages=SAID)
    assert found["output"]["message"]["content"] == [{"text": "Hello world"}]
    assert (
        upstream.requests[0].target
        == b"/model/" + MODEL.replace(":", "%3A").encode() + b"/converse"
    )
    assert secure.calls[0].verdict == "success"
    client.close()


async def test_errors_keep_their_names(secure, upstream, bedrock, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-good")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    client = bedrock(f"https://127.0.0.1:{secure.port}/bedrock")
    name = b"ResourceNotFoundException"
    body = b'{"message":"Could not resolve the foundation model from the model identifier: x"}'
    upstream.script = says(answer(404, body, (b"x-amzn-ErrorType", name)))
    error = await fails(client)
    assert isinstance(error, client.exceptions.ResourceNotFoundException)
    assert "foundation model" in str(error)
    assert upstream.hits == 1
    client.close()


async def test_local_answers_can_be_read(start, bedrock, secure, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-good")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    client = bedrock(f"https://127.0.0.1:{secure.port}/bedrok", retries=1)
    error = await fails(client)
    assert error.response["Error"]["Code"] == "unknown_provider"
    assert "configured: bedrock" in str(error)
    client.close()
