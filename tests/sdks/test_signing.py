"""boto3 and Anthropic's client for Bedrock where the daemon signs: with dummy keys, or with none."""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import anthropic
import boto3
import botocore.exceptions
import pytest
from botocore import UNSIGNED
from botocore.config import Config

from sidecar.proxy import aws_credentials
from tests.proxy.aws import Account, Aws, forget_this_machine, sessions
from tests.proxy.conftest import Running, Start
from tests.proxy.upstreams import Upstream, Visit, answer

GOOD, SECRET = "AKIDGOOD", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
MODELS = [
    "anthropic.claude-3-5-sonnet-20241022-v2:0",
    "us.anthropic.claude-sonnet-4-20250514-v1:0",
    "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-lite-v1:0",
    "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/abc123xyz",
    "arn:aws:bedrock:us-east-1::foundation-model/amazon.titan-text-express-v1",
]
SAID = [{"role": "user", "content": [{"text": "Say hello."}]}]
DUMMY = {"aws_access_key_id": "dummy", "aws_secret_access_key": "dummy"}


def frame(event: str, payload: dict[str, Any]) -> bytes:
    """One event as AWS frames it: lengths, headers, payload, both with their sums."""
    headers = b"".join(
        bytes([len(name)]) + name + b"\7" + struct.pack(">H", len(value)) + value
        for name, value in (
            (b":event-type", event.encode()),
            (b":content-type", b"application/json"),
            (b":message-type", b"event"),
        )
    )
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + body
    return message + struct.pack(">I", zlib.crc32(message))


