"""How each SDK is called, with its own retries off and short clocks, and how its provider answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import anthropic
import boto3
import cohere
import httpx
import mistralai.client
import openai
import requests
import slack_sdk
import stripe
from botocore.config import Config
from github import Auth, Github
from google import genai
from google.genai import types

#: Seconds that a client waits for an answer that never comes.
SHORT = 0.25

Shape = Callable[[int, str, str], Any]


@dataclass(frozen=True)
class Library:
    """One SDK.

    Attributes:
        name: as a report calls it.
        call: asks an address for anything.
        body: an error of its provider: out of status, code and message.
        has_code: its provider gives codes; else the status is the code.
        conflict: it repeats a 409, which therefore is a passing one.
        unwrapped: it lets the exceptions of its HTTP client through, a cut body too.
        id_header: where its provider puts its own id of the request.
    """

    name: str
    call: Callable[[str], Any]
    body: Shape
    has_code: bool = True
    conflict: bool = False
    unwrapped: bool = False
    id_header: str = "x-request-id"


def _openai(url: str) -> Any:
    client = openai.OpenAI(api_key="k", base_url=url, max_retries=0, timeout=SHORT)
    with client:
        return client.chat.completions.create(model="m", messages=[])


def _openai_stream(url: str) -> Any:
    client = openai.OpenAI(api_key="k", base_url=url, max_retries=0, timeout=SHORT)
    with client:
        return list(client.chat.completions.create(model="m", messages=[], stream=True))


def _anthropic(url: str) -> Any:
    client = anthropic.Anthropic(api_key="k", base_url=url, max_retries=0, timeout=SHORT)
    with client:
        return client.messages.create(model="m", messages=[], max_tokens=1)


def _anthropic_stream(url: str) -> Any:
    client = anthropic.Anthropic(api_key="k", base_url=url, max_retries=0, timeout=SHORT)
    with client:
        return list(client.messages.create(model="m", messages=[], max_tokens=1, stream=True))


def _genai(url: str) -> Any:
    options = types.HttpOptions(base_url=url, timeout=int(SHORT * 1000))
    client = genai.Client(api_key="k", vertexai=False, http_options=options)
    try:
        return client.models.generate_content(model="m", contents="x")
    finally:
        client.close()


def _mistral(url: str) -> Any:
    client = mistralai.client.Mistral(api_key="k", server_url=url, timeout_ms=int(SHORT * 1000))
    with client:
        return client.chat.complete(model="m", messages=[{"role": "user", "content": "x"}])


def _cohere(url: str) -> Any:
    with httpx.Client(timeout=SHORT) as inner:
        client = cohere.ClientV2(api_key="k", base_url=url, httpx_client=inner)
        return client.chat(
            model="m",
            messages=[{"role": "user", "content": "x"}],
            request_options={"max_retries": 0, "timeout_in_seconds": SHORT},
        )


def _boto(service: str, url: str) -> Any:
    return boto3.client(
        service,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        endpoint_url=url,
        config=Config(retries={"max_attempts": 0}, connect_timeout=SHORT, read_timeout=SHORT),
    )


def _dynamodb(url: str) -> Any:
    client = _boto("dynamodb", url)
    try:
        return client.get_item(TableName="t", Key={"k": {"S": "v"}})
    finally:
        client.close()


def transact(url: str) -> Any:
    client = _boto("dynamodb", url)
    try:
        put = {"Put": {"TableName": "t", "Item": {"k": {"S": "v"}}}}
        return client.transact_write_items(TransactItems=[put])
    finally:
        client.close()


def put(url: str) -> Any:
    client = _boto("dynamodb", url)
    try:
        return client.put_item(TableName="t", Item={"k": {"S": "v"}})
    finally:
        client.close()


def read_object(url: str) -> Any:
    client = _boto("s3", url)
    try:
        return client.get_object(Bucket="b", Key="k")["Body"].read()
    finally:
        client.close()


def _stripe(url: str) -> Any:
    inner = stripe.RequestsClient(timeout=SHORT)
    client = stripe.StripeClient(
        "sk_test_k", base_addresses={"api": url}, max_network_retries=0, http_client=inner
    )
    try:
        return client.v1.balance.retrieve()
    finally:
        inner.close()


def _slack(url: str) -> Any:
    client = slack_sdk.WebClient("xoxb-k", base_url=f"{url}/api/", timeout=1, retry_handlers=[])
    return client.chat_postMessage(channel="C1", text="x")


def _github(url: str) -> Any:
    client = Github(
        base_url=url, auth=Auth.Token("k"), timeout=1, retry=None, seconds_between_requests=None
    )
    with client:
        return client.get_user("x").name


def _httpx(url: str) -> Any:
    return httpx.get(url, timeout=SHORT).raise_for_status().json()


def _requests(url: str) -> Any:
    with requests.Session() as session:
        response = session.get(url, timeout=SHORT)
        response.raise_for_status()
        return response.json()


def _aiohttp(url: str) -> Any:
    async def ask() -> Any:
        timeout = aiohttp.ClientTimeout(sock_read=SHORT, sock_connect=SHORT)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, raise_for_status=True) as response,
        ):
            return await response.json()

    return asyncio.run(ask())


def _openai_error(status: int, code: str, message: str) -> Any:
    return {"error": {"message": message, "type": "x", "param": None, "code": code}}


def _anthropic_error(status: int, code: str, message: str) -> Any:
    return {"type": "error", "error": {"type": code, "message": message}, "request_id": "req_1"}


def _google_error(status: int, code: str, message: str) -> Any:
    return {"error": {"code": status, "message": message, "status": code}}


def _told(status: int, code: str, message: str) -> Any:
    return {"message": message}


def _aws_error(status: int, code: str, message: str) -> Any:
    return {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}


def _stripe_error(status: int, code: str, message: str) -> Any:
    kind = "api_error" if status >= 500 else "invalid_request_error"
    return {"error": {"type": kind, "code": code, "message": message}}


def _slack_error(status: int, code: str, message: str) -> Any:
    return {"ok": False, "error": code}


LIBRARIES = {
    library.name: library
    for library in (
        Library("openai", _openai, _openai_error, conflict=True),
        Library("anthropic", _anthropic, _anthropic_error, conflict=True),
        Library("google-genai", _genai, _google_error, unwrapped=True),
        Library("mistralai", _mistral, _told, has_code=False, unwrapped=True, conflict=True),
        Library("cohere", _cohere, _told, has_code=False, unwrapped=True, conflict=True),
        Library("boto3-dynamodb", _dynamodb, _aws_error),
        Library("stripe", _stripe, _stripe_error, conflict=True, id_header="request-id"),
        Library("slack_sdk", _slack, _slack_error, unwrapped=True, id_header="x-slack-req-id"),
        Library(
            "PyGithub",
            _github,
            _told,
            has_code=False,
            unwrapped=True,
            id_header="x-github-request-id",
        ),
        Library("httpx", _httpx, _told, has_code=False, unwrapped=True),
        Library("requests", _requests, _told, has_code=False, unwrapped=True),
        Library("aiohttp", _aiohttp, _told, has_code=False, unwrapped=True),
    )
}
STREAMS = {"openai": _openai_stream, "anthropic": _anthropic_stream}
