"""Our own answers in the words of gateways and protocols, and what these serve.

What the official clients make of them was tried with MCP's, gql's and Connect's; here the shapes
that they read are held.
"""

import json

import pytest

from sidecar.envelope.dialects import get, guess
from sidecar.envelope.headers import Headers
from sidecar.envelope.model import Envelope, ErrorClass, Seen, Source

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


def envelope(class_="transient", code="breaker_open"):
    return Envelope(
        class_=ErrorClass(class_),
        source=Source.SIDECAR,
        code=code,
        message="m",
        retryable=True,
        correlation_id="c",
    )


def data(event):
    name, _, line = event.decode().partition("data: ")
    return name, json.loads(line)


@pytest.mark.parametrize(
    "name", ["litellm", "zai", "dashscope", "minimax", "moonshot", "github-copilot"]
)
def test_a_gateway_answers_each_client_in_its_own_words(name):
    dialect, told = get(name), envelope()
    assert json.loads(dialect.error_body(told, 503, CHAT))["error"]["code"] == "breaker_open"
    anthropic = json.loads(dialect.error_body(told, 503, f"/anthropic{MESSAGES}?beta=true"))
    assert (anthropic["type"], anthropic["error"]["type"]) == ("error", "api_error")
    assert data(dialect.stream_error(told, MESSAGES))[0] == "event: error\n"
    assert data(dialect.stream_error(told, CHAT))[0] == ""


def test_cerebras_is_flat():
    body = json.loads(get("cerebras").error_body(envelope("rate_limit", "shed"), 429, CHAT))
    assert (body["code"], body["type"]) == ("shed", "rate_limit_error")


def test_codex_reads_response_failed():
    name, body = data(get("openai-codex").stream_error(envelope(), "/backend-api/codex/responses"))
    assert name == "event: response.failed\n"
    assert body["response"]["status"] == "failed"
    assert body["response"]["error"]["code"] == "breaker_open"


@pytest.mark.parametrize(("class_", "number"), [("validation", -32600), ("transient", -32000)])
def test_mcp_reads_a_reply_to_no_known_request(class_, number):
    body = json.loads(get("mcp").error_body(envelope(class_), 503, "/mcp"))
    assert (body["jsonrpc"], body["id"], body["error"]["code"]) == ("2.0", None, number)
    assert body["error"]["data"]["code"] == "breaker_open"
    name, event = data(get("mcp").stream_error(envelope(class_), "/mcp"))
    assert (name, event) == ("event: message\n", body)


def test_graphql_reads_errors_without_data():
    body = json.loads(get("graphql").error_body(envelope(), 503, "/graphql"))
    assert "data" not in body
    assert body["errors"][0]["extensions"]["code"] == "breaker_open"
    assert data(get("graphql").stream_error(envelope(), "/graphql")) == ("event: next\n", body)


def test_only_grpc_reads_headers():
    assert dict(get("grpc-web").error_headers(envelope("rate_limit"), ""))["grpc-status"] == "8"
    assert get("openai").error_headers(envelope(), "") == []


@pytest.mark.parametrize(
    ("name", "path", "answers"),
    [
        ("dashscope", "/api/v1/services/aigc/text-generation/generation", True),
        ("dashscope", "/api/v1/services/aigc/text2image/image-synthesis", False),
        ("minimax", "/v1/text/chatcompletion_v2", True),
        ("minimax", "/v1/video_generation", False),
        ("openai-codex", "/backend-api/codex/responses", True),
        ("zai", "/api/paas/v4/chat/completions", True),
        ("mcp", "/mcp/v1/messages", False),
        ("graphql", "/v1/messages", False),
        ("grpc-web", "/pkg.Service/responses", False),
    ],
)
def test_what_answers_a_question_may_be_asked_again(name, path, answers):
    assert get(name).is_model_route("POST", path) is answers
    assert get(name).repeatable("POST", path) is answers


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("api.individual.githubcopilot.com", "github-copilot"),
        ("chatgpt.com", "openai-codex"),
        ("open.bigmodel.cn", "zai"),
        ("api.minimaxi.com", "minimax"),
        ("api.kimi.com", "moonshot"),
        ("dashscope-intl.aliyuncs.com", "dashscope"),
        ("mychatgpt.com", "auto"),
    ],
)
def test_hosts(host, name):
    assert guess(host).name == name


@pytest.mark.parametrize("name", ["minimax", "dashscope", "zai", "graphql", "mcp", "grpc-web"])
def test_a_good_answer_is_not_decoded(name):
    bodies = {
        "minimax": b'{"choices":[{"finish_reason":"stop"}],"base_resp":{"status_code":0}}',
        "dashscope": b'{"status_code":200,"code":"","message":"","output":{"text":"a"}}',
        "zai": b'{"choices":[{"finish_reason":"stop"}]}',
        "graphql": b'{"data":{"validate":{"errors":[{"code":"X"}]}},"errors":null}',
        "mcp": b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":false}}',
        "grpc-web": b'{"error":{"code":"a member of a message"}}',
    }
    seen = Seen(status=200, headers=Headers(), path="/x", method="POST")
    assert not get(name).may_hold_error(bodies[name], seen)