async def bedrock(visit: Visit) -> None:
    """Answers as the runtime does."""
    action = visit.request.target.partition(b"?")[0].rpartition(b"/")[2]
    if action == b"converse-stream":
        events = (
            frame("messageStart", {"role": "assistant"}),
            frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hello "}}),
            frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "world"}}),
            frame("contentBlockStop", {"contentBlockIndex": 0}),
            frame("messageStop", {"stopReason": "end_turn"}),
        )
        await visit.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.amazon.eventstream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n",
            *(b"%x\r\n%b\r\n" % (len(event), event) for event in events),
            b"0\r\n\r\n",
        )
        return
    told: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Hello world"}],
    }
    if action == b"converse":
        told = {
            "output": {"message": {"role": "assistant", "content": [{"text": "Hello world"}]}},
            "stopReason": "end_turn",
            "usage": {"inputTokens": 9, "outputTokens": 2, "totalTokens": 11},
            "metrics": {"latencyMs": 5},
        }
    await visit.send(answer(200, json.dumps(told).encode()))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The daemon has a key; the clients are told theirs."""
    forget_this_machine(monkeypatch, tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", GOOD)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture
def aws(upstream: Upstream) -> Aws:
    upstream.script = script = Aws({GOOD: Account(SECRET)}, bedrock)
    return script


async def begin(start: Start, upstream: Upstream) -> Running:
    sign = {"aws": {"service": "bedrock", "region": "us-east-1"}}
    return await start({"bedrock": {"upstream": upstream.url, "dialect": "bedrock", "sign": sign}})


@pytest.fixture
async def signing(start: Start, upstream: Upstream, aws: Aws) -> Running:
    return await begin(start, upstream)


def client(running: Running, *, signed: bool = True, **more: Any) -> Any:
    """A client in another region, with keys that no service knows, or that does not sign."""
    retries = {"max_attempts": 1, "mode": "standard"}
    config = Config(
        retries=retries, read_timeout=10, signature_version=None if signed else UNSIGNED
    )
    session = boto3.session.Session(region_name="eu-west-1")
    url = f"http://127.0.0.1:{running.port}/bedrock"
    keys = {**DUMMY, **more} if signed else {}
    return session.client("bedrock-runtime", endpoint_url=url, config=config, **keys)


@pytest.mark.parametrize("signed", [True, False], ids=["dummy keys", "unsigned"])
@pytest.mark.parametrize("model", MODELS)
async def test_every_kind_of_call(signing, upstream, aws, model, signed) -> None:
    made = client(signing, signed=signed)

    def ask() -> tuple[Any, Any, str]:
        whole = made.converse(modelId=model, messages=SAID)
        raw = made.invoke_model(modelId=model, body=json.dumps({"prompt": "x"}))
        stream = made.converse_stream(modelId=model, messages=SAID)["stream"]
        deltas = [event.get("contentBlockDelta", {}).get("delta", {}) for event in stream]
        return whole, json.loads(raw["body"].read()), "".join(one.get("text", "") for one in deltas)

    whole, raw, streamed = await asyncio.to_thread(ask)
    assert whole["output"]["message"]["content"] == [{"text": "Hello world"}]
    assert raw["content"][0]["text"] == "Hello world"
    assert streamed == "Hello world"
    assert (aws.refused, aws.signed_by) == ([], [GOOD] * 3)
    assert b"%2F" in upstream.requests[0].target or "/" not in model
    assert b"%3A" in upstream.requests[0].target
    assert [one.verdict for one in signing.calls] == ["success"] * 3
    made.close()


async def test_a_token_of_the_callers_own_stays_here(signing, upstream, aws) -> None:
    made = client(signing, aws_session_token="theirs")
    await asyncio.to_thread(made.converse, modelId=MODELS[0], messages=SAID)
    assert upstream.requests[0].get(b"x-amz-security-token") is None
    assert aws.signed_by == [GOOD]
    made.close()


async def test_a_control_plane_call_with_a_query(signing, upstream, aws) -> None:
    made = client(signing)
    await asyncio.to_thread(
        made.list_async_invokes, maxResults=5, nextToken="a+b/c==", statusEquals="Completed"
    )
    assert b"?" in upstream.requests[0].target
    assert aws.signed_by == [GOOD]
    made.close()


async def test_wrong_keys_are_the_services_own_refusal(signing, upstream, aws) -> None:
    aws.accounts = {GOOD: Account("another secret")}
    made = client(signing)
    with pytest.raises(botocore.exceptions.ClientError) as raised:
        await asyncio.to_thread(made.converse, modelId=MODELS[0], messages=SAID)
    response = raised.value.response
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert response["Error"]["Code"] == "InvalidSignatureException"
    envelope = json.loads(response["ResponseMetadata"]["HTTPHeaders"]["x-error-envelope"])
    assert (envelope["class"], envelope["source"]) == ("authentication", "http")
    assert (upstream.hits, signing.calls[0].verdict) == (1, "alive")
    made.close()


async def test_a_daemon_without_credentials_says_so(start, upstream, aws, monkeypatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    running = await begin(start, upstream)
    made = client(running)
    with pytest.raises(botocore.exceptions.ClientError, match="no AWS credentials") as raised:
        await asyncio.to_thread(made.converse, modelId=MODELS[0], messages=SAID)
    metadata = raised.value.response["ResponseMetadata"]
    assert metadata["HTTPStatusCode"] == 401
    envelope = json.loads(metadata["HTTPHeaders"]["x-error-envelope"])
    assert (envelope["code"], envelope["source"]) == ("missing_credentials", "sidecar")
    assert (len(running.calls), upstream.hits) == (1, 0)
    made.close()


async def test_sessions_that_end_are_renewed(start, upstream, aws, monkeypatch, tmp_path) -> None:
    """A service takes each session only until the next one is handed out."""
    monkeypatch.setattr(aws_credentials, "AGAIN", 0.0)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    # botocore renews at once what has less than a quarter of an hour left.
    sessions(tmp_path, [50, 50, 50, 3600])
    aws.accounts = {f"ASIA{n}": Account("secret", f"token-{n}") for n in range(1, 4)}
    running = await begin(start, upstream)
    made = client(running)
    for _ in range(4):
        await asyncio.to_thread(made.converse, modelId=MODELS[0], messages=SAID)
        for name, account in aws.accounts.items():
            account.ended = name < aws.signed_by[-1]
    # The first session may have been replaced before the first call came.
    assert aws.signed_by in (
        ["ASIA1", "ASIA2", "ASIA3", "ASIA3"],
        ["ASIA2", "ASIA3", "ASIA3", "ASIA3"],
    )
    assert aws.refused == []
    assert [one.verdict for one in running.calls] == ["success"] * 4
    made.close()


async def test_anthropics_own_client(signing, upstream, aws) -> None:
    url = f"http://127.0.0.1:{signing.port}/bedrock"
    async with anthropic.AsyncAnthropicBedrock(
        aws_access_key="dummy", aws_secret_key="dummy", aws_region="eu-west-1", base_url=url
    ) as made:
        found = await made.messages.create(
            model=MODELS[0], messages=[{"role": "user", "content": "x"}], max_tokens=9
        )
    assert found.content[0].text == "Hello world"
    assert aws.signed_by == [GOOD]
    assert upstream.requests[0].target == f"/model/{MODELS[0]}/invoke".encode()
