"""No key, token, cookie or password leaves in anything that is shown."""

import json

import pytest

from sidecar.envelope.dialects import get
from sidecar.envelope.http import classify
from sidecar.envelope.model import Headers, Seen
from sidecar.envelope.redact import redact_headers, redact_target, redact_text

SECRET = "hunter2hunter2hunter2"


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-proj-{}.",
        "Incorrect API key provided: sk-ant-api03-{}",
        "gsk_{} xai-{} pplx-{} hf_{}",
        "ghp_{} github_pat_{} xoxb-{}",
        "AIza{} ya29.{}",
        "Authorization: Bearer {}",
        "bad header 'Basic {}'",
        '{{"api_key": "{}"}}',
        '{{"message": "{{\\"api_key\\": \\"{}\\"}}"}}',
        '{{"client_secret":"{}","x":1}}',
        '{{"access_token":"{}"}}',
        '{{"token":"{}"}}',
        "password={}",
        "https://user:{}@host.example/x",
        "https://host.example/x?key={}&y=1",
        "https://host.example/x?a=1&X-Amz-Signature={}",
        "eyJhbGciOiJI.eyJzdWIi{}.sig",
        "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_secrets_are_hidden(text):
    shown = redact_text(text.replace("{{", "{").replace("}}", "}").replace("{}", SECRET))
    assert SECRET not in shown
    assert "[redacted]" in shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Rate limit reached for gpt-x on tokens per min (TPM): Limit 30000, Requested 45120.",
        '{"usage": {"prompt_tokens": 12, "max_tokens": 5}, "type": "tokens"}',
        '{"api_key": null, "password": false}',
        "The model `gpt-x` does not exist.",
        "https://platform.example/docs?page=2#errors",
    ],
)
def test_everything_else_stays(text):
    assert redact_text(text) == text


def test_json_stays_json():
    body = json.dumps({"api_key": SECRET, "list": [{"password": 'a"b\\c'}], "n": 1})
    told = json.loads(redact_text(body))
    assert told["n"] == 1
    assert told["api_key"] == "[redacted]"


def test_headers():
    shown = redact_headers(
        [
            ("Set-Cookie", f"a={SECRET}"),
            ("X-Api-Key", SECRET),
            ("x-goog-api-key", SECRET),
            ("Ocp-Apim-Subscription-Key", SECRET),
            ("X-Amz-Security-Token", SECRET),
            ("Location", f"https://h.example/?token={SECRET}"),
            ("X-Request-Id", "req_1"),
            ("X-RateLimit-Remaining-Tokens", "0"),
            ("Via", "1.1 a"),
            ("via", "1.1 b"),
        ]
    )
    assert SECRET not in str(shown)
    assert shown["x-request-id"] == "req_1"
    assert shown["x-ratelimit-remaining-tokens"] == "0"
    assert shown["via"] == "1.1 a, 1.1 b"


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/m:x?key=abc&alt=sse", "/v1/m:x?key=[redacted]&alt=sse"),
        ("/x?api_key=abc&access_token=d", "/x?api_key=[redacted]&access_token=[redacted]"),
        ("/bot/sk-abcdef123456/send", "/bot/[redacted]/send"),
        ("/a\r\nb", "/a??b"),
    ],
)
def test_targets(target, shown):
    assert redact_target(target) == shown


def test_an_envelope_holds_no_secret():
    seen = Seen(
        status=401,
        headers=Headers([("set-cookie", SECRET), ("x-echo", f"Bearer {SECRET}")]),
        body=json.dumps(
            {"error": {"message": f"bad key sk-{SECRET}", "code": f"sk-{SECRET}"}}
        ).encode(),
    )
    envelope = classify(seen, get("openai")).envelope
    assert SECRET not in str(envelope)


@pytest.mark.parametrize(
    "piece",
    ["sk-", "a.", "eyJaaaaaaaa.", '"', '\\"', "<", "api_", "://", 'password:"', "token=", "bearer ",
     "-----BEGIN PRIVATE KEY-----", "AKIA", "&x-amz-", "signature = "],
)  # fmt: skip
def test_hostile_text_takes_linear_time(piece):
    """With a pattern that backtracks over all of it, each of these takes a minute."""
    text = piece * (65536 // len(piece))
    assert len(redact_text(text)) <= 2 * len(text)
